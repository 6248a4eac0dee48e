/* How soon one sweep of the store follows another. */
#include "redis_fixture.h"

/* A result that no record refers to, past the time for which it is on hold. */
static void leave_orphan(struct bed *bed, struct blasd_worker_queue *worker) {
    char id[BLASD_ID_LEN + 1], name[BLASD_BLOB_NAME];
    struct blasd_blob blob;
    struct blasd_err err;
    id_make(id, BLASD_ID_SYNC, 0);
    snprintf(name, sizeof name, "%s.out", id);
    assert_int_equal(blasd_blob_create(bed->store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, 100, &err), 0);
    if (blasd_worker_queue_blob_put(worker, &blob, &err) < 0) fail_msg("%s", err.detail);
    blasd_blob_close(&blob);
    drop(redisCommand(bed->raw, "DEL %s:hold:%s", bed->tag, name));
}

/* How long until the next sweep may be. */
static long long pause_ms(struct bed *bed, const char *which) {
    redisReply *reply = redisCommand(bed->raw, "PTTL %s:sweeping%s", bed->tag, which);
    long long ms = reply->integer;
    drop(reply);
    return ms;
}

static void test_another_follows_one_that_found_something(void **state) {
    struct blasd_err err;
    struct bed bed;
    long long ms = 0;
    (void)state;
    bed_open(&bed, &server, "sweep");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(blasd_worker_queue_sweep(worker, &err), 0);
    assert_true(pause_ms(&bed, "") > 0);
    /* one that takes long, as on a machine that stood still, asks for a longer pause */
    for (int i = 0; i < 10 && (i == 0 || ms > 5000); i++) {
        leave_orphan(&bed, worker);
        drop(redisCommand(bed.raw, "DEL %s:sweeping", bed.tag));
        assert_int_equal(blasd_worker_queue_sweep(worker, &err), 1);
        ms = pause_ms(&bed, "");
    }
    assert_true(ms <= 5000);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* While jobs end a sweep waits neither for the long pause after one that found nothing, nor for
 * itself to find anything; and of two workers one sweeps. */
static void test_at_work_they_follow_soon(void **state) {
    struct blasd_err err;
    struct bed bed;
    long long ms = 0;
    (void)state;
    bed_open(&bed, &server, "sweepwork");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *other = worker_new(&bed, "v", BLASD_DEVICE_CPU);
    assert_int_equal(blasd_worker_queue_sweep(worker, &err), 0);
    assert_true(pause_ms(&bed, "") > 5000);
    leave_orphan(&bed, worker);
    assert_int_equal(blasd_worker_queue_sweep(other, &err), 0); /* not yet */
    assert_int_equal(blasd_worker_queue_sweep_at_work(other, &err), 1);
    for (int i = 0; i < 10 && (i == 0 || ms > 5000); i++) { /* nothing to find any more */
        drop(redisCommand(bed.raw, "DEL %s:sweeping:at_work", bed.tag));
        assert_int_equal(blasd_worker_queue_sweep_at_work(worker, &err), 0);
        ms = pause_ms(&bed, ":at_work");
    }
    assert_true(ms <= 5000);
    drop(redisCommand(bed.raw, "SET %s:sweeping:at_work w PX 60000", bed.tag));
    leave_orphan(&bed, worker);
    assert_int_equal(blasd_worker_queue_sweep_at_work(other, &err), 0); /* w's turn */
    blasd_worker_queue_free(other);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_follows_one_that_found_something),
        cmocka_unit_test(test_at_work_they_follow_soon),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
