/* matmul: generated shapes, dtypes, orders and parameters against the reference, each element
 * within the bound of its own sum; integers exact; what is not finite; what must be refused. */
#include "kernel_support.h"
#include "kernels/matmul/ref_matmul.h"

#include <float.h>

static const enum blasd_dtype floats[] = {BLASD_float64, BLASD_float32, BLASD_float16,
                                          BLASD_bfloat16};

static double unit(enum blasd_dtype dtype) {
    switch (dtype) {
    case BLASD_float64: return 0x1p-53;
    case BLASD_float32: return 0x1p-24;
    case BLASD_float16: return 0x1p-11;
    default: return 0x1p-8;
    }
}

enum filling { FILL_NORMAL, FILL_INTEGER, FILL_WIDE, FILL_SPECIAL };

static double fill_value(enum filling filling, enum blasd_dtype dtype) {
    int64_t pick;
    switch (filling) {
    case FILL_INTEGER: return (double)trial_between(-8, 8);
    case FILL_WIDE: /* of many magnitudes, that no sum overflows or underflows */
        return trial_normal() * ldexp(1, (int)trial_between(dtype == BLASD_float16 ? -3 : -30,
                                                            dtype == BLASD_float16 ? 3 : 30));
    case FILL_SPECIAL:
        pick = trial_between(0, 30);
        return pick == 0 ? NAN : pick == 1 ? INFINITY : pick == 2 ? -INFINITY : pick < 8 ? 0 : 1;
    case FILL_NORMAL: break;
    }
    return trial_normal();
}

static void fill(void *data, enum blasd_dtype dtype, int64_t n, enum filling filling) {
    struct blasd_tensor from = blasd_tensor_make(BLASD_float64, 0, NULL);
    struct blasd_tensor to = blasd_tensor_make(dtype, 0, NULL);
    for (int64_t i = 0; i < n; i++) {
        double v = fill_value(filling, dtype);
        from.data = &v;
        to.data = (char *)data + (size_t)i * blasd_dtype_size(dtype);
        if (dtype == BLASD_bool)
            *(uint8_t *)to.data = v > 0;
        else if (dtype == BLASD_int32)
            *(int32_t *)to.data = (int32_t)v;
        else
            blasd_tensor_convert(&from, &to);
    }
}

static void give(struct trial *t, const char *name, enum blasd_dtype dtype, enum blasd_order order,
                 int rank, const int64_t *shape, enum filling filling) {
    void *data = trial_input(t, name, dtype, order, rank, shape);
    int i = blasd_op_input(t->job.op, name);
    fill(data, dtype, blasd_tensor_elements(&t->job.inputs[i].tensor), filling);
}

/* Every element of the result against the reference. */
static void check(struct trial *t, bool exact) {
    const struct blasd_tensor *c = trial_output(t, "c");
    struct blasd_tensor sent[3] = {0};
    enum blasd_dtype compute = t->plan.input_dtype[0];
    int64_t n = blasd_tensor_elements(c), at[BLASD_MAX_RANK] = {0}, k;
    double u = unit(compute);
    for (int i = 0; i < 3; i++) {
        sent[i] = t->job.inputs[i].tensor;
        sent[i].data = blasd_job_has(&t->job, i) ? t->given[i] : NULL;
    }
    k = sent[0].shape[sent[0].rank - 1];
    if (sent[0].rank > 1 && t->job.params[blasd_op_param(t->job.op, "transpose_a")].b)
        k = sent[0].shape[sent[0].rank - 2];
    for (int64_t i = 0; i < n; i++) {
        long double value, size;
        double got = trial_value(c, i), bound;
        int64_t rest = i;
        for (int d = c->rank - 1; d >= 0; d--) {
            at[d] = rest % c->shape[d];
            rest /= c->shape[d];
        }
        blasd_ref_matmul(&t->job, sent, at, c->rank, &value, &size);
        if (isnan((double)value)) {
            assert_true(isnan(got));
            continue;
        }
        if (isinf((double)value) || (c->dtype == BLASD_float16 && fabsl(value) > 65520)) {
            assert_true(got == (value > 0 ? INFINITY : -INFINITY));
            continue;
        }
        /* gamma of a sum of k products, alpha, beta, and the last addition */
        bound = exact ? 0 : (double)((long double)((double)k + 4) * u * size);
        if (c->dtype != compute) bound += unit(c->dtype) * (fabs(got) + bound) + 0x1p-25;
        ASSERT_CLOSE(got, value, bound);
    }
}

