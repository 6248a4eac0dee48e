/* What the tests of the front end's queue share: a Redis of their own, the loop, a worker, and what
 * the callbacks saw. Included once by each of them. */
#ifndef BLASD_TEST_FRONT_FIXTURE_H
#define BLASD_TEST_FRONT_FIXTURE_H

#include "record_fixture.h"
#include "redis_server.h"

#include "base/clock.h"
#include "base/container.h"
#include "queue/front.h"
#include "queue/worker_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

/* What the callbacks saw of one job. */
struct seen {
    struct blasd_waiter waiter;
    char id[BLASD_ID_LEN + 1];
    int answered, ended, order; /* order: of the answer's coming */
    bool repeated;
    enum blasd_code code;
    char record[1024];
    size_t record_len;
    int ended_order;
    int64_t ended_ns;
};

struct env {
    struct redis redis;
    char url[128]; /* by which the queue reaches it */
    struct blasd_limits limits;
    struct blasd_store *store;
    struct blasd_loop *loop;
    struct blasd_queue_options options;
    struct blasd_front_queue *queue;
    struct seen *seen;
    int seen_count, order, answered, accepted, ended;
    redisContext *client; /* for looking behind the scenes */
    struct blasd_worker_queue *worker;
};

static struct env *current; /* the test's, for callbacks */
static const struct blasd_port no_ports[] = {{.name = NULL}};
static const struct blasd_op echo = {.name = "echo", .inputs = no_ports, .outputs = no_ports};

/* The loop. */

/* Copies a record, a zero behind it; how much of it. */
static size_t record_copy(char *out, size_t size, const void *record, size_t len) {
    size_t n = record == NULL ? 0 : len < size ? len : size - 1;
    if (n > 0) memcpy(out, record, n);
    out[n] = '\0';
    return n;
}

static void on_ended(struct blasd_waiter *waiter, const void *record, size_t len) {
    struct seen *s = blasd_container_of(waiter, struct seen, waiter);
    assert_string_equal(waiter->id, s->id);
    s->ended++;
    s->ended_order = ++current->order;
    s->ended_ns = blasd_clock_ns();
    s->record_len = record_copy(s->record, sizeof s->record, record, len);
    current->ended++;
}

static void turn(struct env *env, int ms) {
    blasd_front_queue_flush(env->queue);
    blasd_loop_step(env->loop, ms);
}

