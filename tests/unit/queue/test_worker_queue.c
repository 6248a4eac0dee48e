/* The queue from a worker's side, against a real redis-server: claiming, completions, leases. */
#include "redis_fixture.h"

static void test_one_job(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "one");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 0);
    id_make(id, BLASD_ID_SYNC, 0);
    assert_string_equal(record_line(&bed, id, 0), "404");
    assert_int_equal(submit_as(&bed, id, "2", "1000", "b=1", ""), 0);
    assert_string_equal(record_line(&bed, id, LINE_STATE), "queued");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    assert_int_equal(claims[0].frame_len, BLASD_ID_LEN);
    assert_memory_equal(claims[0].frame, id, BLASD_ID_LEN);
    assert_int_equal(claims[0].attempts, 0);
    assert_true(claims[0].stored);
    assert_true(claims[0].submitted_us > 0 && claims[0].claimed_us >= claims[0].submitted_us);
    assert_string_equal(record_line(&bed, id, LINE_STATE), "queued");
    assert_int_equal(claim(worker, 4, PLENTY, claims + 1), 0);
    begin(worker, claims, 1);
    struct blasd_err err;
    bool wanted, lost;
    const char *ids[] = {id};
    int64_t epoch;
    struct blasd_worker_queue *beat;
    assert_int_equal(blasd_worker_queue_open(&bed.options, &beat, &err), 0);
    redisReply *reply = redisCommand(bed.raw, "HGET %s:claims:w !", bed.tag);
    epoch = strtoll(reply->str, NULL, 10);
    drop(reply);
    blasd_worker_queue_join(beat, "w", epoch, 8);
    assert_int_equal(blasd_worker_queue_progress(beat, ids, 1, 0.25, -1, &wanted, &err), 0);
    assert_true(wanted);
    assert_string_equal(record_line(&bed, id, LINE_REMAINING), "-1");
    assert_int_equal(blasd_worker_queue_progress(beat, ids, 1, 0.25, 3600000000, &wanted, &err), 0);
    long long left = strtoll(record_line(&bed, id, LINE_REMAINING), NULL, 10);
    assert_true(left <= 3600000000 && left > 3000000000); /* less what has passed since */
    assert_int_equal(blasd_worker_queue_progress(beat, ids, 1, 0.25, 0, &wanted, &err), 0);
    assert_string_equal(record_line(&bed, id, LINE_REMAINING), "0"); /* late: but never less */
    assert_int_equal(blasd_worker_queue_renew(beat, INFO_CPU, &lost, &err), 0);
    assert_false(lost);
    assert_string_equal(record_line(&bed, id, LINE_STATE), "running");
    assert_string_equal(record_line(&bed, id, LINE_PROGRESS), "0.25");
    assert_string_equal(record_line(&bed, id, LINE_ATTEMPTS), "1");
    assert_string_equal(record_line(&bed, id, LINE_DEVICE), "cpu:0");
    assert_true(strtoll(record_line(&bed, id, LINE_STARTED), NULL, 10) >= claims[0].claimed_us);
    assert_int_equal(finish(worker, id, "the record", 0), 1);
    assert_string_equal(record_line(&bed, id, 0), "the record");
    assert_int_equal(finish(worker, id, "another", 0), 0);
    assert_string_equal(record_line(&bed, id, 0), "the record");
    assert_int_equal(blasd_worker_queue_progress(beat, ids, 1, 0.5, -1, &wanted, &err), 0);
    assert_false(wanted);
    assert_int_equal(pending(&bed), 0);
    assert_int_equal(counted(&bed, "bytes"), 0);
    reply = redisCommand(bed.raw, "XLEN %s:s:any:normal", bed.tag);
    assert_int_equal(reply->integer, 0);
    drop(reply);
    blasd_worker_queue_free(beat);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_many_jobs(void **state) {
    enum { JOBS = 500 };
    static struct blasd_claim claims[JOBS];
    static struct blasd_completion completions[JOBS];
    static char ids[JOBS][BLASD_ID_LEN + 1], big[300000];
    struct bed bed;
    struct blasd_err err;
    bool lost;
    int done = 0;
    (void)state;
    bed_open(&bed, &server, "many");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    memset(big, 0, sizeof big); /* records may hold any byte, and be long */
    for (int i = 0; i < JOBS; i++) submit_new(&bed, ids[i], "2");
    while (done < JOBS) {
        int count = claim(worker, 200, PLENTY, claims);
        assert_int_equal(count, JOBS - done < 200 ? JOBS - done : 200);
        for (int i = 0; i < count; i++) assert_string_equal(claims[i].id, ids[done + i]);
        begin(worker, claims, count);
        for (int i = 0; i < count; i++)
            completions[i] = (struct blasd_completion){.id = claims[i].id,
                                                       .record = big,
                                                       .record_len = i == 7 ? sizeof big : 3,
                                                       .out_bytes = i == 8 ? 77 : 0};
        assert_int_equal(blasd_worker_queue_finish(worker, completions, count, &lost, &err), 0);
        assert_false(lost);
        for (int i = 0; i < count; i++) assert_true(completions[i].accepted);
        redisReply *reply = fcall(&bed, "get", ids[done + 7], ids[done + 8], NULL);
        assert_int_equal(reply->element[0]->len, sizeof big);
        assert_memory_equal(reply->element[0]->str, big, sizeof big);
        assert_int_equal(reply->element[1]->len, 3);
        drop(reply);
        char in[64], out[64], none[64];
        snprintf(in, sizeof in, "%s.in", ids[done + 8]);
        snprintf(out, sizeof out, "%s.out", ids[done + 8]);
        snprintf(none, sizeof none, "%s.out", ids[done + 9]);
        reply = fcall(&bed, "refs", in, out, none, NULL);
        assert_string_equal(reply->str, "010");
        drop(reply);
        done += count;
    }
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_published(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char ids[3][BLASD_ID_LEN + 1];
    struct blasd_link_address address;
    struct blasd_err err;
    redisContext *ear;
    (void)state;
    bed_open(&bed, &server, "pub");
    assert_int_equal(blasd_link_parse(server.url, "pub", &address, &err), 0);
    assert_int_equal(blasd_link_connect(&address, 2000, &ear, &err), 0);
    drop(redisCommand(ear, "SUBSCRIBE here"));
    for (int i = 0; i < 3; i++) {
        id_make(ids[i], BLASD_ID_SYNC, 0);
        assert_int_equal(submit_as(&bed, ids[i], "2", "1", "", i < 1 ? "here" : "there"), 0);
    }
    drop(fcall(&bed, "watch", "here", ids[2], NULL)); /* two watch it now */
    drop(fcall(&bed, "watch", "here", ids[2], NULL)); /* twice is once */
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 3);
    struct blasd_completion completions[3];
    for (int i = 0; i < 3; i++)
        completions[i] = (struct blasd_completion){.id = ids[i], .record = "rec", .record_len = 3};
    bool lost;
    assert_int_equal(blasd_worker_queue_finish(worker, completions, 3, &lost, &err), 0);
    void *got;
    assert_int_equal(redisGetReply(ear, &got), REDIS_OK);
    const redisReply *message = ((redisReply *)got)->element[2];
    assert_int_equal(message->len, 2 * (4 + BLASD_ID_LEN + 3));
    for (int i = 0; i < 2; i++) {
        const char *record_frame = message->str + i * (4 + BLASD_ID_LEN + 3);
        assert_memory_equal(record_frame, "\3\0\0\0", 4);
        assert_memory_equal(record_frame + 4, ids[i ? 2 : 0], BLASD_ID_LEN);
        assert_memory_equal(record_frame + 4 + BLASD_ID_LEN, "rec", 3);
    }
    drop(got);
    redisFree(ear);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Which priorities come in eight claims of `max` jobs while there are plenty of each. */
static void test_priorities_and_ageing(void **state) {
    enum { EACH = 60 };
    static struct blasd_claim claims[EACH];
    struct bed bed;
    char id[BLASD_ID_LEN + 1], prio[200][BLASD_ID_LEN + 2];
    int n = 0;
    (void)state;
    bed_open(&bed, &server, "prio");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    static const char *const si[] = {"3", "2", "1"};
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < EACH; i++) {
            submit_new(&bed, id, si[p]);
            prio[n][0] = si[p][0];
            memcpy(prio[n++] + 1, id, sizeof id);
        }
    int seen[4] = {0};
    for (int round = 0; round < 16; round++) {
        assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
        for (int i = 0; i < n; i++)
            if (!strcmp(prio[i] + 1, claims[0].id)) seen[prio[i][0] - '0']++;
        assert_int_equal(finish(worker, claims[0].id, "r", 0), 1);
    }
    assert_int_equal(seen[1], 12); /* high takes what is not set aside */
    assert_int_equal(seen[2], 2);
    assert_int_equal(seen[3], 2); /* and low never starves */
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_classes(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    char any[BLASD_ID_LEN + 1], cpu[BLASD_ID_LEN + 1], cuda[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "class");
    submit_new(&bed, any, "2");
    submit_new(&bed, cpu, "5");
    submit_new(&bed, cuda, "8");
    struct blasd_worker_queue *w1 = worker_new(&bed, "w1", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *w2 = worker_new(&bed, "w2", BLASD_DEVICE_CUDA);
    assert_int_equal(claim(w1, 8, PLENTY, claims), 2);
    assert_string_equal(claims[0].id, cpu);
    assert_string_equal(claims[1].id, any);
    assert_int_equal(claim(w2, 8, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, cuda);
    redisReply *reply = fcall(&bed, "stats", NULL);
    assert_non_null(strstr(reply->str, "\"workers\":{"));
    assert_non_null(strstr(reply->str, "\"w1\":" INFO_CPU));
    assert_non_null(strstr(reply->str, "\"jobs\":3,\"bytes\":300,\"running\":0"));
    assert_non_null(
        strstr(reply->str, "\"normal\":{\"queued\":1,\"claimed\":0}")); /* none has begun */
    drop(reply);
    reply = fcall(&bed, "tick", NULL);
    assert_int_equal(reply->element[3]->integer, 1);
    assert_int_equal(reply->element[4]->integer, 1);
    drop(reply);
    blasd_worker_queue_free(w1);
    blasd_worker_queue_free(w2);
    bed_close(&bed);
}

static void test_claim_bytes(void **state) {
    struct bed bed;
    struct blasd_claim claims[64];
    char id[BLASD_ID_LEN + 1];
    int got = 0, claims_made = 0;
    (void)state;
    bed_open(&bed, &server, "bytes");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 40; i++) {
        id_make(id, BLASD_ID_SYNC, 0);
        assert_int_equal(submit_as(&bed, id, "2", i % 10 == 9 ? "900" : "10", "", ""), 0);
    }
    /* 4 x 900 + 36 x 10; no claim may exceed 500 but for one job alone */
    while (got < 40) {
        int count = claim(worker, 64, 500, claims);
        assert_true(count > 0);
        struct blasd_claim kept[64];
        memcpy(kept, claims, sizeof kept);
        for (int i = 0; i < count; i++) {
            assert_int_equal(kept[i].attempts, 0);
            assert_int_equal(finish(worker, kept[i].id, "r", 0), 1);
        }
        got += count;
        assert_true(++claims_made <= 40);
    }
    assert_int_equal(pending(&bed), 0);
    id_make(id, BLASD_ID_SYNC, 0);
    assert_int_equal(submit_as(&bed, id, "2", "5000", "", ""), 0);
    assert_int_equal(claim(worker, 64, 500, claims), 1); /* the first may exceed it */
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_fenced(void **state) {
    struct bed bed;
    struct blasd_claim mine[4], theirs[4];
    char begun[BLASD_ID_LEN + 1], waiting[BLASD_ID_LEN + 1];
    struct blasd_err err;
    bool lost = false;
    (void)state;
    bed_open(&bed, &server, "fence");
    struct blasd_worker_queue *w1 = worker_new(&bed, "w1", BLASD_DEVICE_CPU);
    submit_new(&bed, begun, "2");
    submit_new(&bed, waiting, "2");
    assert_int_equal(claim(w1, 4, PLENTY, mine), 2);
    begin(w1, mine, 1);
    redis_forward(&server, (int64_t)bed.limits.lease_ms + 1); /* it lapses; w1 does not know */
    struct blasd_worker_queue *w2 = worker_new(&bed, "w2", BLASD_DEVICE_CPU);
    assert_int_equal(claim(w2, 4, PLENTY, theirs), 0);
    assert_int_equal(blasd_worker_queue_renew(w2, INFO_CPU, &lost, &err), 0);
    assert_false(lost);
    assert_int_equal(claim(w2, 4, PLENTY, theirs), 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(theirs[i].attempts, !strcmp(theirs[i].id, begun) ? 1 : 0);
    assert_int_equal(finish(w1, begun, "too late", 0), -1);
    int count;
    assert_int_equal(blasd_worker_queue_claim(w1, 4, PLENTY, mine, &count, &lost, &err), 0);
    assert_true(lost);
    assert_int_equal(blasd_worker_queue_renew(w1, INFO_CPU, &lost, &err), 0);
    assert_true(lost);
    const char *ids[] = {begun};
    bool wanted = true;
    assert_int_equal(blasd_worker_queue_progress(w1, ids, 1, 0.5, -1, &wanted, &err), 0);
    assert_false(wanted);
    begin(w2, theirs, 2);
    assert_string_equal(record_line(&bed, begun, LINE_ATTEMPTS), "2");
    assert_int_equal(finish(w2, begun, "in time", 0), 1);
    assert_string_equal(record_line(&bed, begun, 0), "in time");
    int64_t epoch;
    assert_int_equal(
        blasd_worker_queue_register(w1, "w1", BLASD_DEVICE_CPU, INFO_CPU, &epoch, &err), 0);
    assert_int_equal(claim(w1, 4, PLENTY, mine), 0);
    assert_int_equal(finish(w2, waiting, "r", 0), 1);
    blasd_worker_queue_free(w1);
    blasd_worker_queue_free(w2);
    bed_close(&bed);
}

static void test_poisoned(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "poison");
    submit_new(&bed, id, "2");
    struct blasd_worker_queue *super = worker_new(&bed, "super", BLASD_DEVICE_CUDA);
    for (int attempt = 0; attempt < 5; attempt++) {
        struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
        assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
        assert_int_equal(claims[0].attempts, attempt);
        begin(worker, claims, 1);
        /* one that had not begun goes back uncounted */
        if (attempt == 0) submit_new(&bed, other, "2");
        assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
        assert_string_equal(claims[0].id, other);
        assert_int_equal(claims[0].attempts, 0);
        blasd_worker_queue_free(worker); /* dies */
        expire_worker(&bed, "w");
    }
    assert_string_equal(record_line(&bed, id, LINE_STATE), "failed");
    assert_string_equal(record_line(&bed, id, LINE_ERROR), "poisoned");
    assert_string_equal(record_line(&bed, id, LINE_ATTEMPTS), "5");
    assert_string_equal(record_line(&bed, other, LINE_STATE), "queued");
    assert_int_equal(pending(&bed), 1);
    blasd_worker_queue_free(super);
    bed_close(&bed);
}

static void test_given_back(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1];
    struct blasd_err err;
    int64_t epoch;
    (void)state;
    bed_open(&bed, &server, "back");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_int_equal(blasd_worker_queue_release(worker, &err), 0);
    assert_int_equal(finish(worker, id, "r", 0), -1);
    assert_int_equal(
        blasd_worker_queue_register(worker, "w", BLASD_DEVICE_CPU, INFO_CPU, &epoch, &err), 0);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_int_equal(claims[0].attempts, 0);
    /* a new holder of the name takes over what the old one had */
    struct blasd_worker_queue *heir = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(heir, 4, PLENTY, claims), 1);
    assert_int_equal(finish(worker, id, "r", 0), -1);
    assert_int_equal(finish(heir, id, "r", 0), 1);
    blasd_worker_queue_free(worker);
    blasd_worker_queue_free(heir);
    bed_close(&bed);
}

/* A worker whose connection breaks between claim and reply must not forget those jobs. */
static void test_missed_reply(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "missed");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    /* as if the reply to this claim, and the connection, had been lost */
    drop(turn_lost(&bed, worker, 4, NULL, NULL, 0, NULL));
    drop(redisCommand(bed.raw, "CLIENT KILL TYPE normal SKIPME yes"));
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, id);
    assert_int_equal(claims[0].attempts, 0);
    /* the same for finish: it is answered as it was */
    char record_frame[4 + BLASD_ID_LEN + 2] = {1};
    memcpy(record_frame + 4, id, BLASD_ID_LEN);
    record_frame[4 + BLASD_ID_LEN] = 'r';
    redisReply *reply = turn_lost(&bed, worker, 0, id, record_frame, 4 + BLASD_ID_LEN + 1, "1 0");
    assert_string_equal(reply->element[1]->str, "1");
    drop(reply);
    drop(redisCommand(bed.raw, "CLIENT KILL TYPE normal SKIPME yes"));
    assert_int_equal(finish(worker, id, "r", 0), 1);
    assert_int_equal(finish(worker, id, "r", 0), 0);
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Where it may not ask whether Redis keeps what it is given, a worker serves all the same. */
static void test_no_info(void **state) {
    struct bed bed;
    struct blasd_worker_queue *worker;
    struct blasd_err err;
    (void)state;
    bed_open(&bed, &server, "no-info");
    redisReply *reply = redisCommand(bed.raw, "ACL SETUSER default -info");
    assert_string_equal(reply->str, "OK");
    drop(reply);
    assert_int_equal(blasd_worker_queue_open(&bed.options, &worker, &err), 0);
    drop(redisCommand(bed.raw, "ACL SETUSER default +info"));
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_library_comes_back(void **state) {
    struct bed bed;
    struct blasd_claim claims[4];
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "library");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_new(&bed, id, "2");
    drop(redisCommand(bed.raw, "FUNCTION FLUSH"));
    assert_int_equal(claim(worker, 4, PLENTY, claims), 1);
    assert_int_equal(finish(worker, id, "r", 0), 1);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_job),    cmocka_unit_test(test_many_jobs),
        cmocka_unit_test(test_published),  cmocka_unit_test(test_priorities_and_ageing),
        cmocka_unit_test(test_classes),    cmocka_unit_test(test_claim_bytes),
        cmocka_unit_test(test_fenced),     cmocka_unit_test(test_poisoned),
        cmocka_unit_test(test_given_back), cmocka_unit_test(test_missed_reply),
        cmocka_unit_test(test_no_info),    cmocka_unit_test(test_library_comes_back),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
