/* Stands before DPDK (LD_PRELOAD) and puts each device on NUMA node 1. The nodes for which mempools
 * are asked are appended to the file FASTLANE_TEST_NODES, one line for each; the memory itself may
 * be anywhere, as the machine may have one node. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_ethdev.h>
#include <rte_mempool.h>

int rte_eth_dev_socket_id(uint16_t port)
{
	return rte_eth_dev_is_valid_port(port) ? 1 : -1;
}

struct rte_mempool *rte_mempool_create_empty(const char *name, unsigned int frames,
					     unsigned int size, unsigned int cache,
					     unsigned int private_size, int node,
					     unsigned int flags)
{
	struct rte_mempool *(*next)(const char *, unsigned int, unsigned int, unsigned int,
				    unsigned int, int, unsigned int);
	const char *file = getenv("FASTLANE_TEST_NODES");
	FILE *nodes = file == NULL ? NULL : fopen(file, "a");

	if (nodes != NULL) {
		fprintf(nodes, "%s on %d\n", name, node);
		fclose(nodes);
	}
	*(void **)&next = dlsym(RTLD_NEXT, "rte_mempool_create_empty");
	return next(name, frames, size, cache, private_size, SOCKET_ID_ANY, flags);
}
