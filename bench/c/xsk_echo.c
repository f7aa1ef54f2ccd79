/* The rival of the AF_XDP port: a hand-written loop on AF_XDP rings, using the kernel's headers.
 *
 * It uses one queue, native copy mode, need-wakeup and XDP_MAX_TX_SKB_BUDGET as large as the ring,
 * and never sleeps. Addresses are swapped in place; there are no counters and no verdicts.
 * Kernel document: Documentation/networking/af_xdp.rst.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef XDP_MAX_TX_SKB_BUDGET
#define XDP_MAX_TX_SKB_BUDGET 9 /* Linux 6.17 */
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

enum { FRAME_SIZE = 2048, BATCH = 32, MOST_ERROR = 128 };

/* User space side of a ring shared with the kernel. */
struct ring {
    uint32_t *producer, *consumer, *flags;
    void *entries;
    uint32_t size;
    uint32_t mine;   /* position of this side */
    uint32_t theirs; /* position of the kernel when last loaded */
    void *mapping;
    size_t length;
};

struct xsk_echo {
    int socket, map, program, link;
    struct ring fill, completion, receive, transmit;
    uint8_t *memory;
    size_t memory_length;
    uint64_t *spare; /* free frames */
    uint32_t spares;
    uint32_t frames;
    uint32_t sending; /* frames in the transmit or completion ring */
};

static long bpf(int command, union bpf_attr *attribute)
{
    return syscall(SYS_bpf, command, attribute, sizeof *attribute);
}

static bool failed(char *error, const char *what)
{
    snprintf(error, MOST_ERROR, "%s: %s", what, strerror(errno));
    return false;
}

static bool map_ring(struct xsk_echo *self, struct ring *ring, uint64_t page,
                     const struct xdp_ring_offset *offset, uint32_t size, size_t entry)
{
    ring->length = offset->desc + size * entry;
    ring->mapping = mmap(NULL, ring->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                         self->socket, (off_t)page);
    if (ring->mapping == MAP_FAILED) {
        ring->mapping = NULL;
        return false;
    }
    uint8_t *start = ring->mapping;
    ring->producer = (uint32_t *)(start + offset->producer);
    ring->consumer = (uint32_t *)(start + offset->consumer);
    ring->flags = (uint32_t *)(start + offset->flags);
    ring->entries = start + offset->desc;
    ring->size = size;
    return true;
}

static bool open_socket(struct xsk_echo *self, uint32_t size, char *error)
{
    self->socket = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (self->socket < 0)
        return failed(error, "an AF_XDP socket");
    struct xdp_umem_reg umem = {.addr = (uintptr_t)self->memory,
                                .len = self->memory_length,
                                .chunk_size = FRAME_SIZE};
    if (setsockopt(self->socket, SOL_XDP, XDP_UMEM_REG, &umem, sizeof umem))
        return failed(error, "the UMEM");
    const int rings[] = {XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING};
    for (int i = 0; i < 4; i++)
        if (setsockopt(self->socket, SOL_XDP, rings[i], &size, sizeof size))
            return failed(error, "a ring");
    (void)setsockopt(self->socket, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &size, sizeof size);
    struct xdp_mmap_offsets at;
    socklen_t length = sizeof at;
    if (getsockopt(self->socket, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length))
        return failed(error, "the offsets of the rings");
    size_t address = sizeof(uint64_t), descriptor = sizeof(struct xdp_desc);
    if (!map_ring(self, &self->fill, XDP_UMEM_PGOFF_FILL_RING, &at.fr, size, address) ||
        !map_ring(self, &self->completion, XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, size, address) ||
        !map_ring(self, &self->receive, XDP_PGOFF_RX_RING, &at.rx, size, descriptor) ||
        !map_ring(self, &self->transmit, XDP_PGOFF_TX_RING, &at.tx, size, descriptor))
        return failed(error, "mapping a ring");
    return true;
}

/* Loads the program `return bpf_redirect_map(&map, context->rx_queue_index, XDP_PASS);`. */
static bool load_program(struct xsk_echo *self, char *error)
{
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_XSKMAP,
                          .key_size = 4,
                          .value_size = 4,
                          .max_entries = 1};
    self->map = (int)bpf(BPF_MAP_CREATE, &map);
    if (self->map < 0)
        return failed(error, "an XSKMAP");
    struct bpf_insn code[] = {
        {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1,
         .off = offsetof(struct xdp_md, rx_queue_index)},
        {.code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD,
         .imm = self->map},
        {0},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr program = {.prog_type = BPF_PROG_TYPE_XDP,
                              .insn_cnt = sizeof code / sizeof *code,
                              .insns = (uintptr_t)code,
                              .license = (uintptr_t) "Dual MIT/GPL"};
    self->program = (int)bpf(BPF_PROG_LOAD, &program);
    if (self->program < 0)
        return failed(error, "the XDP program");
    return true;
}

static bool attach(struct xsk_echo *self, uint32_t interface, char *error)
{
    union bpf_attr link = {.link_create = {.prog_fd = (uint32_t)self->program,
                                           .target_ifindex = interface,
                                           .attach_type = BPF_XDP,
                                           .flags = XDP_FLAGS_DRV_MODE}};
    self->link = (int)bpf(BPF_LINK_CREATE, &link);
    if (self->link < 0)
        return failed(error, "attaching the XDP program");
    struct sockaddr_xdp address = {.sxdp_family = AF_XDP,
                                   .sxdp_flags = XDP_COPY | XDP_USE_NEED_WAKEUP,
                                   .sxdp_ifindex = interface};
    if (bind(self->socket, (struct sockaddr *)&address, sizeof address))
        return failed(error, "binding the AF_XDP socket");
    uint32_t key = 0;
    union bpf_attr element = {.map_fd = (uint32_t)self->map,
                              .key = (uintptr_t)&key,
                              .value = (uintptr_t)&self->socket};
    if (bpf(BPF_MAP_UPDATE_ELEM, &element))
        return failed(error, "putting the socket into the XSKMAP");
    return true;
}

