// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Kernel tier of flows: forwards the packets of connections that Linux has established, with NAT,
// before Linux sees them. All others go to Linux unchanged. The reference is the lane of
// apps/router; its tests/kernel_tier.rs compares the two. Built by lab/build-bpf, loaded by
// src/program.rs. Needs only the kernel's UAPI headers and libbpf's macros: Linux 6.1 or newer.

#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// The UAPI headers of libc have no names for these.
#define AF_INET 2
#define AF_INET6 10
#define FRAGMENT 0x3fff // more-fragments flag and offset
#define FLOW_INFO 0x0fffffff // traffic class and flow label in the first word of IPv6 (RFC 8200 3)
#define DSCP 0xfc // of a type of service; the other bits tell of congestion (RFC 3168)

#define MAX_PORTS 256
#define MAX_ROUTE_MTUS 8193
#define MAX_CPUS 1024
// Shortest frame without the frame check sequence, up to which frames may be padded.
#define SHORTEST 60
// BPF_F_IPV6, of newer kernels: the sum of a device over the packet (CHECKSUM_COMPLETE) does not
// change with the pseudo header, as addresses and checksum change alike. Others refuse the flag.
#define IPV6_HEADER (1 << 7)

// Difference of an IPv4 header whose time to live is less by one, in ones' complement.
#define DECREMENT 0xfeff

// Keys of `outcomes`, in the order of `TierOutcome` in src/tier_outcome.rs.
enum outcome {
	FORWARDED,
	GROUP,
	OTHER_STATION,
	ETHERTYPE,
	MALFORMED,
	CHECKSUM,
	OPTIONS,
	TIME_TO_LIVE,
	SOURCE,
	OWN_SOURCE,
	FORWARDING_OFF,
	TOO_LONG,
	SAME_INTERFACE,
	UNKNOWN_INTERFACE,
	NO_FLOW,
	FLOW_PROTOCOL,
	FLOW_NO_PORTS,
	TCP_OPEN,
	TCP_CLOSE,
	FLOW_CLOSING,
	FLOW_INTERFACE,
	FLOW_EXIT,
	FLOWS_PAUSED,
	NO_NEIGHBOUR,
	BLACKHOLE,
	UNREACHABLE,
	PROHIBIT,
	NOT_FORWARDED,
	NOT_OUR_PORT,
	UNSUPPORTED,
	PARTIAL_CHECKSUM,
	NO_EXIT,
	OUTCOMES
};

// `FlowKey` of crates/mirror: addresses as on the wire, numbers in the machine's byte order.
struct flow_key {
	__u32 source[4];
	__u32 destination[4];
	__u16 ports[2];
	__u16 zone;
	__u8 protocol;
	__u8 version;
};

#define KEY_WORDS 5
#define FLOW_WORDS 6
#define MAX_PROBES 64

// A direction of a flow: `FlowKey` and `FlowRecord` of crates/mirror. That of IPv4 is whole in the
// first of two cache lines, which has the first words of all addresses.
struct flow {
	__u32 source;
	__u32 destination;
	__u16 ports[2];
	__u16 zone;
	__u8 protocol;
	__u8 version;
	__u32 new_source;
	__u32 new_destination;
	__u16 new_ports[2];
	__u16 address_difference;
	__u16 port_difference;
	__u32 id;
	__u32 is_reply;
	__u32 serial; // number of this insertion
	__u32 reserved;
	// The slow path may write another flow while a program reads this one. The check holds over all
	// words before: a mixture of two flows does not have it.
	__u64 check;
	__u64 reserved_line;
	__u32 more[4][3]; // other words of the addresses of IPv6, in the same order
	__u64 more_check; // over them too
	__u64 reserved_more;
};

// Slots of a hash table with linear probing, two in an element. One has the entry of a flow and one
// more in the bits of `entry_mask`, and bits of the flow's hash in the others; 0: it is free. A flow
// is at most MAX_PROBES - 1 slots after the one of its hash, and no slot between is free. Behind the
// last slot of a hash there are as many more, so that the search does not wrap around: another
// branch in its loop would multiply the work of the verifier.
#define SLOTS 2

// State of a direction of a flow on one CPU. It belongs to the insertion with its serial number:
// the first packet of another one clears it, so no CPU writes what another one reads or clears.
struct flow_state {
	__u64 packets;
	__u64 octets;
	__u64 last_seen; // nanoseconds of CLOCK_MONOTONIC
	__u32 serial;
	__u32 flags;
	// Next hop that was looked up in a generation, for a type of service; 0: none.
	__u32 generation;
	__u32 ingress;
	// The first exit of the flow; 0: unknown. The rules of Linux have judged it by no other.
	__u32 egress;
	__u32 mtu;
	__u8 next_hop[6];
	__u8 exit[6];
	__u32 service;
};

// Flags of a state: a packet that closes the connection was seen; its route leads to another exit.
#define CLOSING 1
#define REROUTED 2

#define STATUS_WORDS 4

// Status of the slow path, which replaces it several times per second.
struct status {
	__u64 deadline; // time after which everything goes to Linux; 0: now
	__u64 hops_until; // time after which remembered hops do not hold
	__u32 generation; // changes with Linux's routes, neighbours, links and addresses
	__u32 last_serial; // that a flow may have, for the successor of the slow path
	__u64 seed; // of the hash of flows
	__u64 check; // as in struct flow
};

