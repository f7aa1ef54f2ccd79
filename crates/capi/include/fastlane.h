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

/* Version of the layouts and inline functions that a program is compiled against. It is checked at
 * start. */
#define FL_ABI ((uint32_t)3)

/* Verdict: pass to Linux. The default. */
#define FL_KERNEL ((uint32_t)0)

/* Verdict: drop. */
#define FL_DROP ((uint32_t)(1 << 24))

/* Verdict: send back by the port it arrived on. */
#define FL_REFLECT ((uint32_t)(2 << 24))

/* Verdict: send by the port in the lower 16 bits; see fl_forward. */
#define FL_FORWARD ((uint32_t)(3 << 24))

/* Verdict: hold in the lane until the key in the lower 24 bits is resumed; see fl_hold. */
#define FL_HOLD ((uint32_t)(4 << 24))

/* Maximum hold key. */
#define FL_HOLD_MOST ((uint32_t)((1 << 24) - 1))

/* Kind of a message that contains a packet; see fl_punt. Applications may use all other kinds. */
#define FL_PUNT ((uint32_t)0xffffffff)

/* Flag: a checksum of the packet is partial; see fl_complete_checksum. */
#define FL_PARTIAL ((uint16_t)1)

/* Flag: the packet came from Linux. No packet that `process` gets has it: such packets leave
 * without the application. */
#define FL_FROM_KERNEL ((uint16_t)2)

/* Bit of `token`: an end of the packet was moved. */
#define FL_MOVED ((uint64_t)0x8000000000000000)

/* A packet: a window on a frame, its origin and its verdict. The application may use it only
 * during the call that passes it: read and write its bytes, move its ends and label it.
 *
 * An application writes `verdict`, and the others through fl_prepend, fl_append, fl_trim_front and
 * fl_truncate only. A verdict that means nothing is a drop, counted as `drop_bad_verdict`; a port
 * that does not exist is one too, counted as `drop_no_port`. */
