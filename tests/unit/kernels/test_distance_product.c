/* The nearest that a product finds are those of the matrix, bit by bit and tie by tie, whatever the
 * points are; and its bound decides where it is to. */
#include "tests/unit/kernels/kernel_support.h"

#include "kernels/distance/distance.h"

enum { M = 70, N = 1200 };

/* Points of one kind; `i` counts x and y together. */
enum kind { SPREAD, FAR_OFF, CLUSTERS, GRID, EQUAL, NO_NUMBERS, OUTLIER, TINY, KINDS };

static double draw(enum kind kind, int64_t i, int64_t d) {
    double x = trial_normal();
    switch (kind) {
    case FAR_OFF: return x + 1e6 * sin((double)d);
    case CLUSTERS: return x + (i % 3 == 0 ? 1e5 : i % 3 == 1 ? -1e5 : 0);
    case GRID: return (double)trial_between(0, 1) + (i % 2 == 0 ? 0 : 1e-9 * x); /* near ties */
    case EQUAL: return (double)(i % 9 * d % 5) + (i % 50 == 0 ? x : 0);
    case NO_NUMBERS: return trial_random() % 3000 == 0 ? NAN : i % 97 == 5 ? 0 : x;
    case OUTLIER: return i == 3 ? 1e9 * x : i == 30 && d == 2 ? INFINITY : x;
    case TINY: return x * 1e-16;
    default: return x;
    }
}

static void give(struct trial *t, const char *name, enum blasd_dtype dtype, enum kind kind,
                 int64_t rows, int64_t k) {
    int64_t all = rows * k;
    struct blasd_tensor wide = blasd_tensor_make(BLASD_float64, 1, &all), own = wide;
    double *data = calloc((size_t)all, sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < all; i++) data[i] = draw(kind, i / k, i % k);
    wide.data = data;
    own.dtype = dtype;
    own.data = trial_input(t, name, dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){rows, k});
    blasd_tensor_convert(&wide, &own);
    free(data);
}

static struct trial *with_output(const struct trial *t, const char *output) {
    struct trial *copy = trial_new("distance");
    for (int i = IN_X; i <= IN_Y; i++) {
        const struct blasd_tensor *tensor = &t->job.inputs[i].tensor;
        if (!blasd_job_has(&t->job, i)) continue;
        memcpy(trial_input(copy, i == IN_X ? "x" : "y", tensor->dtype, tensor->order, tensor->rank,
                           tensor->shape),
               t->given[i], blasd_tensor_bytes(tensor));
    }
    memcpy(copy->job.params, t->job.params, sizeof copy->job.params);
    trial_set_choice(copy, "output", output);
    return copy;
}

static bool before(double a, int64_t i, double b, int64_t j) {
    if (isnan(a) || isnan(b)) return isnan(a) == isnan(b) ? i < j : isnan(b);
    return a < b || (a == b && i < j);
}

/* Each of the k nearest comes after the one before it, and no other point comes before the last. */
static void compare(const struct trial *full, const struct trial *near, int64_t m, int64_t n,
                    int64_t k, bool alone, bool narrow) {
    const int64_t *index = trial_output(near, "index")->data;
    for (int64_t i = 0; i < m; i++) {
        int64_t last = index[i * k + k - 1], ahead = 0;
        double farthest = trial_value(trial_output(full, "d"), i * n + last);
        for (int64_t c = 0; c < k; c++) {
            int64_t j = index[i * k + c];
            double d = trial_value(trial_output(full, "d"), i * n + j);
            double got = trial_value(trial_output(near, "d"), i * k + c);
            assert_true(j >= 0 && j < n && !(alone && j == i));
            assert_true(d == got || (isnan(d) && isnan(got)));
            if (c == 0) continue;
            last = index[i * k + c - 1];
            double ahead_d = trial_value(trial_output(full, "d"), i * n + last);
            if (!before(ahead_d, last, d, j) && !(narrow && ahead_d == d))
                fail_msg("row %lld: %lld at %g before %lld at %g", (long long)i, (long long)last,
                         ahead_d, (long long)j, d);
        }
        last = index[i * k + k - 1];
        for (int64_t j = 0; j < n; j++) {
            double d = trial_value(trial_output(full, "d"), i * n + j);
            if ((alone && j == i) || (narrow && d == farthest)) continue;
            ahead += before(d, j, farthest, last);
        }
        if (narrow ? ahead > k - 1 : ahead != k - 1)
            fail_msg("row %lld: %lld points are nearer than the last of %lld", (long long)i,
                     (long long)ahead, (long long)k);
    }
}

static void nearest_by_product_are_those_of_the_matrix(void **state) {
    static const char *const metrics[] = {"euclidean", "sqeuclidean", "cosine", "correlation"};
    static const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32, BLASD_float16};
    static const int64_t counts[] = {1, 2, 10, 37}, depths[] = {2, 8, 50, 130};
    (void)state;
    for (int round = 0; round < KINDS * 12; round++) {
        enum kind kind = (enum kind)(round % KINDS);
        enum blasd_dtype dtype = dtypes[round / KINDS % 3];
        const char *metric = metrics[(round / KINDS + round) % 4];
        int64_t k = counts[round / KINDS % 4], deep = depths[trial_random() % 4];
        bool alone = trial_random() % 3 == 0;
        int64_t m = alone ? N : M;
        struct trial *full = trial_new("distance"), *near;
        struct distance_shape shape;
        give(full, "x", dtype, kind, m, deep);
        if (!alone) give(full, "y", dtype, kind, N, deep);
        trial_set_choice(full, "metric", metric);
        near = with_output(full, k == 1 ? "argmin" : "topk");
        if (k > 1) trial_set_int(near, "k", k);
        assert_int_equal(blasd_distance_read(&near->job, &shape, &near->err), 0);
        assert_true(blasd_distance_multiplies(&shape));
        assert_int_equal(trial_run(full), BLASD_OK);
        assert_int_equal(trial_run(near), BLASD_OK);
        /* float64 decides, a shorter type is what is shown */
        compare(full, near, m, N, k, alone, shape.storage != shape.arithmetic);
        trial_free(full);
        trial_free(near);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_by_product_are_those_of_the_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
