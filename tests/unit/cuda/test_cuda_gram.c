/* regression on CUDA beside the CPU's: the same jobs through both, of every method and shape, whole
 * what the device refuses; stopping it. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "tests/unit/kernels/kernel_support.h"

#include "base/err.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/tuning.h"
#include "tests/standin/library_standin.h"

struct blasd_device;

/* Both backends' outputs, side by side. */
static void run_on(const struct blasd_backend *backend, struct blasd_device *device,
                   struct trial *t) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(backend, t->job.op);
    struct blasd_err err = {0};
    assert_int_equal(trial_plan(t), BLASD_OK);
    if (backend != &TRIAL_BACKEND) /* whose kernels may want inputs of other dtypes */
        assert_int_equal(blasd_job_plan(&t->job, &t->plan, &err), 0);
    trial_bind(t);
    if (kernel->run(device, &t->task, 1, NULL, &err) != 0) fail_msg("%s", err.detail);
    if (t->task.err.code != BLASD_OK) fail_msg("%s", t->task.err.detail);
}

static struct blasd_device *cpu_device(void) {
    static struct blasd_device *device;
    struct blasd_err err;
    if (device == NULL) assert_int_equal(blasd_backend_cpu.device_open(0, &device, &err), 0);
    return device;
}

/* Outputs that both versions may end with differently: how many sweeps, and what is left; of a fit
 * that goes through every point, what follows from its rounding. */
static bool compared(const char *name, bool exact) {
    static const char *const any[] = {"n_iter", "dual_gap", NULL};
    static const char *const of_exact[] = {"loglik", "aic", "bic", "fvalue", NULL};
    for (int i = 0; any[i] != NULL; i++)
        if (strcmp(name, any[i]) == 0) return false;
    for (int i = 0; exact && of_exact[i] != NULL; i++)
        if (strcmp(name, of_exact[i]) == 0) return false;
    return true;
}

static void compare(struct trial *t, double tolerance, const char *what) {
    double *kept[BLASD_MAX_OUTPUTS] = {0}, largest;
    const struct blasd_op *op = t->job.op;
    int warnings;
    bool exact, bounded;
    run_on(&blasd_backend_cpu, cpu_device(), t);
    warnings = t->task.warning_count;
    /* the host's bound of a ridge's error is pessimistic, and warns of some that are right */
    bounded = strstr(t->task.method, "penalty in double-double") != NULL;
    exact = trial_value(trial_output(t, "ssr"), 0) < 1e-18 * trial_value(trial_output(t, "tss"), 0);
    for (int o = 0; op->outputs[o].name != NULL; o++) {
        int64_t count;
        if (t->task.outputs[o].rank < 0) continue;
        count = blasd_tensor_elements(&t->task.outputs[o]);
        kept[o] = calloc((size_t)count + 1, sizeof(double));
        assert_non_null(kept[o]);
        for (int64_t i = 0; i < count; i++) kept[o][i] = trial_value(&t->task.outputs[o], i);
    }
    run_on(&blasd_backend, trial_device(), t);
    if (t->task.warning_count != warnings && !(bounded && t->task.warning_count < warnings))
        fail_msg("%s: %d warnings, expected %d", what, t->task.warning_count, warnings);
    for (int o = 0; op->outputs[o].name != NULL; o++) {
        const struct blasd_tensor *out = &t->task.outputs[o];
        int64_t count = out->rank < 0 ? 0 : blasd_tensor_elements(out);
        largest = 1;
        for (int64_t i = 0; i < count; i++)
            if (fabs(kept[o][i]) < INFINITY) largest = fmax(largest, fabs(kept[o][i]));
        /* the condition of what is singular is how zero was rounded */
        if (strcmp(op->outputs[o].name, "cond") == 0 && count > 0 && kept[o][0] > 1e15 &&
            trial_value(out, 0) > 1e15)
            count = 0;
        if (t->task.warning_count < warnings && strcmp(op->outputs[o].name, "info") == 0)
            count = 0; /* which names the warning */
        for (int64_t i = 0; compared(op->outputs[o].name, exact) && i < count; i++) {
            double got = trial_value(out, i), expected = kept[o][i];
            double within = tolerance * largest;
            if (out->dtype == BLASD_float32) within += 1e-6 * largest;
            if (isnan(expected) ? !isnan(got)
                                : got != expected && !(fabs(got - expected) <= within))
                fail_msg("%s: %s[%ld] is %.17g, on the CPU %.17g", what, op->outputs[o].name,
                         (long)i, got, expected);
        }
        free(kept[o]);
    }
}

