/* Bursts: the only code of the plugin that runs once per packet. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

#ifdef RTE_ARCH_X86
/* DPDK requires SSE4.2. */
#include <smmintrin.h>
#endif

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
	/* Maxima of the windows of two packets: of the length, of the upper half of the length, of
	 * the headroom and of the tailroom. The last two are not limited. */
	uint16_t most[8] __attribute__((aligned(16)));
	/* Differences of the first octet of a usual packet from its buffer, and of its token from its
	 * mbuf. */
	uint64_t address[2] __attribute__((aligned(16)));
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
	/* The length of an mbuf has 16 bits. */
	queue->max_length = max_length < UINT16_MAX ? max_length : UINT16_MAX;
	queue->address[0] = RTE_PKTMBUF_HEADROOM;
	queue->address[1] = region;
	for (int i = 0; i < 8; i += 4) {
		queue->most[i] = queue->max_length;
		queue->most[i + 2] = queue->most[i + 3] = UINT16_MAX;
	}
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
 * store, and need not wait for several to reach the cache. */
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

#ifdef RTE_ARCH_X86
/*
 * The usual case: every mbuf is one segment with the usual headroom, and every packet leaves as it
 * was received. It is handled a burst at a time, in words of 16 octets for two packets. Nothing
 * branches on a single packet: deviations are collected, and if there is one, the burst is handled
 * packet by packet.
 */

_Static_assert(offsetof(struct rte_mbuf, nb_segs) == offsetof(struct rte_mbuf, data_off) + 4,
	       "both lie in one word");
_Static_assert(offsetof(struct rte_mbuf, buf_len) == offsetof(struct rte_mbuf, data_len) + 14,
	       "both lie in one word of 16 octets");

/* Returns two words of 8 octets as one of 16. */
static inline __m128i two_words(const void *low, const void *high)
{
	__m128d word = _mm_castsi128_pd(_mm_loadl_epi64(low));

	return _mm_castpd_si128(_mm_loadh_pd(word, high));
}

/* Constants for the packets of a burst, and what is collected about them. */
struct arrivals {
	/* Added to the address of the buffer, and to that of the mbuf. */
	__m128i address;
	/* Added to the windows: the headroom, and the tailroom without the length. */
	__m128i window;
	/* Port; the flags are 0, and so is the verdict: `Kernel`. */
	uint64_t port;
	/* Sums of the lengths, in the first and third of four words. */
	__m128i bytes;
	/* Differences of `data_off` and `nb_segs` from the usual. */
	__m128i differences;
};

static inline __attribute__((always_inline)) void
write_two_arrivals(struct arrivals *arrivals, struct fastlane_packet *a, struct fastlane_packet *b,
		   struct rte_mbuf *const *first, struct rte_mbuf *const *second)
{
	/* Pairs of 16 bits: length and 0, zeros, zeros, size and length. */
	const __m128i pairs = _mm_setr_epi8(0, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 14, 15, 0, 1);
	const __m128i usual = _mm_set1_epi64x(INT64_C(1) << 32 | RTE_PKTMBUF_HEADROOM);
	const struct rte_mbuf *one = *first, *two = *second;
	__m128i heads = two_words(&one->data_off, &two->data_off);
	__m128i sizes = _mm_loadu_si128((const void *)&one->data_len);
	__m128i more_sizes = _mm_loadu_si128((const void *)&two->data_len);
	__m128i windows;

	heads = _mm_xor_si128(heads, usual);
	arrivals->differences = _mm_or_si128(arrivals->differences, heads);
	/* The differences of the pairs are the length, 0, 0, and size less length. */
	windows = _mm_hsub_epi16(_mm_shuffle_epi8(sizes, pairs),
				 _mm_shuffle_epi8(more_sizes, pairs));
	windows = _mm_add_epi16(windows, arrivals->window);
	arrivals->bytes = _mm_add_epi32(arrivals->bytes, windows);
	_mm_storeu_si128((void *)a, _mm_add_epi64(two_words(&one->buf_addr, first), arrivals->address));
	_mm_storeu_si128((void *)b, _mm_add_epi64(two_words(&two->buf_addr, second), arrivals->address));
	_mm_storel_epi64((void *)&a->length, windows);
	_mm_storeh_pd((void *)&b->length, _mm_castsi128_pd(windows));
	*(word *)&a->port = arrivals->port;
	*(word *)&b->port = arrivals->port;
	/* A buffer that does not follow its mbuf is not prefetched. */
	rte_prefetch0((const uint8_t *)(one + 1) + RTE_PKTMBUF_HEADROOM);
	rte_prefetch0((const uint8_t *)(two + 1) + RTE_PKTMBUF_HEADROOM);
}

