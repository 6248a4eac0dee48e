/* What stays of jobs that have ended, and for how long: results that were promised by an answer 202
 * and those that were not, Idempotency-Keys, and the counts of how jobs ended. */
#include "redis_fixture.h"

#include "wire/frame.h"

static long long hget(struct bed *bed, const char *key, const char *field) {
    redisReply *reply = redisCommand(bed->raw, "HGET %s:%s %s", bed->tag, key, field);
    long long n = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
    drop(reply);
    return n;
}

static long long keys_like(struct bed *bed, const char *pattern) {
    redisReply *reply = redisCommand(bed->raw, "KEYS %s:%s", bed->tag, pattern);
    long long n = (long long)reply->elements;
    drop(reply);
    return n;
}

static long long ttl(struct bed *bed, const char *key) {
    redisReply *reply = redisCommand(bed->raw, "TTL %s:idem:anonymous:%s", bed->tag, key);
    long long n = reply->integer;
    drop(reply);
    return n;
}

static void end(struct bed *bed, struct blasd_worker_queue *worker, const char *id,
                uint64_t bytes) {
    struct blasd_claim claims[8];
    (void)bed;
    claim(worker, 8, PLENTY, claims);
    assert_int_equal(finish(worker, id, "record", bytes), 1);
}

/* Of two jobs that were waited for, one until the time was up. */
static void what_was_promised_stays(void **state) {
    struct bed bed;
    char kept[BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "promise");
    bed.limits.record_sync_s = 60;
    bed.limits.record_sync_bytes = BLASD_MIB;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    id_make(kept, BLASD_ID_SYNC, 0);
    assert_int_equal(submit_as(&bed, kept, "2", "9", "b=1", "me"), 0);
    submit_new(&bed, other, "2");
    for (int i = 0; i < 2; i++) { /* asking twice changes nothing */
        redisReply *reply = fcall(&bed, "watch", "", kept, NULL);
        assert_true(reply_is(reply->element[0], BLASD_QUEUED));
        drop(reply);
    }
    struct blasd_claim claims[8];
    assert_int_equal(claim(worker, 8, PLENTY, claims), 2);
    assert_true(claims[0].stored && !claims[1].stored);
    assert_int_equal(finish(worker, kept, "promised", 5000000), 1);
    assert_int_equal(finish(worker, other, "record", 0), 1);
    redisReply *reply = fcall(&bed, "watch", "", kept, other, NULL); /* they have ended */
    assert_string_equal(reply->element[0]->str, "promised");
    assert_string_equal(reply->element[1]->str, "record");
    drop(reply);
    redis_forward(&server, 62000);
    drop(fcall(&bed, "tick", NULL));
    assert_string_equal(record_line(&bed, other, 0), "410");
    assert_string_equal(record_line(&bed, kept, 0), "promised");
    char blob[BLASD_ID_LEN + 5];
    snprintf(blob, sizeof blob, "%s.out", kept);
    reply = fcall(&bed, "refs", blob, NULL);
    assert_string_equal(reply->str, "1");
    drop(reply);
    assert_int_equal(list_all(&bed, "any", "10", NULL, NULL), 1);
    drop(fcall(&bed, "cancel", "1", kept, NULL));
    assert_int_equal(counted(&bed, "kept_a"), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Where what is kept has filled its room, jobs are refused; nothing that was promised goes. */
static void full_of_promises(void **state) {
    struct bed bed;
    char id[2][BLASD_ID_LEN + 1], more[BLASD_ID_LEN + 1], waited[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "promises");
    bed.limits.record_bytes = BLASD_MIB;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 2; i++) {
        id_make(id[i], BLASD_ID_ASYNC, 20 - 10 * i);
        assert_int_equal(submit_as(&bed, id[i], "2", "9", "", ""), 0);
        end(&bed, worker, id[i], 600000);
    }
    drop(fcall(&bed, "tick", NULL));
    id_make(more, BLASD_ID_ASYNC, 0);
    assert_int_equal(submit_as(&bed, more, "2", "9", "", ""), 5);
    assert_string_equal(record_line(&bed, more, 0), "404");
    submit_new(&bed, waited, "2"); /* which needs no room as a rule */
    drop(fcall(&bed, "watch", "", waited, NULL));
    end(&bed, worker, waited, 600000);
    id_make(more, BLASD_ID_SYNC, 0);
    assert_int_equal(submit_as(&bed, more, "2", "9", "", ""), 5); /* but enough is enough */
    for (int i = 0; i < 2; i++) assert_string_equal(record_line(&bed, id[i], 0), "record");
    assert_string_equal(record_line(&bed, waited, 0), "record");
    drop(fcall(&bed, "cancel", "1", id[0], waited, NULL));
    id_make(more, BLASD_ID_ASYNC, 0);
    assert_int_equal(submit_as(&bed, more, "2", "9", "", ""), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* A key lives as long as its job, and record_async_s beyond that, and it is weighed. */
static void keys_live_with_their_jobs(void **state) {
    struct bed bed;
    char id[BLASD_ID_LEN + 1], again[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "keys");
    bed.limits.record_async_s = 100;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    id_make(id, BLASD_ID_ASYNC, 0);
    id_make(again, BLASD_ID_ASYNC, 0);
    assert_int_equal(submit_as(&bed, id, "2", "9", "k=1:mine", ""), 0);
    assert_int_equal(ttl(&bed, "mine"), -1);
    drop(fcall(&bed, "watch", "", id, NULL));
    assert_int_equal(submit_as(&bed, again, "2", "9", "k=1:mine", "other"), -1); /* that job */
    end(&bed, worker, id, 0);
    assert_in_range(ttl(&bed, "mine"), 90, 100);
    assert_true(counted(&bed, "kept_a") > 300);
    assert_int_equal(submit_as(&bed, again, "2", "9", "k=1:mine", ""), -1);
    drop(fcall(&bed, "cancel", "1", id, NULL)); /* forgotten, key and all */
    assert_int_equal(ttl(&bed, "mine"), -2);
    assert_int_equal(counted(&bed, "kept_a"), 0);
    assert_int_equal(submit_as(&bed, again, "2", "9", "k=2:mine", ""), 0);
    drop(fcall(&bed, "cancel", "0", again, NULL)); /* ended without a worker */
    assert_in_range(ttl(&bed, "mine"), 90, 100);
    redis_forward(&server, 120000);
    drop(fcall(&bed, "tick", NULL));
    assert_int_equal(ttl(&bed, "mine"), -2);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Each record goes some time after its own job has ended, with its key. */
static void records_stay_as_long_as_their_keys(void **state) {
    struct bed bed;
    char id[BLASD_ID_LEN + 1], late[BLASD_ID_LEN + 1], again[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "bucket");
    bed.limits.record_async_s = 100;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    id_make(id, BLASD_ID_ASYNC, 0);
    memcpy(late, id, sizeof late);
    late[20] = late[20] == '0' ? '1' : '0'; /* made in the same second */
    assert_int_equal(submit_as(&bed, id, "2", "9", "k=1:mine", ""), 0);
    assert_int_equal(submit_as(&bed, late, "2", "9", "", ""), 0);
    end(&bed, worker, id, 0);
    redis_forward(&server, 60000);
    end(&bed, worker, late, 0);
    redis_forward(&server, 60000);
    drop(fcall(&bed, "tick", NULL));
    assert_string_equal(record_line(&bed, id, 0), "410");
    assert_string_equal(record_line(&bed, late, 0), "record");
    assert_int_equal(ttl(&bed, "mine"), -2);
    id_make(again, BLASD_ID_ASYNC, 0);
    redis_forward(&server, 60000);
    drop(fcall(&bed, "tick", NULL));
    assert_string_equal(record_line(&bed, late, 0), "410");
    assert_int_equal(ttl(&bed, "mine"), -2);
    assert_int_equal(submit_as(&bed, again, "2", "9", "k=1:mine", ""), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Of how many jobs {q}:claims:w says what progress they make. */
static int progress_of(struct bed *bed) {
    redisReply *reply = redisCommand(bed->raw, "HKEYS %s:claims:w", bed->tag);
    int count = 0;
    for (size_t i = 0; i < reply->elements; i++)
        count += reply->element[i]->str[0] == '%' && reply->element[i]->len > 1;
    drop(reply);
    return count;
}

/* Progress of a job that ends while it runs, whoever ended it. */
static void nothing_is_left_of_their_progress(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    struct blasd_err err;
    bool wanted;
    (void)state;
    bed_open(&bed, &server, "progress");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        char id[BLASD_ID_LEN + 1];
        const char *const ids[] = {id};
        submit_new(&bed, id, "2");
        assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
        begin(worker, claims, 1);
        assert_int_equal(blasd_worker_queue_progress(worker, ids, 1, 0.5, -1, &wanted, &err), 0);
        assert_true(wanted);
        assert_int_equal(progress_of(&bed), 1);
        if (cancelled) drop(fcall(&bed, "cancel", "0", id, NULL));
        assert_int_equal(finish(worker, id, "record", 0), !cancelled);
        assert_int_equal(progress_of(&bed), 0);
    }
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* What is waited for fills no more than its limit; its keys stay, or the same request would run
 * again.
 */
static void waited_for_results_go_but_for_keys(void **state) {
    enum { JOBS = 8000, KEYED = 10 };
    struct bed bed;
    char id[BLASD_ID_LEN + 1], option[64];
    (void)state;
    bed_open(&bed, &server, "many_keys");
    bed.limits.record_sync_bytes = BLASD_MIB;
    bed_limits(&bed);
    for (int i = 0; i < JOBS; i++) {
        bool keyed = i >= JOBS - KEYED;
        id_make(id, BLASD_ID_SYNC, 50 - i / 200);
        snprintf(option, sizeof option, keyed ? "k=1:key number %d" : "d=60000", i);
        assert_int_equal(submit_as(&bed, id, "2", "9", option, ""), 0);
        drop(fcall(&bed, "cancel", "0", id, NULL));
        if (i % 400 == 0) redis_forward(&server, 1000);
        if (i % 400 == 0) drop(fcall(&bed, "tick", NULL));
    }
    assert_in_range(counted(&bed, "kept_s"), 200 * 300, BLASD_MIB + BLASD_MIB / 2);
    redis_forward(&server, 4000);
    drop(fcall(&bed, "tick", NULL));
    for (int i = JOBS - KEYED; i < JOBS; i++) {
        id_make(id, BLASD_ID_SYNC, 0);
        snprintf(option, sizeof option, "k=1:key number %d", i);
        assert_int_equal(submit_as(&bed, id, "2", "9", option, ""), 14); /* it has run */
    }
    redis_forward(&server, 62000);
    assert_int_equal(submit_as(&bed, id, "2", "9", option, ""), 0);
    bed_close(&bed);
}

/* Every end, whoever decides it, and once. */
static void ends_are_counted(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    struct blasd_err err;
    char id[5][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "ends");
    bed.limits.attempts = 1;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 5; i++) {
        id_make(id[i], BLASD_ID_ASYNC, 0);
        assert_int_equal(submit_as(&bed, id[i], "2", "9", i == 3 ? "d=60000" : "", ""), 0);
    }
    drop(
        fcall(&bed, "submit", SAME_SEQ, id[4], id[4], "2", "9", "", "\t\tmatmul\tanonymous", NULL));
    assert_int_equal(hget(&bed, "state", "matmul submitted"), 5);
    drop(fcall(&bed, "cancel", "0", id[0], id[0], NULL));
    drop(fcall(&bed, "cancel", "0", id[0], NULL));
    redis_forward(&server, 60000);
    drop(fcall(&bed, "tick", NULL));
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    begin(worker, claims, 1);
    expire_worker(&bed, "w");
    worker = (blasd_worker_queue_free(worker), worker_new(&bed, "w", BLASD_DEVICE_CPU));
    assert_int_equal(claim(worker, 8, PLENTY, claims), 2);
    for (int i = 0; i < 2; i++) {
        struct blasd_record record = {.state = i == 0 ? BLASD_SUCCEEDED : BLASD_FAILED};
        struct blasd_buf buf;
        bool lost;
        snprintf(record.id, sizeof record.id, "%.*s", BLASD_ID_LEN, claims[i].id);
        snprintf(record.op, sizeof record.op, "matmul");
        snprintf(record.execution.device_name, sizeof record.execution.device_name, "a device");
        snprintf(record.execution.warnings[0].text, BLASD_WARNING_MAX, "careful");
        record.execution.warning_count = 1;
        if (i == 1) blasd_fail(&record.error, BLASD_E_singular_matrix, "inputs.a", "it is");
        blasd_buf_init(&buf, BLASD_MIB);
        assert_int_equal(blasd_record_encode(&record, &buf, &err), 0);
        struct blasd_completion completion = {
            .id = claims[i].id, .record = buf.data, .record_len = buf.len};
        assert_int_equal(blasd_worker_queue_finish(worker, &completion, 1, &lost, &err), 0);
        assert_true(completion.accepted);
        assert_int_equal(blasd_worker_queue_finish(worker, &completion, 1, &lost, &err), 0);
        assert_false(completion.accepted);
        blasd_buf_release(&buf);
    }
    assert_int_equal(hget(&bed, "state", "matmul succeeded"), 1);
    assert_int_equal(hget(&bed, "state", "matmul failed singular_matrix"), 1);
    assert_int_equal(hget(&bed, "state", "matmul failed poisoned"), 1);
    assert_int_equal(hget(&bed, "state", "matmul cancelled"), 1);
    assert_int_equal(hget(&bed, "state", "matmul expired"), 1);
    redisReply *reply = fcall(&bed, "stats", NULL);
    assert_non_null(strstr(reply->str, "\"matmul failed singular_matrix\":1"));
    drop(reply);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Each second leaves a bucket of records of each tenant: ticks that come once a second keep up. */
static void records_of_many_tenants_go(void **state) {
    enum { TENANTS = 600, SECONDS = 5 };
    struct bed bed;
    char name[32], id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "many");
    bed.limits.record_sync_s = 60;
    bed_limits(&bed);
    tenant = name;
    for (int i = 0; i < TENANTS; i++) {
        snprintf(name, sizeof name, "t%d", i);
        submit_new(&bed, id, "2");
        drop(fcall(&bed, "cancel", "0", id, NULL));
    }
    tenant = "anonymous";
    redis_forward(&server, 62000);
    drop(fcall(&bed, "tick", NULL));
    for (int i = 1; i < SECONDS; i++) drop(fcall(&bed, "tick", NULL));
    assert_int_equal(keys_like(&bed, "goes:*"), 0);
    assert_int_equal(counted(&bed, "kept_s"), 0);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_of_many_tenants_go),
        cmocka_unit_test(what_was_promised_stays),
        cmocka_unit_test(full_of_promises),
        cmocka_unit_test(keys_live_with_their_jobs),
        cmocka_unit_test(waited_for_results_go_but_for_keys),
        cmocka_unit_test(ends_are_counted),
        cmocka_unit_test(records_stay_as_long_as_their_keys),
        cmocka_unit_test(nothing_is_left_of_their_progress),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
