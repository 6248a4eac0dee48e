/* Puts inside Redis: promised with a job, due when it has succeeded, told of in its record, and
 * given up. The server's clock is moved. What they share with webhooks is in test_webhooks.c. */
#include "redis_fixture.h"

#include "queue/job_outputs.h"
#include "queue/webhooks.h"

#define NOTE "\t\tmatmul\tanonymous"
#define LEASE_S 20
#define LIFE_S 1800
#define A "https://a.example:443"
#define B "https://b.example:443"

struct taken {
    int lanes, puts;
    char lane[8][BLASD_WEBHOOK_LANE];
    char id[16][BLASD_WEBHOOK_ID], url[16][64];
    int output[16];
    double first[16]; /* of the outputs that lie in the record */
};

static void note(void *arg, const char *lane, const struct blasd_webhook *puts, int count) {
    struct taken *taken = arg;
    struct blasd_record record;
    struct blasd_err err;
    size_t at;
    assert_true(taken->lanes < 8 && taken->puts + count <= 16);
    snprintf(taken->lane[taken->lanes++], BLASD_WEBHOOK_LANE, "%s", lane);
    for (int i = 0; i < count; i++) {
        int n = taken->puts++;
        snprintf(taken->id[n], sizeof taken->id[0], "%s", puts[i].id);
        snprintf(taken->url[n], sizeof taken->url[0], "%s", puts[i].url);
        taken->output[n] = puts[i].output;
        assert_int_equal(
            blasd_record_decode(puts[i].record, puts[i].record_len, &record, &at, &err), 0);
        assert_memory_equal(record.id, puts[i].id, BLASD_ID_LEN);
        assert_int_equal(record.puts[puts[i].output].state, BLASD_PUT_PENDING);
        assert_true(puts[i].record_len >= at + sizeof(double));
        memcpy(&taken->first[n], (const char *)puts[i].record + at, sizeof(double));
    }
}

static struct taken take(struct blasd_webhooks *puts, int each) {
    struct taken taken = {.lanes = 0};
    struct blasd_err err;
    int lanes = blasd_webhooks_take(puts, 8, each, LEASE_S, note, &taken, &err);
    assert_int_equal(lanes, taken.lanes);
    return taken;
}

static int settle(struct blasd_webhooks *puts, const struct taken *taken, const char *text) {
    struct blasd_webhook_outcome outcomes[16];
    struct blasd_err err;
    assert_int_equal(taken->lanes, 1);
    for (int i = 0; i < taken->puts; i++) {
        memcpy(outcomes[i].id, taken->id[i], sizeof outcomes[i].id);
        snprintf(outcomes[i].text, sizeof outcomes[i].text, "%s", text);
    }
    return blasd_webhooks_done(puts, taken->lane[0], LIFE_S, outcomes, taken->puts, &err);
}

struct table {
    struct bed bed;
    struct blasd_webhooks *puts;
    struct blasd_worker_queue *worker;
};

static void lay(struct table *table, const char *name) {
    struct blasd_err err;
    bed_open(&table->bed, &server, name);
    assert_int_equal(blasd_webhooks_open(&table->bed.options, BLASD_PUTS, &table->puts, &err), 0);
    table->worker = worker_new(&table->bed, "w", BLASD_DEVICE_CPU);
}

static void clear(struct table *table) {
    blasd_worker_queue_free(table->worker);
    blasd_webhooks_free(table->puts);
    bed_close(&table->bed);
}

static long long submit(struct table *table, char id[BLASD_ID_LEN + 1], enum blasd_id_kind kind,
                        const char *options) {
    redisReply *reply;
    long long code;
    id_make(id, kind, 0);
    reply = fcall(&table->bed, "submit", NEXT_SEQ, id, "frame", "2", "100", options, NOTE, NULL);
    code = reply->element[3]->integer;
    drop(reply);
    return code;
}

/* Its record, with one output of one element beside it. */
static void write_record(struct blasd_buf *bytes, const char *id, enum blasd_state state,
                         double value) {
    const int64_t shape[] = {1};
    struct blasd_record record = {.state = state, .op = "matmul"};
    struct blasd_err err;
    snprintf(record.id, sizeof record.id, "%s", id);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) record.outputs[i].tensor.rank = -1;
    record.finished_us = blasd_clock_wall_us() + redis_ahead_us;
    if (state == BLASD_FAILED) record.error.code = BLASD_E_internal_error;
    record.payload_bytes = sizeof value;
    record.outputs[0] = (struct blasd_output){.tensor = blasd_tensor_make(BLASD_float64, 1, shape),
                                              .bytes = sizeof value};
    blasd_buf_init(bytes, BLASD_MIB);
    assert_int_equal(blasd_record_encode(&record, bytes, &err), 0);
    assert_int_equal(blasd_buf_add(bytes, &value, sizeof value), 0);
}

