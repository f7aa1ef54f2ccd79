/* Swaps the Ethernet addresses and sends every packet back. */
#include <fastlane.h>
#include <string.h>

static void macswap(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state)
{
    (void)turn, (void)state;
    for (struct fl_packet *packet = packets; packet < packets + count; packet++) {
        uint8_t *destination = packet->data, *source = destination + 6;
        uint32_t first; /* of the destination, which so stays in registers: an array does not */
        uint16_t last;
        if (packet->length < 14) {
            packet->verdict = FL_DROP; /* a runt */
            continue;
        }
        memcpy(&first, destination, 4), memcpy(&last, destination + 4, 2);
        memcpy(destination, source, 6);
        memcpy(source, &first, 4), memcpy(source + 4, &last, 2);
        packet->verdict = FL_REFLECT;
    }
}

int main(int argc, char **argv)
{
    static const struct fl_app app = {.process = macswap};
    return fl_main(argc, argv, &app);
}