/* Writes the packets of usual mbufs, and the number of their octets. Returns false if one of the
 * mbufs is unusual; the packets are undefined then. */
static inline bool write_usual(const struct fastlane_queue *queue, struct fastlane_packet *packets,
			       struct rte_mbuf *const *mbufs, uint32_t count, uint64_t *bytes)
{
	const __m128i fields = _mm_set1_epi64x(INT64_C(0xffff0000ffff));
	const __m128i zero = _mm_setzero_si128();
	struct arrivals arrivals = {
		_mm_load_si128((const void *)queue->address),
		_mm_setr_epi16(0, 0, RTE_PKTMBUF_HEADROOM - FASTLANE_METADATA, -RTE_PKTMBUF_HEADROOM,
			       0, 0, RTE_PKTMBUF_HEADROOM - FASTLANE_METADATA, -RTE_PKTMBUF_HEADROOM),
		queue->packet_port, zero, zero,
	};
	const struct fastlane_packet *end = packets + count / 8 * 8;
	uint32_t sum;

	for (; packets != end; packets += 8, mbufs += 8) {
		write_two_arrivals(&arrivals, &packets[0], &packets[1], &mbufs[0], &mbufs[1]);
		write_two_arrivals(&arrivals, &packets[2], &packets[3], &mbufs[2], &mbufs[3]);
		write_two_arrivals(&arrivals, &packets[4], &packets[5], &mbufs[4], &mbufs[5]);
		write_two_arrivals(&arrivals, &packets[6], &packets[7], &mbufs[6], &mbufs[7]);
	}
	sum = _mm_cvtsi128_si32(arrivals.bytes) + _mm_extract_epi32(arrivals.bytes, 2);
	for (count %= 8; count > 0; count--, packets++, mbufs++) {
		write_two_arrivals(&arrivals, packets, packets, mbufs, mbufs);
		sum += packets->length;
	}
	*bytes = sum;
	return _mm_testz_si128(arrivals.differences, fields);
}

/* What is collected about the packets of a run: of each two, the lengths, of two words each, the
 * headrooms and the tailrooms, in words of 16 bits. */
struct departures {
	__m128i least, most;
	/* Sums of the lengths, in the first and third of four words. */
	__m128i bytes;
	/* Bits of the tokens without the region. */
	__m128i tokens;
};

/* Writes the mbufs of two packets. A packet of another region, without a frame, or with a window
 * that has moved leaves bits in `tokens` above those of an address. */
static inline __attribute__((always_inline)) void
add_two_departures(struct departures *departures, const struct fastlane_packet *a,
		   const struct fastlane_packet *b, struct rte_mbuf **mbufs, __m128i region)
{
	__m128i tokens = _mm_sub_epi64(two_words(&a->token, &b->token), region);
	__m128i windows = two_words(&a->length, &b->length);

	_mm_storeu_si128((void *)mbufs, tokens);
	departures->tokens = _mm_or_si128(departures->tokens, tokens);
	departures->least = _mm_min_epu16(departures->least, windows);
	departures->most = _mm_max_epu16(departures->most, windows);
	departures->bytes = _mm_add_epi32(departures->bytes, windows);
}

/* Writes the mbufs of a run and the number of its octets. Returns false if a packet needs a closer
 * look: it is not of this memory, is too long or empty, or its window has moved. The mbufs are
 * undefined then. No mbuf is read: one whose packet has not moved has the same window. */
