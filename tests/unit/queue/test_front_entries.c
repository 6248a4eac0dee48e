/* Batch entries as the front end makes them: which jobs share one, what becomes of each where Redis
 * refuses a part, and where connections are lost on the way. */
#include "front_fixture.h"
#include "lossy.h"

/* A kind of jobs that can run as one. */
struct kind {
    int batch_key; /* 0: none */
    struct want want;
    enum blasd_priority priority;
    bool async;
    size_t frame; /* bytes of it */
};

/* Joins, and submits unless the frame cannot be written. */
static struct seen *send_job(struct env *env, struct kind kind, bool fails) {
    static char frame[100000];
    struct seen *s = fails ? NULL : &env->seen[env->seen_count++];
    struct blasd_waiter nobody = {0}, *waiter = fails ? &nobody : &s->waiter;
    struct blasd_job job = {.op = &echo,
                            .priority = kind.priority,
                            .device = kind.want.device,
                            .deadline_ms = kind.want.deadline_ms,
                            .payload_bytes = kind.frame};
    struct blasd_key batch_key = {0};
    blasd_key_add_int(&batch_key, kind.batch_key);
    struct blasd_submission submission = {.job = &job,
                                          .frame = frame,
                                          .frame_len = kind.frame > 0 ? kind.frame : 7,
                                          .cost_bytes = kind.want.cost == 0 ? 100 : kind.want.cost,
                                          .batch_key = kind.batch_key ? &batch_key : NULL,
                                          .idempotency_key = kind.want.key,
                                          .fingerprint = kind.want.fingerprint,
                                          .waiter = kind.want.watch ? waiter : NULL};
    blasd_id_new(kind.async ? BLASD_ID_ASYNC : BLASD_ID_SYNC, blasd_clock_wall_us(), job.id);
    blasd_front_queue_join(env->queue, &who, &submission, job.id);
    assert_true(blasd_id_valid(job.id));
    if (fails) return NULL;
    memcpy(s->id, job.id, sizeof job.id);
    blasd_front_queue_submit(env->queue, &who, &submission, on_submitted, s);
    assert_int_equal(s->answered, 0);
    return s;
}

static const struct kind small = {
    .batch_key = 1, .want = {.watch = true}, .priority = BLASD_PRIORITY_NORMAL};

static void send_many(struct env *env, struct kind kind, int count) {
    for (int i = 0; i < count; i++) send_job(env, kind, false);
}

/* Every job that was sent is answered, ends, and is told once. */
static void expect_all_done(struct env *env) {
    UNTIL(env, env->answered == env->seen_count);
    if (env->worker == NULL) worker_register(env);
    UNTIL(env, work_once(env) >= 0 && env->ended == env->seen_count);
    run_for(env, 30);
    for (int i = 0; i < env->seen_count; i++) expect_done(&env->seen[i]);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
    assert_int_equal(pending_entries(env), 0);
}

/* Jobs that are alike but for whose they are. */
static void test_no_entry_is_two_tenants(void **state) {
    static const char *const names[] = {"anonymous", "ann", "ben"};
    struct env *env = *state;
    for (int i = 0; i < 30; i++) {
        snprintf(who.tenant, sizeof who.tenant, "%s", names[i % 3]);
        send_job(env, small, false);
    }
    UNTIL(env, env->answered == 30);
    assert_int_equal(pending_entries(env), 3);
    for (int i = 0; i < 30; i++) {
        assert_memory_equal(env->seen[i].id, env->seen[i % 3].id, BLASD_ID_ENTRY);
        for (int k = 0; k < 3; k++) {
            snprintf(who.tenant, sizeof who.tenant, "%s", names[k]);
            assert_int_equal(get(env, env->seen[i].id).code,
                             k == i % 3 ? BLASD_OK : BLASD_E_job_not_found);
        }
    }
    snprintf(who.tenant, sizeof who.tenant, "%s", names[0]);
    expect_all_done(env);
}

static void test_alike_jobs_share_an_entry(void **state) {
    struct env *env = *state;
    send_many(env, small, 10);
    UNTIL(env, env->answered == 10);
    assert_int_equal(pending_entries(env), 1);
    assert_int_equal(env->queue->view.jobs, 10);
    assert_int_equal(env->queue->view.bytes, 1000);
    for (int i = 0; i < 10; i++) {
        assert_memory_equal(env->seen[i].id, env->seen[0].id, BLASD_ID_ENTRY);
        struct got got = get(env, env->seen[i].id);
        assert_true(record_is(got.record, got.record_len, BLASD_QUEUED));
        assert_non_null(memmem(got.record, got.record_len, env->seen[i].id, BLASD_ID_LEN));
    }
    expect_all_done(env);
}

