/* solve on the GPU beside the direct cuBLAS and cuSOLVER calls on operands in device memory: stacks
 * of small systems, and one large system with factors in float64 and in float32. The direct calls
 * factor a copy that they make first, as ours do; they neither refine nor estimate a condition.
 * gpu_bench_solve [SCALE [TEST]] */
#include "gpu_bench.h"

#include "direct_calls.h"

static double scale = 1; /* of sizes and counts; less than 1 tries the program out */

static int64_t scaled(int64_t n) {
    int64_t m = (int64_t)((double)n * scale);
    return m < 2 ? 2 : m;
}

static void fill(void *to, enum blasd_dtype dtype, int64_t elements, int64_t diagonal) {
    for (int64_t i = 0; i < elements; i++) {
        double v = trial_uniform();
        if (diagonal > 0 && i % (diagonal * diagonal) % (diagonal + 1) == 0)
            v += sqrt((double)diagonal);
        if (dtype == BLASD_float64)
            ((double *)to)[i] = v;
        else
            ((float *)to)[i] = (float)v;
    }
}

/* A stack of systems with one right-hand side each; count 1: one system. */
static struct trial *systems(enum blasd_dtype dtype, int64_t count, int64_t n,
                             const char *refinement) {
    struct trial *t = trial_new("solve");
    int64_t shape_a[3] = {count, n, n}, shape_b[3] = {count, n, 1};
    int skip = count == 1;
    void *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 3 - skip, shape_a + skip);
    void *b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 3 - skip, shape_b + skip);
    fill(a, dtype, count * n * n, n);
    fill(b, dtype, count * n, 0);
    trial_set_choice(t, "refinement", refinement);
    return t;
}

/* What the direct calls work on. */
struct direct {
    enum blasd_dtype dtype;
    int64_t n, count;
    void *given_a, *given_b, *a, *b, *work, *host_work;
    void **table_a, **table_b; /* in device memory */
    int *pivots, *info;
    int64_t *wide_pivots;
    size_t bytes_a, bytes_b, work_bytes, host_bytes;
};

static void *device_memory(size_t bytes) {
    void *memory = NULL;
    struct blasd_err err = {0};
    if (blasd_gpu_calls.device_alloc(trial_device()->gpu, bytes + 1, &memory, &err) != 0)
        fail_msg("%s", err.detail);
    return memory;
}

/* Brings host memory to the device. */
static void send(void *device, const void *from, size_t bytes) {
    const struct blasd_gpu_library *calls = &blasd_gpu_calls;
    const size_t chunk = (size_t)1 << 24;
    struct blasd_device *gpu = trial_device();
    struct blasd_gpu_stream *stream;
    struct blasd_err err = {0};
    void *host = NULL;
    assert_int_equal(calls->stream_open(gpu->gpu, &stream, &err), 0);
    assert_int_equal(calls->host_alloc(gpu->gpu, chunk, &host, &err), 0);
    for (size_t at = 0; at < bytes; at += chunk) {
        size_t part = bytes - at < chunk ? bytes - at : chunk;
        memcpy(host, (const char *)from + at, part);
        assert_int_equal(calls->copy_up(stream, (char *)device + at, host, part, &err), 0);
        assert_int_equal(calls->stream_wait(stream, &err), 0);
    }
    calls->host_free(gpu->gpu, host);
    calls->stream_close(stream);
}

static void **table_of(const void *base, int64_t count, size_t step) {
    void **host = calloc((size_t)count, sizeof *host), **device;
    assert_non_null(host);
    for (int64_t i = 0; i < count; i++) host[i] = (char *)(uintptr_t)base + (size_t)i * step;
    device = device_memory((size_t)count * sizeof *host);
    send(device, host, (size_t)count * sizeof *host);
    free(host);
    return device;
}

static struct direct direct_make(const struct trial *t, enum blasd_dtype dtype, int64_t count,
                                 int64_t n) {
    size_t size = blasd_dtype_size(dtype);
    struct direct d = {.dtype = dtype, .n = n, .count = count};
    d.bytes_a = (size_t)(count * n * n) * size;
    d.bytes_b = (size_t)(count * n) * size;
    d.given_a = device_memory(d.bytes_a);
    d.given_b = device_memory(d.bytes_b);
    d.a = device_memory(d.bytes_a);
    d.b = device_memory(d.bytes_b);
    d.pivots = device_memory((size_t)(count * n) * sizeof(int));
    d.wide_pivots = device_memory((size_t)n * sizeof(int64_t));
    d.info = device_memory((size_t)count * sizeof(int));
    d.table_a = table_of(d.a, count, (size_t)(n * n) * size);
    d.table_b = table_of(d.b, count, (size_t)n * size);
    send(d.given_a, t->given[0], d.bytes_a);
    send(d.given_b, t->given[1], d.bytes_b);
    return d;
}
static void direct_free(struct direct *d) {
    bench_memory_free(d->given_a);
    bench_memory_free(d->given_b);
    bench_memory_free(d->a);
    bench_memory_free(d->b);
    bench_memory_free(d->pivots);
    bench_memory_free(d->wide_pivots);
    bench_memory_free(d->info);
    bench_memory_free(d->table_a);
    bench_memory_free(d->table_b);
    if (d->work != NULL) bench_memory_free(d->work);
    free(d->host_work);
}

