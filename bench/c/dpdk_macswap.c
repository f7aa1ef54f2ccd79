/* The rival on DPDK: it receives a burst, swaps the Ethernet addresses of each packet and sends the
 * burst. It has one counter, no clock and no verdicts.
 *
 *   dpdk_macswap EAL-ARGUMENTS -- COUNTER BURST FILL LENGTH
 *
 * COUNTER is a file of 8 bytes with the number of sent packets, which another process reads. The
 * program first sends FILL packets of LENGTH bytes, for devices that loop packets back. It runs in
 * the main thread until a signal ends it, and prints "ready" when the loop begins.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

enum { MBUFS = 16384, CACHE = 512, RING = 512, MOST = 512 };

static void fail(const char *what)
{
    fprintf(stderr, "dpdk_macswap: %s\n", what);
    exit(1);
}

static struct rte_mempool *start(void)
{
    struct rte_mempool *pool = rte_pktmbuf_pool_create("packets", MBUFS, CACHE, 0,
                                                       RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    struct rte_eth_conf conf = {0};

    if (!pool)
        fail("no memory for the pool");
    if (rte_eth_dev_count_avail() != 1)
        fail("one device, by --vdev");
    if (rte_eth_dev_configure(0, 1, 1, &conf) ||
        rte_eth_rx_queue_setup(0, 0, RING, SOCKET_ID_ANY, NULL, pool) ||
        rte_eth_tx_queue_setup(0, 0, RING, SOCKET_ID_ANY, NULL) || rte_eth_dev_start(0))
        fail("the device does not start");
    return pool;
}

static void fill(struct rte_mempool *pool, unsigned int count, uint16_t length)
{
    static const uint8_t header[14] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5};
    struct rte_mbuf *packet;

    while (count--) {
        char *data = NULL;

        packet = rte_pktmbuf_alloc(pool);
        if (packet)
            data = rte_pktmbuf_append(packet, length);
        if (!data)
            fail("no packet to fill the device with");
        memset(data, 0, length);
        memcpy(data, header, sizeof header);
        if (rte_eth_tx_burst(0, 0, &packet, 1) != 1)
            fail("the device does not take what it is filled with");
    }
}

static inline void swap(struct rte_mbuf *packet)
{
    struct rte_ether_hdr *header = rte_pktmbuf_mtod(packet, struct rte_ether_hdr *);
    struct rte_ether_addr destination = header->dst_addr;

    header->dst_addr = header->src_addr;
    header->src_addr = destination;
}

int main(int argc, char **argv)
{
    struct rte_mbuf *packets[MOST];
    volatile uint64_t *counter;
    int used = rte_eal_init(argc, argv), file;
    struct rte_mempool *pool;
    uint16_t burst;

    if (used < 0)
        fail("EAL does not start");
    argc -= used;
    argv += used;
    if (argc != 5)
        fail("after --: COUNTER BURST FILL LENGTH");
    file = open(argv[1], O_RDWR);
    counter = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    burst = atoi(argv[2]);
    if (file < 0 || counter == MAP_FAILED || burst < 1 || burst > MOST)
        fail("no counter, or no such burst");
    pool = start();
    fill(pool, atoi(argv[3]), atoi(argv[4]));
    puts("ready");
    fflush(stdout);

    for (;;) {
        uint16_t count = rte_eth_rx_burst(0, 0, packets, burst), sent;

        if (!count)
            continue;
        for (uint16_t i = 0; i < count; i++)
            swap(packets[i]);
        sent = rte_eth_tx_burst(0, 0, packets, count);
        *counter += sent;
        if (sent < count)
            rte_pktmbuf_free_bulk(packets + sent, count - sent);
    }
}
