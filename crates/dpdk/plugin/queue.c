/* Bursts: the only code of the plugin that runs once per packet. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include "internal.h"

/* Maximum number of packets per call of DPDK. */
#define BURST 64

/* The two flags have the same bit, so no branch is needed. */
_Static_assert(RTE_MBUF_F_RX_FDIR == FASTLANE_STEERED, "the flag of a matched flow");
_Static_assert(RTE_PKTMBUF_HEADROOM >= FASTLANE_METADATA, "the head room holds the metadata");

struct fastlane_queue {
	/* The lane's number of this memory, in the position that it has in a token. */
	uint64_t region;
	/* RTE_MBUF_F_RX_FDIR if the device has our rules, else 0. */
	uint64_t steered;
	/* Port number of received packets. */
	uint16_t packet_port;
	uint16_t port;
	uint16_t number;
	/* True if the device completes checksums. */
	bool checksums;
	/* Octets of a frame, including the headroom. */
	uint16_t size;
	/* Maximum length of a packet that the device sends. */
	uint32_t max_length;
	struct rte_mempool *pool;
	struct fastlane_queue_losses losses;
} __attribute__((aligned(RTE_CACHE_LINE_SIZE)));

int fastlane_queue_create(uint16_t port, uint16_t number, uint16_t packet_port, uint64_t region,
			  uint32_t max_length, int checksums, int steered,
			  struct fastlane_memory *memory, struct fastlane_queue **made)
{
	struct fastlane_queue *queue = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*queue));

	if (queue == NULL)
		return -ENOMEM;
	memset(queue, 0, sizeof(*queue));
	queue->region = region;
	queue->steered = steered ? RTE_MBUF_F_RX_FDIR : 0;
	queue->packet_port = packet_port;
	queue->port = port;
	queue->number = number;
	queue->checksums = checksums != 0;
	queue->size = rte_pktmbuf_data_room_size(fastlane_pool(memory));
	queue->max_length = max_length;
	queue->pool = fastlane_pool(memory);
	*made = queue;
	return 0;
}

void fastlane_queue_losses(const struct fastlane_queue *queue,
			   struct fastlane_queue_losses *losses)
{
	*losses = queue->losses;
}

void fastlane_queue_free(struct fastlane_queue *queue)
{
	free(queue);
}

int fastlane_interrupt(const struct fastlane_queue *queue)
{
	/* Without a count of waiting packets, an arrival between the last poll and the enabling
	 * of the interrupt would go unnoticed. */
	if (rte_eth_rx_queue_count(queue->port, queue->number) < 0)
		return -ENOTSUP;
	if (rte_eth_dev_rx_intr_disable(queue->port, queue->number) != 0)
		return -ENOTSUP;
	return rte_eth_dev_rx_intr_ctl_q_get_fd(queue->port, queue->number);
}

int fastlane_arm(const struct fastlane_queue *queue)
{
	if (rte_eth_dev_rx_intr_enable(queue->port, queue->number) != 0)
		return 1;
	return rte_eth_rx_queue_count(queue->port, queue->number) > 0;
}

