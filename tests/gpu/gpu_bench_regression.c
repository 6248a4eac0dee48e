/* regression on the GPU: a tall problem by least squares, ridge, lasso and gradient descent, and
 * ten thousand small ones. There is no single library call for least squares with statistics;
 * beside it stands cuBLAS's product X'X in plain float64, which is less than half of the work: a
 * floor. What PyTorch and CuPy take for the least squares alone is in peers.py. */
#include "gpu_bench.h"

static double scale = 1; /* of counts; less than 1 tries the program out */

static int64_t scaled(int64_t n) {
    int64_t m = (int64_t)((double)n * scale);
    return m < 100 ? 100 : m;
}

static struct trial *problem(enum blasd_dtype dtype, int64_t batch, int64_t n, int64_t p,
                             const char *method) {
    struct trial *t = trial_new("regression");
    int64_t shape[3] = {batch, n, p}, more = batch > 0 ? 0 : 1;
    void *x = trial_input(t, "x", dtype, BLASD_ROW_MAJOR, 3 - (int)more, shape + more);
    void *y = trial_input(t, "y", dtype, BLASD_ROW_MAJOR, 2 - (int)more, shape + more);
    if (batch == 0) batch = 1;
    for (int64_t i = 0; i < batch * n; i++) {
        double sum = trial_normal();
        for (int64_t j = 0; j < p; j++) {
            double v = 1 + 2 * trial_uniform();
            sum += v * (double)(j % 4);
            if (dtype == BLASD_float64)
                ((double *)x)[i * p + j] = v;
            else
                ((float *)x)[i * p + j] = (float)v;
        }
        if (dtype == BLASD_float64)
            ((double *)y)[i] = sum;
        else
            ((float *)y)[i] = (float)sum;
    }
    trial_set_choice(t, "method", method);
    return t;
}

static int one_gemm(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    return blasd_gpu_calls.gemm(stream, arg, err);
}

/* X'X of `batch` problems by cuBLAS. */
static double gram_us(int64_t batch, int64_t n, int64_t p) {
    struct blasd_gpu_gemm g = {.dtype = BLASD_float64, .out = BLASD_float64, .trans_a = true};
    void *x = bench_memory(BLASD_float64, batch * n * p);
    void *c = bench_memory(BLASD_float64, batch * p * p);
    double us;
    g.m = g.n = p;
    g.k = n;
    g.alpha = 1;
    g.a = g.b = x;
    g.c = c;
    g.lda = g.ldb = g.ldc = p;
    g.stride_a = g.stride_b = n * p;
    g.stride_c = p * p;
    g.count = batch;
    us = bench_direct(one_gemm, &g);
    bench_memory_free(x);
    bench_memory_free(c);
    return us;
}

static void tall(void **state) {
    static const char *const methods[] = {"ols", "ridge", "lasso", "gd"};
    int64_t n = scaled(1000000), p = 50;
    double direct = gram_us(1, n, p);
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++)
        for (int m = 0; m < 4; m++) {
            double flops = 2 * (double)n * (double)p * (double)p;
            struct bench_run run;
            struct trial *t;
            char what[64];
            snprintf(what, sizeof what, "%lld x %lld %s%s%s%s", (long long)n, (long long)p,
                     dtype == 0 ? "float32" : "float64", m == 0 ? "" : ", ",
                     m == 0 ? "" : methods[m], m == 3 ? " 10000 steps" : "");
            if (!bench_wanted(what)) continue;
            t = problem(dtype == 0 ? BLASD_float32 : BLASD_float64, 0, n, p, methods[m]);
            if (m == 3) trial_set_int(t, "iterations", 10000);
            if (m == 3) trial_set_float(t, "learning_rate", 1e-3);
            if (m == 2) trial_set_float(t, "alpha", 0.01);
            run = bench_batch(&t, 1);
            bench_row("regression", what, &run, flops, "cublasGemmEx: X'X alone", direct);
            trial_free(t);
        }
}

/* The same by cuSOLVER: X = Q R, Q'y, R^-1, and R's singular values. */
struct direct_qr {
    int64_t n, p;
    char *x, *y, *r, *tau, *s, *work;
    size_t factor, apply, values, host_factor, host_values;
    void *host;
    int *info;
};

static size_t most(size_t a, size_t b) {
    return a > b ? a : b;
}

static int by_cusolver(void *arg, struct blasd_gpu_stream *stream, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = &blasd_gpu_calls;
    const struct direct_qr *d = arg;
    const struct blasd_gpu_triangle r = {.dtype = BLASD_float64,
                                         .upper = true,
                                         .m = d->p,
                                         .n = 1,
                                         .alpha = 1,
                                         .lda = d->n,
                                         .ldb = d->n};
    int code = calls->geqrf(stream, BLASD_float64, d->n, d->p, d->x, d->n, d->tau, d->work,
                            d->factor, d->host, d->host_factor, d->info, err);
    if (code == 0)
        code = calls->ormqr(stream, BLASD_float64, true, (int)d->n, 1, (int)d->p, d->x, (int)d->n,
                            d->tau, d->y, (int)d->n, d->work, d->apply, d->info, err);
    if (code == 0) code = calls->trsm(stream, &r, d->x, d->y, err);
    if (code != 0) return code;
    /* of any matrix of R's size: it is not zeroed below */
    return calls->gesvd(stream, BLASD_float64, d->p, d->p, d->r, d->p, d->s, NULL, d->p, NULL, d->p,
                        d->work, d->values, d->host, d->host_values, d->info, err);
}

