/* Batch entries: what becomes of jobs that share an entry of the queue, whole and opened, by way of
 * the functions and of a worker. Read next: test_batch_entry_edges.c, test_batch_entries_random.c.
 */
#include "batch_entry_fixture.h"

#include "queue/worker_side.h"

static void nothing_told(void *arg, const char *id, const char *record, size_t len) {
    (void)arg, (void)record, (void)len;
    fail_msg("%.41s was told", id);
}

struct told {
    const struct entry *entry;
    int times[BATCH_ENTRY_MOST];
};

static void count_told(void *arg, const char *id, const char *record, size_t len) {
    struct told *told = arg;
    (void)record;
    assert_true(len > 0);
    for (int i = 0; i < told->entry->jobs; i++)
        if (memcmp(told->entry->id[i], id, BLASD_ID_LEN) == 0) told->times[i]++;
}

static void expect_told(struct bed *bed, redisContext *listener, const char *channel,
                        const struct entry *entry, const int *times) {
    struct told told = {.entry = entry};
    hear(bed, listener, channel, count_told, &told);
    for (int i = 0; i < entry->jobs; i++)
        if (told.times[i] != times[i])
            fail_msg("%s was told %d times of job %d, not %d", channel, told.times[i], i, times[i]);
}

/* Another id of the same batch entry. */
static const char *stranger(const struct entry *entry) {
    static char id[BLASD_ID_LEN + 1];
    memcpy(id, entry->id[0], sizeof id);
    blasd_random_hex(id + BLASD_ID_ENTRY, BLASD_ID_LEN - BLASD_ID_ENTRY);
    return id;
}

