/* Declarations shared by the files of the plugin. */
#ifndef FASTLANE_INTERNAL_H
#define FASTLANE_INTERNAL_H

#include <stdbool.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "plugin.h"

/* RSS hash types that separate flows. Fragments of a flow with ports are hashed by their
 * addresses. */
#define FASTLANE_RSS_TYPES \
	(RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP)
/* Maximum length of an RSS key in octets, over all drivers of DPDK. */
#define FASTLANE_MAX_KEY 128

/* RSS key that repeats two octets. Such a key gives both directions of a flow the same hash (Woo,
 * Park: Scalable TCP session monitoring with symmetric receive-side scaling, 2012). Drivers keep its
 * address and read it when a device starts. */
extern uint8_t fastlane_symmetric_key[FASTLANE_MAX_KEY];

/* Writes to `error` what DPDK refused, and returns `result`, which is a negative errno. */
int fastlane_refuse(struct fastlane_error *error, int result, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static inline struct rte_mempool *fastlane_pool(const struct fastlane_memory *memory)
{
	return (struct rte_mempool *)(uintptr_t)memory;
}

/* memory.c */
int fastlane_memory_create(const char *name, uint32_t frames, uint32_t cache, uint32_t room,
			   int socket, struct fastlane_memory **memory,
			   struct fastlane_error *error);
uint32_t fastlane_memory_in_use(const struct fastlane_memory *memory);
void fastlane_memory_free(struct fastlane_memory *memory);
uint64_t fastlane_mapped_memory(void);

/* device.c */
int fastlane_probe(const char *device, struct fastlane_error *error);
int fastlane_device_info(uint16_t port, struct fastlane_device_info *device,
			 struct fastlane_error *error);
int fastlane_configure(uint16_t port, struct fastlane_settings *settings,
		       struct fastlane_error *error);
int fastlane_device_start(uint16_t port, const struct fastlane_settings *settings,
		   struct fastlane_memory *const *memories, struct fastlane_error *error);
int fastlane_link_up(uint16_t port);
int fastlane_set_link(uint16_t port, int up);
int fastlane_losses(uint16_t port, struct fastlane_losses *losses);
int fastlane_device_remove(uint16_t port, uint16_t queues);
/* Returns false if a removed device has left descriptors behind that rte_eal_cleanup would
 * access. */
bool fastlane_may_clean_up(void);

/* removal.c */
/* Follows the removal of all devices. EAL must run. */
int fastlane_follow_removals(struct fastlane_error *error);
int fastlane_removal_events(void);
int fastlane_is_removed(uint16_t port);
/* Forgets the removal of the device that had this port number before. */
void fastlane_forget_removal(uint16_t port);

/* flow.c */
int fastlane_steer(uint16_t port, uint16_t queues, const struct fastlane_rule *rules,
		   uint32_t count, struct fastlane_error *error);

/* rings.c */
int fastlane_ring_pair(const char *name, uint16_t queues, uint32_t size, uint16_t ports[2],
		       struct fastlane_error *error);

/* queue.c */
int fastlane_queue_create(uint16_t port, uint16_t number, uint16_t packet_port, uint64_t region,
			  uint32_t max_length, int checksums, int steered,
			  struct fastlane_memory *memory, struct fastlane_queue **queue);
void fastlane_queue_losses(const struct fastlane_queue *queue,
			   struct fastlane_queue_losses *losses);
void fastlane_queue_free(struct fastlane_queue *queue);
int fastlane_interrupt(const struct fastlane_queue *queue);
int fastlane_arm(const struct fastlane_queue *queue);
void fastlane_disarm(const struct fastlane_queue *queue);
struct fastlane_received fastlane_receive(struct fastlane_queue *queue,
					  struct fastlane_packet *packets, uint32_t room);
struct fastlane_sent fastlane_transmit(struct fastlane_queue *queue,
				       struct fastlane_packet *packets, uint32_t count);
struct fastlane_sent fastlane_transmit_run(struct fastlane_queue *queue,
					   struct fastlane_packet *packets, uint32_t count);
uint32_t fastlane_alloc_packets(struct fastlane_queue *queue, struct fastlane_packet *packets,
			uint32_t count);
void fastlane_release(uint64_t *frames, uint32_t count);

#endif
