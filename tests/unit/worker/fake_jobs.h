/* Jobs for the worker under test: products of matrices, put into the queue in memory, run, and
 * looked at when they have ended. */
#ifndef BLASD_TESTS_FAKE_JOBS_H
#define BLASD_TESTS_FAKE_JOBS_H

#include "fake_backend.h"

/* What travels: n by n matrices a (all `value` in its first row, else 1) and b (the identity times
 * 2), in the dtype and order given. */
struct fake_spec {
    int n;
    enum blasd_dtype dtype;
    enum blasd_order order;
    double value;
    enum blasd_priority priority;
    int attempts;
    bool in_blob;
    uint16_t most_s;
};

static void fake_fill(const struct fake_spec *spec, unsigned char *bytes, bool second) {
    for (int i = 0; i < spec->n; i++)
        for (int j = 0; j < spec->n; j++) {
            int at = spec->order == BLASD_ROW_MAJOR ? i * spec->n + j : j * spec->n + i;
            double value = second ? (i == j ? 2 : 0) : i == 0 ? spec->value : 1;
            if (spec->dtype == BLASD_float64) ((double *)(void *)bytes)[at] = value;
            if (spec->dtype == BLASD_float32) ((float *)(void *)bytes)[at] = (float)value;
            if (spec->dtype == BLASD_int32) ((int32_t *)(void *)bytes)[at] = (int32_t)value;
        }
}

static struct fake_job *fake_add(struct fake_spec spec) {
    struct fake_job *added = &fake.jobs[fake.count++];
    const struct blasd_op *op = blasd_op_find("matmul");
    uint64_t one = (uint64_t)spec.n * (uint64_t)spec.n * blasd_dtype_size(spec.dtype);
    uint64_t step = (one + 63) / 64 * 64;
    unsigned char *payload = aligned_alloc(64, 2 * step);
    struct blasd_blob blob = {.fd = -1};
    struct blasd_err err = {0};
    struct blasd_job job;
    char name[BLASD_BLOB_NAME];
    assert_non_null(payload);
    memset(payload, 0, 2 * step);
    blasd_job_init(&job, op);
    blasd_id_new(BLASD_ID_SYNC, blasd_clock_wall_us(), added->id);
    memcpy(job.id, added->id, sizeof job.id);
    job.priority = spec.priority;
    job.most_s = spec.most_s;
    job.receive_us = 7;
    job.created_us = 5000000;
    job.payload_bytes = 2 * step;
    job.payload_in_blob = spec.in_blob;
    for (int i = 0; i < 2; i++) {
        int64_t shape[2] = {spec.n, spec.n};
        job.inputs[i].tensor = blasd_tensor_make(spec.dtype, 2, shape);
        job.inputs[i].tensor.order = spec.order;
        job.inputs[i].source = (struct blasd_source){
            .kind = BLASD_SOURCE_PAYLOAD, .offset = (uint64_t)i * step, .bytes = one};
        fake_fill(&spec, payload + (uint64_t)i * step, i == 1);
    }
    blasd_buf_init(&added->frame, 1 << 24);
    assert_int_equal(blasd_job_encode(&job, &added->frame, &err), 0);
    if (spec.in_blob) {
        snprintf(name, sizeof name, "%s.in", added->id);
        assert_int_equal(blasd_blob_create(fake.store, name, &blob, &err), 0);
        assert_int_equal(blasd_blob_grow(&blob, 2 * step, &err), 0);
        assert_int_equal(blasd_blob_write(&blob, 0, payload, 2 * step, &err), 0);
        blasd_blob_close(&blob);
    } else {
        assert_int_equal(blasd_buf_add(&added->frame, payload, 2 * step), 0);
    }
    added->attempts = added->begun = spec.attempts;
    added->stored = spec.in_blob;
    free(payload);
    return added;
}

/* Whether the record says success and its output is the product. */
static void fake_check(struct fake_job *job, struct fake_spec spec) {
    const struct blasd_output *output = &job->result.outputs[0];
    struct blasd_blob blob = {.fd = -1};
    struct blasd_err err = {0};
    const unsigned char *base = job->payload;
    char name[BLASD_BLOB_NAME];
    assert_true(job->ended);
    assert_int_equal(job->result.state, BLASD_SUCCEEDED);
    assert_int_equal(output->tensor.rank, 2);
    if (job->result.payload_in_blob) {
        snprintf(name, sizeof name, "%s.out", job->id);
        assert_int_equal(blasd_blob_open(fake.store, name, job->blob_bytes, &blob, &err), 0);
        assert_int_equal(blasd_blob_map(&blob, &err), 0);
        base = blob.data;
    }
    for (int i = 0; i < spec.n; i++)
        for (int j = 0; j < spec.n; j++) {
            const unsigned char *at =
                base + output->offset +
                (uint64_t)(i * spec.n + j) * blasd_dtype_size(output->tensor.dtype);
            double want = i == 0 ? 2 * spec.value : 2, got;
            float single;
            if (output->tensor.dtype == BLASD_float64) {
                memcpy(&got, at, sizeof got);
            } else {
                memcpy(&single, at, sizeof single);
                got = (double)single;
            }
            if (!(got == want)) fail_msg("element %d, %d is %g, not %g", i, j, got, want);
        }
    if (job->result.payload_in_blob) {
        blasd_blob_close(&blob);
        blasd_store_remove(fake.store, name);
    }
}

static bool fake_stopping(void *arg) {
    bool all = true;
    (void)arg;
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < fake.count; i++)
        if (!fake.jobs[i].ended) all = false;
    if (blasd_clock_ns() - fake.started_ns > INT64_C(300000000000)) all = true;
    pthread_mutex_unlock(&fake.lock);
    return all;
}

static void fake_ready(void *arg) {
    (void)arg;
}

/* Runs the worker until every job has ended (or five minutes have passed). */
static __attribute__((unused)) int fake_work(struct blasd_limits *limits, struct blasd_err *err) {
    struct blasd_worker_options options = {.queue = {.limits = limits, .store = fake.store},
                                           .backend = &FAKE_BACKEND,
                                           .name = "tester",
                                           .kept_in = fake.kept_in,
                                           .version = "1",
                                           .stopping = fake_stopping,
                                           .ready = fake_ready};
    fake.started_ns = blasd_clock_ns();
    return blasd_worker_run(&options, err);
}

#endif
