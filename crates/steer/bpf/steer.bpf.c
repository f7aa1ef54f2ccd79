// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Steering in the kernel: decides which frames the fast path claims. The reference is
// crates/steer/src/rules/matcher.rs; tests/agreement.rs compares the two. Built by lab/build-bpf,
// loaded by src/program.rs. Needs only the kernel's UAPI headers and libbpf's macros: Linux 6.1 or
// newer.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_RULES 64
#define MAX_QUEUES 1024
#define MAX_TAGS 2
#define VLAN_BITS 0xfff
#define MAX_EXTENSIONS 6
#define GTP_U_PORT 2152
#define WHOLE_FRAME 0x40000
#define LOOPBACK 1

// The UAPI headers do not name these.
#define NEXT_HOP_BY_HOP 0
#define NEXT_ROUTING 43
#define NEXT_FRAGMENT 44
#define NEXT_DESTINATION 60

// Fields that are known of a frame, and fields that a rule requires.
#define KNOWS_IPV4 (1 << 0)
#define KNOWS_IPV6 (1 << 1)
#define KNOWS_PROTOCOL (1 << 2)
#define KNOWS_UDP (1 << 3)
#define KNOWS_TCP (1 << 4)
#define KNOWS_GTP_U (1 << 5)
#define KNOWS_ALL 0x3f
// The rule compares addresses.
#define HAS_PREFIX (1 << 16)
// The rule matches fragments, by the fields that each of them has.
#define HAS_FRAGMENTS (1 << 17)
#define EACH_FRAGMENT (KNOWS_IPV4 | KNOWS_IPV6 | KNOWS_PROTOCOL)
#define ANY_PROTOCOL 0x100

// Encoded by src/program.rs: words in the machine's byte order, addresses in the network's.
struct rule {
	__u32 needs;
	__u32 ethertype; // 0: any
	__u32 protocol;
	__u32 port_first;
	__u32 port_last;
	__u32 vlan; // 0: none. Rules of VLANs come first.
	__u32 source[4];
	__u32 source_mask[4];
	__u32 destination[4];
	__u32 destination_mask[4];
};

struct steering {
	__u32 count;
	__u32 max_length;
	__u32 mark;
	__u32 reenter_ifindex;
	struct rule rules[MAX_RULES];
};

// Keys of `counts`, in the order of `Counts` in src/settings.rs.
enum count { CLAIMED, PASSED, UNCOVERED, TOO_LONG, REENTERED, COUNTS };

// The rules and settings in force: a table of one entry, which does not change once it is stored
// here. Replacing the rules replaces the table, so every frame is evaluated with one list or the
// other. The system call that does it returns when no program uses the old table any more
// (maybe_wait_bpf_programs in kernel/bpf/syscall.c).
struct steering_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct steering));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct steering_table);
} steering SEC(".maps");

// Decision of fastlane_select on the current frame. fastlane_claim, which sees it next on the same
// CPU, must decide the same, even if the rules were replaced in between.
struct judgement {
	__u64 frame; // 0: none
	__u64 fast;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct judgement);
} judgement SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} sockets SEC(".maps");

// Fields that could be read from a frame; `knows` flags the valid ones. The kernel's verifier
// checks match() with unknown values of it, because match() is a global function.
struct key {
	__u32 knows;
	__u32 fragment;
	__u32 ethertype; // 0: the frame ends before it
	__u32 protocol;
	__u32 port;
	__u32 vlan; // of the outermost tag, if it is an 802.1Q tag; otherwise 0
	__u32 source[4];
	__u32 destination[4];
};

// Source of headers: an XDP frame is read directly, a socket buffer by a helper.
struct frame {
	struct xdp_md *xdp;
	struct __sk_buff *skb;
};