static void plain_products_of_every_float(void **state) {
    const int64_t sizes[] = {1, 2, 3, 7, 8, 16, 17, 33, 64, 100};
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int round = 0; round < 40; round++) {
            int64_t m = sizes[trial_between(0, 9)], k = sizes[trial_between(0, 9)];
            int64_t n = sizes[trial_between(0, 9)];
            struct trial *t = trial_new("matmul");
            give(t, "a", floats[d], BLASD_ROW_MAJOR, 2, (int64_t[]){m, k}, FILL_WIDE);
            give(t, "b", floats[d], BLASD_ROW_MAJOR, 2, (int64_t[]){k, n}, FILL_WIDE);
            assert_int_equal(trial_run(t), BLASD_OK);
            assert_int_equal(trial_output(t, "c")->dtype, floats[d]);
            check(t, false);
            trial_free(t);
        }
}

/* Around the edges of tiles and vectors, and of what is small; whichever way the factors lie, with
 * alpha, beta and c. Integers must come out exact in any order of addition. */
static void small_products_of_every_shape(void **state) {
    const int64_t sizes[] = {1,  2,  5,  6,  7,  11, 12, 13,  15, 16,
                             17, 31, 32, 33, 79, 80, 81, 128, 129};
    (void)state;
    for (int round = 0; round < 600; round++) {
        enum blasd_dtype dtype = floats[round % 2];
        bool ta = trial_between(0, 1), tb = trial_between(0, 1), exact = trial_between(0, 1);
        enum filling filling = exact ? FILL_INTEGER : FILL_WIDE;
        int64_t m = sizes[trial_between(0, 18)], k = sizes[trial_between(0, 18)];
        int64_t n = sizes[trial_between(0, 18)], most = round % 10 == 0 ? INT64_MAX : 40000;
        struct trial *t;
        if (m * k * n > most) continue;
        t = trial_new("matmul");
        give(t, "a", dtype, trial_between(0, 1) ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR, 2,
             (int64_t[]){ta ? k : m, ta ? m : k}, filling);
        give(t, "b", dtype, trial_between(0, 1) ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR, 2,
             (int64_t[]){tb ? n : k, tb ? k : n}, filling);
        trial_set_bool(t, "transpose_a", ta);
        trial_set_bool(t, "transpose_b", tb);
        if (trial_between(0, 1)) trial_set_float(t, "alpha", (double)trial_between(-2, 2));
        if (trial_between(0, 1)) {
            give(t, "c", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){m, n}, filling);
            trial_set_float(t, "beta", (double)trial_between(-2, 2));
        }
        assert_int_equal(trial_run(t), BLASD_OK);
        check(t, exact);
        trial_free(t);
    }
}

/* A result of several tiles, of which the last ones are cut in quarters; those at the edges are
 * smaller than the others. A piece left out or made twice shows, for c is added to once. */
/* Whoever emulates float64 keeps its bound, and says that it did: factors of like size, graded ones
 * and what is not finite, around the sizes where a device may begin to. */
static void float64_emulated(void **state) {
    const int64_t sizes[] = {5, 64, 65, 130, 300};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int filling = FILL_NORMAL; filling <= FILL_SPECIAL; filling++) {
            int64_t n = sizes[s];
            struct trial *t = trial_new("matmul");
            give(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n / 4 + 1, n}, filling);
            give(t, "b", BLASD_float64, BLASD_COLUMN_MAJOR, 2, (int64_t[]){n, n / 5 + 1}, filling);
            trial_set_choice(t, "precision", "fp64_emulated");
            assert_int_equal(trial_run(t), BLASD_OK);
            check(t, filling == FILL_INTEGER);
            trial_free(t);
        }
}

static void a_large_result_in_tiles(void **state) {
    int64_t m = 2049, n = 2100, k = 4;
    struct trial *t = trial_new("matmul");
    (void)state;
    give(t, "a", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){m, k}, FILL_INTEGER);
    give(t, "b", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){k, n}, FILL_INTEGER);
    give(t, "c", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){m, n}, FILL_INTEGER);
    trial_set_float(t, "beta", 2);
    assert_int_equal(trial_run(t), BLASD_OK);
    check(t, true);
    trial_free(t);
}