/* Its worker ends it so. */
static void end_as(struct table *table, const char *id, enum blasd_state state, double value) {
    struct blasd_completion completion = {.id = id};
    struct blasd_claim claims[8];
    struct blasd_buf bytes;
    struct blasd_err err;
    bool lost;
    write_record(&bytes, id, state, value);
    assert_true(claim(table->worker, 8, PLENTY, claims) > 0);
    completion.record = bytes.data;
    completion.record_len = bytes.len;
    assert_int_equal(blasd_worker_queue_finish(table->worker, &completion, 1, &lost, &err), 0);
    assert_true(completion.accepted);
    blasd_buf_release(&bytes);
}

static struct blasd_output_put put_of(struct table *table, const char *id, int output) {
    redisReply *reply = fcall(&table->bed, "get", id, NULL);
    struct blasd_record record;
    struct blasd_err err;
    size_t at;
    assert_int_equal(reply->element[0]->type, REDIS_REPLY_STRING);
    if (blasd_record_decode(reply->element[0]->str, reply->element[0]->len, &record, &at, &err) !=
        0)
        fail_msg("%s", err.detail);
    drop(reply);
    return record.puts[output];
}

static void expect_put(struct table *table, const char *id, int output, int state, int tries,
                       int why) {
    struct blasd_output_put put = put_of(table, id, output);
    assert_int_equal(put.state, state);
    assert_int_equal(put.tries, tries);
    assert_int_equal(put.why, why);
}

static int keys_left(struct table *table) {
    const char *q = table->bed.tag;
    redisReply *reply = redisCommand(table->bed.raw,
                                     "EXISTS %s:putting %s:puts %s:put_due %s:put_counts "
                                     "%s:put_holds",
                                     q, q, q, q, q);
    int count = (int)reply->integer;
    drop(reply);
    return count;
}

static void put_once(void **state) {
    struct table table;
    struct taken taken;
    char id[4][BLASD_ID_LEN + 1];
    (void)state;
    lay(&table, "once");
    /* a URL and a key that look like more options */
    assert_int_equal(submit(&table, id[0], BLASD_ID_SYNC,
                            "d=60000 P=90 p=0:" A "/x?p=1:2&d=1 k=00:P=9 p=3:" B "/"),
                     0);
    assert_int_equal(take(table.puts, 4).lanes, 0); /* it has not ended */
    end_as(&table, id[0], BLASD_SUCCEEDED, 2.5);
    expect_put(&table, id[0], 0, BLASD_PUT_PENDING, 0, 0);
    expect_put(&table, id[0], 3, BLASD_PUT_NONE, 0, 0);
    taken = take(table.puts, 4);
    assert_int_equal(taken.puts, 1);
    assert_int_equal(taken.output[0], 0);
    assert_string_equal(taken.url[0], A "/x?p=1:2&d=1");
    assert_true(taken.first[0] == 2.5);
    assert_int_equal(settle(table.puts, &taken, "delivered"), 0);
    expect_put(&table, id[0], 0, BLASD_PUT_DONE, 1, 0);
    assert_int_equal(settle(table.puts, &taken, "delivered"), 0); /* the reply was lost */
    expect_put(&table, id[0], 0, BLASD_PUT_DONE, 1, 0);
    assert_int_equal(take(table.puts, 4).lanes, 0);
    assert_int_equal(keys_left(&table), 0);
    /* one that was waited for is kept as long as one that was promised */
    redis_forward(&server, 62000);
    drop(fcall(&table.bed, "tick", NULL));
    expect_put(&table, id[0], 0, BLASD_PUT_DONE, 1, 0);
    /* what is malformed is refused before anything is done */
    assert_int_equal(submit(&table, id[1], BLASD_ID_ASYNC, "P=9 p=40:" A "/"), 4);
    assert_int_equal(submit(&table, id[1], BLASD_ID_ASYNC, "P=9 p=0:nowhere"), 4);
    assert_int_equal(submit(&table, id[1], BLASD_ID_ASYNC, "P=x p=0:" A "/"), 4);
    assert_int_equal(submit(&table, id[1], BLASD_ID_ASYNC, "p=0:" A "/"), 4);
    assert_int_equal(keys_left(&table), 0);
    /* of a job that fails, or is cancelled, nothing is put */
    assert_int_equal(submit(&table, id[2], BLASD_ID_ASYNC, "P=90 p=0:" A "/ p=39:" B "/"), 0);
    end_as(&table, id[2], BLASD_FAILED, 0);
    expect_put(&table, id[2], 0, BLASD_PUT_NONE, 0, 0);
    assert_int_equal(submit(&table, id[3], BLASD_ID_ASYNC, "P=90 p=0:" A "/"), 0);
    drop(fcall(&table.bed, "cancel", "0", id[3], NULL));
    assert_int_equal(keys_left(&table), 0);
    clear(&table);
}

