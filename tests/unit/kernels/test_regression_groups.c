/* regression with row_splits: each group beside a job of its own on the CPU, bit for bit; groups
 * without a fit; splits that are not right. On CUDA the same, for the host does groups there. */
#include "tests/unit/kernels/kernel_support.h"
#include "tests/unit/kernels/nist_data.h"

#include "base/err.h"
#include "core/parallel.h"
#include "kernels/regression/regression.h"

struct kind {
    const char *method, *cov;
    bool weighted, single, residuals, cov_params, certify, intercept;
    int64_t p, t; /* t 0: y has one dimension */
};

static const struct kind kinds[] = {
    {"ols", "nonrobust", .p = 4, .intercept = true},
    {"ols", "nonrobust", .p = 3, .t = 2, .cov_params = true, .residuals = true},
    {"ols", "HC3", .p = 2, .weighted = true, .residuals = true, .intercept = true},
    {"ols", "nonrobust", .p = 5, .weighted = true, .certify = true, .intercept = true},
    {"ols", "HC1", .p = 3, .t = 1, .single = true, .residuals = true, .intercept = true},
    {"ols", "nonrobust", .p = 0, .intercept = true},
    {"ols", "nonrobust", .p = 45, .intercept = true},
    {"ridge", "nonrobust", .p = 4, .t = 3, .intercept = true},
    {"ridge", "nonrobust", .p = 40, .weighted = true, .residuals = true},
    {"lasso", "nonrobust", .p = 4, .intercept = true},
    {"elastic_net", "nonrobust", .p = 3, .weighted = true, .residuals = true, .intercept = true},
    {"gd", "nonrobust", .p = 2, .intercept = true},
};

static struct trial *make(const struct kind *kind, int64_t n, double **x, double **y, double **w) {
    struct trial *t = trial_new("regression");
    enum blasd_dtype dtype = BLASD_float64;
    *x = trial_input(t, "x", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, kind->p});
    *y = trial_input(t, "y", dtype, BLASD_ROW_MAJOR, kind->t > 0 ? 2 : 1, (int64_t[]){n, kind->t});
    *w = kind->weighted ? trial_input(t, "sample_weight", dtype, BLASD_ROW_MAJOR, 1, &n) : NULL;
    trial_set_choice(t, "method", kind->method);
    trial_set_bool(t, "fit_intercept", kind->intercept);
    trial_set_bool(t, "residuals", kind->residuals);
    if (strcmp(kind->method, "ols") == 0) {
        trial_set_choice(t, "cov_type", kind->cov);
        trial_set_bool(t, "cov_params", kind->cov_params);
        trial_set_bool(t, "certify", kind->certify);
    }
    return t;
}

/* Runs a job alone on the CPU. */
static void run_alone(struct trial *t) {
    static struct blasd_device *device;
    const struct blasd_kernel *kernel = blasd_backend_kernel(&blasd_backend_cpu, t->job.op);
    struct blasd_err err;
    if (device == NULL) assert_int_equal(blasd_backend_cpu.device_open(0, &device, &err), 0);
    assert_int_equal(blasd_job_plan(&t->job, &t->plan, &err), 0);
    trial_bind(t);
    assert_int_equal(kernel->run(device, &t->task, 1, &trial_watch.base, &err), 0);
    assert_int_equal(t->task.err.code, 0);
}

/* Elements of output o that belong to group g of `splits`, and where they begin. */
static int64_t part_of(const struct trial *all, int o, int64_t groups, const int64_t *splits,
                       int64_t g, int64_t *from) {
    int64_t n = blasd_tensor_elements(&all->task.outputs[o]), rows = splits[groups];
    bool rowwise = o == OUT_RESIDUALS || o == OUT_FITTED;
    int64_t each = rowwise ? (rows == 0 ? 0 : n / rows) : n / groups;
    *from = each * (rowwise ? splits[g] : g);
    return rowwise ? each * (splits[g + 1] - splits[g]) : each;
}

