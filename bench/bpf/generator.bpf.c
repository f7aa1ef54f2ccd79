// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Generators of frames for `fastlane-bench firewall`: of UDP, for one flow or another, and of
// the packets of TCP connections, one packet of each connection after the other. They write each
// frame anew and send it by an interface. BPF_PROG_TEST_RUN with live frames runs them, and uses the
// memory of a frame again with what the receiver has left in it. Those of UDP come back by a program
// where they leave the router, which makes a packet of another flow of each. Built by lab/build-bpf.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SOURCE_PORT 4000
#define DESTINATION_PORT 53

struct settings {
	__u32 flows;
	__u32 next; // flow of the next frame; with `flows` it is any
	__u32 interface;
	__u32 length; // of the IP packet
	__u64 ends; // frames do not come back
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

// Frames that have left the router, on one CPU.
struct passed {
	__u64 all;
	__u64 last; // of them have not come back
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct passed);
} passed SEC(".maps");

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum >> 16) + (sum & 0xffff);
	return ~((sum >> 16) + sum);
}

// Returns the sum of the two words of a number.
static __always_inline __u32 words(__u32 number)
{
	return (number >> 16) + (number & 0xffff);
}

static __always_inline void to_router(struct ethhdr *ethernet)
{
	__builtin_memcpy(ethernet->h_dest, "\x02\0\0\0\0\x01", ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, "\x02\0\0\0\0\x02", ETH_ALEN);
	ethernet->h_proto = bpf_htons(ETH_P_IP);
}

static __always_inline void write_ip(struct iphdr *ip, __u32 length, __u32 protocol, __u32 source,
				     __u32 destination)
{
	*(__be16 *)ip = bpf_htons(0x4500);
	ip->tot_len = bpf_htons(length);
	ip->id = 0;
	ip->frag_off = 0;
	ip->ttl = 64;
	ip->protocol = protocol;
	ip->saddr = bpf_htonl(source);
	ip->daddr = bpf_htonl(destination);
	ip->check = bpf_htons(fold(0x4500 + length + (64 << 8 | protocol) + words(source) +
				   words(destination)));
}

// Writes a frame of one flow or another, and sends it.
static __always_inline int send(struct xdp_md *xdp, struct settings *set)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > end)
		return XDP_ABORTED;
	__u32 flow = set->next;

	// First each once, then by chance: a processor would prefetch what was created in this order.
	if (flow < set->flows)
		set->next++;
	else
		flow = bpf_get_prandom_u32() % set->flows;
	to_router(ethernet);
	// From 10.A.B.C to 20.A.B.C, where A.B.C is the flow.
	__u32 source = 10 << 24 | flow, destination = 20 << 24 | flow;
	__u32 addresses = words(source) + words(destination);
	__u32 length = set->length, payload = length - sizeof(*ip);

	write_ip(ip, length, IPPROTO_UDP, source, destination);
	udp->source = bpf_htons(SOURCE_PORT);
	udp->dest = bpf_htons(DESTINATION_PORT);
	udp->len = bpf_htons(payload);
	// The payload is zeros.
	udp->check = bpf_htons(fold(addresses + IPPROTO_UDP + SOURCE_PORT + DESTINATION_PORT +
				    2 * payload));
	return bpf_redirect(set->interface, 0);
}

SEC("xdp")
int generate(struct xdp_md *xdp)
{
	__u32 key = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &key);

	return set ? send(xdp, set) : XDP_ABORTED;
}

// Sends a frame again that has left the router.
SEC("xdp")
int circulate(struct xdp_md *xdp)
{
	__u32 key = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &key);
	struct passed *count = bpf_map_lookup_elem(&passed, &key);

	if (!set || !count)
		return XDP_ABORTED;
	count->all++;
	if (!set->ends)
		return send(xdp, set);
	count->last++;
	return XDP_DROP;
}

#define SERVER_PORT 80
#define ROUTER (20 << 24 | 0xff0001) // 20.255.0.1, the address of the masquerade
#define FIN 0x01
#define SYN 0x02
#define PSH 0x08
#define ACK 0x10

struct connections {
	__u32 next; // number of the next connection
	__u32 interface;
	__u32 step; // packet of the connection, from 0 to 7
	__u32 payload; // bytes of the request, and of the response
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct connections);
} connections SEC(".maps");

// Packet of a connection. The first byte of a side has the sequence number 1.
struct step {
	__u32 flags;
	__u32 sequence;
	__u32 acknowledged;
	__u32 payload;
};

static __always_inline struct step packet(__u32 step, __u32 payload)
{
	switch (step) {
	case 0:
		return (struct step){ SYN, 0, 0, 0 };
	case 1:
		return (struct step){ SYN | ACK, 0, 1, 0 };
	case 2:
		return (struct step){ ACK, 1, 1, 0 };
	case 3: // the request
		return (struct step){ PSH | ACK, 1, 1, payload };
	case 4: // the response
		return (struct step){ PSH | ACK, 1, 1 + payload, payload };
	case 5:
		return (struct step){ FIN | ACK, 1 + payload, 1 + payload, 0 };
	case 6:
		return (struct step){ FIN | ACK, 1 + payload, 2 + payload, 0 };
	default:
		return (struct step){ ACK, 2 + payload, 2 + payload, 0 };
	}
}

// From 10.A.B.C:4000 to 20.A.B.C:80, where A.B.C is the connection. Masquerade keeps the port, so
// that the server's packets are known without those of the client.
SEC("xdp")
int connect(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct tcphdr *tcp = (void *)(ip + 1);
	__u32 key = 0;
	struct connections *set = bpf_map_lookup_elem(&connections, &key);

	if (!set || (void *)(tcp + 1) > end)
		return XDP_ABORTED;
	__u32 number = set->next++;
	struct step step = packet(set->step, set->payload);
	int is_servers = set->step == 1 || set->step == 4 || set->step == 6;
	__u32 client = 10 << 24 | number, server = 20 << 24 | number;
	__u32 source = is_servers ? server : client, destination = is_servers ? ROUTER : server;
	__u32 length = sizeof(*tcp) + step.payload;
	__be32 *numbers = (void *)&tcp->seq;
	__be16 *halves = (void *)tcp;

	to_router(ethernet);
	write_ip(ip, sizeof(*ip) + length, IPPROTO_TCP, source, destination);
	tcp->source = bpf_htons(is_servers ? SERVER_PORT : SOURCE_PORT);
	tcp->dest = bpf_htons(is_servers ? SOURCE_PORT : SERVER_PORT);
	numbers[0] = bpf_htonl(step.sequence);
	numbers[1] = bpf_htonl(step.acknowledged);
	halves[6] = bpf_htons(5 << 12 | step.flags);
	tcp->window = bpf_htons(0xffff);
	tcp->urg_ptr = 0;
	// The payload is zeros.
	tcp->check = bpf_htons(fold(words(source) + words(destination) + IPPROTO_TCP + length +
				    SOURCE_PORT + SERVER_PORT + words(step.sequence) +
				    words(step.acknowledged) + (5 << 12 | step.flags) + 0xffff));
	return bpf_redirect(set->interface, 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
