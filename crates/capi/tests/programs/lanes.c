/* Each lane has a state of its own, made once and freed once; the counts are printed at the end. */
#include <fastlane.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct state {
    size_t lane;
    size_t packets;
    size_t turns;
};

static atomic_size_t started, stopped, ended, used;

static void process(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *opaque)
{
    struct state *state = opaque;
    for (size_t i = 0; i < count; i++)
        packets[i].verdict = FL_REFLECT;
    state->packets += count;
    (void)turn;
}

static void each_turn(struct fl_turn *turn, void *opaque)
{
    struct state *state = opaque;
    if (++state->turns == 100 && atomic_fetch_add(&ended, 1) + 1 == atomic_load(&started))
        fl_end(turn);
}

static int start(struct fl_lane *lane, void **opaque)
{
    struct state *state = calloc(1, sizeof *state);
    if (!state)
        return fl_refuse(lane, NULL, "no memory");
    state->lane = fl_lane_index(lane);
    if (state->lane != atomic_fetch_add(&started, 1) || state->lane >= fl_lane_count(lane))
        return fl_refuse(lane, NULL, "lanes come in the wrong order");
    if (strstr(fl_settings(lane), "\"refuse\":1") && state->lane == 1) {
        free(state);
        return -1;
    }
    *opaque = state;
    return 0;
}

static void stop(void *opaque)
{
    struct state *state = opaque;
    atomic_fetch_add(&stopped, 1);
    atomic_fetch_add(&used, state->turns >= 100);
    free(state);
}

int main(int argc, char **argv)
{
    static const struct fl_app app = {
        .process = process, .turn = each_turn, .start = start, .stop = stop};
    int status = fl_main(argc, argv, &app);
    printf("started %zu stopped %zu used %zu\n", (size_t)started, (size_t)stopped, (size_t)used);
    return status;
}
