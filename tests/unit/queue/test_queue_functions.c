/* The functions in Redis that front ends call, by hand: submit and its refusals, cancel, deadlines,
 * records and how they go, lists; and what both sides share in redis_link.c. */

#include "redis_fixture.h"

static void test_cancel(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char queued[BLASD_ID_LEN + 1], running[BLASD_ID_LEN + 1], ended[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "cancel");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, running, "2");
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    begin(worker, claims, 1);
    submit_new(&bed, ended, "2");
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    assert_int_equal(finish(worker, ended, "as it was", 55), 1);
    submit_new(&bed, queued, "2");
    redisReply *reply =
        fcall(&bed, "cancel", "1", queued, running, ended, queued, "nonsense", NULL);
    assert_int_equal(reply->elements, 5);
    assert_true(reply_is(reply->element[0], BLASD_CANCELLED));
    assert_true(reply_is(reply->element[1], BLASD_CANCELLED));
    assert_string_equal(reply->element[2]->str, "as it was");
    assert_int_equal(reply->element[3]->integer, 404); /* twice in one call */
    assert_int_equal(reply->element[4]->integer, 404);
    drop(reply);
    assert_string_equal(record_line(&bed, queued, LINE_ERROR), "cancelled");
    assert_true(strtoll(record_line(&bed, running, LINE_STARTED), NULL, 10) > 0);
    assert_string_equal(record_line(&bed, ended, 0), "404");
    assert_int_equal(pending(&bed), 0);
    assert_int_equal(finish(worker, running, "r", 0), 0);
    assert_string_equal(record_line(&bed, running, LINE_STATE), "cancelled");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    drop(fcall(&bed, "cancel", "1", queued, running, NULL)); /* forgotten now */
    assert_string_equal(record_line(&bed, queued, 0), "404");
    assert_int_equal(counted(&bed, "kept_s"), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_deadlines(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[4][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "deadline");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 4; i++) {
        id_make(id[i], BLASD_ID_ASYNC, 0);
        assert_int_equal(submit_as(&bed, id[i], "2", "9", i == 3 ? "d=600000" : "d=60000", ""), 0);
    }
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1); /* id[0] */
    begin(worker, claims, 1);
    redisReply *reply = fcall(&bed, "tick", NULL);
    assert_true(reply->element[6]->integer > reply->element[0]->integer);
    assert_true(reply->element[6]->integer <= reply->element[0]->integer + 60000000);
    drop(reply);
    redis_forward(&server, 60000);
    /* nobody has looked yet: the deadline holds all the same */
    assert_int_equal(finish(worker, id[0], "too late", 0), 0);
    assert_string_equal(record_line(&bed, id[0], LINE_STATE), "expired");
    assert_string_equal(record_line(&bed, id[0], LINE_ERROR), "deadline_exceeded");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id[3]);
    assert_string_equal(record_line(&bed, id[1], LINE_STATE), "expired");
    assert_string_equal(record_line(&bed, id[2], LINE_STATE), "expired");
    assert_int_equal(finish(worker, id[3], "r", 0), 1);
    reply = fcall(&bed, "tick", NULL);
    assert_int_equal(reply->element[1]->integer, 0);
    assert_int_equal(reply->element[2]->integer, 0);
    assert_int_equal(reply->element[6]->integer, 0);
    drop(reply);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_full(void **state) {
    struct bed bed;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "full");
    bed.limits.queue_jobs = 3;
    bed.limits.queue_bytes = 1000;
    bed_limits(&bed);
    id_make(id, BLASD_ID_SYNC, 0);
    assert_int_equal(submit_as(&bed, id, "2", "1001", "", ""), 1); /* by bytes */
    assert_int_equal(submit_as(&bed, id, "2", "600", "d=60000", ""), 0);
    id_make(id, BLASD_ID_SYNC, 0);
    assert_int_equal(submit_as(&bed, id, "2", "600", "", ""), 1);
    redis_forward(&server, 60000); /* what has expired makes room */
    assert_int_equal(submit_as(&bed, id, "2", "600", "", ""), 0);
    submit_new(&bed, id, "2");
    submit_new(&bed, id, "2");
    id_make(id, BLASD_ID_SYNC, 0);
    assert_int_equal(submit_as(&bed, id, "2", "1", "", ""), 1); /* by count */
    assert_string_equal(record_line(&bed, id, 0), "404");
    assert_int_equal(pending(&bed), 3);
    /* a batch of which only part fits */
    char a[BLASD_ID_LEN + 1], b[BLASD_ID_LEN + 1];
    bed.limits.queue_jobs = 4;
    bed_limits(&bed);
    id_make(a, BLASD_ID_SYNC, 0);
    id_make(b, BLASD_ID_SYNC, 0);
    redisReply *reply =
        fcall(&bed, "submit", NEXT_SEQ, a, "f", "2", "1", "", "\t\tmatmul\tanonymous", b, "f", "2",
              "1", "", "\t\tmatmul\tanonymous", NULL);
    assert_int_equal(reply->element[1]->integer, 4);
    assert_int_equal(reply->element[2]->integer, 801);
    assert_int_equal(reply->element[3]->integer, 0);
    assert_int_equal(reply->element[4]->integer, 1);
    drop(reply);
    assert_int_equal(submit_as(&bed, b, "2", "what", "", ""), 4);
    assert_int_equal(submit_as(&bed, b, "0", "1", "", ""), 4);
    assert_int_equal(submit_as(&bed, "short", "2", "1", "", ""), 4);
    bed_close(&bed);
}

