/* Redis first, then workers and front end; the ready line; and the same backwards. */
#include "main/supervisor.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "main/blob_dir.h"
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

static int part_count(const struct supervisor *up) {
    return PART_WORKERS + up->worker_count;
}

static bool is_ending(const struct supervisor *up) {
    return up->state >= UP_REQUESTS_END;
}

/* What a state on the way down waits for: parts that are told to end when it begins. */
struct step {
    int first, count, grace_ms;
};

static struct step step_of(const struct supervisor *up) {
    const struct blasd_limits *limits = &up->common->limits;
    int worker_ms = (int)(limits->drain_s + limits->stop_s) * 1000 + WORKER_GRACE_MS;
    switch (up->state) {
    case UP_REQUESTS_END: return (struct step){PART_API, 1, REQUESTS_MS + worker_ms + API_GRACE_MS};
    case UP_WORKERS_END: return (struct step){PART_WORKERS, up->worker_count, worker_ms};
    case UP_API_ENDS: return (struct step){PART_API, 1, API_GRACE_MS};
    case UP_NOTIFY_ENDS: return (struct step){PART_NOTIFY, 1, NOTIFY_GRACE_MS};
    case UP_REDIS_ENDS: return (struct step){PART_REDIS, 1, REDIS_GRACE_MS};
    default: return (struct step){.count = 0};
    }
}

static void enter(struct supervisor *up, enum supervisor_state state) {
    struct step step;
    up->state = state;
    step = step_of(up);
    for (int i = 0; i < step.count; i++) child_stop(&up->parts[step.first + i], step.grace_ms);
}

/* Goes on to the next state on the way down while nothing is left to wait for. */
static void advance(struct supervisor *up) {
    while (is_ending(up) && up->state != UP_ENDED) {
        struct step step = step_of(up);
        for (int i = 0; i < step.count; i++)
            if (up->parts[step.first + i].pid != 0) return;
        enter(up, up->state + 1);
    }
}

/* The workers need not stay for requests any longer. */
static void end_requests(struct supervisor *up) {
    if (up->state != UP_REQUESTS_END) return;
    enter(up, UP_WORKERS_END);
    advance(up);
}

static void requests_due(struct blasd_timer *timer) {
    end_requests(blasd_container_of(timer, struct supervisor, requests_due));
}

static void drain(struct supervisor *up, int status) {
    if (is_ending(up)) return;
    up->status = status;
    up->requests_due.fire = requests_due;
    blasd_loop_timer_set(up->loop, &up->requests_due, blasd_clock_ns() + REQUESTS_MS * BLASD_MS);
    blasd_loop_timer_clear(up->loop, &up->api_due);
    blasd_loop_timer_clear(up->loop, &up->adopt_due);
    /* the front end closes its own: ours would go on swallowing connections */
    listeners_close(up->listeners);
    enter(up, UP_REQUESTS_END);
    advance(up);
}

/* The front end has been told to end and has no requests under way. */
static void on_api_quiet(struct child *child) {
    struct supervisor *up = child->arg;
    if (!is_ending(up))
        child_signal(child, SIGTERM); /* another process told it: it need not stay */
    end_requests(up);
}

/* To all parts but Redis. */
static void signal_parts(struct supervisor *up, int number) {
    for (int i = PART_API; i < part_count(up); i++) child_signal(&up->parts[i], number);
}

static struct child *find_child(struct supervisor *up, pid_t pid) {
    for (int i = 0; i < part_count(up); i++)
        if (up->parts[i].pid == pid) return &up->parts[i];
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
    if (++up->told > 1) {
        blasd_log(BLASD_LOG_WARN, "told again to end: killing what still runs");
        signal_parts(up, SIGKILL);
        if (up->told > 2) child_signal(&up->parts[PART_REDIS], SIGKILL);
        return;
    }
    blasd_log(BLASD_LOG_INFO, "ending: no new requests; running jobs are finished");
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
            child_signal(&up->parts[PART_API], SIGHUP);
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
    if (up->state != UP_PARTS_START) return;
    listeners_url(up->listeners, up->access->tls_cert != NULL, url);
    up->state = UP_RUNNING;
    printf("ready %s\n", url);
    fflush(stdout);
}

