/* What ended jobs used, as the queue notes it and `blasd meter` takes it. */
#include "redis_fixture.h"

#include "queue/usage_stream.h"

#include <math.h>

#define JOBS_MOST 2048

/* What was read: the jobs' ids in their order, and whether sequences grew. */
struct seen {
    char ids[JOBS_MOST][BLASD_ID_LEN + 1];
    char sequence[BLASD_USAGE_SEQUENCE];
    int count;
};

static int see(void *arg, const struct blasd_usage_job *job, struct blasd_err *err) {
    struct seen *seen = arg;
    (void)err;
    assert_true(strcmp(job->sequence, seen->sequence) > 0);
    assert_string_equal(job->tenant, tenant);
    assert_string_equal(job->record->op, "matmul");
    snprintf(seen->sequence, sizeof seen->sequence, "%s", job->sequence);
    memcpy(seen->ids[seen->count++], job->record->id, BLASD_ID_LEN + 1);
    return 0;
}

static struct blasd_usage_stream *usage_new(struct bed *bed) {
    struct blasd_usage_stream *usage;
    struct blasd_err err;
    if (blasd_usage_open(&bed->options, &usage, &err) < 0) fail_msg("%s", err.detail);
    return usage;
}

static int64_t ended_us; /* when all of them ended */

static void record_make(const char *id, struct blasd_buf *out) {
    struct blasd_record record = {.state = BLASD_SUCCEEDED, .op = "matmul"};
    struct blasd_err err;
    memcpy(record.id, id, BLASD_ID_LEN + 1);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) record.outputs[i].tensor.rank = -1;
    record.finished_us = ended_us;
    record.execution.flops = 1;
    blasd_buf_init(out, BLASD_MIB);
    if (blasd_record_encode(&record, out, &err) != 0) fail_msg("%s", err.detail);
}

static void (*lie)(struct blasd_buf *record); /* what becomes of records, or NULL */

/* Submits so many jobs, and ends them in one step; their ids. */
static void end_jobs(struct bed *bed, struct blasd_worker_queue *worker, int count,
                     char ids[][BLASD_ID_LEN + 1]) {
    static struct blasd_claim claims[JOBS_MOST];
    static struct blasd_completion completions[JOBS_MOST];
    static struct blasd_buf records[JOBS_MOST];
    struct blasd_err err;
    bool lost;
    int claimed = 0;
    if (ended_us == 0) ended_us = blasd_clock_wall_us();
    for (int i = 0; i < count; i++) submit_new(bed, ids[i], "2");
    while (claimed < count) claimed += claim(worker, count - claimed, PLENTY, claims + claimed);
    for (int i = 0; i < count; i++) {
        record_make(ids[i], &records[i]);
        if (lie != NULL) lie(&records[i]);
        completions[i] = (struct blasd_completion){
            .id = ids[i], .record = records[i].data, .record_len = records[i].len};
    }
    assert_int_equal(blasd_worker_queue_finish(worker, completions, count, &lost, &err), 0);
    for (int i = 0; i < count; i++) {
        assert_true(completions[i].accepted);
        blasd_buf_release(&records[i]);
    }
}

static void expect_read(struct blasd_usage_stream *usage, int count, bool more) {
    static struct seen seen;
    struct blasd_err err;
    seen = (struct seen){.count = 0};
    assert_int_equal(blasd_usage_read(usage, see, &seen, &err), count);
    assert_int_equal(seen.count, count);
    assert_int_equal(blasd_usage_more(usage), more);
}

static void settle(struct blasd_usage_stream *usage) {
    struct blasd_err err;
    if (blasd_usage_settle(usage, NULL, 0, &err) != 0) fail_msg("%s", err.detail);
}

/* One of the sums of their hour. */
static double counted_of(struct bed *bed, const char *what) {
    long long hour = ended_us / 1000000 / 3600;
    char key[96], field[48];
    const char *argv[] = {"HGET", key, field};
    snprintf(key, sizeof key, "%s:usage:%s:%lld", bed->tag, tenant, hour / 24);
    snprintf(field, sizeof field, "%lld %s", hour, what);
    redisReply *reply = redisCommandArgv(bed->raw, 3, argv, NULL);
    double n = reply->type == REDIS_REPLY_STRING ? strtod(reply->str, NULL) : 0;
    drop(reply);
    return n;
}

static int jobs_counted(struct bed *bed) {
    return (int)counted_of(bed, "matmul jobs");
}

static void test_each_job_until_it_is_settled(void **state) {
    static char ids[3][BLASD_ID_LEN + 1];
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "settled");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    end_jobs(&bed, worker, 1, ids); /* nobody wants to know yet */
    struct blasd_usage_stream *usage = usage_new(&bed);
    expect_read(usage, 0, false);
    end_jobs(&bed, worker, 3, ids);
    expect_read(usage, 3, false);
    expect_read(usage, 3, false);
    settle(usage);
    expect_read(usage, 0, false);
    assert_int_equal(jobs_counted(&bed), 3);
    blasd_usage_free(usage);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* The words of one command are bounded, so what one step of a worker ends may be some entries. */
static void test_a_step_of_many_jobs(void **state) {
    static char ids[1500][BLASD_ID_LEN + 1];
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "many");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_usage_stream *usage = usage_new(&bed);
    end_jobs(&bed, worker, 1500, ids);
    redisReply *reply = redisCommand(bed.raw, "XLEN %s:usage", bed.tag);
    assert_int_equal(reply->integer, 2);
    drop(reply);
    expect_read(usage, 1500, false);
    settle(usage);
    blasd_usage_free(usage);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* One read takes a hundred entries, and says that there may be more. */