static void test_idempotency(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char first[BLASD_ID_LEN + 1], again[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "idem");
    id_make(first, BLASD_ID_ASYNC, 0);
    id_make(again, BLASD_ID_ASYNC, 0);
    assert_int_equal(submit_as(&bed, first, "2", "9", "k=00ff:my key: d=1", ""), 0);
    redisReply *reply = fcall(&bed, "submit", NEXT_SEQ, again, "f", "2", "9", "k=00ff:my key: d=1",
                              "\tme\tmatmul\tanonymous", NULL);
    assert_int_equal(reply->element[3]->type, REDIS_REPLY_ARRAY);
    assert_string_equal(reply->element[3]->element[0]->str, first);
    assert_string_equal(reply->element[3]->element[1]->str, "");
    drop(reply);
    reply = redisCommand(bed.raw, "HGET %s:pending %s", bed.tag, first);
    assert_non_null(strstr(reply->str, "\tme\tmatmul"));
    assert_non_null(strstr(reply->str, " 9 0 0\t")); /* and the key was not read as an option */
    drop(reply);
    assert_int_equal(submit_as(&bed, again, "2", "9", "k=00fe:my key: d=1", ""), 2);
    assert_int_equal(submit_as(&bed, again, "2", "9", "k=00fe:another key", ""), 0);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 2);
    assert_int_equal(finish(worker, first, "the result", 0), 1);
    reply = fcall(&bed, "submit", NEXT_SEQ, again, "f", "2", "9", "k=00ff:my key: d=1",
                  "\tme\tmatmul\tanonymous", NULL);
    assert_string_equal(reply->element[3]->element[1]->str, "the result");
    drop(reply);
    /* what the release before kept is the first half of what is kept now */
    char old[BLASD_ID_LEN + 1];
    id_make(old, BLASD_ID_ASYNC, 0);
    assert_int_equal(submit_as(&bed, old, "2", "9", "k=0123456789abcdef:old", ""), 0);
    reply = fcall(&bed, "submit", NEXT_SEQ, again, "f", "2", "9",
                  "k=0123456789abcdeffedcba9876543210:old", "\tme\tmatmul\tanonymous", NULL);
    assert_int_equal(reply->element[3]->type, REDIS_REPLY_ARRAY);
    assert_string_equal(reply->element[3]->element[0]->str, old);
    drop(reply);
    id_make(old, BLASD_ID_ASYNC, 0);
    assert_int_equal(submit_as(&bed, old, "2", "9", "k=0123456789abcdeffedcba9876543210:new", ""),
                     0);
    assert_int_equal(submit_as(&bed, again, "2", "9", "k=0123456789abcdeffedcba9876543211:new", ""),
                     2);
    assert_int_equal(submit_as(&bed, again, "2", "9", "k=0123456789abcdee:new", ""), 2);
    assert_int_equal(submit_as(&bed, again, "2", "9", "k=0123456789abcdef:new", ""), -1);
    assert_int_equal(submit_as(&bed, again, "2", "9", "k=0123456789abc:new", ""), 2);
    /* both in one call */
    char c[BLASD_ID_LEN + 1], d[BLASD_ID_LEN + 1];
    id_make(c, BLASD_ID_SYNC, 0);
    id_make(d, BLASD_ID_SYNC, 0);
    reply = fcall(&bed, "submit", NEXT_SEQ, c, "f", "2", "9", "k=1:k", "\t\tmatmul\tanonymous", d,
                  "f", "2", "9", "k=1:k", "\t\tmatmul\tanonymous", NULL);
    assert_int_equal(reply->element[3]->integer, 0);
    assert_string_equal(reply->element[4]->element[0]->str, c);
    drop(reply);
    /* the key is free once its job's record is gone */
    drop(fcall(&bed, "cancel", "1", first, NULL));
    assert_int_equal(submit_as(&bed, d, "2", "9", "k=00ff:my key: d=1", ""), 0);
    /* sent again after a lost reply */
    long long before = pending(&bed);
    reply = fcall(&bed, "submit", SAME_SEQ, d, "f", "2", "9", "k=00ff:my key: d=1",
                  "\t\tmatmul\tanonymous", NULL);
    assert_int_equal(reply->element[3]->integer, 0);
    drop(reply);
    assert_int_equal(pending(&bed), before);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* A finished job whose id says that it was made `ago_s` ago. */
