/* Pairs of ports connected by rings, for tests and measurements. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_ring.h>

#include "internal.h"

#define QUEUES 16

typedef int from_rings(const char *name, struct rte_ring *const receive[], unsigned int receivers,
		       struct rte_ring *const transmit[], unsigned int transmitters,
		       unsigned int socket);

/* Finds the driver among the loaded objects: EAL opens it at run time, and the plugin is not
 * linked with it. */
static int find_driver(struct dl_phdr_info *object, size_t size, void *found)
{
	(void)size;
	if (strstr(object->dlpi_name, "librte_net_ring.so") == NULL)
		return 0;
	*(void **)found = dlopen(object->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
	return 1;
}

int fastlane_ring_pair(const char *name, uint16_t queues, uint32_t size, uint16_t ports[2],
		       struct fastlane_error *error)
{
	struct rte_ring *rings[2][QUEUES];
	void *driver = NULL;
	from_rings *make;

	dl_iterate_phdr(find_driver, &driver);
	if (driver == NULL)
		return fastlane_refuse(error, -ENOENT, "EAL has not loaded the driver net_ring");
	*(void **)&make = dlsym(driver, "rte_eth_from_rings");
	if (make == NULL || queues > QUEUES)
		return fastlane_refuse(error, -EINVAL, "%u queues of net_ring", queues);
	for (uint16_t i = 0; i < 2 * queues; i++) {
		char ring[RTE_RING_NAMESIZE];

		snprintf(ring, sizeof(ring), "%s_%u", name, i);
		rings[i % 2][i / 2] = rte_ring_create(ring, size, SOCKET_ID_ANY,
							RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (rings[i % 2][i / 2] == NULL)
			return fastlane_refuse(error, -rte_errno, "rte_ring_create");
	}
	for (int side = 0; side < 2; side++) {
		char port[16];
		int number;

		snprintf(port, sizeof(port), "%.13s_%c", name, 'a' + side);
		number = make(port, rings[side], queues, rings[1 - side], queues, 0);
		if (number < 0)
			return fastlane_refuse(error, -rte_errno, "rte_eth_from_rings");
		ports[side] = (uint16_t)number;
	}
	return 0;
}
