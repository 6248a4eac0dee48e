/* solve: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_solve.c. */
#include "base/err.h"
#include "core/op.h"
#include "kernels/exact/exact.h"
#include "kernels/solve/embedding.h"
#include "kernels/solve/kept.h"
#include "kernels/solve/solve.h"

#include <stdio.h>
#include <string.h>

#define ALONE_FLOPS 2e9 /* above this many operations sharing a call with others gains nothing */
#define NUMBERS (BLASD_DTYPES_FLOAT | BLASD_DTYPES_INTEGER | BLASD_DTYPES_COMPLEX)

static const char *const assumes[] = {[BLASD_ASSUME_GENERAL] = "general",
                                      [BLASD_ASSUME_SYMMETRIC] = "symmetric",
                                      [BLASD_ASSUME_POSITIVE_DEFINITE] = "positive_definite",
                                      [BLASD_ASSUME_LOWER_TRIANGULAR] = "lower_triangular",
                                      [BLASD_ASSUME_UPPER_TRIANGULAR] = "upper_triangular",
                                      [BLASD_ASSUME_HERMITIAN] = "hermitian",
                                      NULL};
static const char *const refinements[] = {[BLASD_REFINE_AUTO] = "auto",
                                          [BLASD_REFINE_EXTENDED] = "extended",
                                          [BLASD_REFINE_NONE] = "none",
                                          NULL};

static const char *const roundings[] = BLASD_ROUNDING_NAMES;

#define BLASD_DECLARED "kernels/solve/solve.def"
#include "core/op_tables.h"

/* As usually counted: factors and one pass of substitution, without the refinement. */
static double system_flops(const struct blasd_solve *s) {
    double n = (double)s->n, substitution = 2 * n * n * (double)s->columns;
    switch (s->assume) {
    case BLASD_ASSUME_GENERAL: return 2.0 / 3 * n * n * n + substitution;
    case BLASD_ASSUME_SYMMETRIC:
    case BLASD_ASSUME_POSITIVE_DEFINITE: return 1.0 / 3 * n * n * n + substitution;
    default: return substitution / 2;
    }
}

/* Operations and memory, of a real job. */
static void plan_costs(const struct blasd_job *job, const struct blasd_solve *s,
                       struct blasd_plan *plan) {
    uint64_t n = (uint64_t)s->n, columns = (uint64_t)(s->columns < 256 ? s->columns : 256);
    uint64_t size = blasd_dtype_size(blasd_solve_dtype(job));
    plan->flops = plan->items * system_flops(s);
    if (s->certify) plan->flops += plan->items * 4 * (double)n * (double)n * (double)n;
    /* the matrix, its factors, and some columns for each right-hand side that is worked on */
    plan->workspace_bytes = size * n * (2 * n + 4 * columns + 80);
    if (s->certify) plan->workspace_bytes += 8 * n * (4 * n + 8);
    plan->device_bytes = plan->workspace_bytes +
                         2 * blasd_tensor_bytes(&plan->outputs[BLASD_SOLVE_X]) +
                         (uint64_t)blasd_tensor_elements(&job->inputs[BLASD_SOLVE_A].tensor) * size;
    /* one matrix, which is factored in place, and one column */
    plan->device_least_bytes = size * n * (n + 1) * (s->batch_count > 0);
}

/* The same of a complex one, from those of the real one that stands for it. */
static int plan_embedded(const struct blasd_job *job, struct blasd_plan *plan,
                         struct blasd_err *err) {
    struct blasd_job real;
    struct blasd_plan of;
    int code;
    blasd_embedding_job(job, &real);
    code = blasd_job_plan(&real, &of, err);
    if (code != 0) return code;
    plan->flops = of.flops;
    plan->workspace_bytes = of.workspace_bytes + of.input_bytes + of.output_bytes;
    plan->device_bytes = of.device_bytes + of.input_bytes + of.output_bytes;
    plan->device_least_bytes = of.device_least_bytes;
    return 0;
}

/* Rounding correct: what it is refused for, and what it takes. */
static int plan_correct(const struct blasd_job *job, const struct blasd_solve *s,
                        struct blasd_plan *plan, struct blasd_err *err) {
    double n = (double)s->n;
    if (s->certify || s->assume == BLASD_ASSUME_POSITIVE_DEFINITE)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.rounding",
                          s->certify ? "correct is a proof of its own: leave certify out"
                                     : "correct takes no positive_definite: say symmetric");
    plan->outputs[BLASD_SOLVE_UNPROVEN] = blasd_tensor_make(BLASD_int64, s->batch_rank, s->batch);
    plan->host_only = BLASD_ROUNDING_HOST_ONLY;
    plan->flops += plan->items * (4 * n * n * n + 200 * n * n * (double)s->columns);
    plan->workspace_bytes += (uint64_t)(24 * n * n + 2000 * n + 16 * n * (double)s->columns);
    return blasd_exact_check(job, err);
}