/* Microseconds. */
static double cusolver_us(int64_t n, int64_t p) {
    const struct blasd_gpu_library *calls = &blasd_gpu_calls;
    struct direct_qr d = {.n = n, .p = p};
    struct blasd_device *device = trial_device();
    struct blasd_gpu_stream *stream;
    struct blasd_err err = {0};
    double us;
    assert_int_equal(calls->stream_open(device->gpu, &stream, &err), 0);
    assert_int_equal(
        calls->geqrf_size(stream, BLASD_float64, n, p, n, &d.factor, &d.host_factor, &err), 0);
    assert_int_equal(calls->ormqr_size(stream, BLASD_float64, true, (int)n, 1, (int)p, (int)n,
                                       (int)n, &d.apply, &err),
                     0);
    assert_int_equal(
        calls->gesvd_size(stream, BLASD_float64, p, p, p, false, &d.values, &d.host_values, &err),
        0);
    calls->stream_close(stream);
    d.host = malloc(most(d.host_factor, d.host_values) + 1);
    assert_non_null(d.host);
    d.x = bench_memory(BLASD_float64, n * p);
    d.y = bench_memory(BLASD_float64, n);
    d.r = bench_memory(BLASD_float64, p * p);
    d.tau = bench_memory(BLASD_float64, p);
    d.s = bench_memory(BLASD_float64, p);
    d.info = bench_memory(BLASD_float64, 8);
    d.work =
        bench_memory(BLASD_float64, (int64_t)(most(most(d.factor, d.apply), d.values) / 8 + 1));
    us = bench_direct(by_cusolver, &d);
    for (int i = 0; i < 7; i++)
        bench_memory_free((void *[]){d.x, d.y, d.r, d.tau, d.s, d.info, d.work}[i]);
    free(d.host);
    return us;
}

/* Many coefficients: the factor and the singular values cost as much as the products. */
static void wide(void **state) {
    const int64_t widths[] = {200, 1024};
    (void)state;
    for (int i = 0; i < 2; i++) {
        int64_t p = scaled(widths[i]), n = 8 * p;
        struct bench_run run;
        struct trial *t;
        char what[64];
        snprintf(what, sizeof what, "%lld x %lld float64, no intercept", (long long)n,
                 (long long)p);
        if (!bench_wanted(what)) continue;
        t = problem(BLASD_float64, 0, n, p, "ols");
        trial_set_bool(t, "fit_intercept", false);
        run = bench_batch(&t, 1);
        bench_row("regression", what, &run, 2 * (double)n * (double)p * (double)p,
                  "cusolverDnXgeqrf, Dormqr, trsm, Xgesvd", cusolver_us(n, p));
        trial_free(t);
    }
}

/* With robust errors, residuals and fitted values: every pass there is. */
static void tall_with_everything(void **state) {
    int64_t n = scaled(1000000), p = 50;
    struct bench_run run;
    struct trial *t;
    char what[64];
    (void)state;
    snprintf(what, sizeof what, "%lld x %lld float64, HC3, residuals", (long long)n, (long long)p);
    if (!bench_wanted(what)) return;
    t = problem(BLASD_float64, 0, n, p, "ols");
    trial_set_choice(t, "cov_type", "HC3");
    trial_set_bool(t, "residuals", true);
    run = bench_batch(&t, 1);
    bench_row("regression", what, &run, 2 * (double)n * (double)p * (double)p, "", 0);
    trial_free(t);
}

static void many_small(void **state) {
    static const char *const methods[] = {"ols", "ridge", "lasso", "gd"};
    int64_t batch = scaled(10000), n = 100, p = 8;
    double direct = gram_us(batch, n, p);
    (void)state;
    for (int m = 0; m < 4; m++) {
        struct bench_run run;
        struct trial *t;
        char what[64];
        snprintf(what, sizeof what, "%lld of %lld x %lld float64%s%s", (long long)batch,
                 (long long)n, (long long)p, m == 0 ? "" : ", ", m == 0 ? "" : methods[m]);
        if (!bench_wanted(what)) continue;
        t = problem(BLASD_float64, batch, n, p, methods[m]);
        if (m == 2) trial_set_float(t, "alpha", 0.01);
        run = bench_batch(&t, 1);
        bench_row("regression", what, &run, 2 * (double)batch * (double)n * (double)p * (double)p,
                  "cublasGemmStridedBatchedEx: X'X alone", direct);
        trial_free(t);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tall),
        cmocka_unit_test(wide),
        cmocka_unit_test(tall_with_everything),
        cmocka_unit_test(many_small),
    };
    if (argc > 1) scale = strtod(argv[1], NULL);
    if (argc > 2) bench_only = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