static void test_more_than_one_read(void **state) {
    static char ids[101][BLASD_ID_LEN + 1];
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "more");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_usage_stream *usage = usage_new(&bed);
    for (int i = 0; i < 101; i++) end_jobs(&bed, worker, 1, &ids[i]);
    expect_read(usage, 100, true);
    settle(usage);
    expect_read(usage, 1, false);
    settle(usage);
    expect_read(usage, 0, false);
    blasd_usage_free(usage);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* One at a time takes it; what was read by who lost the lock is not settled twice. */
static void test_one_takes_it(void **state) {
    static char ids[2][BLASD_ID_LEN + 1];
    struct blasd_usage_stream *other;
    struct blasd_err err;
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "one");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_usage_stream *usage = usage_new(&bed);
    assert_int_equal(blasd_usage_open(&bed.options, &other, &err), -(int)BLASD_E_invalid_field);
    end_jobs(&bed, worker, 2, ids);
    expect_read(usage, 2, false);
    drop(redisCommand(bed.raw, "DEL %s:meter", bed.tag)); /* as if it had expired */
    other = usage_new(&bed);
    assert_int_equal(blasd_usage_settle(usage, NULL, 0, &err), -(int)BLASD_E_queue_unavailable);
    expect_read(other, 2, false);
    settle(other);
    expect_read(other, 0, false);
    blasd_usage_free(other);
    blasd_usage_free(usage);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static void test_stopped(void **state) {
    static char ids[1][BLASD_ID_LEN + 1];
    struct blasd_err err;
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "stopped");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_usage_stream *usage = usage_new(&bed);
    end_jobs(&bed, worker, 1, ids);
    assert_int_equal(blasd_usage_stop(usage, &err), 0);
    end_jobs(&bed, worker, 1, ids);
    expect_read(usage, 1, false);
    blasd_usage_free(usage);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Places in a record's head. */
enum { FINISHED = 32, UPLOAD = 72, COMPUTE = 80, FLOPS = 112, BYTES = 120, ENERGY = 128 };

static void claim_much(struct blasd_buf *record) {
    static const int64_t most = INT64_MAX;
    static const double flops = 1e308, energy = 1e300;
    memcpy(record->data + FINISHED, &most, sizeof most);
    memcpy(record->data + UPLOAD, &most, sizeof most);
    memcpy(record->data + COMPUTE, &most, sizeof most);
    memcpy(record->data + BYTES, &most, sizeof most);
    memcpy(record->data + FLOPS, &flops, sizeof flops);
    memcpy(record->data + ENERGY, &energy, sizeof energy);
}

static void claim_nothing(struct blasd_buf *record) {
    static const int64_t least = INT64_MIN;
    static const double nan = (double)NAN;
    memcpy(record->data + FINISHED, &least, sizeof least);
    memcpy(record->data + UPLOAD, &least, sizeof least);
    memcpy(record->data + COMPUTE, &least, sizeof least);
    memcpy(record->data + FLOPS, &nan, sizeof nan);
}

/* What a worker that was taken over claims that a job used: other jobs' figures stay what they are,
 * and are added to. */
static void test_figures_beyond_belief(void **state) {
    static char ids[3][BLASD_ID_LEN + 1];
    static const char *const figures[] = {"matmul device_us", "matmul energy_mj", "matmul bytes"};
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "beyond");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_usage_stream *usage = usage_new(&bed);
    ended_us = blasd_clock_wall_us();
    for (int i = 0; i < 3; i++) {
        lie = i == 0 ? claim_much : i == 1 ? claim_nothing : NULL;
        end_jobs(&bed, worker, 3, ids);
    }
    expect_read(usage, 9, false);
    settle(usage);
    assert_int_equal(jobs_counted(&bed), 9);
    for (int i = 0; i < 3; i++) assert_true(counted_of(&bed, figures[i]) == 3 * BLASD_TOLD_MOST);
    assert_true(counted_of(&bed, "matmul flops") == 3 * 0x1p80 + 3);
    blasd_usage_free(usage);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Nor is there an hour, or an operation, for each of its records. */
static char other_op;
static void claim_another_op(struct blasd_buf *record) {
    claim_much(record);
    record->data[224] = ++other_op;
}

static int see_any(void *arg, const struct blasd_usage_job *job, struct blasd_err *err) {
    (void)job;
    (void)err;
    ++*(int *)arg;
    return 0;
}

static void test_sums_are_bounded(void **state) {
    static char ids[100][BLASD_ID_LEN + 1];
    struct blasd_err err;
    struct bed bed;
    int seen = 0;
    (void)state;
    bed_open(&bed, &server, "sums");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_usage_stream *usage = usage_new(&bed);
    ended_us = blasd_clock_wall_us();
    lie = claim_another_op;
    end_jobs(&bed, worker, 100, ids);
    lie = NULL;
    assert_int_equal(blasd_usage_read(usage, see_any, &seen, &err), 100);
    assert_int_equal(seen, 100);
    settle(usage);
    assert_int_equal(counted_of(&bed, "unknown jobs"), 100);
    blasd_usage_free(usage);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_job_until_it_is_settled),
        cmocka_unit_test(test_a_step_of_many_jobs),
        cmocka_unit_test(test_more_than_one_read),
        cmocka_unit_test(test_one_takes_it),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_figures_beyond_belief),
        cmocka_unit_test(test_sums_are_bounded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
