/* Steering: translation of rules to rte_flow. */
#include <errno.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_flow.h>

#include "internal.h"

/* Maximum number of queues of an RSS action. */
#define QUEUES 256

/* The octets of the key, 8 and 32 of them. */
#define KEY_8 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a
#define KEY_32 KEY_8, KEY_8, KEY_8, KEY_8
uint8_t fastlane_symmetric_key[FASTLANE_MAX_KEY] = { KEY_32, KEY_32, KEY_32, KEY_32 };

/* Pattern of one rule: Ethernet, IP, UDP or TCP, GTP-U, end. */
struct pattern {
	struct rte_flow_item items[5];
	struct rte_flow_item_eth ethernet, ethernet_mask;
	struct rte_flow_item_ipv4 v4, v4_mask;
	struct rte_flow_item_ipv6 v6, v6_mask;
	struct rte_flow_item_udp udp, udp_last, udp_mask;
	struct rte_flow_item_tcp tcp, tcp_last, tcp_mask;
	struct rte_flow_item_gtp gtp, gtp_mask;
};

static void add(struct pattern *pattern, unsigned int *count, enum rte_flow_item_type type,
		const void *spec, const void *last, const void *mask)
{
	pattern->items[(*count)++] =
		(struct rte_flow_item){ .type = type, .spec = spec, .last = last, .mask = mask };
}

static void describe_network(struct pattern *pattern, unsigned int *count,
			     const struct fastlane_rule *rule)
{
	int has_protocol = rule->fields & FASTLANE_RULE_PROTOCOL;

	if (rule->version == 4) {
		memcpy(&pattern->v4.hdr.src_addr, rule->source, 4);
		memcpy(&pattern->v4_mask.hdr.src_addr, rule->source_mask, 4);
		memcpy(&pattern->v4.hdr.dst_addr, rule->destination, 4);
		memcpy(&pattern->v4_mask.hdr.dst_addr, rule->destination_mask, 4);
		pattern->v4.hdr.next_proto_id = has_protocol ? rule->protocol : 0;
		pattern->v4_mask.hdr.next_proto_id = has_protocol ? 0xff : 0;
		/* Fragments stay with Linux: more-fragments and the offset must be zero. */
		pattern->v4_mask.hdr.fragment_offset = rte_cpu_to_be_16(0x3fff);
		add(pattern, count, RTE_FLOW_ITEM_TYPE_IPV4, &pattern->v4, NULL, &pattern->v4_mask);
	} else if (rule->version == 6) {
		memcpy(&pattern->v6.hdr.src_addr, rule->source, 16);
		memcpy(&pattern->v6_mask.hdr.src_addr, rule->source_mask, 16);
		memcpy(&pattern->v6.hdr.dst_addr, rule->destination, 16);
		memcpy(&pattern->v6_mask.hdr.dst_addr, rule->destination_mask, 16);
		pattern->v6.hdr.proto = has_protocol ? rule->protocol : 0;
		pattern->v6_mask.hdr.proto = has_protocol ? 0xff : 0;
		pattern->v6_mask.has_frag_ext = 1;
		add(pattern, count, RTE_FLOW_ITEM_TYPE_IPV6, &pattern->v6, NULL, &pattern->v6_mask);
	}
}

static void describe_transport(struct pattern *pattern, unsigned int *count,
			       const struct fastlane_rule *rule)
{
	int range = rule->first_port != rule->last_port;

	if (!(rule->fields & (FASTLANE_RULE_PORT | FASTLANE_RULE_GTP_U)))
		return;
	if (rule->protocol == IPPROTO_UDP) {
		pattern->udp.hdr.dst_port = rule->first_port;
		pattern->udp_last.hdr.dst_port = rule->last_port;
		pattern->udp_mask.hdr.dst_port = 0xffff;
		add(pattern, count, RTE_FLOW_ITEM_TYPE_UDP, &pattern->udp,
		    range ? &pattern->udp_last : NULL, &pattern->udp_mask);
	} else {
		pattern->tcp.hdr.dst_port = rule->first_port;
		pattern->tcp_last.hdr.dst_port = rule->last_port;
		pattern->tcp_mask.hdr.dst_port = 0xffff;
		add(pattern, count, RTE_FLOW_ITEM_TYPE_TCP, &pattern->tcp,
		    range ? &pattern->tcp_last : NULL, &pattern->tcp_mask);
	}
	if (rule->fields & FASTLANE_RULE_GTP_U) {
		/* Version 1 and protocol type GTP are the upper bits of the first octet. */
		uint8_t *first = (uint8_t *)&pattern->gtp, *mask = (uint8_t *)&pattern->gtp_mask;

		*first = 0x30;
		*mask = 0xf0;
		add(pattern, count, RTE_FLOW_ITEM_TYPE_GTPU, &pattern->gtp, NULL, &pattern->gtp_mask);
	}
}