void fastlane_disarm(const struct fastlane_queue *queue)
{
	rte_eth_dev_rx_intr_disable(queue->port, queue->number);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the words are little-endian");

/* Packets are written in whole words: a read of a field soon after is then forwarded from one
 * store, and need not wait for several to reach the cache. The words are computed, and joining
 * two of them for one wide store would cost more than it saves. */
typedef uint64_t word __attribute__((may_alias));
/* Two words, for stores of constants. */
typedef uint64_t word_pair __attribute__((vector_size(16), aligned(8), may_alias));

static inline void write_words(struct fastlane_packet *packet, const uint8_t *data, uint64_t token,
			       uint64_t window, uint64_t port)
{
	word *words = (word *)packet;

	words[0] = (uintptr_t)data;
	words[1] = token;
	words[2] = window;
	/* The flags are 0, and so is the verdict: `Kernel`. */
	words[3] = port;
}

/* Returns length, headroom and tailroom as they lie in the third word of a packet. */
static inline uint64_t window_of(uint64_t length, uint64_t headroom, uint64_t tailroom)
{
	return length + (headroom << 32) + (tailroom << 48);
}

/* Writes the packet of an mbuf; returns its first octet. */
static inline uint8_t *write_packet(struct fastlane_packet *packet, const struct rte_mbuf *mbuf,
				    uint64_t region, uint64_t port)
{
	uint64_t offset = mbuf->data_off, length = mbuf->data_len;
	uint16_t tailroom = mbuf->buf_len - offset - length;
	uint8_t *data = (uint8_t *)mbuf->buf_addr + offset;

	write_words(packet, data, (uintptr_t)mbuf + region,
		    window_of(length, offset - FASTLANE_METADATA, tailroom), port);
	return data;
}

/* Makes an unusual packet usable: one in several segments, or one without space for its
 * metadata. If that is impossible, counts and frees it and returns false. */
static __attribute__((noinline, cold)) bool normalize(struct fastlane_queue *queue,
						 struct rte_mbuf *mbuf)
{
	if (mbuf->data_off < FASTLANE_METADATA) {
		queue->losses.invalid++;
	} else if (rte_pktmbuf_linearize(mbuf) != 0) {
		queue->losses.length++;
	} else {
		return true;
	}
	rte_pktmbuf_free(mbuf);
	return false;
}

/* Returns true if the mbuf is one segment with the usual headroom, in a frame of our size. */
static inline bool is_usual(const struct rte_mbuf *mbuf, uint16_t size)
{
	_Static_assert(offsetof(struct rte_mbuf, nb_segs) == offsetof(struct rte_mbuf, data_off) + 4,
		       "both lie in one word");
	uint64_t head = *(const word *)&mbuf->data_off;

	return (head & 0x0000ffff0000ffff) == (UINT64_C(1) << 32 | RTE_PKTMBUF_HEADROOM) &&
	       mbuf->buf_len == size;
}

struct fastlane_received fastlane_receive(struct fastlane_queue *queue,
					  struct fastlane_packet *packets, uint32_t room)
{
	struct rte_mbuf *mbufs[BURST];
	struct fastlane_packet *packet = packets;
	uint64_t region = queue->region, port = queue->packet_port, steered = queue->steered;
	uint16_t size = queue->size;
	/* The window of an empty packet. Each octet of length reduces the tailroom by one. */
	uint64_t window = window_of(0, RTE_PKTMBUF_HEADROOM - FASTLANE_METADATA,
				    size - RTE_PKTMBUF_HEADROOM);
	uint16_t wanted = room < BURST ? room : BURST;
	uint16_t count = rte_eth_rx_burst(queue->port, queue->number, mbufs, wanted);
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = mbufs[i];
		uint8_t *data = (uint8_t *)mbuf->buf_addr + RTE_PKTMBUF_HEADROOM;
		uint64_t length = mbuf->data_len;

		if (likely(is_usual(mbuf, size))) {
			write_words(packet, data, (uintptr_t)mbuf + region,
				    window + length * (1 - (UINT64_C(1) << 48)), port);
		} else {
			bool unusual = (mbuf->nb_segs != 1) | (mbuf->data_off < FASTLANE_METADATA);

			if (unusual && !normalize(queue, mbuf))
				continue;
			data = write_packet(packet, mbuf, region, port);
			length = mbuf->data_len;
		}
		bytes += length;
		rte_prefetch0(data);
		packet++;
	}
	/* Apart from the loop above: most devices do not steer. */
	if (unlikely(steered))
		for (struct fastlane_packet *received = packets; received < packet; received++) {
			uint64_t address = received->token - region;

			received->flags = ((struct rte_mbuf *)(uintptr_t)address)->ol_flags & steered;
		}
	return (struct fastlane_received){ bytes, packet - packets };
}

/* Requests the checksum of a packet from the device; returns false if that is impossible. The
 * checksum field already has the sum of the pseudo header, as DPDK requires. */
static __attribute__((noinline, cold)) bool offload(const struct fastlane_packet *packet,
						    struct rte_mbuf *mbuf)
{
	const uint8_t *data = packet->data;
	const struct fastlane_metadata *metadata =
		(const void *)(data - packet->headroom - FASTLANE_METADATA);
	uint32_t start = (uint32_t)metadata->checksum_start - packet->headroom;
	uint32_t network = 14;
	uint64_t flags;

	/* If the start was trimmed away, the subtraction has wrapped to a large number. */
	if (start > 500 || start + metadata->checksum_offset + 2 > packet->length)
		return false;
	for (int tags = 0; tags < 2 && network + 2 <= start; tags++) {
		uint16_t type = (uint16_t)(data[network - 2] << 8 | data[network - 1]);

		if (type != 0x8100 && type != 0x88a8)
			break;
		network += 4;
	}
	if (start < network + 20)
		return false;
	if (data[network - 2] == 0x08 && data[network - 1] == 0x00)
		flags = RTE_MBUF_F_TX_IPV4;
	else if (data[network - 2] == 0x86 && data[network - 1] == 0xdd)
		flags = RTE_MBUF_F_TX_IPV6;
	else
		return false;
	if (metadata->checksum_offset == 6)
		flags |= RTE_MBUF_F_TX_UDP_CKSUM;
	else if (metadata->checksum_offset == 16)
		flags |= RTE_MBUF_F_TX_TCP_CKSUM;
	else
		return false;
	mbuf->tx_offload = 0;
	mbuf->l2_len = network;
	mbuf->l3_len = start - network;
	mbuf->ol_flags = flags;
	return true;
}