struct form {
    int64_t batch, n, p, t; /* batch 0 and t 0: no such dimension */
    bool weighted, deficient, single;
    double offset;
};

static void *give(struct trial *t, const char *name, const struct form *f, int64_t a, int64_t b) {
    int64_t shape[3];
    int rank = 0;
    if (f->batch > 0) shape[rank++] = f->batch;
    shape[rank++] = a;
    if (b > 0 || strcmp(name, "x") == 0) shape[rank++] = b;
    return trial_input(t, name, f->single ? BLASD_float32 : BLASD_float64, BLASD_ROW_MAJOR, rank,
                       shape);
}

static void set(const struct form *f, void *to, int64_t i, double v) {
    if (f->single)
        ((float *)to)[i] = (float)v;
    else
        ((double *)to)[i] = v;
}

/* y follows from x with noise; a deficient x has twice the same feature. */
static struct trial *make(const struct form *f) {
    struct trial *t = trial_new("regression");
    int64_t batch = f->batch > 0 ? f->batch : 1, targets = f->t > 0 ? f->t : 1;
    void *x = give(t, "x", f, f->n, f->p), *y = give(t, "y", f, f->n, f->t);
    for (int64_t i = 0; i < batch * f->n; i++) {
        double sum = 0, first = 0;
        for (int64_t j = 0; j < f->p; j++) {
            double v = f->offset * (double)(j + 1) + trial_normal();
            if (f->deficient && j == f->p - 1) v = first;
            if (j == 0) first = v;
            set(f, x, i * f->p + j, v);
            sum += v * (double)(j % 3);
        }
        for (int64_t l = 0; l < targets; l++)
            set(f, y, i * targets + l, sum * (double)(l + 1) + trial_normal());
    }
    if (f->weighted) {
        void *w = give(t, "sample_weight", f, f->n, 0);
        for (int64_t i = 0; i < batch * f->n; i++)
            set(f, w, i, 0.25 * (double)(1 + trial_random() % 9));
    }
    return t;
}

static const char *const methods[] = {"ols", "ridge", "lasso", "elastic_net", "gd"};
static const char *const covs[] = {"nonrobust", "HC0", "HC1", "HC2", "HC3"};

static void set_method(struct trial *t, int method, int cov, bool intercept, bool residuals) {
    trial_set_choice(t, "method", methods[method]);
    trial_set_bool(t, "fit_intercept", intercept);
    trial_set_bool(t, "residuals", residuals);
    if (method == 0) {
        trial_set_choice(t, "cov_type", covs[cov]);
        trial_set_bool(t, "cov_params", cov % 2 == 1);
    }
    if (method >= 1 && method <= 3) trial_set_float(t, "alpha", method == 1 ? 2.5 : 0.05);
    if (method == 3) trial_set_float(t, "l1_ratio", 0.3);
    if (method == 4) {
        trial_set_float(t, "learning_rate", 1e-3);
        trial_set_int(t, "iterations", 37);
    }
}

static const struct form forms[] = {
    {0, 40, 3, 0, false, false, false, 1},   {0, 40, 3, 2, true, false, false, 100},
    {3, 17, 5, 0, false, false, false, 0},   {3, 17, 5, 3, true, false, true, 1},
    {0, 300, 30, 0, true, false, false, 1},  {0, 200, 27, 5, false, false, false, 1},
    {0, 30, 4, 2, false, true, false, 1},    {0, 60, 33, 0, true, true, false, 0},
    {0, 12, 20, 0, false, false, false, 0},  {0, 1, 1, 0, false, false, false, 1},
    {0, 25, 1, 9, true, false, false, 0},    {2, 9, 0, 2, false, false, false, 0},
    {0, 2600, 3, 0, true, false, false, 1},  {0, 20, 200, 0, true, false, false, 0},
    {0, 50, 2, 0, false, false, false, 1e7}, {0, 1500, 6, 2, false, false, true, 3},
};

static void both_backends_agree(void **state) {
    (void)state;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        for (int method = 0; method < 5; method += trial_step(2)) {
            for (int c = 0; c < 2; c++) {
                struct trial *t;
                char what[80];
                int cov = (int)(f + (size_t)c) % 5;
                if (method == 4 && forms[f].offset > 10) continue; /* it would diverge */
                if (method == 2 && forms[f].deficient) continue;   /* any of many solutions */
                if (method >= 2 && forms[f].offset > 1e3 && c == 1) continue; /* tol is coarse */
                t = make(&forms[f]);
                set_method(t, method, cov, c == 0 || forms[f].p == 0, c == 0);
                snprintf(what, sizeof what, "form %d, %s, %s, %s", (int)f, methods[method],
                         method == 0 ? covs[cov] : "", c == 0 ? "intercept" : "none");
                /* robust errors of an exact fit are the rounding of y */
                compare(t, forms[f].offset > 1e3 ? 1e-6 : 1e-8, what);
                trial_free(t);
            }
        }
    }
}

