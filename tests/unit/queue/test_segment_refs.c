/* References to segments as Redis counts them: each way in which a job can end, or its record go,
 * gives back what it took, once. */
#include "batch_entry_fixture.h"

#define SEG_A "aaaaaaaaaaaaaaaa"
#define SEG_B "bbbbbbbbbbbbbbbb"
#define SEG_OUT "cccccccccccccccc"

/* Submits a job whose inputs lie in `segment`; returns the code. */
static int submit_in(struct bed *bed, char id[BLASD_ID_LEN + 1], const char *segment,
                     const char *options) {
    char note[64];
    id_make(id, BLASD_ID_SYNC, 0);
    snprintf(note, sizeof note, " %s\tme\tmatmul\tanonymous", segment);
    redisReply *reply = fcall(bed, "submit", NEXT_SEQ, id, id, "2", "100", options, note, NULL);
    int code = (int)reply->element[3]->integer;
    drop(reply);
    return code;
}

/* A record whose outputs lie in the segment, as a worker writes it. */
static void write_record(struct blasd_buf *out, const char *id, const char *segment) {
    struct blasd_record record = {.state = BLASD_SUCCEEDED, .op = "matmul", .payload_bytes = 5000};
    struct blasd_err err;
    memcpy(record.id, id, BLASD_ID_LEN + 1);
    memcpy(record.slice.segment, segment, strlen(segment) + 1);
    blasd_buf_init(out, 4096);
    assert_int_equal(blasd_record_encode(&record, out, &err), 0);
}

static int finish_record(struct blasd_worker_queue *worker, const char *id, const char *segment) {
    struct blasd_completion completion = {.id = id, .out_bytes = 5000};
    struct blasd_buf text;
    struct blasd_err err;
    bool lost;
    write_record(&text, id, segment);
    completion.record = text.data;
    completion.record_len = text.len;
    memcpy(completion.slice.segment, segment, strlen(segment) + 1);
    if (blasd_worker_queue_finish(worker, &completion, 1, &lost, &err) < 0)
        fail_msg("%s", err.detail);
    blasd_buf_release(&text);
    return completion.accepted;
}

