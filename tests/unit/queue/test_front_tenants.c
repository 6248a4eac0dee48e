/* Tenants as a front end serves them: who waits is told, whoever it is; nobody learns that another
 * had a job; what a tenant's limits refuse. */
#include "front_fixture.h"

static void as(const char *tenant) {
    who = (struct blasd_principal){.weight = 1};
    snprintf(who.tenant, sizeof who.tenant, "%s", tenant);
}

static void nobody_else_finds_it(void **state) {
    struct env *env = *state;
    struct got got = {0};
    struct blasd_waiter waiter = {.ended = on_ended};
    as("ann");
    struct seen *s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered);
    assert_int_equal(s->code, BLASD_OK);
    as("ben");
    assert_int_equal(get(env, s->id).code, BLASD_E_job_not_found);
    blasd_front_queue_cancel(env->queue, &who, s->id, true, on_record, &got);
    UNTIL(env, got.answered == 1);
    assert_int_equal(got.code, BLASD_E_job_not_found);
    blasd_front_queue_keep(env->queue, &who, s->id, on_record, &got);
    UNTIL(env, got.answered == 2);
    assert_int_equal(got.code, BLASD_E_job_not_found);
    blasd_front_queue_watch(env->queue, &who, s->id, &waiter, on_record, &got);
    UNTIL(env, got.answered == 3);
    assert_int_equal(got.code, BLASD_E_job_not_found);
    assert_false(waiter.waits);
    worker_register(env);
    assert_int_equal(work_once(env), 1);
    UNTIL(env, s->ended == 1);
    expect_done(s);
    assert_int_equal(get(env, s->id).code, BLASD_E_job_not_found);
    as("ann");
    assert_int_equal(get(env, s->id).code, BLASD_OK);
}

/* Messages that were missed are asked for, each by its tenant. */
static void all_are_told_after_a_break(void **state) {
    static const char *const names[] = {"ann", "ben", "cid"};
    struct env *env = *state;
    for (int i = 0; i < 60; i++) {
        as(names[i % 3]);
        submit(env, (struct want){.watch = true});
    }
    UNTIL(env, env->answered == 60);
    blasd_async_link_drop(&env->queue->replies, "a test");
    worker_register(env);
    for (int done = 0; done < 60;) done += work_once(env);
    UNTIL(env, env->ended == 60);
    for (int i = 0; i < 60; i++) expect_done(&env->seen[i]);
}

/* Who asks for another's job while all waiters are asked for anew ends no wait but his own. */
static void nobody_else_ends_a_wait(void **state) {
    struct env *env = *state;
    struct seen *s, *after;
    struct blasd_waiter waiter = {.ended = on_ended};
    as("ann");
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered);
    front_wait_begin(env->queue, "ben", &waiter, s->id); /* a call of his is in flight */
    blasd_async_link_drop(&env->queue->replies, "a test");
    UNTIL(env, !env->queue->standing.subscribed);
    UNTIL(env, env->queue->standing.subscribed && !env->queue->standing.rewatch);
    after = submit(env, (struct want){.watch = true}); /* is answered after those questions */
    UNTIL(env, after->answered);
    assert_int_equal(env->ended, 0);
    (void)front_wait_settle(env->queue, &waiter, false);
    worker_register(env);
    for (int done = 0; done < 2;) done += work_once(env);
    UNTIL(env, env->ended == 2);
    expect_done(s);
    expect_done(after);
}

/* An id of long ago: only whose it was is told that it has expired. */
static void only_ones_own_expires(void **state) {
    struct env *env = *state;
    char id[BLASD_ID_LEN + 1];
    as("ann");
    struct blasd_id_key key = front_id_key(env->queue, &who);
    blasd_id_new(BLASD_ID_ASYNC, blasd_clock_wall_us() - 1000000 * INT64_C(1000000), id);
    blasd_id_sign(id, &key, 0);
    assert_int_equal(get(env, id).code, BLASD_E_record_expired);
    as("ben");
    assert_int_equal(get(env, id).code, BLASD_E_job_not_found);
    as("anonymous");
    assert_int_equal(get(env, id).code, BLASD_E_job_not_found);
}

static struct blasd_err refusal;

