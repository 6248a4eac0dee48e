/* Tenants: nobody finds, lists, changes or counts another's jobs, or sees from what Redis does that
 * they are there; each has its share of the workers, and no more of the queue than its limits say.
 */
#include "batch_entry_fixture.h"

/* Jobs of `who` that count for `work` in its share; `limits`: " JOBS BYTES STORED". Returns r. */
static int submit_metered(struct bed *bed, const char *who, const char *id, const char *si,
                          int work, const char *limits) {
    char note[128];
    snprintf(note, sizeof note, "\t\tmatmul\t%s\t%d 1%s", who, work, limits);
    redisReply *reply = fcall(bed, "submit", NEXT_SEQ, id, id, si, "100", "", note, NULL);
    int code =
        reply->element[3]->type == REDIS_REPLY_INTEGER ? (int)reply->element[3]->integer : -1;
    drop(reply);
    return code;
}

#define NO_LIMITS " 0 0 0"

static void submit_of(struct bed *bed, const char *who, char id[BLASD_ID_LEN + 1], const char *si,
                      int work) {
    id_make(id, BLASD_ID_ASYNC, 0);
    assert_int_equal(submit_metered(bed, who, id, si, work, NO_LIMITS), 0);
}

/* What Redis did since it was last asked: how often it ran each command. */
static const char *commands(struct bed *bed) {
    static char text[2][8192];
    static unsigned turn;
    char *out = text[turn++ % 2], *line, *rest;
    redisReply *reply = redisCommand(bed->raw, "INFO commandstats");
    out[0] = '\0';
    for (line = strtok_r(reply->str, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        char *calls = strstr(line, "calls=");
        if (strncmp(line, "cmdstat_", 8) != 0 || calls == NULL || strstr(line, "info")) continue;
        calls[strcspn(calls, ",")] = '\0';
        strncat(out, line + 8, sizeof text[0] - strlen(out) - 1);
        strncat(out, " ", sizeof text[0] - strlen(out) - 1);
    }
    drop(reply);
    drop(redisCommand(bed->raw, "CONFIG RESETSTAT"));
    return out;
}

/* A call about a job of another tenant says what it says of one that never was, and does the same.
 */
static void expect_unknown(struct bed *bed, const char *function, const char *word,
                           const char *id) {
    char never[BLASD_ID_LEN + 1];
    memcpy(never, id, sizeof never);
    blasd_random_hex(never + 9, BLASD_ID_LEN - 9);
    commands(bed);
    const char *const ids[] = {never, id};
    const char *did[2];
    for (int i = 0; i < 2; i++) {
        redisReply *reply =
            word ? fcall(bed, function, word, ids[i], NULL) : fcall(bed, function, ids[i], NULL);
        assert_int_equal(reply->elements, 1);
        assert_int_equal(reply->element[0]->type, REDIS_REPLY_INTEGER);
        assert_int_equal(reply->element[0]->integer, 404);
        drop(reply);
        did[i] = commands(bed);
    }
    assert_string_equal(did[0], did[1]);
}

static void others_jobs_never_were(void **state) {
    enum { KINDS = 7 };
    struct bed bed;
    struct entry entry, ended, opened;
    struct blasd_claim claims[16];
    char queued[BLASD_ID_LEN + 1], running[BLASD_ID_LEN + 1], done[2][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "others");
    tenant = "alice";
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 2; i++) {
        id_make(done[i], i == 0 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, 0);
        assert_int_equal(submit_as(&bed, done[i], "2", "100", "", ""), 0);
    }
    submit_batch_entry(&bed, &ended, BLASD_ID_SYNC, 2, "");
    int count = claim(worker, 16, PLENTY, claims);
    assert_int_equal(count, 4);
    assert_string_equal(finish_claims(worker, claims, count), "1111");
    submit_new(&bed, running, "2");
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    begun(worker, claims, 1);
    submit_new(&bed, queued, "2");
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 3, "");
    submit_batch_entry(&bed, &opened, BLASD_ID_SYNC, 3, "");
    drop(fcall(&bed, "watch", "here", opened.id[0], NULL));
    const char *const ids[KINDS] = {queued,      running,     done[0],     done[1],
                                    entry.id[1], ended.id[1], opened.id[1]};
    tenant = "bob";
    for (int i = 0; i < KINDS; i++) {
        expect_unknown(&bed, "get", NULL, ids[i]);
        expect_unknown(&bed, "watch", "", ids[i]);
        expect_unknown(&bed, "watch", "there", ids[i]);
        expect_unknown(&bed, "cancel", "0", ids[i]);
        expect_unknown(&bed, "cancel", "1", ids[i]);
    }
    assert_int_equal(list_all(&bed, "any", "10", NULL, NULL), 0);
    tenant = "alice"; /* who finds all as it was */
    audit(&bed);
    assert_string_equal(record_line(&bed, queued, LINE_STATE), "queued");
    assert_string_equal(record_line(&bed, running, LINE_STATE), "running");
    for (int i = 0; i < 2; i++) expect_record(&bed, done[i]);
    expect_record(&bed, ended.id[1]);
    assert_string_equal(record_line(&bed, entry.id[1], LINE_STATE), "queued");
    assert_int_equal(pending(&bed), 8);
    assert_int_equal(list_all(&bed, "any", "10", NULL, NULL), 12);
    tenant = "anonymous";
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Pages of a list: how many. */
static int pages(struct bed *bed, const char *which) {
    char cursor[128] = "";
    int count = 0;
    do {
        redisReply *reply =
            fcall(bed, "list", which, "", "0", "9000000000000000", "5", cursor, NULL);
        snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
        drop(reply);
        count++;
    } while (cursor[0] != '\0');
    return count;
}

