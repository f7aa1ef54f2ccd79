/* Stands before DPDK (LD_PRELOAD) and makes a device that does not answer: a request for statistics
 * waits as long as the file exists whose path is in FASTLANE_TEST_SILENT. Its first wait creates a
 * file beside it, whose name ends with `.asked`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_ethdev.h>

int rte_eth_stats_get(uint16_t port, struct rte_eth_stats *statistics)
{
	const char *file = getenv("FASTLANE_TEST_SILENT");
	char asked[512];
	FILE *created;

	(void)port;
	memset(statistics, 0, sizeof(*statistics));
	while (file != NULL && access(file, F_OK) == 0) {
		snprintf(asked, sizeof(asked), "%s.asked", file);
		created = fopen(asked, "w");
		if (created != NULL)
			fclose(created);
		usleep(1000);
	}
	return 0;
}