static void assert_same(const struct trial *all, int64_t groups, const int64_t *splits, int64_t g,
                        const struct trial *own) {
    const struct blasd_op *op = all->job.op;
    for (int o = 0; op->outputs[o].name != NULL; o++) {
        const struct blasd_tensor *a = &all->task.outputs[o], *b = &own->task.outputs[o];
        int64_t from, count, there;
        assert_int_equal(a->rank < 0, b->rank < 0);
        if (a->rank < 0) continue;
        assert_int_equal(a->dtype, b->dtype);
        count = part_of(all, o, groups, splits, g, &from);
        there = blasd_tensor_elements(b);
        assert_true(count == there || o == OUT_SINGULAR_VALUES);
        for (int64_t i = 0; i < count; i++) {
            double x = trial_value(a, from + i), y = i < there ? trial_value(b, i) : NAN;
            if (memcmp(&x, &y, sizeof x) != 0 && !(isnan(x) && isnan(y)))
                fail_msg("group %lld, %s[%lld]: %.17g beside %.17g alone", (long long)g,
                         op->outputs[o].name, (long long)i, x, y);
        }
    }
}

static void assert_no_fit(const struct trial *all, int64_t groups, const int64_t *splits, int64_t g,
                          int fault) {
    for (int o = 0; all->job.op->outputs[o].name != NULL; o++) {
        const struct blasd_tensor *a = &all->task.outputs[o];
        int64_t from, count;
        if (a->rank < 0) continue;
        count = part_of(all, o, groups, splits, g, &from);
        for (int64_t i = 0; i < count; i++) {
            double x = trial_value(a, from + i);
            assert_true(o == OUT_INFO ? x == fault : a->dtype == BLASD_int64 ? x == 0 : isnan(x));
        }
    }
}

static void as_float32(struct trial *t, const char *name) {
    int i = blasd_op_input(t->job.op, name);
    struct blasd_tensor from = t->job.inputs[i].tensor, *to = &t->job.inputs[i].tensor;
    void *wide = t->given[i];
    int64_t shape[BLASD_MAX_RANK];
    memcpy(shape, from.shape, sizeof shape);
    t->given[i] = NULL;
    from.data = wide;
    trial_input(t, name, BLASD_float32, BLASD_ROW_MAJOR, from.rank, shape);
    to->data = t->given[i];
    blasd_tensor_convert(&from, to);
    to->data = NULL;
    free(wide);
}

/* Random data, some of which are collinear, constant, far from 1 or met without a residual. */
static void fill(const struct kind *kind, int64_t n, double *x, double *y, double *w, int what) {
    int64_t t = kind->t > 0 ? kind->t : 1, p = kind->p;
    double unit = what == 3 ? 0x1p-300 : 1;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < p; j++) x[i * p + j] = trial_normal() + (what == 4 ? 1e6 : 0);
        if (what == 1 && p > 1) x[i * p + 1] = x[i * p]; /* dependent */
        for (int64_t l = 0; l < t; l++) {
            double sum = what == 2 ? 0 : trial_normal();
            for (int64_t j = 0; j < p; j++) sum += x[i * p + j] * (double)(j % 3 + 1);
            y[i * t + l] = what == 5 ? 1 : sum * unit;
        }
        if (w != NULL) w[i] = trial_random() % 5 == 0 ? 0 : 0.5 + (double)(trial_random() % 3);
    }
    if (w != NULL && n > 0) w[0] = 1;
}

/* Sizes around what fills a vector, then any, an empty one among them. */
static int64_t size_of(int64_t g) {
    static const int64_t fixed[] = {15, 16, 17, 1, 7, 8, 9, 0, 31, 32, 33, 2, 5, 300};
    if (g < (int64_t)(sizeof fixed / sizeof *fixed)) return fixed[g];
    return trial_random() % 10 == 0 ? trial_between(61, 700) : trial_between(0, 60);
}

