/*
 * Interface of the plugin: one table of functions, the only symbol that it exports.
 * `src/plugin/abi.rs` declares the same in Rust. Every change of a layout or a function increments
 * FASTLANE_DPDK_VERSION in both.
 *
 * Functions that can fail return 0 or a positive result on success, and a negative errno
 * otherwise. They write to `error` what DPDK refused.
 */
#ifndef FASTLANE_PLUGIN_H
#define FASTLANE_PLUGIN_H

#include "packet.h"

#define FASTLANE_DPDK_VERSION 6

struct fastlane_error {
	char text[240];
};

/* Mempool with the frames of one lane that DPDK can use. */
struct fastlane_memory;
/* One receive queue, and the transmit queue of the same number. */
struct fastlane_queue;

/* Properties of a device, before and after it is configured. */
struct fastlane_device_info {
	char driver[40];
	uint8_t mac[6];
	uint16_t mtu;
	uint16_t min_mtu;
	uint16_t max_mtu;
	uint16_t max_receive_queues;
	uint16_t max_transmit_queues;
	int32_t socket;
	/* 1 if the device completes UDP and TCP checksums. */
	uint8_t checksums;
	/* 1 if the device can distribute packets over its queues by a hash (RSS). */
	uint8_t rss;
	uint8_t reserved[2];
};

struct fastlane_settings {
	uint16_t queues;
	/* In: the wanted number; out: the number that the device has. */
	uint16_t receive_descriptors;
	uint16_t transmit_descriptors;
	/* 0 leaves the MTU of the device. */
	uint16_t mtu;
	uint8_t promiscuous;
	/* In: 1 to request the offload; out: 1 if it is on. */
	uint8_t checksums;
	uint8_t interrupts;
	uint8_t symmetric_rss;
};

struct fastlane_losses {
	/* Losses of the device, from rte_eth_stats. */
	uint64_t missed;
	uint64_t receive_errors;
	uint64_t transmit_errors;
	uint64_t no_frames;
};

/* Packets that the plugin could not pass on. */
struct fastlane_queue_losses {
	/* Segmented packets that do not fit one frame. */
	uint64_t length;
	/* Packets without space for the metadata before them. */
	uint64_t invalid;
};

struct fastlane_received {
	uint64_t bytes;
	uint64_t packets;
};

struct fastlane_sent {
	uint64_t bytes;
	uint32_t taken;
	/* 1: the first packet that was not taken cannot be sent as it is. 0: the device is full,
	 * or all packets were taken. */
	uint32_t stopped;
};

/* A steering rule. All numbers are in network byte order except `fields`. */
struct fastlane_rule {
	uint16_t ethertype;
	uint16_t first_port;
	uint16_t last_port;
	/* Valid fields: FASTLANE_RULE_*. */
	uint16_t fields;
	/* IP version: 4, 6, or 0 for any. */
	uint8_t version;
	uint8_t protocol;
	uint8_t reserved[2];
	uint8_t source[16];
	uint8_t source_mask[16];
	uint8_t destination[16];
	uint8_t destination_mask[16];
};

#define FASTLANE_RULE_ETHERTYPE 1
#define FASTLANE_RULE_PROTOCOL 2
#define FASTLANE_RULE_PORT 4
#define FASTLANE_RULE_GTP_U 8

struct fastlane_dpdk {
	uint32_t version;
	/* sizeof(struct fastlane_dpdk) */
	uint32_t size;
	/* Size of struct fastlane_packet, then the offset of each field in its order. */
	uint32_t layout[9];
	uint32_t metadata;

	/* DPDK's environment. `eal_init` must be called once, in a thread that stays; the others
	 * from any thread. */
	const char *(*dpdk_version)(void);
	int (*eal_init)(int count, char **arguments, struct fastlane_error *error);
	int (*eal_cleanup)(void);
	int (*thread_register)(void);
	void (*thread_unregister)(void);

