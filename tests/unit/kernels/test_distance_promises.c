/* What distance promises of cases that are easily lost: a covariance of nearly dependent features,
 * a radius that is a distance, weights of 0, rows without a direction. */
#include "tests/unit/kernels/kernel_support.h"

#include "kernels/distance/distance.h"

static bool warned(const struct trial *t, enum blasd_warning_code code) {
    for (int i = 0; i < t->task.warning_count; i++)
        if (t->task.warnings[i].code == code) return true;
    return false;
}

/* Inputs of float64 numbers in any dtype. */
static void give(struct trial *t, const char *name, enum blasd_dtype dtype, int rank,
                 const int64_t *shape, const double *from) {
    struct blasd_tensor wide = blasd_tensor_make(BLASD_float64, rank, shape);
    struct blasd_tensor own = blasd_tensor_make(dtype, rank, shape);
    wide.data = (void *)(uintptr_t)from;
    own.data = trial_input(t, name, dtype, BLASD_ROW_MAJOR, rank, shape);
    blasd_tensor_convert(&wide, &own);
}

enum { N = 60 };

/* Points (a, a + b 2^-digits, c) have the distances that (a, b, c) have: the numbers are whole, so
 * that the sums are exact. */
static void dependent_features_are_right_or_warned_of(void **state) {
    static const struct {
        enum blasd_dtype dtype;
        int digits; /* binary ones, to which two features are equal */
        bool warned;
    } cases[] = {{BLASD_float64, 2, false},  {BLASD_float64, 14, false}, {BLASD_float64, 20, false},
                 {BLASD_float64, 24, false}, {BLASD_float64, 31, true},  {BLASD_float64, 36, true},
                 {BLASD_float32, 4, false},  {BLASD_float32, 14, true},  {BLASD_float32, 16, true}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int offset = 0; offset < 2; offset++) {
            double plain[N * 3], close[N * 3], far = offset == 0 ? 0 : 64;
            struct trial *t[2] = {trial_new("distance"), trial_new("distance")};
            double most = 0;
            for (int64_t i = 0; i < N * 3; i++) plain[i] = (double)trial_between(-31, 31);
            for (int64_t i = 0; i < N * 3; i++)
                close[i] = i % 3 != 1 ? plain[i] + far
                                      : plain[i - 1] + ldexp(plain[i], -cases[c].digits) + far;
            give(t[0], "x", BLASD_float64, 2, (int64_t[]){N, 3}, plain);
            give(t[1], "x", cases[c].dtype, 2, (int64_t[]){N, 3}, close);
            for (int i = 0; i < 2; i++) {
                trial_set_choice(t[i], "metric", "mahalanobis");
                assert_int_equal(trial_run(t[i]), BLASD_OK);
            }
            for (int64_t i = 0; i < N * N; i++) {
                double d = trial_value(trial_output(t[0], "d"), i);
                double off = fabs(trial_value(trial_output(t[1], "d"), i) - d);
                if (d > 0 && off / d > most) most = off / d;
            }
            if (most > 32 * ldexp(1, cases[c].digits - 53) +
                           (cases[c].dtype == BLASD_float32 ? 0x1p-24 : 0) &&
                most > 1e-9)
                fail_msg("case %zu: %.3g", c, most);
            assert_int_equal(warned(t[1], BLASD_W_covariance_ill_conditioned), cases[c].warned);
            assert_int_equal(t[0]->task.warning_count, 0);
            trial_free(t[0]);
            trial_free(t[1]);
        }
}