/* A list is as long, and has as many pages, beside a thousand jobs of another's as without. */
static void lists_know_one_tenant(void **state) {
    static const char *const states[] = {"any", "queued", "running", "failed", "cancelled"};
    enum { STATES = sizeof states / sizeof *states };
    struct bed bed;
    struct entry entry;
    char id[BLASD_ID_LEN + 1], was[STATES][16];
    (void)state;
    bed_open(&bed, &server, "lists");
    tenant = "alice";
    for (int i = 0; i < 12; i++) {
        submit_new(&bed, id, "2");
        if (i % 3 == 0) drop(fcall(&bed, "cancel", "0", id, NULL));
    }
    for (int i = 0; i < STATES; i++)
        snprintf(was[i], sizeof was[i], "%d %d", list_all(&bed, states[i], "5", NULL, NULL),
                 pages(&bed, states[i]));
    tenant = "bob";
    for (int i = 0; i < 100; i++) {
        submit_batch_entry(&bed, &entry, BLASD_ID_ASYNC, 10, "");
        if (i % 10 == 0) drop(fcall(&bed, "cancel", "0", entry.id[3], entry.id[4], NULL));
    }
    assert_int_equal(list_all(&bed, "cancelled", "100", NULL, NULL), 20);
    assert_int_equal(list_all(&bed, "queued", "100", NULL, NULL), 980);
    tenant = "alice";
    for (int i = 0; i < STATES; i++) {
        char is[16];
        snprintf(is, sizeof is, "%d %d", list_all(&bed, states[i], "5", NULL, NULL),
                 pages(&bed, states[i]));
        assert_string_equal(is, was[i]);
    }
    audit(&bed);
    tenant = "anonymous";
    bed_close(&bed);
}

/* An Idempotency-Key is one tenant's; and no tenant's name runs into its keys. */
static void keys_are_one_tenants(void **state) {
    static const char *const names[] = {"alice", "bob", "alice.b"};
    static const char *const bad[] = {"a:b", "", "a b", "a\nb", "caf\xc3\xa9"};
    struct bed bed;
    char id[3][BLASD_ID_LEN + 1], again[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "keys");
    for (int i = 0; i < 3; i++) {
        tenant = names[i];
        id_make(id[i], BLASD_ID_SYNC, 0);
        assert_int_equal(submit_as(&bed, id[i], "2", "100", "k=1:b:key", ""), 0);
    }
    for (int i = 0; i < 3; i++) {
        tenant = names[i];
        id_make(again, BLASD_ID_SYNC, 0);
        assert_int_equal(submit_as(&bed, again, "2", "100", "k=1:b:key", ""), -1);
        assert_int_equal(submit_as(&bed, again, "2", "100", "k=2:b:key", ""), 2);
        assert_int_equal(list_all(&bed, "any", "10", NULL, NULL), 1);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tenant = bad[i];
        id_make(again, BLASD_ID_SYNC, 0);
        assert_int_equal(submit_as(&bed, again, "2", "100", "", ""), 4);
    }
    tenant = "anonymous";
    bed_close(&bed);
}

/* Jobs of one tenant among those claimed. */
static int count_of(struct bed *bed, const char *who, const struct blasd_claim *claims, int count) {
    int n = 0;
    tenant = who;
    for (int i = 0; i < count; i++) n += strcmp(record_line(bed, claims[i].id, 0), "404") != 0;
    tenant = "anonymous";
    return n;
}

