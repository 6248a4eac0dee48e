/* Jobs of different shapes in one batch: as many launches as one shape takes, the answers that each
 * gets alone, and what is wrong with one of them is its own affair. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/device.h"
#include "kernels/solve/solve.h"
#include "tests/standin/library_standin.h"

#define MOST 24
#define SQUARES_LAUNCHES 11 /* of least squares in float64 */

static const struct blasd_kernel *kernel_of(const struct trial *t) {
    return blasd_backend_kernel(&blasd_backend, t->job.op);
}

static struct blasd_device *open_device(void) {
    struct blasd_device *device;
    struct blasd_err err = {0};
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    return device;
}

static void close_device(struct blasd_device *device) {
    blasd_backend.device_close(device);
    assert_int_equal(blasd_standin.device_blocks + blasd_standin.host_blocks, 0);
}

static void fill(void *data, enum blasd_dtype dtype, int64_t count) {
    for (int64_t i = 0; i < count; i++) trial_put(data, dtype, i, trial_uniform());
}

/* ---- one of each operation, of a size ---- */

static struct trial *system_of(enum blasd_dtype dtype, int64_t n) {
    struct trial *t = trial_new("solve");
    void *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
    void *b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
    fill(a, dtype, n * n);
    fill(b, dtype, n);
    for (int64_t i = 0; i < n; i++) trial_put(a, dtype, i * (n + 1), (double)n + 1);
    return t;
}

static struct trial *product_of(enum blasd_dtype dtype, int64_t n) {
    struct trial *t = trial_new("matmul");
    fill(trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n + 1}), dtype, n * (n + 1));
    fill(trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n + 1, 3}), dtype, 3 * (n + 1));
    return t;
}

static struct trial *points_of(enum blasd_dtype dtype, int64_t n) {
    struct trial *t = trial_new("distance");
    fill(trial_input(t, "x", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, 1 + n % 4}), dtype,
         n * (1 + n % 4));
    fill(trial_input(t, "y", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n + 3, 1 + n % 4}), dtype,
         (n + 3) * (1 + n % 4));
    return t;
}
static struct trial *nearest_of(enum blasd_dtype dtype, int64_t n) {
    struct trial *t = points_of(dtype, n);
    trial_set_choice(t, "metric", "cityblock");
    trial_set_choice(t, "output", n % 2 == 0 ? "argmin" : "topk");
    if (n % 2 == 1) trial_set_int(t, "k", 3);
    return t;
}

/* A regression of n observations and what else its size makes it: features, targets, an intercept.
 * y follows from x with noise. */