// Flags of an entrance: flows may leave by it too; Linux takes IPv6 packets from it.
#define FORWARDS_BACK 1
#define TAKES_IPV6 2

#define ENTRANCE_WORDS 2
#define ENTRANCE_BITS 10
#define ENTRANCE_FACTOR 0x9e3779b1U
#define MAX_ENTRANCE_PROBES 16

// An interface on which flows may arrive, in a hash table with linear probing. The slow path
// changes it by a second one, in another slot, then clears the first: one of them is always whole.
struct entrance {
	__u8 mac[6];
	__u16 zone;
	__u32 interface; // 0 in a free slot
	__u16 lanes; // index in `lanes` of the program that steers to lanes, plus 1; 0: none
	__u16 flags;
	__u64 check; // as in struct flow
	__u64 reserved;
};

struct count {
	__u64 packets;
	__u64 octets;
};

// Numbers of slots that a hash may have, and of possible CPUs, and the bits of an entry in a slot,
// set at load.
const volatile __u32 slots = 1;
const volatile __u32 cpus = 1;
const volatile __u32 entry_mask = 1;

// Sizes of the first four are set at load. They begin at pages, as what can be mapped does, so that
// elements begin at cache lines. They are arrays, as a packet of a cold flow waits for memory once
// for its slot, and once for its flow and its state, whose places it knows at the same time; the
// kernel's hash and per-CPU tables take five steps that wait for each other. Flows by their entries.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} places SEC(".maps");

// A bit for each slot that a hash may have, set if a flow has it. Most packets of connections without
// a flow need nothing else: their slots would be read from memory that nobody has used lately.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} homes SEC(".maps");

// The states of an entry are adjacent: one for each CPU.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_state);
} states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct status);
} status SEC(".maps");

// No hash table of the kernel, which takes four cache lines for what has one here. Packets of new
// connections find all of them cold.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, (1 << ENTRANCE_BITS) + MAX_ENTRANCE_PROBES - 1);
	__type(key, __u32);
	__type(value, struct entrance);
} entrances SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, MAX_PORTS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
} exits SEC(".maps");

struct prefix {
	__u32 length;
	__be32 address;
};

// MTUs of IPv4 routes. The route lookup tells only locked ones (`ip_mtu_from_fib_result`), but Linux
// keeps to all when it forwards (`ip_dst_mtu_maybe_forward`).
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ROUTE_MTUS);
	__type(key, struct prefix);
	__type(value, __u32);
} route_mtus SEC(".maps");

// Programs that steer to lanes, of interfaces that are of both tiers.
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} lanes SEC(".maps");

// The counts of each CPU are adjacent: OUTCOMES of them. Their number is set at load.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct count);
} outcomes SEC(".maps");

// A parsed packet.
struct packet {
	struct flow_key key;
	__u32 length; // of the IP packet
	__u32 longest; // of the IP packets that are sent: shorter than it if there are several
	__u32 headers; // of the IP packet, both
	__u32 has_expired; // time to live or hop limit
	__u32 service; // type of service that routes may ask for: only those of IPv4 do
	__be32 flow_info; // traffic class and flow label of IPv6, which select one of several next hops
};

// What the packets of a flow are translated to.
struct translation {
	__u32 source[4];
	__u32 destination[4];
	union {
		struct {
			__u16 ports[2];
			__u16 address_difference;
			__u16 port_difference;
		};
		__u64 numbers;
	};
	__u32 entry; // of the flow
	__u32 serial; // of its insertion
};

// A frame, of an XDP program or in a socket buffer of Linux.
struct frame {
	void *context; // `struct xdp_md` or `struct __sk_buff`
	void *data;
	void *end; // of what can be read here
	__u32 length; // with what cannot
	__u32 ingress;
	__u32 segment; // payload of each packet that Linux makes of it when it is sent; 0: it is one
	__u32 is_socket_buffer;
};

// Sum of products with odd numbers: it differs if any word differs. `src/encoding.rs` has the same.
// The compiler keeps the loop, which is five times the instructions, if it is only asked to unroll.
static __always_inline __u64 check_of(const __u64 *words, __u32 count, __u64 sum, __u32 first)
{
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < count; i++)
		sum += words[i] * (0x9e3779b97f4a7c15ULL * (2 * (first + i) + 1));
	return sum;
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum;
}

// RFC 1624, equation 3, on numbers in the machine's byte order.
static __always_inline __u16 update(__u16 checksum, __u32 difference)
{
	return ~fold((__u16)~checksum + difference);
}

// Returns the seed of the hash of flows. It changes with nothing but the tables.
static __always_inline __u64 read_seed(void)
{
	__u32 zero = 0;
	const struct status *shared = bpf_map_lookup_elem(&status, &zero);

	return shared ? shared->seed : 0;
}

// Reads the status into `copy`, if it is whole.
static __always_inline int read_status(struct status *copy)
{
	__u32 zero = 0;
	const struct status *shared = bpf_map_lookup_elem(&status, &zero);

	if (!shared)
		return 0;
	__builtin_memcpy(copy, shared, sizeof(*copy));
	asm volatile("" ::: "memory"); // the copy is what is checked and used
	return copy->check == check_of((const __u64 *)copy, STATUS_WORDS, 0, 0);
}

