/* Mempools with the frames of a lane that DPDK can use. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>
#include <rte_memzone.h>

#include "internal.h"

/* Clears `fits` if a piece of the mempool has addresses above 48 bits: a token has no more bits
 * for them; or no device address: a device would read and write somewhere else. */
static void check_addresses(struct rte_mempool *pool, void *fits, struct rte_mempool_memhdr *piece,
			    unsigned int number)
{
	uintptr_t end = (uintptr_t)piece->addr + piece->len;

	(void)pool;
	(void)number;
	if (end >> FASTLANE_REGION_SHIFT != 0 || piece->iova == RTE_BAD_IOVA)
		*(int *)fits = 0;
}

static void free_zone(struct rte_mempool_memhdr *piece, void *zone)
{
	(void)piece;
	rte_memzone_free(zone);
}

/* Reserves memory for frames: what is needed, or the largest piece that is free. */
static const struct rte_memzone *reserve(const struct rte_mempool *pool, size_t size,
					 unsigned int number)
{
	const struct rte_memzone *zone;
	char name[RTE_MEMZONE_NAMESIZE];

	snprintf(name, sizeof(name), "FL%u_%s", number, pool->name);
	zone = rte_memzone_reserve_aligned(name, size, pool->socket_id, 0, RTE_MEMPOOL_ALIGN);
	if (zone == NULL)
		zone = rte_memzone_reserve_aligned(name, 0, pool->socket_id, 0, RTE_MEMPOOL_ALIGN);
	return zone;
}

/* Provides the memory of a mempool in pieces, in which frames may cross pages: device addresses are
 * virtual (RTE_IOVA_VA), so the device address of an octet is its address. Returns 0 or a negative
 * errno.
 *
 * By default, each frame has pages of its own where pages are small. That takes twice the memory,
 * and net_af_xdp, which expects adjacent frames, would not send those at the end. The flag
 * RTE_MEMPOOL_F_NO_IOVA_CONTIG permits frames across pages. But DPDK, if it provides the memory of
 * such a mempool, gives it no device addresses, so that no device could use it.
 *
 * In huge pages, frames do not cross: that costs almost nothing, and devices that QEMU emulates drop
 * a frame that lies in two pages. */
static int populate_by_address(struct rte_mempool *pool)
{
	const uint32_t frame = pool->header_size + pool->elt_size + pool->trailer_size;
	uint32_t missing = pool->size;

	for (unsigned int number = 0; missing > 0; number++) {
		const size_t size = (size_t)missing * frame + RTE_MEMPOOL_ALIGN;
		const struct rte_memzone *zone = reserve(pool, size, number);
		int added;

		if (zone == NULL)
			return -rte_errno;
		added = rte_mempool_populate_iova(pool, zone->addr,
						  (rte_iova_t)(uintptr_t)zone->addr, zone->len,
						  free_zone, (void *)(uintptr_t)zone);
		if (added <= 0) {
			rte_memzone_free(zone);
			return added < 0 ? added : -ENOMEM;
		}
		missing -= added;
	}
	return 0;
}

/* Creates a mempool like rte_pktmbuf_pool_create, but for the places of its frames. */
static struct rte_mempool *create(const char *name, uint32_t frames, uint32_t cache,
				  uint16_t data_room, int socket)
{
	struct rte_pktmbuf_pool_private private = { .mbuf_data_room_size = data_room };
	const bool by_address = rte_eal_iova_mode() == RTE_IOVA_VA && !rte_eal_has_hugepages();
	struct rte_mempool *pool;
	int result;

	pool = rte_mempool_create_empty(name, frames, sizeof(struct rte_mbuf) + data_room, cache,
					sizeof(private), socket,
					by_address ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0);
	if (pool == NULL)
		return NULL;
	result = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (result == 0) {
		rte_pktmbuf_pool_init(pool, &private);
		result = by_address ? populate_by_address(pool) : rte_mempool_populate_default(pool);
	}
	if (result < 0) {
		rte_mempool_free(pool);
		rte_errno = -result;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

int fastlane_memory_create(const char *name, uint32_t frames, uint32_t cache, uint32_t room,
			   int socket, struct fastlane_memory **memory,
			   struct fastlane_error *error)
{
	struct rte_mempool *pool;
	int fits = 1;

	if (room > UINT16_MAX - RTE_PKTMBUF_HEADROOM)
		return fastlane_refuse(error, -EINVAL, "frames of %u octets", room);
	pool = create(name, frames, cache, (uint16_t)(RTE_PKTMBUF_HEADROOM + room), socket);
	/* The node may have no memory for DPDK. */
	if (pool == NULL && socket != SOCKET_ID_ANY)
		pool = create(name, frames, cache, (uint16_t)(RTE_PKTMBUF_HEADROOM + room),
			      SOCKET_ID_ANY);
	if (pool == NULL)
		return fastlane_refuse(error, -rte_errno, "a mempool of %u frames of %u octets",
				       frames, room);
	rte_mempool_mem_iter(pool, check_addresses, &fits);
	if (!fits) {
		rte_mempool_free(pool);
		return fastlane_refuse(error, -EFAULT,
				       "memory above 48 bits of address or without device address");
	}
	*memory = (struct fastlane_memory *)pool;
	return 0;
}

uint32_t fastlane_memory_in_use(const struct fastlane_memory *memory)
{
	return rte_mempool_in_use_count(fastlane_pool(memory));
}

void fastlane_memory_free(struct fastlane_memory *memory)
{
	rte_mempool_free(fastlane_pool(memory));
}

static int add_length(const struct rte_memseg_list *list, const struct rte_memseg *segment,
		      void *sum)
{
	(void)list;
	*(uint64_t *)sum += segment->len;
	return 0;
}

uint64_t fastlane_mapped_memory(void)
{
	uint64_t sum = 0;

	if (rte_eal_iova_mode() == RTE_IOVA_VA)
		rte_memseg_walk(add_length, &sum);
	return sum;
}
