/* Fork, exec, wait, again. */
#include "main/child.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define YOUNG_NS (5000 * BLASD_MS) /* who lives longer than this is started again at once */
#define DELAY_LEAST_MS 100
#define DELAY_MOST_MS 5000
#define LOOK_NS (1000 * BLASD_MS)

enum { SAYS_READY = 'r', SAYS_ALIVE = 'a', SAYS_SERVING = 's', SAYS_QUIET = 'q' };

/* In the new process. What it inherits: standard error, the descriptors asked for, the environment;
 * its own process group, so that Ctrl-C reaches the supervisor alone, which then ends all in order.
 */
static void child_exec(const struct child *child, pid_t supervisor, int notify_fd) {
    static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGPIPE, SIGQUIT};
    char number[16];
    sigset_t none;
    int input = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(1); /* it died before the line above */
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) signal(handled[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (input >= 0) dup2(input, STDIN_FILENO);
    if (input > STDERR_FILENO) close(input);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    for (int i = 0; i < child->keep_count; i++) fcntl(child->keep_fds[i], F_SETFD, 0);
    unsetenv(CHILD_NOTIFY);
    if (notify_fd >= 0) {
        fcntl(notify_fd, F_SETFD, 0);
        snprintf(number, sizeof number, "%d", notify_fd);
        setenv(CHILD_NOTIFY, number, 1);
    }
    for (int i = 0; child->variables != NULL && child->variables[i] != NULL; i += 2)
        setenv(child->variables[i], child->variables[i + 1], 1);
    if (child->cpus != NULL && CPU_COUNT(child->cpus) > 0)
        sched_setaffinity(0, sizeof *child->cpus, child->cpus);
    /* the program that runs now, even where its file has been replaced since */
    if (child->foreign)
        execvp(child->argv[0], child->argv);
    else
        execv("/proc/self/exe", child->argv);
    blasd_log(BLASD_LOG_ERROR, "cannot start %s: %s", child->argv[0], strerror(errno));
    _exit(127);
}

/* After a pause, longer each time until it lives for a while. */
static void child_start_later(struct child *child) {
    int delay_ms = child->delay_ms;
    child->delay_ms = delay_ms == 0 ? DELAY_LEAST_MS : delay_ms * 2;
    if (child->delay_ms > DELAY_MOST_MS) child->delay_ms = DELAY_MOST_MS;
    blasd_loop_timer_set(child->loop, &child->restart, blasd_clock_ns() + delay_ms * BLASD_MS);
}

static void restart_due(struct blasd_timer *timer) {
    struct child *child = blasd_container_of(timer, struct child, restart);
    if (!child->stopping) child_start(child);
}

static void forget_notify(struct child *child) {
    if (child->notify.fd <= 0) return;
    blasd_loop_unwatch(child->loop, &child->notify);
    close(child->notify.fd);
    child->notify.fd = 0;
}

/* Looks are counted, and none of them waits for another: where this process, or the machine, has
 * stood still there has been one look less, not a silence of that time. */
static void look_due(struct blasd_timer *timer) {
    struct child *child = blasd_container_of(timer, struct child, look);
    int most = child->ready ? child->silence_s : child->start_s;
    if (++child->silent > most) {
        blasd_log(
            BLASD_LOG_ERROR,
            "%s (process %d) has given no sign of life for %d s (limit silence_s): killing it",
            child->label, (int)child->pid, most);
        child_signal(child, SIGKILL);
        return;
    }
    blasd_loop_timer_set(child->loop, timer, blasd_clock_ns() + LOOK_NS);
}

static void look_after(struct child *child) {
    child->look.fire = look_due;
    blasd_loop_timer_set(child->loop, &child->look, blasd_clock_ns() + LOOK_NS);
}

static void become_ready(struct child *child) {
    if (child->ready) return;
    child->ready = true;
    look_after(child);
    if (child->events->on_ready != NULL) child->events->on_ready(child);
}

void child_sign(struct child *child) {
    child->silent = 0;
    become_ready(child);
}

static void notified(struct blasd_watcher *watcher, uint32_t events) {
    struct child *child = blasd_container_of(watcher, struct child, notify);
    char bytes[64];
    ssize_t got = read(watcher->fd, bytes, sizeof bytes);
    (void)events;
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
        forget_notify(child);
        return;
    }
    child->silent = 0;
    if (memchr(bytes, SAYS_READY, (size_t)got) != NULL) become_ready(child);
    if (memchr(bytes, SAYS_SERVING, (size_t)got) != NULL && child->events->on_serving != NULL)
        child->events->on_serving(child);
    if (memchr(bytes, SAYS_QUIET, (size_t)got) != NULL && child->events->on_quiet != NULL)
        child->events->on_quiet(child);
}