static struct trial *fit_of(const char *method, enum blasd_dtype dtype, int64_t n, int64_t p,
                            int64_t targets, bool weighted) {
    struct trial *t = trial_new("regression");
    void *x = trial_input(t, "x", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
    void *y =
        trial_input(t, "y", dtype, BLASD_ROW_MAJOR, targets > 1 ? 2 : 1, (int64_t[]){n, targets});
    fill(x, dtype, n * p);
    fill(y, dtype, n * targets);
    if (weighted) {
        void *w = trial_input(t, "sample_weight", dtype, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
        for (int64_t i = 0; i < n; i++) trial_put(w, dtype, i, 1.25 + trial_uniform());
    }
    trial_set_choice(t, "method", method);
    if (strcmp(method, "ridge") == 0) trial_set_float(t, "alpha", 0.5 + (double)n);
    trial_set_bool(t, "fit_intercept", n % 2 == 0);
    return t;
}
static struct trial *squares_of(enum blasd_dtype dtype, int64_t n) {
    return fit_of("ols", dtype, n, 1 + n % 11, 1 + n % 3, false);
}
static struct trial *wide_squares_of(enum blasd_dtype dtype, int64_t n) {
    return fit_of("ols", dtype, n, 25 + n % 3, 1 + n % 2, false);
}
static struct trial *ridge_of(enum blasd_dtype dtype, int64_t n) {
    return fit_of("ridge", dtype, n, 1 + n % 11, 1 + n % 4, true);
}
/* With errors that hold for any variances, which take the data once more. */
static struct trial *robust_of(enum blasd_dtype dtype, int64_t n) {
    struct trial *t = fit_of("ols", dtype, n, 1 + n % 5, 2, true);
    trial_set_choice(t, "cov_type", n % 3 == 0 ? "HC3" : "HC2");
    trial_set_bool(t, "residuals", n % 2 == 0);
    return t;
}

static const struct kind {
    const char *name;
    struct trial *(*make)(enum blasd_dtype dtype, int64_t n);
    enum blasd_dtype dtype;
    int64_t least, most; /* sizes that a launch can hold together */
} kinds[] = {
    {"products of cells", product_of, BLASD_float64, 2, 15},
    {"small products", product_of, BLASD_float32, 17, 40},
    {"systems of four lanes", system_of, BLASD_float64, 1, 4},
    {"systems of eight lanes", system_of, BLASD_float32, 5, 8},
    {"systems of sixteen lanes", system_of, BLASD_float64, 9, 16},
    {"systems of a warp", system_of, BLASD_float32, 17, 24},
    {"large systems of a warp", system_of, BLASD_float64, 25, 32},
    {"systems of a block", system_of, BLASD_float64, 65, 80},
    {"distances", points_of, BLASD_float32, 2, 90},
    {"nearest points", nearest_of, BLASD_float64, 4, 90},
    {"least squares", squares_of, BLASD_float64, 14, 60},
    {"least squares of more features", wide_squares_of, BLASD_float32, 33, 44},
    {"weighted ridge", ridge_of, BLASD_float32, 14, 60},
    {"robust errors", robust_of, BLASD_float64, 14, 40},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static bool may_meet(const struct trial *a, const struct trial *b) {
    struct blasd_key p = a->plan.key, q = b->plan.key;
    assert_non_null(kernel_of(a)->batch_key);
    kernel_of(a)->batch_key(&a->job, &a->plan, &p);
    kernel_of(b)->batch_key(&b->job, &b->plan, &q);
    return a->plan.batchable && b->plan.batchable && blasd_key_equal(&p, &q);
}

static int run(struct blasd_device *device, struct trial *const *trials, int count) {
    struct blasd_task tasks[MOST];
    struct blasd_err err = {0};
    int code;
    for (int i = 0; i < count; i++) {
        assert_int_equal(trial_plan(trials[i]), BLASD_OK);
        assert_true(may_meet(trials[0], trials[i]));
        trial_bind(trials[i]);
        tasks[i] = trials[i]->task;
    }
    code = kernel_of(trials[0])->run(device, tasks, count, &trial_watch.base, &err);
    for (int i = 0; i < count; i++) trials[i]->task = tasks[i];
    if (code != 0 && trial_watch.stop_after == 0)
        fail_msg("%s: %s", trials[0]->job.op->name, err.detail);
    return code;
}

/* All its outputs, one after the other; to be freed. */
static char *answer_of(const struct trial *t, size_t *bytes) {
    char *all = NULL;
    *bytes = 0;
    for (int o = 0; t->job.op->outputs[o].name != NULL; o++) {
        const struct blasd_tensor *out = &t->task.outputs[o];
        size_t more = out->rank >= 0 ? blasd_tensor_bytes(out) : 0;
        all = realloc(all, *bytes + more + 1);
        assert_non_null(all);
        if (more > 0) memcpy(all + *bytes, out->data, more);
        *bytes += more;
    }
    return all;
}

static long launches_of(struct blasd_device *device, struct trial *const *trials, int count) {
    long before = blasd_standin.launches;
    assert_int_equal(run(device, trials, count), 0);
    return blasd_standin.launches - before;
}

/* ---- what they are tested for ---- */

static void shapes_share_launches(void **state) {
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        struct blasd_device *device = open_device();
        struct trial *trials[MOST];
        char *alone[MOST];
        long launches = 0, least = 0;
        size_t bytes;
        for (int i = 0; i < MOST; i++) {
            trials[i] = kinds[k].make(kinds[k].dtype, trial_between(kinds[k].least, kinds[k].most));
            launches = launches_of(device, &trials[i], 1);
            if (i == 0 || launches > least) least = launches;
            assert_int_equal(trials[i]->task.err.code, BLASD_OK);
            alone[i] = answer_of(trials[i], &bytes);
        }
        launches = launches_of(device, trials, MOST);
        if (launches != least)
            fail_msg("%s: %ld launches, not %ld", kinds[k].name, launches, least);
        for (int i = 0; i < MOST; i++) {
            char *together = answer_of(trials[i], &bytes);
            assert_int_equal(trials[i]->task.err.code, BLASD_OK);
            assert_memory_equal(together, alone[i], bytes);
            free(together);
            free(alone[i]);
            trial_free(trials[i]);
        }
        close_device(device);
    }
}

/* A singular system among others, of its own size or not. */
static void one_that_is_wrong_fails_alone(void **state) {
    struct blasd_device *device = open_device();
    struct trial *trials[MOST];
    (void)state;
    for (int i = 0; i < MOST; i++) {
        int64_t n = trial_between(2, 40);
        trials[i] = system_of(BLASD_float64, n);
        if (i % 5 == 2)
            memset(trials[i]->given[BLASD_SOLVE_A], 0, (size_t)(n * n) * sizeof(double));
    }
    assert_int_equal(run(device, trials, MOST), 0);
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(trials[i]->task.err.code, i % 5 == 2 ? BLASD_E_singular_matrix : BLASD_OK);
        trial_free(trials[i]);
    }
    close_device(device);
}

/* Least squares, ridge and what has launches of its own, weighted or not, one with a feature that
 * stands there twice: as many launches as the kinds of kernels, each one's own answer. */
static struct trial *any_fit(int i) {
    static const char *const methods[] = {"ols", "ridge", "ols", "ridge", "gd", "lasso"};
    int64_t n = 30 + 5 * i, p = 1 + i % 7;
    struct trial *t = fit_of(methods[i % 6], BLASD_float64, n, p, 1 + i % 3, i % 4 == 1);
    double *x = t->given[0];
    if (i % 6 == 4) trial_set_int(t, "iterations", 20);
    if (i == 2 || i == 6) /* without and with an intercept */
        for (int64_t row = 0; row < n; row++) x[row * p + p - 1] = x[row * p];
    return t;
}

static void regressions_of_every_kind_share_launches(void **state) {
    struct blasd_device *device = open_device();
    struct trial *trials[MOST];
    char *alone[MOST];
    int warnings[MOST];
    long own = 0, launches, shared = 0;
    size_t bytes;
    (void)state;
    for (int i = 0; i < MOST; i++) {
        trials[i] = any_fit(i);
        launches = launches_of(device, &trials[i], 1);
        if (i % 6 >= 4)
            own += launches;
        else
            shared += launches;
        assert_int_equal(trials[i]->task.err.code, BLASD_OK);
        warnings[i] = trials[i]->task.warning_count;
        if (i % 6 < 4) assert_int_equal(warnings[i], i == 2 || i == 6 ? 1 : 0);
        alone[i] = answer_of(trials[i], &bytes);
    }
    launches = launches_of(device, trials, MOST);
    /* a dozen, and one more for each of products and slopes, whose kernels are others with weights
     * than without */
    if (launches - own != SQUARES_LAUNCHES + 2)
        fail_msg("%ld launches, not %d, where alone they take %ld", launches - own,
                 SQUARES_LAUNCHES + 2, shared);
    for (int i = 0; i < MOST; i++) {
        char *together = answer_of(trials[i], &bytes);
        assert_int_equal(trials[i]->task.err.code, BLASD_OK);
        assert_int_equal(trials[i]->task.warning_count, warnings[i]);
        assert_memory_equal(together, alone[i], bytes);
        free(together);
        free(alone[i]);
        trial_free(trials[i]);
    }
    close_device(device);
}

/* Parts of one task each, or some: where a batch is cut changes nothing. */
static void parts_of_a_mixed_batch(void **state) {
    const size_t part_bytes = blasd_cuda_sizes.part_bytes;
    (void)state;
    for (size_t k = 0; k < KINDS; k++)
        for (size_t part = 64; part <= (size_t)1 << 20; part *= trial_step(2) == 2 ? 4096 : 64) {
            struct blasd_device *device;
            struct trial *trials[MOST];
            char *right[MOST];
            size_t bytes;
            blasd_cuda_sizes.part_bytes = part_bytes;
            device = open_device();
            for (int i = 0; i < MOST; i++)
                trials[i] =
                    kinds[k].make(kinds[k].dtype, trial_between(kinds[k].least, kinds[k].most));
            assert_int_equal(run(device, trials, MOST), 0);
            for (int i = 0; i < MOST; i++) right[i] = answer_of(trials[i], &bytes);
            close_device(device);
            blasd_cuda_sizes.part_bytes = part;
            device = open_device();
            assert_int_equal(run(device, trials, MOST), 0);
            for (int i = 0; i < MOST; i++) {
                char *got = answer_of(trials[i], &bytes);
                assert_memory_equal(got, right[i], bytes);
                free(got);
                free(right[i]);
                trial_free(trials[i]);
            }
            close_device(device);
        }
    blasd_cuda_sizes.part_bytes = part_bytes;
}

/* Some 200 KB each, of inputs or of a result. */
static struct trial *wide_product_of(int64_t n, bool inputs) {
    int64_t m = inputs ? 3 : n, k = inputs ? n : 3;
    struct trial *t = trial_new("matmul");
    fill(trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){m, k}), BLASD_float64,
         m * k);
    fill(trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){k, n}), BLASD_float64,
         k * n);
    return t;
}

