/* What the benchmarks on a GPU share: medians, direct library calls on operands in device memory,
 * and rows. A row is one line of JSON on standard output; run.sh collects them. */
#ifndef BLASD_TESTS_GPU_BENCH_H
#define BLASD_TESTS_GPU_BENCH_H

#include "gpu_backend.h"
#define TRIAL_BACKEND blasd_backend
#include "kernel_support.h"

#include "base/clock.h"
#include "kernels/cuda/device.h"

#define BENCH_MOST_ROUNDS 200
#define BENCH_SECONDS 0.3 /* of each case, of which most take less than a millisecond */

static int bench_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rounds until about `seconds` are spent, after one that is not counted; at least 5. */
struct bench_samples {
    double values[BENCH_MOST_ROUNDS];
    int count, rounds;
    int64_t start;
};
static TRIAL_UNUSED bool bench_more(struct bench_samples *s, double seconds) {
    if (s->rounds++ == 0) s->start = blasd_clock_ns();
    if (s->count < 5) return true;
    return s->count < BENCH_MOST_ROUNDS && blasd_clock_ns() - s->start < (int64_t)(seconds * 1e9);
}
static TRIAL_UNUSED void bench_add(struct bench_samples *s, double value) {
    if (s->rounds > 1) s->values[s->count++] = value; /* the first warms up */
}
static TRIAL_UNUSED double bench_median(struct bench_samples *s) {
    qsort(s->values, (size_t)s->count, sizeof *s->values, bench_compare);
    return s->values[s->count / 2];
}

/* How one batch of jobs goes through the backend, by the median of many. */
struct bench_run {
    double compute_us; /* on the device, between the inputs' arrival and the outputs' being there */
    double wall_us;    /* all of it, copies included */
    double upload_us, download_us;
    char method[BLASD_METHOD_MAX];
};

/* `at`: NULL, or where the first job's inputs and its first output are to lie, `step` bytes each.
 */
static TRIAL_UNUSED struct bench_run bench_batch_at(struct trial *const *trials, int count,
                                                    char *at, size_t step) {
    static struct bench_samples compute, wall, up, down;
    struct blasd_task *tasks = calloc((size_t)count, sizeof *tasks);
    const struct blasd_kernel *kernel = blasd_backend_kernel(&TRIAL_BACKEND, trials[0]->job.op);
    struct blasd_device *device = trial_device();
    struct bench_run run = {0};
    struct blasd_err err = {0};
    memset(&compute, 0, sizeof compute);
    wall = up = down = compute;
    assert_non_null(tasks);
    assert_non_null(kernel);
    for (int i = 0; i < count; i++) {
        assert_int_equal(trial_plan(trials[i]), BLASD_OK);
        trial_bind(trials[i]);
        tasks[i] = trials[i]->task;
    }
    for (int i = 0; at != NULL && i < BLASD_MAX_INPUTS && tasks[0].inputs[i].data != NULL; i++) {
        tasks[0].inputs[i].data =
            memcpy(at, tasks[0].inputs[i].data, blasd_tensor_bytes(&tasks[0].inputs[i]));
        at += step;
    }
    if (at != NULL) tasks[0].outputs[0].data = at;
    while (bench_more(&compute, BENCH_SECONDS)) {
        int64_t start = blasd_clock_ns();
        device->compute_us = 0;
        if (kernel->run(device, tasks, count, NULL, &err) != 0) fail_msg("%s", err.detail);
        bench_add(&compute, device->compute_us);
        wall.rounds = up.rounds = down.rounds = compute.rounds;
        bench_add(&wall, (double)(blasd_clock_ns() - start) / 1e3);
        bench_add(&up, (double)tasks[0].upload_us);
        bench_add(&down, (double)tasks[0].download_us);
        assert_int_equal(tasks[0].err.code, BLASD_OK);
    }
    run.compute_us = bench_median(&compute);
    run.wall_us = bench_median(&wall);
    run.upload_us = bench_median(&up);
    run.download_us = bench_median(&down);
    snprintf(run.method, sizeof run.method, "%s", tasks[0].method);
    free(tasks);
    return run;
}

static TRIAL_UNUSED struct bench_run bench_batch(struct trial *const *trials, int count) {
    return bench_batch_at(trials, count, NULL, 0);
}

