/* Is as old, as new or as incomplete as AGE says. */
#include <fastlane.h>
#include <stdlib.h>
#include <string.h>

static void process(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state)
{
    for (size_t i = 0; i < count; i++)
        packets[i].verdict = FL_REFLECT;
    fl_end(turn);
    if (state)
        abort();
}

static int never(struct fl_lane *lane, void **state)
{
    (void)lane, (void)state;
    abort();
}

int main(int argc, char **argv)
{
    struct {
        struct fl_app app;
        void *later;
    } newer = {.app = {.process = process, .start = never}};
    const char *age = getenv("AGE");

    if (strcmp(age, "older") == 0) /* knows `process` only: the rest is not looked at */
        return fl_main_abi(argc, argv, &newer.app, offsetof(struct fl_app, turn), FL_ABI);
    newer.app.start = NULL;
    if (strcmp(age, "newer") == 0)
        return fl_main_abi(argc, argv, &newer.app, sizeof newer, FL_ABI);
    if (strcmp(age, "other") == 0)
        return fl_main_abi(argc, argv, &newer.app, sizeof newer.app, FL_ABI + 1);
    if (strcmp(age, "nothing") == 0)
        return fl_main(argc, argv, NULL);
    newer.app.process = NULL;
    return fl_main(argc, argv, &newer.app);
}
