/* Test of the plugin's translation of rules, against a device that records the requests. Run by
 * tests/rte_flow.rs. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#define rte_flow_create device_create
#define rte_flow_flush device_flush
#include "../../plugin/flow.c"

/* The last request, and the number of requests. */
static struct rte_flow_item items[8];
static struct rte_flow_item_ipv4 v4, v4_mask;
static struct rte_flow_item_ipv6 v6, v6_mask;
static struct rte_flow_item_udp udp, udp_last, udp_mask;
static struct rte_flow_item_tcp tcp, tcp_mask;
static struct rte_flow_item_gtp gtp, gtp_mask;
static uint8_t ethernet[14], ethernet_mask[14];
static struct rte_flow_action_mark mark;
static struct rte_flow_action_rss spread;
static enum rte_flow_action_type last_action;
static int created, flushed, refuses_from = 100;

static void copy(void *to, const void *from, size_t size)
{
	if (from != NULL)
		memcpy(to, from, size);
}

struct rte_flow *device_create(uint16_t port, const struct rte_flow_attr *attributes,
			       const struct rte_flow_item pattern[],
			       const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	assert(port == 7 && attributes->ingress);
	if (created == refuses_from) {
		error->message = "no more";
		rte_errno = ENOSPC;
		return NULL;
	}
	created++;
	for (int at = 0;; at++) {
		const struct rte_flow_item *item = &pattern[at];

		items[at] = *item;
		if (item->type == RTE_FLOW_ITEM_TYPE_END)
			break;
		switch (item->type) {
		case RTE_FLOW_ITEM_TYPE_ETH:
			copy(ethernet, item->spec, 14);
			copy(ethernet_mask, item->mask, 14);
			break;
		case RTE_FLOW_ITEM_TYPE_IPV4:
			copy(&v4, item->spec, sizeof(v4));
			copy(&v4_mask, item->mask, sizeof(v4));
			break;
		case RTE_FLOW_ITEM_TYPE_IPV6:
			copy(&v6, item->spec, sizeof(v6));
			copy(&v6_mask, item->mask, sizeof(v6));
			break;
		case RTE_FLOW_ITEM_TYPE_UDP:
			copy(&udp, item->spec, sizeof(udp));
			copy(&udp_last, item->last, sizeof(udp));
			copy(&udp_mask, item->mask, sizeof(udp));
			break;
		case RTE_FLOW_ITEM_TYPE_TCP:
			copy(&tcp, item->spec, sizeof(tcp));
			copy(&tcp_mask, item->mask, sizeof(tcp));
			break;
		case RTE_FLOW_ITEM_TYPE_GTPU:
			copy(&gtp, item->spec, sizeof(gtp));
			copy(&gtp_mask, item->mask, sizeof(gtp));
			break;
		default:
			assert(0);
		}
	}
	assert(actions[0].type == RTE_FLOW_ACTION_TYPE_MARK);
	copy(&mark, actions[0].conf, sizeof(mark));
	last_action = actions[1].type;
	if (last_action == RTE_FLOW_ACTION_TYPE_RSS)
		copy(&spread, actions[1].conf, sizeof(spread));
	assert(actions[2].type == RTE_FLOW_ACTION_TYPE_END);
	return (struct rte_flow *)items;
}

int device_flush(uint16_t port, struct rte_flow_error *error)
{
	(void)error;
	assert(port == 7);
	flushed++;
	return 0;
}

int fastlane_refuse(struct fastlane_error *error, int result, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return result;
}

static int types(int count, ...)
{
	va_list wanted;
	int alike = items[count].type == RTE_FLOW_ITEM_TYPE_END;

	va_start(wanted, count);
	for (int at = 0; at < count; at++)
		alike = alike && (int)items[at].type == va_arg(wanted, int);
	va_end(wanted);
	return alike;
}

static struct fastlane_error error;

static int steer_one(struct fastlane_rule rule, uint16_t queues)
{
	return fastlane_steer(7, queues, &rule, 1, &error);
}

