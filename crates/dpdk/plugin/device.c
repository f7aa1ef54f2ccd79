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

#include "internal.h"

#define CHECKSUMS (RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM)

/* Returns the port number of a device, or a negative errno. */
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
	/* EAL has already opened the devices that it found at its start. */
	int port = port_of(device), result;

	if (port >= 0)
		return port;
	result = rte_dev_probe(device);
	if (result < 0)
		return fastlane_refuse(error, result, "rte_dev_probe");
	port = port_of(device);
	if (port < 0)
		return fastlane_refuse(error, port, "no driver took it");
	fastlane_forget_removal((uint16_t)port);
	return port;
}

int fastlane_device_info(uint16_t port, struct fastlane_device_info *device,
			 struct fastlane_error *error)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return fastlane_refuse(error, result, "rte_eth_dev_info_get");
	memset(device, 0, sizeof(*device));
	snprintf(device->driver, sizeof(device->driver), "%s", info.driver_name);
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(device->mac, mac.addr_bytes, sizeof(device->mac));
	result = rte_eth_dev_get_mtu(port, &device->mtu);
	if (result != 0)
		return fastlane_refuse(error, result, "rte_eth_dev_get_mtu");
	device->min_mtu = info.min_mtu;
	device->max_mtu = info.max_mtu;
	device->max_receive_queues = info.max_rx_queues;
	device->max_transmit_queues = info.max_tx_queues;
	device->socket = rte_eth_dev_socket_id(port);
	device->checksums = (info.tx_offload_capa & CHECKSUMS) == CHECKSUMS;
	device->rss = (info.flow_type_rss_offloads & FASTLANE_RSS_TYPES) != 0;
	return 0;
}

int fastlane_configure(uint16_t port, struct fastlane_settings *settings,
		       struct fastlane_error *error)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	uint64_t hashes;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return fastlane_refuse(error, result, "rte_eth_dev_info_get");
	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = settings->mtu;
	settings->checksums = settings->checksums && (info.tx_offload_capa & CHECKSUMS) == CHECKSUMS;
	if (settings->checksums)
		conf.txmode.offloads |= CHECKSUMS;
	/* All frames that a queue sends are of one mempool and have one reference. */
	conf.txmode.offloads |= info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	hashes = settings->queues > 1 ? info.flow_type_rss_offloads & FASTLANE_RSS_TYPES : 0;
	/* Only the symmetric key gives both directions of a flow the same queue. */
	settings->symmetric_rss = hashes != 0 && info.hash_key_size > 0 &&
			    info.hash_key_size <= FASTLANE_MAX_KEY;
	if (hashes != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = hashes;
	}
	if (settings->symmetric_rss) {
		conf.rx_adv_conf.rss_conf.rss_key = fastlane_symmetric_key;
		conf.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size;
	}
	conf.intr_conf.rxq = settings->interrupts;
	/* Drivers that can tell their removal do it only on request. */
	conf.intr_conf.rmv = (*info.dev_flags & RTE_ETH_DEV_INTR_RMV) != 0;
	result = rte_eth_dev_configure(port, settings->queues, settings->queues, &conf);
	if (result != 0 && settings->interrupts) {
		/* The device may have no interrupts; try without. */
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

int fastlane_device_start(uint16_t port, const struct fastlane_settings *settings,
		   struct fastlane_memory *const *memories, struct fastlane_error *error)
{
	uint16_t mtu;
	int result = set_up_queues(port, settings, memories, error);

	if (result != 0)
		return result;
	/* Some drivers ignore the MTU of rte_eth_dev_configure. */
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
	/* Devices without an address filter receive everything. */
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

/* Frees the packets that have arrived: the rings of net_ring would keep them forever. */
static void drain(uint16_t port, uint16_t queues)
{
	struct rte_mbuf *mbufs[32];

	for (uint16_t queue = 0; queue < queues; queue++) {
		/* Bounded, because a peer may keep sending. */
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

/* A removal to be executed by another thread. */
struct removal {
	uint16_t port;
	int result;
	sem_t done;
};

static void execute_removal(void *data)
{
	struct removal *removal = data;

	removal->result = close_and_detach(removal->port);
	sem_post(&removal->done);
}

/* Removes a net_memif port in EAL's interrupt thread. The driver frees a connection both on
 * close and on the disconnect of its peer, which that thread notices, and it takes no lock. */
static int remove_in_interrupt_thread(uint16_t port)
{
	struct removal removal = { .port = port };
	int result;

	sem_init(&removal.done, 0, 0);
	result = rte_eal_alarm_set(1, execute_removal, &removal);
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

int fastlane_device_remove(uint16_t port, uint16_t queues)
{
	if (is_driver(port, "net_ring"))
		drain(port, queues);
	if (is_driver(port, "net_memif")) {
		leaves_descriptors = true;
		return remove_in_interrupt_thread(port);
	}
	return close_and_detach(port);
}
