/* Records that the functions in Redis write, read by the decoder in C; and records of the forms
 * before, as an upgrade leaves them. */
#include "redis_fixture.h"

#include "queue/piece.h"

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
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) assert_int_equal(record.outputs[i].tensor.rank, -1);
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
    bury(&bed, "w");
    record = record_of(&bed, id[0]);
    assert_int_equal(record.state, BLASD_FAILED);
    assert_int_equal(record.error.code, BLASD_E_poisoned);
    assert_string_equal(record.error.detail,
                        "1 worker ended while running this job, so it was given up");
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* What the encoder before wrote, in hexadecimal: a success whose payload of 16 bytes lies behind
 * it, one whose payload lies in a segment, a failure. */

static const char succeeded[] =
    "424c5246010000004001000002020000296136393266613162303031323334353637383961626364"
    "656630313233343536373839616263646566066d61746d756c01401e18240a060002401e18240a06"
    "0003401e18240a0600000000000000f03f0100000000000000020000000000000003000000000000"
    "000400000000000000050000000000000006000000000000000700000000000000056370753a3008"
    "6120646576696365056467656d6d02076361726566756c04736c6f77080000000200000000000000"
    "0000304060000000000000000010000000000000000001000000000000f83f01016307666c6f6174"
    "36340201000000000000000200000000000000000000000000000010000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000440000000000000f0bf";
static const char sliced[] =
    "424c5246010000004001000002020000296136393266613162303031323334353637383961626364"
    "656630313233343536373839616263646566066d61746d756c01401e18240a060002401e18240a06"
    "0003401e18240a0600000000000000f03f0100000000000000020000000000000003000000000000"
    "000400000000000000050000000000000006000000000000000700000000000000056370753a3008"
    "6120646576696365056467656d6d0008000000020000000000000000003040600000000000000000"
    "10000000000000000210303132333435363738396162636465660700000000100000000000000001"
    "016307666c6f61743634020100000000000000020000000000000000000000000000001000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000";
static const char failed[] =
    "424c5246010000000001000003020000296136393266613162303031323334353637383961626364"
    "656630313233343536373839616263646566066d61746d756c01401e18240a060002401e18240a06"
    "0003401e18240a0600000000000000f03f0100000000000000020000000000000003000000000000"
    "000400000000000000050000000000000006000000000000000700000000000000056370753a3008"
    "6120646576696365056467656d6d000800000002000000000000000000304060000000000000000f"
    "73696e67756c61725f6d617472697808696e707574732e6105697420697300000000000000000000"
    "00000000000000000000000000000000";
#define OLD_ID "a692fa1b00123456789abcdef0123456789abcdef"

/* Puts `text`, or the bytes that `hex` says, where the record of `id` lies. */
static void plant(struct bed *bed, const char *id, const char *text, const char *hex) {
    struct blasd_buf piece;
    char bucket[32], bytes[2048];
    size_t len = text != NULL ? strlen(text) : strlen(hex) / 2;
    unsigned long second;
    if (text != NULL) memcpy(bytes, text, len);
    for (size_t i = 0; hex != NULL && i < len; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (char)(unsigned char)byte;
    }
    second = strtoul((char[]){id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], 0}, NULL, 16);
    snprintf(bucket, sizeof bucket, "a:%lu", second / 8);
    blasd_buf_init(&piece, BLASD_MIB);
    assert_int_equal(blasd_piece_add(&piece, id, bytes, len), 0);
    drop(redisCommand(bed->raw, "HSET %s:rec:%s %s %b", bed->tag, bucket, id, piece.data,
                      piece.len));
    drop(redisCommand(bed->raw, "HINCRBY %s:recbytes %s %d", bed->tag, bucket, (int)piece.len));
    drop(redisCommand(bed->raw, "HINCRBY %s:recbytes a %d", bed->tag, (int)piece.len));
    drop(redisCommand(bed->raw, "ZADD %s:recs 9999999999 %s", bed->tag, bucket));
    blasd_buf_release(&piece);
}

static void upgrade(struct bed *bed) {
    drop(redisCommand(bed->raw, "HDEL %s:recbytes schema", bed->tag));
    for (int i = 0; i < 2; i++)
        drop(fcall(bed, "open", blasd_store_identity(bed->store), "0", NULL));
}

/* The bytes of the records are weighed as they are after it. */
static void expect_weighed(struct bed *bed, const char *id) {
    size_t len, payload_at;
    redisReply *reply = redisCommand(bed->raw, "HGET %s:recbytes a", bed->tag);
    read_record(bed, id, &len, &payload_at);
    assert_int_equal(strtoll(reply->str, NULL, 10), 4 + BLASD_ID_LEN + len);
    drop(reply);
}

