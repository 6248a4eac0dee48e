/* The front end's queue against a real Redis of its own, as it is used. Read next:
 * test_front_blobs.c, test_front_faults.c. */
#include "front_fixture.h"

static void on_text(void *arg, const struct blasd_err *err, const char *text, size_t len) {
    on_record(arg, err, text, len);
}

static void on_list(void *arg, const struct blasd_err *err, const char *cursor,
                    const void *const *records, const size_t *lens, int count) {
    struct got *got = arg;
    (void)cursor;
    on_record(arg, err, count > 0 ? records[0] : "", count > 0 ? lens[0] : 0);
    got->count = count;
}

static void test_submit_and_end(void **state) {
    struct env *env = *state;
    struct seen *watched, *other;
    struct got got;
    worker_register(env);
    watched = submit(env, (struct want){.watch = true});
    other = submit(env, (struct want){.watch = false});
    UNTIL(env, env->answered == 2);
    assert_int_equal(watched->code, BLASD_OK);
    assert_int_equal(env->queue->view.jobs, 2);
    assert_int_equal(env->queue->view.bytes, 200);
    got = get(env, watched->id);
    assert_int_equal(got.code, BLASD_OK);
    assert_true(record_is(got.record, got.record_len, BLASD_QUEUED));
    assert_int_equal(work_once(env), 2);
    UNTIL(env, env->ended == 1);
    expect_done(watched);
    run_for(env, 50);
    assert_int_equal(other->ended, 0);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
    got = get(env, other->id);
    assert_memory_equal(got.record, "done s", 6);
    UNTIL(env, env->queue->view.jobs == 0 && env->queue->view.workers == 1);
    assert_int_equal(env->queue->view.workers_of[BLASD_DEVICE_CPU], 1);
}

static long long fcalls(struct env *env) {
    redisReply *r = ask(env->client, "INFO commandstats");
    const char *at = r == NULL ? NULL : strstr(r->str, "cmdstat_fcall:calls=");
    long long n = at == NULL ? 0 : atoll(at + strlen("cmdstat_fcall:calls="));
    if (r != NULL) freeReplyObject(r);
    return n;
}

static void test_thousand_in_a_turn(void **state) {
    struct env *env = *state;
    long long before = fcalls(env);
    worker_register(env);
    for (int i = 0; i < 1000; i++) submit(env, (struct want){.watch = true});
    UNTIL(env, env->answered == 1000);
    /* sixteen batches, and what a few ticks and probes needed */
    assert_true(fcalls(env) - before <= 16 + 1 + 10);
    for (int done = 0; done < 1000;) {
        int n = work_once(env);
        assert_true(n > 0);
        done += n;
    }
    UNTIL(env, env->ended == 1000);
    for (int i = 0; i < 1000; i++) expect_done(&env->seen[i]);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
}

/* What else comes is read while the answers on that connection wait. */
static void hold(struct env *env, struct front_connection *connection) {
    blasd_loop_unwatch(env->loop, &connection->link.watcher);
}

static void let(struct env *env, struct front_connection *connection) {
    assert_int_equal(blasd_loop_watch(env->loop, &connection->link.watcher, connection->link.armed),
                     0);
}

static void test_message_first(void **state) {
    struct env *env = *state;
    struct seen *s;
    struct got got = {0};
    worker_register(env);
    s = submit(env, (struct want){.watch = true});
    blasd_front_queue_flush(env->queue);
    hold(env, &env->queue->calls.commands);
    while (work_once(env) == 0) usleep(1000);
    for (int i = 0; i < 20; i++) blasd_loop_step(env->loop, 5);
    assert_int_equal(s->answered, 0);
    assert_int_equal(s->ended, 0);
    let(env, &env->queue->calls.commands);
    UNTIL(env, s->ended == 1);
    expect_done(s);
    /* the same for a watch of a job that was submitted without one */
    s = submit(env, (struct want){.watch = false});
    UNTIL(env, s->answered == 1);
    blasd_front_queue_watch(env->queue, &who, s->id, &s->waiter, on_record, &got);
    blasd_front_queue_flush(env->queue);
    hold(env, &env->queue->calls.reads);
    usleep(50000); /* Redis takes the watch before the job ends */
    assert_int_equal(work_once(env), 1);
    for (int i = 0; i < 20; i++) blasd_loop_step(env->loop, 5);
    assert_int_equal(s->ended, 0);
    let(env, &env->queue->calls.reads);
    UNTIL(env, s->ended == 1);
    assert_true(record_is(got.record, got.record_len, BLASD_QUEUED));
    assert_true(got.order < s->ended_order);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
}