static void beside_jobs_of_their_own(const struct kind *kind, int64_t groups) {
    int64_t *splits, *cut = calloc((size_t)groups + 1, sizeof *cut), empty = 0, t = kind->t;
    double *x, *y, *w, *x1, *y1, *w1;
    struct trial *all;
    for (int64_t g = 0; g < groups; g++) cut[g + 1] = cut[g] + size_of(g);
    all = make(kind, cut[groups], &x, &y, &w);
    splits =
        trial_input(all, "row_splits", BLASD_int64, BLASD_ROW_MAJOR, 1, (int64_t[]){groups + 1});
    memcpy(splits, cut, (size_t)(groups + 1) * sizeof *cut);
    if (t == 0) t = 1;
    for (int64_t g = 0; g < groups; g++)
        fill(kind, cut[g + 1] - cut[g], x + cut[g] * kind->p, y + cut[g] * t,
             w == NULL ? NULL : w + cut[g], (int)(trial_random() % 8));
    if (kind->single) as_float32(all, "x");
    if (kind->single) as_float32(all, "y");
    assert_int_equal(trial_run(all), 0);
    for (int64_t g = 0; g < groups; g++) {
        int64_t n = cut[g + 1] - cut[g];
        size_t size = kind->single ? sizeof(float) : sizeof(double);
        struct trial *own;
        if (n == 0) {
            empty++;
            assert_no_fit(all, groups, cut, g, GROUP_EMPTY);
            continue;
        }
        own = make(kind, n, &x1, &y1, &w1);
        if (kind->single) as_float32(own, "x");
        if (kind->single) as_float32(own, "y");
        memcpy(own->given[IN_X], (char *)all->given[IN_X] + (size_t)(cut[g] * kind->p) * size,
               (size_t)(n * kind->p) * size);
        memcpy(own->given[IN_Y], (char *)all->given[IN_Y] + (size_t)(cut[g] * t) * size,
               (size_t)(n * t) * size);
        if (w1 != NULL) memcpy(w1, w + cut[g], (size_t)n * sizeof *w);
        run_alone(own);
        assert_same(all, groups, cut, g, own);
        trial_free(own);
    }
    assert_int_equal(all->task.warnings[0].code == BLASD_W_group_without_fit, empty > 0);
    trial_free(all);
    free(cut);
}

static void groups_are_jobs_of_their_own(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int64_t groups = kinds[k].p > 20 ? 16 : 60;
        beside_jobs_of_their_own(&kinds[k], groups);
        beside_jobs_of_their_own(&kinds[k], 1);
    }
}

static struct trial *plain(int64_t n, int64_t groups, const int64_t *splits) {
    static const struct kind kind = {"ols", "nonrobust", .p = 1, .intercept = true,
                                     .weighted = true};
    double *x, *y, *w;
    struct trial *t = make(&kind, n, &x, &y, &w);
    int64_t *to = trial_input(t, "row_splits", BLASD_int64, BLASD_ROW_MAJOR, 1, &groups);
    fill(&kind, n, x, y, w, 0);
    if (groups > 0) memcpy(to, splits, (size_t)groups * sizeof *to);
    return t;
}

static void wrong_splits_are_refused(void **state) {
    static const struct {
        int64_t n, count, splits[5];
        int code; /* 0: an answer */
    } cases[] = {
        {6, 3, {0, 3, 6}, 0},
        {6, 4, {0, 3, 3, 6}, 0},
        {6, 2, {0, 6}, 0},
        {0, 1, {0}, 0},
        {0, 3, {0, 0, 0}, 0},
        {6, 0, {0}, BLASD_E_invalid_shape},
        {6, 1, {0}, BLASD_E_out_of_range},
        {6, 3, {0, 3, 5}, BLASD_E_out_of_range},
        {6, 3, {0, 3, 7}, BLASD_E_out_of_range},
        {6, 3, {1, 3, 6}, BLASD_E_out_of_range},
        {6, 3, {-1, 3, 6}, BLASD_E_out_of_range},
        {6, 4, {0, 4, 3, 6}, BLASD_E_out_of_range},
        {6, 4, {0, 9, 3, 6}, BLASD_E_out_of_range},
        {6, 4, {0, INT64_MAX, INT64_MIN, 6}, BLASD_E_out_of_range},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct trial *t = plain(cases[c].n, cases[c].count, cases[c].splits);
        int code = (int)trial_plan(t);
        if (code == 0) code = (int)trial_run(t);
        assert_int_equal(code, cases[c].code);
        if (code != 0)
            assert_string_equal(code == BLASD_E_invalid_shape ? t->err.field : t->task.err.field,
                                "inputs.row_splits");
        trial_free(t);
    }
}

