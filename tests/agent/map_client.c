// Client of an AF_XDP device plugin, as CNDP and DPDK's AF_XDP driver (use_cni) are ones: it makes
// and binds its own sockets, gets the map of sockets by the handshake, enters the sockets, and sends
// each packet back with swapped Ethernet addresses. It has CAP_NET_RAW only.
//
// Usage: map_client INTERFACE SOCKET QUEUES PACKETS
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

// Two queues hold the packets of a second, and are half of what a user may lock (8 MiB).
enum { FRAMES = 1024, SIZE = 2048, RING = 1024 };

struct ring {
	uint32_t *producer, *consumer;
	void *entries;
};

struct queue {
	int socket;
	char *memory;
	struct ring fill, completion, receive, transmit;
};

static void fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static struct ring map(int socket, struct xdp_ring_offset *at, off_t page, size_t entry)
{
	char *start = mmap(NULL, at->desc + RING * entry, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_POPULATE, socket, page);

	if (start == MAP_FAILED)
		fail("mmap of a ring");
	return (struct ring){ (uint32_t *)(start + at->producer), (uint32_t *)(start + at->consumer),
			      start + at->desc };
}

static void set(int socket, int option, void *value, socklen_t length)
{
	if (setsockopt(socket, SOL_XDP, option, value, length))
		fail("an option of the socket");
}

static struct queue open_queue(unsigned int interface, unsigned int number)
{
	struct queue queue = { .socket = socket(AF_XDP, SOCK_RAW, 0) };
	struct xdp_umem_reg memory = { .len = FRAMES * SIZE, .chunk_size = SIZE };
	struct sockaddr_xdp address = { .sxdp_family = AF_XDP, .sxdp_ifindex = interface,
					.sxdp_queue_id = number, .sxdp_flags = XDP_COPY };
	struct xdp_mmap_offsets at;
	socklen_t length = sizeof(at);
	uint32_t size = RING;

