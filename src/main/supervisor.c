/* Redis first, then workers and front end; the ready line; and the same backwards. */
#include "main/supervisor.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "main/commands.h"
#include "main/signal_pipe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUESTS_MS 10000 /* that the workers go on taking jobs for requests under way */
#define BLOBS_AGAIN_NS (30000 * BLASD_MS) /* where it cannot be made anew */
#define BLOBS_NS (1000 * BLASD_MS) /* between two looks whether the blob directory is there */
#define ADOPT_NS (1000 * BLASD_MS) /* until a Redis that refuses writes is asked again */
#define API_GRACE_MS 20000
#define NOTIFY_GRACE_MS 15000 /* what is on its way is answered, or takes too long */
#define WORKER_GRACE_MS 5000  /* beyond what it gives its jobs */
#define REDIS_GRACE_MS 60000
#define API_DELAY_NS (10000 * BLASD_MS) /* to wait for workers, at most: a card takes seconds */
#define REDIS_STARTS 3                  /* tries before the first answer */
#define START_LONGER 12 /* times silence_s: drivers, and the choice of a BLAS, take their time */
#define CHILD_STARTS 6  /* the same for workers and front end, before all is ready */

static void advance(struct supervisor *up);

static void requests_due(struct blasd_timer *timer) {
    struct supervisor *up = blasd_container_of(timer, struct supervisor, shutdown.requests_due);
    up->shutdown.requests_ended = true;
    advance(up);
}

static void drain(struct supervisor *up, int status) {
    if (up->shutdown.begun) return;
    up->shutdown.begun = true;
    up->shutdown.status = status;
    up->shutdown.requests_due.fire = requests_due;
    blasd_loop_timer_set(up->loop, &up->shutdown.requests_due,
                         blasd_clock_ns() + REQUESTS_MS * BLASD_MS);
    blasd_loop_timer_clear(up->loop, &up->api_due);
    blasd_loop_timer_clear(up->loop, &up->adopt_due);
    /* the front end closes its own: ours would go on swallowing connections */
    listeners_close(up->listeners);
    advance(up);
}

static int worker_grace_ms(const struct supervisor *up) {
    const struct blasd_limits *limits = &up->common->limits;
    return (int)(limits->drain_s + limits->stop_s) * 1000 + WORKER_GRACE_MS;
}

static bool workers_gone(struct supervisor *up) {
    bool gone = true;
    for (int i = 0; i < up->worker_count; i++) {
        if (!up->workers[i].child.stopping) child_stop(&up->workers[i].child, worker_grace_ms(up));
        if (up->workers[i].child.pid != 0) gone = false;
    }
    return gone;
}

/* The next step down, once the last one has been taken: the front end refuses new jobs, while the
 * workers take those of its requests under way; the workers end what they compute, which the front
 * end still hands out; it ends; Redis does. */
static void advance(struct supervisor *up) {
    if (!up->shutdown.begun || up->shutdown.done) return;
    if (!up->api_child.stopping)
        child_stop(&up->api_child, REQUESTS_MS + worker_grace_ms(up) + API_GRACE_MS);
    if (up->api_child.pid != 0 && !up->shutdown.requests_ended) return;
    if (!workers_gone(up)) return;
    if (!up->shutdown.refused_enough) child_stop(&up->api_child, API_GRACE_MS);
    up->shutdown.refused_enough = true;
    if (up->api_child.pid != 0) return;
    if (!up->notify_child.stopping) child_stop(&up->notify_child, NOTIFY_GRACE_MS);
    if (up->notify_child.pid != 0) return;
    if (up->redis != NULL && !up->redis_child.stopping) {
        child_stop(&up->redis_child, REDIS_GRACE_MS);
        child_stop(&up->check_child, REDIS_GRACE_MS);
    }
    up->shutdown.done = up->redis_child.pid == 0 && up->check_child.pid == 0;
}

/* The front end has been told to end and has no requests under way. */
static void on_api_quiet(struct child *child) {
    struct supervisor *up = child->arg;
    if (!up->shutdown.begun) {
        child_signal(child, SIGTERM); /* somebody else has told it: it need not stay */
        return;
    }
    up->shutdown.requests_ended = true;
    advance(up);
}

static void hurry(struct supervisor *up) {
    blasd_log(BLASD_LOG_WARN, "told again to end: killing what still runs");
    child_signal(&up->api_child, SIGKILL);
    child_signal(&up->notify_child, SIGKILL);
    for (int i = 0; i < up->worker_count; i++) child_signal(&up->workers[i].child, SIGKILL);
    if (up->shutdown.told > 2) child_signal(&up->redis_child, SIGKILL);
}

