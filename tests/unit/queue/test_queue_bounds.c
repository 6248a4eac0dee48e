/* What one call makes Redis do does not grow with what others have: with a hundred tenants more it
 * runs as many commands. And nothing stays for ever of what is gone. */
#include "redis_fixture.h"

#define MANY 100
#define BLOBS 32

/* How many commands functions and others have run since the last call. */
static long long commands_run(struct bed *bed) {
    redisReply *reply = redisCommand(bed->raw, "INFO commandstats");
    long long sum = 0;
    for (const char *at = reply->str; (at = strstr(at, "calls=")) != NULL; at++)
        sum += strtoll(at + strlen("calls="), NULL, 10);
    drop(reply);
    drop(redisCommand(bed->raw, "CONFIG RESETSTAT"));
    return sum;
}

/* A tenant more, with a record of a job that a client has waited for, and a job that waits. */
static void tenant_more(struct bed *bed, int i) {
    static char name[32];
    char id[BLASD_ID_LEN + 1];
    snprintf(name, sizeof name, "t%d", i);
    tenant = name;
    submit_new(bed, id, "2");
    drop(fcall(bed, "cancel", "0", id, NULL));
    submit_new(bed, id, "2");
}

static void ask_for_blobs(struct bed *bed) {
    const char *argv[5 + BLOBS] = {"FCALL", BLASD_QUEUE_FN("refs"), "1", bed->tag, bed->link.text};
    char names[BLOBS][BLASD_ID_LEN + 5];
    for (int i = 0; i < BLOBS; i++) {
        id_make(names[i], BLASD_ID_SYNC, 0);
        memcpy(names[i] + BLASD_ID_LEN, ".out", 5);
        argv[5 + i] = names[i];
    }
    redisReply *reply = redisCommandArgv(bed->raw, 5 + BLOBS, argv, NULL);
    assert_int_equal(reply->len, BLOBS);
    drop(reply);
}

static void calls_cost_what_they_do_alone(void **state) {
    enum { REFS, TURN, END, TICK, KINDS };
    struct bed bed;
    struct blasd_claim claims[1];
    char id[BLASD_ID_LEN + 1];
    long long cost[2][KINDS];
    (void)state;
    bed_open(&bed, &server, "bounds");
    bed.limits.record_sync_bytes = BLASD_MIB;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < (round == 0 ? 3 : MANY); i++) tenant_more(&bed, round * MANY + i);
        tenant = "anonymous";
        commands_run(&bed);
        ask_for_blobs(&bed);
        cost[round][REFS] = commands_run(&bed);
        assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
        cost[round][TURN] = commands_run(&bed);
        memcpy(id, claims[0].id, sizeof id);
        redis_forward(&server, 1100); /* a new second's first record */
        assert_int_equal(finish(worker, id, "record", 0), 1);
        cost[round][END] = commands_run(&bed);
        drop(fcall(&bed, "tick", NULL));
        cost[round][TICK] = commands_run(&bed);
    }
    for (int k = 0; k < KINDS; k++)
        if (cost[1][k] > cost[0][k] + (k == TICK ? 2 * MANY : 10)) /* a tick looks at some lines */
            fail_msg("kind %d: %lld commands, and %lld with %d tenants more", k, cost[0][k],
                     cost[1][k], MANY);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* A job that a worker gives back has cost no attempt, however often that is. */
static void given_back_is_no_attempt(void **state) {
    struct bed bed;
    struct blasd_claim claims[1];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "back");
    submit_new(&bed, id, "2");
    for (int i = 0; i < 2 * (int)bed.limits.attempts; i++) {
        struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
        assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
        assert_int_equal(claims[0].attempts, 0);
        begin(worker, claims, 1);
        assert_int_equal(blasd_worker_queue_release(worker, &err), 0);
        blasd_worker_queue_free(worker);
    }
    assert_string_equal(record_line(&bed, id, LINE_STATE), "queued");
    bed_close(&bed);
}

/* What a worker writes once others have taken over what it held. */
static void claims_of_the_lapsed_go(void **state) {
    struct bed bed;
    struct blasd_claim claims[1];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    bool lost;
    (void)state;
    bed_open(&bed, &server, "lapsed");
    submit_new(&bed, id, "2");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    drop(redisCommand(bed.raw, "HDEL %s:claims:w !", bed.tag));
    drop(fcall(&bed, "tick", NULL));
    begin(worker, claims, 1);
    assert_int_equal(blasd_worker_queue_renew(worker, "{}", &lost, &err), 0);
    assert_true(lost);
    redisReply *reply = redisCommand(bed.raw, "EXISTS %s:claims:w", bed.tag);
    assert_int_equal(reply->integer, 0);
    drop(reply);
    assert_string_equal(record_line(&bed, id, LINE_STATE), "queued");
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_cost_what_they_do_alone),
                                       cmocka_unit_test(given_back_is_no_attempt),
                                       cmocka_unit_test(claims_of_the_lapsed_go)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
