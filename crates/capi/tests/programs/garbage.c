/* Labels its packets with words that mean nothing, and with ports that there are not. */
#include <fastlane.h>

static void garbage(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state)
{
    uint64_t *seen = state;
    for (size_t i = 0; i < count; i++, ++*seen) {
        switch (*seen % 4) {
        case 0:
            packets[i].verdict = FL_REFLECT;
            break;
        case 1:
            packets[i].verdict = (uint32_t)(*seen * 2654435761u) | 0x80000001u;
            break;
        case 2:
            packets[i].verdict = fl_forward((uint16_t)(7 + *seen));
            break;
        default:
            packets[i].verdict = FL_REFLECT | 0xffff;
        }
    }
    if (*seen >= 4096)
        fl_end(turn);
}

static int start(struct fl_lane *lane, void **state)
{
    static uint64_t seen[1];
    *state = &seen[fl_lane_index(lane)];
    return 0;
}

int main(int argc, char **argv)
{
    static const struct fl_app app = {.process = garbage, .start = start};
    return fl_main(argc, argv, &app);
}