/* Turns the loop until the condition holds; fails after ten seconds. */
#define UNTIL(env, condition)                                                                      \
    do {                                                                                           \
        int64_t until_ = blasd_clock_ns() + 60 * SECOND;                                           \
        while (!(condition)) {                                                                     \
            if (blasd_clock_ns() > until_) fail_msg("never came: %s", #condition);                 \
            turn(env, 2);                                                                          \
        }                                                                                          \
    } while (0)

__attribute__((unused)) static void run_for(struct env *env, int ms) {
    for (int64_t end = blasd_clock_ns() + ms * BLASD_MS; blasd_clock_ns() < end;) turn(env, 5);
}

static int queue_open(struct env *env) {
    const struct blasd_front_queue_hooks hooks = {.arg = env};
    struct blasd_err err;
    return blasd_front_queue_open(&env->options, env->loop, &hooks, &env->queue, &err);
}

static struct env *env_new(const char *store) {
    struct env *env = calloc(1, sizeof *env);
    struct blasd_err err;
    char spec[96];
    current = env;
    assert_int_equal(redis_init(&env->redis), 0);
    snprintf(env->url, sizeof env->url, "%s", env->redis.url);
    snprintf(spec, sizeof spec, "dir:%s/blobs", env->redis.dir);
    blasd_limits_init(&env->limits);
    env->limits.lease_ms = 600000; /* however long a test takes: nobody renews it */
    assert_int_equal(blasd_store_open(store != NULL ? store : spec, &env->store, &err), 0);
    env->loop = blasd_loop_new();
    assert_non_null(env->loop);
    env->seen = calloc(20000, sizeof *env->seen);
    for (int i = 0; i < 20000; i++) env->seen[i].waiter.ended = on_ended;
    env->options = (struct blasd_queue_options){
        .url = env->url, .name = "test", .limits = &env->limits, .store = env->store};
    return env;
}

static void env_open(struct env *env) {
    redis_launch(&env->redis);
    env->client = redis_client(&env->redis);
    assert_int_equal(queue_open(env), 0);
    UNTIL(env, env->queue->view.available && env->queue->standing.subscribed);
}

static void env_free(struct env *env) {
    blasd_front_queue_free(env->queue);
    blasd_worker_queue_free(env->worker);
    if (env->client != NULL) redisFree(env->client);
    redis_end(&env->redis, SIGKILL);
    blasd_loop_free(env->loop);
    blasd_store_free(env->store);
    redis_stop(&env->redis);
    free(env->seen);
    free(env);
}

static int setup(void **state) {
    struct env *env = env_new(NULL);
    env_open(env);
    *state = env;
    return 0;
}

static int teardown(void **state) {
    env_free(*state);
    return 0;
}

/* A worker. */

static redisReply *ask(redisContext *c, const char *fmt, ...) {
    va_list args;
    redisReply *r;
    va_start(args, fmt);
    r = redisvCommand(c, fmt, args);
    va_end(args);
    return r;
}

__attribute__((unused)) static long long ask_number(struct env *env, const char *fmt,
                                                    const char *arg) {
    redisReply *r = ask(env->client, fmt, arg);
    long long n;
    assert_non_null(r);
    assert_int_equal(r->type, REDIS_REPLY_INTEGER);
    n = r->integer;
    freeReplyObject(r);
    return n;
}

/* How many jobs and batch entries are pending. */
__attribute__((unused)) static long long pending_entries(struct env *env) {
    return ask_number(env, "HLEN %s", "{test}:pending") / 2; /* metas and frames */
}

static struct blasd_worker_queue *worker_new(struct env *env) {
    struct blasd_worker_queue *worker = NULL;
    struct blasd_err err;
    if (blasd_worker_queue_open(&env->options, &worker, &err) != 0) fail_msg("%s", err.detail);
    return worker;
}

__attribute__((unused)) static void worker_register(struct env *env) {
    struct blasd_err err;
    int64_t epoch;
    env->worker = worker_new(env);
    if (blasd_worker_queue_register(env->worker, "w1", BLASD_DEVICE_CPU, "{}", &epoch, &err) != 0)
        fail_msg("%s", err.detail);
}

/* Claims jobs and ends them with the record "done ID"; how many, or negative where Redis is away.
 */
static int work(struct blasd_worker_queue *worker) {
    struct blasd_claim claims[256];
    struct blasd_completion completions[256];
    char records[256][64];
    struct blasd_err err;
    bool lost = false;
    int count = 0;
    int result = blasd_worker_queue_claim(worker, 256, BLASD_GIB, claims, &count, &lost, &err);
    if (result != 0 || lost) return -1;
    for (int i = 0; i < count; i++) {
        int len = snprintf(records[i], sizeof records[i], "done %.41s", claims[i].id);
        completions[i] = (struct blasd_completion){
            .id = claims[i].id, .record = records[i], .record_len = (size_t)len};
    }
    /* what is not known to have been heard is said again, or nobody would know that they have ended
     */
    int64_t until = blasd_clock_ns() + 60 * SECOND;
    while (count > 0) {
        result = blasd_worker_queue_finish(worker, completions, count, &lost, &err);
        if (result != -BLASD_E_queue_unavailable || blasd_clock_ns() > until) break;
        usleep(1000);
    }
    return result != 0 || lost ? -1 : count;
}

__attribute__((unused)) static int work_once(struct env *env) {
    return work(env->worker);
}

/* Submitting. */

static void on_submitted(void *arg, const struct blasd_err *err, const char *id, bool repeated) {
    struct seen *s = arg;
    s->answered++;
    s->code = err == NULL ? BLASD_OK : err->code;
    s->repeated = repeated;
    s->order = ++current->order;
    snprintf(s->id, sizeof s->id, "%s", id);
    current->answered++;
    current->accepted += err == NULL;
}

struct want {
    bool watch;
    const char *key, *labels;
    uint64_t fingerprint, cost;
    enum blasd_device_class device;
    int64_t deadline_ms;
    struct blasd_blob *blob;
};

static struct blasd_principal who = {.tenant = "anonymous"}; /* asks, and submits */

/* The frame is only borrowed, and is another one afterwards. */
__attribute__((unused)) static struct seen *submit_frame(struct env *env, struct want want,
                                                         char *frame, size_t len) {
    struct seen *s = &env->seen[env->seen_count++];
    struct blasd_job job = {.op = &echo, .priority = BLASD_PRIORITY_NORMAL};
    struct blasd_submission submission = {.job = &job,
                                          .frame = frame,
                                          .frame_len = len,
                                          .cost_bytes = want.cost == 0 ? 100 : want.cost,
                                          .idempotency_key = want.key,
                                          .fingerprint = want.fingerprint,
                                          .waiter = want.watch ? &s->waiter : NULL,
                                          .blob = want.blob};
    struct blasd_extras extras = {.labels = ""};
    if (want.labels != NULL) snprintf(extras.labels, sizeof extras.labels, "%s", want.labels);
    job.extras = &extras;
    job.device = want.device;
    job.deadline_ms = want.deadline_ms;
    job.payload_in_blob = want.blob != NULL;
    if (want.blob != NULL)
        memcpy(job.id, want.blob->name, BLASD_ID_LEN);
    else
        blasd_id_new(BLASD_ID_SYNC, blasd_clock_wall_us(), job.id);
    memcpy(s->id, job.id, sizeof job.id);
    blasd_front_queue_submit(env->queue, &who, &submission, on_submitted, s);
    memset(frame, 'x', len);
    assert_int_equal(s->answered, 0); /* never from inside the call */
    return s;
}

__attribute__((unused)) static struct seen *submit(struct env *env, struct want want) {
    char frame[] = "a frame";
    return submit_frame(env, want, frame, sizeof frame);
}

struct got {
    int answered;
    enum blasd_code code;
    char record[4096];
    size_t record_len;
    int count;
    struct blasd_blob blob;
    int order;
};

static void on_record(void *arg, const struct blasd_err *err, const void *record, size_t len) {
    struct got *got = arg;
    got->answered++;
    got->code = err == NULL ? BLASD_OK : err->code;
    got->order = ++current->order;
    got->record_len = record_copy(got->record, sizeof got->record, record, len);
}

__attribute__((unused)) static struct got get(struct env *env, const char *id) {
    struct got got = {0};
    blasd_front_queue_get(env->queue, &who, id, on_record, &got);
    assert_int_equal(got.answered, 0);
    UNTIL(env, got.answered == 1);
    return got;
}

__attribute__((unused)) static struct got end(struct env *env, const char *id, bool forget) {
    struct got got = {0};
    blasd_front_queue_cancel(env->queue, &who, id, forget, on_record, &got);
    UNTIL(env, got.answered == 1);
    return got;
}

__attribute__((unused)) static struct got cancel(struct env *env, const char *id) {
    return end(env, id, false);
}

__attribute__((unused)) static void expect_done(const struct seen *s) {
    char record[64];
    snprintf(record, sizeof record, "done %s", s->id);
    assert_int_equal(s->answered, 1);
    assert_int_equal(s->code, BLASD_OK);
    assert_int_equal(s->ended, 1);
    assert_string_equal(s->record, record);
    assert_true(s->order < s->ended_order);
}

#endif