static void ends_as_a_whole(enum blasd_id_kind kind, const char *name) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[64];
    bed_open(&bed, &server, name);
    redisContext *me = listen_to(&bed, name);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &entry, kind, 12, name);
    assert_int_equal(counted(&bed, "2"), 12);
    assert_int_equal(counted(&bed, "bytes"), 1200);
    assert_int_equal(pending(&bed), 12);
    assert_string_equal(record_line(&bed, entry.id[3], LINE_STATE), "queued");
    assert_string_equal(record_line(&bed, stranger(&entry), 0), "404");
    audit(&bed);
    assert_int_equal(claim(worker, 64, PLENTY, claims), 12);
    for (int i = 0; i < 12; i++) {
        expect_claimed(&claims[i], entry.id[i]);
        assert_int_equal(claims[i].attempts, 0);
    }
    assert_int_equal(counted(&bed, "2"), 0);
    assert_string_equal(record_line(&bed, entry.id[3], LINE_STATE), "queued");
    begun(worker, claims, 12);
    assert_string_equal(record_line(&bed, entry.id[11], LINE_STATE), "running");
    assert_string_equal(record_line(&bed, entry.id[11], LINE_ATTEMPTS), "1");
    assert_string_equal(record_line(&bed, entry.id[11], LINE_DEVICE), "cpu:0");
    assert_string_equal(record_line(&bed, stranger(&entry), 0), "404");
    audit(&bed);
    assert_string_equal(finish_claims(worker, claims, 12), "111111111111");
    for (int i = 0; i < 12; i++) expect_record(&bed, entry.id[i]);
    assert_string_equal(record_line(&bed, stranger(&entry), 0), "404");
    char key[64];
    snprintf(key, sizeof key, "record:%s", entry.name);
    assert_int_equal(ask(&bed, "EXISTS", key), 1); /* of all of them */
    const int once[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    expect_told(&bed, me, name, &entry, once);
    expect_empty(&bed);
    redisFree(me);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void a_batch_entry_is_one_record(void **state) {
    (void)state;
    ends_as_a_whole(BLASD_ID_SYNC, "sync");
    ends_as_a_whole(BLASD_ID_ASYNC, "async");
}

static void cancelled_while_it_waits(void **state) {
    struct bed bed;
    struct entry first, entry, last;
    struct blasd_claim claims[64];
    (void)state;
    bed_open(&bed, &server, "waits");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &first, BLASD_ID_SYNC, 2, "");
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 5, "");
    submit_batch_entry(&bed, &last, BLASD_ID_SYNC, 3, "");
    redisReply *reply =
        fcall(&bed, "cancel", "1", entry.id[1], stranger(&entry), entry.id[3], entry.id[1], NULL);
    assert_true(reply_is(reply->element[0], BLASD_CANCELLED));
    assert_int_equal(reply->element[1]->integer, 404);
    assert_true(reply_is(reply->element[2], BLASD_CANCELLED));
    assert_int_equal(reply->element[3]->integer, 404);
    drop(reply);
    assert_int_equal(counted(&bed, "jobs"), 8);
    assert_int_equal(counted(&bed, "bytes"), 800);
    assert_int_equal(counted(&bed, "2"), 8);
    assert_string_equal(record_line(&bed, entry.id[1], LINE_STATE), "cancelled");
    assert_string_equal(record_line(&bed, entry.id[0], LINE_STATE), "queued");
    audit(&bed);
    /* all of one that waits */
    drop(fcall(&bed, "cancel", "1", last.id[0], last.id[1], last.id[2], NULL));
    audit(&bed);
    assert_int_equal(claim(worker, 64, PLENTY, claims), 5);
    expect_claimed(&claims[0], first.id[0]);
    expect_claimed(&claims[1], first.id[1]);
    expect_claimed(&claims[2], entry.id[0]);
    expect_claimed(&claims[3], entry.id[2]);
    expect_claimed(&claims[4], entry.id[4]);
    audit(&bed);
    assert_string_equal(finish_claims(worker, claims, 5), "11111");
    for (int i = 0; i < 3; i++)
        assert_string_equal(record_line(&bed, last.id[i], LINE_STATE), "cancelled");
    assert_int_equal(claim(worker, 64, PLENTY, claims), 0);
    expect_empty(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void cancelled_in_the_hands_of_a_worker(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[64];
    (void)state;
    bed_open(&bed, &server, "hands");
    redisContext *me = listen_to(&bed, "hands");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 4, "hands");
    assert_int_equal(claim(worker, 64, PLENTY, claims), 4);
    drop(fcall(&bed, "cancel", "1", entry.id[0], NULL));
    audit(&bed);
    assert_int_equal(counted(&bed, "2"), 0);
    begun(worker, claims, 4);
    drop(fcall(&bed, "cancel", "1", entry.id[2], NULL));
    assert_string_equal(record_line(&bed, entry.id[1], LINE_STATE), "running");
    audit(&bed);
    assert_string_equal(finish_claims(worker, claims, 4), "0101");
    assert_string_equal(record_line(&bed, entry.id[0], LINE_STATE), "cancelled");
    assert_string_equal(record_line(&bed, entry.id[2], LINE_STATE), "cancelled");
    expect_record(&bed, entry.id[1]);
    expect_record(&bed, entry.id[3]);
    expect_told(&bed, me, "hands", &entry, (const int[]){1, 1, 1, 1});
    expect_empty(&bed);
    redisFree(me);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void ended_in_parts(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[64];
    (void)state;
    bed_open(&bed, &server, "parts");
    redisContext *me = listen_to(&bed, "parts");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 6, "parts");
    assert_int_equal(claim(worker, 64, PLENTY, claims), 6);
    begun(worker, claims, 6);
    assert_string_equal(finish_claims(worker, claims + 2, 2), "11");
    audit(&bed);
    assert_int_equal(counted(&bed, "jobs"), 4);
    expect_record(&bed, entry.id[2]);
    assert_string_equal(record_line(&bed, entry.id[5], LINE_STATE), "running");
    /* what it still has is told by the batch entry's name */
    assert_int_equal(claim(worker, 64, PLENTY, claims + 6), 0);
    audit(&bed);
    assert_string_equal(finish_claims(worker, claims, 2), "11");
    assert_string_equal(finish_claims(worker, claims + 4, 2), "11");
    for (int i = 0; i < 6; i++) expect_record(&bed, entry.id[i]);
    expect_told(&bed, me, "parts", &entry, (const int[]){1, 1, 1, 1, 1, 1});
    expect_empty(&bed);
    redisFree(me);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* The reply to finish was lost: it is the same when it is sent again, whole or opened. */
static void a_finish_sent_again(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[64];
    (void)state;
    bed_open(&bed, &server, "again");
    redisContext *me = listen_to(&bed, "again");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int round = 0; round < 3; round++) { /* whole; opened; of the other kind */
        enum blasd_id_kind kind = round == 2 ? BLASD_ID_ASYNC : BLASD_ID_SYNC;
        submit_batch_entry(&bed, &entry, kind, 3, "again");
        assert_int_equal(claim(worker, 64, PLENTY, claims), 3);
        begun(worker, claims, 3);
        if (round == 1) drop(fcall(&bed, "cancel", "1", entry.id[1], NULL));
        struct blasd_buf record_frames = record_frames_of(entry.id, 3, "record of ");
        struct blasd_buf others = record_frames_of(entry.id, 3, "another of ");
        const char *digits = round == 1 ? "101" : "111";
        assert_string_equal(finish_raw(&bed, worker, false, entry.name, &record_frames, "3 0"),
                            digits);
        assert_string_equal(finish_raw(&bed, worker, true, entry.name, &record_frames, "3 0"),
                            digits);
        assert_string_equal(finish_raw(&bed, worker, false, entry.name, &record_frames, "3 0"),
                            "000");
        assert_string_equal(finish_raw(&bed, worker, false, entry.name, &others, "3 0"), "000");
        expect_record(&bed, entry.id[2]);
        expect_told(&bed, me, "again", &entry, (const int[]){1, 1, 1});
        /* the worker's own way, after its connection went */
        drop(redisCommand(bed.raw, "CLIENT KILL TYPE normal SKIPME yes"));
        finish_claims(worker, claims, 3);
        expect_told(&bed, me, "again", &entry, (const int[]){0, 0, 0});
        blasd_buf_release(&record_frames);
        blasd_buf_release(&others);
    }
    expect_empty(&bed);
    redisFree(me);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void a_worker_that_dies_before_it_begins(void **state) {
    struct bed bed;
    struct entry entry, next;
    struct blasd_claim claims[64];
    (void)state;
    bed_open(&bed, &server, "early");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 7, "");
    assert_int_equal(claim(worker, 64, PLENTY, claims), 7);
    submit_batch_entry(&bed, &next, BLASD_ID_SYNC, 2, "");
    expire_worker(&bed, "w");
    blasd_worker_queue_free(worker);
    audit(&bed);
    assert_int_equal(counted(&bed, "2"), 9);
    assert_int_equal(ask(&bed, "HLEN", "pending") / 2, 2); /* whole */
    worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 64, PLENTY, claims), 9);
    for (int i = 0; i < 7; i++) {
        expect_claimed(&claims[i], entry.id[i]);
        assert_int_equal(claims[i].attempts, 0);
    }
    assert_string_equal(finish_claims(worker, claims, 9), "111111111");
    expect_empty(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Each of its jobs may be what killed the worker; five workers are the most. */
static void workers_that_die_after_it_began(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[64];
    (void)state;
    bed_open(&bed, &server, "late");
    redisContext *me = listen_to(&bed, "late");
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 3, "late");
    for (int i = 0; i < 5; i++) {
        struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
        assert_int_equal(claim(worker, 64, PLENTY, claims), i == 0 ? 3 : 2);
        for (int k = 0; k < (i == 0 ? 3 : 2); k++) {
            /* those that were begun come back in any order, for each will run alone */
            bool turned = i > 0 && strcmp(claims[0].id, entry.id[0]) != 0;
            expect_claimed(&claims[k], entry.id[turned ? 1 - k : k]);
            assert_int_equal(claims[k].attempts, i);
        }
        begun(worker, claims, i == 0 ? 3 : 2);
        if (i == 0) assert_string_equal(finish_claims(worker, claims + 2, 1), "1");
        assert_string_equal(record_line(&bed, entry.id[0], LINE_STATE), "running");
        expire_worker(&bed, "w");
        blasd_worker_queue_free(worker);
        audit(&bed);
    }
    for (int i = 0; i < 2; i++) {
        assert_string_equal(record_line(&bed, entry.id[i], LINE_STATE), "failed");
        assert_string_equal(record_line(&bed, entry.id[i], LINE_ERROR), "poisoned");
        assert_string_equal(record_line(&bed, entry.id[i], LINE_ATTEMPTS), "5");
    }
    expect_record(&bed, entry.id[2]);
    expect_told(&bed, me, "late", &entry, (const int[]){1, 1, 1});
    expect_empty(&bed);
    redisFree(me);
    bed_close(&bed);
}