/* Whoever comes to a long queue of another's is next, wherever that one's jobs stand. */
static void who_comes_late_is_next(void **state) {
    static const char *const greedy_si[] = {"2", "5", "2"}, *const late_si[] = {"2", "2", "5"};
    (void)state;
    for (int round = 0; round < 3; round++) { /* one list; the worker's own class; and any */
        struct bed bed;
        struct blasd_claim claims[16];
        char id[BLASD_ID_LEN + 1], late[BLASD_ID_LEN + 1];
        bed_open(&bed, &server, (const char *[]){"late0", "late1", "late2"}[round]);
        struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
        for (int i = 0; i < 300; i++) submit_of(&bed, "greedy", id, greedy_si[round], 1000);
        for (int i = 0; i < 5; i++) {
            int count = claim(worker, 16, PLENTY, claims);
            if (i == 0) assert_int_equal(count, 16); /* all of it, as there was nobody else */
            assert_int_equal(count_of(&bed, "greedy", claims, count), count);
            blasd_worker_queue_demand(worker, 0, 0); /* its end asks for no others */
            submit_of(&bed, "late", late, late_si[round], 1000);
            finish_claims(worker, claims, count);
            count = claim(worker, 16, PLENTY, claims);
            blasd_worker_queue_demand(worker, 0, 0);
            assert_in_range(count, 1, 6); /* so that the next one need not wait long */
            assert_int_equal(count_of(&bed, "late", claims, count), 1);
            assert_string_equal(claims[0].id, late);
            finish_claims(worker, claims, count);
            audit(&bed);
        }
        blasd_worker_queue_free(worker);
        bed_close(&bed);
    }
}

/* What several tenants that always wait are given is as their work says, in small claims as in
 * large ones. `work`: of a job of each. */
static void expect_shares(const char *name, int claim_jobs, int rounds, const int work[3]) {
    static const char *const names[] = {"ann", "ben", "cid"};
    static struct blasd_claim claims[64];
    struct bed bed;
    double given[3] = {0}, sum = 0;
    char id[BLASD_ID_LEN + 1];
    bed_open(&bed, &server, name);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < rounds * claim_jobs; i++) submit_of(&bed, names[t], id, "2", work[t]);
    for (int i = 0; i < rounds; i++) {
        int count = claim(worker, claim_jobs, PLENTY, claims);
        assert_in_range(count, 1, claim_jobs);
        for (int t = 0; t < 3; t++) given[t] += work[t] * count_of(&bed, names[t], claims, count);
        blasd_worker_queue_demand(worker, 0, 0);
        finish_claims(worker, claims, count);
    }
    audit(&bed);
    for (int t = 0; t < 3; t++) sum += given[t];
    for (int t = 0; t < 3; t++)
        if (!(given[t] > 0.25 * sum && given[t] < 0.42 * sum))
            fail_msg("%s was given %g of %g, %g, %g", names[t], given[t], given[0], given[1],
                     given[2]);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void each_has_its_share(void **state) {
    (void)state;
    expect_shares("even", 1, 60, (const int[]){1000, 1000, 1000});
    expect_shares("uneven", 1, 120, (const int[]){1000, 4000, 500});
    expect_shares("heavy", 4, 60, (const int[]){1000000, 250000, 4000000});
    expect_shares("large", 32, 20, (const int[]){100, 200, 400});
}

