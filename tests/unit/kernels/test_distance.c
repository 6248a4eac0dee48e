/* distance against its reference: every metric, shapes of all kinds, exactness, errors. */
#include "tests/unit/kernels/kernel_support.h"

#include "base/err.h"
#include "kernels/distance/distance.h"
#include "kernels/distance/ref_distance.h"

#include <float.h>

/* x or y of a trial as the reference reads them */
static long double *points_of(const struct trial *t, int input) {
    const struct blasd_tensor *tensor = &t->task.inputs[input];
    int64_t n = blasd_tensor_elements(tensor);
    long double *points = calloc((size_t)n + 1, sizeof *points);
    assert_non_null(points);
    for (int64_t i = 0; tensor->data != NULL && i < n; i++)
        points[i] = (long double)trial_value(tensor, i);
    return points;
}

static bool given(const struct trial *t, int input) {
    return t->task.inputs[input].data != NULL;
}

/* What an entry may be off by: relative for sums of terms of one sign, absolute where the metric
 * itself is a difference. */
static double bound(const struct distance_shape *s, double expected) {
    double u = s->arithmetic == BLASD_float64 ? DBL_EPSILON / 2 : FLT_EPSILON / 2;
    double k = (double)s->k + 2, relative;
    double store = s->storage == BLASD_float16    ? 0x1p-11
                   : s->storage == BLASD_bfloat16 ? 0x1p-8
                   : s->storage == s->arithmetic  ? 0
                                                  : 0x1p-24;
    double rounding = store * fabs(expected) + (s->storage == BLASD_float16 ? 0x1p-25 : 0);
    switch (s->metric) {
    case METRIC_sqeuclidean: relative = k * u; break;
    case METRIC_cosine:
    case METRIC_correlation:
        return (k + 8) * u * (expected + sqrt(expected)) + 16 * u * u + rounding;
    case METRIC_jensenshannon: return (2 * k + 8) * u * expected + 4 * u + rounding;
    case METRIC_mahalanobis:
        relative = 64 * k * u; /* times the matrix' cancellation, which the tests keep small */
        break;
    case METRIC_yule: return (8 * k + 16) * u + rounding;
    case METRIC_minkowski: relative = (2 * k + 8) * u; break;
    default: relative = (2 * k + 4) * u; break;
    }
    return relative * fabs(expected) + rounding;
}

/* Compares every entry of a trial that ran with output full. x and y are (m, k), (n, k) or have one
 * batch dimension each. */
static void check_full(const struct trial *t) {
    struct distance_shape s;
    struct blasd_err err;
    struct blasd_ref_distance ref = {0};
    long double *in[5];
    int64_t at = 0, step_x, step_y;
    const struct blasd_tensor *d = trial_output(t, "d");
    assert_int_equal(blasd_distance_read(&t->job, &s, &err), 0);
    for (int i = 0; i < 5; i++) in[i] = points_of(t, i);
    ref.metric = blasd_distance_metrics[s.metric].name;
    ref.k = s.k;
    ref.p = (long double)s.p;
    ref.base = (long double)s.base;
    ref.w = given(t, IN_W) ? in[IN_W] : NULL;
    ref.v = in[IN_V];
    ref.vi = in[IN_VI];
    step_x = t->task.inputs[IN_X].rank > 2 && t->task.inputs[IN_X].shape[0] > 1 ? s.m * s.k : 0;
    step_y = t->task.inputs[IN_Y].rank > 2 && t->task.inputs[IN_Y].shape[0] > 1 ? s.n * s.k : 0;
    if (s.alone) step_y = step_x;
    for (int64_t b = 0; b < s.problems; b++) {
        for (int64_t i = 0; i < s.m; i++) {
            for (int64_t j = 0; j < s.n; j++, at++) {
                const long double *x = in[IN_X] + b * step_x + i * s.k;
                const long double *y = in[s.alone ? IN_X : IN_Y] + b * step_y + j * s.k;
                long double exact = blasd_ref_distance(&ref, x, y);
                double expected = (double)exact, got = trial_value(d, at);
                if (isnan(expected) && isnan(got)) continue;
                if (isinf(expected) && got == expected) continue;
                if (s.storage == BLASD_float16 && fabs(expected) > 65519 && isinf(got)) continue;
                if (!(fabsl((long double)got - exact) <=
                      (long double)(bound(&s, expected) * 1.0001)))
                    fail_msg("%s (%ld, %ld, %ld) entry %ld %ld of %ld: %.17g, expected %.17g",
                             ref.metric, (long)s.m, (long)s.n, (long)s.k, (long)i, (long)j, (long)b,
                             got, expected);
            }
        }
    }
    assert_int_equal(at, blasd_tensor_elements(d));
    for (int i = 0; i < 5; i++) free(in[i]);
}

