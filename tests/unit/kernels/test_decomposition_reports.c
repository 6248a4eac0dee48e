/* What decompositions say of results that are not as they should be, which no matrix of the other
 * tests brings about: iterations that did not converge, figures above what the methods promise.
 * Read next: test_decompositions.c. */
#include "decomposition_support.h"
#include "kernels/cholesky/cholesky.h"
#include "kernels/eigh/eigh.h"
#include "kernels/lstsq/lstsq.h"
#include "kernels/qr/qr.h"
#include "kernels/svd/svd.h"

enum { N = 3 };
enum op { CHOLESKY, EIGH, LSTSQ, QR, SVD, OPS };
static const char *const names[] = {"cholesky", "eigh", "lstsq", "qr", "svd"};

/* Of one matrix, or of a stack of two; done, without a warning. */
static struct trial *done(enum op op, bool stacked) {
    struct trial *t = trial_new(names[op]);
    int64_t shape[] = {2, N, N};
    int count = stacked ? 2 : 1;
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, stacked ? 3 : 2,
                            stacked ? shape : shape + 1);
    for (int i = 0; i < count; i++) {
        double *one = definite(N, 0, false);
        memcpy(a + i * N * N, one, N * N * sizeof *a);
        free(one);
    }
    if (op == LSTSQ) {
        double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, shape + 1);
        for (int i = 0; i < N; i++) b[i] = trial_uniform();
    }
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal(t->task.warning_count, 0);
    return t;
}

/* Matrix 0 has no result. */
static void refuse(enum op op, struct trial *t) {
    struct blasd_err err = {0};
    struct blasd_stack stack;
    struct blasd_lstsq l;
    struct blasd_svd svd;
    assert_int_equal(blasd_stack_read(&t->job, true, &stack, &err), 0);
    switch (op) {
    case CHOLESKY: blasd_cholesky_refuse(&t->task, &stack, 0, 2); break;
    case EIGH: blasd_eigh_refuse(&t->task, &stack, 0); break;
    case LSTSQ:
        assert_int_equal(blasd_lstsq_read(&t->job, &l, &err), 0);
        blasd_lstsq_refuse(&t->task, &l, 0);
        break;
    case SVD:
        assert_int_equal(blasd_svd_read(&t->job, &svd, &err), 0);
        blasd_svd_refuse(&t->task, &svd, 0);
        break;
    default: break;
    }
}

/* Says once more what came of the job. */
static void sum_up(enum op op, struct trial *t) {
    struct blasd_err err = {0};
    struct blasd_stack stack;
    struct blasd_lstsq l;
    struct blasd_qr qr;
    struct blasd_svd svd;
    assert_int_equal(blasd_stack_read(&t->job, true, &stack, &err), 0);
    assert_int_equal(blasd_svd_read(&t->job, &svd, &err), 0);
    t->task.warning_count = 0;
    switch (op) {
    case CHOLESKY: blasd_cholesky_finish(&t->task, &stack, 0); break;
    case EIGH: blasd_eigh_finish(&t->task, &stack, 0); break;
    case LSTSQ:
        assert_int_equal(blasd_lstsq_read(&t->job, &l, &err), 0);
        blasd_lstsq_finish(&t->task, &l, true);
        break;
    case QR:
        assert_int_equal(blasd_qr_read(&t->job, &qr, &err), 0);
        blasd_qr_finish(&t->task, &qr, true);
        break;
    default: blasd_svd_finish(&t->task, &svd); break;
    }
}

/* What the output info says of a matrix. */
static int64_t info_of(const struct trial *t, int64_t item) {
    return ((const int64_t *)trial_output(t, "info")->data)[item];
}

static void figures_above_what_is_promised(void **state) {
    static const char *const figures[][2] = {{"residual", NULL},
                                             {"residual", "orthogonality"},
                                             {"optimality", NULL},
                                             {"residual", "orthogonality"},
                                             {"residual", "orthogonality"}};
    /* a little above 16 (n + 1) u, or 16 (m + n + 1) u; and below it */
    const double most[] = {64, 64, 112, 64, 64};
    (void)state;
    for (int op = 0; op < OPS; op++)
        for (int f = 0; f < 2 && figures[op][f] != NULL; f++)
            for (int above = 0; above < 2; above++) {
                struct trial *t = done((enum op)op, true);
                double *figure = trial_output(t, figures[op][f])->data;
                double rcond = op == LSTSQ ? N * 0x1p-52 : 0;
                figure[1] = (most[op] + (above ? 0.5 : -0.5)) * 0x1p-53 + rcond;
                sum_up((enum op)op, t);
                assert_int_equal(t->task.warning_count, above);
                assert_int_equal(info_of(t, 0), 0);
                assert_int_equal(llabs(info_of(t, 1)), above ? BLASD_W_inexact : 0);
                if (above)
                    assert_non_null(strstr(t->task.warnings[0].text,
                                           "1 results are less exact than they should be"));
                trial_free(t);
            }
}

/* Of a stack that matrix alone is told of, once, whatever else NaN might mean. */
static void matrices_without_a_result(void **state) {
    static const char *const words[] = {
        "1 of 2 matrices are not positive definite: see info",
        "1 of 2 matrices have no result: the eigenvalues did not converge",
        "1 of 2 matrices have no result: the singular values did not converge", NULL,
        "1 of 2 matrices have no result: the singular values did not converge"};
    (void)state;
    for (int op = 0; op < OPS; op++) {
        struct trial *t;
        if (words[op] == NULL) continue;
        t = done((enum op)op, true);
        refuse((enum op)op, t);
        sum_up((enum op)op, t);
        assert_int_equal(t->task.err.code, BLASD_OK);
        assert_int_equal(t->task.warning_count, 1);
        assert_string_equal(t->task.warnings[0].text, words[op]);
        assert_int_equal(info_of(t, 1), 0);
        assert_int_equal(info_of(t, 0), op == CHOLESKY ? 2 : BLASD_W_not_converged);
        for (int o = 0; t->job.op->outputs[o].name != NULL; o++) { /* all of it, and no more */
            const struct blasd_tensor *out = &t->task.outputs[o];
            int64_t each = blasd_tensor_elements(out) / 2;
            if (out->dtype != BLASD_float64) continue;
            for (int64_t i = 0; i < 2 * each; i++)
                assert_int_equal(isnan(trial_value(out, i)) != 0, i < each);
        }
        trial_free(t);
        t = done((enum op)op, false);
        refuse((enum op)op, t);
        sum_up((enum op)op, t);
        assert_int_equal(t->task.err.code,
                         op == CHOLESKY ? BLASD_E_not_positive_definite : BLASD_E_not_converged);
        trial_free(t);
    }
}

/* Nothing is left of a matrix of zeros, and nothing is beside it. */
static void zeros_are_exact(void **state) {
    static const char *const figures[] = {NULL, "residual", "optimality", "residual", "residual"};
    static const double zeros[N * N];
    (void)state;
    for (int op = 0; op < OPS; op++) {
        struct trial *t;
        if (figures[op] == NULL) continue;
        t = job_of(names[op], zeros, N, N, false);
        if (op == LSTSQ) {
            double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){N});
            for (int i = 0; i < N; i++) b[i] = i + 1;
        }
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(value(t, figures[op], 0) == 0);
        assert_int_equal(t->task.warning_count, op == LSTSQ); /* of the rank */
        if (op == LSTSQ) assert_true(value(t, "residuals", 0) == 14 && value(t, "x", 0) == 0);
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_above_what_is_promised),
        cmocka_unit_test(matrices_without_a_result),
        cmocka_unit_test(zeros_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
