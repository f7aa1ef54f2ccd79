/* The same work written by hand, for the comparison of `tests/cost.rs`. */
#include <rte_ethdev.h>
#include <rte_mbuf.h>

static inline void swap(struct rte_mbuf *mbuf)
{
	struct rte_ether_hdr *header = rte_pktmbuf_mtod(mbuf, struct rte_ether_hdr *);
	struct rte_ether_addr address = header->src_addr;

	header->src_addr = header->dst_addr;
	header->dst_addr = address;
}

/* Receives bursts of 32, swaps the addresses and sends them back; returns the number of packets
 * sent. */
uint64_t bare_macswap(uint16_t port, uint32_t rounds)
{
	struct rte_mbuf *mbufs[32];
	uint64_t total = 0;

	for (uint32_t round = 0; round < rounds; round++) {
		uint16_t count = rte_eth_rx_burst(port, 0, mbufs, 32), sent;

		if (count == 0)
			continue;
		for (uint16_t at = 0; at < count; at++) {
			if (at + 1 < count)
				rte_prefetch0(rte_pktmbuf_mtod(mbufs[at + 1], void *));
			swap(mbufs[at]);
		}
		sent = rte_eth_tx_burst(port, 0, mbufs, count);
		total += sent;
		if (sent < count)
			rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
	}
	return total;
}
