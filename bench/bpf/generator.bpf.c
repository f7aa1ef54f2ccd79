// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Generator of UDP frames for `fastlane-bench firewall`: writes each frame anew, for one flow after
// the other, and sends it by an interface. BPF_PROG_TEST_RUN with live frames runs it, and uses the
// memory of a frame again with what the receiver has left in it. Built by lab/build-bpf.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SOURCE_PORT 4000
#define DESTINATION_PORT 53

struct settings {
	__u32 flows;
	__u32 next; // flow of the next frame
	__u32 interface;
	__u32 length; // of the IP packet
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum >> 16) + (sum & 0xffff);
	return ~((sum >> 16) + sum);
}

SEC("xdp")
int generate(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__u32 key = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &key);

	if (!set || (void *)(udp + 1) > end)
		return XDP_ABORTED;
	__u32 flow = set->next;

	set->next = flow + 1 < set->flows ? flow + 1 : 0;
	__builtin_memcpy(ethernet->h_dest, "\x02\0\0\0\0\x01", ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, "\x02\0\0\0\0\x02", ETH_ALEN);
	ethernet->h_proto = bpf_htons(ETH_P_IP);
	// From 10.A.B.C to 20.A.B.C, where A.B.C is the flow.
	__u32 source = 10 << 24 | flow, destination = 20 << 24 | flow;
	__u32 addresses = (source >> 16) + (source & 0xffff) + (destination >> 16) +
			  (destination & 0xffff);
	__u32 length = set->length, payload = length - sizeof(*ip);

	*(__be16 *)ip = bpf_htons(0x4500);
	ip->tot_len = bpf_htons(length);
	ip->id = 0;
	ip->frag_off = 0;
	ip->ttl = 64;
	ip->protocol = IPPROTO_UDP;
	ip->saddr = bpf_htonl(source);
	ip->daddr = bpf_htonl(destination);
	ip->check = bpf_htons(fold(0x4500 + length + (64 << 8 | IPPROTO_UDP) + addresses));
	udp->source = bpf_htons(SOURCE_PORT);
	udp->dest = bpf_htons(DESTINATION_PORT);
	udp->len = bpf_htons(payload);
	// The payload is zeros.
	udp->check = bpf_htons(fold(addresses + IPPROTO_UDP + SOURCE_PORT + DESTINATION_PORT +
				    2 * payload));
	return bpf_redirect(set->interface, 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
