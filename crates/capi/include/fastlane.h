/* Fastlane: network applications in C11 or C++.
 *
 * Link with -lfastlane_c. The command line, the configuration and the exit statuses are those of
 * every Fastlane application. Strings are in UTF-8 and end with NUL.
 *
 * Generated from crates/capi/src. */
#ifndef FASTLANE_H
#define FASTLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The lane that a state is made for, and one turn of a lane. */
struct fl_lane;
struct fl_turn;

/* The version of what a program is compiled against: the layouts and the inline functions here.
 * Checked when the program starts. */
#define FL_ABI ((uint32_t)2)

/* Verdict: it belongs to Linux. What a packet has until it gets another. */
#define FL_KERNEL ((uint32_t)0)

/* Verdict: nobody needs it. */
#define FL_DROP ((uint32_t)(1 << 24))

/* Verdict: back out of the port that it came from. */
#define FL_REFLECT ((uint32_t)(2 << 24))

/* Verdict: out of the port whose number is in the lower 16 bits; see fl_forward. */
#define FL_FORWARD ((uint32_t)(3 << 24))

/* Verdict: the lane keeps it until the key in the lower 24 bits is resumed; see fl_hold. */
#define FL_HOLD ((uint32_t)(4 << 24))

/* The greatest key that packets can be held under. */
#define FL_HOLD_MOST ((uint32_t)((1 << 24) - 1))

/* The kind of a message that is a packet; see fl_punt. Applications use the others. */
#define FL_PUNT ((uint32_t)0xffffffff)

/* Flag: a checksum of the packet is not complete; see fl_complete_checksum. */
#define FL_PARTIAL ((uint16_t)1)

/* Flag: the packet came from Linux. */
#define FL_FROM_KERNEL ((uint16_t)2)

/* A packet: which bytes of which frame, where it came from, what shall become of it. It is the
 * application's from the call that shows it to the return from that call, to read and write its
 * bytes, to move its ends and to label it; never to keep.
 *
 * An application writes `verdict`, and the others through fl_prepend, fl_append, fl_trim_front and
 * fl_truncate only. A verdict that means nothing is a drop, counted as `drop_bad_verdict`; a port
 * that does not exist is one too, counted as `drop_no_port`. */
struct fl_packet {
    /* The first byte, of the Ethernet header. */
    uint8_t *data;
    /* Which frame it is. Not the application's to write. */
    uint64_t token;
    /* Bytes from `data` on, without the frame check sequence. */
    uint32_t length;
    /* Bytes that can be prepended. */
    uint16_t headroom;
    /* Bytes that can be appended. */
    uint16_t tailroom;
    /* The number of the port that it came from; of a new packet, that it was made for. */
    uint16_t port;
    /* FL_PARTIAL, FL_FROM_KERNEL; others are the framework's. Not the application's to write. */
    uint16_t flags;
    /* The label: FL_KERNEL, FL_DROP, FL_REFLECT, fl_forward(port) or fl_hold(key). */
    uint32_t verdict;
};

#ifdef __cplusplus
#define FL_ASSERT(condition, text) static_assert(condition, text)
#else
#define FL_ASSERT(condition, text) _Static_assert(condition, text)
#endif
FL_ASSERT(sizeof(struct fl_packet) == 32, "64-bit machines only");
FL_ASSERT(offsetof(struct fl_packet, data) == 0, "the layout of data");
FL_ASSERT(offsetof(struct fl_packet, token) == 8, "the layout of token");
FL_ASSERT(offsetof(struct fl_packet, length) == 16, "the layout of length");
FL_ASSERT(offsetof(struct fl_packet, headroom) == 20, "the layout of headroom");
FL_ASSERT(offsetof(struct fl_packet, tailroom) == 22, "the layout of tailroom");
FL_ASSERT(offsetof(struct fl_packet, port) == 24, "the layout of port");
FL_ASSERT(offsetof(struct fl_packet, flags) == 26, "the layout of flags");
FL_ASSERT(offsetof(struct fl_packet, verdict) == 28, "the layout of verdict");

/* A network application: its functions, of which only `process` must be there. Make it with
 * designated initialisers, or zeros first: members may be added at the end.
 *
 * Each lane is a thread with a state of its own that nobody else touches, so none of these
 * functions needs a lock. They must not block, and in C++ they must not throw. */