/* So large that threads share it, whichever way the matrix lies. */
static void a_large_matrix_times_a_vector(void **state) {
    (void)state;
    for (int how = 0; how < 8; how++) {
        bool left = how & 1, trans = how >> 1 & 1;
        enum blasd_order order = how >> 2 & 1 ? BLASD_COLUMN_MAJOR : BLASD_ROW_MAJOR;
        int64_t m = 999, k = 1030, shape[] = {trans ? k : m, trans ? m : k};
        struct trial *t = trial_new("matmul");
        give(t, left ? "b" : "a", BLASD_float64, order, 2, shape, FILL_INTEGER);
        give(t, left ? "a" : "b", BLASD_float64, BLASD_ROW_MAJOR, 1, left ? &m : &k, FILL_INTEGER);
        trial_set_bool(t, left ? "transpose_b" : "transpose_a", trans);
        assert_int_equal(trial_run(t), BLASD_OK);
        check(t, true);
        trial_free(t);
    }
}

/* A random job of any shape the operation takes. */
static struct trial *random_job(enum filling filling) {
    static const enum blasd_dtype dtypes[] = {BLASD_float64,  BLASD_float32, BLASD_float16,
                                              BLASD_bfloat16, BLASD_int32,   BLASD_bool};
    const int64_t sizes[] = {0, 1, 1, 2, 3, 5, 8, 9, 17, 31, 40};
    struct trial *t = trial_new("matmul");
    int64_t m = sizes[trial_between(0, 10)], k = sizes[trial_between(0, 10)];
    int64_t n = sizes[trial_between(0, 10)], batch[3], a[5], b[5], c[5];
    int ra = (int)trial_between(1, 5), rb = (int)trial_between(1, 5), rank, rc;
    bool ta = trial_between(0, 1), tb = trial_between(0, 1);
    enum blasd_dtype dtype = dtypes[trial_between(0, 5)];
    int both = (ra > rb ? ra : rb) - 2;
    for (int i = 0; i < 3; i++) batch[i] = trial_between(0, 9) == 0 ? 0 : trial_between(1, 3);
    if (ra == 1) a[0] = k;
    if (rb == 1) b[0] = k;
    for (int i = 0; i < ra - 2; i++) a[i] = trial_between(0, 3) ? batch[3 - (ra - 2) + i] : 1;
    for (int i = 0; i < rb - 2; i++) b[i] = trial_between(0, 3) ? batch[3 - (rb - 2) + i] : 1;
    if (ra > 1) a[ra - 2] = ta ? k : m;
    if (ra > 1) a[ra - 1] = ta ? m : k;
    if (rb > 1) b[rb - 2] = tb ? n : k;
    if (rb > 1) b[rb - 1] = tb ? k : n;
    give(t, "a", trial_between(0, 3) ? dtype : dtypes[trial_between(0, 5)],
         trial_between(0, 1) ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR, ra, a, filling);
    give(t, "b", trial_between(0, 3) ? dtype : dtypes[trial_between(0, 5)],
         trial_between(0, 1) ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR, rb, b, filling);
    trial_set_bool(t, "transpose_a", ta);
    trial_set_bool(t, "transpose_b", tb);
    if (trial_between(0, 1)) trial_set_float(t, "alpha", (double)trial_between(-2, 2));
    if (trial_between(0, 1)) {
        if (both < 0) both = 0;
        rank = 0;
        for (int i = 0; i < both; i++) {
            int64_t x = i - (both - (ra - 2)) >= 0 && ra > 2 ? a[i - (both - (ra - 2))] : 1;
            int64_t y = i - (both - (rb - 2)) >= 0 && rb > 2 ? b[i - (both - (rb - 2))] : 1;
            c[rank++] = x == 1 ? y : x;
        }
        if (ra > 1) c[rank++] = m;
        if (rb > 1) c[rank++] = n;
        rc = (int)trial_between(0, rank);
        for (int i = 0; i < rc; i++) c[i] = trial_between(0, 3) ? c[rank - rc + i] : 1;
        give(t, "c", trial_between(0, 3) ? dtype : dtypes[trial_between(0, 5)],
             trial_between(0, 1) ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR, rc, c, filling);
        if (trial_between(0, 2)) trial_set_float(t, "beta", (double)trial_between(-2, 2));
    }
    return t;
}

static void any_job(void **state) {
    (void)state;
    for (int round = 0; round < 1500; round++) {
        enum filling filling = (enum filling)trial_between(FILL_NORMAL, FILL_SPECIAL);
        struct trial *t = random_job(filling);
        enum blasd_code code = trial_run(t);
        if (code != BLASD_OK) fail_msg("%s: %s", t->err.field, t->err.detail);
        check(t, filling == FILL_INTEGER && t->plan.outputs[0].dtype <= BLASD_float32);
        trial_free(t);
    }
}