static void within_includes_the_point_at_the_radius(void **state) {
    static const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32, BLASD_float16,
                                              BLASD_bfloat16};
    static const char *const metrics[] = {"euclidean", "sqeuclidean", "cityblock",
                                          "cosine",    "minkowski",   "jensenshannon"};
    (void)state;
    for (int round = 0; round < 240; round++) {
        enum blasd_dtype dtype = dtypes[round % 4];
        double points[7 * 3], radius = 0;
        const int64_t *index;
        int64_t found, at = trial_between(1, 6);
        for (int i = 0; i < 7 * 3; i++) points[i] = fabs(trial_normal());
        for (int pass = 0; pass < 2; pass++) {
            struct trial *t = trial_new("distance");
            bool listed = false;
            give(t, "x", dtype, 2, (int64_t[]){1, 3}, points);
            give(t, "y", dtype, 2, (int64_t[]){7, 3}, points);
            trial_set_choice(t, "metric", metrics[round / 4 % 6]);
            if (round / 4 % 6 == 4) trial_set_float(t, "p", 3);
            if (pass == 1) {
                trial_set_choice(t, "output", "within");
                trial_set_float(t, "radius", radius);
            }
            assert_int_equal(trial_run(t), BLASD_OK);
            if (pass == 0) {
                radius = trial_value(trial_output(t, "d"), at);
            } else {
                index = trial_output(t, "index")->data;
                found = ((const int64_t *)trial_output(t, "row_splits")->data)[1];
                for (int64_t i = 0; i < found; i++) {
                    listed |= index[i] == at;
                    assert_true(trial_value(trial_output(t, "d"), i) <= radius);
                }
                if (!listed) fail_msg("%s of %s", metrics[round / 4 % 6], blasd_dtype_name(dtype));
            }
            trial_free(t);
        }
    }
}

/* A coordinate of weight 0 is as if it were not there, in every metric that takes weights. */
static void weights_of_0_leave_out(void **state) {
    static const double ghosts[] = {NAN, INFINITY, -INFINITY, 0, 1e300};
    (void)state;
    for (int metric = 0; metric < DISTANCE_METRIC_COUNT; metric++) {
        const struct distance_metric_info *info = &blasd_distance_metrics[metric];
        if (info->extra != EXTRA_W) continue;
        for (int round = 0; round < 12; round++) {
            double with[2][5 * 4], without[2][5 * 3], w[4] = {1.5, 0, 2, 0.5}, v[3] = {1.5, 2, .5};
            enum blasd_dtype dtype = round % 2 ? BLASD_float32 : BLASD_float64;
            double order = round % 3 == 0 ? 1 : round % 3 == 1 ? 2 : 3.5;
            struct trial *t[2] = {trial_new("distance"), trial_new("distance")};
            for (int s = 0; s < 2; s++)
                for (int i = 0; i < 5 * 4; i++) {
                    double value = fabs(trial_normal()) > 1 ? fabs(trial_normal()) : 0;
                    if (metric == METRIC_dice) value = value != 0;
                    with[s][i] = i % 4 == 1 ? ghosts[trial_between(0, 4)] : value;
                    if (i % 4 != 1) without[s][i / 4 * 3 + (i % 4 + 1) / 2] = value;
                }
            for (int i = 0; i < 2; i++) {
                int64_t k = i == 0 ? 4 : 3;
                give(t[i], "x", dtype, 2, (int64_t[]){5, k}, i == 0 ? with[0] : without[0]);
                give(t[i], "y", dtype, 2, (int64_t[]){5, k}, i == 0 ? with[1] : without[1]);
                give(t[i], "w", dtype, 1, &k, i == 0 ? w : v);
                trial_set_choice(t[i], "metric", info->name);
                if (metric == METRIC_minkowski) trial_set_float(t[i], "p", order);
                assert_int_equal(trial_run(t[i]), BLASD_OK);
            }
            for (int64_t i = 0; i < 25; i++) {
                double d = trial_value(trial_output(t[0], "d"), i);
                double expected = trial_value(trial_output(t[1], "d"), i);
                if (isnan(expected)
                        ? !isnan(d)
                        : d != expected && !(fabs(d - expected) <= 1e-6 * (1 + expected)))
                    fail_msg("%s: %g, not %g", info->name, d, expected);
            }
            trial_free(t[0]);
            trial_free(t[1]);
        }
    }
}

