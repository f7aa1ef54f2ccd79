/*
 * What the plugin offers: one table of functions, the only symbol that it exports. `src/table.rs`
 * says the same in Rust. A change of anything in this file is a change of FASTLANE_DPDK_VERSION in
 * both.
 *
 * Functions that can fail return 0 or a positive result on success and a negative errno otherwise,
 * and say in `error` what DPDK refused.
 */
#ifndef FASTLANE_PLUGIN_H
#define FASTLANE_PLUGIN_H

#include "packet.h"

#define FASTLANE_DPDK_VERSION 2

struct fastlane_error {
	char text[240];
};

/* A mempool: the frames of one lane that DPDK can use. */
struct fastlane_memory;
/* One receive queue and the transmit queue of the same number. */
struct fastlane_queue;

/* What a device is, before and after it is configured. */
struct fastlane_facts {
	char driver[40];
	uint8_t mac[6];
	uint16_t mtu;
	uint16_t least_mtu;
	uint16_t most_mtu;
	uint16_t most_receive_queues;
	uint16_t most_transmit_queues;
	int32_t socket;
	/* 1 when the device completes UDP and TCP checksums. */
	uint8_t checksums;
	/* 1 when it can spread packets over its queues by a hash. */
	uint8_t spreads;
	uint8_t reserved[2];
};

struct fastlane_settings {
	uint16_t queues;
	/* In: what is wanted; out: what the device makes of it. */
	uint16_t receive_descriptors;
	uint16_t transmit_descriptors;
	/* 0 leaves it. */
	uint16_t mtu;
	uint8_t promiscuous;
	/* In: whether to ask for it; out: whether it is on. */
	uint8_t checksums;
	uint8_t interrupts;
	uint8_t spreads;
};

struct fastlane_losses {
	/* Of the device: rte_eth_stats. */
	uint64_t missed;
	uint64_t receive_errors;
	uint64_t transmit_errors;
	uint64_t no_frames;
};

/* What a queue itself could not receive. */
struct fastlane_queue_losses {
	/* In several pieces that do not fit one frame. */
	uint64_t length;
	/* Without space for the metadata before them. */
	uint64_t invalid;
};

struct fastlane_received {
	uint64_t bytes;
	uint64_t packets;
};

struct fastlane_sent {
	uint64_t bytes;
	uint32_t taken;
	/* 1: the first packet that was not taken cannot be sent as it is. 0: the device is full, or
	 * all were taken. */
	uint32_t stopped;
};

/* A steering rule. Everything in network byte order but `layers`. */
struct fastlane_rule {
	uint16_t ethertype;
	uint16_t first_port;
	uint16_t last_port;
	/* Which fields hold: FASTLANE_RULE_*. */
	uint16_t fields;
	/* 0, 4 or 6. */
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
	/* Of struct fastlane_packet: its size, then the offset of each field in its order. */
	uint32_t layout[9];
	uint32_t metadata;

	/* The environment. `start` must be called once, in a thread that stays; the rest from any. */
	const char *(*dpdk_version)(void);
	int (*start)(int count, char **arguments, struct fastlane_error *error);
	int (*stop)(void);
	int (*thread_register)(void);
	void (*thread_unregister)(void);

	/* Memory. `room` is the longest packet that a frame holds. */
	int (*memory_create)(const char *name, uint32_t frames, uint32_t cache, uint32_t room,
			     int socket, struct fastlane_memory **memory,
			     struct fastlane_error *error);
	uint32_t (*memory_in_use)(const struct fastlane_memory *memory);
	void (*memory_free)(struct fastlane_memory *memory);

	/* Devices. `probe` returns the number of the port, in the caller's network namespace. */
	int (*probe)(const char *device, struct fastlane_error *error);
	int (*facts)(uint16_t port, struct fastlane_facts *facts, struct fastlane_error *error);
	int (*configure)(uint16_t port, struct fastlane_settings *settings,
			 struct fastlane_error *error);
	int (*begin)(uint16_t port, const struct fastlane_settings *settings,
		     struct fastlane_memory *const *memories, struct fastlane_error *error);
	int (*link_up)(uint16_t port);
	int (*losses)(uint16_t port, struct fastlane_losses *losses);
	/* Gives the rules to the device, all or none. */
	int (*steer)(uint16_t port, uint16_t queues, const struct fastlane_rule *rules,
		     uint32_t count, struct fastlane_error *error);
	int (*set_link)(uint16_t port, int up);
	/* Stops and removes a device of which so many queues run; frees what they still hold. Nobody
	 * may use them any more. */
	int (*remove)(uint16_t port, uint16_t queues);
	/* Two ports joined by rings, for tests and measurements; their numbers in `ports`. */
	int (*ring_pair)(const char *name, uint16_t queues, uint32_t size, uint16_t ports[2],
			 struct fastlane_error *error);

	/* Queues. From the thread of the lane, after `begin`. `home` is a token with no frame in it:
	 * the lane's number for this memory. `longest` is what the device sends, in octets. */
	int (*queue_create)(uint16_t port, uint16_t number, uint16_t packet_port, uint64_t home,
			    uint32_t longest, int checksums, int steered,
			    struct fastlane_memory *memory, struct fastlane_queue **queue);
	void (*queue_losses)(const struct fastlane_queue *queue,
			     struct fastlane_queue_losses *losses);
	void (*queue_free)(struct fastlane_queue *queue);
	/* The descriptor that becomes readable, or a negative number. */
	int (*interrupt)(const struct fastlane_queue *queue);
	/* Turns the interrupt on; 1 when something has arrived already. */
	int (*arm)(const struct fastlane_queue *queue);
	void (*disarm)(const struct fastlane_queue *queue);
	/* Writes received packets to `packets`. */
	struct fastlane_received (*receive)(struct fastlane_queue *queue,
					    struct fastlane_packet *packets, uint32_t room);
	/* Sends packets from the front; what was taken has no frame afterwards. */
	struct fastlane_sent (*transmit)(struct fastlane_queue *queue,
					 struct fastlane_packet *packets, uint32_t count);
	/* Writes empty packets in fresh frames; returns how many. */
	uint32_t (*blank)(struct fastlane_queue *queue, struct fastlane_packet *packets,
			  uint32_t count);
	/* Frees frames: the lower 48 bits of tokens. */
	void (*release)(uint64_t *frames, uint32_t count);
};

/* Where the table is. */
extern const struct fastlane_dpdk fastlane_dpdk;

#endif