/* A promise that goes out behind a long reply may be ahead of Redis' file (struct front_calls). */
static void test_no_promise_behind_long_replies(void **state) {
    struct env *env = *state;
    struct front_connection *reads = &env->queue->calls.reads;
    struct got got[2] = {0};
    struct seen *first = submit(env, (struct want){.watch = false}), *second;
    UNTIL(env, first->answered == 1);
    UNTIL(env, reads->link.state == BLASD_LINK_UP);
    hold(env, reads);
    blasd_front_queue_get(env->queue, &who, first->id, on_record, &got[0]);
    second = submit(env, (struct want){.watch = false});
    blasd_front_queue_get(env->queue, &who, first->id, on_record, &got[1]);
    UNTIL(env, second->answered == 1);
    assert_int_equal(got[0].answered + got[1].answered, 0);
    let(env, reads);
    UNTIL(env, got[0].answered == 1 && got[1].answered == 1);
    assert_true(record_is(got[1].record, got[1].record_len, BLASD_QUEUED));
}

static void count_end(struct blasd_waiter *waiter, const void *record, size_t len) {
    (void)waiter, (void)record, (void)len;
    current->ended++;
}

static void test_watch_elsewhere(void **state) {
    struct env *env = *state;
    struct blasd_front_queue *mine = env->queue, *other;
    struct got got = {0}, late = {0}, missing = {0};
    struct blasd_waiter waiter[3] = {
        {.ended = count_end}, {.ended = count_end}, {.ended = count_end}};
    char id[BLASD_ID_LEN + 1];
    struct seen *s;
    worker_register(env);
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    assert_int_equal(queue_open(env), 0);
    other = env->queue;
    blasd_front_queue_watch(other, &who, s->id, &waiter[0], on_record, &got);
    UNTIL(env, got.answered == 1);
    assert_true(record_is(got.record, got.record_len, BLASD_QUEUED));
    UNTIL(env, other->standing.subscribed);
    assert_int_equal(work_once(env), 1);
    for (int64_t end = blasd_clock_ns() + 5 * SECOND; env->ended < 2 && blasd_clock_ns() < end;) {
        blasd_front_queue_flush(mine);
        turn(env, 5);
    }
    assert_int_equal(env->ended, 2); /* once for each of the two front ends */
    /* of a job that has ended there is nothing to wait for */
    blasd_front_queue_watch(other, &who, s->id, &waiter[1], on_record, &late);
    blasd_id_new(BLASD_ID_SYNC, blasd_clock_wall_us(), id);
    blasd_front_queue_watch(other, &who, id, &waiter[2], on_record, &missing);
    UNTIL(env, late.answered == 1 && missing.answered == 1);
    assert_memory_equal(late.record, "done ", 5);
    assert_int_equal(missing.code, BLASD_E_job_not_found);
    assert_int_equal(other->waiters.by_id.count, 0);
    assert_int_equal(mine->waiters.by_id.count, 0);
    run_for(env, 30);
    assert_int_equal(env->ended, 2);
    blasd_front_queue_free(other);
    env->queue = mine;
}

