/* Fork, exec, forget. */
#include "main/guard.h"

#include "main/child.h"
#include "main/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile pid_t guard;

/* Its jobs go back as those of a worker that was killed: at once, where it is started anew. */
static void on_child(int number) {
    static const char text[] = "blasd worker: its guard has ended, and so does it\n";
    const int before = errno;
    (void)number;
    if (guard > 0 && waitpid(guard, NULL, WNOHANG) == guard) {
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
        _exit(BLASD_EXIT_FAILED);
    }
    errno = before;
}

/* What ends the worker gently it does not hear of: the worker needs it to the end. */
static void become_guard(int end, char *const argv[]) {
    fcntl(end, F_SETFD, 0);
    execv("/proc/self/exe", argv);
    _exit(127);
}

/* Wherever it stands: in the environment that this process was started with, or in a copy. */
static void forget(struct common_options *common) {
    char *in_environment = getenv("BLASD_REDIS");
    if (in_environment != NULL) explicit_bzero(in_environment, strlen(in_environment));
    unsetenv("BLASD_REDIS");
    explicit_bzero((char *)(size_t)common->redis, strlen(common->redis));
    common->redis = NULL;
}

int guard_start(struct common_options *common, const char *worker, struct blasd_err *err) {
    static char program[] = "blasd", command[] = "guard", socket_option[] = "--socket",
                worker_option[] = "--worker";
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    char number[16], name[128];
    char *const argv[] = {program, command, socket_option, number, worker_option, name, NULL};
    int ends[2];
    pid_t pid = -1;
    child_tells_alone();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "no socket for a guard: %s",
                          strerror(errno));
    snprintf(number, sizeof number, "%d", ends[1]);
    snprintf(name, sizeof name, "%s", worker);
    if (common_export(common) == 0) pid = fork();
    if (pid == 0) become_guard(ends[1], argv);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return blasd_fail(err, BLASD_E_internal_error, "", "cannot start a guard: %s",
                          strerror(errno));
    }
    forget(common);
    guard = pid;
    sigaction(SIGCHLD, &action, NULL);
    on_child(SIGCHLD); /* which may have ended meanwhile */
    return ends[0];
}