static void test_one_alone_is_a_job(void **state) {
    struct env *env = *state;
    send_job(env, small, false);
    UNTIL(env, env->answered == 1);
    assert_int_equal(ask_number(env, "HEXISTS {test}:pending %s", env->seen[0].id), 1);
    expect_all_done(env);
}

/* Interleaved in one turn, each kind finds its own. */
static void test_kinds_apart(void **state) {
    struct env *env = *state;
    struct kind kinds[] = {small, small, small, small, small};
    kinds[1].batch_key = 2;
    kinds[2].want.cost = 200;
    kinds[3].priority = BLASD_PRIORITY_HIGH;
    kinds[4].async = true;
    struct kind alone[] = {small, small, small};
    alone[0].batch_key = 0;
    alone[1].want.deadline_ms = 60000;
    alone[2].want.key = "a key";
    enum { KINDS = sizeof kinds / sizeof *kinds };
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < KINDS; k++) send_job(env, kinds[k], false);
    for (int k = 0; k < 3; k++) send_job(env, alone[k], false);
    UNTIL(env, env->answered == env->seen_count);
    assert_int_equal(pending_entries(env), KINDS + 3);
    expect_all_done(env);
}

/* Those that nobody waits for travel apart from those that somebody does. */
static void test_watched_and_not(void **state) {
    struct env *env = *state;
    struct kind quiet = small;
    quiet.want.watch = false;
    worker_register(env);
    for (int i = 0; i < 4; i++) {
        send_job(env, small, false);
        send_job(env, quiet, false);
    }
    UNTIL(env, env->answered == 8);
    assert_int_equal(pending_entries(env), 2);
    assert_int_equal(env->queue->waiters.by_id.count, 4);
    UNTIL(env, work_once(env) >= 0 && env->ended == 4);
    run_for(env, 50);
    assert_int_equal(env->ended, 4);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(env->seen[i].ended, i % 2 == 0);
        assert_memory_equal(get(env, env->seen[i].id).record, "done ", 5);
    }
}

static void test_more_kinds_than_places(void **state) {
    struct env *env = *state;
    struct kind kind = small;
    for (int i = 0; i < 3; i++)
        for (kind.batch_key = 1; kind.batch_key <= FRONT_ENTRIES + 3; kind.batch_key++)
            send_job(env, kind, false);
    UNTIL(env, env->answered == env->seen_count);
    assert_int_equal(pending_entries(env), FRONT_ENTRIES + 3 * 3);
    expect_all_done(env);
}

static void test_more_jobs_than_fit(void **state) {
    struct env *env = *state;
    struct kind large = small;
    send_many(env, small, 3 * FRONT_ENTRY_JOBS + 8);
    UNTIL(env, env->answered == env->seen_count);
    assert_int_equal(pending_entries(env), 4);
    large.frame = 60000;
    large.want.cost = 60000; /* some megabytes in all, in calls of less than one, by four */
    send_many(env, large, 100);
    UNTIL(env, env->answered == env->seen_count);
    assert_true(pending_entries(env) >= 4 + 25 && pending_entries(env) < 4 + 40);
    large.frame = 10;
    large.want.cost = FRONT_ENTRY_INLINE / 3; /* by their cost only three go together */
    send_many(env, large, 8);
    long long before = pending_entries(env);
    UNTIL(env, env->answered == env->seen_count);
    assert_int_equal(pending_entries(env), before + 3);
    expect_all_done(env);
}

/* A job that joins, and whose frame then cannot be written, leaves nothing. */
static void test_joined_but_not_sent(void **state) {
    struct env *env = *state;
    struct kind other = small;
    other.batch_key = 2;
    send_job(env, small, true); /* the first of its batch entry, and of the batch */
    run_for(env, 5);
    send_job(env, small, true);
    send_job(env, small, false);
    send_job(env, small, true);
    send_job(env, other, true);
    send_job(env, small, false);
    other.batch_key = 0;
    send_job(env, other, false);
    UNTIL(env, env->answered == 3);
    assert_int_equal(pending_entries(env), 2);
    assert_int_equal(env->queue->view.jobs, 3);
    for (int i = 0; i < 2 * FRONT_ENTRIES; i++) { /* as many kinds as there are places, and more */
        other.batch_key = 10 + i;
        send_job(env, other, true);
    }
    send_many(env, small, 2);
    UNTIL(env, env->answered == 5);
    expect_all_done(env);
}

