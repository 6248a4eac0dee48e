/* Labels inside Redis: in records of every state, alone and in batch entries, and lists narrowed by
 * one.
 */
#include "batch_entry_fixture.h"

static int listed(struct bed *bed, const char *which, const char *label, const char *limit,
                  int *pages) {
    char cursor[128] = "";
    int count = 0;
    *pages = 0;
    do {
        redisReply *reply =
            fcall(bed, "list", which, "", "0", "9000000000000000", limit, cursor, label, NULL);
        assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
        count += (int)reply->elements - 1;
        snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
        drop(reply);
        ++*pages;
    } while (cursor[0] != '\0');
    return count;
}

static int labelled(struct bed *bed, const char *which, const char *label) {
    int pages;
    return listed(bed, which, label, "100", &pages);
}

static void submit_labelled(struct bed *bed, char id[BLASD_ID_LEN + 1], const char *labels) {
    char note[256];
    id_make(id, BLASD_ID_ASYNC, 0);
    snprintf(note, sizeof note, "\t\tmatmul%s\t%s", labels, tenant);
    redisReply *reply = fcall(bed, "submit", NEXT_SEQ, id, id, "2", "100", "", note, NULL);
    assert_int_equal(reply->element[3]->integer, 0);
    drop(reply);
}

static void expect_labels(struct bed *bed, const char *id, const char *labels) {
    redisReply *reply = fcall(bed, "get", id, NULL);
    struct blasd_record record;
    struct blasd_err err;
    size_t payload_at;
    const redisReply *r = reply->element[0];
    assert_int_equal(blasd_record_decode(r->str, r->len, &record, &payload_at, &err), 0);
    assert_string_equal(record.op, "matmul");
    assert_string_equal(record.labels, labels);
    drop(reply);
}

static void of_every_state(void **state) {
    struct bed bed;
    char id[3][BLASD_ID_LEN + 1];
    struct blasd_claim claims[4];
    (void)state;
    bed_open(&bed, &server, "states");
    submit_labelled(&bed, id[0], " project=thesis,run=7");
    submit_labelled(&bed, id[1], " project=thesis2,run=7");
    submit_labelled(&bed, id[2], "");
    expect_labels(&bed, id[0], "project=thesis,run=7");
    expect_labels(&bed, id[2], "");
    assert_int_equal(labelled(&bed, "queued", "project=thesis"), 1);
    assert_int_equal(labelled(&bed, "queued", "project"), 2);
    assert_int_equal(labelled(&bed, "queued", "run=7"), 2);
    assert_int_equal(labelled(&bed, "queued", "run=70"), 0);
    assert_int_equal(labelled(&bed, "queued", "thesis"), 0);
    assert_int_equal(labelled(&bed, "any", ""), 3);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 3);
    begin(worker, claims, 1);
    expect_labels(&bed, id[0], "project=thesis,run=7");
    assert_int_equal(labelled(&bed, "running", "project=thesis"), 1);
    assert_int_equal(labelled(&bed, "running", "project=thesis2"), 0);
    drop(fcall(&bed, "cancel", "0", id[0], id[1], NULL));
    expect_labels(&bed, id[1], "project=thesis2,run=7");
    assert_int_equal(labelled(&bed, "cancelled", "run=7"), 2);
    assert_int_equal(labelled(&bed, "cancelled", "project=thesis2"), 1);
    assert_int_equal(labelled(&bed, "any", "run"), 2);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* A page is one call of Redis, in which few jobs are looked at, whether the label is theirs or not.
 */
static void a_page_looks_at_few(void **state) {
    enum { JOBS = 4000 };
    struct bed bed;
    char id[BLASD_ID_LEN + 1];
    int pages;
    (void)state;
    bed_open(&bed, &server, "few");
    for (int i = 0; i < JOBS; i++) {
        submit_labelled(&bed, id, i % 1000 == 0 ? " rare=yes" : i % 2 == 0 ? " half=yes" : "");
        if (i >= JOBS / 2) drop(fcall(&bed, "cancel", "0", id, NULL));
    }
    assert_int_equal(listed(&bed, "any", "rare=yes", "100", &pages), JOBS / 1000);
    if (pages < JOBS / 700) fail_msg("%d jobs were looked at in %d pages", JOBS, pages);
    assert_int_equal(listed(&bed, "any", "none", "100", &pages), 0);
    if (pages < JOBS / 700) fail_msg("%d jobs were looked at in %d pages", JOBS, pages);
    assert_int_equal(listed(&bed, "any", "half=yes", "100", &pages), JOBS / 2 - JOBS / 1000);
    assert_int_equal(listed(&bed, "any", "half=yes", "7", &pages), JOBS / 2 - JOBS / 1000);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_every_state),
        cmocka_unit_test(a_page_looks_at_few),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