static void test_unwatch(void **state) {
    struct env *env = *state;
    struct seen *first, *second;
    worker_register(env);
    first = submit(env, (struct want){.watch = true});
    second = submit(env, (struct want){.watch = true});
    blasd_front_queue_unwatch(env->queue, &first->waiter); /* before it is answered */
    UNTIL(env, env->answered == 2);
    blasd_front_queue_unwatch(env->queue, &second->waiter);
    blasd_front_queue_unwatch(env->queue, &second->waiter);
    assert_int_equal(work_once(env), 2);
    run_for(env, 50);
    assert_int_equal(env->ended, 0);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
}

static void test_cancel(void **state) {
    struct env *env = *state;
    struct blasd_blob blob = {0};
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1], name[BLASD_BLOB_NAME], path[256];
    struct seen *s;
    struct got got;
    blasd_id_new(BLASD_ID_ASYNC, blasd_clock_wall_us(), id);
    snprintf(name, sizeof name, "%s.in", id);
    assert_int_equal(blasd_blob_create(env->store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, 100, &err), 0);
    s = submit(env, (struct want){.watch = true, .blob = &blob});
    UNTIL(env, s->answered == 1);
    blasd_blob_close(&blob);
    snprintf(path, sizeof path, "%s/blobs/%s", env->redis.dir, name);
    assert_int_equal(access(path, F_OK), 0);
    got = cancel(env, s->id);
    assert_true(record_is(got.record, got.record_len, BLASD_CANCELLED));
    assert_true(access(path, F_OK) != 0);
    UNTIL(env, s->ended == 1);
    assert_true(record_is(s->record, s->record_len, BLASD_CANCELLED));
    got = get(env, s->id);
    assert_true(record_is(got.record, got.record_len, BLASD_CANCELLED));
    assert_int_equal(cancel(env, s->id).code, BLASD_E_job_ended);
    assert_int_equal(get(env, s->id).code, BLASD_OK);
    got = end(env, s->id, true); /* is forgotten now */
    assert_int_equal(got.code, BLASD_OK);
    assert_true(record_is(got.record, got.record_len, BLASD_CANCELLED));
    assert_int_equal(get(env, s->id).code, BLASD_E_job_not_found);
    assert_int_equal(cancel(env, s->id).code, BLASD_E_job_not_found);
    assert_int_equal(get(env, "../../etc").code, BLASD_E_job_not_found);
}

static struct got list(struct env *env, int state, int limit) {
    struct got got = {0};
    blasd_front_queue_list(
        env->queue, &who,
        &(struct blasd_list_query){.state = state, .before_us = INT64_MAX, .limit = limit}, on_list,
        &got);
    UNTIL(env, got.answered == 1);
    assert_int_equal(got.code, BLASD_OK);
    return got;
}

/* Many at once are made one after the other, and all are answered; jobs pass them by. */
static void test_lists_take_turns(void **state) {
    enum { LISTS = 12 };
    struct env *env = *state;
    static struct got got[LISTS];
    int listed = 0;
    memset(got, 0, sizeof got);
    for (int i = 0; i < LISTS; i++)
        blasd_front_queue_list(
            env->queue, &who,
            &(struct blasd_list_query){.state = -1, .before_us = INT64_MAX, .limit = 10}, on_list,
            &got[i]);
    submit(env, (struct want){0});
    UNTIL(env, env->answered == 1);
    for (int i = 0; i < LISTS; i++) listed += got[i].answered;
    assert_in_range(listed, 0, LISTS - 1);
    for (int i = 0; i < LISTS; i++) {
        UNTIL(env, got[i].answered == 1);
        assert_int_equal(got[i].code, BLASD_OK);
    }
    /* what waits when the queue is freed is freed with it */
    for (int i = 0; i < LISTS; i++)
        blasd_front_queue_list(
            env->queue, &who,
            &(struct blasd_list_query){.state = -1, .before_us = INT64_MAX, .limit = 10}, on_list,
            &got[i]);
}