/* Redis has done it, but the answer is lost with the connection. */
static void test_resend(void **state) {
    struct env *env = *state;
    struct kind keyed = small, deadline = small, other = small;
    worker_register(env);
    keyed.want.key = "k= d=1";
    deadline.want.deadline_ms = 60000;
    other.batch_key = 2;
    send_many(env, small, 5);
    send_job(env, keyed, false);
    send_job(env, deadline, false);
    send_many(env, other, 5);
    blasd_front_queue_flush(env->queue);
    while (pending_entries(env) != 4) usleep(1000);
    blasd_async_link_drop(&env->queue->calls.commands.link, "a test");
    UNTIL(env, env->answered == 12);
    assert_int_equal(pending_entries(env), 4);
    assert_int_equal(ask_number(env, "LLEN %s", "{test}:wait:any:normal:anonymous"), 4);
    assert_int_equal(env->queue->view.jobs, 12);
    /* and where they ended before the answer came */
    send_many(env, small, 7);
    blasd_front_queue_flush(env->queue);
    while (pending_entries(env) != 5) usleep(1000);
    assert_int_equal(work_once(env), 19);
    blasd_async_link_drop(&env->queue->calls.commands.link, "a test");
    expect_all_done(env);
    assert_int_equal(ask_number(env, "LLEN %s", "{test}:wait:any:normal:anonymous"), 0);
}

/* What was published while nobody listened. */
static void test_messages_lost(void **state) {
    struct env *env = *state;
    worker_register(env);
    send_many(env, small, 100);
    UNTIL(env, env->answered == 100);
    blasd_async_link_drop(&env->queue->replies, "a test");
    assert_int_equal(work_once(env), 100);
    expect_all_done(env);
    /* told to watch again while they are pending, it is told once */
    send_many(env, small, FRONT_ENTRY_JOBS + 6);
    UNTIL(env, env->answered == env->seen_count);
    blasd_async_link_drop(&env->queue->replies, "a test");
    UNTIL(env, env->queue->standing.subscribed && !env->queue->standing.rewatch);
    assert_int_equal(pending_entries(env), 2); /* asking did not open them */
    expect_all_done(env);
}

/* There is room for some of a batch entry: each job has its own answer, also where it is sent
 * again. */