/* Once all has run nothing is given up: what a part stumbles over when it starts anew, were it a
 * file that cannot be read for now, keeps no other part from going on. */
static void on_child_exit(struct child *child, int status, bool *again) {
    struct supervisor *up = child->arg;
    bool usage = WIFEXITED(status) && WEXITSTATUS(status) == BLASD_EXIT_USAGE;
    if (up->state >= UP_RUNNING) return;
    if (child->starts < CHILD_STARTS && !usage) return;
    blasd_log(BLASD_LOG_ERROR, "%s does not start; giving up", child->label);
    *again = false;
    drain(up, BLASD_EXIT_FAILED);
}

/* Each worker serves, or has ended once, which it will most likely do again. */
static bool workers_settled(const struct supervisor *up) {
    for (int i = 0; i < up->worker_count; i++) {
        const struct child *child = &up->parts[PART_WORKERS + i];
        bool ended = child->starts > 1 || (child->starts == 1 && child->pid == 0);
        if (!child->ready && !ended) return false;
    }
    return true;
}

/* A front end that finds all workers at its first look refuses no device that is there. */
static void on_worker_ready(struct child *child) {
    struct supervisor *up = child->arg;
    if (up->parts[PART_API].starts > 0 || is_ending(up) || !workers_settled(up)) return;
    blasd_loop_timer_clear(up->loop, &up->api_due);
    child_start(&up->parts[PART_API]);
}

static void on_worker_exit(struct child *child, int status, bool *again) {
    on_child_exit(child, status, again);
    if (*again) on_worker_ready(child);
}

static void api_due(struct blasd_timer *timer) {
    struct supervisor *up = blasd_container_of(timer, struct supervisor, api_due);
    if (up->parts[PART_API].starts == 0) child_start(&up->parts[PART_API]);
}

static void start_rest(struct supervisor *up) {
    up->state = UP_PARTS_START;
    for (int i = PART_WORKERS; i < part_count(up); i++) child_start(&up->parts[i]);
    if (up->delivers) child_start(&up->parts[PART_NOTIFY]);
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
        if (up->state == UP_REDIS_STARTS) blasd_log(BLASD_LOG_WARN, "%s", err.detail);
        blasd_loop_timer_set(up->loop, &up->adopt_due, blasd_clock_ns() + ADOPT_NS);
    } else if (code != 0) {
        blasd_log(BLASD_LOG_ERROR, "cannot prepare the private Redis: %s", err.detail);
        drain(up, BLASD_EXIT_FAILED);
        return;
    }
    if (up->state == UP_REDIS_STARTS) start_rest(up);
}

static void adopt_due(struct blasd_timer *timer) {
    adopt_store(blasd_container_of(timer, struct supervisor, adopt_due));
}

static struct supervisor *of_care(struct redis_care *care) {
    return blasd_container_of(care, struct private_redis, care)->arg;
}

static void on_redis_ready(struct redis_care *care) {
    struct supervisor *up = of_care(care);
    if (up->state == UP_REDIS_STARTS)
        blasd_loop_timer_set(up->loop, &up->adopt_due, blasd_clock_ns());
}

/* Whatever it says, it is alive. */
static void on_redis_alive(struct redis_care *care) {
    struct supervisor *up = of_care(care);
    if (up->parts[PART_REDIS].pid != 0) child_sign(&up->parts[PART_REDIS]);
}

static void on_redis_exit(struct child *child, int status, bool *again) {
    struct supervisor *up = child->arg;
    bool missing = WIFEXITED(status) && WEXITSTATUS(status) == 127;
    child->argv = private_redis_next(up->redis, WIFEXITED(status) && !missing);
    if (is_ending(up)) return;
    if (!missing && (up->parts[PART_API].starts > 0 || child->starts < REDIS_STARTS)) return;
    if (missing)
        blasd_log(BLASD_LOG_ERROR, "redis-server is not installed; install it, or give --redis");
    else
        private_redis_show_log(up->redis);
    *again = false;
    drain(up, BLASD_EXIT_FAILED);
}

/* Marks the blob directory as ours and locks the mark, so that no other start deletes it. */
static void mark_blobs(struct supervisor *up) {
    if (up->blobs_mark > 0) close(up->blobs_mark);
    up->blobs_mark = blob_dir_mark(up->blobs, up->dir);
    up->blobs_inode = blob_dir_inode(up->blobs);
}