/* A batch of two jobs with other splits each, one of them wrong. */
static void jobs_of_a_batch_have_splits_of_their_own(void **state) {
    struct trial *list[3] = {plain(40, 3, (int64_t[]){0, 13, 40}),
                             plain(40, 3, (int64_t[]){0, 41, 40}),
                             plain(40, 3, (int64_t[]){0, 30, 40})};
    (void)state;
    assert_int_equal(trial_run_batch(list, 3), 0);
    assert_int_equal(list[1]->task.err.code, BLASD_E_out_of_range);
    for (int i = 0; i < 3; i += 2) {
        struct trial *own = plain(40, 3, list[i]->given[IN_SPLITS]);
        for (int in = IN_X; in <= IN_WEIGHT; in++)
            memcpy(own->given[in], list[i]->given[in],
                   blasd_tensor_bytes(&own->job.inputs[in].tensor));
        assert_int_equal(list[i]->task.err.code, 0);
        assert_int_equal(trial_run(own), 0);
        for (int o = OUT_COEF; o <= OUT_TSS; o++)
            assert_memory_equal(own->results[o], list[i]->results[o],
                                blasd_tensor_bytes(&own->task.outputs[o]));
        trial_free(own);
    }
    for (int i = 0; i < 3; i++) trial_free(list[i]);
}

/* What is wrong with a group spoils that group alone, and one warning counts such. */
static void groups_without_a_fit(void **state) {
    static const double odd[] = {NAN, INFINITY, -INFINITY};
    static const int64_t splits[] = {0, 5, 10, 15, 20, 20};
    (void)state;
    for (int o = 0; o < 3; o++) {
        struct trial *t = plain(20, 6, splits);
        double *x = t->given[IN_X], *y = t->given[IN_Y], *w = t->given[IN_WEIGHT];
        x[6] = odd[o];
        if (o == 1) y[19] = NAN;
        for (int i = 0; i < 20; i++) w[i] = i / 5 != 2;
        assert_int_equal(trial_run(t), 0);
        assert_int_equal(trial_value(trial_output(t, "info"), 0), 0);
        assert_no_fit(t, 5, splits, 1, GROUP_NOT_FINITE);
        assert_no_fit(t, 5, splits, 2, GROUP_WITHOUT_WEIGHT);
        if (o == 1) assert_no_fit(t, 5, splits, 3, GROUP_NOT_FINITE);
        assert_no_fit(t, 5, splits, 4, GROUP_EMPTY);
        assert_int_equal(t->task.warning_count, 1);
        assert_int_equal(t->task.warnings[0].code, BLASD_W_group_without_fit);
        assert_memory_equal(t->task.warnings[0].text, o == 1 ? "4 of 5" : "3 of 5", 6);
        trial_free(t);
    }
}

/* NaN without row_splits, or another dtype of them, or leading dimensions, are refused. */
static void refused_before_a_device(void **state) {
    struct trial *t = plain(6, 2, (int64_t[]){0, 6});
    (void)state;
    trial_input(t, "row_splits", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){2});
    assert_int_equal(trial_plan(t), BLASD_E_unsupported_dtype);
    trial_input(t, "row_splits", BLASD_int64, BLASD_ROW_MAJOR, 2, (int64_t[]){1, 2});
    assert_int_equal(trial_plan(t), BLASD_E_invalid_shape);
    trial_input(t, "row_splits", BLASD_int64, BLASD_ROW_MAJOR, 1, (int64_t[]){2});
    trial_input(t, "sample_weight", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){3, 6});
    assert_int_equal(trial_plan(t), BLASD_E_invalid_shape);
    trial_free(t);
    t = plain(6, 2, (int64_t[]){0, 6});
    ((double *)t->given[IN_X])[3] = NAN;
    assert_int_equal(trial_plan(t), 0);
    assert_true(t->plan.flops > 0 && t->plan.items == 1);
    t->job.inputs[IN_SPLITS].source.kind = BLASD_SOURCE_NONE;
    assert_int_equal(trial_plan(t), BLASD_E_not_finite);
    trial_free(t);
}

