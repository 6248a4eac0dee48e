/* What is handed to a worker that waits: that it comes, once, also where the worker dies, the reply
 * or the connection is lost, or the master is behind.
 * Whether a wake-up is lost under load: test_queue_wake.c. */
#include "redis_fixture.h"

#include "queue/worker_side.h"

#include <sys/socket.h>

enum { WAIT_MS = 3000 };

/* A worker that dies while idle leaves its work to the other one: at once, where it is only woken,
 * and with its name where jobs were handed over. */
static void test_dead_idle_worker(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    bool lost;
    (void)state;
    bed_open(&bed, &server, "wake3");
    struct blasd_worker_queue *dead = worker_new(&bed, "dead", BLASD_DEVICE_CPU);
    assert_int_equal(claim(dead, 4, PLENTY, claims), 0);
    blasd_worker_queue_free(dead);
    struct blasd_worker_queue *live = worker_new(&bed, "live", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2"); /* is handed to the dead one */
    redisReply *reply = redisCommand(bed.raw, "LLEN %s:wake:dead", bed.tag);
    assert_int_equal(reply->integer, 4);
    drop(reply);
    assert_int_equal(claim(live, 4, PLENTY, claims), 0);
    expire_worker(&bed, "dead");
    assert_int_equal(claim(live, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    assert_int_equal(claims[0].attempts, 0); /* it had not begun */
    reply = redisCommand(bed.raw, "EXISTS %s:wake:dead", bed.tag);
    assert_int_equal(reply->integer, 0);
    drop(reply);
    /* idle beside a job that it was not given: housekeeping gives it */
    assert_int_equal(finish(live, id, "r", 0), 1);
    assert_int_equal(claim(live, 4, PLENTY, claims), 0);
    char demand[160];
    reply = redisCommand(bed.raw, "HGET %s:state idle", bed.tag);
    snprintf(demand, sizeof demand, "%s", reply->str);
    drop(reply);
    drop(redisCommand(bed.raw, "HDEL %s:state idle", bed.tag));
    submit_new(&bed, id, "2");
    drop(redisCommand(bed.raw, "HSET %s:state idle %s", bed.tag, demand));
    assert_int_equal(blasd_worker_queue_renew(live, INFO_CPU, &lost, &err), 0);
    assert_int_equal(blasd_worker_queue_wait(live, WAIT_MS, &err), 0);
    assert_false(live->turns.unsure); /* its time was not up */
    assert_int_equal(claim(live, 4, PLENTY, claims), 1);
    blasd_worker_queue_free(live);
    bed_close(&bed);
}

static long long length(struct bed *bed, const char *name) {
    redisReply *reply = redisCommand(bed->raw, "LLEN %s:wake:%s", bed->tag, name);
    long long n = reply->integer;
    drop(reply);
    return n;
}

/* A job is claimed when the worker comes for it: what it lay in the list, and in the worker, it
 * waited. */
static void test_the_time_in_the_list_is_told(void **state) {
    enum { LAY_MS = 40 };
    struct bed bed;
    struct blasd_claim claims[4];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "lay");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    submit_new(&bed, id, "2");
    for (int given = 0; given < 2; given++) {
        sleep_ms(LAY_MS);
        if (given == 0) assert_int_equal(blasd_worker_queue_wait(worker, WAIT_MS, &err), 0);
        if (given == 1) { /* with the end of the one before, but not taken yet */
            submit_new(&bed, id, "2");
            assert_int_equal(finish(worker, claims[0].id, "r", 0), 1);
            sleep_ms(LAY_MS);
        }
        assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
        assert_true(claims[0].claimed_us - claims[0].submitted_us >= (LAY_MS - 5) * 1000);
    }
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Few jobs are handed to an idle worker, many only wake it; either way each is claimed once. */
static void test_handed_over(void **state) {
    struct bed bed;
    struct blasd_claim claims[16];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "handed");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    submit_new(&bed, id, "2");
    submit_new(&bed, other, "2"); /* it is not idle any more */
    assert_int_equal(blasd_worker_queue_wait(worker, WAIT_MS, &err), 0);
    assert_int_equal(length(&bed, "w"), 0);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    assert_memory_equal(claims[0].frame, id, BLASD_ID_LEN);
    assert_true(claims[0].claimed_us >= claims[0].submitted_us && claims[0].submitted_us > 0);
    assert_int_equal(finish(worker, id, "r", 0), 1);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, other);
    assert_int_equal(finish(worker, other, "r", 0), 1);
    /* it does not wait, but claims: what was handed over is what it gets */
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    submit_new(&bed, id, "2");
    assert_int_equal(length(&bed, "w"), 4);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    assert_int_equal(length(&bed, "w"), 0);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    assert_int_equal(finish(worker, id, "r", 0), 1);
    /* the list's reply is lost with its connection: the jobs come with the next claim */
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    submit_new(&bed, id, "2");
    redisReply *reply = redisCommand(bed.raw, "DEL %s:wake:w", bed.tag);
    drop(reply);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    assert_int_equal(finish(worker, id, "r", 0), 1);
    /* cancelled between the handing over and the end */
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    submit_new(&bed, id, "2");
    drop(fcall(&bed, "cancel", "1", id, NULL));
    assert_int_equal(blasd_worker_queue_wait(worker, WAIT_MS, &err), 0);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_int_equal(finish(worker, id, "r", 0), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static bool is_idle(struct bed *bed, const char *name) {
    redisReply *reply = redisCommand(bed->raw, "HGET %s:state idle", bed->tag);
    char line[80];
    snprintf(line, sizeof line, "%s ", name);
    bool yes = reply->str != NULL && strstr(reply->str, line) != NULL;
    drop(reply);
    return yes;
}

/* The end of the last job makes the worker idle; not that of one beside others. */
static void test_finish_leaves_idle(void **state) {
    struct bed bed;
    struct blasd_claim claims[16];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "idle");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    submit_new(&bed, other, "2");
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    assert_int_equal(finish(worker, id, "r", 0), 1); /* the other one comes with the reply */
    assert_false(blasd_worker_queue_is_idle(worker) || is_idle(&bed, "w"));
    submit_new(&bed, id, "2");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, other);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    assert_int_equal(finish(worker, id, "r", 0), 1); /* it holds the other one */
    assert_false(blasd_worker_queue_is_idle(worker) || is_idle(&bed, "w"));
    assert_int_equal(finish(worker, other, "r", 0), 1);
    assert_true(blasd_worker_queue_is_idle(worker) && is_idle(&bed, "w"));
    /* what comes is handed over, to a worker that waits without having claimed */
    submit_new(&bed, id, "2");
    assert_false(is_idle(&bed, "w"));
    assert_int_equal(length(&bed, "w"), 4);
    assert_int_equal(blasd_worker_queue_wait(worker, WAIT_MS, &err), 0);
    assert_false(blasd_worker_queue_is_idle(worker));
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    assert_int_equal(finish(worker, id, "r", 0), 1);
    /* one that claims all the same loses nothing by it */
    assert_true(blasd_worker_queue_is_idle(worker));
    submit_new(&bed, id, "2");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    assert_int_equal(claims[0].attempts, 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* A worker that was idle gives back, in its next turn, what it could not read: it is not handed
 * that in answer to the demand of before, which nobody waits for any more, but in this turn's
 * reply. */
static void test_what_goes_back_is_for_the_turn(void **state) {
    struct bed bed;
    struct blasd_claim claims[16];
    char id[BLASD_ID_LEN + 1];
    redisReply *reply;
    (void)state;
    bed_open(&bed, &server, "turned");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    const char *epoch = worker->lease.epoch;
    submit_new(&bed, id, "2");
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    reply =
        fcall(&bed, "turn", "w", epoch, "0", "9000000000000050", "1", "1", "1000000", "0", NULL);
    assert_int_equal(reply->elements, 2);
    drop(reply);
    assert_true(is_idle(&bed, "w"));
    reply = fcall(&bed, "turn", "w", epoch, "0", "9000000000000051", "1", "1", "1000000", "0", id,
                  "", "1 0", NULL);
    assert_int_equal(reply->elements, 4);
    assert_memory_equal(reply->element[2]->str, id, BLASD_ID_LEN);
    drop(reply);
    assert_int_equal(length(&bed, "w"), 0);
    assert_false(is_idle(&bed, "w"));
    /* and where it asks for none any more it is not idle either */
    reply = fcall(&bed, "turn", "w", epoch, "0", "9000000000000052", "1", "1", "1000000", "0", id,
                  "r", "1 0", NULL);
    assert_int_equal(reply->elements, 2);
    drop(reply);
    assert_true(is_idle(&bed, "w"));
    drop(fcall(&bed, "turn", "w", epoch, "0", "9000000000000053", "0", "0", "0", "0", NULL));
    assert_false(is_idle(&bed, "w"));
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* A job goes to a connection that the worker has left, of which Redis does not know yet: it comes
 * with the claim after a wait that brings nothing. */
static void test_old_connection(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "old_connection");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    redisContext *old = redisConnectUnix(server.socket);
    assert_true(old && !old->err);
    redisAppendCommand(old, "BLMPOP 10 1 %s:wake:w LEFT COUNT 100", bed.tag);
    for (int done = 0; !done;) assert_int_equal(redisBufferWrite(old, &done), REDIS_OK);
    sleep_ms(50);
    submit_new(&bed, id, "2");
    assert_int_equal(blasd_worker_queue_wait(worker, 100, &err), 0);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    assert_int_equal(claims[0].attempts, 0);
    assert_int_equal(finish(worker, id, "r", 0), 1);
    redisFree(old);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* The reply to the finish that made the worker idle is lost, and a job is handed over meanwhile. */
static void test_missed_rest(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "missed_rest");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    char record_frame[4 + BLASD_ID_LEN + 1] = {1};
    memcpy(record_frame + 4, id, BLASD_ID_LEN);
    record_frame[4 + BLASD_ID_LEN] = 'r';
    redisReply *reply = turn_lost(&bed, worker, 4, id, record_frame, sizeof record_frame, "1 0");
    assert_string_equal(reply->element[1]->str, "1");
    drop(reply);
    submit_new(&bed, other, "2");
    assert_int_equal(length(&bed, "w"), 4);
    drop(redisCommand(bed.raw, "CLIENT KILL TYPE normal SKIPME yes"));
    assert_int_equal(finish(worker, id, "r", 0), 1);
    assert_false(blasd_worker_queue_is_idle(worker));
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, other);
    assert_int_equal(length(&bed, "w"), 0);
    assert_int_equal(finish(worker, other, "r", 0), 1);
    assert_true(blasd_worker_queue_is_idle(worker));
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void tell(struct blasd_worker_queue *worker) {
    struct blasd_err err;
    bool lost = true;
    assert_int_equal(blasd_worker_queue_holds(worker, NULL, 0, &lost, &err), 0);
    assert_false(lost);
    assert_false(blasd_worker_queue_moved(worker));
}

/* An idle worker tells over a new connection that it holds nothing, and has just been handed a job:
 * it will find it in its list, and nobody else may have it. */
static void test_handed_over_while_it_tells(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "telling");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *other = worker_new(&bed, "v", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    submit_new(&bed, id, "2");
    assert_int_equal(length(&bed, "w"), 4);
    tell(worker);
    assert_int_equal(claim(other, 4, PLENTY, claims), 0);
    assert_int_equal(blasd_worker_queue_wait(worker, WAIT_MS, &err), 0);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    tell(worker); /* now it has it */
    assert_int_equal(finish(worker, id, "r", 0), 1);
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(other);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* What a replica knows that has become the master, and was a little behind: of the worker's last
 * turns nothing. */
struct behind {
    char demand[160], turn[64];
};

static void behind_note(struct bed *bed, struct behind *ret) {
    redisReply *reply = redisCommand(bed->raw, "HGET %s:state idle", bed->tag);
    snprintf(ret->demand, sizeof ret->demand, "%s", reply->str);
    drop(reply);
    reply = redisCommand(bed->raw, "HGET %s:state t:w:0", bed->tag);
    snprintf(ret->turn, sizeof ret->turn, "%s", reply->str);
    drop(reply);
}

static void behind_set(struct bed *bed, const struct behind *behind) {
    drop(redisCommand(bed->raw, "HSET %s:state idle %s", bed->tag, behind->demand));
    drop(redisCommand(bed->raw, "HSET %s:state t:w:0 %s", bed->tag, behind->turn));
}

/* It takes the worker for idle, and what it hands over for the turn that it knows is heard by
 * nobody. That is told, and goes back. */
static void test_a_master_that_is_behind(void **state) {
    struct bed bed;
    struct behind behind;
    struct blasd_claim claims[4];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "behind");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    behind_note(&bed, &behind);
    submit_new(&bed, id, "2");
    assert_int_equal(blasd_worker_queue_wait(worker, WAIT_MS, &err), 0);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    worker->turns.busy = false; /* no wait goes with an end */
    assert_int_equal(finish(worker, id, "r", 0), 1);
    behind_set(&bed, &behind);
    submit_new(&bed, id, "2");
    assert_int_equal(length(&bed, "w"), 4);
    submit_new(&bed, other, "2");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, other);
    assert_int_equal(length(&bed, "w"), 0);
    assert_false(is_idle(&bed, "w"));
    tell(worker);
    worker->turns.busy = false;
    assert_int_equal(finish(worker, other, "r", 0), 1);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    tell(worker); /* of what it has just been given nothing goes back */
    assert_int_equal(finish(worker, id, "r", 0), 1);
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* What has ended, as the worker heard, has not ended there; the worker waits for jobs by then, or
 * has been given others. It is told, and others are given what had ended. */
static void test_a_master_that_lacks_an_end(void **state) {
    struct bed bed;
    static const char forget[] = "local idle = redis.call('HGET', KEYS[1], 'idle')\n"
                                 "redis.call('HSET', KEYS[1], 'idle', "
                                 "(idle:gsub('other [^\\n]*\\n', '')))";
    struct blasd_claim claims[4];
    char ended[BLASD_ID_LEN + 1], given[BLASD_ID_LEN + 1] = "";
    (void)state;
    bed_open(&bed, &server, "ended");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *other = worker_new(&bed, "other", BLASD_DEVICE_CPU);
    for (int busy = 0; busy < 2; busy++) {
        submit_new(&bed, ended, "2");
        assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
        worker->turns.seq++; /* the turn that ended it went to another master */
        worker->turns.left = 0;
        if (busy) submit_new(&bed, given, "2");
        assert_true(blasd_worker_queue_moved(worker));
        assert_int_equal(claim(worker, 4, PLENTY, claims), busy);
        assert_int_equal(claim(other, 4, PLENTY, claims), 0);
        other->turns.idle = false;
        drop(redisCommand(bed.raw, "EVAL %s 1 %s:state", forget, bed.tag));
        tell(worker);
        worker->turns.held_on = 0; /* for the next round */
        if (!busy) {               /* it waits itself, and is given it back */
            assert_int_equal(length(&bed, "w"), 4);
            worker->turns.unsure = true;
            assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
            assert_string_equal(claims[0].id, ended);
            assert_int_equal(finish(worker, ended, "r", 0), 1);
            continue;
        }
        assert_int_equal(claim(other, 4, PLENTY, claims), 1);
        assert_string_equal(claims[0].id, ended);
        assert_int_equal(finish(other, ended, "r", 0), 1);
        assert_int_equal(finish(worker, given, "r", 0), 1);
    }
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(other);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Jobs that come over another connection than the turn went: the turn is sent again. */
static void test_a_wait_over_another_connection(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "another");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    tell(worker);
    submit_new(&bed, id, "2");
    assert_int_equal(shutdown(worker->caller.redis->fd, SHUT_RDWR), 0);
    assert_int_equal(blasd_worker_queue_wait(worker, WAIT_MS, &err), 0);
    assert_null(worker->turns.next);
    assert_true(worker->turns.unsure && blasd_worker_queue_moved(worker));
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    tell(worker);
    assert_int_equal(finish(worker, id, "r", 0), 1);
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dead_idle_worker),
        cmocka_unit_test(test_handed_over),
        cmocka_unit_test(test_the_time_in_the_list_is_told),
        cmocka_unit_test(test_finish_leaves_idle),
        cmocka_unit_test(test_what_goes_back_is_for_the_turn),
        cmocka_unit_test(test_old_connection),
        cmocka_unit_test(test_missed_rest),
        cmocka_unit_test(test_handed_over_while_it_tells),
        cmocka_unit_test(test_a_master_that_is_behind),
        cmocka_unit_test(test_a_master_that_lacks_an_end),
        cmocka_unit_test(test_a_wait_over_another_connection),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