/* Tensors that are small one by one are many bytes together, which threads copy side by side. */
static void threads_copy_small_tensors(void **state) {
    struct blasd_device *device = open_device();
    struct trial *trials[MOST];
    char *right[MOST];
    size_t bytes;
    (void)state;
    for (int i = 0; i < MOST; i++) trials[i] = wide_product_of(trial_between(150, 190), i % 3 == 0);
    device->copy_threads = 1;
    assert_int_equal(run(device, trials, MOST), 0);
    for (int i = 0; i < MOST; i++) right[i] = answer_of(trials[i], &bytes);
    device->copy_threads = 5;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < MOST; i++)
            memset(trials[i]->task.outputs[0].data, 0xff,
                   blasd_tensor_bytes(&trials[i]->task.outputs[0]));
        assert_int_equal(run(device, trials, MOST), 0);
        for (int i = 0; i < MOST; i++) {
            char *got = answer_of(trials[i], &bytes);
            assert_memory_equal(got, right[i], bytes);
            free(got);
        }
    }
    for (int i = 0; i < MOST; i++) {
        free(right[i]);
        trial_free(trials[i]);
    }
    close_device(device);
}

static void cancel(struct trial *(*make)(enum blasd_dtype dtype, int64_t n)) {
    const size_t part_bytes = blasd_cuda_sizes.part_bytes;
    struct trial *trials[MOST];
    struct blasd_device *device;
    blasd_cuda_sizes.part_bytes = 1024;
    device = open_device();
    for (int i = 0; i < MOST; i++) trials[i] = make(BLASD_float64, trial_between(14, 16));
    trial_watch.calls = 0;
    trial_watch.stop_after = 2;
    assert_int_equal(run(device, trials, MOST), -(int)BLASD_E_cancelled);
    trial_watch.stop_after = 0;
    assert_int_equal(run(device, trials, MOST), 0);
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(trials[i]->task.err.code, BLASD_OK);
        trial_free(trials[i]);
    }
    close_device(device);
    blasd_cuda_sizes.part_bytes = part_bytes;
}

static void a_cancelled_batch_leaves_nothing(void **state) {
    (void)state;
    cancel(system_of);
    cancel(squares_of);
}

/* What is large, and what is complex, keeps to its like. */
static void large_jobs_keep_to_themselves(void **state) {
    struct trial *small = system_of(BLASD_float64, 8), *large = system_of(BLASD_float64, 200);
    struct trial *single = system_of(BLASD_float32, 8);
    (void)state;
    assert_int_equal(trial_plan(small), BLASD_OK);
    assert_int_equal(trial_plan(large), BLASD_OK);
    assert_int_equal(trial_plan(single), BLASD_OK);
    assert_false(may_meet(small, large));
    assert_false(may_meet(small, single));
    trial_free(small);
    trial_free(large);
    trial_free(single);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_share_launches),
        cmocka_unit_test(one_that_is_wrong_fails_alone),
        cmocka_unit_test(regressions_of_every_kind_share_launches),
        cmocka_unit_test(parts_of_a_mixed_batch),
        cmocka_unit_test(threads_copy_small_tensors),
        cmocka_unit_test(a_cancelled_batch_leaves_nothing),
        cmocka_unit_test(large_jobs_keep_to_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