static void room_for_some(bool again) {
    struct env *env = env_new(NULL);
    int done = 0;
    env->limits.queue_jobs = 5;
    env_open(env);
    send_many(env, small, 8);
    if (again) {
        blasd_front_queue_flush(env->queue);
        while (pending_entries(env) != 5) usleep(1000);
        blasd_async_link_drop(&env->queue->calls.commands.link, "a test");
    }
    UNTIL(env, env->answered == 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(env->seen[i].code, i < 5 ? BLASD_OK : BLASD_E_queue_full);
    assert_int_equal(env->queue->waiters.by_id.count, 5);
    assert_int_equal(env->queue->view.jobs, 5);
    send_many(env, small, 3);
    UNTIL(env, env->answered == 11);
    for (int i = 8; i < 11; i++) assert_int_equal(env->seen[i].code, BLASD_E_queue_full);
    assert_int_equal(env->queue->waiters.by_id.count, 5);
    worker_register(env);
    while (done < 5) done += work_once(env);
    UNTIL(env, env->ended == 5);
    for (int i = 0; i < 5; i++) expect_done(&env->seen[i]);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
    env_free(env);
}

static void test_room_for_some(void **state) {
    (void)state;
    room_for_some(false);
    room_for_some(true);
}

/* One is given up, one is cancelled, one is watched by another front end: each is told right. */
static void test_dealt_with_alone(void **state) {
    struct env *env = *state;
    struct got got = {0};
    worker_register(env);
    send_many(env, small, 6);
    blasd_front_queue_unwatch(env->queue, &env->seen[0].waiter); /* before it is answered */
    UNTIL(env, env->answered == 6);
    blasd_front_queue_unwatch(env->queue, &env->seen[1].waiter);
    blasd_front_queue_cancel(env->queue, &who, env->seen[2].id, false, on_record, &got);
    UNTIL(env, got.answered == 1 && env->ended == 1);
    assert_true(record_is(got.record, got.record_len, BLASD_CANCELLED));
    assert_true(record_is(env->seen[2].record, env->seen[2].record_len, BLASD_CANCELLED));
    got = get(env, env->seen[3].id);
    assert_true(record_is(got.record, got.record_len, BLASD_QUEUED));
    assert_int_equal(work_once(env), 5);
    UNTIL(env, env->ended == 4);
    run_for(env, 30);
    assert_int_equal(env->ended, 4);
    for (int i = 0; i < 6; i++) assert_int_equal(env->seen[i].ended, i >= 2);
    for (int i = 3; i < 6; i++) expect_done(&env->seen[i]);
    for (int i = 0; i < 2; i++) assert_memory_equal(get(env, env->seen[i].id).record, "done ", 5);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
}

/* Redis is away for good: each of them is answered, and nothing is waited for. */
static void test_unavailable(void **state) {
    struct env *env = *state;
    redis_end(&env->redis, SIGKILL);
    send_many(env, small, 70);
    UNTIL(env, env->answered == 70);
    for (int i = 0; i < 70; i++) assert_int_equal(env->seen[i].code, BLASD_E_queue_unavailable);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
}

/* Jobs of many kinds, some of them refused, in several calls that are on their way at once. */
static int send_all_kinds(struct env *env) {
    struct kind keyed = small, deadline = small, other = small, large = small;
    char key[32];
    int sent = env->seen_count;
    snprintf(key, sizeof key, "key %d", sent);
    keyed.want.key = key;
    deadline.want.deadline_ms = 60000;
    other.batch_key = 2;
    large.want.cost = UINT64_C(1) << 50; /* there is never room for it */
    send_many(env, small, 3);
    send_job(env, keyed, false);
    blasd_front_queue_flush(env->queue);
    send_job(env, keyed, false); /* the same one */
    send_job(env, deadline, false);
    send_job(env, large, false);
    blasd_front_queue_flush(env->queue);
    send_many(env, other, 3);
    return sent;
}

/* One message is lost, before Redis has done what it asks for (side 0) or after: each job is queued
 * once, and each answer is what it would have been. */
static bool lose(struct env *env, struct lossy *lossy, int side, int nth) {
    int from, accepted = env->accepted;
    long long was, now;
    redisReply *r = ask(env->client, "HGET {test}:state %s", "echo submitted");
    was = r->type == REDIS_REPLY_STRING ? atoll(r->str) : 0;
    freeReplyObject(r);
    UNTIL(env, env->queue->view.available && env->queue->standing.subscribed);
    lossy_drop(lossy, side, nth);
    from = send_all_kinds(env);
    UNTIL(env, env->answered == env->seen_count);
    bool dropped = atomic_load(&lossy->dropped) > 0;
    lossy_drop(lossy, side, 0);
    for (int i = from; i < env->seen_count; i++) {
        const struct seen *s = &env->seen[i];
        assert_int_equal(s->answered, 1);
        assert_int_equal(s->code, i == from + 6 ? BLASD_E_queue_full : BLASD_OK);
        assert_int_equal(s->repeated, i == from + 4);
    }
    assert_string_equal(env->seen[from + 4].id, env->seen[from + 3].id);
    assert_int_equal(env->accepted - accepted, 9);
    r = ask(env->client, "HGET {test}:state %s", "echo submitted");
    now = atoll(r->str);
    freeReplyObject(r);
    assert_int_equal(now - was, 8);
    while (work_once(env) > 0) continue;
    assert_int_equal(pending_entries(env), 0);
    return dropped;
}

static void test_each_message_lost(void **state) {
    struct env *env = env_new(NULL);
    struct lossy *lossy;
    (void)state;
    redis_launch(&env->redis);
    env->client = redis_client(&env->redis);
    worker_register(env);
    lossy = lossy_new(env->redis.dir, env->redis.socket);
    env->options.url = lossy->url;
    assert_int_equal(queue_open(env), 0);
    for (int side = 0; side < 2; side++) {
        int nth = 1;
        while (nth < 20 && lose(env, lossy, side, nth)) nth++;
        assert_true(nth > 1);
    }
    blasd_front_queue_free(env->queue);
    env->queue = NULL;
    lossy_free(lossy);
    env_free(env);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_alike_jobs_share_an_entry),
        TEST(test_no_entry_is_two_tenants),
        TEST(test_one_alone_is_a_job),
        TEST(test_kinds_apart),
        TEST(test_watched_and_not),
        TEST(test_more_kinds_than_places),
        TEST(test_more_jobs_than_fit),
        TEST(test_joined_but_not_sent),
        TEST(test_resend),
        TEST(test_messages_lost),
        TEST(test_dealt_with_alone),
        TEST(test_unavailable),
        cmocka_unit_test(test_room_for_some),
        cmocka_unit_test(test_each_message_lost),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