/* A record that is forgotten lets go of its segment, and takes no room of its tenant's any more. */
static void test_forgotten(void **state) {
    struct blasd_claim claims[3];
    struct bed bed;
    char id[3][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "forgotten");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 3; i++) assert_int_equal(submit_in(&bed, id[i], SEG_A, ""), 0);
    assert_int_equal(claim(worker, 3, PLENTY, claims), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(finish_record(worker, id[i], i == 2 ? SEG_B : SEG_OUT), 1);
    assert_int_equal(refs_of(&bed, SEG_OUT), 2);
    assert_true(counted(&bed, "kept_s") > 15000);
    for (int i = 0; i < 3; i++) {
        drop(fcall(&bed, "cancel", "1", id[i], NULL));
        drop(fcall(&bed, "cancel", "1", id[i], NULL)); /* twice gives back once */
        assert_string_equal(record_line(&bed, id[i], 0), "404");
        assert_int_equal(refs_of(&bed, SEG_OUT), i == 0 ? 1 : 0);
        assert_int_equal(refs_of(&bed, SEG_B), i == 2 ? 0 : 1);
    }
    assert_int_equal(counted(&bed, "kept_s"), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static int finish_in(struct blasd_worker_queue *worker, const char *id, const char *segment) {
    struct blasd_completion completion = {
        .id = id, .record = "record", .record_len = 6, .out_bytes = segment == NULL ? 0 : 5000};
    struct blasd_err err;
    bool lost;
    if (segment != NULL)
        snprintf(completion.slice.segment, sizeof completion.slice.segment, "%s", segment);
    if (blasd_worker_queue_finish(worker, &completion, 1, &lost, &err) < 0)
        fail_msg("%s", err.detail);
    return lost ? -1 : completion.accepted;
}

static void test_each_completion_gives_back(void **state) {
    struct blasd_claim claims[4];
    struct bed bed;
    char id[4][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "ends");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(submit_in(&bed, id[0], SEG_A, ""), 0);
    assert_int_equal(submit_in(&bed, id[1], SEG_A, "d=60000"), 0);
    assert_int_equal(submit_in(&bed, id[2], SEG_A, ""), 0);
    assert_int_equal(submit_in(&bed, id[3], SEG_B, ""), 0);
    assert_int_equal(refs_of(&bed, SEG_A), 3);
    assert_int_equal(refs_of(&bed, SEG_B), 1);
    redisReply *reply =
        fcall(&bed, "refs", SEG_A ".seg", "dddddddddddddddd.seg", SEG_B ".seg", NULL);
    assert_string_equal(reply->str, "101");
    drop(reply);
    drop(fcall(&bed, "cancel", "1", id[0], NULL));
    assert_int_equal(refs_of(&bed, SEG_A), 2);
    redis_forward(&server, 60000);
    drop(fcall(&bed, "tick", NULL));
    assert_string_equal(record_line(&bed, id[1], LINE_STATE), "expired");
    assert_int_equal(refs_of(&bed, SEG_A), 1);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 2);
    assert_int_equal(finish_in(worker, id[2], NULL), 1);
    assert_int_equal(finish_in(worker, id[2], NULL), 0); /* twice gives back once */
    assert_int_equal(finish_in(worker, id[3], SEG_OUT), 1);
    assert_int_equal(refs_of(&bed, SEG_A), 0);
    assert_int_equal(refs_of(&bed, SEG_B), 0);
    assert_int_equal(refs_of(&bed, SEG_OUT), 1);
    assert_string_equal(record_line(&bed, id[3], 0), "record");
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_a_batch_is_counted_by_segment(void **state) {
    static const char *const segments[] = {SEG_A, SEG_A, "", SEG_B, SEG_A, SEG_B};
    const char *argv[7 + 6 * 6] = {"FCALL", BLASD_QUEUE_FN("submit"), "1"};
    char id[6][BLASD_ID_LEN + 1], note[6][64];
    struct bed bed;
    int argc = 7;
    (void)state;
    bed_open(&bed, &server, "batch");
    bed.limits.queue_jobs = 5;
    bed_limits(&bed);
    argv[3] = bed.tag;
    argv[4] = bed.link.text;
    argv[5] = "test";
    argv[6] = submit_seq(false);
    for (int i = 0; i < 6; i++) {
        id_make(id[i], BLASD_ID_SYNC, 0);
        snprintf(note[i], sizeof note[i], "%s%s\t\tmatmul\tanonymous", segments[i][0] ? " " : "",
                 segments[i]);
        const char *rest[] = {id[i], "f", "2", "9", i == 3 ? "d=9000" : "", note[i]};
        for (int k = 0; k < 6; k++) argv[argc++] = rest[k];
    }
    redisReply *reply = redisCommandArgv(bed.raw, argc, argv, NULL);
    assert_int_equal(reply->elements, 9);
    for (int i = 0; i < 6; i++) assert_int_equal(reply->element[3 + i]->integer, i == 5);
    drop(reply);
    assert_int_equal(refs_of(&bed, SEG_A), 3);
    assert_int_equal(refs_of(&bed, SEG_B), 1); /* the last one was refused */
    /* sent again after its reply was lost: counted once */
    reply = redisCommandArgv(bed.raw, argc, argv, NULL);
    assert_int_equal(reply->elements, 9);
    for (int i = 0; i < 6; i++) assert_int_equal(reply->element[3 + i]->integer, i == 5);
    drop(reply);
    assert_int_equal(refs_of(&bed, SEG_A), 3);
    /* a channel more or less changes nothing */
    drop(fcall(&bed, "watch", "me", id[0], NULL));
    drop(fcall(&bed, "watch", "other", id[0], NULL));
    for (int i = 0; i < 5; i++) drop(fcall(&bed, "cancel", "1", id[i], NULL));
    assert_int_equal(refs_of(&bed, SEG_A), 0);
    assert_int_equal(refs_of(&bed, SEG_B), 0);
    bed_close(&bed);
}

static void test_records_that_go_give_back(void **state) {
    struct blasd_claim claims[4];
    struct bed bed;
    char id[3][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "gone");
    bed.limits.record_sync_s = 60;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 3; i++) assert_int_equal(submit_in(&bed, id[i], SEG_A, ""), 0);
    assert_int_equal(claim(worker, 4, PLENTY, claims), 3);
    for (int i = 0; i < 3; i++) assert_int_equal(finish_in(worker, id[i], SEG_OUT), 1);
    assert_int_equal(refs_of(&bed, SEG_A), 0);
    assert_int_equal(refs_of(&bed, SEG_OUT), 3);
    /* a record that is deleted cannot be had, but its bytes stay until its neighbours go */
    drop(fcall(&bed, "cancel", "1", id[0], NULL));
    assert_string_equal(record_line(&bed, id[0], 0), "404");
    assert_int_equal(refs_of(&bed, SEG_OUT), 3);
    redis_forward(&server, 62000);
    drop(fcall(&bed, "tick", NULL));
    assert_string_equal(record_line(&bed, id[1], 0), "410");
    assert_int_equal(refs_of(&bed, SEG_OUT), 0);
    redisReply *reply = redisCommand(bed.raw, "EXISTS %s:segments", bed.tag);
    assert_int_equal(reply->integer, 0);
    drop(reply);
    assert_int_equal(counted(&bed, "kept_s"), 0);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_a_job_that_kills_gives_back(void **state) {
    struct blasd_claim claims[1];
    struct bed bed;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "kills");
    bed.limits.attempts = 2;
    bed_limits(&bed);
    assert_int_equal(submit_in(&bed, id, SEG_A, ""), 0);
    for (int i = 0; i < 2; i++) {
        struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
        assert_int_equal(refs_of(&bed, SEG_A), 1);
        assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
        begin(worker, claims, 1);
        expire_worker(&bed, "w");
        blasd_worker_queue_free(worker);
    }
    assert_string_equal(record_line(&bed, id, LINE_ERROR), "poisoned");
    assert_int_equal(refs_of(&bed, SEG_A), 0);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_completion_gives_back),
        cmocka_unit_test(test_a_batch_is_counted_by_segment),
        cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_records_that_go_give_back),
        cmocka_unit_test(test_a_job_that_kills_gives_back),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