static void finished(struct bed *bed, struct blasd_worker_queue *worker, char *id, int ago_s,
                     uint64_t blob_bytes) {
    struct blasd_claim claim_of[1];
    id_make(id, BLASD_ID_SYNC, ago_s);
    assert_int_equal(submit_as(bed, id, "2", "9", "", ""), 0);
    assert_int_equal(claim(worker, 1, PLENTY, claim_of), 1);
    assert_int_equal(finish(worker, id, "record", blob_bytes), 1);
}

static void test_records_expire(void **state) {
    struct bed bed;
    char id[BLASD_ID_LEN + 1], old[BLASD_ID_LEN + 1], waiting[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "expire");
    bed.limits.record_sync_s = 60;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    finished(&bed, worker, old, 500, 0); /* ended now, however long ago it began */
    finished(&bed, worker, id, 0, 123);
    submit_new(&bed, waiting, "5");
    drop(fcall(&bed, "tick", NULL));
    assert_string_equal(record_line(&bed, old, 0), "record");
    assert_string_equal(record_line(&bed, id, 0), "record");
    redis_forward(&server, 62000);
    redisReply *reply = fcall(&bed, "tick", NULL);
    assert_int_equal(reply->element[5]->integer, 1); /* one blob set free */
    drop(reply);
    assert_string_equal(record_line(&bed, old, 0), "410");
    assert_string_equal(record_line(&bed, id, 0), "410");
    assert_string_equal(record_line(&bed, waiting, LINE_STATE), "queued"); /* never a pending one */
    assert_int_equal(counted(&bed, "kept_s"), 0);
    reply = redisCommand(bed.raw, "KEYS %s:goes:*", bed.tag);
    assert_int_equal(reply->elements, 0);
    drop(reply);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Nothing is left to take off the total when the second of such a record expires. */
static void test_deleted_records_expire(void **state) {
    struct bed bed;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "expire_deleted");
    bed.limits.record_sync_s = 60;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    finished(&bed, worker, id, 0, 123);
    drop(fcall(&bed, "cancel", "1", id, NULL)); /* ended already: forgotten */
    assert_string_equal(record_line(&bed, id, 0), "404");
    redis_forward(&server, 62000);
    redisReply *reply = fcall(&bed, "tick", NULL);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    drop(reply);
    assert_int_equal(counted(&bed, "kept_s"), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Results that were waited for have a limit of their own: beyond it they stay for a moment only. */
static void test_sync_records_fit(void **state) {
    struct bed bed;
    char id[4][BLASD_ID_LEN + 1], kept[BLASD_ID_LEN + 1];
    struct blasd_claim claim_of[1];
    (void)state;
    bed_open(&bed, &server, "capsync");
    bed.limits.record_sync_bytes = BLASD_MIB;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    id_make(kept, BLASD_ID_ASYNC, 50);
    assert_int_equal(submit_as(&bed, kept, "2", "9", "", ""), 0);
    assert_int_equal(claim(worker, 1, PLENTY, claim_of), 1);
    assert_int_equal(finish(worker, kept, "record", 3000000), 1);
    for (int i = 0; i < 4; i++) {
        finished(&bed, worker, id[i], 40 - i, 400000);
        redis_forward(&server, i < 3 ? 1010 : 0);
    }
    assert_string_equal(record_line(&bed, id[3], 0), "record");
    redis_forward(&server, 4000);
    drop(fcall(&bed, "tick", NULL));
    for (int i = 0; i < 4; i++)
        assert_string_equal(record_line(&bed, id[i], 0), i < 2 ? "record" : "410");
    redis_forward(&server, 30000);
    drop(fcall(&bed, "tick", NULL));
    assert_string_equal(record_line(&bed, id[0], 0), "record");
    assert_string_equal(record_line(&bed, id[1], 0), "410");
    assert_string_equal(record_line(&bed, kept, 0), "record"); /* nobody waited for this one */
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static redisReply *list_page(struct bed *bed, const char *which, const char *limit,
                             const char *cursor) {
    return fcall(bed, "list", which, "", "0", "9000000000000000", limit, cursor, NULL);
}

static int count_states(const redisReply *reply, const char *name) {
    enum blasd_state state;
    int n = 0;
    assert_true(blasd_state_find(name, &state));
    for (size_t i = 0; i < reply->elements; i++) n += reply_is(reply->element[i], state);
    return n;
}

static void test_list(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    char id[12][BLASD_ID_LEN + 1];
    int64_t now_us = blasd_clock_wall_us();
    (void)state;
    bed_open(&bed, &server, "list");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 12; i++) {
        /* one clock reading for all: a second each, whatever second the clock passes meanwhile */
        blasd_id_new(i % 2 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, now_us - (12 - i) * INT64_C(1000000),
                     id[i]);
        assert_int_equal(submit_as(&bed, id[i], "2", "9", "", ""), 0);
    }
    assert_int_equal(claim(worker, 8, PLENTY, claims), 8);
    for (int i = 0; i < 5; i++) {
        char record[BLASD_ID_LEN + 1];
        memcpy(record, claims[i].id, sizeof record);
        assert_int_equal(finish(worker, record, record, 0), 1);
    }
    begin(worker, claims + 5, 3);
    redisReply *reply = list_page(&bed, "any", "100", "");
    assert_int_equal(reply->elements, 13);
    assert_string_equal(reply->element[0]->str, "");
    assert_int_equal(count_states(reply, "queued"), 4);
    assert_int_equal(count_states(reply, "running"), 3);
    for (int i = 0; i < 5; i++) { /* those of each kind newest first */
        static const int order[] = {4, 2, 0, 3, 1};
        bool there = false;
        for (int k = 0; k < 5; k++)
            there = there || strcmp(reply->element[8 + k]->str, id[order[i]]) == 0;
        assert_true(there);
    }
    drop(reply);
    reply = list_page(&bed, "running", "2", "");
    assert_int_equal(reply->elements, 3);
    assert_int_equal(count_states(reply, "running"), 2);
    drop(reply);
    reply = list_page(&bed, "queued", "3", "");
    assert_int_equal(reply->elements, 4);
    assert_int_equal(count_states(reply, "queued"), 3);
    assert_true(reply_names(reply->element[1], id[11])); /* newest first */
    drop(reply);
    reply = list_page(&bed, "succeeded", "2", "");
    assert_int_equal(reply->elements, 3);
    assert_true(strcmp(reply->element[1]->str, id[4]) == 0 ||
                strcmp(reply->element[1]->str, id[3]) == 0);
    drop(reply);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_store_identity(void **state) {
    struct bed bed;
    struct blasd_err err;
    struct blasd_worker_queue *worker;
    int64_t epoch;
    (void)state;
    bed_open(&bed, &server, "store");
    assert_int_equal(blasd_worker_queue_open(&bed.options, &worker, &err), 0);
    drop(redisCommand(bed.raw, "SET %s:store dir:elsewhere", bed.tag));
    assert_true(blasd_worker_queue_register(worker, "w", BLASD_DEVICE_CPU, INFO_CPU, &epoch, &err) <
                0);
    assert_non_null(strstr(err.detail, "dir:elsewhere"));
    blasd_worker_queue_free(worker);
    assert_true(blasd_worker_queue_open(&bed.options, &worker, &err) < 0);
    assert_int_equal(err.code, BLASD_E_internal_error);
    assert_non_null(strstr(err.detail, "dir:elsewhere"));
    assert_null(worker);
    assert_int_equal(blasd_queue_adopt_store(&bed.options, &err), 0);
    worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_true(
        blasd_worker_queue_register(worker, "a b", BLASD_DEVICE_CPU, INFO_CPU, &epoch, &err) < 0);
    assert_true(blasd_worker_queue_register(worker, "w", BLASD_DEVICE_ANY, INFO_CPU, &epoch, &err) <
                0);
    assert_true(
        blasd_worker_queue_register(worker, "w", BLASD_DEVICE_CPU, "not json", &epoch, &err) < 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_blobs(void **state) {
    struct bed bed;
    struct blasd_err err;
    struct blasd_blob blob = {.fd = -1}, read = {.fd = -1};
    char id[BLASD_ID_LEN + 1], orphan[BLASD_ID_LEN + 1], name[BLASD_BLOB_NAME];
    const uint64_t bytes = BLASD_QUEUE_CHUNK + 12345;
    (void)state;
    bed_open(&bed, &server, "blobs");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    id_make(id, BLASD_ID_ASYNC, 0);
    assert_int_equal(submit_as(&bed, id, "2", "9", "B=1", ""), 3); /* not there yet */
    snprintf(name, sizeof name, "%s.in", id);
    assert_int_equal(blasd_blob_create(bed.store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, bytes, &err), 0);
    assert_int_equal(blasd_blob_map(&blob, &err), 0);
    for (uint64_t i = 0; i < bytes; i++) ((unsigned char *)blob.data)[i] = (unsigned char)(i * 7);
    if (blasd_worker_queue_blob_put(worker, &blob, &err) < 0) fail_msg("%s", err.detail);
    assert_int_equal(submit_as(&bed, id, "2", "9", "B=1", ""), 0);
    if (blasd_worker_queue_blob_get(worker, name, bytes, &read, &err) < 0)
        fail_msg("%s", err.detail);
    assert_memory_equal(read.data, blob.data, bytes);
    blasd_blob_close(&read);
    blasd_blob_close(&blob);
    /* an orphan stays while it is on hold, then a sweep removes it, and nothing else */
    id_make(orphan, BLASD_ID_ASYNC, 0);
    snprintf(name, sizeof name, "%s.in", orphan);
    assert_int_equal(blasd_blob_create(bed.store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, 100, &err), 0);
    assert_int_equal(blasd_worker_queue_blob_put(worker, &blob, &err), 0);
    blasd_blob_close(&blob);
    assert_int_equal(blasd_worker_queue_sweep(worker, &err), 0);
    drop(redisCommand(bed.raw, "DEL %s:hold:%s %s:hold:%s.in %s:sweeping", bed.tag, name, bed.tag,
                      id, bed.tag));
    assert_int_equal(blasd_worker_queue_sweep(worker, &err), 1);
    assert_int_equal(blasd_worker_queue_sweep(worker, &err), 0); /* once a period */
    assert_true(blasd_worker_queue_blob_get(worker, name, 100, &read, &err) < 0);
    assert_int_equal(err.code, BLASD_E_inputs_lost);
    snprintf(name, sizeof name, "%s.in", id);
    assert_int_equal(blasd_worker_queue_blob_get(worker, name, bytes, &read, &err), 0);
    blasd_blob_close(&read);
    assert_true(blasd_worker_queue_blob_get(worker, name, bytes + 1, &read, &err) < 0);
    drop(fcall(&bed, "cancel", "0", id, NULL)); /* nothing refers to it from now on */
    blasd_worker_queue_blob_remove(worker, name);
    assert_true(blasd_worker_queue_blob_get(worker, name, bytes, &read, &err) < 0);
    redisReply *reply = redisCommand(bed.raw, "KEYS %s:blob:*", bed.tag);
    assert_int_equal(reply->elements, 0);
    drop(reply);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

#define NOTE "\t\tmatmul\tanonymous"

static long long how_many(struct bed *bed, const char *key) {
    redisReply *reply = redisCommand(bed->raw, "HLEN %s:%s", bed->tag, key);
    assert_non_null(reply);
    long long count = reply->integer;
    drop(reply);
    return count;
}

/* Calls a function by hand; whether it said that the call is none. */
static bool is_refused(struct bed *bed, const char *function, const char *const *words) {
    const char *argv[32] = {"FCALL", function, "1", bed->tag, bed->link.text};
    int argc = 5;
    while (argc < 32 && *words != NULL) argv[argc++] = *words++;
    redisReply *reply = redisCommandArgv(bed->raw, argc, argv, NULL);
    assert_non_null(reply);
    bool refused = reply->type == REDIS_REPLY_ERROR;
    drop(reply);
    return refused;
}

/* What no front end and no worker of ours sends is refused before anything is done by it. */
static void test_arguments_that_are_none(void **state) {
    static const char *const outputs[] = {"",
                                          "x",
                                          "1",
                                          "1 x",
                                          "-1 0",
                                          "1 1e999",
                                          "1 99999999999999999999",
                                          "1 0 seg 1",
                                          "1 8 abc 99999999999999999999"};
    struct blasd_claim claims[2];
    struct bed bed;
    char id[2][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "hostile");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 2; i++) {
        id_make(id[i], BLASD_ID_SYNC, 0);
        drop(fcall(&bed, "submit", NEXT_SEQ, id[i], id[i], "2", "100", "", NOTE, NULL));
    }
    assert_int_equal(claim(worker, 2, PLENTY, claims), 2);
    const char *epoch = worker->lease.epoch;
#define TURN(...)                                                                                  \
    is_refused(&bed, BLASD_QUEUE_FN("turn"), (const char *const[]){"w", epoch, __VA_ARGS__, NULL})
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        assert_true(TURN("0", "9", "1", "0", "0", "0", id[0], "r", "1 0", id[1], "r", outputs[i]));
        assert_int_equal(how_many(&bed, "pending") / 2, 2); /* nor is the good one ended */
    }
    assert_true(TURN("0", "9", "1", "0", "0", "0", id[0], "r"));
    assert_true(TURN("x", "9", "1", "0", "0", "0", id[0], "r", "1 0"));
    assert_true(TURN("0", "1e999", "1", "0", "0", "0", id[0], "r", "1 0"));
    assert_true(TURN("0", "9", "7", "1", "0", "0", id[0], "r", "1 0"));
    assert_true(TURN("0", "9", "0", "1", "0", "0", id[0], "r", "1 0"));
    assert_true(TURN("0", "9", "1", "nan", "0", "0", id[0], "r", "1 0"));
    assert_true(TURN("0", "9", "1", "1", "x", "0", id[0], "r", "1 0"));
    assert_int_equal(how_many(&bed, "pending") / 2, 2);
#undef TURN
    static const char *const progress[] = {"nan", "inf", "-1", "2", "x", ""};
    for (size_t i = 0; i < sizeof progress / sizeof *progress; i++)
        assert_true(
            is_refused(&bed, BLASD_QUEUE_FN("note"),
                       (const char *const[]){"w", epoch, "progress", progress[i], id[0], NULL}));
    assert_true(
        is_refused(&bed, BLASD_QUEUE_FN("register"),
                   (const char *const[]){"x", "3", "{}", blasd_store_identity(bed.store), NULL}));
    assert_true(is_refused(&bed, BLASD_QUEUE_FN("watch"),
                           (const char *const[]){"anonymous", "a\tb", id[0], NULL}));
    assert_true(
        is_refused(&bed, BLASD_QUEUE_FN("blob"), (const char *const[]){"hold", "b", "1e18", NULL}));
    /* a size that is none of a blob's keeps nobody waiting */
    drop(redisCommand(bed.raw, "HSET %s:blobs b 1e18", bed.tag));
    drop(fcall(&bed, "blob", "drop", "b", NULL));
    assert_int_equal(how_many(&bed, "blobs"), 0);
    /* numbers beyond all: the job is not taken, or has no deadline, and the others are served */
    static const char *const costs[] = {"99999999999999999999", "1e9", "-1", "nan", ""};
    char bad[BLASD_ID_LEN + 1];
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        id_make(bad, BLASD_ID_SYNC, 0);
        redisReply *reply =
            fcall(&bed, "submit", NEXT_SEQ, bad, "f", "2", costs[i], "", NOTE, NULL);
        assert_int_equal(reply->element[3]->integer, 4);
        drop(reply);
    }
    id_make(bad, BLASD_ID_SYNC, 0);
    drop(fcall(&bed, "submit", NEXT_SEQ, bad, "f", "2", "100",
               "d=99999999999999999999999999999999999999999999999999999999999999999999", NOTE,
               NULL));
    assert_string_equal(record_line(&bed, bad, LINE_STATE), "queued");
    assert_int_equal(claim(worker, 2, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, bad);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_errors(void **state) {
    struct bed bed;
    struct blasd_err err;
    struct blasd_worker_queue *worker;
    (void)state;
    assert_int_equal(blasd_link_fault("LOADING Redis is loading"), BLASD_LINK_UNAVAILABLE);
    assert_int_equal(blasd_link_fault("OOM command not allowed"), BLASD_LINK_UNAVAILABLE);
    assert_int_equal(blasd_link_fault("READONLY You can't write"), BLASD_LINK_ELSEWHERE);
    assert_int_equal(blasd_link_fault("ERR Function not found"), BLASD_LINK_NO_LIBRARY);
    assert_int_equal(blasd_link_fault("WRONGPASS bad"), BLASD_LINK_WRONG);
    bed_open(&bed, &server, "errors");
    bed.options.url = "unix:/nowhere/r.sock";
    bed.limits.lease_ms = 500;
    assert_int_equal(blasd_worker_queue_open(&bed.options, &worker, &err),
                     -(int)BLASD_E_queue_unavailable);
    assert_non_null(strstr(err.detail, "/nowhere/r.sock"));
    /* out of memory: nothing new is taken, what is there can end */
    bed.options.url = server.url;
    bed.limits.lease_ms = 4000;
    worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    char id[BLASD_ID_LEN + 1];
    struct blasd_claim claims[2];
    submit_new(&bed, id, "2");
    drop(redisCommand(bed.raw, "CONFIG SET maxmemory 1"));
    redisReply *reply = redisCommand(bed.raw, "FCALL " BLASD_QUEUE_FN("submit") " 1 %s %s test 0",
                                     bed.tag, bed.link.text);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_int_equal(blasd_link_error(reply->str, &err), -(int)BLASD_E_queue_unavailable);
    drop(reply);
    assert_int_equal(claim(worker, 2, PLENTY, claims), 1);
    begin(worker, claims, 1);
    assert_int_equal(finish(worker, id, "r", 0), 1);
    drop(redisCommand(bed.raw, "CONFIG SET maxmemory 0"));
    assert_string_equal(record_line(&bed, id, 0), "r");
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_idempotency),
        cmocka_unit_test(test_records_expire),
        cmocka_unit_test(test_deleted_records_expire),
        cmocka_unit_test(test_sync_records_fit),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_store_identity),
        cmocka_unit_test(test_blobs),
        cmocka_unit_test(test_arguments_that_are_none),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