/* Again, and what the record says meanwhile; given up by what was answered, or by the time. */
static void put_again(void **state) {
    struct table table;
    struct taken taken;
    char id[3][BLASD_ID_LEN + 1];
    int tries = 0;
    (void)state;
    lay(&table, "again");
    assert_int_equal(submit(&table, id[0], BLASD_ID_ASYNC, "P=90 p=0:" A "/0 p=39:" A "/39"), 0);
    end_as(&table, id[0], BLASD_SUCCEEDED, 1);
    taken = take(table.puts, 1);
    assert_int_equal(settle(table.puts, &taken, "0 503"), 0);
    expect_put(&table, id[0], 0, BLASD_PUT_PENDING, 1, 503);
    expect_put(&table, id[0], 39, BLASD_PUT_PENDING, 0, 0);
    redis_forward(&server, 2000);
    for (int i = 0; i < 2; i++) {
        taken = take(table.puts, 1);
        assert_int_equal(taken.puts, 1);
        assert_int_equal(
            settle(table.puts, &taken, taken.output[0] == 0 ? "delivered" : "never 403"),
            taken.output[0] == 0 ? 0 : 1);
        redis_forward(&server, 2000);
    }
    expect_put(&table, id[0], 0, BLASD_PUT_DONE, 2, 0);
    expect_put(&table, id[0], 39, BLASD_PUT_FAILED, 1, 403);
    assert_int_equal(keys_left(&table), 0);
    assert_int_equal(submit(&table, id[1], BLASD_ID_ASYNC, "P=90 p=0:" A "/"), 0);
    end_as(&table, id[1], BLASD_SUCCEEDED, 1);
    for (int i = 1; i <= 2 * LIFE_S; i++) {
        taken = take(table.puts, 4);
        if (taken.lanes == 1) {
            tries++;
            if (settle(table.puts, &taken, "0 4") == 1) break;
        }
        redis_forward(&server, 1000);
    }
    assert_true(tries > 7 && tries < 20); /* each wait is as long as all before it */
    expect_put(&table, id[1], 0, BLASD_PUT_FAILED, tries, BLASD_PUT_STALLED);
    assert_int_equal(keys_left(&table), 0);
    clear(&table);
}

/* Ends three jobs in one turn, the first with `bytes`, the others as a worker does; their digits.
 */
static const char *end_three(struct table *table, char id[3][BLASD_ID_LEN + 1],
                             const struct blasd_buf *bytes, size_t len) {
    static char digits[4];
    struct blasd_completion completions[3] = {
        {.id = id[0], .record = bytes->data, .record_len = len}};
    struct blasd_claim claims[4];
    struct blasd_buf good[3];
    struct blasd_err err;
    bool lost;
    assert_int_equal(claim(table->worker, 4, PLENTY, claims), 3);
    for (int i = 1; i < 3; i++) {
        write_record(&good[i], id[i], BLASD_SUCCEEDED, 3);
        completions[i] = (struct blasd_completion){
            .id = id[i], .record = good[i].data, .record_len = good[i].len};
    }
    if (blasd_worker_queue_finish(table->worker, completions, 3, &lost, &err) != 0)
        fail_msg("%s", err.detail);
    for (int i = 0; i < 3; i++) digits[i] = completions[i].accepted ? '1' : '0';
    for (int i = 1; i < 3; i++) blasd_buf_release(&good[i]);
    return digits;
}

