/* Crashes under load: redis-server killed and started again on its files, workers killed in the
 * middle of batches. No job that was acknowledged may be lost, none may end twice. */
#include "../child_fork.h"
#include "redis_fixture.h"

#include "queue/worker_side.h"

#include <pthread.h>
#include <stdatomic.h>

enum { JOBS_MOST = 200000, BATCH = 16, KILLS = 5, BETWEEN = 1000 };

static char (*acknowledged)[BLASD_ID_LEN + 1];

struct load {
    struct bed *bed;
    _Atomic bool stop_submit, stop_work;
    _Atomic int submitted, ended;
    char trouble[160];
    pthread_t threads[2]; /* the worker, the submitter */
    int running;          /* of them, from the first on */
};
static struct load under_way;

static redisContext *reconnect(const char *url) {
    struct blasd_link_address address;
    redisContext *redis = NULL;
    if (blasd_link_parse(url, "crash", &address, NULL) == 0)
        blasd_link_connect(&address, TIMEOUT_MS, &redis, NULL);
    return redis;
}

/* Whose a job is, of two tenants: its id tells it here. */
static const char *tenant_of(const char *id) {
    return id[BLASD_ID_LEN - 1] < '8' ? "ann" : "ben";
}

/* Submits batches; only what was acknowledged is noted. */
static void *submitter(void *arg) {
    struct load *load = arg;
    static char ids[BATCH][BLASD_ID_LEN + 1];
    const char *argv[7 + 6 * BATCH] = {"FCALL",        BLASD_QUEUE_FN("submit"), "1",
                                       load->bed->tag, load->bed->link.text,     "test"};
    redisContext *redis = NULL;
    while (!atomic_load(&load->stop_submit)) {
        int n = atomic_load(&load->submitted);
        if (n + BATCH > JOBS_MOST) break;
        if (!redis) redis = reconnect(load->bed->options.url);
        if (!redis) {
            sleep_ms(5);
            continue;
        }
        for (int i = 0; i < BATCH; i++) {
            const char **a = &argv[7 + 6 * i];
            blasd_id_new(BLASD_ID_ASYNC, blasd_clock_wall_us(), ids[i]);
            a[0] = a[1] = ids[i];
            a[2] = "2";
            a[3] = "100";
            a[4] = "";
            a[5] = strcmp(tenant_of(ids[i]), "ann") == 0 ? "\tnobody\tmatmul\tann\t100 1 0 0 0"
                                                         : "\tnobody\tmatmul\tben\t300 1 0 0 0";
        }
        argv[6] = submit_seq(false);
        redisReply *reply = redisCommandArgv(redis, 7 + 6 * BATCH, argv, NULL);
        if (!reply || redis->err) {
            redisFree(redis);
            redis = NULL;
        } else if (reply->type == REDIS_REPLY_ARRAY) {
            for (int i = 0; i < BATCH; i++)
                if (reply->element[3 + i]->integer == 0)
                    memcpy(acknowledged[n++], ids[i], sizeof ids[i]);
            atomic_store(&load->submitted, n);
        }
        freeReplyObject(reply);
    }
    if (redis) redisFree(redis);
    return NULL;
}

/* A worker that takes queue_unavailable as "try again", as workers do. */
static void *worker(void *arg) {
    struct load *load = arg;
    static struct blasd_claim claims[64];
    static struct blasd_completion completions[64];
    struct blasd_worker_queue *queue = NULL;
    struct blasd_err err = {0};
    int64_t epoch, renewed = blasd_clock_ns();
    bool lost = true;
    int rc = blasd_worker_queue_open(&load->bed->options, &queue, &err);
    while (!atomic_load(&load->stop_work) && (rc == 0 || rc == -(int)BLASD_E_queue_unavailable)) {
        const char *ids[64];
        int count = 0;
        if (lost) {
            rc = blasd_worker_queue_register(queue, "w", BLASD_DEVICE_CPU, INFO_CPU, &epoch, &err);
            if (rc == 0) lost = false;
            continue;
        }
        if (blasd_clock_ns() - renewed > 500000000) {
            renewed = blasd_clock_ns();
            rc = blasd_worker_queue_renew(queue, INFO_CPU, &lost, &err);
            if (lost) continue;
        }
        rc = blasd_worker_queue_claim(queue, 64, PLENTY, claims, &count, &lost, &err);
        if (rc < 0 || lost) continue;
        if (count == 0) blasd_worker_queue_wait(queue, 50, &err);
        for (int i = 0; i < count; i++) {
            ids[i] = claims[i].id;
            completions[i] = (struct blasd_completion){
                .id = claims[i].id, .record = claims[i].id, .record_len = BLASD_ID_LEN};
        }
        if (count) blasd_worker_queue_begin(queue, ids, count, &err);
        do {
            rc = blasd_worker_queue_finish(queue, completions, count, &lost, &err);
        } while (rc == -(int)BLASD_E_queue_unavailable && !atomic_load(&load->stop_work));
        for (int i = 0; i < count; i++)
            if (completions[i].accepted) atomic_fetch_add(&load->ended, 1);
    }
    if (rc < 0 && rc != -(int)BLASD_E_queue_unavailable)
        snprintf(load->trouble, sizeof load->trouble, "%.150s", err.detail);
    blasd_worker_queue_free(queue);
    return NULL;
}