// Copies the entrance of an interface. `src/entrances.rs` has the same search. It is done twice, as
// the entrance may be moved to where the first search has been.
static __always_inline int read_entrance(__u32 interface, struct entrance *copy)
{
	__u32 first = interface * ENTRANCE_FACTOR >> (32 - ENTRANCE_BITS);

	for (__u32 i = 0; i < 2 * MAX_ENTRANCE_PROBES; i++) {
		__u32 index = first + i % MAX_ENTRANCE_PROBES;
		const struct entrance *shared = bpf_map_lookup_elem(&entrances, &index);

		if (!shared)
			return 0;
		if (shared->interface != interface)
			continue;
		__builtin_memcpy(copy, shared, sizeof(*copy));
		asm volatile("" ::: "memory");
		if (copy->interface == interface &&
		    copy->check == check_of((const __u64 *)copy, ENTRANCE_WORDS, 0, 0))
			return 1;
	}
	return 0;
}

static __always_inline __u64 hash(__u64 seed, __u64 word)
{
	__u64 product = (seed ^ word) * 0x9e3779b97f4a7c15ULL;

	return product ^ product >> 32;
}

// Returns the hash of a key. `src/encoding.rs` has the same. The addresses of IPv4 are one word, as
// each word waits for the product of the one before. The last step is for ports that follow one
// another: without it the longest distance of such flows is a third longer.
static __always_inline __u64 hash_of(const struct flow_key *key, __u64 seed)
{
	const __u64 *words = (const void *)key;

	if (key->version == 4) {
		seed = hash(seed, key->source[0] | (__u64)key->destination[0] << 32);
	} else {
#pragma clang loop unroll(full)
		for (__u32 i = 0; i < KEY_WORDS - 1; i++)
			seed = hash(seed, words[i]);
	}
	return hash(hash(seed, words[KEY_WORDS - 1]), 0);
}

// Returns the first slot of a hash.
static __always_inline __u32 first_slot(__u64 hash)
{
	return (hash & 0xffffffff) * slots >> 32;
}

// True if a flow may have this first slot.
static __always_inline int is_home(__u32 index)
{
	__u32 word = index / 64;
	const __u64 *bits = bpf_map_lookup_elem(&homes, &word);

	return bits && *bits >> index % 64 & 1;
}

// A key in the words of `struct flow`.
struct wanted {
	__u64 first[2];
	__u64 more[3]; // of IPv6
};

static __always_inline struct wanted wanted_words(const struct flow_key *key)
{
	struct wanted wanted = {
		.first = { key->source[0] | (__u64)key->destination[0] << 32,
			   ((const __u64 *)key)[KEY_WORDS - 1] },
	};
	__u32 *more = (void *)wanted.more;

	__builtin_memcpy(more, key->source + 1, sizeof(wanted.more) / 2);
	__builtin_memcpy(more + 3, key->destination + 1, sizeof(wanted.more) / 2);
	return wanted;
}

// Reads the translation of the flow with this key. Returns false if there is another flow, or the
// slow path is writing it.
static __always_inline int read_translation(const struct flow *shared, const struct wanted *wanted,
					    __u8 version, struct translation *translation)
{
	const __u64 *words = (const void *)shared, *more = (const void *)shared->more;
	__u64 copy[FLOW_WORDS - 2 + 1];

	if ((words[0] ^ wanted->first[0]) | (words[1] ^ wanted->first[1]))
		return 0;
	if (version != 4 && ((more[0] ^ wanted->more[0]) | (more[1] ^ wanted->more[1]) |
			     (more[2] ^ wanted->more[2])))
		return 0;
	__builtin_memcpy(copy, words + 2, sizeof(copy));
	asm volatile("" ::: "memory"); // the copy is what is checked and used
	__u64 check = check_of(copy, FLOW_WORDS - 2, check_of(wanted->first, 2, 0, 0), 2);

	if (copy[FLOW_WORDS - 2] != check)
		return 0;
	translation->source[0] = copy[0];
	translation->destination[0] = copy[0] >> 32;
	translation->numbers = copy[1];
	translation->serial = copy[3];
	if (version == 4)
		return 1;
	__builtin_memcpy(copy, more + 3, 4 * sizeof(*copy));
	asm volatile("" ::: "memory");
	__builtin_memcpy(translation->source + 1, copy, 12);
	__builtin_memcpy(translation->destination + 1, (__u32 *)copy + 3, 12);
	return copy[3] == check_of(copy, 3, check_of(wanted->more, 3, check, FLOW_WORDS),
				   FLOW_WORDS + 3);
}

// Finds the flow of a packet with a hash. Returns its state on this CPU; 0 if there is none, or the
// slow path is writing it.
static __always_inline struct flow_state *find_flow(const struct flow_key *key, __u64 hash,
						    struct translation *translation)
{
	__u32 index = first_slot(hash), cpu = bpf_get_smp_processor_id();
	const struct wanted wanted = wanted_words(key);

	if (cpu >= cpus)
		return 0;
	for (__u32 i = 0; i < MAX_PROBES; i++, index++) {
		__u32 place = index / SLOTS;
		const __u64 *shared = bpf_map_lookup_elem(&places, &place);

		if (!shared)
			return 0;
		__u32 slot = *shared >> index % SLOTS * 32;

		if (!slot)
			return 0;
		if ((slot ^ (__u32)(hash >> 32)) & ~entry_mask)
			continue;
		__u32 entry = (slot & entry_mask) - 1, of_cpu = entry * cpus + cpu;
		const struct flow *flow = bpf_map_lookup_elem(&flows, &entry);
		struct flow_state *state = bpf_map_lookup_elem(&states, &of_cpu);

		if (!flow || !state)
			return 0;
		// Memory is asked for the state here, so that it comes together with the flow.
		(void)*(volatile __u32 *)&state->serial;
		if (!read_translation(flow, &wanted, key->version, translation))
			continue;
		translation->entry = entry;
		return state;
	}
	return 0;
}

