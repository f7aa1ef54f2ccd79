/* Devices: finding, configuring, starting and removing them. */
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include "shim.h"

#define CHECKSUMS (RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM)

/* The number of the port of a device, or a negative number. */
static int port_of(const char *device)
{
	struct rte_dev_iterator iterator;
	char name[RTE_ETH_NAME_MAX_LEN];
	uint16_t port;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(device, ","), device);
	if (rte_eth_dev_get_port_by_name(name, &port) == 0)
		return port;
	RTE_ETH_FOREACH_MATCHING_DEV(port, device, &iterator) {
		rte_eth_iterator_cleanup(&iterator);
		return port;
	}
	return -ENODEV;
}

static int is_driver(uint16_t port, const char *name)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(port, &info) == 0 && strcmp(info.driver_name, name) == 0;
}

int fastlane_probe(const char *device, struct fastlane_error *error)
{
	/* One that EAL has found at its start is there already. */
	int port = port_of(device), result;

	if (port >= 0)
		return port;
	result = rte_dev_probe(device);
	if (result < 0)
		return fastlane_refuse(error, result, "rte_dev_probe");
	port = port_of(device);
	return port >= 0 ? port : fastlane_refuse(error, port, "no driver took it");
}

int fastlane_facts(uint16_t port, struct fastlane_facts *facts, struct fastlane_error *error)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return fastlane_refuse(error, result, "rte_eth_dev_info_get");
	memset(facts, 0, sizeof(*facts));
	snprintf(facts->driver, sizeof(facts->driver), "%s", info.driver_name);
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(facts->mac, mac.addr_bytes, sizeof(facts->mac));
	result = rte_eth_dev_get_mtu(port, &facts->mtu);
	if (result != 0)
		return fastlane_refuse(error, result, "rte_eth_dev_get_mtu");
	facts->least_mtu = info.min_mtu;
	facts->most_mtu = info.max_mtu;
	facts->most_receive_queues = info.max_rx_queues;
	facts->most_transmit_queues = info.max_tx_queues;
	facts->socket = rte_eth_dev_socket_id(port);
	facts->checksums = (info.tx_offload_capa & CHECKSUMS) == CHECKSUMS;
	facts->spreads = (info.flow_type_rss_offloads & FASTLANE_HASHES) != 0;
	return 0;
}

int fastlane_configure(uint16_t port, struct fastlane_settings *settings,
		       struct fastlane_error *error)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	uint8_t key[FASTLANE_KEY];
	uint64_t hashes;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return fastlane_refuse(error, result, "rte_eth_dev_info_get");
	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = settings->mtu;
	settings->checksums = settings->checksums && (info.tx_offload_capa & CHECKSUMS) == CHECKSUMS;
	if (settings->checksums)
		conf.txmode.offloads |= CHECKSUMS;
	/* All frames that a queue sends are of one mempool, and nobody else has them. */
	conf.txmode.offloads |= info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	hashes = settings->queues > 1 ? info.flow_type_rss_offloads & FASTLANE_HASHES : 0;
	/* Only with our key do both directions of a flow meet. */
	settings->spreads = hashes != 0 && info.hash_key_size > 0 &&
			    info.hash_key_size <= FASTLANE_KEY;
	if (hashes != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = hashes;
	}
	if (settings->spreads) {
		fastlane_symmetric(key, info.hash_key_size);
		conf.rx_adv_conf.rss_conf.rss_key = key;
		conf.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size;
	}
	conf.intr_conf.rxq = settings->interrupts;
	result = rte_eth_dev_configure(port, settings->queues, settings->queues, &conf);
	if (result != 0 && settings->interrupts) {
		/* Some devices have none. */
		settings->interrupts = conf.intr_conf.rxq = 0;
		result = rte_eth_dev_configure(port, settings->queues, settings->queues, &conf);
	}
	if (result != 0)
		return fastlane_refuse(error, result, "rte_eth_dev_configure with %u queues",
				       settings->queues);
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &settings->receive_descriptors,
						  &settings->transmit_descriptors);
	if (result != 0)
		return fastlane_refuse(error, result, "rte_eth_dev_adjust_nb_rx_tx_desc");
	return 0;
}

static int set_up_queues(uint16_t port, const struct fastlane_settings *settings,
			 struct fastlane_memory *const *memories, struct fastlane_error *error)
{
	int socket = rte_eth_dev_socket_id(port), result;

