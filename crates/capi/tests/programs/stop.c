/* Is stopped by itself: before it began, from a thread or from a signal handler, as STOP says. */
#include <fastlane.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_t thread;
static const char *how;

static void *from_thread(void *unused)
{
    (void)unused;
    if (strcmp(how, "signal") == 0)
        raise(SIGUSR1);
    else
        fl_stop();
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
    fl_stop();
}

static void begin(void)
{
    if (pthread_create(&thread, NULL, from_thread, NULL) != 0)
        abort();
}

static void process(struct fl_packet *packets, size_t count, struct fl_turn *turn, void *state)
{
    (void)turn, (void)state;
    for (size_t i = 0; i < count; i++)
        packets[i].verdict = FL_REFLECT;
    if (strcmp(how, "before") != 0)
        pthread_once(&once, begin);
}

int main(int argc, char **argv)
{
    static const struct fl_app app = {.process = process};
    struct sigaction action;
    int status;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, NULL);
    how = getenv("STOP");
    if (strcmp(how, "before") == 0)
        fl_stop();
    status = fl_main(argc, argv, &app);
    if (strcmp(how, "before") != 0)
        pthread_join(thread, NULL);
    printf("status %d, and again %d\n", status, fl_main(argc, argv, &app));
    return status;
}