static struct child *find_child(struct supervisor *up, pid_t pid) {
    if (up->redis_child.pid == pid) return &up->redis_child;
    if (up->check_child.pid == pid) return &up->check_child;
    if (up->api_child.pid == pid) return &up->api_child;
    if (up->notify_child.pid == pid) return &up->notify_child;
    for (int i = 0; i < up->worker_count; i++)
        if (up->workers[i].child.pid == pid) return &up->workers[i].child;
    return NULL;
}

/* Also the children that others leave behind to process 1, which we are in a container. */
static void reap_all(struct supervisor *up) {
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        struct child *child;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        child = find_child(up, info.si_pid);
        if (child != NULL)
            child_reap(child);
        else
            waitpid(info.si_pid, NULL, WNOHANG);
    }
}

static void on_end_wanted(struct supervisor *up) {
    if (up->shutdown.told++ > 0) {
        hurry(up);
        return;
    }
    blasd_log(BLASD_LOG_INFO, "ending: no new requests, then the work in hand");
    drain(up, BLASD_EXIT_OK);
}

static void on_signal(struct blasd_watcher *watcher, uint32_t events) {
    struct supervisor *up = blasd_container_of(watcher, struct supervisor, signals);
    int number;
    (void)events;
    while ((number = signal_pipe_next(watcher->fd)) != 0) {
        if (number == SIGCHLD) {
            reap_all(up);
            advance(up);
        } else if (number == SIGHUP && access_reread(up->access)) {
            child_signal(&up->api_child, SIGHUP);
        } else {
            on_end_wanted(up);
        }
    }
}

/* Reads standard input only for its end, which comes with that of the program that writes to it. */
static void on_input(struct blasd_watcher *watcher, uint32_t events) {
    struct supervisor *up = blasd_container_of(watcher, struct supervisor, input);
    char ignored[256];
    ssize_t got = read(watcher->fd, ignored, sizeof ignored);
    (void)events;
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return;
    blasd_loop_unwatch(up->loop, watcher);
    on_end_wanted(up);
}

static void watch_input(struct supervisor *up) {
    struct stat info;
    if (!up->lifeline || fstat(STDIN_FILENO, &info) != 0 ||
        !(S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)))
        return;
    up->input.fd = STDIN_FILENO;
    up->input.ready = on_input;
    if (blasd_loop_watch(up->loop, &up->input, EPOLLIN) != 0)
        blasd_log(BLASD_LOG_WARN, "cannot watch standard input: %s", strerror(errno));
}

/* Jobs sent to the front end would run. */
static void on_api_serving(struct child *child) {
    struct supervisor *up = child->arg;
    char url[LISTEN_URL];
    if (up->running || up->shutdown.begun) return;
    listeners_url(up->listeners, up->access->tls_cert != NULL, url);
    up->running = true;
    printf("ready %s\n", url);
    fflush(stdout);
}

/* Once all has run nothing is given up: what a part stumbles over when it starts anew, were it a
 * file that cannot be read for now, keeps no other part from going on. */
static void on_child_exit(struct child *child, int status, bool *again) {
    struct supervisor *up = child->arg;
    bool usage = WIFEXITED(status) && WEXITSTATUS(status) == BLASD_EXIT_USAGE;
    if (up->shutdown.begun || up->running) return;
    if (child->starts < CHILD_STARTS && !usage) return;
    blasd_log(BLASD_LOG_ERROR, "%s does not start; giving up", child->label);
    *again = false;
    drain(up, BLASD_EXIT_FAILED);
}

/* Each worker serves, or has ended once, which it will most likely do again. */
static bool workers_settled(const struct supervisor *up) {
    for (int i = 0; i < up->worker_count; i++) {
        const struct child *child = &up->workers[i].child;
        bool ended = child->starts > 1 || (child->starts == 1 && child->pid == 0);
        if (!child->ready && !ended) return false;
    }
    return true;
}

/* A front end that finds all workers at its first look refuses no device that is there. */
static void on_worker_ready(struct child *child) {
    struct supervisor *up = child->arg;
    if (up->api_child.starts > 0 || up->shutdown.begun || !workers_settled(up)) return;
    blasd_loop_timer_clear(up->loop, &up->api_due);
    child_start(&up->api_child);
}

static void on_worker_exit(struct child *child, int status, bool *again) {
    on_child_exit(child, status, again);
    if (*again) on_worker_ready(child);
}

