/* distance's outputs beside the full matrix: against the matrix itself; refusals; stopping. */
#include "tests/unit/kernels/kernel_support.h"

#include "base/err.h"
#include "kernels/distance/distance.h"

static double value(const struct trial *t, const char *output, int64_t i) {
    return trial_value(trial_output(t, output), i);
}

/* Points on a coarse grid, so that many distances are equal; some not numbers. */
static struct trial *make(enum blasd_dtype dtype, int64_t m, int64_t n, bool alone, bool odd) {
    struct trial *t = trial_new("distance");
    for (int input = 0; input < (alone ? 1 : 2); input++) {
        int64_t count = input == 0 ? m : n, all = count * 2;
        struct blasd_tensor from = blasd_tensor_make(BLASD_float64, 1, &all);
        struct blasd_tensor to = blasd_tensor_make(dtype, 1, &all);
        to.data = trial_input(t, input == 0 ? "x" : "y", dtype, BLASD_ROW_MAJOR, 2,
                              (int64_t[]){count, 2});
        from.data = calloc((size_t)all + 1, sizeof(double));
        assert_non_null(from.data);
        for (int64_t i = 0; i < all; i++)
            ((double *)from.data)[i] =
                odd && trial_random() % 40 == 0 ? NAN : (double)trial_between(-6, 6);
        if (all > 0) blasd_tensor_convert(&from, &to);
        free(from.data);
    }
    return t;
}

/* The same inputs with another output. */
static struct trial *again(const struct trial *t, const char *output) {
    struct trial *copy = trial_new("distance");
    for (int i = IN_X; i <= IN_Y; i++) {
        const struct blasd_tensor *tensor = &t->job.inputs[i].tensor;
        if (!blasd_job_has(&t->job, i)) continue;
        memcpy(trial_input(copy, i == IN_X ? "x" : "y", tensor->dtype, tensor->order, tensor->rank,
                           tensor->shape),
               t->given[i], blasd_tensor_bytes(tensor));
    }
    trial_set_choice(copy, "output", output);
    return copy;
}

static bool nearer(double a, int64_t i, double b, int64_t j) {
    if (isnan(a) || isnan(b)) return isnan(a) == isnan(b) ? i < j : isnan(b);
    return a < b || (a == b && i < j);
}

static bool same(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

/* The k nearest of row i by selection from the full matrix. */
static void check_nearest(const struct trial *full, const struct trial *t, int64_t m, int64_t n,
                          int64_t k, bool alone) {
    for (int64_t i = 0; i < m; i++) {
        double last = -1;
        int64_t last_j = -1;
        for (int64_t place = 0; place < k; place++) {
            int64_t best = -1;
            for (int64_t j = 0; j < n; j++) {
                double d = value(full, "d", i * n + j);
                if (alone && j == i) continue;
                if (place > 0 && !nearer(last, last_j, d, j)) continue;
                if (best < 0 || nearer(d, j, value(full, "d", i * n + best), best)) best = j;
            }
            last = value(full, "d", i * n + best);
            last_j = best;
            assert_int_equal(((int64_t *)trial_output(t, "index")->data)[i * k + place], best);
            assert_true(same(value(t, "d", i * k + place), last));
        }
    }
}

static void nearest_are_those_of_the_matrix(void **state) {
    static const int64_t sizes[][2] = {{1, 1}, {2, 3}, {5, 40}, {37, 9}, {6, 6000}, {130, 131}};
    const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32, BLASD_float16};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int c = 0; c < 6; c++) {
            bool alone = c >= 3 && sizes[s][0] > 1;
            int64_t m = sizes[s][0], n = alone ? m : sizes[s][1], others = alone ? n - 1 : n;
            int64_t k = others < 7 ? others : 7;
            struct trial *full = make(dtypes[c % 3], m, n, alone, s == 3 || s == 5), *t;
            assert_int_equal(trial_run(full), 0);
            t = again(full, "argmin");
            assert_int_equal(trial_run(t), 0);
            assert_int_equal(trial_output(t, "d")->rank, 1);
            check_nearest(full, t, m, n, 1, alone);
            trial_free(t);
            t = again(full, "topk");
            trial_set_int(t, "k", k);
            assert_int_equal(trial_run(t), 0);
            check_nearest(full, t, m, n, k, alone);
            trial_free(t);
            trial_free(full);
        }
    }
}

static void condensed_is_the_upper_triangle(void **state) {
    (void)state;
    for (int64_t m = 0; m < 150; m = m * 2 + 1) {
        for (int c = 0; c < 2; c++) {
            struct trial *full = make(c == 0 ? BLASD_float64 : BLASD_bfloat16, m, m, true, false);
            struct trial *t = again(full, "condensed");
            int64_t at = 0;
            assert_int_equal(trial_run(full), 0);
            assert_int_equal(trial_run(t), 0);
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = i + 1; j < m; j++, at++)
                    assert_true(value(t, "d", at) == value(full, "d", i * m + j));
            assert_int_equal(at, blasd_tensor_elements(trial_output(t, "d")));
            trial_free(t);
            trial_free(full);
        }
    }
}