/* Returns the frames of packets that were not sent to their packets; returns their octets. */
static __attribute__((noinline, cold)) uint64_t restore_packets(struct fastlane_packet *packets,
							  struct rte_mbuf *const *mbufs,
							  uint16_t count, uint64_t region)
{
	uint64_t bytes = 0;

	for (uint16_t i = 0; i < count; i++) {
		struct fastlane_packet *packet = &packets[i];
		struct rte_mbuf *mbuf = mbufs[i];

		packet->token = (uintptr_t)mbuf + region;
		packet->length = mbuf->data_len;
		packet->headroom = mbuf->data_off - FASTLANE_METADATA;
		packet->tailroom = mbuf->buf_len - mbuf->data_off - mbuf->data_len;
		/* Only `offload` sets these flags, so the checksum was partial. */
		if (mbuf->ol_flags & RTE_MBUF_F_TX_L4_MASK) {
			packet->flags |= FASTLANE_PARTIAL;
			mbuf->ol_flags = 0;
		}
		bytes += packet->length;
	}
	return bytes;
}

struct fastlane_sent fastlane_transmit(struct fastlane_queue *queue,
				       struct fastlane_packet *packets, uint32_t count)
{
	struct rte_mbuf *mbufs[BURST];
	struct fastlane_sent sent = { 0, 0, 0 };
	uint64_t region = queue->region;
	uint32_t max_length = queue->max_length;

	while (sent.taken < count) {
		struct fastlane_packet *run = packets + sent.taken;
		uint32_t left = count - sent.taken;
		uint16_t wanted = left < BURST ? left : BURST, ready, able, done;
		bool offloads = false;

		for (ready = 0; ready < wanted; ready++) {
			struct fastlane_packet *packet = &run[ready];
			uint64_t address = packet->token - region;
			struct rte_mbuf *mbuf = (struct rte_mbuf *)(uintptr_t)address;
			uint32_t length = packet->length;
			uint16_t offset = packet->headroom + FASTLANE_METADATA;

			/* The packet is empty (or has no frame), too long, or of another memory
			 * region. */
			if (unlikely(length - 1 >= max_length || address >> FASTLANE_REGION_SHIFT != 0))
				break;
			/* Most packets are unchanged, and a comparison is cheaper than a store. */
			if (mbuf->data_off != offset)
				mbuf->data_off = offset;
			if (mbuf->data_len != length)
				mbuf->pkt_len = mbuf->data_len = length;
			if (unlikely(packet->flags & FASTLANE_PARTIAL)) {
				if (!queue->checksums || !offload(packet, mbuf))
					break;
				packet->flags &= ~FASTLANE_PARTIAL;
				offloads = true;
			}
			/* Clears token, length, headroom and tailroom in one store. */
			*(word_pair *)&packet->token = (word_pair){ FASTLANE_NO_FRAME, 0 };
			sent.bytes += length;
			mbufs[ready] = mbuf;
		}
		able = ready;
		if (unlikely(offloads))
			able = rte_eth_tx_prepare(queue->port, queue->number, mbufs, ready);
		done = able == 0 ? 0 :
				   rte_eth_tx_burst(queue->port, queue->number, mbufs, able);
		sent.taken += done;
		if (likely(done == wanted))
			continue;
		sent.bytes -= restore_packets(run + done, mbufs + done, ready - done, region);
		sent.stopped = done == able;
		break;
	}
	return sent;
}

uint32_t fastlane_alloc_packets(struct fastlane_queue *queue, struct fastlane_packet *packets,
			uint32_t count)
{
	struct rte_mbuf *mbufs[BURST];
	uint32_t wanted = count < BURST ? count : BURST;

	if (rte_pktmbuf_alloc_bulk(queue->pool, mbufs, wanted) != 0) {
		/* The bulk allocation takes all or none: allocate the remaining frames one by
		 * one. */
		for (count = 0; count < wanted; count++) {
			mbufs[count] = rte_pktmbuf_alloc(queue->pool);
			if (mbufs[count] == NULL)
				break;
		}
		wanted = count;
	}
	for (uint32_t i = 0; i < wanted; i++)
		write_packet(&packets[i], mbufs[i], queue->region, queue->packet_port);
	return wanted;
}

void fastlane_release(uint64_t *frames, uint32_t count)
{
	_Static_assert(sizeof(*frames) == sizeof(struct rte_mbuf *), "an address has 64 bits");
	rte_pktmbuf_free_bulk((struct rte_mbuf **)frames, count);
}
