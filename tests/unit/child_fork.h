/* Forking in a test: the child ends with the test's program, whatever fails there. */
#ifndef TESTS_CHILD_FORK_H
#define TESTS_CHILD_FORK_H

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/* As fork. */
static inline pid_t child_fork(void) {
    pid_t parent = getpid(), pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    return 0;
}

#endif
