/* The rival of the memory port: the same work on a plain {pointer, length}.
 *
 * The loop takes a burst from a ring, swaps the Ethernet addresses of each packet and puts the burst
 * back; it drops runts. It has no counters, no clock and no verdicts.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct packet {
    uint8_t *data;
    uint32_t length;
};

struct macswap {
    struct packet *ring; /* the number of slots is a power of two */
    uint32_t mask;
    uint32_t head; /* index of the next packet */
    uint32_t tail; /* index of the next free slot */
    uint8_t *memory;
};

enum { BURST = 64 };

void macswap_free(struct macswap *self)
{
    if (self) {
        free(self->ring);
        free(self->memory);
        free(self);
    }
}

/* Creates `count` packets, a power of two, of `length` bytes, each `offset` bytes into a frame. */
struct macswap *macswap_new(uint32_t count, size_t frame_size, size_t offset,
                            const uint8_t *content, uint32_t length)
{
    struct macswap *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->ring = calloc(count, sizeof *self->ring);
    self->memory = aligned_alloc(4096, count * frame_size);
    if (!self->ring || !self->memory) {
        macswap_free(self);
        return NULL;
    }
    memset(self->memory, 0, count * frame_size);
    self->mask = count - 1;
    for (self->tail = 0; self->tail < count; self->tail++) {
        uint8_t *data = self->memory + self->tail * frame_size + offset;
        memcpy(data, content, length);
        self->ring[self->tail] = (struct packet){data, length};
    }
    return self;
}

static uint32_t take(struct macswap *self, struct packet *burst, uint32_t most)
{
    uint32_t count = self->tail - self->head;
    if (count > most)
        count = most;
    for (uint32_t i = 0; i < count; i++)
        burst[i] = self->ring[(self->head + i) & self->mask];
    self->head += count;
    return count;
}

static void put(struct macswap *self, const struct packet *burst, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        self->ring[(self->tail + i) & self->mask] = burst[i];
    self->tail += count;
}

static void swap(uint8_t *data)
{
    uint8_t destination[6];
    memcpy(destination, data, 6);
    memcpy(data, data + 6, 6);
    memcpy(data + 6, destination, 6);
}

/* Processes `turns` bursts of at most `burst` packets. Returns the number of packets put back. */
uint64_t macswap_run(struct macswap *self, uint64_t turns, uint32_t burst)
{
    struct packet packets[BURST];
    uint64_t sum = 0;

    if (burst > BURST)
        burst = BURST;
    while (turns--) {
        uint32_t count = take(self, packets, burst), kept = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (packets[i].length < 14)
                continue; /* runt */
            swap(packets[i].data);
            packets[kept++] = packets[i];
        }
        put(self, packets, kept);
        sum += kept;
    }
    return sum;
}