static void equal_jobs_run_as_one_call_and_give_the_same_bits(void **state) {
    struct trial *list[9], *alone;
    (void)state;
    for (int i = 0; i < 9; i++) {
        list[i] = trial_new("matmul");
        give(list[i], "a", BLASD_float32, BLASD_ROW_MAJOR, 3, (int64_t[]){2, 13, 7}, FILL_NORMAL);
        give(list[i], "b", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){7, 9}, FILL_NORMAL);
    }
    assert_int_equal(trial_run_batch(list, 9), BLASD_OK);
    for (int i = 0; i < 9; i++) {
        check(list[i], false);
        alone = trial_new("matmul");
        memcpy(trial_input(alone, "a", BLASD_float32, BLASD_ROW_MAJOR, 3, (int64_t[]){2, 13, 7}),
               list[i]->given[0], 2 * 13 * 7 * 4);
        memcpy(trial_input(alone, "b", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){7, 9}),
               list[i]->given[1], 7 * 9 * 4);
        assert_int_equal(trial_run(alone), BLASD_OK);
        assert_memory_equal(trial_output(alone, "c")->data, trial_output(list[i], "c")->data,
                            2 * 13 * 9 * 4);
        trial_free(alone);
        trial_free(list[i]);
    }
}

/* A product fetches what the next job of its batch reads: of sizes that fill no line or vector, in
 * factors that are not alike, and where there is no next one. */
static void jobs_after_another_read_only_their_own(void **state) {
    const int64_t shapes[][3] = {{64, 64, 64}, {33, 31, 35}, {7, 128, 80}, {5, 127, 120}};
    struct trial *list[5];
    (void)state;
    for (int s = 0; s < 4; s++)
        for (int d = 0; d < 2; d++) {
            int64_t m = shapes[s][0], k = shapes[s][1], n = shapes[s][2];
            for (int i = 0; i < 5; i++) {
                list[i] = trial_new("matmul");
                give(list[i], "a", floats[d], BLASD_ROW_MAJOR, 2, (int64_t[]){m, k}, FILL_INTEGER);
                give(list[i], "b", floats[d], BLASD_ROW_MAJOR, 2, (int64_t[]){k, n}, FILL_INTEGER);
            }
            assert_int_equal(trial_run_batch(list, 5), BLASD_OK);
            for (int i = 0; i < 5; i++) {
#ifdef TRIAL_ON_THE_CPU
                assert_string_equal(list[i]->task.method, d == 0 ? "dgemm" : "sgemm");
#endif
                check(list[i], true);
                trial_free(list[i]);
            }
        }
}

/* A long product comes in pieces, along whichever length is longest, and can be stopped. */
static void long_products(void **state) {
    const int64_t shapes[][3] = {{2600, 1500, 2600}, {700, 21000, 700}, {1500, 2000, 3400}};
    (void)state;
    for (int s = 0; s < 3; s++) {
        int64_t m = shapes[s][0], k = shapes[s][1], n = shapes[s][2];
        struct trial *t = trial_new("matmul");
        float *a = trial_input(t, "a", BLASD_float32, BLASD_COLUMN_MAJOR, 2, (int64_t[]){m, k});
        float *b = trial_input(t, "b", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){k, n});
        const float *c;
        for (int64_t i = 0; i < m * k; i++) a[i] = (float)trial_between(-3, 3);
        for (int64_t i = 0; i < k * n; i++) b[i] = (float)trial_between(-3, 3);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(trial_watch.calls > 0);
        c = trial_output(t, "c")->data;
        for (int probe = 0; probe < 2000; probe++) {
            int64_t i = trial_between(0, m - 1), j = trial_between(0, n - 1), sum = 0;
            for (int64_t l = 0; l < k; l++) sum += (int64_t)a[l * m + i] * (int64_t)b[l * n + j];
            assert_true(c[i * n + j] == (float)sum);
        }
        trial_watch.stop_after = 1;
        assert_int_equal(trial_run(t), BLASD_E_cancelled);
        trial_watch.stop_after = 0;
        trial_free(t);
    }
}

