/* The process of a pod's sandbox: waits until a signal ends it. */
#include <signal.h>
#include <unistd.h>

static void end(int signal) { _exit(signal == 0); }

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;)
        pause();
}
