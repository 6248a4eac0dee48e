/* The front end's queue where Redis answers late, refuses, forgets, stands still or dies: nothing
 * that was acknowledged is lost. */
#include "front_fixture.h"

/* Redis has done it, but the answer is lost with the connection: it is sent again and done once. */
static void test_resend(void **state) {
    struct env *env = *state;
    struct seen *plain, *deadline, *keyed;
    worker_register(env);
    plain = submit(env, (struct want){.watch = true});
    deadline = submit(env, (struct want){.watch = true, .deadline_ms = 60000});
    keyed = submit(env, (struct want){.watch = true, .key = "k= d=1", .fingerprint = 3});
    blasd_front_queue_flush(env->queue);
    while (pending_entries(env) != 3) usleep(1000);
    blasd_async_link_drop(&env->queue->calls.commands.link, "a test");
    UNTIL(env, env->answered == 3);
    assert_int_equal(plain->code, BLASD_OK);
    assert_int_equal(deadline->code, BLASD_OK);
    assert_int_equal(keyed->code, BLASD_OK);
    assert_false(keyed->repeated);
    assert_int_equal(pending_entries(env), 3);
    assert_int_equal(ask_number(env, "LLEN %s", "{test}:wait:any:normal:anonymous"), 3);
    /* and where it ended before the answer came */
    plain = submit(env, (struct want){.watch = true});
    blasd_front_queue_flush(env->queue);
    while (pending_entries(env) != 4) usleep(1000);
    assert_int_equal(work_once(env), 4);
    blasd_async_link_drop(&env->queue->calls.commands.link, "a test");
    UNTIL(env, env->answered == 4 && env->ended == 4);
    expect_done(plain);
    expect_done(deadline);
    expect_done(keyed);
    run_for(env, 50);
    assert_int_equal(env->ended, 4);
    assert_int_equal(ask_number(env, "LLEN %s", "{test}:wait:any:normal:anonymous"), 0);
}

/* The same while the disk fills up: what was taken is not said to be refused. */
static void test_resend_while_the_disk_is_full(void **state) {
    struct env *env = *state;
    struct seen *taken = submit(env, (struct want){.watch = true}), *refused;
    blasd_front_queue_flush(env->queue);
    while (pending_entries(env) != 1) usleep(1000);
    freeReplyObject(redisCommand(env->client, "HSET {test}:state refused %s", "99999999999 full"));
    blasd_async_link_drop(&env->queue->calls.commands.link, "a test");
    UNTIL(env, taken->answered == 1);
    assert_int_equal(taken->code, BLASD_OK);
    refused = submit(env, (struct want){.watch = true});
    UNTIL(env, refused->answered == 1);
    assert_int_equal(refused->code, BLASD_E_disk_full);
    assert_int_equal(pending_entries(env), 1);
}

static int length(const struct blasd_list *list) {
    int count = 0;
    BLASD_LIST_EACH(node, list) count++;
    return count;
}

/* The connection breaks again while the first of what was lost is on it, and the second is not yet:
 * they keep their order, or Redis would take the first, which comes last, for one that it knows. */
static void test_lost_again_in_its_order(void **state) {
    struct env *env = *state;
    struct front_connection *commands = &env->queue->calls.commands;
    char *large = calloc(1, 4 * BLASD_MIB); /* more than what is written ahead of Redis */
    struct seen *first, *second;
    assert_non_null(large);
    freeReplyObject(ask(env->client, "CLIENT PAUSE 1500 ALL"));
    first = submit_frame(env, (struct want){.watch = true}, large, 4 * BLASD_MIB);
    second = submit(env, (struct want){.watch = true});
    UNTIL(env, length(&commands->flight) >= 2 && length(&commands->waiting) == 0);
    blasd_async_link_drop(&commands->link, "a test"); /* before Redis has done either */
    UNTIL(env, env->queue->standing.ready);
    assert_int_equal(env->answered, 0);
    assert_int_equal(kill(env->redis.pid, SIGSTOP), 0);
    blasd_front_queue_flush(env->queue);
    assert_int_equal(length(&commands->flight), 1);
    assert_int_equal(length(&commands->again), 1);
    blasd_async_link_drop(&commands->link, "a test");
    assert_int_equal(kill(env->redis.pid, SIGCONT), 0);
    UNTIL(env, env->answered == 2);
    assert_int_equal(first->code, BLASD_OK);
    assert_int_equal(second->code, BLASD_OK);
    assert_int_equal(pending_entries(env), 2);
    free(large);
}

/* What replicas are asked about when the connection breaks goes ahead of what was sent behind it: a
 * master that has neither would take the first for one that it knows. Where too few have it nothing
 * is acknowledged, though it may be done. */