static void within_lists_all_in_order(void **state) {
    static const int64_t sizes[][2] = {{0, 4}, {3, 0}, {1, 1}, {33, 70}, {90, 5000}};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int c = 0; c < 4; c++) {
            bool alone = c % 2 == 1;
            int64_t m = sizes[s][0], n = alone ? m : sizes[s][1], at = 0, room;
            struct trial *full = make(BLASD_float64, m, n, alone, s == 3), *t;
            const int64_t *splits, *index;
            assert_int_equal(trial_run(full), 0);
            t = again(full, "within");
            trial_set_float(t, "radius", c < 2 ? 3 : 0);
            trial_set_int(t, "max_pairs", 500000);
            assert_int_equal(trial_run(t), 0);
            splits = trial_output(t, "row_splits")->data;
            index = trial_output(t, "index")->data;
            room = blasd_tensor_elements(trial_output(t, "index"));
            for (int64_t i = 0; i < m; i++) {
                assert_int_equal(splits[i], at);
                for (int64_t j = 0; j < n; j++) {
                    double d = value(full, "d", i * n + j);
                    if (!(d <= (c < 2 ? 3 : 0)) || (alone && i == j)) continue;
                    assert_int_equal(index[at], j);
                    assert_true(value(t, "d", at) == d);
                    at++;
                }
            }
            assert_int_equal(splits[m], at);
            for (; at < room; at++) {
                assert_int_equal(index[at], -1);
                assert_true(isinf(value(t, "d", at)));
            }
            trial_free(t);
            trial_free(full);
        }
    }
}

static void too_many_pairs_say_how_many(void **state) {
    struct trial *full = make(BLASD_float64, 20, 30, false, false), *t = again(full, "within");
    (void)state;
    trial_set_float(t, "radius", 1000);
    trial_set_int(t, "max_pairs", 599);
    assert_int_equal(trial_run(t), BLASD_E_invalid_parameter);
    assert_string_equal(t->task.err.field, "params.max_pairs");
    assert_non_null(strstr(t->task.err.detail, "600"));
    trial_set_int(t, "max_pairs", 600);
    assert_int_equal(trial_run(t), 0);
    trial_free(t);
    trial_free(full);
}

/* Batch members that run in several threads, of every output. */
static void batches_have_every_output(void **state) {
    static const char *const outputs[] = {"full", "argmin", "topk", "within"};
    const int64_t count = 300, m = 70, n = 71;
    (void)state;
    for (int o = 0; o < 4; o++) {
        struct trial *t = trial_new("distance");
        float *x = trial_input(t, "x", BLASD_float32, BLASD_ROW_MAJOR, 3, (int64_t[]){count, m, 2});
        float *y = trial_input(t, "y", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){n, 2});
        for (int64_t i = 0; i < count * m * 2; i++) x[i] = (float)trial_normal();
        for (int64_t i = 0; i < n * 2; i++) y[i] = (float)trial_normal();
        trial_set_choice(t, "output", outputs[o]);
        if (o == 2) trial_set_int(t, "k", 3);
        if (o == 3) trial_set_float(t, "radius", 0.5);
        assert_int_equal(trial_run(t), 0);
        for (int64_t b = 0; b < count; b += 41) {
            struct trial *one = trial_new("distance");
            int64_t d = blasd_tensor_elements(trial_output(t, "d")) / count;
            memcpy(trial_input(one, "x", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){m, 2}),
                   x + b * m * 2, (size_t)(m * 2) * sizeof *x);
            memcpy(trial_input(one, "y", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){n, 2}), y,
                   (size_t)(n * 2) * sizeof *y);
            trial_set_choice(one, "output", outputs[o]);
            if (o == 2) trial_set_int(one, "k", 3);
            if (o == 3) trial_set_float(one, "radius", 0.5);
            assert_int_equal(trial_run(one), 0);
            assert_memory_equal((char *)trial_output(t, "d")->data + b * d * 4,
                                trial_output(one, "d")->data, (size_t)d * 4);
            if (o > 0)
                assert_memory_equal((char *)trial_output(t, "index")->data + b * d * 8,
                                    trial_output(one, "index")->data, (size_t)d * 8);
            trial_free(one);
        }
        trial_free(t);
    }
}

static void variances_and_covariances_come_from_the_points(void **state) {
    struct trial *t;
    double *x;
    (void)state;
    for (int c = 0; c < 2; c++) { /* with uncorrelated coordinates both metrics are the same */
        t = trial_new("distance");
        x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){4, 2});
        memcpy(x, (double[]){1, 10, -1, 10, 1, -10, -1, -10}, 8 * sizeof *x);
        trial_set_choice(t, "metric", c == 0 ? "seuclidean" : "mahalanobis");
        assert_int_equal(trial_run(t), 0);
        ASSERT_CLOSE(value(t, "d", 1), sqrt(3), 1e-15); /* variances 4/3 and 400/3 */
        ASSERT_CLOSE(value(t, "d", 3), sqrt(6), 1e-15);
        trial_free(t);
    }
    t = trial_new("distance");
    x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){4, 2});
    for (int i = 0; i < 8; i++) x[i] = i / 2;
    trial_set_choice(t, "metric", "mahalanobis");
    assert_int_equal(trial_run(t), BLASD_E_singular_matrix);
    trial_free(t);
}