static void api_due(struct blasd_timer *timer) {
    struct supervisor *up = blasd_container_of(timer, struct supervisor, api_due);
    if (up->api_child.starts == 0) child_start(&up->api_child);
}

static void start_rest(struct supervisor *up) {
    up->rest_starts = true;
    for (int i = 0; i < up->worker_count; i++) child_start(&up->workers[i].child);
    if (up->delivers) child_start(&up->notify_child);
    up->api_due.fire = api_due;
    blasd_loop_timer_set(up->loop, &up->api_due, blasd_clock_ns() + API_DELAY_NS);
}

/* Nobody else uses the Redis yet that answers for the first time. */
static void adopt_store(struct supervisor *up) {
    struct blasd_err err = {0};
    struct blasd_queue_options queue = common_queue(up->common);
    int code;
    queue.store = up->store;
    code = blasd_queue_adopt_store(&queue, &err);
    if (code == -(int)BLASD_E_queue_unavailable) {
        /* as with a full disk: the rest starts, so that users hear of it */
        if (!up->rest_starts) blasd_log(BLASD_LOG_WARN, "%s", err.detail);
        blasd_loop_timer_set(up->loop, &up->adopt_due, blasd_clock_ns() + ADOPT_NS);
    } else if (code != 0) {
        blasd_log(BLASD_LOG_ERROR, "cannot prepare the private Redis: %s", err.detail);
        drain(up, BLASD_EXIT_FAILED);
        return;
    }
    if (!up->rest_starts) start_rest(up);
}

static void adopt_due(struct blasd_timer *timer) {
    adopt_store(blasd_container_of(timer, struct supervisor, adopt_due));
}

static struct supervisor *of_care(struct redis_care *care) {
    return blasd_container_of(care, struct private_redis, care)->arg;
}

static void on_redis_ready(struct redis_care *care) {
    struct supervisor *up = of_care(care);
    if (!up->rest_starts && !up->shutdown.begun)
        blasd_loop_timer_set(up->loop, &up->adopt_due, blasd_clock_ns());
}

/* Whatever it says, it is alive. */
static void on_redis_alive(struct redis_care *care) {
    struct supervisor *up = of_care(care);
    if (up->redis_child.pid != 0) child_sign(&up->redis_child);
}

static void on_check_exit(struct child *child, int status, bool *again) {
    struct supervisor *up = child->arg;
    (void)status;
    *again = false;
    child_start_later(&up->redis_child);
}

static void on_redis_exit(struct child *child, int status, bool *again) {
    struct supervisor *up = child->arg;
    bool missing = WIFEXITED(status) && WEXITSTATUS(status) == 127, checks;
    private_redis_ended(up->redis, WIFEXITED(status) && !missing, &checks);
    if (up->shutdown.begun) return;
    if ((up->api_child.starts > 0 && !missing) || (child->starts < REDIS_STARTS && !missing)) {
        *again = !checks;
        if (checks) child_start(&up->check_child);
        return;
    }
    if (missing)
        blasd_log(BLASD_LOG_ERROR, "redis-server is not installed; install it, or give --redis");
    else
        private_redis_show_log(up->redis);
    *again = false;
    drain(up, BLASD_EXIT_FAILED);
}

/* Where the blob directory is gone it is made anew, and who holds the old one starts again: what
 * they would write there nobody could find. What lies in it a part may remove, and with its token
 * stop no other one: that is put back, and nobody starts again. Jobs whose inputs lay in it fail,
 * and are told why. */
static void blobs_due(struct blasd_timer *timer) {
    struct supervised_blobs *blobs = blasd_container_of(timer, struct supervised_blobs, look);
    struct supervisor *up = blobs->up;
    bool there;
    if (up->shutdown.begun) return;
    there = blob_dir_restore(blobs->spec, blobs->dir);
    blasd_loop_timer_set(up->loop, timer, blasd_clock_ns() + (there ? BLOBS_NS : BLOBS_AGAIN_NS));
    if (!there || blob_dir_inode(blobs->spec) == blobs->inode) return;
    blobs->inode = blob_dir_inode(blobs->spec);
    blob_dir_keep_token(blobs->spec, blobs->dir);
    blasd_log(BLASD_LOG_WARN,
              "%s was removed, and is made anew; all parts start again. Where systemd does that at "
              "logout, set RemoveIPC=no or run blasd as a service",
              blobs->spec + strlen("dir:"));
    child_signal(&up->api_child, SIGTERM);
    child_signal(&up->notify_child, SIGTERM);
    for (int i = 0; i < up->worker_count; i++) child_signal(&up->workers[i].child, SIGTERM);
}

