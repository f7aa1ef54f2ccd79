/* The function table, and DPDK's environment. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_version.h>

#include "internal.h"

int fastlane_refuse(struct fastlane_error *error, int result, const char *format, ...)
{
	char what[160];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	if (result >= 0)
		result = -EIO;
	snprintf(error->text, sizeof(error->text), "%s: %s", what, rte_strerror(-result));
	return result;
}

static int eal_init(int count, char **arguments, struct fastlane_error *error)
{
	if (rte_eal_init(count, arguments) < 0)
		return fastlane_refuse(error, -rte_errno, "rte_eal_init");
	/* EAL always creates a runtime directory and never removes it. Ours stays empty. */
	rmdir(rte_eal_get_runtime_dir());
	return fastlane_follow_removals(error);
}

static int thread_register(void)
{
	/* This is a thread of EAL, or it is registered already. */
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() < 0 ? -rte_errno : 1;
}

/* Skips the clean-up after net_memif. That driver leaves descriptors registered whose memory
 * rte_eal_cleanup unmaps while EAL's interrupt thread still reads it (seen with DPDK 22.11: that
 * thread crashes in rte_intr_fd_get). The end of the process frees what is left. */
static int eal_cleanup(void)
{
	return fastlane_may_clean_up() ? rte_eal_cleanup() : 0;
}

#define OFFSET(field) offsetof(struct fastlane_packet, field)

__attribute__((visibility("default"))) const struct fastlane_dpdk fastlane_dpdk = {
	.version = FASTLANE_DPDK_VERSION,
	.size = sizeof(struct fastlane_dpdk),
	.layout = { sizeof(struct fastlane_packet), OFFSET(data), OFFSET(token), OFFSET(length),
		    OFFSET(headroom), OFFSET(tailroom), OFFSET(port), OFFSET(flags),
		    OFFSET(verdict) },
	.metadata = FASTLANE_METADATA,
	.dpdk_version = rte_version,
	.eal_init = eal_init,
	.eal_cleanup = eal_cleanup,
	.thread_register = thread_register,
	.thread_unregister = rte_thread_unregister,
	.memory_create = fastlane_memory_create,
	.memory_in_use = fastlane_memory_in_use,
	.memory_free = fastlane_memory_free,
	.mapped_memory = fastlane_mapped_memory,
	.probe = fastlane_probe,
	.device_info = fastlane_device_info,
	.configure = fastlane_configure,
	.device_start = fastlane_device_start,
	.link_up = fastlane_link_up,
	.losses = fastlane_losses,
	.steer = fastlane_steer,
	.set_link = fastlane_set_link,
	.removal_events = fastlane_removal_events,
	.is_removed = fastlane_is_removed,
	.device_remove = fastlane_device_remove,
	.ring_pair = fastlane_ring_pair,
	.queue_create = fastlane_queue_create,
	.queue_losses = fastlane_queue_losses,
	.queue_free = fastlane_queue_free,
	.interrupt = fastlane_interrupt,
	.arm = fastlane_arm,
	.disarm = fastlane_disarm,
	.receive = fastlane_receive,
	.transmit = fastlane_transmit,
	.transmit_run = fastlane_transmit_run,
	.alloc_packets = fastlane_alloc_packets,
	.release = fastlane_release,
};