static void test_list_and_stats(void **state) {
    struct env *env = *state;
    struct got got = {0};
    assert_int_equal(list(env, -1, 10).count, 0);
    worker_register(env);
    for (int i = 0; i < 3; i++) submit(env, (struct want){.watch = true});
    UNTIL(env, env->answered == 3);
    assert_int_equal(work_once(env), 3);
    UNTIL(env, env->ended == 3);
    submit(env, (struct want){0});
    submit(env, (struct want){0});
    UNTIL(env, env->answered == 5);
    assert_int_equal(cancel(env, env->seen[4].id).code, BLASD_OK);
    assert_int_equal(list(env, BLASD_QUEUED, 10).count, 1);
    assert_int_equal(list(env, BLASD_RUNNING, 10).count, 0);
    assert_int_equal(list(env, -1, 10).count, 5);
    assert_int_equal(list(env, BLASD_SUCCEEDED, 10).count, 3); /* without the cancelled one */
    blasd_front_queue_figures(env->queue, &(struct blasd_figures_query){0}, on_text, &got);
    UNTIL(env, got.answered == 1);
    assert_non_null(strstr(got.record, "\"workers\":{\"w1\":{}},\"queue\":"));
    if (strstr(got.record, "\"echo submitted\":5") == NULL) fail_msg("%s", got.record);
    assert_non_null(strstr(got.record, "\"echo cancelled\":1"));
}

static void test_idempotency(void **state) {
    struct env *env = *state;
    struct seen *first, *again, *other, *late;
    worker_register(env);
    first = submit(env, (struct want){.watch = true, .key = "a key: with\ttabs", .fingerprint = 7});
    UNTIL(env, env->answered == 1);
    again = submit(env, (struct want){.watch = true, .key = "a key: with\ttabs", .fingerprint = 7});
    other = submit(env, (struct want){.watch = true, .key = "a key: with\ttabs", .fingerprint = 8});
    UNTIL(env, env->answered == 3);
    assert_int_equal(again->code, BLASD_OK);
    assert_true(again->repeated);
    assert_false(first->repeated);
    assert_string_equal(again->id, first->id);
    assert_int_equal(other->code, BLASD_E_idempotency_conflict);
    assert_int_equal(env->queue->waiters.by_id.count, 2);
    assert_int_equal(work_once(env), 1);
    UNTIL(env, env->ended == 2);
    expect_done(first);
    expect_done(again);
    assert_true(first->waiter.again != again->waiter.again); /* one of them was told first */
    /* an ended job's record comes at once */
    late = submit(env, (struct want){.watch = true, .key = "a key: with\ttabs", .fingerprint = 7});
    UNTIL(env, env->ended == 3);
    assert_true(late->repeated);
    assert_memory_equal(late->record, "done ", 5);
    assert_true(late->order < late->ended_order);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
    assert_int_equal(work_once(env), 0);
}

/* A repeated job of another front end ends between the answer's making and its reading. */
static void test_idempotency_race(void **state) {
    struct env *env = *state;
    struct seen *first, *again;
    worker_register(env);
    first = submit(env, (struct want){.watch = false, .key = "k", .fingerprint = 1});
    UNTIL(env, env->answered == 1);
    again = submit(env, (struct want){.watch = true, .key = "k", .fingerprint = 1});
    blasd_front_queue_flush(env->queue);
    hold(env, &env->queue->calls.commands);
    usleep(50000);
    assert_int_equal(work_once(env), 1);
    for (int i = 0; i < 20; i++) blasd_loop_step(env->loop, 5);
    let(env, &env->queue->calls.commands);
    UNTIL(env, again->ended == 1);
    assert_string_equal(again->id, first->id);
    assert_true(again->order < again->ended_order);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
}

