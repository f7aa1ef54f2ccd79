/* Writes what the header forbids into one packet of each burst, and is checked. */
#include <fastlane.h>

static void corrupt(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state)
{
    for (size_t i = 0; i < count; i++)
        packets[i].verdict = FL_REFLECT;
    switch (fl_turn_number(turn)) {
    case 1:
        packets[0].length = 1000000;
        break;
    case 2:
        packets[0].token = packets[1].token;
        break;
    case 3:
        packets[0].data = NULL;
        break;
    case 4:
        packets[0] = packets[1];
        break;
    case 5:
        packets[0].headroom = 65535;
        packets[1].tailroom = 65535;
        break;
    default:
        fl_end(turn);
    }
    (void)state;
}

int main(int argc, char **argv)
{
    static const struct fl_app app = {.process = corrupt, .checked = true};
    return fl_main(argc, argv, &app);
}