/* A tenant's limits: they refuse its jobs alone, and only while it has as much. */
static void limits_of_a_tenant(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    char id[8][BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "limits");
    for (int i = 0; i < 8; i++) id_make(id[i], BLASD_ID_ASYNC, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(submit_metered(&bed, "ann", id[i], "2", 1, " 3 0 0"), i < 3 ? 0 : 6);
    assert_int_equal(submit_metered(&bed, "ann", id[4], "2", 1, " 0 399 0"), 7);
    assert_int_equal(submit_metered(&bed, "ann", id[4], "2", 1, " 0 400 0"), 0);
    submit_of(&bed, "ben", other, "2", 1);
    audit(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 5);
    assert_int_equal(submit_metered(&bed, "ann", id[5], "2", 1, " 4 0 0"), 6); /* they run */
    audit(&bed);
    assert_int_equal(finish(worker, id[0], id[0], 5000), 1);
    assert_int_equal(submit_metered(&bed, "ann", id[5], "2", 1, " 4 0 4000"), 8);
    assert_int_equal(submit_metered(&bed, "ann", id[5], "2", 1, " 4 0 10000"), 0);
    tenant = "ann";
    drop(fcall(&bed, "cancel", "1", id[0], NULL)); /* forgotten */
    drop(fcall(&bed, "cancel", "0", id[5], NULL));
    assert_int_equal(submit_metered(&bed, "ann", id[6], "2", 1, " 4 0 4000"), 0);
    tenant = "anonymous";
    audit(&bed);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
    for (int i = 1; i < 7; i++)
        if (i != 3 && i != 5) assert_int_equal(finish(worker, id[i], "r", 0), 1);
    assert_int_equal(finish(worker, other, "r", 0), 1);
    expect_empty(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* A batch entry of which its tenant may have only some. */
static void a_batch_entry_beyond_the_limits(void **state) {
    struct bed bed;
    struct entry entry;
    (void)state;
    bed_open(&bed, &server, "some");
    batch_entry_make(&entry, BLASD_ID_ASYNC, 5);
    assert_string_equal(
        submit_batch_entry_as(&bed, &entry, "2", 100, "", "\t\tmatmul\tann\t1 1 3 0 0"), "00066");
    audit(&bed);
    tenant = "ann";
    assert_int_equal(list_all(&bed, "queued", "10", NULL, NULL), 3);
    batch_entry_make(&entry, BLASD_ID_ASYNC, 5);
    assert_string_equal(
        submit_batch_entry_as(&bed, &entry, "2", 100, "", "\t\tmatmul\tann\t1 1 8 0 0"), "0");
    drop(fcall(&bed, "cancel", "0", entry.id[2], NULL)); /* which opens it */
    audit(&bed);
    tenant = "anonymous";
    bed_close(&bed);
}

/* A blob of outputs is somebody's as long as its record lives, whoever's that is. */
static void outputs_of_each_are_kept(void **state) {
    static const char *const names[] = {"ann", "ben"};
    struct bed bed;
    struct blasd_claim claims[2];
    char id[2][BLASD_ID_LEN + 1], blob[2][BLASD_ID_LEN + 5];
    (void)state;
    bed_open(&bed, &server, "outputs");
    for (int i = 0; i < 2; i++) {
        submit_of(&bed, names[i], id[i], "2", 1);
        snprintf(blob[i], sizeof blob[i], "%.41s.out", id[i]);
    }
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 2, PLENTY, claims), 2);
    for (int i = 0; i < 2; i++) assert_int_equal(finish(worker, id[i], "r", 5000), 1);
    redisReply *reply = fcall(&bed, "refs", blob[0], blob[1], NULL);
    assert_string_equal(reply->str, "11");
    drop(reply);
    tenant = "ann";
    drop(fcall(&bed, "cancel", "1", id[0], id[1], NULL)); /* one of which is not hers */
    tenant = "anonymous";
    reply = fcall(&bed, "refs", blob[0], blob[1], NULL);
    assert_string_equal(reply->str, "01");
    drop(reply);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* What is told of the queue says how much of it is one tenant's own, and what each has. */
static void what_each_has_is_told(void **state) {
    struct bed bed;
    char id[BLASD_ID_LEN + 1], text[64];
    (void)state;
    bed_open(&bed, &server, "told");
    for (int i = 0; i < 3; i++) submit_of(&bed, "ann", id, "2", 1);
    for (int i = 0; i < 2; i++) submit_of(&bed, "ben", id, "5", 1);
    tenant = "ben";
    drop(fcall(&bed, "cancel", "0", id, NULL));
    tenant = "anonymous";
    redisReply *bytes = redisCommand(bed.raw, "HGET %s:kept %s", bed.tag, "a ben");
    snprintf(text, sizeof text, "\"results_bytes\":%s", bytes->str);
    drop(bytes);
    redisReply *reply = fcall(&bed, "stats", "tenants", "ann", NULL);
    assert_non_null(strstr(reply->str, "\"own\":{\"any\":3,\"cpu\":0,\"cuda\":0}"));
    const char *ben = strstr(reply->str, "\"ben\":{");
    assert_non_null(ben);
    assert_non_null(strstr(ben, text));
    assert_non_null(strstr(reply->str, "\"waiting\":3"));
    drop(reply);
    reply = fcall(&bed, "stats", "", "ben", NULL);
    assert_non_null(strstr(reply->str, "\"own\":{\"any\":0,\"cpu\":1,\"cuda\":0}"));
    assert_null(strstr(reply->str, "\"ann\""));
    drop(reply);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_jobs_never_were),
        cmocka_unit_test(lists_know_one_tenant),
        cmocka_unit_test(keys_are_one_tenants),
        cmocka_unit_test(who_comes_late_is_next),
        cmocka_unit_test(each_has_its_share),
        cmocka_unit_test(limits_of_a_tenant),
        cmocka_unit_test(a_batch_entry_beyond_the_limits),
        cmocka_unit_test(outputs_of_each_are_kept),
        cmocka_unit_test(what_each_has_is_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
