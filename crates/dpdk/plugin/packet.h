/*
 * The packet: the C view of Rust's `fastlane_core::Packet`. This is the only declaration in C. A
 * test of `src/plugin/abi.rs` compares each offset with Rust's, and the table carries the
 * offsets, so that a plugin with another layout is refused.
 */
#ifndef FASTLANE_PACKET_H
#define FASTLANE_PACKET_H

#include <stddef.h>
#include <stdint.h>

/* Octets before the headroom of every frame, for a packet's rarer metadata. */
#define FASTLANE_METADATA 64
/* Token of a packet whose frame was taken. */
#define FASTLANE_NO_FRAME UINT64_MAX
/* Flag: the metadata has a partial checksum. */
#define FASTLANE_PARTIAL 1
/* Flag: the device's classifier has claimed the packet. */
#define FASTLANE_STEERED 4
/* Number of the token bits that name the frame. The bits above name its memory region. */
#define FASTLANE_REGION_SHIFT 48
/* Bit of a token above those of the region: the window may differ from that of the mbuf. */
#define FASTLANE_MOVED (UINT64_C(1) << 63)

struct fastlane_packet {
	uint8_t *data;
	uint64_t token;
	uint32_t length;
	uint16_t headroom;
	uint16_t tailroom;
	uint16_t port;
	uint16_t flags;
	uint32_t verdict;
};

/* Metadata of a packet. `checksum_start` is the offset of the first summed octet from the end of
 * the metadata, and `checksum_offset` is the offset of the checksum field from there. */
struct fastlane_metadata {
	uint16_t checksum_start;
	uint16_t checksum_offset;
	uint8_t reserved[60];
};

_Static_assert(sizeof(struct fastlane_packet) == 32, "a packet has 32 octets");
_Static_assert(sizeof(struct fastlane_metadata) == FASTLANE_METADATA, "the metadata has 64 octets");
_Static_assert(offsetof(struct fastlane_packet, token) == 8, "token");
_Static_assert(offsetof(struct fastlane_packet, length) == 16, "length");
_Static_assert(offsetof(struct fastlane_packet, headroom) == 20, "headroom");
_Static_assert(offsetof(struct fastlane_packet, tailroom) == 22, "tailroom");
_Static_assert(offsetof(struct fastlane_packet, port) == 24, "port");
_Static_assert(offsetof(struct fastlane_packet, flags) == 26, "flags");
_Static_assert(offsetof(struct fastlane_packet, verdict) == 28, "verdict");

#endif
