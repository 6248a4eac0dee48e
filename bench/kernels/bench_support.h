/* What the kernels' benchmarks share: a job in memory that runs through the CPU backend, a clock,
 * random numbers. Programs print one line a case; everything compared is measured in turns in one
 * run, and the median of the turns counts. */
#ifndef BLASD_BENCH_SUPPORT_H
#define BLASD_BENCH_SUPPORT_H

#include "base/clock.h"
#include "core/kernel.h"
#include "kernels/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_UNUSED __attribute__((unused))
#define BENCH_MOST_TURNS 101

struct bench_job {
    struct blasd_job job;
    struct blasd_plan plan;
    struct blasd_task task;
};

static BENCH_UNUSED void bench_die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static BENCH_UNUSED void *bench_alloc(size_t bytes) {
    void *memory = blasd_cpu_alloc(bytes, 1);
    if (memory == NULL) bench_die("out of memory");
    return memory;
}

static BENCH_UNUSED double bench_random(void) {
    static uint64_t seed = 88172645463325252u;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(int64_t)seed * 0x1p-63;
}

/* A new array of `n` random elements of float64 or float32. */
static BENCH_UNUSED void *bench_fill(int64_t n, bool single) {
    void *memory = bench_alloc((size_t)n * (single ? 4 : 8));
    for (int64_t i = 0; i < n; i++) {
        if (single)
            ((float *)memory)[i] = (float)bench_random();
        else
            ((double *)memory)[i] = bench_random();
    }
    return memory;
}

static BENCH_UNUSED void bench_init(struct bench_job *b, const char *op) {
    memset(b, 0, sizeof *b);
    blasd_job_init(&b->job, blasd_op_find(op));
}

static BENCH_UNUSED void bench_input(struct bench_job *b, int i, bool single, int rank,
                                     const int64_t *shape, void *data) {
    enum blasd_dtype dtype = single ? BLASD_float32 : BLASD_float64;
    b->job.inputs[i].tensor = blasd_tensor_make(dtype, rank, shape);
    b->job.inputs[i].source.kind = BLASD_SOURCE_PAYLOAD;
    b->task.inputs[i] = b->job.inputs[i].tensor;
    b->task.inputs[i].data = data;
}

static BENCH_UNUSED void bench_ready(struct bench_job *b) {
    struct blasd_err err = {0};
    if (blasd_job_plan(&b->job, &b->plan, &err) != 0) bench_die(err.detail);
    b->task.job = &b->job;
    b->task.plan = &b->plan;
    for (int o = 0; b->job.op->outputs[o].name != NULL; o++) {
        b->task.outputs[o] = b->plan.outputs[o];
        if (b->plan.outputs[o].rank < 0) continue;
        b->task.outputs[o].data = bench_alloc(blasd_tensor_bytes(&b->plan.outputs[o]));
        memset(b->task.outputs[o].data, 0, blasd_tensor_bytes(&b->plan.outputs[o]));
    }
}

static BENCH_UNUSED void bench_release(struct bench_job *b) {
    for (int o = 0; o < BLASD_MAX_OUTPUTS; o++)
        if (b->task.outputs[o].rank >= 0) free(b->task.outputs[o].data);
}

static BENCH_UNUSED bool bench_go_on(struct blasd_watch *watch, double progress) {
    (void)watch;
    (void)progress;
    return true;
}

static BENCH_UNUSED void bench_run(struct blasd_device *device, struct bench_job *b) {
    struct blasd_watch watch = {.go_on = bench_go_on};
    struct blasd_err err = {0};
    const struct blasd_kernel *kernel = blasd_backend_kernel(&blasd_backend_cpu, b->job.op);
    b->task.warning_count = 0;
    if (kernel->run(device, &b->task, 1, &watch, &err) != 0) bench_die(err.detail);
    if (b->task.err.code != BLASD_OK) bench_die(b->task.err.detail);
}

static BENCH_UNUSED int bench_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median of `n` times; sorts them. */
static BENCH_UNUSED double bench_median(double *times, int n) {
    qsort(times, (size_t)n, sizeof *times, bench_order);
    return times[n / 2];
}

#endif
