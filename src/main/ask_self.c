/* Fork, exec, read, wait. */
#include "main/ask_self.h"

#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void child_exec(char *const argv[], const char *const *variables, int out) {
    static const struct rlimit none = {0, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none); /* a crash is an answer here */
    for (int i = 0; variables != NULL && variables[i] != NULL; i += 2)
        setenv(variables[i], variables[i + 1], 1);
    dup2(out, STDOUT_FILENO);
    execv("/proc/self/exe", argv);
    _exit(127);
}

/* Reads until the end, the cap or the time limit; false: the latter. */
static bool read_all(int fd, char *text, size_t size, int timeout_ms) {
    int64_t end_ns = blasd_clock_ns() + timeout_ms * INT64_C(1000000);
    size_t len = 0;
    bool ended = false;
    while (!ended && len < size - 1) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left_ms = (end_ns - blasd_clock_ns()) / 1000000;
        ssize_t got;
        if (left_ms <= 0 || poll(&wait, 1, (int)left_ms) <= 0) break;
        got = read(fd, text + len, size - 1 - len);
        ended = got <= 0;
        if (got > 0) len += (size_t)got;
    }
    text[len] = '\0';
    return ended;
}

int ask_self(char *const argv[], const char *const *variables, int timeout_ms, char *text,
             size_t size) {
    int pipes[2], status = -1;
    bool ended = true;
    pid_t pid;
    text[0] = '\0';
    if (pipe2(pipes, O_CLOEXEC) != 0) return ASK_CRASHED;
    pid = fork();
    if (pid == 0) child_exec(argv, variables, pipes[1]);
    close(pipes[1]);
    if (pid > 0) {
        /* who closed its output ends by itself; who took too long does not */
        ended = read_all(pipes[0], text, size, timeout_ms);
        if (!ended) kill(pid, SIGKILL);
        if (waitpid(pid, &status, 0) != pid) status = -1;
    }
    close(pipes[0]);
    if (!ended) return ASK_TOO_LONG;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : ASK_CRASHED;
}