static int copies(struct direct *d, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    int code = blasd_gpu_calls.copy_within(stream, d->a, d->given_a, d->bytes_a, err);
    return code != 0 ? code
                     : blasd_gpu_calls.copy_within(stream, d->b, d->given_b, d->bytes_b, err);
}
static int batched_calls(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    struct direct *d = arg;
    int n = (int)d->n, count = (int)d->count, code = copies(d, stream, err);
    if (code == 0)
        code = blasd_gpu_calls.getrf_pointers(stream, d->dtype, n, d->table_a, n, d->pivots,
                                              d->info, count, err);
    if (code == 0)
        code = direct_getrs_batched(stream, d->dtype, n, (const void *const *)d->table_a, d->pivots,
                                    d->table_b, count, err);
    return code;
}
static int single_calls(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    struct direct *d = arg;
    int code = copies(d, stream, err);
    if (code == 0)
        code =
            blasd_gpu_calls.getrf(stream, d->dtype, d->n, d->n, d->a, d->n, d->wide_pivots, d->work,
                                  d->work_bytes, d->host_work, d->host_bytes, d->info, err);
    if (code == 0)
        code = blasd_gpu_calls.getrs(stream, d->dtype, true, d->n, 1, d->a, d->n, d->wide_pivots,
                                     d->b, d->n, d->info, err);
    return code;
}
static double flops_of(int64_t count, int64_t n) {
    double m = (double)n;
    return (double)count * (2.0 / 3 * m * m * m + 2 * m * m);
}

static void stack_of(enum blasd_dtype dtype, int64_t count, int64_t n) {
    const char *type = dtype == BLASD_float64 ? "float64" : "float32";
    const char *call = dtype == BLASD_float64 ? "cublasDgetrfBatched, getrsBatched"
                                              : "cublasSgetrfBatched, getrsBatched";
    struct trial *t;
    struct direct d;
    struct bench_run run;
    char what[64];
    snprintf(what, sizeof what, "%lld of %lldx%lld %s", (long long)count, (long long)n,
             (long long)n, type);
    if (!bench_wanted(what)) return;
    t = systems(dtype, count, n, "auto");
    d = direct_make(t, dtype, count, n);
    run = bench_batch(&t, 1);
    bench_row("solve", what, &run, flops_of(count, n), call, bench_direct(batched_calls, &d));
    trial_free(t);
    t = systems(dtype, count, n, "none");
    run = bench_batch(&t, 1);
    snprintf(what, sizeof what, "%lld of %lldx%lld %s, not refined", (long long)count, (long long)n,
             (long long)n, type);
    bench_row("solve", what, &run, flops_of(count, n), call, bench_direct(batched_calls, &d));
    trial_free(t);
    direct_free(&d);
}

static void stacks(void **state) {
    static const int64_t cases[][2] = {{10000, 4}, {10000, 8},  {1000, 32},
                                       {1000, 64}, {1000, 128}, {1024, 256}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stack_of(BLASD_float64, scaled(cases[i][0]), cases[i][1]);
        stack_of(BLASD_float32, scaled(cases[i][0]), cases[i][1]);
    }
}

/* Ten thousand jobs of one system each, as they come from a queue. */
static void many_jobs(void **state) {
    int count = (int)scaled(10000);
    struct trial **list;
    struct bench_run run;
    char what[64];
    (void)state;
    snprintf(what, sizeof what, "%d jobs of one 8x8 float64", count);
    if (!bench_wanted(what)) return;
    list = calloc((size_t)count, sizeof *list);
    assert_non_null(list);
    for (int i = 0; i < count; i++) list[i] = systems(BLASD_float64, 1, 8, "auto");
    run = bench_batch(list, count);
    bench_row("solve", what, &run, flops_of(count, 8), "", 0);
    for (int i = 0; i < count; i++) trial_free(list[i]);
    free(list);
}

static void take_work(struct direct *d) {
    const struct blasd_gpu_library *calls = &blasd_gpu_calls;
    struct blasd_gpu_stream *stream;
    struct blasd_err err = {0};
    assert_int_equal(calls->stream_open(trial_device()->gpu, &stream, &err), 0);
    assert_int_equal(
        calls->getrf_size(stream, d->dtype, d->n, d->n, d->n, &d->work_bytes, &d->host_bytes, &err),
        0);
    calls->stream_close(stream);
    d->work = device_memory(d->work_bytes);
    d->host_work = malloc(d->host_bytes + 1);
    assert_non_null(d->host_work);
}

static void one_of(int64_t n) {
    struct trial *t = systems(BLASD_float64, 1, n, "auto");
    struct direct d = direct_make(t, BLASD_float64, 1, n);
    struct bench_run run;
    double direct_us;
    char what[64];
    take_work(&d);
    direct_us = bench_direct(single_calls, &d);
    run = bench_batch(&t, 1);
    snprintf(what, sizeof what, "one of %lld float64", (long long)n);
    bench_row("solve", what, &run, flops_of(1, n), "cusolverDnXgetrf, Xgetrs", direct_us);
    direct_free(&d);
    trial_free(t);
}
static void one_large(void **state) {
    (void)state;
    for (int64_t n = 4096; n <= 16384; n *= 2) {
        char what[64];
        snprintf(what, sizeof what, "one of %lld float64", (long long)scaled(n));
        if (bench_wanted(what)) one_of(scaled(n));
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks),
        cmocka_unit_test(many_jobs),
        cmocka_unit_test(one_large),
    };
    if (argc > 1) scale = strtod(argv[1], NULL);
    if (argc > 2) bench_only = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