void child_start(struct child *child) {
    int pipes[2] = {-1, -1};
    pid_t supervisor = getpid(), pid;
    sigset_t all, before;
    child->restart.fire = restart_due;
    if (child->pid != 0 || child->stopping) return;
    if (child->notifies && pipe2(pipes, O_CLOEXEC | O_NONBLOCK) != 0) goto failed;
    /* a signal that reached the child before its exec would run our handler there */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid = fork();
    if (pid == 0) child_exec(child, supervisor, pipes[1]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) goto failed;
    child->pid = pid;
    child->ready = false;
    child->silent = 0;
    child->starts++;
    child->started_ns = blasd_clock_ns();
    if (child->notifies) {
        close(pipes[1]);
        child->notify = (struct blasd_watcher){.fd = pipes[0], .ready = notified};
        blasd_loop_watch(child->loop, &child->notify, EPOLLIN);
        look_after(child);
    }
    blasd_log(BLASD_LOG_DEBUG, "%s is process %d", child->label, (int)pid);
    return;
failed:
    blasd_log(BLASD_LOG_ERROR, "cannot start %s: %s", child->label, strerror(errno));
    if (pipes[0] >= 0) close(pipes[0]);
    if (pipes[1] >= 0) close(pipes[1]);
    child_start_later(child);
}

static void say_ended(const struct child *child, int status) {
    enum blasd_log_level level = child->stopping ? BLASD_LOG_DEBUG : BLASD_LOG_WARN;
    if (WIFSIGNALED(status))
        blasd_log(level, "%s (process %d) was ended by signal %d (%s)", child->label,
                  (int)child->pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        blasd_log(level, "%s (process %d) ended with status %d", child->label, (int)child->pid,
                  WEXITSTATUS(status));
}

void child_reap(struct child *child) {
    bool again = !child->stopping;
    int status;
    if (child->pid == 0 || waitpid(child->pid, &status, WNOHANG) != child->pid) return;
    say_ended(child, status);
    child->pid = 0;
    child->ready = false;
    forget_notify(child);
    blasd_loop_timer_clear(child->loop, &child->kill);
    blasd_loop_timer_clear(child->loop, &child->look);
    if (blasd_clock_ns() - child->started_ns > YOUNG_NS) child->delay_ms = 0;
    if (child->events->on_exit != NULL) child->events->on_exit(child, status, &again);
    if (!again || child->stopping) return;
    if (child->delay_ms == 0) {
        child->delay_ms = DELAY_LEAST_MS;
        child_start(child);
    } else {
        child_start_later(child);
    }
}

static void kill_due(struct blasd_timer *timer) {
    struct child *child = blasd_container_of(timer, struct child, kill);
    blasd_log(BLASD_LOG_WARN, "%s does not end; killing it", child->label);
    child_signal(child, SIGKILL);
}

void child_stop(struct child *child, int grace_ms) {
    if (!child->stopping) {
        child->stopping = true;
        blasd_loop_timer_clear(child->loop, &child->restart);
    }
    if (child->pid == 0) return;
    child_signal(child, SIGTERM);
    child->kill.fire = kill_due;
    blasd_loop_timer_set(child->loop, &child->kill, blasd_clock_ns() + grace_ms * BLASD_MS);
}

void child_signal(const struct child *child, int signal) {
    if (child->pid > 0) kill(child->pid, signal);
}

/* -1: it has no supervisor, or has told it nothing yet. */
static _Atomic int notify_fd = -1;

static bool find_supervisor(void) {
    const char *text = getenv(CHILD_NOTIFY);
    char *end;
    long fd;
    if (text == NULL) return false;
    fd = strtol(text, &end, 10);
    if (end == text || *end != '\0' || fd < 3 || fd > 65535) return false;
    fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    notify_fd = (int)fd;
    return true;
}

static void tell(char what) {
    if (notify_fd < 0 && !find_supervisor()) return;
    /* where the pipe is full it does not read, so it has signs enough for when it does */
    if (write(notify_fd, &what, 1) < 0 && errno != EAGAIN)
        blasd_log(BLASD_LOG_DEBUG, "the supervisor does not listen: %s", strerror(errno));
}

bool child_has_supervisor(void) {
    return getenv(CHILD_NOTIFY) != NULL;
}

bool child_tell_ready(void) {
    tell(SAYS_READY);
    return notify_fd >= 0;
}

void child_tell_alive(void *unused) {
    (void)unused;
    tell(SAYS_ALIVE);
}

void child_tell_serving(void *unused) {
    (void)unused;
    tell(SAYS_SERVING);
}

void child_tell_quiet(void *unused) {
    (void)unused;
    tell(SAYS_QUIET);
}
