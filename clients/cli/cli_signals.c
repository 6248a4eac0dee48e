/* Ctrl-C and SIGTERM: the first asks for an end in order. */
#include "clients/cli/cli.h"

volatile sig_atomic_t cli_interrupted;

static void on_signal(int signum) {
    cli_interrupted = signum;
}

void cli_catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}
