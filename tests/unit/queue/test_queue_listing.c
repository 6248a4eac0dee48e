/* Lists, a page at a time: what is there comes, once, however many there are, and no page looks at
 * more than a few jobs. */
#include "batch_entry_fixture.h"

static redisReply *page(struct bed *bed, const char *which, const char *since, const char *limit,
                        const char *cursor) {
    return fcall(bed, "list", which, "", since, "9000000000000000", limit, cursor, NULL);
}

enum { MANY = 3000 };
static char ids[MANY][BLASD_ID_LEN + 1];
static int seen[MANY];

static void on_seen(void *arg, const redisReply *record) {
    int count = *(int *)arg;
    for (int i = 0; i < count; i++)
        if (reply_names(record, ids[i])) seen[i]++;
}

/* Makes a record of each id, all of one bucket or of many. */
static void records(struct bed *bed, int count, bool one_second) {
    for (int i = 0; i < count; i++) {
        id_make(ids[i], i % 2 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, one_second ? 20 : i % 50);
        seen[i] = 0;
        assert_int_equal(submit_as(bed, ids[i], "2", "9", "", ""), 0);
        drop(fcall(bed, "cancel", "0", ids[i], NULL));
    }
}

static void each_comes_once(void **state) {
    static const char *const limits[] = {"100", "7", "1"};
    struct bed bed;
    (void)state;
    for (int round = 0; round < 6; round++) {
        int count = round / 2 == 2 ? 60 : 500;
        char name[16];
        snprintf(name, sizeof name, "each%d", round);
        bed_open(&bed, &server, name);
        records(&bed, count, round % 2 == 0);
        assert_int_equal(list_all(&bed, "any", limits[round / 2], on_seen, &count), count);
        for (int i = 0; i < count; i++) assert_int_equal(seen[i], 1);
        assert_int_equal(list_all(&bed, "cancelled", limits[round / 2], NULL, NULL), count);
        assert_int_equal(list_all(&bed, "failed", limits[round / 2], NULL, NULL), 0);
        bed_close(&bed);
    }
}

/* Jobs end and come while the pages are read: none that stays is missed. */
static void changes(const char *limit, int each) {
    enum { STAY = 400 };
    struct bed bed;
    char cursor[128] = "", id[BLASD_ID_LEN + 1], name[24];
    int count = STAY, pages = 0;
    snprintf(name, sizeof name, "changes%s", limit);
    bed_open(&bed, &server, name);
    for (int i = 0; i < MANY; i++) {
        id_make(ids[i], BLASD_ID_ASYNC, 0);
        seen[i] = 0;
        assert_int_equal(submit_as(&bed, ids[i], "2", "9", "", ""), 0);
    }
    do {
        redisReply *reply = page(&bed, "any", "0", limit, cursor);
        for (size_t i = 1; i < reply->elements; i++) on_seen(&count, reply->element[i]);
        snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
        drop(reply);
        for (int i = 0; i < each && STAY + each * pages + i < MANY; i++) { /* end and come */
            drop(fcall(&bed, "cancel", i % 2 ? "1" : "0", ids[STAY + each * pages + i], NULL));
            submit_new(&bed, id, "2");
        }
        pages++;
    } while (cursor[0] != '\0' && pages < 3000);
    assert_string_equal(cursor, "");
    for (int i = 0; i < STAY; i++)
        if (seen[i] == 0) fail_msg("job %d of %d is on none of %d pages", i, STAY, pages);
    bed_close(&bed);
}

static void who_stays_is_not_missed(void **state) {
    (void)state;
    changes("50", 20);
    changes("3", 2);
}

/* Batch entries are opened while the pages are read, for a job of each is cancelled, as by who
 * cancels what a page shows: none of the others is missed. */
static void opened_meanwhile(const char *whose, const char *which, const char *limit) {
    enum { ENTRIES = 200, JOBS = 4 };
    struct bed bed;
    struct entry entry;
    char cursor[128] = "", name[16];
    static int runs;
    int count = ENTRIES * JOBS, cancelled = 0, pages = 0;
    tenant = whose;
    snprintf(name, sizeof name, "opened%d", runs++);
    bed_open(&bed, &server, name);
    for (int i = 0; i < count; i++) {
        if (i % JOBS == 0) submit_batch_entry(&bed, &entry, BLASD_ID_ASYNC, JOBS, "");
        memcpy(ids[i], entry.id[i % JOBS], sizeof ids[i]);
        seen[i] = 0;
    }
    do {
        redisReply *reply = page(&bed, which, "0", limit, cursor);
        for (size_t i = 1; i < reply->elements; i++) on_seen(&count, reply->element[i]);
        snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
        drop(reply);
        for (; cancelled < count && cancelled / JOBS < 30 * (pages + 1); cancelled += JOBS)
            drop(fcall(&bed, "cancel", "0", ids[cancelled], NULL));
        pages++;
    } while (cursor[0] != '\0' && pages < 3000);
    assert_string_equal(cursor, "");
    for (int i = 0; i < count; i++)
        if (i % JOBS != 0 && seen[i] == 0)
            fail_msg("job %d of %d is on none of %d pages", i, count, pages);
    tenant = "anonymous";
    bed_close(&bed);
}