static void test_no_such_device(void **state) {
    struct env *env = *state;
    struct seen *cuda, *cpu;
    cuda = submit(env, (struct want){.device = BLASD_DEVICE_CUDA, .watch = true});
    submit(env, (struct want){.device = BLASD_DEVICE_ANY});
    UNTIL(env, env->answered == 2);
    assert_int_equal(cuda->code, BLASD_E_no_such_device);
    assert_int_equal(env->seen[1].code, BLASD_OK);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
    worker_register(env);
    UNTIL(env, env->queue->view.workers == 1);
    cuda = submit(env, (struct want){.device = BLASD_DEVICE_CUDA});
    cpu = submit(env, (struct want){.device = BLASD_DEVICE_CPU});
    UNTIL(env, env->answered == 4);
    assert_int_equal(cuda->code, BLASD_E_no_such_device);
    assert_int_equal(cpu->code, BLASD_OK);
    assert_int_equal(work_once(env), 2);
}

/* Where workers are started as work comes, what is asked for waits for one. */
static void test_device_to_come(void **state) {
    struct env *env = env_new(NULL);
    struct seen *cuda;
    (void)state;
    env->limits.ready_workers = 0;
    env_open(env);
    worker_register(env);
    UNTIL(env, env->queue->view.workers == 1);
    cuda = submit(env, (struct want){.device = BLASD_DEVICE_CUDA});
    UNTIL(env, env->answered == 1);
    assert_int_equal(cuda->code, BLASD_OK);
    assert_int_equal(work_once(env), 0); /* it is not for that worker */
    env_free(env);
}

static void test_queue_full(void **state) {
    struct env *env = env_new(NULL);
    (void)state;
    env->limits.queue_jobs = 5;
    env->limits.queue_bytes = 1000;
    env_open(env);
    for (int i = 0; i < 4; i++) submit(env, (struct want){.watch = true});
    submit(env, (struct want){.watch = true, .cost = 601});
    submit(env, (struct want){.watch = true, .cost = 600});
    submit(env, (struct want){.watch = true});
    UNTIL(env, env->answered == 7);
    for (int i = 0; i < 7; i++)
        assert_int_equal(env->seen[i].code, i == 4 || i == 6 ? BLASD_E_queue_full : BLASD_OK);
    assert_int_equal(env->queue->waiters.by_id.count, 5);
    assert_int_equal(env->queue->view.jobs, 5);
    assert_int_equal(env->queue->view.jobs_limit, 5);
    env_free(env);
}

/* Each fires at its own time, not with the housekeeping that comes once a second, which would be
 * in time for two or three; where the machine stands still others may be late. */
static void test_deadline(void **state) {
    struct env *env = *state;
    struct seen *s[20];
    int late = 0;
    int64_t start = blasd_clock_ns();
    for (int i = 0; i < 20; i++)
        s[i] = submit(env, (struct want){.watch = true, .deadline_ms = 150 + 40 * i});
    UNTIL(env, env->ended == 20);
    for (int i = 0; i < 20; i++) {
        int64_t took_ms = (s[i]->ended_ns - start) / BLASD_MS;
        assert_true(record_is(s[i]->record, s[i]->record_len, BLASD_EXPIRED));
        if (took_ms < 150 + 40 * i)
            fail_msg("deadline of %d ms fired after %d ms", 150 + 40 * i, (int)took_ms);
        late += took_ms > 150 + 40 * i + 100;
    }
    assert_true(late <= 15);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_submit_and_end),
        TEST(test_thousand_in_a_turn),
        TEST(test_message_first),
        TEST(test_no_promise_behind_long_replies),
        TEST(test_watch_elsewhere),
        TEST(test_unwatch),
        TEST(test_cancel),
        TEST(test_list_and_stats),
        TEST(test_lists_take_turns),
        TEST(test_idempotency),
        TEST(test_idempotency_race),
        TEST(test_no_such_device),
        cmocka_unit_test(test_device_to_come),
        cmocka_unit_test(test_queue_full),
        TEST(test_deadline),
    };
    signal(SIGPIPE, SIG_IGN); /* hiredis writes to connections that may have gone */
    return cmocka_run_group_tests_name("front_queue", tests, NULL, NULL);
}