int main(void)
{
	struct fastlane_rule udp_range = { .version = 4,
					   .protocol = 17,
					   .fields = FASTLANE_RULE_PROTOCOL | FASTLANE_RULE_PORT,
					   .first_port = rte_cpu_to_be_16(100),
					   .last_port = rte_cpu_to_be_16(200),
					   .source = { 10, 1 },
					   .source_mask = { 0xff, 0xff } };
	struct fastlane_rule tunnel = { .version = 6,
					.protocol = 17,
					.fields = FASTLANE_RULE_PROTOCOL | FASTLANE_RULE_PORT |
						  FASTLANE_RULE_GTP_U,
					.first_port = rte_cpu_to_be_16(2152),
					.last_port = rte_cpu_to_be_16(2152),
					.destination = { 0x20, 1 },
					.destination_mask = { 0xff, 0xff } };
	struct fastlane_rule web = tunnel, type = { .ethertype = rte_cpu_to_be_16(0x88f7),
						    .fields = FASTLANE_RULE_ETHERTYPE };

	assert(steer_one(udp_range, 1) == 0);
	assert(types(3, RTE_FLOW_ITEM_TYPE_ETH, RTE_FLOW_ITEM_TYPE_IPV4, RTE_FLOW_ITEM_TYPE_UDP));
	assert(items[0].spec == NULL && v4.hdr.next_proto_id == 17);
	assert(v4_mask.hdr.next_proto_id == 0xff && v4.hdr.fragment_offset == 0);
	assert(v4_mask.hdr.fragment_offset == rte_cpu_to_be_16(0x3fff));
	assert(v4.hdr.src_addr == rte_cpu_to_be_32(0x0a010000));
	assert(v4_mask.hdr.src_addr == rte_cpu_to_be_32(0xffff0000) && v4_mask.hdr.dst_addr == 0);
	assert(udp.hdr.dst_port == rte_cpu_to_be_16(100) && udp_mask.hdr.dst_port == 0xffff);
	assert(items[2].last != NULL && udp_last.hdr.dst_port == rte_cpu_to_be_16(200));
	assert(udp_mask.hdr.src_port == 0);
	assert(mark.id != 0 && last_action == RTE_FLOW_ACTION_TYPE_QUEUE);

	assert(steer_one(tunnel, 4) == 0);
	assert(types(4, RTE_FLOW_ITEM_TYPE_ETH, RTE_FLOW_ITEM_TYPE_IPV6, RTE_FLOW_ITEM_TYPE_UDP,
		     RTE_FLOW_ITEM_TYPE_GTPU));
	assert(((uint8_t *)&v6.hdr.dst_addr)[0] == 0x20 && v6.hdr.proto == 17);
	assert(((uint8_t *)&v6_mask.hdr.dst_addr)[1] == 0xff);
	assert(v6_mask.has_frag_ext == 1 && v6.has_frag_ext == 0);
	assert(items[2].last == NULL && udp.hdr.dst_port == rte_cpu_to_be_16(2152));
	assert(*(uint8_t *)&gtp == 0x30 && *(uint8_t *)&gtp_mask == 0xf0);
	assert(last_action == RTE_FLOW_ACTION_TYPE_RSS && spread.queue_num == 4);

	web.protocol = 6;
	web.fields = FASTLANE_RULE_PROTOCOL | FASTLANE_RULE_PORT;
	assert(steer_one(web, 1) == 0);
	assert(types(3, RTE_FLOW_ITEM_TYPE_ETH, RTE_FLOW_ITEM_TYPE_IPV6, RTE_FLOW_ITEM_TYPE_TCP));
	assert(tcp.hdr.dst_port == rte_cpu_to_be_16(2152) && tcp_mask.hdr.dst_port == 0xffff);

	assert(steer_one(type, 1) == 0);
	assert(types(1, RTE_FLOW_ITEM_TYPE_ETH));
	assert(ethernet[12] == 0x88 && ethernet[13] == 0xf7 && ethernet[0] == 0);
	assert(ethernet_mask[12] == 0xff && ethernet_mask[13] == 0xff && ethernet_mask[0] == 0);

	/* All or none. */
	struct fastlane_rule both[2] = { type, udp_range };

	assert(flushed == 0);
	refuses_from = created + 1;
	assert(fastlane_steer(7, 1, both, 2, &error) == -ENOSPC && flushed == 1);
	assert(strstr(error.text, "rule 2 (no more)") != NULL);
	puts("all rules are translated");
	return 0;
}