	/* Memory. `room` is the maximum length of a packet in a frame. */
	int (*memory_create)(const char *name, uint32_t frames, uint32_t cache, uint32_t room,
			     int socket, struct fastlane_memory **memory,
			     struct fastlane_error *error);
	uint32_t (*memory_in_use)(const struct fastlane_memory *memory);
	void (*memory_free)(struct fastlane_memory *memory);
	/* Returns the octets of memory that an IOMMU maps for each device: all of DPDK's. 0 if device
	 * addresses are physical. */
	uint64_t (*mapped_memory)(void);

	/* Devices. `probe` opens a device in the caller's network namespace and returns its port
	 * number. */
	int (*probe)(const char *device, struct fastlane_error *error);
	int (*device_info)(uint16_t port, struct fastlane_device_info *info, struct fastlane_error *error);
	int (*configure)(uint16_t port, struct fastlane_settings *settings,
			 struct fastlane_error *error);
	int (*device_start)(uint16_t port, const struct fastlane_settings *settings,
		     struct fastlane_memory *const *memories, struct fastlane_error *error);
	int (*link_up)(uint16_t port);
	int (*losses)(uint16_t port, struct fastlane_losses *losses);
	/* Installs the rules in the device: all of them, or none. */
	int (*steer)(uint16_t port, uint16_t queues, const struct fastlane_rule *rules,
		     uint32_t count, struct fastlane_error *error);
	int (*set_link)(uint16_t port, int up);
	/* Returns the eventfd that becomes readable when a device has been removed, or a negative
	 * number. It stays open until the process ends. */
	int (*removal_events)(void);
	/* Returns 1 if the device was removed since it was probed. Does not access the device. */
	int (*is_removed)(uint16_t port);
	/* Stops and removes a device with this number of queues, and frees the frames in them.
	 * Nobody may use the queues any more. */
	int (*device_remove)(uint16_t port, uint16_t queues);
	/* Creates two ports connected by rings, for tests and measurements. Writes their numbers
	 * to `ports`. */
	int (*ring_pair)(const char *name, uint16_t queues, uint32_t size, uint16_t ports[2],
			 struct fastlane_error *error);

	/* Queues, used by the thread of the lane after `device_start`. `region` is a token
	 * without a frame: the lane's number of this memory. `max_length` is the longest packet
	 * that the device sends, in octets. */
	int (*queue_create)(uint16_t port, uint16_t number, uint16_t packet_port, uint64_t region,
			    uint32_t max_length, int checksums, int steered,
			    struct fastlane_memory *memory, struct fastlane_queue **queue);
	void (*queue_losses)(const struct fastlane_queue *queue,
			     struct fastlane_queue_losses *losses);
	void (*queue_free)(struct fastlane_queue *queue);
	/* Returns the descriptor of the receive interrupt, or a negative number. */
	int (*interrupt)(const struct fastlane_queue *queue);
	/* Enables the interrupt; returns 1 if packets have arrived already. */
	int (*arm)(const struct fastlane_queue *queue);
	void (*disarm)(const struct fastlane_queue *queue);
	/* Receives up to `room` packets into `packets`. */
	struct fastlane_received (*receive)(struct fastlane_queue *queue,
					    struct fastlane_packet *packets, uint32_t room);
	/* Sends packets from the front of the array. Packets that were taken have no frame
	 * afterwards. */
	struct fastlane_sent (*transmit)(struct fastlane_queue *queue,
					 struct fastlane_packet *packets, uint32_t count);
	/* Does the same for a caller that forgets the packets that were taken: they may be as they
	 * were. */
	struct fastlane_sent (*transmit_run)(struct fastlane_queue *queue,
					     struct fastlane_packet *packets, uint32_t count);
	/* Allocates up to `count` empty packets; returns their number. */
	uint32_t (*alloc_packets)(struct fastlane_queue *queue, struct fastlane_packet *packets,
			  uint32_t count);
	/* Frees frames, named by the lower 48 bits of their tokens. */
	void (*release)(uint64_t *frames, uint32_t count);
};

/* The table. */
extern const struct fastlane_dpdk fastlane_dpdk;

#endif
