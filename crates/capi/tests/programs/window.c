/* Moves the ends of each packet as its own bytes say, prints what came of it, and sends it back. */
#include <fastlane.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 15, FILLER = 0x5a };

/* The most that a step can do. */
static size_t edge(const struct fl_packet *packet, int kind)
{
    return kind == 0 ? packet->headroom : kind == 1 ? packet->tailroom : packet->length;
}

static bool step(struct fl_packet *packet, int kind, size_t count)
{
    uint8_t *added = NULL;
    switch (kind) {
    case 0:
        added = fl_prepend(packet, count);
        break;
    case 1:
        added = fl_append(packet, count);
        break;
    case 2:
        return fl_trim_front(packet, count);
    default:
        return fl_truncate(packet, count);
    }
    if (added)
        memset(added, FILLER, count);
    return added;
}

static void process(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state)
{
    static size_t seen;
    (void)state;
    for (size_t i = 0; i < count; i++) {
        uint8_t steps[4 * STEPS];
        memcpy(steps, fl_at(&packets[i], 0, sizeof steps), sizeof steps);
        for (const uint8_t *it = steps; it < steps + sizeof steps; it += 4) {
            size_t amount = (size_t)(it[1] | it[2] << 8) >> it[3] % 16;
            if (it[3] >= 128)
                amount = edge(&packets[i], it[0] % 4) + it[1] % 3;
            if (it[3] >= 128 && amount > 0)
                amount--;
            bool done = step(&packets[i], it[0] % 4, amount);
            printf("%d %u %u %u\n", done, (unsigned)packets[i].length,
                   (unsigned)packets[i].headroom, (unsigned)packets[i].tailroom);
        }
        packets[i].verdict = packets[i].length > 0 ? FL_REFLECT : FL_DROP;
    }
    seen += count;
    if (seen == 500)
        fl_end(turn);
}

int main(int argc, char **argv)
{
    static const struct fl_app app = {.process = process};
    return fl_main(argc, argv, &app);
}