// Copies `size` octets at `offset`, if the frame has them. `size` is a constant.
static __always_inline int read_bytes(const struct frame *frame, __u32 offset, void *to, __u32 size)
{
	if (frame->skb)
		return bpf_skb_load_bytes(frame->skb, offset, to, size) == 0;

	void *end = (void *)(long)frame->xdp->data_end;
	void *from = (void *)(long)frame->xdp->data;

	// The verifier tracks packet offsets up to 16 bits; headers never begin that far in.
	if (offset > 0x3fff)
		return 0;
	from += offset;
	// A frame may have several fragments, of which only the first is mapped.
	if (from + size > end)
		return bpf_xdp_load_bytes(frame->xdp, offset, to, size) == 0;
	__builtin_memcpy(to, from, size);
	return 1;
}

static __always_inline int is_vlan(__u16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

static __always_inline int is_extension(__u8 next)
{
	return next == NEXT_HOP_BY_HOP || next == NEXT_ROUTING || next == NEXT_DESTINATION;
}

// RFC 768, RFC 9293 3.1, 3GPP TS 29.281 5.1.
static __always_inline void read_transport(const struct frame *frame, __u32 offset, __u8 protocol,
					   struct key *key)
{
	if (protocol == IPPROTO_UDP) {
		__u16 udp[4], gtp[4];

		if (!read_bytes(frame, offset, udp, sizeof(udp)))
			return;
		key->knows |= KNOWS_UDP;
		key->port = bpf_ntohs(udp[1]);
		// Version 1 in the upper three bits, protocol type GTP in the fourth.
		if (udp[1] == bpf_htons(GTP_U_PORT) &&
		    read_bytes(frame, offset + sizeof(udp), gtp, sizeof(gtp)) &&
		    *(__u8 *)gtp >> 4 == 3)
			key->knows |= KNOWS_GTP_U;
	} else if (protocol == IPPROTO_TCP) {
		__u16 tcp[10];

		if (!read_bytes(frame, offset, tcp, sizeof(tcp)))
			return;
		key->knows |= KNOWS_TCP;
		key->port = bpf_ntohs(tcp[1]);
	}
}

// RFC 791 3.1.
static __always_inline void read_ipv4(const struct frame *frame, __u32 offset, struct key *key)
{
	__u32 header[5];
	__u8 *octets = (__u8 *)header;

	if (!read_bytes(frame, offset, header, sizeof(header)))
		return;
	__u32 length = (octets[0] & 0xf) * 4;
	if (octets[0] >> 4 != 4 || length < sizeof(header))
		return;
	key->knows |= KNOWS_IPV4 | KNOWS_PROTOCOL;
	key->source[0] = header[3];
	key->destination[0] = header[4];
	key->protocol = octets[9];
	// More-fragments flag or an offset.
	key->fragment = *(__u16 *)(octets + 6) & bpf_htons(0x3fff);
	if (!key->fragment)
		read_transport(frame, offset + length, octets[9], key);
}

// RFC 8200 3 and 4.
static __always_inline void read_ipv6(const struct frame *frame, __u32 offset, struct key *key)
{
	__u32 header[10];
	__u8 *octets = (__u8 *)header;

	if (!read_bytes(frame, offset, header, sizeof(header)))
		return;
	if (octets[0] >> 4 != 6)
		return;
	key->knows |= KNOWS_IPV6;
	__builtin_memcpy(key->source, header + 2, sizeof(key->source));
	__builtin_memcpy(key->destination, header + 6, sizeof(key->destination));

	__u8 next = octets[6];

	offset += sizeof(header);
	for (int i = 0; i < MAX_EXTENSIONS && is_extension(next); i++) {
		__u8 extension[2];

		if (!read_bytes(frame, offset, extension, sizeof(extension)))
			return;
		next = extension[0];
		offset += (extension[1] + 1) * 8;
	}
	if (is_extension(next))
		return;
	key->fragment = next == NEXT_FRAGMENT;
	if (key->fragment) {
		__u16 fragment[4];

		if (!read_bytes(frame, offset, fragment, sizeof(fragment)))
			return;
		next = *(__u8 *)fragment;
	}
	key->knows |= KNOWS_PROTOCOL;
	key->protocol = next;
	if (!key->fragment)
		read_transport(frame, offset, next, key);
}

static __always_inline void read_key(const struct frame *frame, struct key *key)
{
	__u32 offset = offsetof(struct ethhdr, h_proto);
	__u16 ethertype;
	int tags = 0;

	if (!read_bytes(frame, offset, &ethertype, sizeof(ethertype)))
		return;
	// The kernel has removed the outermost tag.
	if (frame->skb && frame->skb->vlan_present) {
		tags = 1;
		if (frame->skb->vlan_proto == bpf_htons(ETH_P_8021Q))
			key->vlan = frame->skb->vlan_tci & VLAN_BITS;
	}
	for (; tags < MAX_TAGS && is_vlan(ethertype); tags++) {
		__u16 tag[2];

		offset += 4;
		if (!read_bytes(frame, offset - 2, tag, sizeof(tag)))
			return;
		if (!tags && ethertype == bpf_htons(ETH_P_8021Q))
			key->vlan = bpf_ntohs(tag[0]) & VLAN_BITS;
		ethertype = tag[1];
	}
	key->ethertype = bpf_ntohs(ethertype);
	offset += sizeof(ethertype);
	if (ethertype == bpf_htons(ETH_P_IP))
		read_ipv4(frame, offset, key);
	else if (ethertype == bpf_htons(ETH_P_IPV6))
		read_ipv6(frame, offset, key);
}

// True if the address is outside the prefix. IPv4 has one word; its rules need KNOWS_IPV4.
static __always_inline int is_outside(const __u32 *is, const __u32 *wanted, const __u32 *mask,
				      __u32 needs)
{
	__u32 difference = (is[0] ^ wanted[0]) & mask[0];

	if (needs & KNOWS_IPV6)
		difference |= ((is[1] ^ wanted[1]) & mask[1]) | ((is[2] ^ wanted[2]) & mask[2]) |
			      ((is[3] ^ wanted[3]) & mask[3]);
	return difference != 0;
}

static __always_inline int rule_matches(const struct rule *rule, const struct key *key)
{
	__u32 needs = rule->needs & KNOWS_ALL;

	if (key->fragment) {
		if (!(rule->needs & HAS_FRAGMENTS))
			return 0;
		needs &= EACH_FRAGMENT;
	}
	if ((key->knows & needs) != needs)
		return 0;
	if (rule->ethertype && rule->ethertype != key->ethertype)
		return 0;
	if (rule->protocol != ANY_PROTOCOL && rule->protocol != key->protocol)
		return 0;
	if (!key->fragment && (key->port < rule->port_first || key->port > rule->port_last))
		return 0;
	if (!(rule->needs & HAS_PREFIX))
		return 1;
	return !is_outside(key->source, rule->source, rule->source_mask, needs) &&
	       !is_outside(key->destination, rule->destination, rule->destination_mask, needs);
}

static __always_inline const struct steering *get_steering(void)
{
	__u32 zero = 0;
	void *table = bpf_map_lookup_elem(&steering, &zero);

	return table ? bpf_map_lookup_elem(table, &zero) : NULL;
}

// A global function, which the verifier checks once for any key instead of once for each path of
// reading a frame: that keeps 64 rules far below its limit of instructions. It cannot take the list
// as an argument, so it may see a newer one than its caller; then the newer list decides.
__attribute__((noinline)) int match(const struct key *key)
{
	const struct steering *table = get_steering();

	if (!table || !key)
		return 0;
	if (!table->count)
		return 1;
	int named = 0, others = 0;

	for (__u32 i = 0; i < MAX_RULES; i++) {
		if (i >= table->count)
			break;
		const struct rule *rule = &table->rules[i];

		if (rule->vlan) {
			if (rule->vlan != key->vlan)
				continue;
			named = 1;
		} else {
			// Frames of a VLAN that a rule names are its rules' only.
			if (named)
				return 0;
			others = 1;
		}
		if (rule_matches(rule, key))
			return 1;
	}
	return !named && !others;
}

static __always_inline int is_fast(const struct steering *table, const struct frame *frame)
{
	struct key key = {};

	if (!table->count)
		return 1;
	read_key(frame, &key);
	return match(&key);
}

static __always_inline void add_to(enum count which)
{
	__u32 key = which;
	__u64 *own = bpf_map_lookup_elem(&counts, &key);

	if (own)
		(*own)++;
}

// AF_XDP: claimed frames go to the socket of their queue. A VLAN tag that the device has stripped
// is not in the frame here and does not affect the rules. To keep it, disable the offload.
SEC("xdp.frags")
int fastlane_xdp(struct xdp_md *xdp)
{
	const struct steering *table = get_steering();
	const struct frame frame = { .xdp = xdp };

	if (!table)
		return XDP_PASS;
	if (!is_fast(table, &frame)) {
		add_to(PASSED);
		return XDP_PASS;
	}
	if (bpf_xdp_get_buff_len(xdp) > table->max_length) {
		add_to(TOO_LONG);
		return XDP_PASS;
	}

	int action = bpf_redirect_map(&sockets, xdp->rx_queue_index, XDP_PASS);

	add_to(action == XDP_REDIRECT ? CLAIMED : UNCOVERED);
	return action;
}

// Segments that Linux or a device has merged or not yet split (GRO, GSO) are several frames in one:
// only Linux can split them.
static __always_inline int is_too_long(const struct steering *table, const struct __sk_buff *skb)
{
	return skb->gso_size || skb->len + (skb->vlan_present ? 4 : 0) > table->max_length;
}

static __always_inline struct judgement *get_judgement(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&judgement, &zero);
}

