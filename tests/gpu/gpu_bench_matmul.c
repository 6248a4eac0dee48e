/* matmul on the GPU beside the direct cuBLAS call on operands in device memory: large, many equal
 * small, many different small, one shape with many jobs in flight, and a stream of 4 MiB jobs. */
#include "gpu_bench.h"

#include "base/err.h"
#include "direct_calls.h"

#include <sys/mman.h>

static double scale = 1; /* of sizes and counts; less than 1 tries the program out */

static int64_t scaled(int64_t n) {
    int64_t m = (int64_t)((double)n * scale);
    return m < 4 ? 4 : m;
}

static struct trial *product(enum blasd_dtype dtype, const char *precision, int64_t m, int64_t k,
                             int64_t n) {
    struct trial *t = trial_new("matmul");
    void *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){m, k});
    void *b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){k, n});
    for (int64_t i = 0; i < m * k; i++) {
        if (dtype == BLASD_float64)
            ((double *)a)[i] = trial_uniform();
        else
            ((float *)a)[i] = (float)trial_uniform();
    }
    for (int64_t i = 0; i < k * n; i++) {
        if (dtype == BLASD_float64)
            ((double *)b)[i] = trial_uniform();
        else
            ((float *)b)[i] = (float)trial_uniform();
    }
    trial_set_choice(t, "precision", precision);
    return t;
}

static struct blasd_gpu_gemm direct_gemm(enum blasd_dtype dtype, enum blasd_gpu_rounding rounding,
                                         int64_t m, int64_t k, int64_t n, int64_t count) {
    struct blasd_gpu_gemm g = {.dtype = dtype, .out = dtype, .rounding = rounding};
    g.m = m;
    g.n = n;
    g.k = k;
    g.alpha = 1;
    g.lda = k;
    g.ldb = g.ldc = n;
    g.stride_a = m * k;
    g.stride_b = k * n;
    g.stride_c = m * n;
    g.count = count;
    g.a = bench_memory(dtype, m * k * count);
    g.b = bench_memory(dtype, k * n * count);
    g.c = bench_memory(dtype, m * n * count);
    return g;
}

static void direct_free(struct blasd_gpu_gemm *g) {
    bench_memory_free((void *)(uintptr_t)g->a);
    bench_memory_free((void *)(uintptr_t)g->b);
    bench_memory_free(g->c);
}

static int one_call(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    return blasd_gpu_calls.gemm(stream, arg, err);
}

static int loop_of_calls(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    struct blasd_gpu_gemm g = *(struct blasd_gpu_gemm *)arg;
    int64_t count = g.count, size = (int64_t)blasd_dtype_size(g.dtype);
    int code = 0;
    g.count = 1;
    for (int64_t i = 0; code == 0 && i < count; i++) {
        code = blasd_gpu_calls.gemm(stream, &g, err);
        g.a = (const char *)g.a + g.stride_a * size;
        g.b = (const char *)g.b + g.stride_b * size;
        g.c = (char *)g.c + g.stride_c * size;
    }
    return code;
}

static const struct {
    const char *name, *precision;
    enum blasd_dtype dtype;
    enum blasd_gpu_rounding rounding;
} kinds[] = {{"float64", "native", BLASD_float64, BLASD_GPU_NATIVE},
             {"float64 emulated", "fp64_emulated", BLASD_float64, BLASD_GPU_NATIVE},
             {"float32", "native", BLASD_float32, BLASD_GPU_NATIVE},
             {"float32 as tf32", "tf32", BLASD_float32, BLASD_GPU_TF32},
             {"float32 as bf16", "bf16", BLASD_float32, BLASD_GPU_BF16}};

static void large(void **state) {
    const int64_t sizes[] = {1024, 2048, 4096, 8192, 16384};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int s = 0; s < 5; s++) {
            int64_t n = scaled(sizes[s]);
            double flops = 2.0 * (double)n * (double)n * (double)n;
            struct trial *t;
            struct bench_run run;
            struct blasd_gpu_gemm g;
            char what[80];
            snprintf(what, sizeof what, "n=%lld %s", (long long)n, kinds[k].name);
            if (s == 4 && kinds[k].dtype != BLASD_float64) continue; /* for the emulation alone */
            if (!bench_wanted(what)) continue;
            t = product(kinds[k].dtype, kinds[k].precision, n, n, n);
            run = bench_batch(&t, 1);
            /* the library decides whether it pays, and the method says what it did */
            if (strcmp(kinds[k].precision, "fp64_emulated") == 0 &&
                strstr(run.method, "fixed point") == NULL)
                snprintf(what, sizeof what, "n=%lld float64, native where emulated was allowed",
                         (long long)n);
            g = direct_gemm(kinds[k].dtype, kinds[k].rounding, n, n, n, 1);
            bench_row("matmul", what, &run, flops, "cublasGemmEx", bench_direct(one_call, &g));
            direct_free(&g);
            trial_free(t);
        }
}