/* Distances that have no end in float32 are not all farther than a radius that has one. */
static void radius_beyond_float32_is_refused(void **state) {
    static const enum blasd_dtype dtypes[] = {BLASD_float32, BLASD_float16, BLASD_bfloat16,
                                              BLASD_float64};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct trial *t = make(dtypes[i], 4, 5, false, false);
        trial_set_choice(t, "output", "within");
        trial_set_float(t, "radius", 3.5e38);
        assert_int_equal(trial_plan(t), i < 3 ? BLASD_E_invalid_parameter : BLASD_OK);
        if (i < 3) assert_string_equal(t->err.field, "params.radius");
        trial_set_float(t, "radius", INFINITY);
        assert_int_equal(trial_plan(t), BLASD_OK);
        trial_set_float(t, "radius", 3.4e38);
        assert_int_equal(trial_plan(t), BLASD_OK);
        trial_set_float(t, "radius", 1e300);
        trial_set_choice(t, "metric", "cosine"); /* computed in float64 */
        assert_int_equal(trial_plan(t), BLASD_OK);
        trial_free(t);
    }
}

static void bad_jobs_are_refused(void **state) {
    struct trial *t;
    (void)state;
    t = make(BLASD_float64, 4, 5, false, false);
    trial_set_choice(t, "output", "condensed");
    assert_int_equal(trial_plan(t), BLASD_E_invalid_parameter);
    trial_set_choice(t, "output", "within");
    assert_int_equal(trial_plan(t), BLASD_E_invalid_parameter);
    assert_string_equal(t->err.field, "params.radius");
    trial_set_choice(t, "output", "topk");
    trial_set_int(t, "k", 6);
    assert_int_equal(trial_plan(t), BLASD_E_invalid_parameter);
    assert_string_equal(t->err.field, "params.k");
    trial_free(t);
    t = make(BLASD_float64, 4, 5, false, false);
    trial_set_float(t, "p", 3); /* euclidean has none */
    assert_int_equal(trial_plan(t), BLASD_E_invalid_parameter);
    trial_set_choice(t, "metric", "minkowski");
    trial_set_float(t, "p", 0);
    assert_int_equal(trial_plan(t), BLASD_E_invalid_parameter);
    trial_set_float(t, "p", INFINITY);
    assert_int_equal(trial_plan(t), BLASD_OK);
    trial_input(t, "w", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){3});
    assert_int_equal(trial_plan(t), BLASD_E_shape_mismatch);
    assert_string_equal(t->err.field, "inputs.w");
    ((double *)trial_input(t, "w", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){2}))[1] = -1;
    assert_int_equal(trial_run(t), BLASD_E_out_of_range);
    trial_free(t);
    t = make(BLASD_float64, 4, 5, false, false);
    trial_input(t, "V", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){2});
    assert_int_equal(trial_plan(t), BLASD_E_unknown_input);
    trial_free(t);
    t = make(BLASD_float64, 2, 2, true, false);
    trial_set_choice(t, "metric", "mahalanobis");
    assert_int_equal(trial_plan(t), BLASD_E_missing_input);
    trial_free(t);
    t = make(BLASD_float64, 1, 1, true, false);
    trial_set_choice(t, "output", "argmin");
    assert_int_equal(trial_plan(t), BLASD_E_invalid_shape);
    trial_free(t);
    t = trial_new("distance");
    trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){3, 2});
    trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){3, 4});
    assert_int_equal(trial_plan(t), BLASD_E_shape_mismatch);
    trial_free(t);
    t = trial_new("distance");
    trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 3, (int64_t[]){2, 3, 2});
    trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 3, (int64_t[]){3, 3, 2});
    assert_int_equal(trial_plan(t), BLASD_E_shape_mismatch);
    trial_free(t);
}

static void long_work_can_be_stopped(void **state) {
    struct trial *t = make(BLASD_float32, 6000, 6000, false, false);
    (void)state;
    assert_int_equal(trial_run(t), 0);
    assert_true(trial_watch.calls >= 3);
    trial_watch.stop_after = 3;
    assert_int_equal(trial_run(t), BLASD_E_cancelled);
    trial_watch.stop_after = 0;
    trial_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_are_those_of_the_matrix),
        cmocka_unit_test(condensed_is_the_upper_triangle),
        cmocka_unit_test(within_lists_all_in_order),
        cmocka_unit_test(too_many_pairs_say_how_many),
        cmocka_unit_test(batches_have_every_output),
        cmocka_unit_test(variances_and_covariances_come_from_the_points),
        cmocka_unit_test(radius_beyond_float32_is_refused),
        cmocka_unit_test(bad_jobs_are_refused),
        cmocka_unit_test(long_work_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