// The kernel passes a frame to the sockets' filters and then, in the same function, to the programs
// at the ingress: __netif_receive_skb_core in net/core/dev.c. A test run (BPF_PROG_TEST_RUN) passes
// it to one program only, as if it arrived on the loopback interface.
static __always_inline void remember(const struct __sk_buff *skb, int fast)
{
	struct judgement *last = get_judgement();

	if (!last || skb->ifindex == LOOPBACK)
		return;
	last->frame = (__u64)skb;
	last->fast = fast;
}

// Returns the recorded decision on the frame, or -1.
static __always_inline int recall(const struct __sk_buff *skb)
{
	struct judgement *last = get_judgement();

	if (!last || last->frame != (__u64)skb)
		return -1;
	last->frame = 0;
	return !!last->fast;
}

// AF_PACKET: hides the frames that fastlane_select takes from Linux (TC_ACT_STOLEN would not count
// as a drop, but a tcx link does not support it). Re-entered frames continue without the mark, all
// others unchanged: TC_ACT_UNSPEC lets later filters run.
SEC("classifier")
int fastlane_claim(struct __sk_buff *skb)
{
	const struct steering *table = get_steering();
	const struct frame frame = { .skb = skb };

	if (!table)
		return TC_ACT_UNSPEC;
	if (table->mark && skb->mark == table->mark) {
		skb->mark = 0;
		return TC_ACT_UNSPEC;
	}
	int fast = recall(skb);

	if (fast < 0)
		fast = is_fast(table, &frame) && !is_too_long(table, skb);
	return fast ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

// AF_PACKET: filter of the socket. The kernel passes outgoing and re-entered frames to it too.
SEC("socket")
int fastlane_select(struct __sk_buff *skb)
{
	const struct steering *table = get_steering();
	const struct frame frame = { .skb = skb };

	if (!table || skb->pkt_type == PACKET_OUTGOING)
		return 0;
	if (table->mark && skb->mark == table->mark)
		return 0;
	enum count fate = CLAIMED;

	if (!is_fast(table, &frame))
		fate = PASSED;
	else if (is_too_long(table, skb))
		fate = TOO_LONG;
	add_to(fate);
	remember(skb, fate == CLAIMED);
	return fate == CLAIMED ? WHOLE_FRAME : 0;
}

// Re-entry TAP: a frame written to it arrives on the interface where it was received. Without an
// interface in the settings it only gets the mark here, and a later filter redirects it.
SEC("classifier")
int fastlane_reenter(struct __sk_buff *skb)
{
	const struct steering *table = get_steering();

	if (!table)
		return TC_ACT_UNSPEC;
	if (table->mark)
		skb->mark = table->mark;
	if (!table->reenter_ifindex)
		return TC_ACT_UNSPEC;
	add_to(REENTERED);
	return bpf_redirect(table->reenter_ifindex, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