/* What is no record of a job whose outputs are to be put ends that job alone, which has failed. */
static void no_record(void **state) {
    static const uint32_t sizes[] = {0, 1, 255, 400000, UINT32_MAX};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    (void)state;
    for (int i = 0; i < SIZES + 2; i++) {
        struct table table;
        struct taken taken;
        struct blasd_buf bytes;
        char id[3][BLASD_ID_LEN + 1], name[16];
        snprintf(name, sizeof name, "norecord%d", i);
        lay(&table, name);
        assert_int_equal(submit(&table, id[0], BLASD_ID_ASYNC, "P=90 p=0:" A "/ p=39:" A "/39"), 0);
        assert_int_equal(submit(&table, id[1], BLASD_ID_ASYNC, "P=90 p=0:" A "/"), 0);
        assert_int_equal(submit(&table, id[2], BLASD_ID_ASYNC, ""), 0);
        write_record(&bytes, id[0], BLASD_SUCCEEDED, 3);
        if (i < SIZES) memcpy(bytes.data + 8, &sizes[i], 4);
        assert_string_equal(end_three(&table, id, &bytes,
                                      i == SIZES       ? 300
                                      : i == SIZES + 1 ? 0
                                                       : bytes.len),
                            "011");
        blasd_buf_release(&bytes);
        assert_string_equal(record_line(&table.bed, id[0], LINE_STATE), "failed");
        assert_string_equal(record_line(&table.bed, id[0], LINE_ERROR), "internal_error");
        assert_string_equal(record_line(&table.bed, id[2], LINE_STATE), "succeeded");
        taken = take(table.puts, 4);
        assert_int_equal(taken.puts, 1);
        assert_int_equal(settle(table.puts, &taken, "delivered"), 0);
        expect_put(&table, id[1], 0, BLASD_PUT_DONE, 1, 0);
        assert_int_equal(keys_left(&table), 0);
        assert_int_equal(pending(&table.bed), 0);
        clear(&table);
    }
}

/* Nor is one tried for ever that says of itself that it ended, or will, at the end of time. */
static void finished_later(void **state) {
    static const int64_t later = INT64_MAX;
    struct table table;
    struct taken taken = {.lanes = 0};
    struct blasd_buf bytes;
    char id[3][BLASD_ID_LEN + 1];
    int given_up = 0;
    (void)state;
    lay(&table, "later");
    assert_int_equal(submit(&table, id[0], BLASD_ID_ASYNC, "P=90 p=0:" A "/"), 0);
    for (int i = 1; i < 3; i++) assert_int_equal(submit(&table, id[i], BLASD_ID_ASYNC, ""), 0);
    write_record(&bytes, id[0], BLASD_SUCCEEDED, 3);
    memcpy(bytes.data + 32, &later, sizeof later);
    assert_string_equal(end_three(&table, id, &bytes, bytes.len), "111");
    blasd_buf_release(&bytes);
    for (int i = 0; i < LIFE_S && given_up == 0; i++) {
        taken = take(table.puts, 4);
        if (taken.lanes == 1) given_up = settle(table.puts, &taken, "0 4");
        redis_forward(&server, 2000);
    }
    assert_int_equal(given_up, 1);
    assert_int_equal(keys_left(&table), 0);
    clear(&table);
}

/* A lane is its holder's for as long as that says so; one whose holder has died is given again. */
static void held(void **state) {
    struct table table;
    struct taken taken;
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    lay(&table, "held");
    assert_int_equal(submit(&table, id, BLASD_ID_ASYNC, "P=90 p=0:" A "/"), 0);
    end_as(&table, id, BLASD_SUCCEEDED, 1);
    taken = take(table.puts, 4);
    assert_int_equal(taken.puts, 1);
    for (int i = 0; i < 5; i++) {
        redis_forward(&server, LEASE_S * 1000 - 5000);
        assert_int_equal(take(table.puts, 4).lanes, 0);
        assert_int_equal(blasd_webhooks_keep(table.puts, taken.lane[0], LEASE_S, &err), 0);
    }
    redis_forward(&server, LEASE_S * 1000 + 1000);
    assert_int_equal(take(table.puts, 4).puts, 1);
    assert_int_equal(blasd_webhooks_done(table.puts, taken.lane[0], LIFE_S, NULL, 0, &err), 0);
    taken = take(table.puts, 4); /* given back unsent */
    assert_int_equal(taken.puts, 1);
    expect_put(&table, id, 0, BLASD_PUT_PENDING, 0, 0);
    assert_int_equal(settle(table.puts, &taken, "delivered"), 0);
    assert_int_equal(keys_left(&table), 0);
    assert_int_equal(blasd_webhooks_keep(table.puts, taken.lane[0], LEASE_S, &err), 0);
    assert_int_equal(keys_left(&table), 0); /* that makes none */
    clear(&table);
}