/* Certified sets of one degree, one below the other. */
static void certified_groups_have_their_digits(void **state) {
    int64_t count = 0, n = 0, splits[16] = {0};
    const struct nist_set *of[16];
    double *x, *y, *w;
    static const struct kind kind = {"ols", "nonrobust", .p = 5, .intercept = true};
    struct trial *t;
    (void)state;
    for (size_t s = 0; s < sizeof nist_sets / sizeof *nist_sets; s++) {
        if (nist_sets[s].degree != 5 || nist_sets[s].intercept == 0) continue;
        of[count] = &nist_sets[s];
        n += nist_sets[s].n;
        splits[++count] = n;
    }
    assert_true(count >= 5); /* Wampler's */
    t = make(&kind, n, &x, &y, &w);
    memcpy(trial_input(t, "row_splits", BLASD_int64, BLASD_ROW_MAJOR, 1, (int64_t[]){count + 1}),
           splits, (size_t)(count + 1) * sizeof *splits);
    for (int64_t g = 0; g < count; g++)
        for (int64_t i = splits[g]; i < splits[g + 1]; i++) {
            double power = 1, base = of[g]->data[i - splits[g]][1];
            y[i] = of[g]->data[i - splits[g]][0];
            for (int j = 0; j < 5; j++) x[i * 5 + j] = power *= base;
        }
    assert_int_equal(trial_run(t), 0);
    for (int64_t g = 0; g < count; g++)
        for (int j = 0; j < 6; j++) {
            double got = j == 0 ? trial_value(trial_output(t, "intercept"), g)
                                : trial_value(trial_output(t, "coef"), g * 5 + j - 1);
            ASSERT_CLOSE(got, of[g]->coef[j], 1e-11 * fabs(of[g]->coef[j]));
            if (of[g]->residual_sd > 0)
                ASSERT_CLOSE(trial_value(trial_output(t, "stderr"), g * 6 + j), of[g]->error[j],
                             1e-11 * of[g]->error[j]);
        }
    trial_free(t);
}

/* Progress is told between groups, and a batch that is not wanted any more ends there. */
static void ends_between_groups(void **state) {
    enum { GROUPS = 2000 };
    static int64_t splits[GROUPS + 1];
    struct trial *t;
    (void)state;
    for (int g = 0; g < GROUPS; g++) splits[g + 1] = splits[g] + 50;
    t = plain(50 * GROUPS, GROUPS + 1, splits);
    assert_int_equal(trial_run(t), 0);
    trial_watch.stop_after = 2;
    assert_int_equal(trial_run(t), BLASD_E_cancelled);
    trial_watch.stop_after = 0;
    trial_free(t);
}

/* Threads change no bit: pieces are cut by shapes alone. */
static void threads_change_no_bit(void **state) {
    enum { GROUPS = 1500 };
    static int64_t splits[GROUPS + 1];
    static const int threads[] = {1, 2, 4, 7};
    struct trial *t;
    void *first[BLASD_MAX_OUTPUTS] = {NULL};
    struct blasd_err err;
    (void)state;
    for (int64_t g = 0; g < GROUPS; g++) splits[g + 1] = splits[g] + size_of(g);
    t = plain(splits[GROUPS], GROUPS + 1, splits);
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        assert_int_equal(blasd_job_plan(&t->job, &t->plan, &err), 0);
        trial_bind(t);
        assert_int_equal(blasd_regression_tasks(&t->task, 1, threads[k], NULL, &err), 0);
        for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) {
            if (t->task.outputs[o].rank < 0) continue;
            if (k > 0)
                assert_memory_equal(first[o], t->results[o],
                                    blasd_tensor_bytes(&t->task.outputs[o]));
            free(first[o]);
            first[o] = t->results[o];
            t->results[o] = NULL;
        }
    }
    for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) free(first[o]);
    trial_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_jobs_of_their_own),
        cmocka_unit_test(wrong_splits_are_refused),
        cmocka_unit_test(jobs_of_a_batch_have_splits_of_their_own),
        cmocka_unit_test(groups_without_a_fit),
        cmocka_unit_test(refused_before_a_device),
        cmocka_unit_test(certified_groups_have_their_digits),
        cmocka_unit_test(ends_between_groups),
        cmocka_unit_test(threads_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