static uint32_t free_places(struct ring *ring, uint32_t wanted)
{
    if (ring->size - (ring->mine - ring->theirs) < wanted)
        ring->theirs = __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
    return ring->size - (ring->mine - ring->theirs);
}

static uint32_t entries(struct ring *ring, uint32_t wanted)
{
    if (ring->theirs - ring->mine < wanted)
        ring->theirs = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
    uint32_t count = ring->theirs - ring->mine;
    return count < wanted ? count : wanted;
}

static bool needs_wakeup(const struct ring *ring)
{
    return __atomic_load_n(ring->flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP;
}

static void refill(struct xsk_echo *self, uint32_t wanted)
{
    struct ring *fill = &self->fill;
    uint32_t count = free_places(fill, wanted);
    uint64_t *addresses = fill->entries;
    if (count > wanted)
        count = wanted;
    if (count > self->spares)
        count = self->spares;
    for (uint32_t i = 0; i < count; i++)
        addresses[fill->mine++ & (fill->size - 1)] = self->spare[--self->spares];
    __atomic_store_n(fill->producer, fill->mine, __ATOMIC_RELEASE);
    if (count && needs_wakeup(fill))
        (void)recvfrom(self->socket, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

static void reap(struct xsk_echo *self)
{
    struct ring *completion = &self->completion;
    uint32_t count = entries(completion, completion->size);
    const uint64_t *addresses = completion->entries;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t address = addresses[completion->mine++ & (completion->size - 1)];
        self->spare[self->spares++] = address & ~(uint64_t)(FRAME_SIZE - 1);
    }
    self->sending -= count;
    __atomic_store_n(completion->consumer, completion->mine, __ATOMIC_RELEASE);
}

static void swap(uint8_t *data)
{
    uint8_t destination[6];
    memcpy(destination, data, 6);
    memcpy(data, data + 6, 6);
    memcpy(data + 6, destination, 6);
}

/* Processes one batch. Returns the number of echoed frames. */
static uint32_t turn(struct xsk_echo *self)
{
    struct ring *receive = &self->receive, *transmit = &self->transmit;
    uint32_t count = entries(receive, BATCH), free = free_places(transmit, count);
    const struct xdp_desc *from = receive->entries;
    struct xdp_desc *to = transmit->entries;
    if (count > free)
        count = free;
    for (uint32_t i = 0; i < count; i++) {
        struct xdp_desc frame = from[receive->mine++ & (receive->size - 1)];
        if (frame.len >= 14)
            swap(self->memory + frame.addr);
        frame.options = 0;
        to[transmit->mine++ & (transmit->size - 1)] = frame;
    }
    if (count) {
        __atomic_store_n(receive->consumer, receive->mine, __ATOMIC_RELEASE);
        __atomic_store_n(transmit->producer, transmit->mine, __ATOMIC_RELEASE);
        self->sending += count;
        refill(self, count);
    }
    if (self->sending) {
        uint32_t sent = __atomic_load_n(transmit->consumer, __ATOMIC_ACQUIRE);
        if (sent != transmit->mine && needs_wakeup(transmit))
            (void)sendto(self->socket, NULL, 0, MSG_DONTWAIT, NULL, 0);
        reap(self);
    }
    return count;
}

void xsk_echo_close(struct xsk_echo *self)
{
    if (!self)
        return;
    const int descriptors[] = {self->link, self->socket, self->program, self->map};
    for (int i = 0; i < 4; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    struct ring *rings[] = {&self->fill, &self->completion, &self->receive, &self->transmit};
    for (int i = 0; i < 4; i++)
        if (rings[i]->mapping)
            munmap(rings[i]->mapping, rings[i]->length);
    if (self->memory)
        munmap(self->memory, self->memory_length);
    free(self->spare);
    free(self);
}

/* Opens an echo on queue 0 of an interface, with rings of `size` slots and `frames` frames. Returns
 * NULL and a text of at most 128 bytes in `error` if the kernel refuses. */
struct xsk_echo *xsk_echo_open(uint32_t interface, uint32_t size, uint32_t frames, char *error)
{
    struct xsk_echo *self = calloc(1, sizeof *self);
    if (!self) {
        failed(error, "memory");
        return NULL;
    }
    self->socket = self->map = self->program = self->link = -1;
    self->frames = frames;
    self->spare = calloc(frames, sizeof *self->spare);
    self->memory_length = (size_t)frames * FRAME_SIZE;
    self->memory = mmap(NULL, self->memory_length, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (self->memory == MAP_FAILED)
        self->memory = NULL;
    if (!self->spare || !self->memory) {
        failed(error, "memory for the frames");
        xsk_echo_close(self);
        return NULL;
    }
    for (uint32_t i = 0; i < frames; i++)
        self->spare[self->spares++] = (uint64_t)(frames - 1 - i) * FRAME_SIZE;
    if (!open_socket(self, size, error) || !load_program(self, error) ||
        !attach(self, interface, error)) {
        xsk_echo_close(self);
        return NULL;
    }
    refill(self, size);
    return self;
}

/* Runs until `frames` frames were echoed and sent, or `patience` iterations in a row had no work.
 * Returns the number of echoed frames. */
uint64_t xsk_echo_run(struct xsk_echo *self, uint64_t frames, uint64_t patience)
{
    uint64_t echoed = 0, idle = 0;
    while ((echoed < frames || self->sending) && idle < patience) {
        uint32_t count = turn(self);
        echoed += count;
        idle = count ? 0 : idle + 1;
    }
    return echoed;
}