// RFC 791 3.1.
static __always_inline enum outcome read_ipv4(void *data, void *end, struct packet *packet)
{
	struct iphdr *ip = data + ETH_HLEN;

	if ((void *)(ip + 1) > end)
		return MALFORMED;
	packet->length = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || ip->ihl < 5 || packet->length < ip->ihl * 4)
		return MALFORMED;
	if (ip->ihl > 5)
		return OPTIONS;
	if (ip->frag_off & bpf_htons(FRAGMENT))
		return FLOW_NO_PORTS;
	__u8 first = *(__u8 *)&ip->saddr;

	if (first == 0 || first == 127 || first >= 224)
		return SOURCE;
	packet->key.source[0] = ip->saddr;
	packet->key.destination[0] = ip->daddr;
	packet->key.protocol = ip->protocol;
	packet->key.version = 4;
	packet->has_expired = ip->ttl <= 1;
	packet->service = ip->tos & DSCP;
	return FORWARDED;
}

// RFC 791 3.1: the sum over the header, which `read_ipv4` has read, in ones' complement.
static __always_inline int has_checksum(void *data, void *end)
{
	const __u32 *words = data + ETH_HLEN;

	if ((void *)(words + sizeof(struct iphdr) / sizeof(*words)) > end)
		return 0;
	return fold((__u64)words[0] + words[1] + words[2] + words[3] + words[4]) == 0xffff;
}

// True if packets from the address may be forwarded: it is not multicast, unspecified, loopback,
// IPv4-mapped or link-local (RFC 4291 2.5).
static __always_inline int is_source6(const struct in6_addr *address)
{
	const __u8 *octets = address->in6_u.u6_addr8;
	const __be32 *words = address->in6_u.u6_addr32;

	if (octets[0] == 0xff)
		return 0;
	if (octets[0] == 0xfe)
		return (octets[1] & 0xc0) != 0x80;
	if (octets[0] != 0 || words[0] || words[1])
		return 1;
	// ::, ::1 and ::ffff:0:0/96.
	return words[2] ? words[2] != bpf_htonl(0xffff) : 0;
}

// RFC 8200 3.
static __always_inline enum outcome read_ipv6(void *data, void *end, struct packet *packet)
{
	struct ipv6hdr *ip = data + ETH_HLEN;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return MALFORMED;
	packet->length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (!is_source6(&ip->saddr))
		return SOURCE;
	__builtin_memcpy(packet->key.source, &ip->saddr, sizeof(ip->saddr));
	__builtin_memcpy(packet->key.destination, &ip->daddr, sizeof(ip->daddr));
	// The compiler would read the addresses where they are hashed, behind another test of the version.
	// The verifier of Linux 6.1 does not know that both tests have one result.
	asm volatile("" : "+m"(packet->key.source), "+m"(packet->key.destination));
	packet->key.protocol = ip->nexthdr;
	packet->key.version = 6;
	packet->flow_info = *(const __be32 *)ip & bpf_htonl(FLOW_INFO);
	packet->has_expired = ip->hop_limit <= 1;
	return FORWARDED;
}

// Sum of the pseudo header (RFC 9293 3.1, RFC 8200 8.1), as Linux leaves it to a device.
static __always_inline __u16 pseudo(const struct flow_key *key, __u32 length)
{
	__u64 sum = bpf_htonl(length + key->protocol);

#pragma clang loop unroll(full)
	for (int i = 0; i < 4; i++)
		sum += (__u64)key->source[i] + key->destination[i];
	return fold(sum);
}

// Checks the transport header. Linux gets what begins or ends a connection, and what its connection
// tracking would call invalid. `room` is the length of the IP payload.
static __always_inline enum outcome read_transport(const struct frame *frame, void *header,
						   __u32 room, struct packet *packet)
{
	const struct flow_key *key = &packet->key;
	void *end = frame->end;

	// Linux has marked a socket buffer whose checksum it has left to the device.
	int may_be_partial = !frame->is_socket_buffer;

	if (key->protocol == IPPROTO_UDP) {
		struct udphdr *udp = header;

		if ((void *)(udp + 1) > end)
			return MALFORMED;
		__u32 length = bpf_ntohs(udp->len);

		if (length < sizeof(*udp) || length > room)
			return MALFORMED;
		packet->headers += sizeof(*udp);
		return may_be_partial && udp->check && udp->check == pseudo(key, length) ?
			       PARTIAL_CHECKSUM :
			       FORWARDED;
	}
	struct tcphdr *tcp = header;

	if ((void *)(tcp + 1) > end || tcp->doff < 5 || tcp->doff * 4U > room)
		return MALFORMED;
	if (tcp->fin || tcp->rst)
		return TCP_CLOSE;
	if (tcp->syn || !tcp->ack)
		return TCP_OPEN;
	packet->headers += tcp->doff * 4U;
	return may_be_partial && tcp->check == pseudo(key, room) ? PARTIAL_CHECKSUM : FORWARDED;
}

// True if a packet asks for a connection, or agrees to one: no flow forwards it.
static __always_inline int opens_tcp(const void *header, const void *end)
{
	const struct tcphdr *tcp = header;

	return (const void *)(tcp + 1) <= end && tcp->syn && !tcp->fin && !tcp->rst;
}

