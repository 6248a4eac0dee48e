/* The self-pipe, and the flag. */
#include "main/signal_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t write_end = -1;

static void on_signal(int number) {
    int saved = errno;
    unsigned char byte = (unsigned char)number;
    /* a full pipe has plenty to wake up for already */
    if (write(write_end, &byte, 1) < 0) byte = 0;
    errno = saved;
}

int signal_pipe_open(const int *signals) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
    write_end = pipes[1];
    signal(SIGPIPE, SIG_IGN);
    for (; *signals != 0; signals++)
        if (sigaction(*signals, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(*signals, &action, NULL);
    return pipes[0];
}

int signal_pipe_next(int fd) {
    unsigned char byte;
    ssize_t got;
    do {
        got = read(fd, &byte, 1);
    } while (got < 0 && errno == EINTR);
    return got == 1 ? byte : 0;
}

static volatile sig_atomic_t end_came;

static void on_end_signal(int number) {
    (void)number;
    end_came = 1;
}

void note_end_signals(void) {
    struct sigaction action = {.sa_handler = on_end_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool told_to_end(void) {
    return end_came != 0;
}
