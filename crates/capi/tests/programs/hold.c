/* Holds packets under the number in their first byte until the slow path says which go on: it tells
 * the slow path of the first one that it holds under a key. */
#include <fastlane.h>
#include <string.h>

enum { ASK = 1, GO = 2, END = 3 };

static bool goes[256], asked[256];

static void process(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state)
{
    (void)state;
    for (size_t i = 0; i < count; i++) {
        uint8_t key = packets[i].data[0];
        packets[i].verdict = goes[key] ? FL_REFLECT : fl_hold(key);
        if (goes[key] || asked[key])
            continue;
        if (key == 0) /* a whole packet rather than a number */
            asked[key] = fl_punt(turn, &packets[i], 77);
        else
            asked[key] = fl_send(turn, ASK, &key, sizeof key);
    }
}

static void each_turn(struct fl_turn *turn, void *state)
{
    struct fl_message message;
    (void)state;
    while (fl_receive(turn, &message)) {
        uint8_t key = 0;
        size_t held;
        if (message.kind == END) {
            fl_end(turn);
            continue;
        }
        if (message.kind != GO || message.length != sizeof key)
            continue;
        memcpy(&key, message.body, sizeof key);
        held = fl_held(turn, key);
        if (key == 3) {
            held -= fl_discard(turn, key);
        } else {
            goes[key] = true;
            held -= fl_resume(turn, key);
        }
        if (held > 0 || fl_resume(turn, FL_HOLD_MOST + 1) || fl_held(turn, UINT32_MAX))
            fl_end(turn);
        fl_send(turn, GO, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    static const struct fl_app app = {.process = process, .turn = each_turn};
    return fl_main(argc, argv, &app);
}
