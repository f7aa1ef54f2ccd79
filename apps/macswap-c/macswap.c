/* Swaps the Ethernet addresses and sends every packet back. */
#include <fastlane.h>
#include <string.h>

static void macswap(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state)
{
    (void)turn, (void)state;
    for (size_t i = 0; i < count; i++) {
        uint8_t *destination = fl_at(&packets[i], 0, 14), *source, kept[6];
        if (!destination) {
            packets[i].verdict = FL_DROP; /* a runt */
            continue;
        }
        source = destination + sizeof kept;
        memcpy(kept, destination, sizeof kept);
        memcpy(destination, source, sizeof kept);
        memcpy(source, kept, sizeof kept);
        packets[i].verdict = FL_REFLECT;
    }
}

int main(int argc, char **argv)
{
    static const struct fl_app app = {.process = macswap};
    return fl_main(argc, argv, &app);
}