static int plan_matrix(const struct blasd_job *job, struct blasd_plan *plan,
                       struct blasd_err *err) {
    struct blasd_tensor *x = &plan->outputs[BLASD_SOLVE_X];
    struct blasd_solve s;
    enum blasd_dtype dtype = blasd_solve_dtype(job);
    int code = blasd_solve_read(job, &s, err);
    if (code != 0) return code;
    for (int i = 0; i < 2; i++) {
        plan->input_dtype[i] = dtype;
        plan->keep_order[i] = job->inputs[i].tensor.rank == 2;
    }
    *x = blasd_tensor_make(dtype, s.batch_rank, s.batch);
    x->shape[x->rank++] = s.n;
    if (!s.vector) x->shape[x->rank++] = s.columns;
    code = blasd_tensor_check(x, "inputs", err);
    if (code != 0) return code;
    for (int i = BLASD_SOLVE_INFO; i <= BLASD_SOLVE_ERROR_ESTIMATE; i++) {
        bool whole = i == BLASD_SOLVE_INFO || i == BLASD_SOLVE_STEPS || i == BLASD_SOLVE_METHOD;
        plan->outputs[i] =
            blasd_tensor_make(whole ? BLASD_int64 : BLASD_float64, s.batch_rank, s.batch);
    }
    if (s.certify) {
        plan->outputs[BLASD_SOLVE_ERROR_BOUND] = *x;
        plan->outputs[BLASD_SOLVE_ERROR_BOUND].dtype = BLASD_float64;
    }
    plan->items = (double)s.batch_count;
    if (blasd_dtype_parts(dtype) == 1)
        plan_costs(job, &s, plan);
    else
        code = plan_embedded(job, plan, err);
    if (code == 0 && job->params[BLASD_SOLVE_ROUNDING].choice == BLASD_ROUNDING_CORRECT)
        code = plan_correct(job, &s, plan, err);
    plan->batchable = plan->flops < ALONE_FLOPS;
    return code;
}

/* Of a job that gives factors in place of a. */
static int plan_factor(const struct blasd_job *job, struct blasd_plan *plan,
                       struct blasd_err *err) {
    const struct blasd_tensor *factor = &job->inputs[BLASD_SOLVE_FACTOR].tensor;
    struct blasd_job stand_in;
    struct blasd_solve s;
    double n = (double)factor->shape[1], parts;
    int code;
    if (job->params[BLASD_SOLVE_ASSUME_A].given)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.assume_a",
                          "the factor has its own: leave assume_a out");
    if (job->params[BLASD_SOLVE_ROUNDING].choice == BLASD_ROUNDING_CORRECT)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.rounding",
                          "correct makes factors of its own: give a");
    if (factor->shape[1] > BLASD_SOLVE_LARGEST_N ||
        factor->shape[0] != blasd_kept_rows(factor->shape[1], factor->dtype))
        return blasd_fail(err, BLASD_E_invalid_shape, "inputs.factor",
                          "it is not an output of the operation factor: %lld rows of %lld",
                          (long long)factor->shape[0], (long long)factor->shape[1]);
    blasd_solve_stand_in(job, &stand_in);
    code = plan_matrix(&stand_in, plan, err);
    if (code == 0) code = blasd_solve_read(&stand_in, &s, err);
    if (code != 0) return code;
    parts = (double)blasd_dtype_parts(blasd_solve_dtype(&stand_in));
    plan->input_dtype[BLASD_SOLVE_FACTOR] = factor->dtype;
    plan->flops = plan->items * parts * parts * 2 * n * n * (double)s.columns;
    if (s.certify) plan->flops += plan->items * parts * parts * parts * 4 * n * n * n;
    plan->batchable = false;
    plan->host_only = "solve on a GPU takes a and no factor";
    return 0;
}

static int plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    bool a = blasd_job_has(job, BLASD_SOLVE_A), factor = blasd_job_has(job, BLASD_SOLVE_FACTOR);
    if (a && factor)
        return blasd_fail(err, BLASD_E_invalid_field, "inputs.factor",
                          "the job has a and factor: one of them is allowed");
    if (!a && !factor)
        return blasd_fail(
            err, BLASD_E_missing_input, "inputs.a",
            "the input 'a' of shape (..., n, n), or 'factor' in its place, is missing");
    return factor ? plan_factor(job, plan, err) : plan_matrix(job, plan, err);
}

/* General systems with one right-hand side each. */
static bool sample(struct blasd_job *job, int64_t n, int64_t items, enum blasd_dtype dtype) {
    int64_t a[3] = {items, n, n}, b[3] = {items, n, 1};
    if (items < 1) return false;
    blasd_job_give(job, BLASD_SOLVE_A, dtype, items > 1 ? 3 : 2, items > 1 ? a : a + 1);
    blasd_job_give(job, BLASD_SOLVE_B, dtype, items > 1 ? 3 : 1, items > 1 ? b : b + 1);
    return true;
}

const struct blasd_op blasd_op_solve = {
    .name = "solve",
    .summary = "Solve a @ x = b",
    .doc =
        "The solution of systems of linear equations, as numpy.linalg.solve gives it: one "
        "system or a stack, one right-hand side or many, batch dimensions broadcast; b is a "
        "vector only if it has one dimension. Each system comes with its condition, its backward "
        "error, an estimate of its error and how it was solved; a warning says where x may have "
        "no correct digit. Complex systems are solved as real ones of twice the size, with the "
        "same care. A "
        "single system that is singular fails with singular_matrix; in a stack that "
        "system alone is marked in info, its x is NaN, and the others are solved.",
    .replaced = "a",
    .substitute = "factor",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = plan,
    .slower = 2,
    .sample = sample};