static void describe(struct pattern *pattern, const struct fastlane_rule *rule)
{
	unsigned int count = 0;
	uint8_t *type = (uint8_t *)&pattern->ethernet + 12;
	uint8_t *type_mask = (uint8_t *)&pattern->ethernet_mask + 12;

	memset(pattern, 0, sizeof(*pattern));
	if (rule->fields & FASTLANE_RULE_ETHERTYPE && rule->version == 0) {
		/* The item begins with the header. Its members were renamed between DPDK
		 * versions, so this writes by offset. */
		memcpy(type, &rule->ethertype, 2);
		memset(type_mask, 0xff, 2);
		add(pattern, &count, RTE_FLOW_ITEM_TYPE_ETH, &pattern->ethernet, NULL,
		    &pattern->ethernet_mask);
	} else {
		add(pattern, &count, RTE_FLOW_ITEM_TYPE_ETH, NULL, NULL, NULL);
	}
	describe_network(pattern, &count, rule);
	describe_transport(pattern, &count, rule);
	add(pattern, &count, RTE_FLOW_ITEM_TYPE_END, NULL, NULL, NULL);
}

int fastlane_steer(uint16_t port, uint16_t queues, const struct fastlane_rule *rules,
		   uint32_t count, struct fastlane_error *error)
{
	struct rte_flow_attr attributes = { .ingress = 1 };
	struct rte_flow_action_mark mark = { .id = 1 };
	struct rte_flow_action_queue first = { .index = 0 };
	uint16_t all[QUEUES];
	struct rte_flow_action_rss spread = { .func = RTE_ETH_HASH_FUNCTION_DEFAULT,
					      .queue_num = queues,
					      .queue = all };
	struct rte_eth_dev_info info;
	struct rte_flow_action actions[3] = { { .type = RTE_FLOW_ACTION_TYPE_MARK, .conf = &mark } };
	struct rte_flow_error refusal = { 0 };
	struct pattern pattern;

	if (queues > QUEUES)
		return fastlane_refuse(error, -E2BIG, "%u queues", queues);
	for (uint16_t queue = 0; queue < queues; queue++)
		all[queue] = queue;
	/* The same hash as for all other packets, so that a flow keeps its queue. */
	if (rte_eth_dev_info_get(port, &info) == 0 && info.hash_key_size <= FASTLANE_MAX_KEY) {
		spread.types = info.flow_type_rss_offloads & FASTLANE_RSS_TYPES;
		spread.key = info.hash_key_size > 0 ? fastlane_symmetric_key : NULL;
		spread.key_len = info.hash_key_size;
	}
	if (queues == 1) {
		actions[1] = (struct rte_flow_action){ RTE_FLOW_ACTION_TYPE_QUEUE, &first };
	} else {
		actions[1] = (struct rte_flow_action){ RTE_FLOW_ACTION_TYPE_RSS, &spread };
	}
	actions[2] = (struct rte_flow_action){ .type = RTE_FLOW_ACTION_TYPE_END };
	for (uint32_t i = 0; i < count; i++) {
		describe(&pattern, &rules[i]);
		if (rte_flow_create(port, &attributes, pattern.items, actions, &refusal) == NULL) {
			int result = rte_errno != 0 ? -rte_errno : -ENOTSUP;

			/* Remove all rules: otherwise the device would claim only a part. */
			rte_flow_flush(port, &(struct rte_flow_error){ 0 });
			return fastlane_refuse(error, result, "rule %u (%s)", i + 1,
					       refusal.message ? refusal.message : "no reason");
		}
	}
	return 0;
}