static void watch_blobs(struct supervisor *up) {
    if (up->blobs->spec == NULL) return;
    up->blobs->up = up;
    up->blobs->look.fire = blobs_due;
    blasd_loop_timer_set(up->loop, &up->blobs->look, blasd_clock_ns() + BLOBS_NS);
}

static const struct child_events redis_events = {.on_exit = on_redis_exit};
static const struct child_events check_events = {.on_exit = on_check_exit};
static const struct child_events api_events = {
    .on_serving = on_api_serving, .on_quiet = on_api_quiet, .on_exit = on_child_exit};
static const struct child_events notify_events = {.on_exit = on_child_exit};
static const struct child_events worker_events = {.on_ready = on_worker_ready,
                                                  .on_exit = on_worker_exit};

/* A part that says itself that it lives. */
static struct child part_of(struct supervisor *up, const char *label, char *const *argv,
                            const struct child_events *events) {
    const int silence_s = (int)up->common->limits.silence_s;
    return (struct child){.loop = up->loop,
                          .label = label,
                          .argv = argv,
                          .notifies = true,
                          .silence_s = silence_s,
                          .start_s = START_LONGER * silence_s,
                          .events = events,
                          .arg = up};
}

static void prepare_redis(struct supervisor *up) {
    struct private_redis *redis = up->redis;
    if (redis == NULL) return;
    up->redis_child = part_of(up, "redis-server", redis->argv, &redis_events);
    up->redis_child.executable = "redis-server";
    up->redis_child.keep_fds = &redis->dir->lock_fd;
    up->redis_child.keep_count = 1;
    up->check_child = part_of(up, "redis-check-aof", redis->check_argv, &check_events);
    up->check_child.executable = "redis-check-aof";
    up->check_child.input = "y\n"; /* it asks whether to cut the file */
    up->redis_child.notifies = up->check_child.notifies = false;
    redis->arg = up;
    redis->care.on_ready = on_redis_ready;
    redis->care.on_alive = on_redis_alive;
    up->adopt_due.fire = adopt_due;
}

static void prepare_parts(struct supervisor *up) {
    static char program[] = "blasd", command[] = "notify";
    static char *const notify_argv[] = {program, command, NULL};
    up->worker_variables[0] = "BLASD_REDIS";
    up->worker_variables[1] = up->worker_redis;
    up->api_child = part_of(up, "blasd api", up->api_argv, &api_events);
    up->api_child.cpus = &up->api_cpus;
    up->api_child.keep_fds = up->listeners->fds;
    up->api_child.keep_count = up->listeners->count;
    up->notify_child = part_of(up, "blasd notify", notify_argv, &notify_events);
    for (int i = 0; i < up->worker_count; i++) {
        struct worker_plan *plan = &up->workers[i];
        plan->child = part_of(up, plan->label, plan->argv, &worker_events);
        plan->child.cpus = &plan->cpus;
        plan->child.variables = up->worker_variables;
    }
}

static int watch_signals(struct supervisor *up) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, 0};
    up->signals.fd = signal_pipe_open(signals);
    up->signals.ready = on_signal;
    if (up->signals.fd < 0) return -1;
    return blasd_loop_watch(up->loop, &up->signals, EPOLLIN);
}

int supervisor_run(struct supervisor *up) {
    struct blasd_err err = {0};
    bool checks;
    up->shutdown.status = BLASD_EXIT_FAILED;
    up->loop = blasd_loop_new();
    if (up->loop == NULL || watch_signals(up) != 0) {
        blasd_log(BLASD_LOG_ERROR, "cannot set up the supervisor: %s", strerror(errno));
        goto done;
    }
    watch_input(up);
    prepare_redis(up);
    prepare_parts(up);
    watch_blobs(up);
    if (up->redis == NULL) {
        start_rest(up);
    } else if (private_redis_attend(up->redis, up->loop, &err) == 0) {
        private_redis_ended(up->redis, false, &checks);
        child_start(&up->redis_child);
    } else {
        blasd_log(BLASD_LOG_ERROR, "%s", err.detail);
        goto done;
    }
    while (!up->shutdown.done) blasd_loop_step(up->loop, -1);
done:
    if (up->redis != NULL) private_redis_leave(up->redis);
    blasd_loop_free(up->loop);
    if (up->signals.fd > 0) close(up->signals.fd);
    return up->shutdown.status;
}