static void refused(void **state) {
    struct {
        int ra, rb, rc;
        int64_t a[9], b[9], c[9];
        bool beta;
        enum blasd_code code;
        const char *field;
    } cases[] = {
        {2, 2, -1, {2, 3}, {2, 3}, {0}, false, BLASD_E_shape_mismatch, "inputs.b"},
        {1, 1, -1, {3}, {2}, {0}, false, BLASD_E_shape_mismatch, "inputs.b"},
        {3, 3, -1, {2, 2, 2}, {3, 2, 2}, {0}, false, BLASD_E_shape_mismatch, "inputs.b"},
        {0, 2, -1, {0}, {2, 2}, {0}, false, BLASD_E_invalid_shape, "inputs.a"},
        {2, 0, -1, {2, 2}, {0}, {0}, false, BLASD_E_invalid_shape, "inputs.b"},
        {2, 2, 2, {2, 2}, {2, 2}, {2, 3}, false, BLASD_E_shape_mismatch, "inputs.c"},
        {2, 2, 3, {2, 2}, {2, 2}, {1, 2, 2}, false, BLASD_E_shape_mismatch, "inputs.c"},
        {2, 2, -1, {2, 2}, {2, 2}, {0}, true, BLASD_E_missing_input, "inputs.c"},
        {2,
         2,
         -1,
         {1 << 30, 0},
         {0, INT64_C(1) << 34},
         {0},
         false,
         BLASD_E_invalid_shape,
         "inputs.b"},
        {3,
         2,
         -1,
         {1 << 30, 1 << 20, 0},
         {0, 1 << 30},
         {0},
         false,
         BLASD_E_invalid_tensor,
         "inputs"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial *t = trial_new("matmul");
        trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, cases[i].ra, cases[i].a);
        trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, cases[i].rb, cases[i].b);
        if (cases[i].rc >= 0)
            trial_input(t, "c", BLASD_float64, BLASD_ROW_MAJOR, cases[i].rc, cases[i].c);
        if (cases[i].beta) trial_set_float(t, "beta", 2);
        assert_int_equal(trial_plan(t), cases[i].code);
        assert_string_equal(t->err.field, cases[i].field);
        trial_free(t);
    }
}

/* What BLAS would skip must still be computed: zero times NaN, alpha 0. And what it must not read:
 * c where beta is 0. */
static void what_is_not_finite(void **state) {
    struct trial *t = trial_new("matmul");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){2, 2});
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){2, 2}), *c;
    (void)state;
    a[0] = 1;
    b[2] = INFINITY; /* meets a[1] = 0 */
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_true(isnan(trial_value(trial_output(t, "c"), 0)));
    assert_true(trial_value(trial_output(t, "c"), 1) == 0);
    trial_set_float(t, "alpha", 0);
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_true(isnan(trial_value(trial_output(t, "c"), 0)));
    assert_true(trial_value(trial_output(t, "c"), 1) == 0);
    b[2] = 5;
    c = trial_input(t, "c", BLASD_float64, BLASD_ROW_MAJOR, 0, NULL);
    c[0] = NAN;
    trial_set_float(t, "alpha", 1);
    trial_set_float(t, "beta", 0);
    assert_int_equal(trial_run(t), BLASD_OK);
    for (int i = 0; i < 4; i++) assert_false(isnan(trial_value(trial_output(t, "c"), i)));
    trial_free(t);
}

/* Nothing times a finite alpha is nothing, also where alpha is infinite in the result's dtype. */
static void an_empty_sum_is_zero(void **state) {
    static const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32, BLASD_float16,
                                              BLASD_complex64};
    (void)state;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        struct trial *t = trial_new("matmul");
        trial_input(t, "a", dtypes[d], BLASD_ROW_MAJOR, 2, (int64_t[]){3, 0});
        trial_input(t, "b", dtypes[d], BLASD_ROW_MAJOR, 2, (int64_t[]){0, 2});
        trial_set_float(t, "alpha", -1e200);
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int i = 0; i < 6; i++) assert_true(trial_value(trial_output(t, "c"), i) == 0);
        trial_free(t);
    }
}

/* (3 x 4 by 4 x 2) of elements -x, with 4 x^2 as large as float64 holds integers where x is 2^25.5
 */
static int warnings_of(enum blasd_dtype a, enum blasd_dtype b, int64_t x, double alpha) {
    struct trial *t = trial_new("matmul");
    const char *names[2] = {"a", "b"};
    enum blasd_dtype dtypes[2] = {a, b};
    int count;
    for (int i = 0; i < 2; i++) {
        char *data = trial_input(t, names[i], dtypes[i], BLASD_ROW_MAJOR, 2,
                                 i == 0 ? (int64_t[]){3, 4} : (int64_t[]){4, 2});
        for (int k = 0; k < (i == 0 ? 12 : 8); k++)
            if (dtypes[i] == BLASD_float64)
                ((double *)(void *)data)[k] = (double)-x;
            else /* little-endian */
                memcpy(data + (size_t)k * blasd_dtype_size(dtypes[i]), (int64_t[]){-x},
                       blasd_dtype_size(dtypes[i]));
    }
    trial_set_float(t, "alpha", alpha);
    assert_int_equal(trial_run(t), BLASD_OK);
    count = t->task.warning_count;
    if (count > 0) assert_non_null(strstr(t->task.warnings[count - 1].text, "2^53"));
    trial_free(t);
    return count;
}