/* Fills a tensor with numbers that suit the metric. */
static void fill(void *data, enum blasd_dtype dtype, int64_t n, const char *metric, double offset) {
    struct blasd_tensor from = blasd_tensor_make(BLASD_float64, 1, &n);
    struct blasd_tensor to = blasd_tensor_make(dtype, 1, &n);
    double *values = calloc((size_t)n + 1, sizeof *values);
    const char *const truths[] = {"hamming",       "jaccard",    "dice",
                                  "kulczynski1",   "russellrao", "rogerstanimoto",
                                  "sokalmichener", "yule",       "sokalsneath"};
    bool truth = false;
    assert_non_null(values);
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
        if (strcmp(metric, truths[i]) == 0) truth = true;
    for (int64_t i = 0; i < n; i++) {
        values[i] = offset + trial_normal();
        if (truth) values[i] = trial_random() % 2 == 0 ? 0 : 1;
        if (strcmp(metric, "jensenshannon") == 0) values[i] = fabs(values[i]);
    }
    from.data = values;
    to.data = data;
    if (n > 0) blasd_tensor_convert(&from, &to);
    free(values);
}

static struct trial *make(const char *metric, enum blasd_dtype dtype, int64_t m, int64_t n,
                          int64_t k, bool alone) {
    struct trial *t = trial_new("distance");
    void *x = trial_input(t, "x", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){m, k});
    fill(x, dtype, m * k, metric, 0);
    if (!alone) {
        void *y = trial_input(t, "y", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, k});
        fill(y, dtype, n * k, metric, 0);
    }
    trial_set_choice(t, "metric", metric);
    if (strcmp(metric, "minkowski") == 0) trial_set_float(t, "p", 3.5);
    if (strcmp(metric, "seuclidean") == 0) {
        double *v = trial_input(t, "V", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){k});
        for (int64_t d = 0; d < k; d++) v[d] = 0.25 + (double)d;
    }
    if (strcmp(metric, "mahalanobis") == 0) {
        double *vi = trial_input(t, "VI", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){k, k});
        for (int64_t d = 0; d < k; d++)
            for (int64_t e = 0; e < k; e++)
                vi[d * k + e] = d == e ? 4 + (double)k : (double)((d + e) % 3) / 4;
    }
    return t;
}

static void weigh(struct trial *t, int64_t k) {
    double *w = trial_input(t, "w", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){k});
    for (int64_t d = 0; d < k; d++) w[d] = d == 1 ? 0 : 0.25 * (double)(d % 7 + 1);
}

static void metrics_match_reference(void **state) {
    static const int64_t shapes[][3] = {{1, 1, 1},   {3, 5, 2},    {17, 9, 3},
                                        {4, 33, 1},  {33, 4, 16},  {2, 2, 70},
                                        {13, 65, 7}, {70, 130, 5}, {5, 3, 0}};
    const enum blasd_dtype dtypes[] = {BLASD_float64,  BLASD_float32, BLASD_float16,
                                       BLASD_bfloat16, BLASD_int32,   BLASD_bool};
    (void)state;
    for (int metric = 0; metric < DISTANCE_METRIC_COUNT; metric++) {
        const struct distance_metric_info *info = &blasd_distance_metrics[metric];
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (int c = 0; c < 12; c += trial_step(5)) {
                enum blasd_dtype dtype = dtypes[c % 6];
                bool alone = trial_random() % 2 == 0;
                struct trial *t = make(
                    info->name, dtype == BLASD_int32 || dtype == BLASD_bool ? BLASD_float64 : dtype,
                    shapes[s][0], shapes[s][1], shapes[s][2], alone);
                if (c >= 6 && info->extra == EXTRA_W) weigh(t, shapes[s][2]);
                assert_int_equal(trial_run(t), 0);
                check_full(t);
                trial_free(t);
            }
        }
    }
}

static void equal_points_are_zero_and_pairs_symmetric(void **state) {
    const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32};
    (void)state;
    for (int metric = 0; metric < DISTANCE_METRIC_COUNT; metric++) {
        const char *name = blasd_distance_metrics[metric].name;
        int64_t m = 75, k = 9;
        if (metric == METRIC_russellrao || metric == METRIC_kulczynski1)
            continue; /* not so there */
        for (int c = 0; c < 2; c++) {
            struct trial *t = make(name, dtypes[c], m, m, k, true);
            size_t row = (size_t)k * blasd_dtype_size(dtypes[c]);
            char *x = t->given[IN_X];
            memcpy(x + 70 * row, x + 3 * row, row); /* points 3 and 70 are equal */
            for (int64_t i = 0; i < m;
                 i++) { /* no point is all false: some metrics are 0/0 there */
                if (dtypes[c] == BLASD_float64)
                    ((double *)t->given[IN_X])[i * k] = 1;
                else
                    ((float *)t->given[IN_X])[i * k] = 1;
            }
            assert_int_equal(trial_run(t), 0);
            for (int64_t i = 0; i < m; i++) {
                for (int64_t j = 0; j < m; j++) {
                    double ij = trial_value(trial_output(t, "d"), i * m + j);
                    double ji = trial_value(trial_output(t, "d"), j * m + i);
                    bool equal = i == j || (i == 3 && j == 70) || (i == 70 && j == 3);
                    assert_memory_equal(&ij, &ji, sizeof ij);
                    if (equal && !(ij == 0)) fail_msg("%s of equal points is %g", name, ij);
                }
            }
            trial_free(t);
        }
    }
}