/* Every acknowledged job has its own record; returns how many have not. */
static int missing(struct bed *bed, int count) {
    int bad = 0;
    for (int i = 0; i < count; i++) {
        tenant = tenant_of(acknowledged[i]);
        redisReply *reply = fcall(bed, "get", acknowledged[i], NULL);
        const redisReply *r = reply->element[0];
        bad += r->type != REDIS_REPLY_STRING || strcmp(r->str, acknowledged[i]) != 0;
        drop(reply);
    }
    tenant = "anonymous";
    return bad;
}

/* Under load means: as many were acknowledged, and as many ended, since the last kill. */
static void await_jobs(struct load *load, int count) {
    for (int i = 0; i < TIMEOUT_MS; i++) {
        if (load->submitted >= count && load->ended >= count) return;
        sleep_ms(1);
    }
    fail_msg("%d submitted and %d ended, not %d", load->submitted, load->ended, count);
}

/* Also of a test that failed. */
static int load_end(void **state) {
    (void)state;
    atomic_store(&under_way.stop_submit, true);
    atomic_store(&under_way.stop_work, true);
    while (under_way.running > 0) pthread_join(under_way.threads[--under_way.running], NULL);
    return 0;
}

static void test_redis_killed(void **state) {
    static struct bed bed;
    (void)state;
    under_way.bed = &bed;
    acknowledged = calloc(JOBS_MOST, sizeof *acknowledged);
    assert_non_null(acknowledged);
    bed_open(&bed, &server, "crash");
    assert_int_equal(pthread_create(&under_way.threads[0], NULL, worker, &under_way), 0);
    under_way.running++;
    assert_int_equal(pthread_create(&under_way.threads[1], NULL, submitter, &under_way), 0);
    under_way.running++;
    for (int i = 0; i < KILLS; i++) {
        await_jobs(&under_way, (i + 1) * BETWEEN + 77 * i);
        redis_end(&server, SIGKILL);
        redis_up(&server);
    }
    await_jobs(&under_way, (KILLS + 1) * BETWEEN);
    atomic_store(&under_way.stop_submit, true);
    pthread_join(under_way.threads[--under_way.running], NULL);
    redisFree(bed.raw);
    bed_connect(&bed);
    int submitted = atomic_load(&under_way.submitted);
    for (int i = 0; i < TIMEOUT_MS / 10 && pending(&bed) > 0; i++) sleep_ms(10);
    assert_int_equal(pending(&bed), 0);
    load_end(state);
    assert_string_equal(under_way.trouble, "");
    print_message("%d jobs acknowledged, %d completions accepted, %d kills\n", submitted,
                  atomic_load(&under_way.ended), KILLS);
    assert_int_equal(missing(&bed, submitted), 0);
    /* jobs whose acknowledgement was lost are there too, so there may be more completions, but each
     * is told as accepted at least once and no more often than there are records */
    assert_int_equal(pending(&bed), 0);
    assert_int_equal(counted(&bed, "bytes"), 0);
    assert_true(atomic_load(&under_way.ended) >= submitted);
    assert_true(atomic_load(&under_way.ended) <= submitted + (KILLS + 1) * BATCH);
    free(acknowledged);
    bed_close(&bed);
}

