/* Removal of devices: what drivers and buses report, for a thread that follows it. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_ethdev.h>

#include "internal.h"

static atomic_bool removed[RTE_MAX_ETHPORTS];
static int events = -1;

static void set_removed(uint16_t port)
{
	uint64_t one = 1;

	if (port >= RTE_MAX_ETHPORTS)
		return;
	atomic_store(&removed[port], true);
	/* It fails only if the counter is full: then the descriptor is readable already. */
	if (write(events, &one, sizeof(one)) < 0)
		return;
}

/* Event of a driver, such as mlx5 and netvsc. DPDK calls it in its interrupt thread. */
static int on_port_event(uint16_t port, enum rte_eth_event_type type, void *data, void *result)
{
	(void)data;
	(void)result;
	if (type == RTE_ETH_EVENT_INTR_RMV)
		set_removed(port);
	return 0;
}

/* Event of a bus: the kernel asks for a device that VFIO holds, or a VMBus device is gone. */
static void on_device_event(const char *device, enum rte_dev_event_type type, void *data)
{
	char name[RTE_ETH_NAME_MAX_LEN];
	uint16_t port;

	(void)data;
	if (type != RTE_DEV_EVENT_REMOVE || device == NULL)
		return;
	/* Several ports of one device have its name, and a suffix behind an underscore. */
	RTE_ETH_FOREACH_DEV(port) {
		size_t length = strlen(device);

		if (rte_eth_dev_get_name_by_port(port, name) == 0 &&
		    strncmp(name, device, length) == 0 &&
		    (name[length] == 0 || name[length] == '_'))
			set_removed(port);
	}
}

int fastlane_follow_removals(struct fastlane_error *error)
{
	int result;

	events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (events < 0)
		return fastlane_refuse(error, -errno, "eventfd for removals");
	/* For all ports, also those of later devices. */
	result = rte_eth_dev_callback_register(RTE_ETH_ALL, RTE_ETH_EVENT_INTR_RMV, on_port_event,
					       NULL);
	if (result != 0)
		return fastlane_refuse(error, result, "rte_eth_dev_callback_register");
	result = rte_dev_event_callback_register(NULL, on_device_event, NULL);
	return result < 0 ? fastlane_refuse(error, result, "rte_dev_event_callback_register") : 0;
}

int fastlane_removal_events(void)
{
	return events;
}

int fastlane_is_removed(uint16_t port)
{
	return port < RTE_MAX_ETHPORTS && atomic_load(&removed[port]);
}

void fastlane_forget_removal(uint16_t port)
{
	if (port < RTE_MAX_ETHPORTS)
		atomic_store(&removed[port], false);
}
