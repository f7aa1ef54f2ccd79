/* Needs a port `out` and a number in its settings. */
#include <fastlane.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void process(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state)
{
    uint16_t out = *(uint16_t *)state;
    for (size_t i = 0; i < count; i++)
        packets[i].verdict = fl_forward(out);
    fl_end(turn);
}

static int start(struct fl_lane *lane, void **state)
{
    static uint16_t out;
    const char *settings = fl_settings(lane), *limit;
    int port = fl_port(lane, "out");
    if (!settings || port < 0)
        return -1;
    out = (uint16_t)port;
    *state = &out;
    limit = strstr(settings, "\"limit\":");
    if (!limit || atoi(limit + 8) <= 0)
        return fl_refuse(lane, "app.limit", "must be a positive number");
    printf("%zu ports, %s is %d, %s\n", fl_port_count(lane), fl_port_name(lane, out), port,
           fl_port_name(lane, 99) ? "and more" : "no more");
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct fl_app app = {.process = process, .start = start};
    return fl_main(argc, argv, &app);
}
