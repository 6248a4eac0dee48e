/* distance on the GPU: the matrix in few and in many dimensions beside its floors (writing as many
 * bytes, the matrix product alone), neighbours without the matrix beside rows of it that are
 * selected from, a matrix that goes down in rows, many small jobs. */
#include "gpu_bench.h"

#include "kernels/distance/pair_limits.h"

static double scale = 1; /* of sizes and counts; less than 1 tries the program out */

static int64_t scaled(int64_t n) {
    int64_t m = (int64_t)((double)n * scale);
    return m < 16 ? 16 : m;
}

static struct trial *points(enum blasd_dtype dtype, const char *metric, int64_t n, int64_t k) {
    struct trial *t = trial_new("distance");
    void *x = trial_input(t, "x", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, k});
    for (int64_t i = 0; i < n * k; i++) {
        if (dtype == BLASD_float64)
            ((double *)x)[i] = trial_normal();
        else
            ((float *)x)[i] = (float)trial_normal();
    }
    trial_set_choice(t, "metric", metric);
    return t;
}

/* What is subtracted, multiplied and added, as README.md counts it. */
static double operations(int64_t n, int64_t k) {
    return 3.0 * (double)n * (double)n * (double)k;
}

struct region {
    void *memory;
    size_t bytes;
};
static int write_bytes(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    struct region *region = arg;
    return blasd_gpu_calls.fill(stream, region->memory, 0, region->bytes, err);
}
static int product(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    return blasd_gpu_calls.gemm(stream, arg, err);
}

/* The time it takes to write as many bytes as the matrix has: no kernel is faster. */
static double floor_us(enum blasd_dtype dtype, int64_t n) {
    struct region region = {bench_memory(dtype, n * n), (size_t)(n * n) * blasd_dtype_size(dtype)};
    double us = bench_direct(write_bytes, &region);
    bench_memory_free(region.memory);
    return us;
}

static double product_us(enum blasd_dtype dtype, int64_t n, int64_t k) {
    struct blasd_gpu_gemm g = {.dtype = dtype, .out = dtype, .trans_b = true, .m = n, .n = n};
    double us;
    g.k = g.lda = g.ldb = k;
    g.ldc = n;
    g.alpha = -2;
    g.a = g.b = bench_memory(dtype, n * k);
    g.c = bench_memory(dtype, n * n);
    g.count = 1;
    us = bench_direct(product, &g);
    bench_memory_free((void *)(uintptr_t)g.a);
    bench_memory_free(g.c);
    return us;
}

static const struct {
    const char *name;
    enum blasd_dtype dtype;
} kinds[] = {{"float32", BLASD_float32}, {"float64", BLASD_float64}};

static void matrices(void **state) {
    static const struct {
        int64_t n, k;
        const char *metric;
    } cases[] = {{4096, 3, "euclidean"},  {4096, 32, "euclidean"},     {4096, 256, "euclidean"},
                 {8192, 64, "euclidean"}, {8192, 256, "euclidean"},    {4096, 256, "cosine"},
                 {4096, 3, "cityblock"},  {4096, 256, "cityblock"},    {4095, 3, "euclidean"},
                 {4096, 16, "canberra"},  {4096, 16, "jensenshannon"}, {4096, 8, "mahalanobis"},
                 {27000, 3, "euclidean"}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int kind = 0; kind < 2; kind++) {
            enum blasd_dtype dtype = kinds[kind].dtype;
            int64_t n = scaled(cases[c].n), k = cases[c].k;
            struct trial *t;
            struct bench_run run;
            bool euclidean = strcmp(cases[c].metric, "euclidean") == 0;
            char what[96];
            if (n > 20000 && kind == 1) continue; /* 5.8 GB: one kind is enough */
            snprintf(what, sizeof what, "%lld points, %lld dimensions, %s%s%s", (long long)n,
                     (long long)k, euclidean ? "" : cases[c].metric, euclidean ? "" : ", ",
                     kinds[kind].name);
            if (!bench_wanted(what)) continue;
            t = points(dtype, cases[c].metric, n, k);
            run = bench_batch(&t, 1);
            bench_row("distance", what, &run, operations(n, k), "writing the matrix",
                      floor_us(dtype, n));
            if (k >= 64)
                bench_row("distance", what, &run, operations(n, k), "the product alone",
                          product_us(dtype, n, k));
            trial_free(t);
        }
}

/* The same neighbours by the kernel that keeps them as it goes, and selected from rows. */
static void neighbours(void **state) {
    static const struct {
        int64_t n, k, neighbours;
    } cases[] = {{4096, 3, 1}, {27000, 3, 10}, {27000, 3, 64}, {4096, 256, 10}, {27000, 64, 10}};
    struct blasd_distance_limits kept = blasd_distance_limits;
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int kind = 0; kind < 2; kind++) {
            int64_t n = scaled(cases[c].n), k = cases[c].k;
            struct trial *t;
            struct bench_run run, selected;
            char what[96];
            snprintf(what, sizeof what, "%lld nearest of %lld points, %lld dimensions, %s",
                     (long long)cases[c].neighbours, (long long)n, (long long)k, kinds[kind].name);
            if (!bench_wanted(what)) continue;
            t = points(kinds[kind].dtype, "euclidean", n, k);
            trial_set_choice(t, "output", "topk");
            trial_set_int(t, "k", cases[c].neighbours < n - 1 ? cases[c].neighbours : n - 1);
            run = bench_batch(&t, 1);
            blasd_distance_limits.nearest_most = 0;
            selected = bench_batch(&t, 1);
            blasd_distance_limits = kept;
            bench_row("distance", what, &run, operations(n, k), "rows, then selected",
                      selected.compute_us);
            trial_free(t);
        }
}

/* A card with 1 GiB, as far as the kernel knows: wall time is what counts. */
static void streamed(void **state) {
    struct blasd_gpu_facts *facts = &trial_device()->facts;
    uint64_t memory = facts->memory_bytes;
    int64_t n = scaled(27000);
    struct trial *t;
    struct bench_run whole, rows;
    char what[96];
    (void)state;
    if (!bench_wanted("wall: whole, wall: in rows")) return;
    t = points(BLASD_float32, "euclidean", n, 3);
    whole = bench_batch(&t, 1);
    facts->memory_bytes = UINT64_C(1) << 30;
    rows = bench_batch(&t, 1);
    facts->memory_bytes = memory;
    snprintf(what, sizeof what, "%lld points, 3 dimensions, float32, wall: whole", (long long)n);
    bench_row("distance", what, &whole, operations(n, 3), "", 0);
    snprintf(what, sizeof what, "%lld points, 3 dimensions, float32, wall: in rows", (long long)n);
    bench_row("distance", what, &rows, operations(n, 3), "", 0);
    trial_free(t);
}

static void small_jobs(void **state) {
    enum { MOST = 1000 };
    static struct trial *list[MOST];
    int count = (int)scaled(MOST);
    const char *what = "1000 of 64 points, 16 dimensions, float32";
    struct bench_run run;
    (void)state;
    if (!bench_wanted(what)) return;
    for (int i = 0; i < count; i++) list[i] = points(BLASD_float32, "euclidean", 64, 16);
    run = bench_batch(list, count);
    bench_row("distance", what, &run, operations(64, 16) * count, "", 0);
    for (int i = 0; i < count; i++) trial_free(list[i]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices),
        cmocka_unit_test(neighbours),
        cmocka_unit_test(streamed),
        cmocka_unit_test(small_jobs),
    };
    if (argc > 1) scale = strtod(argv[1], NULL);
    if (argc > 2) bench_only = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