static inline bool find_unchanged(const struct fastlane_queue *queue,
				  const struct fastlane_packet *packets, struct rte_mbuf **mbufs,
				  uint32_t count, uint64_t *bytes)
{
	const __m128i fields = _mm_set1_epi64x(INT64_C(0xffff0000ffff));
	const __m128i zero = _mm_setzero_si128();
	const __m128i region = _mm_set1_epi64x(queue->region);
	const __m128i above = _mm_set1_epi64x(UINT64_MAX << FASTLANE_REGION_SHIFT);
	struct departures departures = { _mm_set1_epi16(-1), zero, zero, zero };
	const struct fastlane_packet *end = packets + count / 8 * 8;
	__m128i unusual;
	uint32_t sum;

	for (; packets != end; packets += 8, mbufs += 8) {
		add_two_departures(&departures, &packets[0], &packets[1], mbufs, region);
		add_two_departures(&departures, &packets[2], &packets[3], mbufs + 2, region);
		add_two_departures(&departures, &packets[4], &packets[5], mbufs + 4, region);
		add_two_departures(&departures, &packets[6], &packets[7], mbufs + 6, region);
	}
	sum = _mm_cvtsi128_si32(departures.bytes) + _mm_extract_epi32(departures.bytes, 2);
	for (count %= 8; count > 0; count--, packets++, mbufs++) {
		struct rte_mbuf *twice[2];

		add_two_departures(&departures, packets, packets, twice, region);
		*mbufs = twice[0];
		sum += packets->length;
	}
	*bytes = sum;
	/* A headroom of 0, which is found too, is rare. */
	unusual = _mm_and_si128(_mm_cmpeq_epi16(departures.least, zero), fields);
	unusual = _mm_or_si128(unusual, _mm_and_si128(departures.tokens, above));
	unusual = _mm_or_si128(unusual, _mm_subs_epu16(departures.most, *(const __m128i *)queue->most));
	return _mm_testz_si128(unusual, unusual);
}

#else

static inline bool write_usual(const struct fastlane_queue *queue, struct fastlane_packet *packets,
			       struct rte_mbuf *const *mbufs, uint32_t count, uint64_t *bytes)
{
	(void)queue, (void)packets, (void)mbufs, (void)count, (void)bytes;
	return false;
}

static inline bool find_unchanged(const struct fastlane_queue *queue,
				  const struct fastlane_packet *packets, struct rte_mbuf **mbufs,
				  uint32_t count, uint64_t *bytes)
{
	(void)queue, (void)packets, (void)mbufs, (void)count, (void)bytes;
	return false;
}

#endif

/* Writes the packets of mbufs one by one, without those that cannot be packets. */
static __attribute__((noinline)) struct fastlane_received
write_each(struct fastlane_queue *queue, struct fastlane_packet *packets,
	   struct rte_mbuf *const *mbufs, uint32_t count)
{
	struct fastlane_packet *packet = packets;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = mbufs[i];
		bool unusual = (mbuf->nb_segs != 1) | (mbuf->data_off < FASTLANE_METADATA);

		if (unlikely(unusual) && !normalize(queue, mbuf))
			continue;
		rte_prefetch0(write_packet(packet, mbuf, queue->region, queue->packet_port));
		bytes += packet->length;
		packet++;
	}
	return (struct fastlane_received){ bytes, packet - packets };
}

/* Copies the mark of the device's rules to packets. Most devices have none. */
static __attribute__((noinline)) struct fastlane_received
mark_steered(const struct fastlane_queue *queue, struct fastlane_packet *packets,
	     struct fastlane_received received)
{
	for (uint32_t i = 0; i < received.packets; i++) {
		uint64_t address = packets[i].token - queue->region;
		const struct rte_mbuf *mbuf = (const struct rte_mbuf *)(uintptr_t)address;

		packets[i].flags = mbuf->ol_flags & queue->steered;
	}
	return received;
}

struct fastlane_received fastlane_receive(struct fastlane_queue *queue,
					  struct fastlane_packet *packets, uint32_t room)
{
	struct rte_mbuf *mbufs[BURST];
	uint32_t wanted = room < BURST ? room : BURST;
	uint32_t count = rte_eth_rx_burst(queue->port, queue->number, mbufs, wanted);
	struct fastlane_received received = { 0, count };