static void what_was_opened_is_not_missed(void **state) {
    (void)state;
    opened_meanwhile("anonymous", "any", "50");
    opened_meanwhile("one", "any", "50");
    opened_meanwhile("anonymous", "queued", "7");
}

static long long calls_of(struct bed *bed) {
    redisReply *reply = redisCommand(bed->raw, "INFO commandstats");
    long long sum = 0;
    for (const char *at = reply->str; (at = strstr(at, ":calls=")) != NULL; at++)
        sum += atoll(at + 7);
    drop(reply);
    return sum;
}

/* However many there are: of the state that is wanted, or not; alone, or in batch entries. */
static void a_page_looks_at_few(void **state) {
    static const char *const which[] = {"any", "failed", "cancelled", "queued", "running"};
    struct bed bed;
    struct entry entry;
    (void)state;
    bed_open(&bed, &server, "few");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 40; i++) {
        static struct blasd_claim claims[64];
        submit_batch_entry(&bed, &entry, i % 2 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, 64, "");
        assert_int_equal(claim(worker, 64, PLENTY, claims), 64);
        finish_claims(worker, claims, 64);
    }
    records(&bed, MANY, true);
    for (int i = 0; i < 1000; i++) {
        char id[BLASD_ID_LEN + 1];
        submit_new(&bed, id, "2");
    }
    for (size_t w = 0; w < sizeof which / sizeof *which; w++) {
        char cursor[128] = "";
        do {
            long long before = calls_of(&bed);
            redisReply *reply = page(&bed, which[w], "0", "100", cursor);
            assert_in_range(calls_of(&bed) - before, 0, 1000);
            assert_true(reply->elements <= 101);
            snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
            drop(reply);
        } while (cursor[0] != '\0');
    }
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void what_is_no_cursor(void **state) {
    static const char *const bad[] = {
        "x",         "e--0-",   "p-s1-0-", "e-s1--", "q--0-",    "e-99999999999999999-0-",
        "e-1-0-x y", "e-s1-0-", "E-1-0-",  "--",     "e-1-0-x-", "e-1-999999999999999999999-"};
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "cursors");
    records(&bed, 10, true);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        redisReply *reply = page(&bed, "any", "0", "10", bad[i]);
        if (reply->type != REDIS_REPLY_INTEGER || reply->integer != 400)
            fail_msg("'%s' was taken", bad[i]);
        drop(reply);
    }
    drop(page(&bed, "any", "0", "10", "e-1-0-")); /* there was nothing yet */
    drop(page(&bed, "any", "0", "10", "e-7-99999-zzz"));
    bed_close(&bed);
}

/* The jobs of one step are in order, and old buckets are not looked at where `since` is later. */
static void newest_first_and_since(void **state) {
    struct bed bed;
    char since[24];
    (void)state;
    bed_open(&bed, &server, "order");
    for (int i = 0; i < 10; i++) {
        id_make(ids[i], BLASD_ID_ASYNC, 5000);
        assert_int_equal(submit_as(&bed, ids[i], "2", "9", "", ""), 0);
        sleep_ms(1);
        drop(fcall(&bed, "cancel", "0", ids[i], NULL));
    }
    redisReply *reply = page(&bed, "any", "0", "4", "");
    assert_int_equal(reply->elements, 5);
    for (int i = 0; i < 4; i++) assert_true(reply_names(reply->element[1 + i], ids[9 - i]));
    drop(reply);
    snprintf(since, sizeof since, "%lld", (long long)blasd_clock_wall_us());
    reply = page(&bed, "any", since, "4", "");
    assert_int_equal(reply->elements, 1);
    assert_string_equal(reply->element[0]->str, "");
    drop(reply);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_comes_once),        cmocka_unit_test(who_stays_is_not_missed),
        cmocka_unit_test(a_page_looks_at_few),    cmocka_unit_test(what_is_no_cursor),
        cmocka_unit_test(newest_first_and_since), cmocka_unit_test(what_was_opened_is_not_missed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
