/* Redis' clock goes back, as when NTP sets it: nothing waits for it to come where it was. */
#include "batch_entry_fixture.h"

#define HOUR_MS INT64_C(3600000)

static void tick(struct bed *bed) {
    drop(fcall(bed, "tick", NULL));
}

/* A second after the last tick, as it were. */
static void step_back(struct bed *bed) {
    tick(bed);
    redis_forward(&server, -HOUR_MS);
    tick(bed);
}

static void pass(struct bed *bed, int64_t ms) {
    redis_forward(&server, ms);
    tick(bed);
}

static void deadlines_pass(void **state) {
    struct bed bed;
    char id[2][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "deadline");
    for (int i = 0; i < 2; i++) {
        id_make(id[i], BLASD_ID_ASYNC, 0);
        assert_int_equal(submit_as(&bed, id[i], "2", "100", i == 0 ? "d=60000" : "d=600000", ""),
                         0);
    }
    step_back(&bed);
    assert_string_equal(record_line(&bed, id[0], LINE_STATE), "queued");
    pass(&bed, 61000);
    assert_string_equal(record_line(&bed, id[0], LINE_STATE), "expired");
    assert_string_equal(record_line(&bed, id[1], LINE_STATE), "queued");
    bed_close(&bed);
}

/* What a worker held that has died meanwhile goes back; one that lives is none of those. */
static void leases_lapse(void **state) {
    struct bed bed;
    struct blasd_claim claims[2];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    bool lost;
    (void)state;
    bed_open(&bed, &server, "lease");
    bed.limits.lease_ms = 60000;
    bed_limits(&bed);
    struct blasd_worker_queue *dead = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *other = worker_new(&bed, "v", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    assert_int_equal(claim(dead, 1, PLENTY, claims), 1);
    step_back(&bed);
    pass(&bed, 50000);
    assert_int_equal(blasd_worker_queue_renew(other, INFO_CPU, &lost, &err), 0);
    assert_false(lost);
    assert_int_equal(claim(other, 1, PLENTY, claims), 0);
    pass(&bed, 11000);
    assert_int_equal(claim(other, 1, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    blasd_worker_queue_free(other);
    blasd_worker_queue_free(dead);
    bed_close(&bed);
}

/* A job for a class of which there is no worker goes to another, where it may. */
static void stranded_jobs_move(void **state) {
    static const char frame[16] = {'B', 'L', 'J', 'F', 1, 0, 0, 0, 16, 0, 0, 0, 1, 0};
    struct bed bed;
    struct words words;
    struct blasd_claim claims[1];
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "strand");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    id_make(id, BLASD_ID_ASYNC, 0);
    words_begin(&words, &bed, BLASD_QUEUE_FN("submit"));
    word(&words, "test");
    word(&words, submit_seq(false));
    word(&words, id);
    word_add(&words, frame, sizeof frame);
    word(&words, "8");
    word(&words, "100");
    word(&words, "");
    word(&words, "\t\tmatmul\tanonymous");
    drop(words_call(&bed, &words));
    step_back(&bed);
    pass(&bed, 6000);
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void records_go(void **state) {
    struct bed bed;
    struct blasd_claim claims[1];
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "records");
    bed.limits.record_sync_s = 60;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    assert_int_equal(finish(worker, id, "r", 0), 1);
    step_back(&bed);
    assert_string_equal(record_line(&bed, id, 0), "r");
    pass(&bed, 62000);
    assert_string_equal(record_line(&bed, id, 0), "410");
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* By a worker that leaves then. */
static void end_one(struct bed *bed, const char *name) {
    struct blasd_worker_queue *worker = worker_new(bed, name, BLASD_DEVICE_CPU);
    struct blasd_claim claims[1];
    char id[BLASD_ID_LEN + 1];
    submit_new(bed, id, "2");
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    assert_int_equal(finish(worker, id, "r", 0), 1);
    assert_int_equal(blasd_worker_queue_release(worker, NULL), 0);
    blasd_worker_queue_free(worker);
}

/* As after days in which Redis was away: ticks do not look at each second of them. */
static void records_go_after_a_jump(void **state) {
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "jump");
    bed.limits.record_sync_s = 60;
    bed_limits(&bed);
    end_one(&bed, "before");
    redis_forward(&server, 40 * 24 * HOUR_MS);
    end_one(&bed, "after");
    for (int i = 0; i < 3; i++) tick(&bed);
    redisReply *reply = redisCommand(bed.raw, "KEYS %s:goes:*", bed.tag);
    assert_int_equal(reply->elements, 1); /* of the second one */
    drop(reply);
    pass(&bed, 62000);
    tick(&bed);
    assert_int_equal(state_add(&bed, "kept_s", 0), 0);
    bed_close(&bed);
}

/* Time goes on from where it was, and the clock comes up with it. */
static void time_does_not_go_back(void **state) {
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "time");
    redisReply *reply = fcall(&bed, "tick", NULL);
    long long before = reply->element[0]->integer, last = before;
    drop(reply);
    redis_forward(&server, -4000);
    for (int i = 0; i < 20; i++) {
        reply = fcall(&bed, "tick", NULL);
        long long now = reply->element[0]->integer;
        assert_true(now >= last);
        last = now;
        drop(reply);
        redis_forward(&server, 1100);
    }
    assert_in_range(last - before, 15000000, 30000000);
    drop(redisCommand(bed.raw, "PING"));
    assert_int_equal(state_add(&bed, "offset", 0), 0);
    bed_close(&bed);
}

/* Until when the store is not swept. */
static void what_else_has_a_time(void **state) {
    static const char *const keys[] = {"sweeping", "sweeping:at_work"};
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "else");
    for (int i = 0; i < 2; i++)
        drop(redisCommand(bed.raw, "SET %s:%s w PX 10000", bed.tag, keys[i]));
    step_back(&bed);
    for (int i = 0; i < 2; i++) {
        redisReply *reply = redisCommand(bed.raw, "PTTL %s:%s", bed.tag, keys[i]);
        assert_true(reply->integer <= 600000);
        drop(reply);
    }
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadlines_pass),          cmocka_unit_test(leases_lapse),
        cmocka_unit_test(stranded_jobs_move),      cmocka_unit_test(records_go),
        cmocka_unit_test(what_else_has_a_time),    cmocka_unit_test(time_does_not_go_back),
        cmocka_unit_test(records_go_after_a_jump),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