struct fl_app {
    /* Labels the `count` packets of a burst, 1 or more, which came from one queue. Called in the
     * lane's thread. The array and the bytes are valid until it returns. */
    void (*process)(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state);
    /* Called once a turn of the lane, also when nothing arrived, after its packets: for timers and
     * packets of one's own. In the lane's thread. NULL: nothing to do. */
    void (*turn)(struct fl_turn *turn, void *state);
    /* Makes the state of one lane, and puts it into `*state`, which is NULL before. Called once
     * for each lane in the thread that called fl_main, before any port is open. Returns 0, or
     * another value to refuse, which ends the run: say why with fl_refuse. Memory that lanes
     * write should share no cache line: aligned_alloc(64, ...). NULL: the state is NULL. */
    int (*start)(struct fl_lane *lane, void **state);
    /* Frees the state of one lane. Called once for each for which `start` returned 0, in the
     * lane's thread when it has ended, or in that of fl_main when it never began. NULL: nothing to
     * free. */
    void (*stop)(void *state);
    /* Compare each packet before and after `process`: one of which anything but the bytes and the
     * verdict was written wrongly is put back, dropped and counted as `drop_bad_verdict`. Costs
     * about two nanoseconds for each packet; a debug build of the library always does it. */
    bool checked;
};

/* A message from the slow path. */
struct fl_message {
    /* What it says: valid until the next fl_receive, and no longer than the turn. */
    const void *body;
    /* Bytes of it. */
    size_t length;
    /* What it is. */
    uint32_t kind;
};

/* The time of this turn, in nanoseconds of CLOCK_MONOTONIC. The clock is read once a turn, when it
 * is first asked for: all packets of the turn get the same time. */
uint64_t fl_now(const struct fl_turn *turn);

/* The number of this turn of the lane; the first is 1. */
uint64_t fl_turn_number(const struct fl_turn *turn);

/* A new, empty packet, already labelled fl_forward(port): give it content by fl_append. It leaves
 * in this turn, and is the application's until the function that asked for it returns. NULL, which
 * is counted, when the lane has no frame or the turn has made its share (a burst size) already. */
struct fl_packet *fl_new_packet(struct fl_turn *turn, uint16_t port);

/* A copy of a packet, with the label FL_DROP until it gets another; else as fl_new_packet, NULL
 * also when it does not fit a frame. */
struct fl_packet *fl_copy(struct fl_turn *turn, const struct fl_packet *packet);

/* How many packets this turn can still make. */
size_t fl_new_packets_left(const struct fl_turn *turn);

/* Starts a timer of this lane: `key` comes out of fl_expired in the first turn that begins `after`
 * nanoseconds from now or later, never in this one. False, which is counted, when 65,536 are
 * pending. */
bool fl_start_timer(struct fl_turn *turn, uint64_t after, uint64_t key);

/* Puts the key of the next timer that has expired into `*key`; false, and no change, when there is
 * none. For the application's `turn`. */
bool fl_expired(struct fl_turn *turn, uint64_t *key);

/* Shows all packets that are held under a key at this moment to `process` again, as they were
 * received, with what the application has written into them; returns how many. That happens in
 * this turn, when the function that calls this has returned, and before the packets that it has
 * just labelled go anywhere: so they stay ahead of all of that key that came after them. What is
 * held again goes to the end. */
size_t fl_resume(struct fl_turn *turn, uint32_t key);

/* Drops all packets that are held under a key; returns how many, which are counted. */
size_t fl_discard(struct fl_turn *turn, uint32_t key);

/* How many packets are held under a key. Those that were labelled since the application was called
 * are not among them yet. */
size_t fl_held(const struct fl_turn *turn, uint32_t key);

/* Sends a message of `length` bytes to the slow path; it leaves with this turn. The bytes are
 * copied. False, which is counted, when there is no room for it, when it is longer than 65,536
 * bytes, or when nobody listens at all. */
bool fl_send(struct fl_turn *turn, uint32_t kind, const void *body, size_t length);

/* Shows a packet, as it is now, to the slow path, with where and when it came and the reason that
 * the application gives: a message of the kind FL_PUNT, else as fl_send. What the lane does with
 * the packet is for its label to say. */
bool fl_punt(struct fl_turn *turn, const struct fl_packet *packet, uint32_t reason);

/* Puts the next message from the slow path into `*message`; false, and no change, when there is
 * none. Best called in the application's `turn`, until it is false. A turn has at most 256: what
 * is left comes in the next one, which follows at once. */
bool fl_receive(struct fl_turn *turn, struct fl_message *message);

/* Keeps the lane from sleeping after this turn: the application has work of its own to do soon. */
void fl_keep_awake(struct fl_turn *turn);

/* Ends the whole application: after this turn all lanes send what they hold, and stop. */
void fl_end(struct fl_turn *turn);

/* Completes a checksum of the packet that is only partial (FL_PARTIAL: Linux leaves that to a
 * device), before the application reads it or changes what it covers. True also when there was
 * nothing to do; false when the place of the checksum is outside of the packet: drop it. */
bool fl_complete_checksum(struct fl_packet *packet);

