/* Sends a packet of its own and a copy for each one it gets, by a timer and at once. */
#include <fastlane.h>
#include <string.h>

static uint64_t seen, timers, first;

static void process(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state)
{
    (void)state;
    for (size_t i = 0; i < count; i++) {
        struct fl_packet *copy = fl_copy(turn, &packets[i]), *again;
        packets[i].verdict = FL_DROP;
        if (!copy || !fl_trim_front(copy, 4) || !fl_truncate(copy, 20))
            continue;
        copy->verdict = fl_forward(0);
        again = fl_copy(turn, copy); /* of a packet made in this turn */
        if (!again || again->length != 20 || !fl_append(again, 1) || !fl_prepend(again, 2))
            continue;
        memset(again->data, 0xaa, 2);
        again->data[22] = 0xbb;
        again->verdict = fl_forward(0);
    }
    seen += count;
    if (seen == count) {
        first = fl_now(turn);
        fl_start_timer(turn, 1000000, 42);
    }
}

static void each_turn(struct fl_turn *turn, void *state)
{
    uint64_t key = 0;
    (void)state;
    if (fl_expired(turn, &key) && key == 42 && fl_now(turn) >= first + 1000000) {
        size_t left = fl_new_packets_left(turn);
        struct fl_packet *packet = fl_new_packet(turn, 0);
        if (packet && packet->length == 0 && left == fl_new_packets_left(turn) + 1)
            memset(fl_append(packet, 30), 0xcc, 30);
        timers++;
    } else if (timers > 0) {
        fl_end(turn);
    }
    fl_keep_awake(turn);
}

int main(int argc, char **argv)
{
    static const struct fl_app app = {.process = process, .turn = each_turn};
    return fl_main(argc, argv, &app);
}