/* Where the blob directory is gone it is made anew, and who holds the old one starts again: what
 * they would write there nobody could find. What lies in it a part may remove, and with its token
 * stop no other one: that is put back, and nobody starts again. Jobs whose inputs lay in it fail,
 * and are told why. */
static void blobs_due(struct blasd_timer *timer) {
    struct supervisor *up = blasd_container_of(timer, struct supervisor, blobs_due);
    bool there;
    if (is_ending(up)) return;
    there = blob_dir_restore(up->blobs, up->dir);
    blasd_loop_timer_set(up->loop, timer, blasd_clock_ns() + (there ? BLOBS_NS : BLOBS_AGAIN_NS));
    if (!there || blob_dir_inode(up->blobs) == up->blobs_inode) return;
    mark_blobs(up);
    blasd_log(BLASD_LOG_WARN,
              "%s was removed, and is created again; all parts restart. If systemd removes it at "
              "logout, set RemoveIPC=no or run blasd as a service",
              up->blobs + strlen("dir:"));
    signal_parts(up, SIGTERM);
}

static void watch_blobs(struct supervisor *up) {
    if (up->blobs == NULL) return;
    mark_blobs(up);
    up->blobs_due.fire = blobs_due;
    blasd_loop_timer_set(up->loop, &up->blobs_due, blasd_clock_ns() + BLOBS_NS);
}

static const struct child_events redis_events = {.on_exit = on_redis_exit};
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
    struct child *child = &up->parts[PART_REDIS];
    *child = part_of(up, "redis-server", NULL, &redis_events);
    child->notifies = false;
    child->foreign = true;
    if (redis == NULL) return;
    child->argv = private_redis_next(redis, false);
    child->keep_fds = &redis->dir->lock_fd;
    child->keep_count = 1;
    redis->arg = up;
    redis->care.on_ready = on_redis_ready;
    redis->care.on_alive = on_redis_alive;
    up->adopt_due.fire = adopt_due;
}

static int prepare_parts(struct supervisor *up) {
    static char program[] = "blasd", command[] = "notify";
    static char *const notify_argv[] = {program, command, NULL};
    struct child *api;
    up->parts = calloc((size_t)part_count(up), sizeof *up->parts);
    if (up->parts == NULL) return -1;
    prepare_redis(up);
    up->worker_variables[0] = "BLASD_REDIS";
    up->worker_variables[1] = up->worker_redis;
    api = &up->parts[PART_API];
    *api = part_of(up, "blasd api", up->api_argv, &api_events);
    api->cpus = &up->api_cpus;
    api->keep_fds = up->listeners->fds;
    api->keep_count = up->listeners->count;
    up->parts[PART_NOTIFY] = part_of(up, "blasd notify", notify_argv, &notify_events);
    for (int i = 0; i < up->worker_count; i++) {
        struct worker_plan *plan = &up->workers[i];
        struct child *worker = &up->parts[PART_WORKERS + i];
        *worker = part_of(up, plan->label, plan->argv, &worker_events);
        worker->cpus = &plan->cpus;
        worker->variables = up->worker_variables;
    }
    return 0;
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
    up->status = BLASD_EXIT_FAILED;
    up->loop = blasd_loop_new();
    if (up->loop == NULL || prepare_parts(up) != 0 || watch_signals(up) != 0) {
        blasd_log(BLASD_LOG_ERROR, "cannot set up the supervisor: %s", strerror(errno));
        goto done;
    }
    watch_input(up);
    watch_blobs(up);
    if (up->redis == NULL) {
        start_rest(up);
    } else if (private_redis_attend(up->redis, up->loop, &err) == 0) {
        child_start(&up->parts[PART_REDIS]);
    } else {
        blasd_log(BLASD_LOG_ERROR, "%s", err.detail);
        goto done;
    }
    while (up->state != UP_ENDED) blasd_loop_step(up->loop, -1);
done:
    if (up->redis != NULL) private_redis_leave(up->redis);
    blasd_loop_free(up->loop);
    if (up->signals.fd > 0) close(up->signals.fd);
    if (up->blobs_mark > 0) close(up->blobs_mark);
    free(up->parts);
    return up->status;
}