	if (count == 0)
		return received;
	if (unlikely(!write_usual(queue, packets, mbufs, count, &received.bytes)))
		received = write_each(queue, packets, mbufs, count);
	return likely(queue->steered == 0) ? received : mark_steered(queue, packets, received);
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

/* Leaves a packet empty and without a frame: clears token, length, headroom and tailroom in one
 * store. */
static inline void take(struct fastlane_packet *packet)
{
	*(word_pair *)&packet->token = (word_pair){ FASTLANE_NO_FRAME, 0 };
}

static inline void take_four(struct fastlane_packet *packets)
{
	take(&packets[0]);
	take(&packets[1]);
	take(&packets[2]);
	take(&packets[3]);
}

static inline void take_first(struct fastlane_packet *packets, uint32_t count)
{
	const struct fastlane_packet *end = packets + count / 8 * 8;

	for (; packets != end; packets += 8) {
		take_four(packets);
		take_four(packets + 4);
	}
	for (count %= 8; count > 0; count--, packets++)
		take(packets);
}

/* Returns the frames of packets that were not sent to their packets, whose windows are those of the
 * mbufs now; returns their octets. */
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

/* Sends packets of which some differ from their mbufs, or cannot be sent. */
static __attribute__((noinline)) struct fastlane_sent
transmit_each(struct fastlane_queue *queue, struct fastlane_packet *packets, uint16_t count)
{
	struct rte_mbuf *mbufs[BURST];
	struct fastlane_sent sent = { 0, 0, 0 };
	uint64_t region = queue->region;
	uint16_t ready, able, done;
	bool offloads = false;

	for (ready = 0; ready < count; ready++) {
		struct fastlane_packet *packet = &packets[ready];
		uint64_t address = (packet->token & ~FASTLANE_MOVED) - region;
		struct rte_mbuf *mbuf = (struct rte_mbuf *)(uintptr_t)address;
		uint32_t length = packet->length;
		uint16_t offset = packet->headroom + FASTLANE_METADATA;

		/* The packet is empty (or has no frame), too long, or of another memory region. */
		if (length - 1 >= queue->max_length || address >> FASTLANE_REGION_SHIFT != 0)
			break;
		/* Many packets are unchanged, and a comparison is cheaper than a store. */
		if (mbuf->data_off != offset)
			mbuf->data_off = offset;
		if (mbuf->data_len != length)
			mbuf->pkt_len = mbuf->data_len = length;
		if (packet->flags & FASTLANE_PARTIAL) {
			if (!queue->checksums || !offload(packet, mbuf))
				break;
			packet->flags &= ~FASTLANE_PARTIAL;
			offloads = true;
		}
		take(packet);
		sent.bytes += length;
		mbufs[ready] = mbuf;
	}
	able = ready;
	if (offloads)
		able = rte_eth_tx_prepare(queue->port, queue->number, mbufs, ready);
	done = able == 0 ? 0 : rte_eth_tx_burst(queue->port, queue->number, mbufs, able);
	sent.taken = done;
	if (done < count) {
		sent.bytes -= restore_packets(packets + done, mbufs + done, ready - done, region);
		sent.stopped = done == able;
	}
	return sent;
}

/* Sends more packets than one call of DPDK takes. */
static __attribute__((noinline)) struct fastlane_sent
transmit_many(struct fastlane_queue *queue, struct fastlane_packet *packets, uint32_t count)
{
	struct fastlane_sent sent = { 0, 0, 0 };

	while (sent.taken < count) {
		uint32_t left = count - sent.taken, wanted = left < BURST ? left : BURST;
		struct fastlane_sent part = fastlane_transmit(queue, packets + sent.taken, wanted);

		sent.bytes += part.bytes;
		sent.taken += part.taken;
		sent.stopped = part.stopped;
		if (part.taken < wanted)
			break;
	}
	return sent;
}

/* Sends packets, and leaves those that were taken empty if `empties`. */
static inline __attribute__((always_inline)) struct fastlane_sent
transmit(struct fastlane_queue *queue, struct fastlane_packet *packets, uint32_t count,
	 bool empties)
{
	struct rte_mbuf *mbufs[BURST];
	struct fastlane_sent sent = { 0, 0, 0 };

	if (unlikely(count - 1 >= BURST))
		return count == 0 ? sent : transmit_many(queue, packets, count);
	/* All packets of a run have the same flags. */
	if (unlikely((packets->flags & FASTLANE_PARTIAL) != 0 ||
		     !find_unchanged(queue, packets, mbufs, count, &sent.bytes)))
		return transmit_each(queue, packets, count);
	sent.taken = rte_eth_tx_burst(queue->port, queue->number, mbufs, count);
	for (uint32_t i = sent.taken; unlikely(i < count); i++)
		sent.bytes -= packets[i].length;
	if (empties)
		take_first(packets, sent.taken);
	return sent;
}

struct fastlane_sent fastlane_transmit(struct fastlane_queue *queue,
				       struct fastlane_packet *packets, uint32_t count)
{
	return transmit(queue, packets, count, true);
}

struct fastlane_sent fastlane_transmit_run(struct fastlane_queue *queue,
					   struct fastlane_packet *packets, uint32_t count)
{
	return transmit(queue, packets, count, false);
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
