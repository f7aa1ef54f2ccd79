/* Records what the meters of DPDK (rte_meter) say, for tests/meters.rs:
 *
 *   cc -O2 -o record record.c $(pkg-config --cflags libdpdk) && ./record > vectors.txt
 *
 * A meter is a line "meter KIND CIR CBS PIR BURST" with rates in octets per second and bursts in
 * octets; KIND is 1 (srTCM) or 2 (trTCM). The packets of the meter follow, one in each line: time in
 * nanoseconds, octets, colour before and after (0 green, 1 yellow, 2 red).
 *
 * The periods of the rates divide the times of all packets. rte_meter adds tokens once in a period,
 * so it then does what the RFCs say, without rounding. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_meter.h>

static uint64_t seed = 0x5eed;

static uint64_t below(uint64_t bound)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % bound;
}

int main(void)
{
    for (int number = 0; number < 40; number++) {
        static const uint64_t periods[] = {100, 125, 200, 250, 500, 1000, 2000, 8000};
        int kind = 1 + number % 2, aware = number / 2 % 2;
        uint64_t period = periods[below(8)], peak = periods[below(8)];
        uint64_t committed = 1 + below(6000), burst = below(9000), time = 8000;
        struct rte_meter_srtcm single;
        struct rte_meter_trtcm two;

        if (kind == 2 && peak > period)
            peak = period;
        if (kind == 2)
            burst++;
        struct rte_meter_srtcm_profile single_profile = {committed, burst, period, 1};
        struct rte_meter_trtcm_profile two_profile = {committed, burst, period, 1, peak, 1};
        single = (struct rte_meter_srtcm){0, committed, burst};
        two = (struct rte_meter_trtcm){0, 0, committed, burst};
        printf("meter %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", kind,
               1000000000 / period, committed, kind == 2 ? 1000000000 / peak : 0, burst);
        for (int packet = 0; packet < 60; packet++) {
            uint32_t octets = 20 + below(1481);
            enum rte_color before = aware ? below(3) : RTE_COLOR_GREEN, after;

            time += 8000 * below(below(12) ? 60 : 2000);
            if (kind == 1 && aware)
                after = rte_meter_srtcm_color_aware_check(&single, &single_profile, time, octets,
                                                          before);
            else if (kind == 1)
                after = rte_meter_srtcm_color_blind_check(&single, &single_profile, time, octets);
            else if (aware)
                after = rte_meter_trtcm_color_aware_check(&two, &two_profile, time, octets, before);
            else
                after = rte_meter_trtcm_color_blind_check(&two, &two_profile, time, octets);
            printf("%" PRIu64 " %" PRIu32 " %d %d\n", time, octets, before, after);
        }
    }
    return 0;
}