static void test_replicas_asked(void **state) {
    struct env *env = *state;
    const struct blasd_list *asked = &env->queue->calls.held;
    struct seen *first, *second;
    env->queue->rules.replicas = 1;
    env->queue->rules.replicas_ms = 3000;
    first = submit(env, (struct want){.watch = true});
    UNTIL(env, !blasd_list_empty(asked) &&
                   blasd_container_of(asked->prev, struct front_call, node)->tries_left >
                       1); /* or it is the probe */
    second = submit(env, (struct want){.watch = true});
    blasd_front_queue_flush(env->queue);
    assert_int_equal(env->answered, 0);
    freeReplyObject(ask(env->client, "FLUSHALL"));
    env->queue->rules.replicas = 0;
    blasd_async_link_drop(&env->queue->calls.commands.link, "a test");
    UNTIL(env, env->answered == 2);
    assert_int_equal(first->code, BLASD_OK);
    assert_int_equal(second->code, BLASD_OK);
    assert_int_equal(pending_entries(env), 2);
    env->queue->rules.replicas = 1;
    env->queue->rules.replicas_ms = 1;
    first = submit(env, (struct want){.watch = true});
    UNTIL(env, first->answered == 1);
    assert_int_equal(first->code, BLASD_E_queue_unavailable);
    assert_int_equal(pending_entries(env), 3);
    assert_false(env->queue->view.available);
    env->queue->rules.replicas = 0;
    UNTIL(env, env->queue->view.available);
}

/* Either connection, both, and the functions. */
static void test_connections_lost(void **state) {
    struct env *env = *state;
    static const char *const kinds[] = {"CLIENT KILL TYPE pubsub", "CLIENT KILL TYPE normal",
                                        "FUNCTION FLUSH"};
    worker_register(env);
    for (int round = 0; round < 6; round++) {
        redisReply *r;
        struct seen *s = submit(env, (struct want){.watch = true});
        UNTIL(env, s->answered == 1);
        if (round % 2 == 0) { /* the record is published while nobody listens */
            if (round == 0) blasd_async_link_drop(&env->queue->replies, "a test");
            assert_int_equal(work_once(env), 1);
        }
        r = ask(env->client, kinds[round % 3]); /* spares the one that asks */
        assert_non_null(r);
        freeReplyObject(r);
        if (round % 3 == 2) { /* whoever calls next finds the functions gone, and loads them */
            struct seen *more = submit(env, (struct want){.watch = true});
            UNTIL(env, more->answered == 1);
            assert_int_equal(more->code, BLASD_OK);
        }
        UNTIL(env, work_once(env) >= 0 && s->ended > 0);
        expect_done(s);
    }
    UNTIL(env, work_once(env) >= 0 && env->queue->waiters.by_id.count == 0);
    for (int i = 0; i < env->seen_count; i++) expect_done(&env->seen[i]);
}

static long long error_replies(struct env *env) {
    redisReply *r = ask(env->client, "INFO stats");
    const char *at = strstr(r->str, "total_error_replies:");
    long long count = at == NULL ? 0 : strtoll(strchr(at, ':') + 1, NULL, 10);
    freeReplyObject(r);
    return count;
}

/* The functions are gone when the first of two calls comes, and are there again for the second, on
 * the same connection: that one has the later number, and yet the first is not done. */
static void test_functions_gone_for_one_of_two(void **state) {
    struct env *env = *state;
    struct seen *first, *second;
    long long errors = error_replies(env);
    UNTIL(env, blasd_list_empty(&env->queue->calls.commands.flight));
    freeReplyObject(ask(env->client, "FUNCTION FLUSH"));
    first = submit(env, (struct want){.watch = true});
    blasd_front_queue_flush(env->queue);
    while (error_replies(env) == errors) usleep(1000);
    worker_register(env); /* loads them */
    second = submit(env, (struct want){.watch = true});
    blasd_front_queue_flush(env->queue);
    while (pending_entries(env) == 0) usleep(1000);
    UNTIL(env, env->answered == 2);
    assert_int_equal(first->code, BLASD_OK);
    assert_int_equal(second->code, BLASD_OK);
    assert_int_equal(pending_entries(env), 2);
    assert_int_equal(ask_number(env, "LLEN %s", "{test}:wait:any:normal:anonymous"), 2);
    UNTIL(env, work_once(env) >= 0 && env->ended == 2);
    expect_done(first);
    expect_done(second);
}