static __always_inline enum outcome of_lookup(long result)
{
	switch (result) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		return FORWARDED;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
		return BLACKHOLE;
	case BPF_FIB_LKUP_RET_UNREACHABLE:
		return UNREACHABLE;
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return PROHIBIT;
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		return NOT_FORWARDED;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return FORWARDING_OFF;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return NO_NEIGHBOUR;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return TOO_LONG;
	default:
		return UNSUPPORTED;
	}
}

// Looks up the route from an address to another one, for a packet by an interface.
static __always_inline enum outcome look_up(void *context, struct bpf_fib_lookup *route,
					    __u8 version, const __u32 *from, const __u32 *to)
{
	route->family = version == 4 ? AF_INET : AF_INET6;
	__builtin_memcpy(route->ipv6_src, from, sizeof(route->ipv6_src));
	__builtin_memcpy(route->ipv6_dst, to, sizeof(route->ipv6_dst));
	return of_lookup(bpf_fib_lookup(context, route, sizeof(*route), 0));
}

// Returns the first exit of a flow, on whatever CPU it was found; 0: unknown.
static __always_inline __u32 first_exit(const struct translation *flow)
{
	for (__u32 cpu = 0; cpu < MAX_CPUS && cpu < cpus; cpu++) {
		__u32 index = flow->entry * cpus + cpu;
		const struct flow_state *state = bpf_map_lookup_elem(&states, &index);

		if (state && state->serial == flow->serial && state->egress)
			return state->egress;
	}
	return 0;
}

// Looks up the next hop of a packet and the route back to its source, which must use the ingress
// interface, as in a flow table of Linux. Linux routes a packet after its destination is translated
// and before its source is. A route by another exit than before is Linux's, whose rules may be such
// that nothing leaves there, or may translate addresses.
static __always_inline enum outcome resolve(const struct frame *frame, const struct packet *packet,
					    const struct translation *flow, struct flow_state *state)
{
	struct bpf_fib_lookup way = {}, back = {};
	const struct flow_key *key = &packet->key;
	enum outcome outcome;

	state->generation = 0;
	// In the place of the type of service, which is 0 for IPv6.
	way.flowinfo = packet->flow_info;
	way.tos |= packet->service;
	way.l4_protocol = key->protocol;
	way.sport = bpf_htons(key->ports[0]);
	way.dport = bpf_htons(flow->ports[1]);
	way.tot_len = packet->longest;
	way.ifindex = frame->ingress;
	outcome = look_up(frame->context, &way, key->version, key->source, flow->destination);
	// The interface is known without the neighbour, too.
	if (outcome != FORWARDED && outcome != NO_NEIGHBOUR)
		return outcome;
	__u32 egress = way.ifindex, first = state->egress;

	if (!first)
		first = first_exit(flow);
	int is_rerouted = first && first != egress;

	if (outcome == FORWARDED && !bpf_map_lookup_elem(&exits, &egress))
		outcome = NOT_OUR_PORT;
	if (outcome != FORWARDED) {
		if (is_rerouted)
			goto rerouted;
		state->egress = egress;
		return outcome;
	}

	back.tos = packet->service;
	back.l4_protocol = key->protocol;
	back.sport = bpf_htons(flow->ports[1]);
	back.dport = bpf_htons(key->ports[0]);
	back.ifindex = egress;
	outcome = look_up(frame->context, &back, key->version, flow->destination, key->source);
	if (outcome == NOT_FORWARDED)
		return OWN_SOURCE;
	if (outcome != FORWARDED)
		return outcome;
	if (back.ifindex != frame->ingress)
		return FLOW_INTERFACE;
	if (is_rerouted)
		goto rerouted;
	state->service = packet->service;
	state->ingress = back.ifindex;
	state->egress = egress;
	state->mtu = way.mtu_result;
	if (key->version == 4) {
		struct prefix to = { .length = 32, .address = flow->destination[0] };
		const __u32 *mtu = bpf_map_lookup_elem(&route_mtus, &to);

		if (mtu && *mtu < state->mtu)
			state->mtu = *mtu;
	}
	__builtin_memcpy(state->next_hop, way.dmac, sizeof(state->next_hop));
	__builtin_memcpy(state->exit, way.smac, sizeof(state->exit));
	return FORWARDED;
rerouted:
	state->flags |= REROUTED;
	return FLOW_EXIT;
}

// Translates the ports and the checksum of the transport header. Returns false only if it were not
// complete, which read_transport has excluded.
static __always_inline int translate_transport(void *header, void *end, __u8 protocol,
					       const struct translation *flow)
{
	__u32 difference = fold(flow->address_difference + (__u32)flow->port_difference);

	if (protocol == IPPROTO_UDP) {
		struct udphdr *udp = header;

		if ((void *)(udp + 1) > end)
			return 0;
		udp->source = bpf_htons(flow->ports[0]);
		udp->dest = bpf_htons(flow->ports[1]);
		if (udp->check) {
			__u16 checksum = update(bpf_ntohs(udp->check), difference);

			// 0 would mean that there is none.
			udp->check = checksum ? bpf_htons(checksum) : 0xffff;
		}
		return 1;
	}
	struct tcphdr *tcp = header;

	if ((void *)(tcp + 1) > end)
		return 0;
	tcp->source = bpf_htons(flow->ports[0]);
	tcp->dest = bpf_htons(flow->ports[1]);
	tcp->check = bpf_htons(update(bpf_ntohs(tcp->check), difference));
	return 1;
}