/* Warned of where there is one, in x or in y; in the company of other problems, too. */
static void rows_without_a_direction(void **state) {
    static const struct {
        const char *metric;
        double row[3];
        bool warned;
    } cases[] = {{"cosine", {0, 0, 0}, true},          {"cosine", {5, 5, 5}, false},
                 {"correlation", {5, 5, 5}, true},     {"correlation", {0, 0, 0}, true},
                 {"correlation", {5, 5, 6}, false},    {"jensenshannon", {0, 0, 0}, true},
                 {"jensenshannon", {-1, 0, 1}, false}, {"euclidean", {0, 0, 0}, false},
                 {"cosine", {NAN, 0, 0}, false}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int place = 0; place < 4; place++) {
            struct trial *t = trial_new("distance");
            double points[2][2 * 3 * 3];
            for (int i = 0; i < 2 * 18; i++) points[i / 18][i % 18] = 1 + fabs(trial_normal());
            for (int d = 0; d < 3; d++) points[place / 2][place % 2 * 12 + d] = cases[c].row[d];
            give(t, "x", BLASD_float64, 3, (int64_t[]){2, 3, 3}, points[0]);
            give(t, "y", BLASD_float64, 3, (int64_t[]){2, 3, 3}, points[1]);
            trial_set_choice(t, "metric", cases[c].metric);
            assert_int_equal(trial_run(t), BLASD_OK);
            assert_int_equal(warned(t, BLASD_W_zero_row), cases[c].warned);
            assert_int_equal(t->task.warning_count, cases[c].warned);
            trial_free(t);
        }
}

/* Two points against n others of three coordinates; `third`: what the last one is made of. */
static struct trial *with_third(const char *metric, int64_t n, bool sum, double constant) {
    struct trial *t = trial_new("distance");
    double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){2, 3});
    double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, 3});
    for (int64_t i = 0; i < n + 2; i++) {
        double *row = i < 2 ? x + 3 * i : y + 3 * (i - 2);
        row[0] = trial_normal();
        row[1] = trial_normal();
        row[2] = sum ? row[0] + row[1] : constant;
    }
    trial_set_choice(t, "metric", metric);
    return t;
}

/* Whether a covariance matrix has an inverse does not hang on how its zeros are rounded, nor on how
 * many points there are. */
static void singular_covariances(void **state) {
    static const int64_t counts[] = {10, 300, 3001, 40003};
    static const double constants[] = {0, 0.1, 0.7, -3.141592653589793, 1e300 / 3, 1e-300 / 3};
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct trial *t = with_third("mahalanobis", counts[round % 3], true, 0);
        assert_int_equal(trial_run(t), BLASD_E_singular_matrix);
        trial_free(t);
    }
    for (int round = 0; round < 24; round++) {
        double constant = constants[round / 4];
        struct trial *t = with_third("mahalanobis", counts[round % 4], false, constant);
        assert_int_equal(trial_run(t), BLASD_E_singular_matrix);
        trial_free(t);
        t = with_third("seuclidean", counts[round % 4], false, constant);
        assert_int_equal(trial_run(t), BLASD_OK); /* 0 over 0 */
        assert_true(isnan(trial_value(trial_output(t, "d"), 0)));
        trial_free(t);
    }
}

/* The last of a few coordinates is the sum of multiples of the others, but for rounding: of little
 * data it is chance whether that leaves a pivot above 0. Noise that is no rounding counts. */
static void singular_but_for_rounding(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        int64_t k = 2 + round % 3, n = round % 5 == 4 ? 40 : k + 2 + round % 5;
        double factors[3], noise = round % 10 == 9 ? 1e-5 : 0;
        struct trial *t = trial_new("distance");
        double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, k});
        for (int d = 0; d < 3; d++) factors[d] = trial_normal() * pow(10, 3 * trial_uniform());
        for (int64_t i = 0; i < n * k; i++) {
            x[i] = trial_normal() + (round % 4 == 0 ? 1e3 : 0);
            if (i % k != k - 1) continue;
            x[i] *= noise * (fabs(factors[0]) + fabs(factors[1]) + fabs(factors[2]));
            for (int64_t d = 0; d < k - 1; d++) x[i] += factors[d] * x[i - k + 1 + d];
        }
        trial_set_choice(t, "metric", "mahalanobis");
        assert_int_equal(trial_run(t), noise > 0 ? BLASD_OK : BLASD_E_singular_matrix);
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dependent_features_are_right_or_warned_of),
        cmocka_unit_test(within_includes_the_point_at_the_radius),
        cmocka_unit_test(weights_of_0_leave_out),
        cmocka_unit_test(rows_without_a_direction),
        cmocka_unit_test(singular_covariances),
        cmocka_unit_test(singular_but_for_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