/* 25 to 56 columns without weights and 1024 rows: the matrix is summed in whole numbers. Features
 * of all sizes, values of one that lie far apart, penalties that outweigh features, more rows than
 * sums of bytes may grow over. */
static void whole_numbers_agree(void **state) {
    static const struct form fits[] = {
        {0, 1030, 30, 0, false, false, true, 1},
        {0, 1056, 52, 3, false, false, false, 1},
        {2, 1100, 26, 0, false, false, false, 100},
        {0, 8300, 25, 0, false, false, false, 0},
    };
    int units = trial_device()->facts.units;
    (void)state;
    for (int i = 0; i < 12; i += trial_step(5)) {
        const struct form *f = &fits[i % 4];
        struct trial *t;
        char what[40];
        if (i >= 4 && i % 4 == 3) continue;
        t = make(f);
        for (int64_t k = 0; i >= 4 && !f->single && k < f->n * f->p; k++)
            set(f, t->given[0], k,
                ldexp(trial_normal(), (int)(3 * (k % f->p)) - 40 - (int)(trial_random() % 60)));
        set_method(t, i < 8 ? 0 : 1, 0, i % 4 != 3, false);
        if (i >= 8) trial_set_float(t, "alpha", 1e6);
        if (i == 3) trial_device()->facts.units = 1;
        snprintf(what, sizeof what, "whole numbers %d", i);
        compare(t, 1e-8, what);
        trial_device()->facts.units = units;
        trial_free(t);
    }
}

/* Wide, and so large that the device does it. */
static void wide_penalised_fits_agree(void **state) {
    const struct form f = {0, 260, 400, 0, true, false, false, 0};
    struct trial *t = make(&f);
    (void)state;
    TRIAL_FULL();
    set_method(t, 3, 0, true, true);
    trial_set_float(t, "alpha", 1.5);
    compare(t, 1e-8, "wide elastic net");
    trial_free(t);
}

/* Each problem of a batch has units of its own: problem 2 is problem 0 times powers of two, and so
 * are its outputs, to the last bit, whole and in a batch with one near 1. */
static void far_problems_have_units_of_their_own(void **state) {
    const struct form f = {3, 17, 4, 2, true, false, false, 1};
    const int far_y[] = {600, -700}, far_w = -640;
    (void)state;
    for (int method = 0; method < 2; method++) {
        struct trial *t = make(&f);
        double *y = t->given[1], *w = t->given[2], *x = t->given[0];
        int weight = method == 0 ? far_w : 0; /* ridge's penalty is tied to them */
        memcpy(x + 2 * f.n * f.p, x, (size_t)(f.n * f.p) * sizeof *x);
        for (int64_t i = 0; i < f.n * f.t; i++) y[2 * f.n * f.t + i] = ldexp(y[i], far_y[i % f.t]);
        for (int64_t i = 0; i < f.n; i++) w[2 * f.n + i] = ldexp(w[i], weight);
        set_method(t, method, 4, true, true);
        run_on(&blasd_backend, trial_device(), t);
        for (int64_t l = 0; l < f.t; l++) {
            double ssr = trial_value(trial_output(t, "ssr"), l);
            double far = trial_value(trial_output(t, "ssr"), 2 * f.t + l);
            assert_true(far == ldexp(ssr, 2 * far_y[l] + weight));
            for (int64_t j = 0; j < f.p; j++)
                assert_true(trial_value(trial_output(t, "coef"), (2 * f.t + l) * f.p + j) ==
                            ldexp(trial_value(trial_output(t, "coef"), l * f.p + j), far_y[l]));
            for (int64_t i = 0; i < f.n; i++)
                assert_true(
                    trial_value(trial_output(t, "residuals"), (2 * f.n + i) * f.t + l) ==
                    ldexp(trial_value(trial_output(t, "residuals"), i * f.t + l), far_y[l]));
            for (int64_t j = 0; method == 0 && j < f.p + 1; j++)
                assert_true(
                    trial_value(trial_output(t, "tvalues"), (2 * f.t + l) * (f.p + 1) + j) ==
                    trial_value(trial_output(t, "tvalues"), l * (f.p + 1) + j));
        }
        trial_free(t);
    }
}