// Compares Ethernet addresses, which begin at an even address in a frame.
static __always_inline int is_same(const __u8 *one, const __u8 *other)
{
	const __u16 *a = (const void *)one, *b = (const void *)other;

	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]));
}

// Decides about a packet. If it is forwarded, `flow` and `state` are those of its flow.
static __always_inline enum outcome decide(const struct frame *frame,
					   const struct entrance *entrance, struct packet *packet,
					   struct translation *flow,
					   struct flow_state **flow_state)
{
	void *data = frame->data, *end = frame->end;
	struct ethhdr *ethernet = data;
	struct status status;
	enum outcome outcome;

	if ((void *)(ethernet + 1) > end)
		return MALFORMED;
	if (!is_same(ethernet->h_dest, entrance->mac))
		return ethernet->h_dest[0] & 1 ? GROUP : OTHER_STATION;
	int is_ipv4 = ethernet->h_proto == bpf_htons(ETH_P_IP);

	if (is_ipv4)
		outcome = read_ipv4(data, end, packet);
	else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		outcome = entrance->flags & TAKES_IPV6 ? read_ipv6(data, end, packet) :
							 FORWARDING_OFF;
	else
		outcome = ETHERTYPE;
	if (outcome != FORWARDED)
		return outcome;
	if (packet->length > frame->length - ETH_HLEN) {
		if (frame->is_socket_buffer)
			return MALFORMED;
		// A frame in several buffers is longer than it seems here.
		return bpf_xdp_get_buff_len(frame->context) > frame->length ? TOO_LONG : MALFORMED;
	}
	// What is behind several packets in one cannot be cut off: that makes it one.
	if (frame->segment && frame->length > ETH_HLEN + packet->length)
		return MALFORMED;
	int is_tcp = packet->key.protocol == IPPROTO_TCP;

	if (!is_tcp && packet->key.protocol != IPPROTO_UDP)
		return FLOW_PROTOCOL;
	packet->headers = is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	void *transport = data + ETH_HLEN + packet->headers;
	__u32 room = packet->length - packet->headers;
	const __be16 *ports = transport;

	if (room < 4 || (void *)(ports + 2) > end)
		return FLOW_NO_PORTS;
	if (is_tcp && opens_tcp(transport, end))
		return TCP_OPEN;
	packet->key.ports[0] = bpf_ntohs(ports[0]);
	packet->key.ports[1] = bpf_ntohs(ports[1]);
	packet->key.zone = entrance->zone;
	__u64 hash = hash_of(&packet->key, read_seed());

	// Most packets of Linux end here: what only flows need is done later.
	if (!is_home(first_slot(hash)))
		return NO_FLOW;
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!read_status(&status) || now > status.deadline)
		return FLOWS_PAUSED;
	if (is_ipv4 && !has_checksum(data, end))
		return CHECKSUM;
	struct flow_state *state = find_flow(&packet->key, hash, flow);

	if (!state)
		return NO_FLOW;
	if (state->serial != flow->serial) {
		__builtin_memset(state, 0, sizeof(*state));
		state->serial = flow->serial;
	}
	state->last_seen = now;
	if (packet->has_expired)
		return TIME_TO_LIVE;
	outcome = read_transport(frame, transport, room, packet);
	if (outcome == TCP_CLOSE)
		state->flags |= CLOSING;
	int is_partial = outcome == PARTIAL_CHECKSUM;

	if (outcome != FORWARDED && !is_partial)
		return outcome;
	packet->longest = frame->segment ? packet->headers + frame->segment : packet->length;
	if (state->flags)
		return state->flags & CLOSING ? FLOW_CLOSING : FLOW_EXIT;
	if (!state->generation || state->generation != status.generation ||
	    state->service != packet->service || now > status.hops_until) {
		outcome = resolve(frame, packet, flow, state);
		if (outcome != FORWARDED)
			return outcome;
		state->generation = status.generation;
	}
	// Only now: lanes, which may get the packet, do not know the first exit of the flow.
	if (is_partial)
		return PARTIAL_CHECKSUM;
	if (state->ingress != frame->ingress)
		return FLOW_INTERFACE;
	if (packet->longest > state->mtu)
		return TOO_LONG;
	if (state->egress == frame->ingress && !(entrance->flags & FORWARDS_BACK))
		return SAME_INTERFACE;
	*flow_state = state;
	return FORWARDED;
}

// Translates a packet in a frame, whose headers `decide` has read. Returns false only if they were
// not complete, which it has excluded.
static __always_inline int translate(const struct frame *frame, const struct packet *packet,
				     const struct translation *flow, const struct flow_state *state)
{
	void *data = frame->data, *end = frame->end;
	struct ethhdr *ethernet = data;
	int is_ipv4 = packet->key.version == 4;
	__u32 length = is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	if (!translate_transport(data + ETH_HLEN + length, end, packet->key.protocol, flow))
		return 0;
	if (is_ipv4) {
		struct iphdr *ip = data + ETH_HLEN;
		__u16 difference = fold((__u32)flow->address_difference + DECREMENT);

		ip->check = bpf_htons(update(bpf_ntohs(ip->check), difference));
		ip->ttl--;
		ip->saddr = flow->source[0];
		ip->daddr = flow->destination[0];
	} else {
		struct ipv6hdr *ip = data + ETH_HLEN;

		ip->hop_limit--;
		__builtin_memcpy(&ip->saddr, flow->source, sizeof(flow->source));
		__builtin_memcpy(&ip->daddr, flow->destination, sizeof(flow->destination));
	}
	__builtin_memcpy(ethernet->h_dest, state->next_hop, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, state->exit, ETH_ALEN);
	return 1;
}