/* ---- from operands in shared memory ---- */

struct copies {
    char *host, *device;
    size_t up, down;
};

/* What the bus takes for the operands, and then for the result. */
static int copies_alone(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    const struct copies *c = arg;
    int code = blasd_gpu_calls.copy_up(stream, c->device, c->host, c->up, err);
    if (code == 0) code = blasd_gpu_calls.copy_down(stream, c->host, c->device, c->down, err);
    return code;
}

/* All of a job, from mappings that the device knows, as the worker's are: beside its copies alone,
 * from memory that is pinned. */
static void from_shared_memory(void **state) {
    const int64_t sizes[] = {1024, 4096, 8192};
    struct blasd_device *device = trial_device();
    (void)state;
    for (int s = 0; s < 6; s++) {
        enum blasd_dtype dtype = s < 3 ? BLASD_float32 : BLASD_float64;
        int64_t n = scaled(sizes[s % 3]);
        size_t bytes = (size_t)(n * n) * blasd_dtype_size(dtype), page = (size_t)1 << 21;
        size_t room = (bytes + page - 1) / page * page;
        struct trial *t;
        struct copies c = {.up = 2 * bytes, .down = bytes};
        struct blasd_err err = {0};
        struct bench_run run;
        char *map, what[80];
        void *memory = NULL;
        snprintf(what, sizeof what, "n=%lld %s, wall, from shared memory", (long long)n,
                 dtype == BLASD_float32 ? "float32" : "float64");
        if (!bench_wanted(what)) continue;
        t = product(dtype, "native", n, n, n);
        map = mmap(NULL, 3 * room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(map != MAP_FAILED);
        blasd_backend.memory_comes(device, map, 3 * room, true);
        run = bench_batch_at(&t, 1, map, room);
        blasd_backend.memory_goes(device, map);
        run.compute_us = run.wall_us; /* which is what is compared here */
        assert_int_equal(blasd_gpu_calls.host_alloc(device->gpu, 2 * bytes, &memory, &err), 0);
        c.host = memory;
        c.device = bench_memory(dtype, 2 * n * n);
        bench_row("matmul", what, &run, 2.0 * (double)n * (double)n * (double)n, "its copies alone",
                  bench_direct(copies_alone, &c));
        bench_memory_free(c.device);
        blasd_gpu_calls.host_free(device->gpu, memory);
        munmap(map, 3 * room);
        trial_free(t);
    }
}

static void many_equal(const char *what, enum blasd_dtype dtype, int64_t m, int64_t k, int64_t n,
                       int count) {
    double flops = 2.0 * (double)m * (double)n * (double)k * count;
    struct trial **list;
    struct bench_run run;
    struct blasd_gpu_gemm g;
    if (!bench_wanted(what)) return;
    list = calloc((size_t)count, sizeof *list);
    assert_non_null(list);
    g = direct_gemm(dtype, BLASD_GPU_NATIVE, m, k, n, count);
    for (int i = 0; i < count; i++) list[i] = product(dtype, "native", m, k, n);
    run = bench_batch(list, count);
    bench_row("matmul", what, &run, flops, "cublasGemmStridedBatchedEx",
              bench_direct(one_call, &g));
    bench_row("matmul", what, &run, flops, "loop of cublasGemmEx", bench_direct(loop_of_calls, &g));
    direct_free(&g);
    for (int i = 0; i < count; i++) trial_free(list[i]);
    free(list);
}

static void many_equal_small(void **state) {
    (void)state;
    many_equal("1000 of 64x64 float32", BLASD_float32, 64, 64, 64, (int)scaled(1000));
    many_equal("1000 of 64x64 float64", BLASD_float64, 64, 64, 64, (int)scaled(1000));
    many_equal("10000 of 8x8 float32", BLASD_float32, 8, 8, 8, (int)scaled(10000));
    many_equal("10000 of 16x16 float64", BLASD_float64, 16, 16, 16, (int)scaled(10000));
    many_equal("64 of 1024x2048 by 2048x512 float32", BLASD_float32, scaled(1024), scaled(2048),
               scaled(512), (int)scaled(64));
    many_equal("128 of 512x1024 by 1024x512 float32 (4 MiB each)", BLASD_float32, scaled(512),
               scaled(1024), scaled(512), (int)scaled(128));
}

struct mixed {
    struct direct_group groups[500];
    int count;
    enum blasd_dtype dtype;
    char *a, *b, *c;
    const void *const *table_a, *const *table_b;
    void *const *table_c;
};

static int grouped_call(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    struct mixed *m = arg;
    return direct_gemm_grouped(stream, m->dtype, m->groups, m->count, m->table_a, m->table_b,
                               m->table_c, err);
}

static int mixed_loop(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    struct mixed *m = arg;
    int64_t size = (int64_t)blasd_dtype_size(m->dtype);
    int code = 0;
    for (int i = 0; code == 0 && i < m->count; i++) {
        const struct direct_group *group = &m->groups[i];
        struct blasd_gpu_gemm g = {.dtype = m->dtype, .out = m->dtype, .alpha = 1, .count = 1};
        g.m = group->m;
        g.n = group->n;
        g.k = group->k;
        g.lda = group->k;
        g.ldb = g.ldc = group->n;
        g.a = m->a + (int64_t)i * 128 * 128 * size;
        g.b = m->b + (int64_t)i * 128 * 128 * size;
        g.c = m->c + (int64_t)i * 128 * 128 * size;
        code = blasd_gpu_calls.gemm(stream, &g, err);
    }
    return code;
}

/* A table of addresses in device memory. */
static void *address_table(char *base, int count, int64_t step) {
    const struct blasd_gpu_library *calls = &blasd_gpu_calls;
    struct blasd_device *device = trial_device();
    struct blasd_gpu_stream *stream;
    struct blasd_err err = {0};
    void *memory = NULL, *host = NULL;
    size_t bytes = (size_t)count * sizeof(void *);
    assert_int_equal(calls->stream_open(device->gpu, &stream, &err), 0);
    assert_int_equal(calls->host_alloc(device->gpu, bytes, &host, &err), 0);
    assert_int_equal(calls->device_alloc(device->gpu, bytes, &memory, &err), 0);
    for (int i = 0; i < count; i++) ((void **)host)[i] = base + i * step;
    assert_int_equal(calls->copy_up(stream, memory, host, bytes, &err), 0);
    assert_int_equal(calls->stream_wait(stream, &err), 0);
    calls->host_free(device->gpu, host);
    calls->stream_close(stream);
    return memory;
}

static void many_different(enum blasd_dtype dtype, const char *what) {
    static struct mixed m;
    static struct trial *list[500];
    int64_t step = 128 * 128 * (int64_t)blasd_dtype_size(dtype);
    struct bench_run run;
    double flops = 0;
    if (!bench_wanted(what)) return;
    m.count = (int)scaled(500);
    m.dtype = dtype;
    for (int i = 0; i < m.count; i++) {
        int64_t rows = trial_between(17, 128), depth = trial_between(17, 128);
        int64_t columns = trial_between(17, 128);
        list[i] = product(dtype, "native", rows, depth, columns);
        m.groups[i] = (struct direct_group){rows, columns, depth};
        flops += 2.0 * (double)rows * (double)depth * (double)columns;
    }
    m.a = bench_memory(dtype, m.count * 128 * 128);
    m.b = bench_memory(dtype, m.count * 128 * 128);
    m.c = bench_memory(dtype, m.count * 128 * 128);
    m.table_a = address_table(m.a, m.count, step);
    m.table_b = address_table(m.b, m.count, step);
    m.table_c = address_table(m.c, m.count, step);
    run = bench_batch(list, m.count);
    bench_row("matmul", what, &run, flops, "cublasGemmGroupedBatchedEx",
              bench_direct(grouped_call, &m));
    bench_row("matmul", what, &run, flops, "loop of cublasGemmEx", bench_direct(mixed_loop, &m));
    bench_memory_free(m.a);
    bench_memory_free(m.b);
    bench_memory_free(m.c);
    bench_memory_free((void *)(uintptr_t)m.table_a);
    bench_memory_free((void *)(uintptr_t)m.table_b);
    bench_memory_free((void *)(uintptr_t)m.table_c);
    for (int i = 0; i < m.count; i++) trial_free(list[i]);
}

static void many_different_small(void **state) {
    (void)state;
    many_different(BLASD_float32, "500 mixed, 17 to 128, float32");
    many_different(BLASD_float64, "500 mixed, 17 to 128, float64");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large),
        cmocka_unit_test(from_shared_memory),
        cmocka_unit_test(many_equal_small),
        cmocka_unit_test(many_different_small),
    };
    if (argc > 1) scale = strtod(argv[1], NULL);
    if (argc > 2) bench_only = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