static void long_descents_can_be_stopped(void **state) {
    const struct form f = {0, 30, 2, 0, false, false, false, 0};
    struct trial *t = make(&f);
    (void)state;
    set_method(t, 4, 0, true, false);
    trial_set_int(t, "iterations", 500000000);
    trial_watch.stop_after = 1;
    assert_int_equal(trial_run(t), BLASD_E_cancelled);
    trial_watch.stop_after = 0;
    trial_free(t);
}

/* All outputs of a task, one after the other. */
static unsigned char *outputs_of(struct trial *t, size_t *size) {
    unsigned char *all = NULL;
    *size = 0;
    for (int o = 0; t->job.op->outputs[o].name != NULL; o++) {
        const struct blasd_tensor *out = &t->task.outputs[o];
        if (out->rank < 0) continue;
        all = realloc(all, *size + blasd_tensor_bytes(out) + 1);
        assert_non_null(all);
        memcpy(all + *size, out->data, blasd_tensor_bytes(out));
        *size += blasd_tensor_bytes(out);
    }
    return all;
}

/* A block for each problem, or the whole grid for one after the other: the same bits, of every
 * method, of columns that depend on others and of graded ones. */
static void a_grid_makes_a_blocks_bits(void **state) {
    static const struct form fits[] = {
        {0, 40, 1, 0, false, false, false, 0},   {3, 70, 31, 2, true, false, false, 1},
        {2, 90, 32, 0, false, true, false, 0},   {0, 90, 33, 3, false, false, true, 100},
        {2, 100, 65, 0, false, false, false, 0},
    };
    int from = blasd_cuda_tuning.spread_from, units = trial_device()->facts.units;
    (void)state;
    /* of the widest, which takes most of the time, one */
    for (size_t i = 0; i <= 4 * (sizeof fits / sizeof *fits - 1); i += (size_t)trial_step(3)) {
        const struct form *f = &fits[i / 4];
        int method = i % 4 == 3 ? 1 : 0, cov = i % 4 == 2 ? 4 : 0;
        struct trial *t = make(f);
        unsigned char *one, *other;
        size_t size, again;
        for (int64_t k = 0; i % 4 == 1 && k < f->n * f->p; k++) /* graded */
            set(f, t->given[0], k, ldexp(trial_normal(), (int)(5 * (k % f->p)) - 80));
        set_method(t, method, cov, i % 2 == 0, true);
        blasd_cuda_tuning.spread_from = 1000;
        if (trial_run(t) != BLASD_OK) fail_msg("form %zu: %s", i, t->task.err.detail);
        one = outputs_of(t, &size);
        blasd_cuda_tuning.spread_from = 1;
        for (int blocks = 1; blocks <= 3; blocks += 2) {
            trial_device()->facts.units = blocks;
            assert_int_equal(trial_run(t), 0);
            other = outputs_of(t, &again);
            assert_int_equal(size, again);
            if (memcmp(one, other, size) != 0)
                fail_msg("form %zu: %d blocks make other bits", i, blocks);
            free(other);
        }
        trial_device()->facts.units = units;
        blasd_cuda_tuning.spread_from = from;
        free(one);
        trial_free(t);
    }
}

/* From 200 coefficients on, with an intercept among them; a narrower one by hand, for the shim is
 * slow. */
static void wide_fits_have_the_grid(void **state) {
    static const struct form fits[] = {{0, 204, 199, 2, false, false, false, 0},
                                       {2, 84, 70, 0, true, true, false, 1}};
    int units = trial_device()->facts.units, from = blasd_cuda_tuning.spread_from;
    (void)state;
    TRIAL_FULL();
    trial_device()->facts.units = 2;
    for (int i = 0; i < 2; i++) {
        struct trial *t = make(&fits[i]);
        blasd_cuda_tuning.spread_from = i == 0 ? from : 70;
        set_method(t, i, 0, i == 0, false);
        if (i == 1) trial_set_float(t, "alpha", 0.5);
        compare(t, 1e-9, "wide fit");
        trial_free(t);
    }
    blasd_cuda_tuning.spread_from = from;
    trial_device()->facts.units = units;
}

/* gd with more coefficients than a block's registers hold: many steps are one launch all the same,
 * and what comes out does not depend on how many blocks make them. */