static void frames_are_moved(void **state) {
    const char *const old[] = {succeeded, sliced, failed};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct bed bed;
        struct blasd_record r;
        size_t len, payload_at;
        bed_open(&bed, &server, (const char *[]){"frames0", "frames1", "frames2"}[i]);
        plant(&bed, OLD_ID, NULL, old[i]);
        upgrade(&bed);
        r = read_record(&bed, OLD_ID, &len, &payload_at);
        assert_int_equal(r.state, i == 2 ? BLASD_FAILED : BLASD_SUCCEEDED);
        assert_int_equal(r.priority, BLASD_PRIORITY_LOW);
        assert_string_equal(r.op, "matmul");
        assert_true(r.created_us == 1700000000000001 && r.started_us == 1700000000000002 &&
                    r.finished_us == 1700000000000003 && r.progress == 1);
        assert_true(r.timing.receive_us == 1 && r.timing.upload_us == 4 && r.timing.total_us == 7);
        assert_string_equal(r.execution.device, "cpu:0");
        assert_string_equal(r.execution.device_name, "a device");
        assert_string_equal(r.execution.method, "dgemm");
        assert_int_equal(r.execution.warning_count, i == 0 ? 2 : 0);
        if (i == 0) assert_string_equal(r.execution.warnings[1], "slow");
        assert_int_equal(r.execution.batch_size, 8);
        assert_int_equal(r.execution.attempts, 2);
        assert_true(r.execution.flops == 16 && r.execution.bytes == 96);
        assert_true(r.execution.energy_joules == (i == 0 ? 1.5 : 0));
        assert_int_equal(r.error.code, i == 2 ? BLASD_E_singular_matrix : BLASD_OK);
        assert_string_equal(r.error.field, i == 2 ? "inputs.a" : "");
        assert_string_equal(r.error.detail, i == 2 ? "it is" : "");
        assert_int_equal(r.outputs[0].tensor.rank, i == 2 ? -1 : 2);
        assert_int_equal(r.payload_bytes, i == 2 ? 0 : 16);
        assert_int_equal(len - payload_at, i == 0 ? 16 : 0);
        assert_string_equal(r.slice.segment, i == 1 ? "0123456789abcdef" : "");
        if (i == 1) assert_true(r.slice.generation == 7 && r.slice.offset == 4096);
        expect_weighed(&bed, OLD_ID);
        bed_close(&bed);
    }
}

static void lines_are_moved(void **state) {
    struct bed bed;
    struct blasd_record r;
    (void)state;
    for (int with_class = 0; with_class < 2; with_class++) { /* the oldest did not say it */
        char text[256];
        snprintf(text, sizeof text,
                 "T1\nfailed\n" OLD_ID "\nmatmul\nhigh\n1700000000000000\n1700000001000000\n"
                 "1700000002500000\n0.5\n5\npoisoned\ncuda:0\nanonymous%s",
                 with_class ? "\ncuda" : "");
        bed_open(&bed, &server, with_class ? "lines1" : "lines0");
        plant(&bed, OLD_ID, text, NULL);
        upgrade(&bed);
        r = record_of(&bed, OLD_ID);
        assert_int_equal(r.state, BLASD_FAILED);
        assert_int_equal(r.priority, BLASD_PRIORITY_HIGH);
        assert_int_equal(r.device, with_class ? BLASD_DEVICE_CUDA : BLASD_DEVICE_ANY);
        assert_true(r.created_us == 1700000000000000 && r.started_us == 1700000001000000 &&
                    r.finished_us == 1700000002500000 && r.progress == 0.5);
        assert_true(r.timing.queue_us == 1000000 && r.timing.total_us == 2500000);
        assert_int_equal(r.execution.attempts, 5);
        assert_string_equal(r.execution.device, "cuda:0");
        assert_int_equal(r.error.code, BLASD_E_poisoned);
        assert_non_null(strstr(r.error.detail, "5 workers"));
        expect_weighed(&bed, OLD_ID);
        bed_close(&bed);
    }
}

/* What is no record stays as it is, and stops nothing. */
static void damage_is_left_alone(void **state) {
    static const char *const damaged[] = {"rec", "T1\nquiet\n", "BLRF",
                                          "T1\n\n\n\n\n\n\n\n\n\n\n\n\n\n"};
    struct bed bed;
    (void)state;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        bed_open(&bed, &server, "damaged");
        plant(&bed, OLD_ID, damaged[i], NULL);
        upgrade(&bed);
        redisReply *reply = fcall(&bed, "get", OLD_ID, NULL);
        assert_string_equal(reply->element[0]->str, damaged[i]);
        drop(reply);
        assert_int_equal(list_all(&bed, "any", "1", NULL, NULL), 0); /* not in {q}:seconds */
        bed_close(&bed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_worker_ended),
        cmocka_unit_test(frames_are_moved),
        cmocka_unit_test(lines_are_moved),
        cmocka_unit_test(damage_is_left_alone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