/* Redis has lost everything while nobody listened: who waits is told that there is no record. */
static void test_record_gone(void **state) {
    struct env *env = *state;
    struct seen *s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    freeReplyObject(ask(env->client, "FLUSHALL"));
    blasd_async_link_drop(&env->queue->replies, "a test");
    UNTIL(env, s->ended == 1);
    assert_string_equal(s->record, "");
    assert_int_equal(env->queue->waiters.by_id.count, 0);
}

/* The same while all connections stand: it is seen all the same, once, and work goes on. */
static void test_emptied(void **state) {
    struct env *env = *state;
    static const char *const kinds[] = {"FLUSHALL", "FUNCTION FLUSH", "FLUSHALL"};
    UNTIL(env, env->queue->standing.was_here);
    for (int round = 0; round < 3; round++) {
        bool keys = round != 1;
        struct seen *s = submit(env, (struct want){.watch = true});
        UNTIL(env, s->answered == 1);
        freeReplyObject(ask(env->client, kinds[round]));
        if (keys) UNTIL(env, s->ended == 1);
        if (keys) assert_string_equal(s->record, "");
        /* nobody submits: a submission of its own would load the functions */
        UNTIL(env, env->queue->standing.ready &&
                       ask_number(env, "EXISTS %s", "{test}:store") == 1 &&
                       env->queue->view.available);
        s = submit(env, (struct want){.watch = true});
        UNTIL(env, s->answered == 1);
        assert_int_equal(s->code, BLASD_OK);
        blasd_worker_queue_free(env->worker);
        env->worker = NULL;
        worker_register(env);
        UNTIL(env, work_once(env) >= 0 && s->ended > 0);
        expect_done(s);
    }
    assert_int_equal(env->queue->waiters.by_id.count, 0);
}

/* What `blasd up` does while the disk of a private Redis is too full. */
static void test_disk_too_full(void **state) {
    struct env *env = *state;
    struct seen *before = submit(env, (struct want){.watch = true}), *s;
    UNTIL(env, before->answered == 1);
    worker_register(env);
    freeReplyObject(redisCommand(env->client, "HSET {test}:state refused %s", "99999999999 tiny"));
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_E_disk_full);
    /* seen at once, and by who submits nothing */
    assert_false(env->queue->view.available);
    assert_int_equal(env->queue->view.trouble->code, BLASD_E_disk_full);
    assert_string_equal(env->queue->view.trouble->detail, "tiny");
    run_for(env, 1500);
    assert_false(env->queue->view.available);
    assert_int_equal(get(env, s->id).code, BLASD_E_job_not_found);
    UNTIL(env, work_once(env) >= 0 && before->ended > 0); /* what is queued ends */
    expect_done(before);
    freeReplyObject(ask(env->client, "HDEL {test}:state refused"));
    UNTIL(env, env->queue->view.available);
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_OK);
}

static void test_unavailable(void **state) {
    struct env *env = env_new(NULL);
    struct got got = {0};
    struct seen *s;
    int64_t start;
    (void)state;
    assert_int_equal(queue_open(env), 0);
    start = blasd_clock_ns();
    s = submit(env, (struct want){.watch = true});
    blasd_front_queue_get(env->queue, &who, s->id, on_record, &got);
    UNTIL(env, s->answered == 1 && got.answered == 1);
    assert_int_equal(s->code, BLASD_E_queue_unavailable);
    assert_int_equal(got.code, BLASD_E_queue_unavailable);
    assert_true((blasd_clock_ns() - start) / BLASD_MS >= 1900);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
    assert_false(env->queue->view.available);
    /* what comes while it is away is done once it is back */
    s = submit(env, (struct want){.watch = true});
    redis_launch(&env->redis);
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_OK);
    /* free in the middle of everything calls nobody */
    s = submit(env, (struct want){.watch = true});
    submit(env, (struct want){.device = BLASD_DEVICE_CUDA});
    blasd_front_queue_flush(env->queue);
    submit(env, (struct want){.watch = true});
    blasd_front_queue_free(env->queue);
    env->queue = NULL;
    assert_int_equal(s->answered, 0);
    env_free(env);
}

static void test_out_of_memory(void **state) {
    struct env *env = *state;
    struct seen *s;
    freeReplyObject(ask(env->client, "CONFIG SET maxmemory 1"));
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_E_queue_unavailable);
    UNTIL(env, !env->queue->view.available);
    assert_int_equal(get(env, s->id).code, BLASD_E_job_not_found);
    freeReplyObject(ask(env->client, "CONFIG SET maxmemory 0"));
    UNTIL(env, env->queue->view.available);
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_OK);
}