/* A put ends with the record that has what it puts. */
static void forgotten(void **state) {
    struct table table;
    struct taken taken;
    char id[3][BLASD_ID_LEN + 1];
    (void)state;
    lay(&table, "forgotten");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(submit(&table, id[i], BLASD_ID_SYNC, "P=90 p=0:" A "/"), 0);
        end_as(&table, id[i], BLASD_SUCCEEDED, 1);
    }
    drop(fcall(&table.bed, "cancel", "1", id[0], NULL));
    taken = take(table.puts, 4);
    assert_int_equal(taken.puts, 2);
    drop(fcall(&table.bed, "cancel", "1", id[1], NULL)); /* while it is put */
    assert_int_equal(settle(table.puts, &taken, "0 500"), 1);
    redis_forward(&server, (int64_t)table.bed.limits.record_async_s * 1000 + 20000);
    drop(fcall(&table.bed, "tick", NULL));
    assert_string_equal(record_line(&table.bed, id[2], 0), "410");
    assert_int_equal(take(table.puts, 4).lanes, 0);
    assert_int_equal(keys_left(&table), 0);
    clear(&table);
}

/* So many in all, and a tenth of them for one lane; of one job each counts. */
static void room(void **state) {
    struct table table;
    struct taken taken;
    char id[2][BLASD_ID_LEN + 1], more[BLASD_ID_LEN + 1];
    (void)state;
    lay(&table, "room");
    assert_int_equal(submit(&table, id[0], BLASD_ID_ASYNC, "P=20 p=0:" A "/ p=1:" A "/"), 0);
    assert_int_equal(submit(&table, more, BLASD_ID_ASYNC, "P=20 p=0:" A "/other"), 12);
    assert_int_equal(submit(&table, more, BLASD_ID_ASYNC, "P=20 p=0:" B "/ p=1:" B "/ p=2:" B "/"),
                     12);
    assert_int_equal(submit(&table, id[1], BLASD_ID_ASYNC, "P=3 p=0:" B "/"), 0); /* the third */
    assert_int_equal(submit(&table, more, BLASD_ID_ASYNC, "P=3 p=0:https://c.example:443/"), 12);
    end_as(&table, id[0], BLASD_SUCCEEDED, 1); /* they wait yet */
    assert_int_equal(submit(&table, more, BLASD_ID_ASYNC, "P=20 p=0:" A "/"), 12);
    taken = take(table.puts, 4);
    assert_int_equal(settle(table.puts, &taken, "delivered"), 0);
    assert_int_equal(submit(&table, more, BLASD_ID_ASYNC, "P=20 p=0:" A "/"), 0);
    clear(&table);
}

/* Wherever a worker has put them: in a blob of Redis, which is gone afterwards. */
static void outputs_are_found(void **state) {
    static const char bytes[3 * 1024 * 1024 + 7] = {[BLASD_MIB] = 'x', [3 * BLASD_MIB + 6] = 'y'};
    struct blasd_payload payload = {.data = NULL};
    struct blasd_job_outputs *outputs;
    struct blasd_record record = {.payload_in_blob = true, .payload_bytes = sizeof bytes};
    struct blasd_blob blob = {.fd = -1};
    struct table table;
    struct blasd_err err;
    char name[BLASD_BLOB_NAME];
    (void)state;
    lay(&table, "outputs");
    assert_int_equal(blasd_job_outputs_open(&table.bed.options, &outputs, &err), 0);
    id_make(record.id, BLASD_ID_ASYNC, 0);
    snprintf(name, sizeof name, "%s.out", record.id);
    assert_int_equal(blasd_blob_create(table.bed.store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, sizeof bytes, &err), 0);
    assert_int_equal(blasd_blob_write(&blob, 0, bytes, sizeof bytes, &err), 0);
    assert_int_equal(blasd_worker_queue_blob_put(table.worker, &blob, &err), 0);
    blasd_blob_close(&blob);
    assert_int_equal(blasd_job_outputs_get(outputs, &record, NULL, &payload, &err), 0);
    assert_memory_equal(payload.data, bytes, sizeof bytes);
    blasd_payload_release(&payload);
    blasd_worker_queue_blob_remove(table.worker, name);
    drop(fcall(&table.bed, "tick", NULL));
    assert_int_equal(blasd_job_outputs_get(outputs, &record, NULL, &payload, &err),
                     -(int)BLASD_E_record_expired);
    blasd_payload_release(&payload);
    record.payload_in_blob = false;
    record.payload_bytes = 3;
    assert_int_equal(blasd_job_outputs_get(outputs, &record, "abc", &payload, &err), 0);
    assert_memory_equal(payload.data, "abc", 3);
    blasd_payload_release(&payload);
    blasd_job_outputs_trim(outputs);
    blasd_job_outputs_free(outputs);
    clear(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_once),  cmocka_unit_test(put_again),
        cmocka_unit_test(held),      cmocka_unit_test(forgotten),
        cmocka_unit_test(no_record), cmocka_unit_test(finished_later),
        cmocka_unit_test(room),      cmocka_unit_test(outputs_are_found)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