struct fl_packet {
    /* First byte, which begins the Ethernet header. */
    uint8_t *data;
    /* Frame identifier, and FL_MOVED. Applications must not write it. */
    uint64_t token;
    /* Length in bytes, without the frame check sequence. */
    uint32_t length;
    /* Number of bytes that can be prepended. */
    uint16_t headroom;
    /* Number of bytes that can be appended. */
    uint16_t tailroom;
    /* Port that the packet arrived on; of a new packet, the port that it was created for. */
    uint16_t port;
    /* FL_PARTIAL, FL_FROM_KERNEL and flags of the framework. Applications must not write it. */
    uint16_t flags;
    /* Verdict: FL_KERNEL, FL_DROP, FL_REFLECT, fl_forward(port) or fl_hold(key). */
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

/* A network application: its functions, of which only `process` is required. Create it with
 * designated initialisers, or zero it first: members may be added at the end.
 *
 * Each lane is a thread with a state of its own that nobody else touches, so none of these
 * functions needs a lock. They must not block, and in C++ they must not throw. */
struct fl_app {
    /* Labels the `count` packets of a burst, 1 or more, all of one port. Called in the lane's
     * thread. The array and the bytes are valid until it returns. */
    void (*process)(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state);
    /* Called once per turn of the lane after its packets, even if nothing arrived: for timers and
     * new packets. Called in the lane's thread. NULL: nothing to do. */
    void (*turn)(struct fl_turn *turn, void *state);
    /* Creates the state of one lane and stores it in `*state`, which is NULL before. Called once
     * for each lane in the thread of fl_main, before any port is open. Returns 0, or another value
     * to refuse, which ends the run: give the reason with fl_refuse. Memory that lanes write
     * should share no cache line: aligned_alloc(64, ...). NULL: the state is NULL. */
    int (*start)(struct fl_lane *lane, void **state);
    /* Frees the state of one lane. Called once for each lane for which `start` returned 0: in the
     * lane's thread at its end, or in the thread of fl_main if the lane never began. NULL: nothing
     * to free. */
    void (*stop)(void *state);
    /* Checks each packet that `process` was given after it: a packet with invalid changes other
     * than bytes and verdict is restored, dropped and counted as `drop_bad_verdict`. Costs about
     * two nanoseconds per packet; a debug build of the library always checks. */
    bool checked;
};

/* A message from the slow path. */
struct fl_message {
    /* Contents: valid until the next fl_receive, and no longer than the turn. */
    const void *body;
    /* Length of the contents in bytes. */
    size_t length;
    /* Kind of the message. */
    uint32_t kind;
};

/* Returns the time of this turn in nanoseconds of CLOCK_MONOTONIC. The clock is read once per
 * turn, at the first call: all packets of the turn get the same time. */
uint64_t fl_now(const struct fl_turn *turn);

/* Returns the number of this turn of the lane; the first is 1. */
uint64_t fl_turn_number(const struct fl_turn *turn);

/* Returns a new, empty packet with the verdict fl_forward(port), to be filled by fl_append. It
 * leaves in this turn and may be used until the calling function returns. Returns NULL, which is
 * counted, if the lane has no frame or the turn has already created a burst of packets. */
struct fl_packet *fl_new_packet(struct fl_turn *turn, uint16_t port);

/* Returns a copy of a packet with the verdict FL_DROP until another is set. Otherwise like
 * fl_new_packet; also returns NULL if the packet does not fit a frame. */
struct fl_packet *fl_copy(struct fl_turn *turn, const struct fl_packet *packet);

/* Returns the number of packets that this turn can still create. */
size_t fl_new_packets_left(const struct fl_turn *turn);

/* Starts a timer of this lane: fl_expired returns `key` in the first turn that begins at least
 * `after` nanoseconds from now, never in this turn. Returns false, which is counted, if 65,536
 * timers are pending. */
bool fl_start_timer(struct fl_turn *turn, uint64_t after, uint64_t key);

/* Stores the key of the next expired timer in `*key`. Returns false without a change if there is
 * none. Call it in the application's `turn`. */
bool fl_expired(struct fl_turn *turn, uint64_t *key);

/* Passes all packets held under a key to `process` again, with the bytes as the application left
 * them; returns their number. This happens in this turn after the calling function has returned,
 * before the packets that it has just labelled are sent: so they stay ahead of later packets of
 * the key. Packets that are held again go to the end. */
size_t fl_resume(struct fl_turn *turn, uint32_t key);

/* Drops and counts all packets held under a key; returns their number. */
size_t fl_discard(struct fl_turn *turn, uint32_t key);

/* Returns the number of packets held under a key. Packets labelled since the application was
 * called are not included yet. */
size_t fl_held(const struct fl_turn *turn, uint32_t key);

/* Sends a message of `length` bytes to the slow path at the end of this turn. The bytes are
 * copied. Returns false, which is counted, if the ring is full, the message is longer than 65,536
 * bytes or half of the ring, or the configuration has no `messages`. */
bool fl_send(struct fl_turn *turn, uint32_t kind, const void *body, size_t length);

/* Sends a packet in its current form to the slow path, with its origin, the time and the
 * application's reason: a message of the kind FL_PUNT, otherwise like fl_send. A packet that is
 * too long for a message is cut off. The verdict of the packet is separate. */
bool fl_punt(struct fl_turn *turn, const struct fl_packet *packet, uint32_t reason);

/* Stores the next message from the slow path in `*message`. Returns false without a change if
 * there is none. Call it in the application's `turn` until it returns false. A turn receives at
 * most 256: the rest follows in the next turn, which begins at once. */
bool fl_receive(struct fl_turn *turn, struct fl_message *message);

/* Keeps the lane awake after this turn: the application has work to do soon. */
void fl_keep_awake(struct fl_turn *turn);

/* Ends the application: after this turn all lanes send what waits in their ports, drop packets
 * that are held, and stop. */
void fl_end(struct fl_turn *turn);

/* Completes a partial checksum of the packet (FL_PARTIAL: Linux leaves it to a device). Call it
 * before reading the checksum or changing bytes that it covers. Returns true also if there was
 * nothing to do, and false if the checksum is outside of the packet: drop it then. */
bool fl_complete_checksum(struct fl_packet *packet);

/* Returns the lane's number among those with the application, from 0. */
size_t fl_lane_index(const struct fl_lane *lane);

/* Returns the number of lanes with the application: all, or the workers in master-worker. */
size_t fl_lane_count(const struct fl_lane *lane);

/* Returns the number of the port of this name, from 0 to 65535, or -1 if it does not exist. If
 * `start` then refuses without a reason of its own, the reason is the missing port. */
int fl_port(struct fl_lane *lane, const char *name);

/* Returns the number of ports. They are numbered from 0 in the order of their names. */
size_t fl_port_count(const struct fl_lane *lane);

/* Returns the name of a port, valid until `start` returns, or NULL if it does not exist. */
const char *fl_port_name(struct fl_lane *lane, uint16_t port);

/* Returns the object `app` of the configuration as JSON text in UTF-8 on one line, valid until
 * `start` returns; `{}` if it is absent. NULL if it is not an object, which then is the reason if
 * `start` refuses. */
const char *fl_settings(struct fl_lane *lane);

/* Sets the reason why `start` refuses and returns -1, for `start` to return. `key` is the wrong
 * key of the configuration, as `app.limit`: the exit status is 3. With NULL the fault is
 * elsewhere: the exit status is 4. Both texts are copied. */
int fl_refuse(struct fl_lane *lane, const char *key, const char *reason);

/* Runs the application for fl_main, which passes the structure size and version that the program
 * was compiled with. */
int fl_main_abi(int argc, char *const *argv, const struct fl_app *app, size_t size, uint32_t abi);

/* Ends the run as SIGINT does: the lanes send what waits in their ports and fl_main returns. It
 * may be called from any thread and signal handler at any time. Called before fl_main, it makes
 * fl_main end right after its start. */
void fl_stop(void);

/* Returns the verdict that sends the packet by this port. */
static inline uint32_t fl_forward(uint16_t port)
{
    return FL_FORWARD | port;
}

/* Returns the verdict that holds the packet until fl_resume(turn, key). Without room the packet is
 * dropped and counted as `drop_hold`. A key above FL_HOLD_MOST gives an invalid verdict. */
static inline uint32_t fl_hold(uint32_t key)
{
    return key > FL_HOLD_MOST ? UINT32_MAX : FL_HOLD | key;
}

/* Returns the `length` bytes at `offset` of the packet, or NULL if the packet ends before. */
static inline void *fl_at(const struct fl_packet *packet, size_t offset, size_t length)
{
    if (offset > packet->length || length > packet->length - offset)
        return NULL;
    return packet->data + offset;
}

/* Prepends `count` bytes with undefined contents and returns the new start. Returns NULL without a
 * change if there is less headroom. */
static inline uint8_t *fl_prepend(struct fl_packet *packet, size_t count)
{
    if (count > packet->headroom)
        return NULL;
    packet->headroom = (uint16_t)(packet->headroom - count);
    packet->length += (uint32_t)count;
    packet->data -= count;
    packet->token |= FL_MOVED;
    return packet->data;
}

/* Appends `count` bytes with undefined contents and returns the first of them. Returns NULL without
 * a change if there is less tailroom. */
static inline uint8_t *fl_append(struct fl_packet *packet, size_t count)
{
    uint8_t *end = packet->data + packet->length;
    if (count > packet->tailroom)
        return NULL;
    packet->tailroom = (uint16_t)(packet->tailroom - count);
    packet->length += (uint32_t)count;
    packet->token |= FL_MOVED;
    return end;
}

/* Removes `count` bytes from the start. Returns false without a change if there are fewer. */
static inline bool fl_trim_front(struct fl_packet *packet, size_t count)
{
    if (count > packet->length || count > (size_t)(UINT16_MAX - packet->headroom))
        return false;
    packet->headroom = (uint16_t)(packet->headroom + count);
    packet->length -= (uint32_t)count;
    packet->data += count;
    packet->token |= FL_MOVED;
    return true;
}

/* Shortens the packet to `length` bytes. Returns false without a change if it is shorter. */
static inline bool fl_truncate(struct fl_packet *packet, size_t length)
{
    size_t room;
    if (length > packet->length)
        return false;
    room = packet->tailroom + (packet->length - length);
    packet->tailroom = room > UINT16_MAX ? UINT16_MAX : (uint16_t)room;
    packet->length = (uint32_t)length;
    packet->token |= FL_MOVED;
    return true;
}

/* Runs a network application: reads the command line and the configuration, opens the ports,
 * creates a state for each lane, and moves packets until SIGINT, SIGTERM, fl_stop or fl_end. Call
 * it once, from `main`, and return its result, an exit status. `app` is copied at the start.
 *
 * 0  ended on request
 * 2  the command line is wrong
 * 3  the configuration is wrong
 * 4  a port, a lane or a service cannot be opened here, or the application refuses
 * 5  the run failed */
static inline int fl_main(int argc, char **argv, const struct fl_app *app)
{
    return fl_main_abi(argc, argv, app, sizeof *app, FL_ABI);
}

#ifdef __cplusplus
}
#endif

#endif