/* Over TCP, with a password and a database of its own; then with a wrong password. */
static void test_login(void **state) {
    struct env *env = env_new(NULL);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    struct seen *s;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    close(fd); /* free a moment ago */
    snprintf(env->redis.port, sizeof env->redis.port, "%d", ntohs(at.sin_port));
    snprintf(env->url, sizeof env->url, "redis://:secret@127.0.0.1:%s/3", env->redis.port);
    env_open(env);
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_OK);
    freeReplyObject(ask(env->client, "SELECT 3"));
    assert_int_equal(pending_entries(env), 1);
    blasd_front_queue_free(env->queue);
    snprintf(env->url, sizeof env->url, "redis://:wrong@127.0.0.1:%s/3", env->redis.port);
    assert_int_equal(queue_open(env), 0);
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_E_queue_unavailable);
    assert_non_null(strstr(blasd_front_queue_view(env->queue)->trouble->detail, "WRONGPASS"));
    env_free(env);
}

/* A Redis that is there and says nothing. */
static void test_redis_stopped(void **state) {
    struct env *env = *state;
    struct seen *s;
    assert_int_equal(kill(env->redis.pid, SIGSTOP), 0);
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_E_queue_unavailable);
    assert_false(env->queue->view.available);
    assert_true(blasd_front_queue_view(env->queue)->trouble->detail[0] != '\0');
    assert_int_equal(kill(env->redis.pid, SIGCONT), 0);
    UNTIL(env, env->queue->view.available);
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_OK);
}

/* Redis is killed again and again under load; every job that was acknowledged ends. */
enum { BETWEEN_KILLS = 500 }; /* jobs acknowledged */

static struct {
    struct blasd_worker_queue *worker; /* NULL: the thread has ended */
    atomic_bool stop;
    pthread_t thread;
} load;

static void *load_worker(void *arg) {
    while (!atomic_load(&load.stop))
        if (work(load.worker) <= 0) usleep(1000);
    return arg;
}

static void load_end(void) {
    if (load.worker == NULL) return;
    atomic_store(&load.stop, true);
    pthread_join(load.thread, NULL);
    load.worker = NULL;
}

static int teardown_load(void **state) {
    load_end(); /* of a test that failed */
    return teardown(state);
}

static void test_redis_killed(void **state) {
    struct env *env = *state;
    int acknowledged = 0, refused = 0, kills = 0;
    int64_t until = blasd_clock_ns() + 120 * SECOND, restart_at = 0;
    worker_register(env);
    load.worker = env->worker;
    assert_int_equal(pthread_create(&load.thread, NULL, load_worker, NULL), 0);
    while (env->accepted < 5 * BETWEEN_KILLS) {
        int64_t now = blasd_clock_ns();
        if (now > until) fail_msg("%d accepted, %d kills", env->accepted, kills);
        if (env->seen_count - env->answered < 200 && env->seen_count < 19900)
            for (int i = 0; i < 20; i++) submit(env, (struct want){.watch = true});
        turn(env, 1);
        if (restart_at == 0 && kills < 4 && env->accepted >= (kills + 1) * BETWEEN_KILLS) {
            redis_end(&env->redis, SIGKILL);
            kills++;
            restart_at = now + SECOND / 10;
        } else if (restart_at != 0 && now > restart_at) {
            redis_launch(&env->redis);
            restart_at = 0;
        }
    }
    UNTIL(env, env->answered == env->seen_count);
    UNTIL(env, env->queue->waiters.by_id.count == 0);
    load_end();
    for (int i = 0; i < env->seen_count; i++) {
        const struct seen *s = &env->seen[i];
        assert_int_equal(s->answered, 1);
        if (s->code == BLASD_OK) {
            expect_done(s);
            acknowledged++;
        } else {
            assert_int_equal(s->code, BLASD_E_queue_unavailable);
            refused++;
        }
    }
    print_message("%d kills, %d jobs acknowledged and ended, %d refused\n", kills, acknowledged,
                  refused);
    assert_int_equal(env->queue->waiters.by_id.count, 0);
    UNTIL(env, env->queue->calls.held_bytes == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_resend),
        TEST(test_resend_while_the_disk_is_full),
        TEST(test_lost_again_in_its_order),
        TEST(test_replicas_asked),
        TEST(test_connections_lost),
        TEST(test_functions_gone_for_one_of_two),
        TEST(test_record_gone),
        TEST(test_emptied),
        TEST(test_disk_too_full),
        cmocka_unit_test(test_unavailable),
        TEST(test_out_of_memory),
        cmocka_unit_test(test_login),
        TEST(test_redis_stopped),
        cmocka_unit_test_setup_teardown(test_redis_killed, setup, teardown_load),
    };
    signal(SIGPIPE, SIG_IGN); /* hiredis writes to connections that may have gone */
    return cmocka_run_group_tests_name("front_faults", tests, NULL, NULL);
}