static void large_offsets_do_not_cancel(void **state) {
    struct trial *t = trial_new("distance");
    float *x = trial_input(t, "x", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){1, 1});
    float *y = trial_input(t, "y", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){1, 1});
    (void)state;
    x[0] = 512695;
    y[0] = 512804;
    assert_int_equal(trial_run(t), 0);
    assert_true(trial_value(trial_output(t, "d"), 0) == 109);
    trial_free(t);
    for (double offset = 1; offset < 1e13; offset *= 100) {
        for (int64_t k = 1; k <= 130; k += 43) {
            for (int c = 0; c < 2; c++) {
                enum blasd_dtype dtype = c == 0 ? BLASD_float64 : BLASD_float32;
                t = make(c == 0 ? "sqeuclidean" : "euclidean", dtype, 30, 40, k, false);
                fill(t->given[IN_X], dtype, 30 * k, "", offset);
                fill(t->given[IN_Y], dtype, 40 * k, "", offset);
                assert_int_equal(trial_run(t), 0);
                check_full(t);
                trial_free(t);
            }
        }
    }
}

static void huge_and_tiny_points_keep_their_distance(void **state) {
    const double scales[] = {1e-300, 1e-200, 1e-160, 1e160, 1e200, 1e300};
    (void)state;
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        struct trial *t = make("euclidean", BLASD_float64, 20, 20, 5, false);
        for (int i = 0; i < 100; i++) ((double *)t->given[IN_X])[i] *= scales[s];
        for (int i = 0; i < 100; i++) ((double *)t->given[IN_Y])[i] *= scales[s];
        assert_int_equal(trial_run(t), 0);
        check_full(t);
        trial_free(t);
    }
}

static void nonfinite_points_pass_through(void **state) {
    (void)state;
    for (int metric = METRIC_euclidean; metric <= METRIC_minkowski; metric++) {
        struct trial *t =
            make(blasd_distance_metrics[metric].name, BLASD_float64, 21, 37, 4, false);
        double *x = t->given[IN_X], *y = t->given[IN_Y];
        x[5] = NAN;
        x[40] = INFINITY;
        y[9] = -INFINITY;
        y[100] = NAN;
        assert_int_equal(trial_run(t), 0);
        for (int64_t i = 0; i < 21; i++) {
            for (int64_t j = 0; j < 37; j++) {
                double d = trial_value(trial_output(t, "d"), i * 37 + j);
                bool nan = i == 1 || j == 25, inf = i == 10 || j == 2;
                if (nan)
                    assert_true(isnan(d));
                else if (inf)
                    assert_true(isinf(d) || isnan(d));
                else
                    assert_true(isfinite(d));
            }
        }
        trial_free(t);
    }
}

static void batches_broadcast_and_join(void **state) {
    struct trial *list[5];
    (void)state;
    for (int i = 0; i < 5; i++) {
        void *x, *y;
        list[i] = trial_new("distance");
        x = trial_input(list[i], "x", BLASD_float32, BLASD_COLUMN_MAJOR, 3, (int64_t[]){6, 7, 3});
        y = trial_input(list[i], "y", BLASD_float32, BLASD_ROW_MAJOR, 3, (int64_t[]){1, 11, 3});
        fill(x, BLASD_float32, 6 * 7 * 3, "", 0);
        fill(y, BLASD_float32, 11 * 3, "", 0);
        trial_set_choice(list[i], "metric", "cityblock");
    }
    assert_int_equal(trial_run_batch(list, 5), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(list[i]->task.err.code, BLASD_OK);
        check_full(list[i]);
        trial_free(list[i]);
    }
}

static void empty_problems(void **state) {
    (void)state;
    for (int c = 0; c < 4; c++) {
        struct trial *t = make("euclidean", BLASD_float64, c & 1 ? 0 : 3, c & 2 ? 0 : 4, 2, false);
        assert_int_equal(trial_run(t), 0);
        assert_int_equal(blasd_tensor_elements(trial_output(t, "d")), c == 0 ? 12 : 0);
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_match_reference),
        cmocka_unit_test(equal_points_are_zero_and_pairs_symmetric),
        cmocka_unit_test(large_offsets_do_not_cancel),
        cmocka_unit_test(huge_and_tiny_points_keep_their_distance),
        cmocka_unit_test(nonfinite_points_pass_through),
        cmocka_unit_test(batches_broadcast_and_join),
        cmocka_unit_test(empty_problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