static void on_refused(void *arg, const struct blasd_err *err, const char *id, bool repeated) {
    (void)id, (void)repeated;
    ++*(int *)arg;
    refusal = err != NULL ? *err : (struct blasd_err){0};
}

/* Submits one that may be refused. */
static void try_one(struct env *env) {
    struct blasd_job job = {.op = &echo, .priority = BLASD_PRIORITY_NORMAL};
    struct blasd_submission submission = {
        .job = &job, .frame = "x", .frame_len = 1, .cost_bytes = 100, .work_s = 0.002};
    int answered = 0;
    blasd_front_queue_id(env->queue, &who, BLASD_ID_ASYNC, job.id);
    blasd_front_queue_submit(env->queue, &who, &submission, on_refused, &answered);
    UNTIL(env, answered == 1);
}

static void limits_refuse(void **state) {
    struct env *env = *state;
    as("ann");
    who.quotas.jobs = 2;
    try_one(env);
    try_one(env);
    assert_int_equal(refusal.code, BLASD_OK);
    try_one(env);
    assert_int_equal(refusal.code, BLASD_E_quota_exceeded);
    assert_string_equal(refusal.field, "jobs");
    assert_non_null(strstr(refusal.detail, " 2 "));
    who.quotas.jobs = 0;
    who.quotas.bytes = 250;
    try_one(env);
    assert_int_equal(refusal.code, BLASD_E_quota_exceeded);
    assert_string_equal(refusal.field, "bytes");
    as("ben");
    try_one(env);
    assert_int_equal(refusal.code, BLASD_OK);
    worker_register(env);
    assert_int_equal(work_once(env), 2); /* of each tenant what a share allows at once */
    assert_int_equal(work_once(env), 1);
    as("ann");
    who.quotas.stored_bytes = 1;
    try_one(env);
    assert_int_equal(refusal.code, BLASD_E_quota_exceeded);
    assert_string_equal(refusal.field, "stored_bytes");
    who.quotas.stored_bytes = 1000000;
    try_one(env);
    assert_int_equal(refusal.code, BLASD_OK);
}

static int lists_of[2];

static void on_list(void *arg, const struct blasd_err *err, const char *cursor,
                    const void *const *records, const size_t *lens, int count) {
    (void)cursor, (void)records, (void)lens, (void)count;
    assert_null(err);
    ++*(int *)arg;
}

/* Who asks for many lists at once keeps nobody else waiting for one. */
static void lists_go_in_turns(void **state) {
    const struct blasd_list_query query = {.state = -1, .before_us = INT64_MAX, .limit = 10};
    struct env *env = *state;
    lists_of[0] = lists_of[1] = 0;
    as("ann");
    for (int i = 0; i < 30; i++)
        blasd_front_queue_list(env->queue, &who, &query, on_list, &lists_of[0]);
    as("ben");
    for (int i = 0; i < 3; i++)
        blasd_front_queue_list(env->queue, &who, &query, on_list, &lists_of[1]);
    UNTIL(env, lists_of[1] == 3);
    assert_true(lists_of[0] <= 4);
    UNTIL(env, lists_of[0] == 30);
}

/* How many jobs of others there are is nobody's business. */
static void a_full_queue_tells_no_numbers(void **state) {
    struct env *env = env_new(NULL);
    (void)state;
    env->limits.queue_jobs = 12;
    env->limits.queue_bytes = 123456;
    env_open(env);
    as("ann");
    for (int i = 0; i < 10; i++) try_one(env);
    assert_int_equal(refusal.code, BLASD_OK);
    try_one(env); /* one tenant does not fill it */
    assert_int_equal(refusal.code, BLASD_E_quota_exceeded);
    as("ben");
    for (int i = 0; i < 2; i++) try_one(env);
    assert_int_equal(refusal.code, BLASD_OK);
    try_one(env);
    assert_int_equal(refusal.code, BLASD_E_queue_full);
    assert_null(strstr(refusal.detail, "1200")); /* bytes that are there */
    env_free(env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_else_finds_it, setup, teardown),
        cmocka_unit_test_setup_teardown(all_are_told_after_a_break, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_else_ends_a_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_go_in_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(only_ones_own_expires, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_refuse, setup, teardown),
        cmocka_unit_test(a_full_queue_tells_no_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