/* A worker process: claims, begins, takes its time, ends. Never returns. */
static void labour(struct bed *bed, const char *name) {
    struct blasd_claim claims[8];
    struct blasd_worker_queue *queue;
    struct blasd_err err;
    int64_t epoch;
    bool lost = false;
    if (blasd_worker_queue_open(&bed->options, &queue, &err) < 0 ||
        blasd_worker_queue_register(queue, name, BLASD_DEVICE_CPU, INFO_CPU, &epoch, &err) < 0)
        _exit(1);
    while (!lost) {
        const char *ids[8];
        int count = 0;
        if (blasd_worker_queue_claim(queue, 8, PLENTY, claims, &count, &lost, &err) < 0) _exit(1);
        if (count == 0 && !lost) {
            blasd_worker_queue_wait(queue, 200, &err);
            blasd_worker_queue_renew(queue, INFO_CPU, &lost, &err);
        }
        for (int i = 0; i < count; i++) ids[i] = claims[i].id;
        if (count) blasd_worker_queue_begin(queue, ids, count, &err);
        for (int i = 0; i < count; i++) {
            struct blasd_completion completion = {
                .id = ids[i], .record = ids[i], .record_len = BLASD_ID_LEN};
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
            if (blasd_worker_queue_finish(queue, &completion, 1, &lost, &err) < 0) _exit(1);
        }
    }
    _exit(0);
}

static pid_t labour_start(struct bed *bed, const char *name) {
    pid_t pid = child_fork();
    if (pid == 0) labour(bed, name);
    assert_true(pid > 0);
    return pid;
}

static void test_workers_killed(void **state) {
    enum { JOBS = 2000, HANDS = 2, DEATHS = 25 };
    static const char *const names[HANDS] = {"h0", "h1"};
    struct bed bed;
    struct blasd_err err;
    pid_t pids[HANDS];
    (void)state;
    acknowledged = calloc(JOBS, sizeof *acknowledged);
    assert_non_null(acknowledged);
    bed_open(&bed, &server, "deaths");
    bed.limits.attempts = 100;
    bed_limits(&bed);
    struct blasd_worker_queue *super;
    assert_int_equal(blasd_worker_queue_open(&bed.options, &super, &err), 0);
    for (int i = 0; i < JOBS; i++) {
        id_make(acknowledged[i], BLASD_ID_ASYNC, 0);
        tenant = tenant_of(acknowledged[i]);
        assert_int_equal(submit_as(&bed, acknowledged[i], "2", "100", "", ""), 0);
    }
    for (int h = 0; h < HANDS; h++) pids[h] = labour_start(&bed, names[h]);
    for (int i = 0; i < DEATHS; i++) {
        int h = i % HANDS;
        sleep_ms(7 + i % 5 * 4);
        kill(pids[h], SIGKILL);
        waitpid(pids[h], NULL, 0);
        if (i % 5 != 4) /* else the new holder of the name takes over */
            expire_worker(&bed, names[h]);
        pids[h] = labour_start(&bed, names[h]);
    }
    for (int i = 0; i < TIMEOUT_MS / 10 && pending(&bed) > 0; i++) sleep_ms(10);
    assert_int_equal(pending(&bed), 0);
    for (int h = 0; h < HANDS; h++) {
        kill(pids[h], SIGKILL);
        waitpid(pids[h], NULL, 0);
    }
    assert_int_equal(missing(&bed, JOBS), 0);
    blasd_worker_queue_free(super);
    free(acknowledged);
    bed_close(&bed);
}

/* What a worker notes as begun after another has taken its name says nothing of that one's jobs. */
static void test_begun_too_late(void **state) {
    struct bed bed;
    struct blasd_claim old_claims[1], claims[1];
    bool lost = false;
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "late");
    struct blasd_worker_queue *old = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    assert_int_equal(claim(old, 1, PLENTY, old_claims), 1);
    assert_string_equal(record_line(&bed, id, LINE_STATE), "queued");
    begin(old, old_claims, 1);
    expect_line(&bed, id, LINE_STATE, "running"); /* nobody waits for its reply */
    struct blasd_worker_queue *heir = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(heir, 1, PLENTY, claims), 1);
    assert_int_equal(claims[0].attempts, 1);
    begin(old, old_claims, 1);
    assert_int_equal(blasd_worker_queue_renew(old, INFO_CPU, &lost, &err), 0);
    assert_true(lost);
    assert_string_equal(record_line(&bed, id, LINE_STATE), "queued");
    assert_string_equal(record_line(&bed, id, LINE_ATTEMPTS), "1");
    struct blasd_worker_queue *third = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(third, 1, PLENTY, claims), 1);
    assert_int_equal(claims[0].attempts, 1); /* the heir had not begun it */
    begin(third, claims, 1);
    expire_worker(&bed, "w");
    assert_string_equal(record_line(&bed, id, LINE_ATTEMPTS), "2");
    blasd_worker_queue_free(old);
    blasd_worker_queue_free(heir);
    blasd_worker_queue_free(third);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begun_too_late),
        cmocka_unit_test_teardown(test_redis_killed, load_end),
        cmocka_unit_test(test_workers_killed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