	for (uint16_t queue = 0; queue < settings->queues; queue++) {
		result = rte_eth_rx_queue_setup(port, queue, settings->receive_descriptors,
						(unsigned int)socket, NULL,
						fastlane_pool(memories[queue]));
		if (result != 0)
			return fastlane_refuse(error, result, "rte_eth_rx_queue_setup of queue %u",
					       queue);
		result = rte_eth_tx_queue_setup(port, queue, settings->transmit_descriptors,
						(unsigned int)socket, NULL);
		if (result != 0)
			return fastlane_refuse(error, result, "rte_eth_tx_queue_setup of queue %u",
					       queue);
	}
	return 0;
}

int fastlane_begin(uint16_t port, const struct fastlane_settings *settings,
		   struct fastlane_memory *const *memories, struct fastlane_error *error)
{
	uint16_t mtu;
	int result = set_up_queues(port, settings, memories, error);

	if (result != 0)
		return result;
	/* Also where configuring does not reach the device. */
	if (settings->mtu != 0 && (rte_eth_dev_get_mtu(port, &mtu) != 0 || mtu != settings->mtu)) {
		result = rte_eth_dev_set_mtu(port, settings->mtu);
		if (result != 0)
			return fastlane_refuse(error, result, "rte_eth_dev_set_mtu %u",
					       settings->mtu);
	}
	result = rte_eth_dev_start(port);
	if (result != 0)
		return fastlane_refuse(error, result, "rte_eth_dev_start");
	result = settings->promiscuous ? rte_eth_promiscuous_enable(port)
				       : rte_eth_promiscuous_disable(port);
	/* Devices without an address filter take everything anyway. */
	if (result != 0 && result != -ENOTSUP)
		return fastlane_refuse(error, result, "rte_eth_promiscuous_enable");
	return 0;
}

int fastlane_link_up(uint16_t port)
{
	struct rte_eth_link link;
	int result = rte_eth_link_get_nowait(port, &link);

	return result != 0 ? result : link.link_status == RTE_ETH_LINK_UP;
}

int fastlane_set_link(uint16_t port, int up)
{
	return up ? rte_eth_dev_set_link_up(port) : rte_eth_dev_set_link_down(port);
}

int fastlane_losses(uint16_t port, struct fastlane_losses *losses)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port, &stats);

	if (result != 0)
		return result;
	losses->missed = stats.imissed;
	losses->receive_errors = stats.ierrors;
	losses->transmit_errors = stats.oerrors;
	losses->no_frames = stats.rx_nombuf;
	return 0;
}

/* What has arrived and nobody will fetch: the rings of net_ring would keep it for ever. */
static void drain(uint16_t port, uint16_t queues)
{
	struct rte_mbuf *mbufs[32];

	for (uint16_t queue = 0; queue < queues; queue++) {
		/* Bounded, as a peer may go on sending. */
		for (int round = 0; round < 1024; round++) {
			uint16_t count = rte_eth_rx_burst(port, queue, mbufs, 32);

			if (count == 0)
				break;
			rte_pktmbuf_free_bulk(mbufs, count);
		}
	}
}

static int close_and_detach(uint16_t port)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info), closed;

	if (result != 0)
		return result;
	rte_eth_dev_stop(port);
	closed = rte_eth_dev_close(port);
	result = rte_dev_remove(info.device);
	return closed != 0 ? closed : result;
}

/* A removal that another thread carries out. */
struct removal {
	uint16_t port;
	int result;
	sem_t done;
};

static void remove_there(void *data)
{
	struct removal *removal = data;

	removal->result = close_and_detach(removal->port);
	sem_post(&removal->done);
}

/* net_memif frees what a connection has both where it is closed and where its peer's going is
 * noticed, which is EAL's interrupt thread, without a lock: so it is closed there, too. */
static int remove_in_interrupt_thread(uint16_t port)
{
	struct removal removal = { .port = port };
	int result;

	sem_init(&removal.done, 0, 0);
	result = rte_eal_alarm_set(1, remove_there, &removal);
	if (result == 0)
		while (sem_wait(&removal.done) != 0)
			continue;
	sem_destroy(&removal.done);
	return result != 0 ? result : removal.result;
}

static atomic_bool leaves_descriptors;

bool fastlane_may_clean_up(void)
{
	return !leaves_descriptors;
}

int fastlane_remove(uint16_t port, uint16_t queues)
{
	if (is_driver(port, "net_ring"))
		drain(port, queues);
	if (is_driver(port, "net_memif")) {
		leaves_descriptors = true;
		return remove_in_interrupt_thread(port);
	}
	return close_and_detach(port);
}