/* The lane's number, from 0. */
size_t fl_lane_index(const struct fl_lane *lane);

/* How many lanes there are. */
size_t fl_lane_count(const struct fl_lane *lane);

/* The number of the port of this name, from 0 to 65535, or -1 when there is none. If `start` then
 * refuses without a reason of its own, the reason is that this port is missing. */
int fl_port(struct fl_lane *lane, const char *name);

/* How many ports there are. Their numbers are from 0, in the order of their names. */
size_t fl_port_count(const struct fl_lane *lane);

/* The name of a port, or NULL when there is none of this number. */
const char *fl_port_name(struct fl_lane *lane, uint16_t port);

/* The object `app` of the configuration, as JSON text in UTF-8 on one line; `{}` when there is
 * none. NULL when it is no object, which is then the reason should `start` refuse. */
const char *fl_settings(struct fl_lane *lane);

/* Says why `start` refuses, and returns -1, for `start` to return. `key` is the place in the
 * configuration that is wrong, as `app.limit`: the exit status is 3. With NULL the fault is
 * elsewhere: the exit status is 4. Both texts are copied. */
int fl_refuse(struct fl_lane *lane, const char *key, const char *reason);

/* What fl_main calls, with the size and the version that the program was compiled with. */
int fl_main_abi(int argc, char *const *argv, const struct fl_app *app, size_t size, uint32_t abi);

/* Ends the run as SIGINT does: the lanes send what they hold and fl_main returns. From any thread
 * and from signal handlers, at any time: called before fl_main, that ends as soon as it began. */
void fl_stop(void);

/* The verdict: out of this port. */
static inline uint32_t fl_forward(uint16_t port)
{
    return FL_FORWARD | port;
}

/* The verdict: the lane keeps the packet until fl_resume(turn, key); counted as `drop_hold` when
 * there is no room for it. The key is at most FL_HOLD_MOST; a greater one means nothing. */
static inline uint32_t fl_hold(uint32_t key)
{
    return key > FL_HOLD_MOST ? UINT32_MAX : FL_HOLD | key;
}

/* The `length` bytes at `offset` from the start of the packet, or NULL when it ends before. */
static inline void *fl_at(const struct fl_packet *packet, size_t offset, size_t length)
{
    if (offset > packet->length || length > packet->length - offset)
        return NULL;
    return packet->data + offset;
}

/* Moves the start forward over `count` new bytes, whose content is undefined, and returns the
 * start; NULL, and no change, when there is less head room. */
static inline uint8_t *fl_prepend(struct fl_packet *packet, size_t count)
{
    if (count > packet->headroom)
        return NULL;
    packet->headroom = (uint16_t)(packet->headroom - count);
    packet->length += (uint32_t)count;
    packet->data -= count;
    return packet->data;
}

/* Extends the end by `count` bytes, whose content is undefined, and returns the first of them;
 * NULL, and no change, when there is less tail room. */
static inline uint8_t *fl_append(struct fl_packet *packet, size_t count)
{
    uint8_t *end = packet->data + packet->length;
    if (count > packet->tailroom)
        return NULL;
    packet->tailroom = (uint16_t)(packet->tailroom - count);
    packet->length += (uint32_t)count;
    return end;
}

/* Removes `count` bytes from the start; false, and no change, when there are fewer. */
static inline bool fl_trim_front(struct fl_packet *packet, size_t count)
{
    if (count > packet->length || count > (size_t)(UINT16_MAX - packet->headroom))
        return false;
    packet->headroom = (uint16_t)(packet->headroom + count);
    packet->length -= (uint32_t)count;
    packet->data += count;
    return true;
}

/* Shortens the packet to `length` bytes; false, and no change, when it is shorter already. */
static inline bool fl_truncate(struct fl_packet *packet, size_t length)
{
    size_t room;
    if (length > packet->length)
        return false;
    room = packet->tailroom + (packet->length - length);
    packet->tailroom = room > UINT16_MAX ? UINT16_MAX : (uint16_t)room;
    packet->length = (uint32_t)length;
    return true;
}

/* Runs a network application: reads the command line and the configuration, opens the ports, makes
 * a state for each lane, and moves packets until it is told to end, by SIGINT, SIGTERM, fl_stop or
 * fl_end. Call it once, from `main`, and return what it returns. `app` is not used after it began.
 *
 * 0  ended as asked
 * 2  the command line is wrong
 * 3  the configuration is wrong
 * 4  a port, a lane or a service cannot be opened here, or the application refuses
 * 5  the run went wrong */
static inline int fl_main(int argc, char **argv, const struct fl_app *app)
{
    return fl_main_abi(argc, argv, app, sizeof *app, FL_ABI);
}

#ifdef __cplusplus
}
#endif

#endif