// Translates and redirects a frame of an XDP program if its packet is forwarded.
static __always_inline enum outcome process(struct xdp_md *xdp, const struct entrance *entrance,
					    __u32 length)
{
	const struct frame frame = {
		.context = xdp,
		.data = (void *)(long)xdp->data,
		.end = (void *)(long)xdp->data_end,
		.length = length,
		.ingress = xdp->ingress_ifindex,
	};
	struct packet packet = {};
	struct translation flow = {};
	struct flow_state *state = 0;
	enum outcome outcome = decide(&frame, entrance, &packet, &flow, &state);

	if (outcome != FORWARDED || !state)
		return outcome;
	if (!translate(&frame, &packet, &flow, state))
		return MALFORMED;
	__u32 needed = ETH_HLEN + packet.length;

	if (needed < SHORTEST)
		needed = SHORTEST;
	if (length > needed)
		bpf_xdp_adjust_tail(xdp, (int)needed - (int)length);
	// The interface may have been removed since it was looked up.
	if (bpf_redirect_map(&exits, state->egress, XDP_ABORTED) != XDP_REDIRECT)
		return NO_EXIT;
	state->packets++;
	state->octets += length;
	return FORWARDED;
}

// Headers of a socket buffer that are written at once: Ethernet, IP, and the ports behind it.
struct headers4 {
	__u16 padding;
	struct ethhdr ethernet;
	struct iphdr ip;
	__be16 ports[2];
};

struct headers6 {
	__u16 padding;
	struct ethhdr ethernet;
	struct ipv6hdr ip;
	__be16 ports[2];
};