	if (queue.socket < 0)
		fail("socket(AF_XDP)");
	queue.memory = mmap(NULL, memory.len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	memory.addr = (uintptr_t)queue.memory;
	set(queue.socket, XDP_UMEM_REG, &memory, sizeof(memory));
	set(queue.socket, XDP_UMEM_FILL_RING, &size, sizeof(size));
	set(queue.socket, XDP_UMEM_COMPLETION_RING, &size, sizeof(size));
	set(queue.socket, XDP_RX_RING, &size, sizeof(size));
	set(queue.socket, XDP_TX_RING, &size, sizeof(size));
	if (getsockopt(queue.socket, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length))
		fail("XDP_MMAP_OFFSETS");
	queue.fill = map(queue.socket, &at.fr, XDP_UMEM_PGOFF_FILL_RING, 8);
	queue.completion = map(queue.socket, &at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, 8);
	queue.receive = map(queue.socket, &at.rx, XDP_PGOFF_RX_RING, sizeof(struct xdp_desc));
	queue.transmit = map(queue.socket, &at.tx, XDP_PGOFF_TX_RING, sizeof(struct xdp_desc));
	for (int frame = 0; frame < FRAMES; frame++)
		((uint64_t *)queue.fill.entries)[frame] = (uint64_t)frame * SIZE;
	__atomic_store_n(queue.fill.producer, FRAMES, __ATOMIC_RELEASE);
	if (bind(queue.socket, (struct sockaddr *)&address, sizeof(address)))
		fail("bind");
	return queue;
}

// Sends a record, with a descriptor if there is one, and prints the response. Returns the
// descriptor that came with it, or -1.
static int request(int connection, const char *text, int descriptor)
{
	char response[128] = { 0 }, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { (void *)text, strlen(text) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct cmsghdr *header;
	int received = -1;

	if (descriptor >= 0) {
		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_len = CMSG_LEN(sizeof(int));
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
	}
	if (sendmsg(connection, &message, 0) < 0)
		fail("sendmsg");
	part = (struct iovec){ response, sizeof(response) - 1 };
	message.msg_control = control;
	message.msg_controllen = sizeof(control);
	if (recvmsg(connection, &message, 0) <= 0)
		fail("recvmsg");
	for (header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
		if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
			memcpy(&received, CMSG_DATA(header), sizeof(int));
	printf("%s -> %s\n", text, response);
	return received;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int connection = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	if (connect(connection, (struct sockaddr *)&address, sizeof(address)))
		fail("connect");
	return connection;
}

// The order of uds_get_xskmap_fd in rte_eth_af_xdp.c: one connection for each queue. CNDP asks for
// busy polling in between.
static void enter(struct queue *queue, uint32_t number, const char *interface, const char *path)
{
	char host[64], text[128];
	int connection = connect_to(path), table;
	union bpf_attr entry = { 0 };

	gethostname(host, sizeof(host));
	snprintf(text, sizeof(text), "/connect,%s", host);
	request(connection, text, -1);
	request(connection, "/version", -1);
	request(connection, "/xsk_map_fd,other0", -1);
	snprintf(text, sizeof(text), "/xsk_map_fd,%s", interface);
	table = request(connection, text, -1);
	if (table < 0)
		fail("the map");
	request(connection, "/config_busy_poll,20,64", queue->socket);
	request(connection, "/config_busy_poll,20,64", -1);
	request(connection, "/xsk_socket", -1);
	request(connection, "/fin", -1);
	close(connection);
	entry.map_fd = table;
	entry.key = (uintptr_t)&number;
	entry.value = (uintptr_t)&queue->socket;
	if (syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &entry, sizeof(entry)))
		fail("BPF_MAP_UPDATE_ELEM");
	close(table);
}

// Sends what has arrived back. Returns the number of packets.
static int reflect(struct queue *queue)
{
	uint32_t from = *queue->receive.consumer, done = *queue->completion.consumer;
	uint32_t until = __atomic_load_n(queue->receive.producer, __ATOMIC_ACQUIRE);
	uint32_t to = *queue->transmit.producer, count = until - from;
	uint32_t free = *queue->fill.producer;

	for (uint32_t index = 0; index < count; index++) {
		struct xdp_desc *arrived = queue->receive.entries;
		struct xdp_desc *sent = queue->transmit.entries;
		struct xdp_desc packet = arrived[(from + index) % RING];
		char *frame = queue->memory + packet.addr, address[6];

		memcpy(address, frame, 6);
		memcpy(frame, frame + 6, 6);
		memcpy(frame + 6, address, 6);
		sent[(to + index) % RING] = packet;
	}
	__atomic_store_n(queue->receive.consumer, until, __ATOMIC_RELEASE);
	__atomic_store_n(queue->transmit.producer, to + count, __ATOMIC_RELEASE);
	if (count && sendto(queue->socket, NULL, 0, MSG_DONTWAIT, NULL, 0) && errno != EAGAIN &&
	    errno != EBUSY)
		fail("sendto");
	// What was sent is free again.
	for (; done != __atomic_load_n(queue->completion.producer, __ATOMIC_ACQUIRE); done++, free++) {
		uint64_t *completed = queue->completion.entries, *filled = queue->fill.entries;

		filled[free % RING] = completed[done % RING] / SIZE * SIZE;
	}
	__atomic_store_n(queue->completion.consumer, done, __ATOMIC_RELEASE);
	__atomic_store_n(queue->fill.producer, free, __ATOMIC_RELEASE);
	return count;
}

int main(int count, char **words)
{
	static struct queue queues[8];
	static struct pollfd files[8];
	int number = count == 5 ? atoi(words[3]) : 0, packets = number ? atoi(words[4]) : 0;
	int seen = 0, idle = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (number < 1 || number > 8)
		return 2;
	for (int index = 0; index < number; index++) {
		queues[index] = open_queue(if_nametoindex(words[1]), index);
		files[index] = (struct pollfd){ queues[index].socket, POLLIN, 0 };
		enter(&queues[index], index, words[1], words[2]);
	}
	fprintf(stderr, "running\n");
	while (seen < packets && idle < 300) {
		int all = 0;

		poll(files, number, 100);
		for (int index = 0; index < number; index++)
			all += reflect(&queues[index]);
		seen += all;
		idle = all ? 0 : idle + 1;
	}
	for (idle = 0; idle < 10; idle++) // completes what was sent
		for (int index = 0; index < number; index++)
			reflect(&queues[index]);
	printf("%d packets\n", seen);
	return seen < packets;
}