/* x times y, and `plus` where that is not 0: what is one more than 2^53 looks like 2^53 in float64.
 */
static int warnings_of_one(int64_t x, int64_t y, int64_t plus) {
    struct trial *t = trial_new("matmul");
    int64_t one[2] = {1, 1};
    int count;
    *(int64_t *)trial_input(t, "a", BLASD_int64, BLASD_ROW_MAJOR, 2, one) = x;
    *(int64_t *)trial_input(t, "b", BLASD_int64, BLASD_ROW_MAJOR, 2, one) = y;
    if (plus != 0) *(int64_t *)trial_input(t, "c", BLASD_int64, BLASD_ROW_MAJOR, 2, one) = plus;
    assert_int_equal(trial_run(t), BLASD_OK);
    count = t->task.warning_count;
    trial_free(t);
    return count;
}

static void sums_of_integers_one_beyond(void **state) {
    const int64_t most = INT64_C(1) << 53;
    (void)state;
    assert_int_equal(warnings_of_one(most - 1, 1, 0), 0);
    assert_int_equal(warnings_of_one(most / 2, 2, 0), 0);
    assert_int_equal(warnings_of_one(most / 2, 1, most / 2), 0);
    assert_int_equal(warnings_of_one(3, (most + 1) / 3, 0), 1);
    assert_int_equal(warnings_of_one(most - 1, 1, 2), 1);
    assert_int_equal(warnings_of_one(most + 1, 1, 0), 1); /* rounded when it became float64 */
    assert_int_equal(warnings_of_one(1, -most - 1, 0), 1);
    assert_int_equal(warnings_of_one(most + 1, 0, 0), 0);
    assert_int_equal(warnings_of_one(1, 0, most + 1), 1);
}

static void sums_of_integers_beyond_float64_are_warned_of(void **state) {
    (void)state;
    assert_int_equal(warnings_of(BLASD_int64, BLASD_int64, 1 << 25, 1), 0);
    assert_int_equal(warnings_of(BLASD_int64, BLASD_int64, 1 << 25, 2), 0); /* 2^53 itself */
    assert_int_equal(warnings_of(BLASD_int64, BLASD_int64, 1 << 25, -3), 1);
    assert_int_equal(warnings_of(BLASD_int64, BLASD_int64, 1 << 26, 1), 1);
    assert_int_equal(warnings_of(BLASD_int32, BLASD_int64, 1 << 26, 1), 1);
    assert_int_equal(warnings_of(BLASD_int32, BLASD_int32, 1 << 26, 0.5), 0);
    assert_int_equal(warnings_of(BLASD_int64, BLASD_float64, 1 << 26, 1), 0);
    assert_int_equal(warnings_of(BLASD_float64, BLASD_int64, 1 << 26, 1), 0);
    assert_int_equal(warnings_of(BLASD_uint8, BLASD_uint16, 1, 1), 0);
    assert_int_equal(warnings_of(BLASD_uint8, BLASD_uint16, 1, 1e12), 1);
    assert_int_equal(warnings_of(BLASD_int64, BLASD_int64, 1 << 26, 1e300), 2); /* overflow, too */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_products_of_every_float),
        cmocka_unit_test(small_products_of_every_shape),
        cmocka_unit_test(float64_emulated),
        cmocka_unit_test(any_job),
        cmocka_unit_test(equal_jobs_run_as_one_call_and_give_the_same_bits),
        cmocka_unit_test(jobs_after_another_read_only_their_own),
        cmocka_unit_test(long_products),
        cmocka_unit_test(a_large_result_in_tiles),
        cmocka_unit_test(a_large_matrix_times_a_vector),
        cmocka_unit_test(refused),
        cmocka_unit_test(what_is_not_finite),
        cmocka_unit_test(an_empty_sum_is_zero),
        cmocka_unit_test(sums_of_integers_beyond_float64_are_warned_of),
        cmocka_unit_test(sums_of_integers_one_beyond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
