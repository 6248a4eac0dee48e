/* Records that the functions in Redis write, read by the decoder in C; and what is no record. */
#include "redis_fixture.h"

#include "queue/record_frame.h"

static struct blasd_record read_record(struct bed *bed, const char *id, size_t *len,
                                       size_t *payload_at) {
    struct blasd_record record;
    struct blasd_err err;
    redisReply *reply = fcall(bed, "get", id, NULL);
    const redisReply *r = reply->element[0];
    static char bytes[4096];
    assert_int_equal(r->type, REDIS_REPLY_STRING);
    assert_true(r->len <= sizeof bytes);
    memcpy(bytes, r->str, r->len);
    *len = r->len;
    drop(reply);
    if (blasd_record_decode(bytes, *len, &record, payload_at, &err) != 0)
        fail_msg("%s", err.detail);
    assert_string_equal(record.id, id);
    return record;
}

static struct blasd_record record_of(struct bed *bed, const char *id) {
    size_t len, payload_at;
    struct blasd_record record = read_record(bed, id, &len, &payload_at);
    assert_int_equal(payload_at, len);
    assert_string_equal(record.op, "matmul");
    for (int i = 0; i < record.output_count; i++) assert_false(blasd_record_has(&record, i));
    return record;
}

static void what_no_worker_ended(void **state) {
    struct bed bed;
    struct blasd_claim claims[8];
    struct blasd_record record;
    char id[4][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "records");
    bed.limits.attempts = 1;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (int i = 0; i < 4; i++) {
        id_make(id[i], BLASD_ID_ASYNC, 0);
        assert_int_equal(submit_as(&bed, id[i], i == 2 ? "9" : "4", "9", i == 2 ? "d=1" : "", ""),
                         0);
    }
    record = record_of(&bed, id[2]);
    assert_int_equal(record.state, BLASD_QUEUED);
    assert_int_equal(record.priority, BLASD_PRIORITY_LOW);
    assert_int_equal(record.device, BLASD_DEVICE_CUDA);
    assert_true(record.created_us > 1600000000000000 && record.started_us == 0);
    assert_int_equal(record.error.code, BLASD_OK);
    assert_true(record.timing.total_us == 0 && record.timing.queue_us == 0);
    sleep_ms(3);
    drop(fcall(&bed, "tick", NULL));
    record = record_of(&bed, id[2]);
    assert_int_equal(record.state, BLASD_EXPIRED);
    assert_int_equal(record.error.code, BLASD_E_deadline_exceeded);
    assert_string_equal(record.error.field, "deadline_ms");
    assert_non_null(strstr(record.error.detail, "while the job still waited, 0.0"));
    assert_true(record.finished_us > record.created_us);
    assert_true(record.timing.total_us == record.finished_us - record.created_us);
    assert_true(record.timing.queue_us == record.timing.total_us);
    drop(fcall(&bed, "cancel", "0", id[3], NULL));
    record = record_of(&bed, id[3]);
    assert_int_equal(record.state, BLASD_CANCELLED);
    assert_string_equal(record.error.detail, "the job was cancelled before it began");
    assert_int_equal(claim(worker, 8, PLENTY, claims), 2);
    begin(worker, claims, 2);
    record = record_of(&bed, id[0]);
    assert_int_equal(record.state, BLASD_RUNNING);
    assert_string_equal(record.execution.device, "cpu:0");
    assert_true(record.timing.queue_us == record.started_us - record.created_us);
    assert_int_equal(record.execution.attempts, 1);
    drop(fcall(&bed, "cancel", "0", id[1], NULL));
    assert_string_equal(record_of(&bed, id[1]).error.detail, "the job was cancelled while it ran");
    expire_worker(&bed, "w");
    record = record_of(&bed, id[0]);
    assert_int_equal(record.state, BLASD_FAILED);
    assert_int_equal(record.error.code, BLASD_E_poisoned);
    assert_string_equal(record.error.detail,
                        "1 worker ended while running this job, so it was given up");
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

#define OLD_ID "a692fa1b00123456789abcdef0123456789abcdef"

/* Puts `text` where the record of `id` lies. */
static void plant(struct bed *bed, const char *id, const char *text) {
    struct blasd_buf record_frame;
    blasd_buf_init(&record_frame, BLASD_MIB);
    assert_int_equal(blasd_record_frame_add(&record_frame, id, text, strlen(text)), 0);
    drop(redisCommand(bed->raw, "SET %s:record:%s %s", bed->tag, id, ""));
    drop(redisCommand(bed->raw, "APPEND %s:record:%s %s", bed->tag, id,
                      "anonymous a 9999999999 100 0 0\n"));
    drop(redisCommand(bed->raw, "APPEND %s:record:%s %b", bed->tag, id, record_frame.data,
                      record_frame.len));
    drop(redisCommand(bed->raw, "ZADD %s:index:a:anonymous 1 %s", bed->tag, id));
    blasd_buf_release(&record_frame);
}

/* What is no record stays as it is, and stops nothing. */
static void damage_is_left_alone(void **state) {
    static const char *const damaged[] = {"rec", "T1\nquiet\n", "BLRF",
                                          "T1\n\n\n\n\n\n\n\n\n\n\n\n\n\n"};
    struct bed bed;
    (void)state;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        bed_open(&bed, &server, "damaged");
        plant(&bed, OLD_ID, damaged[i]);
        redisReply *reply = fcall(&bed, "get", OLD_ID, NULL);
        assert_string_equal(reply->element[0]->str, damaged[i]);
        drop(reply);
        assert_int_equal(list_all(&bed, "any", "1", NULL, NULL), 1);
        bed_close(&bed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_worker_ended),
        cmocka_unit_test(damage_is_left_alone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
