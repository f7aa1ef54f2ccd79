/* Raises the events of a device that is unplugged (LD_PRELOAD), as its driver or its bus does: in
 * EAL's interrupt thread, by DPDK's functions for them. No virtual device of DPDK raises them itself.
 * Each line of the FIFO whose path is in FASTLANE_TEST_REMOVALS is a request: `port NAME` for the
 * event of the driver, `device NAME` for that of the bus. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_ethdev.h>

/* Functions for drivers, which no installed header declares. */
struct rte_eth_dev *rte_eth_dev_get_by_name(const char *name);
int rte_eth_dev_callback_process(struct rte_eth_dev *device, enum rte_eth_event_type event,
				 void *result);

static void raise_event(void *data)
{
	char *request = data, *name = strchr(request, ' ');
	struct rte_eth_dev *device;

	if (name != NULL && strncmp(request, "port ", 5) == 0) {
		device = rte_eth_dev_get_by_name(name + 1);
		if (device != NULL)
			rte_eth_dev_callback_process(device, RTE_ETH_EVENT_INTR_RMV, NULL);
	} else if (name != NULL) {
		rte_dev_event_callback_process(name + 1, RTE_DEV_EVENT_REMOVE);
	}
	free(request);
}

static void *read_requests(void *unused)
{
	const char *path = getenv("FASTLANE_TEST_REMOVALS");
	char line[128];
	FILE *requests;

	(void)unused;
	if (path == NULL)
		return NULL;
	/* Open for writing too, so that it never ends. */
	requests = fopen(path, "r+");
	while (requests != NULL && fgets(line, sizeof(line), requests) != NULL) {
		line[strcspn(line, "\n")] = 0;
		rte_eal_alarm_set(1, raise_event, strdup(line));
	}
	return NULL;
}

__attribute__((constructor)) static void start(void)
{
	pthread_t thread;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, read_requests, NULL) == 0)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