// Updates the checksum of the transport header in a socket buffer. Linux knows what it covers: the
// pseudo header alone, if the rest is left to a device. Returns false if Linux cannot: then nothing
// is changed.
static __always_inline int update_checksum(struct __sk_buff *skb, const struct packet *packet,
					   const struct translation *flow)
{
	int is_ipv4 = packet->key.version == 4, is_tcp = packet->key.protocol == IPPROTO_TCP;
	__u32 offset = ETH_HLEN + (is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	// No checksum of UDP stays none.
	__u64 flags = is_tcp ? 0 : BPF_F_MARK_MANGLED_0, pseudo_header = flags | BPF_F_PSEUDO_HDR;
	__u32 addresses = bpf_htons(flow->address_difference);
	__u32 ports = bpf_htons(flow->port_difference);

	offset += is_tcp ? offsetof(struct tcphdr, check) : offsetof(struct udphdr, check);
	if (addresses && (is_ipv4 || bpf_l4_csum_replace(skb, offset, 0, addresses,
							 pseudo_header | IPV6_HEADER))) {
		if (bpf_l4_csum_replace(skb, offset, 0, addresses, pseudo_header))
			return 0;
		// A kernel without the flag has taken the difference off the sum of a device.
		if (!is_ipv4)
			bpf_csum_update(skb, addresses);
	}
	return !ports || !bpf_l4_csum_replace(skb, offset, 0, ports, flags);
}

static __always_inline void set_ethernet(struct ethhdr *ethernet, const struct flow_state *state)
{
	__builtin_memcpy(ethernet->h_dest, state->next_hop, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, state->exit, ETH_ALEN);
}

static __always_inline void set_ports(__be16 *ports, const struct translation *flow)
{
	ports[0] = bpf_htons(flow->ports[0]);
	ports[1] = bpf_htons(flow->ports[1]);
}

// Translates a packet in a socket buffer. Its headers may be shared with a sender that keeps them for
// a repetition, so they are written by Linux, which copies them then; a program that writes them
// itself has all packets copied, also those that it does not forward. Returns false if Linux has no
// memory for that, or cannot update the checksum; the packet is unchanged then.
static __always_inline int translate4(const struct frame *frame, const struct packet *packet,
				      const struct translation *flow, const struct flow_state *state)
{
	struct headers4 headers = {};
	__u32 length = sizeof(headers) - sizeof(headers.padding);
	__u16 difference = fold((__u32)flow->address_difference + DECREMENT);

	if (frame->data + length > frame->end)
		return 0;
	__builtin_memcpy(&headers.ethernet, frame->data, sizeof(headers.ethernet));
	__builtin_memcpy(&headers.ip, frame->data + ETH_HLEN, sizeof(headers.ip));
	if (!update_checksum(frame->context, packet, flow))
		return 0;
	set_ethernet(&headers.ethernet, state);
	headers.ip.check = bpf_htons(update(bpf_ntohs(headers.ip.check), difference));
	headers.ip.ttl--;
	headers.ip.saddr = flow->source[0];
	headers.ip.daddr = flow->destination[0];
	set_ports(headers.ports, flow);
	return !bpf_skb_store_bytes(frame->context, 0, &headers.ethernet, length, 0);
}

static __always_inline int translate6(const struct frame *frame, const struct packet *packet,
				      const struct translation *flow, const struct flow_state *state)
{
	struct headers6 headers = {};
	__u32 length = sizeof(headers) - sizeof(headers.padding);
	__u32 hops = ETH_HLEN + offsetof(struct ipv6hdr, hop_limit);

	if (frame->data + length > frame->end)
		return 0;
	__builtin_memcpy(&headers.ethernet, frame->data, sizeof(headers.ethernet));
	__builtin_memcpy(&headers.ip, frame->data + ETH_HLEN, sizeof(headers.ip));
	if (!update_checksum(frame->context, packet, flow))
		return 0;
	headers.ip.hop_limit--;
	// The sum of a device over the packet changes by this alone: all else is in a checksum.
	if (bpf_skb_store_bytes(frame->context, hops, &headers.ip.hop_limit, 1,
				BPF_F_RECOMPUTE_CSUM))
		return 0;
	set_ethernet(&headers.ethernet, state);
	__builtin_memcpy(&headers.ip.saddr, flow->source, sizeof(flow->source));
	__builtin_memcpy(&headers.ip.daddr, flow->destination, sizeof(flow->destination));
	set_ports(headers.ports, flow);
	return !bpf_skb_store_bytes(frame->context, 0, &headers.ethernet, length, 0);
}

// True if each of several packets in one fits where it leaves. Those of a tunnel are longer than the
// headers say that were read, so Linux is asked; it knows the MTU of the interface only.
static __always_inline int fits(struct __sk_buff *skb, const struct flow_state *state)
{
	__u32 mtu = 0;

	return !bpf_check_mtu(skb, state->egress, &mtu, 0, BPF_MTU_CHK_SEGS) && mtu <= state->mtu;
}

// Translates and redirects a socket buffer if its packet is forwarded.
static __always_inline enum outcome process_socket_buffer(struct __sk_buff *skb,
							  const struct entrance *entrance,
							  __u32 packets, __u64 *octets)
{
	__u32 length = skb->len, linear = skb->data_end - skb->data;
	__u32 wanted = skb->protocol == bpf_htons(ETH_P_IP) ?
			       ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr) :
			       ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct tcphdr);

	if (skb->vlan_present)
		return ETHERTYPE;
	if (linear < wanted && linear < length)
		bpf_skb_pull_data(skb, wanted < length ? wanted : length);
	const struct frame frame = {
		.context = skb,
		.data = (void *)(long)skb->data,
		.end = (void *)(long)skb->data_end,
		.length = length,
		.ingress = skb->ifindex,
		.segment = skb->gso_size,
		.is_socket_buffer = 1,
	};
	struct packet packet = {};
	struct translation flow = {};
	struct flow_state *state = 0;
	enum outcome outcome = decide(&frame, entrance, &packet, &flow, &state);

	if (outcome != FORWARDED || !state)
		return outcome;
	__u32 egress = state->egress, needed = ETH_HLEN + packet.length;

	// The interface may have been removed since it was looked up.
	if (!bpf_map_lookup_elem(&exits, &egress))
		return NOT_OUR_PORT;
	if (frame.segment && packet.key.protocol == IPPROTO_UDP && !fits(skb, state))
		return TOO_LONG;
	if (!(packet.key.version == 4 ? translate4(&frame, &packet, &flow, state) :
					translate6(&frame, &packet, &flow, state)))
		return UNSUPPORTED;
	if (needed < SHORTEST)
		needed = SHORTEST;
	if (length > needed)
		bpf_skb_change_tail(skb, needed, 0);
	bpf_redirect(egress, 0);
	*octets += (packets - 1) * (ETH_HLEN + packet.headers);
	state->packets += packets;
	state->octets += *octets;
	return FORWARDED;
}

// Counts packets on this CPU.
static __always_inline void count(enum outcome outcome, __u32 packets, __u64 octets)
{
	__u32 index = bpf_get_smp_processor_id() * OUTCOMES + outcome;
	struct count *count = bpf_map_lookup_elem(&outcomes, &index);

	if (count) {
		count->packets += packets;
		count->octets += octets;
	}
}

SEC("xdp.frags")
int fastlane_flows(struct xdp_md *xdp)
{
	__u32 length = xdp->data_end - xdp->data;
	struct entrance entrance;
	int is_known = read_entrance(xdp->ingress_ifindex, &entrance);
	enum outcome outcome = is_known ? process(xdp, &entrance, length) : UNKNOWN_INTERFACE;

	// Lanes, or the program that steers to them, count what they get. They do not know the exits
	// of flows here.
	if (is_known && entrance.lanes && outcome != FORWARDED && outcome != NO_EXIT &&
	    outcome != FLOW_EXIT)
		bpf_tail_call(xdp, &lanes, entrance.lanes - 1);
	count(outcome, 1, length);
	if (outcome == FORWARDED)
		return XDP_REDIRECT;
	return outcome == NO_EXIT ? XDP_DROP : XDP_PASS;
}

// The same at the ingress of an interface, for socket buffers. A packet of Linux itself, as from a
// container, is one already; an XDP program gets a copy of it.
SEC("classifier")
int fastlane_tcx(struct __sk_buff *skb)
{
	__u32 packets = skb->gso_segs;
	__u64 octets = skb->len;
	struct entrance entrance;
	enum outcome outcome = UNKNOWN_INTERFACE;

	if (!packets)
		packets = 1;
	if (read_entrance(skb->ifindex, &entrance))
		outcome = process_socket_buffer(skb, &entrance, packets, &octets);
	count(outcome, packets, octets);
	return outcome == FORWARDED ? TC_ACT_REDIRECT : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