/* The microseconds of what `enqueue` puts on a stream, by the device's clock. */
static TRIAL_UNUSED double bench_direct(int (*enqueue)(void *arg, struct blasd_gpu_stream *stream,
                                                       struct blasd_err *err),
                                        void *arg) {
    static struct bench_samples samples;
    const struct blasd_gpu_library *calls = &blasd_gpu_calls;
    struct blasd_device *device = trial_device();
    struct blasd_gpu_stream *stream;
    struct blasd_gpu_event *from, *to;
    struct blasd_err err = {0};
    memset(&samples, 0, sizeof samples);
    assert_int_equal(calls->stream_open(device->gpu, &stream, &err), 0);
    assert_int_equal(calls->event_open(device->gpu, &from, &err), 0);
    assert_int_equal(calls->event_open(device->gpu, &to, &err), 0);
    while (bench_more(&samples, BENCH_SECONDS)) {
        double us = 0;
        int code = calls->event_record(from, stream, &err);
        if (code == 0) code = enqueue(arg, stream, &err);
        if (code == 0) code = calls->event_record(to, stream, &err);
        if (code == 0) code = calls->event_wait(to, &err);
        if (code == 0) code = calls->event_us(from, to, &us, &err);
        if (code != 0) fail_msg("the direct call failed: %s", err.detail);
        bench_add(&samples, us);
    }
    calls->event_close(from);
    calls->event_close(to);
    calls->stream_close(stream);
    return bench_median(&samples);
}

/* Device memory with `bytes` of random numbers in (-1, 1) of a dtype. */
static TRIAL_UNUSED void *bench_memory(enum blasd_dtype dtype, int64_t elements) {
    const struct blasd_gpu_library *calls = &blasd_gpu_calls;
    struct blasd_device *device = trial_device();
    size_t bytes = (size_t)elements * blasd_dtype_size(dtype), chunk = (size_t)1 << 24;
    struct blasd_gpu_stream *stream;
    struct blasd_err err = {0};
    void *memory = NULL, *host = NULL;
    assert_int_equal(calls->stream_open(device->gpu, &stream, &err), 0);
    assert_int_equal(calls->host_alloc(device->gpu, chunk, &host, &err), 0);
    if (calls->device_alloc(device->gpu, bytes, &memory, &err) != 0) fail_msg("%s", err.detail);
    for (size_t i = 0; i < chunk / 8; i++) {
        double v = trial_uniform();
        if (dtype == BLASD_float64)
            ((double *)host)[i] = v;
        else
            ((float *)host)[2 * i] = ((float *)host)[2 * i + 1] = (float)v;
    }
    for (size_t at = 0; at < bytes; at += chunk) {
        size_t part = bytes - at < chunk ? bytes - at : chunk;
        assert_int_equal(calls->copy_up(stream, (char *)memory + at, host, part, &err), 0);
    }
    assert_int_equal(calls->stream_wait(stream, &err), 0);
    calls->host_free(device->gpu, host);
    calls->stream_close(stream);
    return memory;
}
static TRIAL_UNUSED void bench_memory_free(void *memory) {
    blasd_gpu_calls.device_free(trial_device()->gpu, memory);
}

/* What the name of a case must have in it; NULL: all cases. A program's second argument. */
static TRIAL_UNUSED const char *bench_only;
static TRIAL_UNUSED bool bench_wanted(const char *what) {
    return bench_only == NULL || strstr(what, bench_only) != NULL;
}

/* One row; direct_us 0: there is no direct call to compare with. */
static TRIAL_UNUSED void bench_row(const char *op, const char *what, const struct bench_run *run,
                                   double flops, const char *direct, double direct_us) {
    printf("{\"op\":\"%s\",\"case\":\"%s\",\"method\":\"%s\",\"compute_us\":%.2f,\"wall_us\":%.1f,"
           "\"upload_us\":%.1f,\"download_us\":%.1f,\"tflops\":%.3f",
           op, what, run->method, run->compute_us, run->wall_us, run->upload_us, run->download_us,
           run->compute_us > 0 ? flops / run->compute_us / 1e6 : 0);
    if (direct_us > 0)
        printf(",\"direct\":\"%s\",\"direct_us\":%.2f,\"direct_over_ours\":%.3f", direct, direct_us,
               run->compute_us > 0 ? direct_us / run->compute_us : 0);
    printf("}\n");
    fflush(stdout);
}

#endif