/* A worker whose reply to claim was lost gets them with the next one, once. */
static void a_claim_that_was_missed(void **state) {
    struct bed bed;
    struct entry entry, held;
    struct blasd_claim claims[64];
    (void)state;
    bed_open(&bed, &server, "missed");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &held, BLASD_ID_SYNC, 2, "");
    assert_int_equal(claim(worker, 64, PLENTY, claims), 2);
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 4, "");
    redisReply *reply = turn_lost(&bed, worker, 64, NULL, NULL, 0, NULL);
    assert_int_equal(reply->elements, 4);
    drop(reply);
    audit(&bed);
    drop(fcall(&bed, "cancel", "1", entry.id[0], NULL));
    assert_int_equal(claim(worker, 64, PLENTY, claims + 2), 3);
    audit(&bed);
    for (int i = 0; i < 3; i++) expect_claimed(&claims[2 + i], entry.id[1 + i]);
    assert_string_equal(finish_claims(worker, claims, 5), "11111");
    expect_empty(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void claims_of_less_than_a_batch_entry(void **state) {
    struct bed bed;
    struct entry entry[3];
    struct blasd_claim claims[64];
    char low[BLASD_ID_LEN + 1];
    int at = 0;
    (void)state;
    bed_open(&bed, &server, "less");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 3; i++) submit_batch_entry(&bed, &entry[i], BLASD_ID_SYNC, 10, "");
    /* by count: in order, never more than asked for, and all of it in the end */
    while (at < 10) {
        int count = claim(worker, 3, PLENTY, claims);
        assert_in_range(count, 1, 3);
        for (int i = 0; i < count; i++, at++)
            expect_claimed(&claims[i], entry[at / 10].id[at % 10]);
        audit(&bed);
        finish_claims(worker, claims, count);
    }
    /* by bytes: one is given however large it is, a second one not */
    for (; at < 30;) {
        int count = claim(worker, 64, 450, claims);
        assert_in_range(count, 1, 10);
        for (int i = 0; i < count; i++, at++)
            expect_claimed(&claims[i], entry[at / 10].id[at % 10]);
        audit(&bed);
        finish_claims(worker, claims, count);
    }
    expect_empty(&bed);
    blasd_worker_queue_free(worker);
    worker = worker_new(&bed, "w", BLASD_DEVICE_CPU); /* not idle, so nothing is handed to it */
    /* the eighth claim gives low priority its half */
    for (int i = 0; i < 3; i++) submit_batch_entry(&bed, &entry[i], BLASD_ID_SYNC, 10, "");
    submit_new(&bed, low, "3");
    drop(redisCommand(bed.raw, "HSET %s:state t:w:0 %s", bed.tag, "1 7 "));
    int count = claim(worker, 20, PLENTY, claims);
    assert_string_equal(claims[0].id, low);
    expect_claimed(&claims[1], entry[0].id[0]);
    assert_int_equal(count, 11); /* the second batch entry would make 21 */
    audit(&bed);
    finish_claims(worker, claims, count);
    count = claim(worker, 20, PLENTY, claims);
    assert_int_equal(count, 20);
    expect_claimed(&claims[19], entry[2].id[9]);
    finish_claims(worker, claims, count);
    /* and where batch entries wait there, they get their turn as well */
    blasd_worker_queue_free(worker);
    worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    batch_entry_make(&entry[0], BLASD_ID_SYNC, 10);
    batch_entry_make(&entry[1], BLASD_ID_SYNC, 10);
    assert_string_equal(submit_batch_entry_as(&bed, &entry[0], "1", 9, "", "\t\tmatmul\tanonymous"),
                        "0");
    assert_string_equal(submit_batch_entry_as(&bed, &entry[1], "3", 9, "", "\t\tmatmul\tanonymous"),
                        "0");
    drop(redisCommand(bed.raw, "HSET %s:state t:w:0 %s", bed.tag, "1 7 "));
    count = claim(worker, 8, PLENTY, claims);
    assert_int_equal(count, 8);
    for (int i = 0; i < 4; i++) expect_claimed(&claims[i], entry[1].id[i]);
    for (int i = 0; i < 4; i++) expect_claimed(&claims[4 + i], entry[0].id[i]);
    audit(&bed);
    finish_claims(worker, claims, count);
    int more = 0;
    do { /* the end of the last ones has asked for eight */
        count = claim(worker, 64, PLENTY, claims);
        if (more == 0) expect_claimed(&claims[0], entry[0].id[4]);
        finish_claims(worker, claims, count);
        more += count;
    } while (count > 0);
    assert_int_equal(more, 12);
    expect_empty(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void watched_by_this_one_and_that(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[64];
    (void)state;
    bed_open(&bed, &server, "watch");
    redisContext *me = listen_to(&bed, "me"), *other = listen_to(&bed, "other");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 5, "me");
    drop(fcall(&bed, "watch", "me", entry.id[0], entry.id[4], NULL));
    assert_int_equal(ask(&bed, "HLEN", "pending") / 2, 1); /* nothing changed, so it stays whole */
    redisReply *reply = fcall(&bed, "watch", "other", entry.id[1], stranger(&entry), entry.id[2],
                              entry.id[1], NULL);
    assert_true(reply_is(reply->element[0], BLASD_QUEUED));
    assert_int_equal(reply->element[1]->integer, 404);
    assert_true(reply_is(reply->element[2], BLASD_QUEUED));
    assert_true(reply_is(reply->element[3], BLASD_QUEUED));
    drop(reply);
    audit(&bed);
    assert_int_equal(claim(worker, 64, PLENTY, claims), 5);
    assert_string_equal(finish_claims(worker, claims, 5), "11111");
    expect_told(&bed, me, "me", &entry, (const int[]){1, 1, 1, 1, 1});
    expect_told(&bed, other, "other", &entry, (const int[]){0, 1, 1, 0, 0});
    /* a batch entry that nobody watched: what is watched later is told, and what had ended not */
    submit_batch_entry(&bed, &entry, BLASD_ID_ASYNC, 3, "");
    assert_int_equal(claim(worker, 64, PLENTY, claims), 3);
    begun(worker, claims, 3);
    drop(fcall(&bed, "watch", "me", entry.id[1], NULL));
    assert_string_equal(record_line(&bed, entry.id[1], LINE_STATE), "running");
    assert_string_equal(finish_claims(worker, claims, 3), "111");
    expect_told(&bed, me, "me", &entry, (const int[]){0, 1, 0});
    reply = fcall(&bed, "watch", "other", entry.id[0], NULL);
    assert_memory_equal(reply->element[0]->str, "record of ", 10);
    drop(reply);
    hear(&bed, other, "other", nothing_told, NULL);
    expect_empty(&bed);
    redisFree(me);
    redisFree(other);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void progress_of_its_jobs(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[64];
    struct blasd_err err;
    bool wanted;
    (void)state;
    bed_open(&bed, &server, "progress");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 2, "");
    assert_int_equal(claim(worker, 64, PLENTY, claims), 2);
    begun(worker, claims, 2);
    const char *ids[] = {entry.id[0], entry.id[1]};
    assert_int_equal(blasd_worker_queue_progress(worker, ids, 2, 0.5, -1, &wanted, &err), 0);
    assert_true(wanted);
    drop(fcall(&bed, "cancel", "1", entry.id[0], NULL));
    assert_int_equal(blasd_worker_queue_progress(worker, ids, 1, 0.75, -1, &wanted, &err), 0);
    assert_false(wanted);
    assert_int_equal(blasd_worker_queue_progress(worker, ids, 2, 0.75, -1, &wanted, &err), 0);
    assert_true(wanted);
    assert_string_equal(record_line(&bed, entry.id[1], LINE_PROGRESS), "0.75");
    assert_string_equal(finish_claims(worker, claims, 2), "01");
    assert_int_equal(ask(&bed, "EXISTS", "prog:w"), 0);
    expect_empty(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* A worker that wants fewer jobs than a batch entry has, and waits, is given of them at once. */
static void more_than_an_idle_worker_wants(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    struct blasd_err err;
    struct entry entry;
    (void)state;
    bed_open(&bed, &server, "more");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 3, PLENTY, claims), 0);
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 8, "");
    redisReply *reply = redisCommand(bed.raw, "LLEN %s:wake:w", bed.tag);
    assert_true(reply->integer > 0);
    drop(reply);
    assert_int_equal(blasd_worker_queue_wait(worker, 3000, &err), 0);
    for (int i = 0; i < 8;) {
        int count = claim(worker, 3, PLENTY, claims);
        assert_in_range(count, 1, 3);
        for (int k = 0; k < count; k++) expect_claimed(&claims[k], entry.id[i + k]);
        i += count;
    }
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_entry_is_one_record),
        cmocka_unit_test(cancelled_while_it_waits),
        cmocka_unit_test(cancelled_in_the_hands_of_a_worker),
        cmocka_unit_test(ended_in_parts),
        cmocka_unit_test(a_finish_sent_again),
        cmocka_unit_test(a_worker_that_dies_before_it_begins),
        cmocka_unit_test(workers_that_die_after_it_began),
        cmocka_unit_test(a_claim_that_was_missed),
        cmocka_unit_test(claims_of_less_than_a_batch_entry),
        cmocka_unit_test(watched_by_this_one_and_that),
        cmocka_unit_test(progress_of_its_jobs),
        cmocka_unit_test(more_than_an_idle_worker_wants),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