static void wide_descents_are_one_launch(void **state) {
    const struct form f = {2, 20, 130, 2, false, false, false, 0};
    struct trial *t = make(&f);
    int units = trial_device()->facts.units;
    unsigned char *one, *other;
    long before, few;
    size_t size, again;
    (void)state;
    set_method(t, 4, 0, true, false);
    trial_set_float(t, "learning_rate", 1e-3);
    trial_set_int(t, "iterations", 1);
    before = blasd_standin.launches;
    assert_int_equal(trial_run(t), 0);
    few = blasd_standin.launches - before;
    for (int steps = 56; steps <= 57; steps++) {
        trial_set_int(t, "iterations", steps);
        before = blasd_standin.launches;
        compare(t, 1e-11, "wide descent");
        assert_int_equal(blasd_standin.launches - before, few);
        one = outputs_of(t, &size);
        trial_device()->facts.units = 3;
        assert_int_equal(trial_run(t), 0);
        trial_device()->facts.units = units;
        other = outputs_of(t, &again);
        assert_int_equal(size, again);
        assert_memory_equal(one, other, size);
        free(one);
        free(other);
    }
    trial_free(t);
}

/* gd with as many coefficients as fit into a block's registers, and more. */
static void descents_of_every_width_agree(void **state) {
    static const int64_t widths[] = {7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 150};
    (void)state;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i += (size_t)trial_step(3)) {
        const struct form f = {0, 20, widths[i], i % 3 == 0 ? 2 : 0, false, false, false, 0};
        struct trial *t = make(&f);
        set_method(t, 4, 0, i % 2 == 0, false);
        compare(t, 1e-11, "descent");
        trial_free(t);
    }
}

/* Two features that differ by one part in ten thousand: the Gram matrix has a condition of 1e9.
 * What the fit says along their difference is compared with the data, in long double. */
static void alike_features_keep_their_digits(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        const struct form f = {0, i < 4 ? 80 : 1030, i < 4 ? 4 : 27, 0, false, false, false, 0};
        const int64_t n = f.n, p = f.p;
        const int method = i % 4;
        const double l1 = method == 2 ? 8e-6 : method == 3 ? 2.4e-6 : 0; /* alpha ratio n */
        const double l2 = method == 1 ? 1e-7 : method == 3 ? 5.6e-6 : 0;
        struct trial *t = make(&f);
        double *x = t->given[0], *y = t->given[1], b[27];
        long double slope = 0, size = 0;
        for (int64_t k = 0; k < n; k++) {
            x[p * k + 1] = x[p * k] + 1e-4 * trial_normal();
            y[k] += 5e3 * (x[p * k] - x[p * k + 1]);
        }
        set_method(t, method, 0, false, false);
        if (method > 0) trial_set_float(t, "alpha", 1e-7);
        assert_int_equal(trial_run(t), 0);
        /* of lasso, the rounding of coefficients so large alone can be more gap than tol */
        if (method < 2) assert_int_equal(t->task.warning_count, 0);
        for (int j = 0; j < p; j++) b[j] = trial_value(trial_output(t, "coef"), j);
        for (int64_t k = 0; k < n; k++) {
            long double left = y[k], apart = (long double)x[p * k] - x[p * k + 1];
            for (int j = 0; j < p; j++) left -= (long double)x[p * k + j] * b[j];
            slope += apart * left;
            size += fabsl(apart * y[k]);
        }
        slope -= l1 * ((b[0] > 0) - (b[0] < 0) - (b[1] > 0) + (b[1] < 0)) + l2 * (b[0] - b[1]);
        assert_true(b[0] != 0 && b[1] != 0 && fabs(b[0]) > 1);
        ASSERT_CLOSE(slope, 0, 1e-11 * (double)size);
        trial_free(t);
    }
}

static void what_is_not_on_the_device_is_refused(void **state) {
    static const struct form refused[] = {{0, 1100, 1030, 0, false, false, false, 0},
                                          {0, 900, 2000, 0, false, false, false, 0}};
    (void)state;
    for (size_t f = 0; f < sizeof refused / sizeof *refused; f++) {
        struct trial *t = make(&refused[f]);
        assert_int_equal(trial_run(t), BLASD_E_job_too_large);
        assert_non_null(strstr(t->task.err.detail, "cpu"));
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_agree),
        cmocka_unit_test(both_backends_agree),
        cmocka_unit_test(wide_penalised_fits_agree),
        cmocka_unit_test(far_problems_have_units_of_their_own),
        cmocka_unit_test(long_descents_can_be_stopped),
        cmocka_unit_test(a_grid_makes_a_blocks_bits),
        cmocka_unit_test(wide_fits_have_the_grid),
        cmocka_unit_test(wide_descents_are_one_launch),
        cmocka_unit_test(descents_of_every_width_agree),
        cmocka_unit_test(alike_features_keep_their_digits),
        cmocka_unit_test(what_is_not_on_the_device_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
