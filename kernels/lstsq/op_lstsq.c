/* lstsq: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_lstsq.c. */
#include "base/err.h"
#include "core/op.h"
#include "kernels/exact/exact.h"
#include "kernels/lstsq/lstsq.h"

#include <float.h>
#include <string.h>

#define COLUMNS_MOST 1000000

static const char *const roundings[] = BLASD_ROUNDING_NAMES;

#define BLASD_DECLARED "kernels/lstsq/lstsq.def"
#include "core/op_tables.h"

/* Sets the batch of the results, from those of a and b. */
static int read_batch(const struct blasd_tensor *a, const struct blasd_tensor *b,
                      struct blasd_lstsq *ret, struct blasd_err *err) {
    struct blasd_tensor batch;
    char shape_a[96], shape_b[96];
    int code;
    ret->a_rank = a->rank - 2;
    ret->b_rank = ret->vector ? 0 : b->rank - 2;
    memcpy(ret->a_batch, a->shape, (size_t)ret->a_rank * sizeof *a->shape);
    memcpy(ret->b_batch, b->shape, (size_t)ret->b_rank * sizeof *b->shape);
    ret->stack.rank = blasd_shape_broadcast(ret->a_batch, ret->a_rank, ret->b_batch, ret->b_rank,
                                            ret->stack.batch);
    if (ret->stack.rank < 0)
        return blasd_fail(err, BLASD_E_shape_mismatch, "inputs.b",
                          "the batch dimensions of a %s and b %s do not broadcast",
                          blasd_tensor_shape_text(a, shape_a, sizeof shape_a),
                          blasd_tensor_shape_text(b, shape_b, sizeof shape_b));
    batch = blasd_tensor_make(BLASD_float64, ret->stack.rank, ret->stack.batch);
    code = blasd_tensor_check(&batch, "inputs", err);
    if (code == 0) ret->stack.count = blasd_tensor_elements(&batch);
    return code;
}

int blasd_lstsq_read(const struct blasd_job *job, struct blasd_lstsq *ret, struct blasd_err *err) {
    const struct blasd_tensor *a = &job->inputs[BLASD_LSTSQ_A].tensor;
    const struct blasd_tensor *b = &job->inputs[BLASD_LSTSQ_B].tensor;
    char shape_a[96], shape_b[96];
    int64_t longest;
    int code;
    memset(ret, 0, sizeof *ret);
    code = blasd_stack_read(job, false, &ret->stack, err);
    if (code != 0) return code;
    longest = ret->stack.m > ret->stack.n ? ret->stack.m : ret->stack.n;
    ret->rcond = job->params[BLASD_LSTSQ_RCOND].f;
    if (ret->rcond < 0)
        ret->rcond = (double)longest * (ret->stack.single ? (double)FLT_EPSILON : DBL_EPSILON);
    ret->stack.single = ret->stack.single && b->dtype == BLASD_float32;
    ret->k = ret->stack.m < ret->stack.n ? ret->stack.m : ret->stack.n;
    ret->vector = b->rank == 1;
    ret->columns = ret->vector ? 1 : b->shape[b->rank - 1];
    if (b->shape[b->rank - (ret->vector ? 1 : 2)] != ret->stack.m)
        return blasd_fail(
            err, BLASD_E_shape_mismatch, "inputs.b", "a %s has %lld rows, b %s must have as many%s",
            blasd_tensor_shape_text(a, shape_a, sizeof shape_a), (long long)ret->stack.m,
            blasd_tensor_shape_text(b, shape_b, sizeof shape_b),
            ret->vector ? "" : " (a vector b has one dimension)");
    if (ret->columns > COLUMNS_MOST)
        return blasd_fail(err, BLASD_E_invalid_shape, "inputs.b",
                          "at most %d right-hand sides are taken", COLUMNS_MOST);
    return read_batch(a, b, ret, err);
}

double blasd_lstsq_flops(const struct blasd_lstsq *l) {
    double m = (double)l->stack.m, n = (double)l->stack.n, k = (double)l->k;
    return 2 * m * n * k + 20 * k * k * k + 8 * m * n * (double)l->columns + 100 * (m + n);
}

static int plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    struct blasd_lstsq l;
    double m, n, k;
    int code = blasd_lstsq_read(job, &l, err);
    if (code != 0) return code;
    m = (double)l.stack.m;
    n = (double)l.stack.n;
    k = (double)l.k;
    blasd_stack_plan(plan, job, &l.stack, blasd_lstsq_flops(&l),
                     2 * m * n + 7 * k * k + 4 * (m + n) * (double)l.columns);
    blasd_stack_output(plan, BLASD_LSTSQ_X, &l.stack, l.vector ? 1 : 2, l.stack.n, l.columns);
    blasd_stack_output(plan, BLASD_LSTSQ_RESIDUALS, &l.stack, l.vector ? 0 : 1, l.columns, 1);
    blasd_stack_output(plan, BLASD_LSTSQ_S, &l.stack, 1, l.k, 1);
    blasd_stack_figure(plan, BLASD_LSTSQ_RANK, &l.stack, BLASD_int64);
    blasd_stack_figure(plan, BLASD_LSTSQ_OPTIMALITY, &l.stack, BLASD_float64);
    blasd_stack_figure(plan, BLASD_LSTSQ_INFO, &l.stack, BLASD_int64);
    if (job->params[BLASD_LSTSQ_ROUNDING].choice == BLASD_ROUNDING_CORRECT) {
        blasd_stack_figure(plan, BLASD_LSTSQ_UNPROVEN, &l.stack, BLASD_int64);
        plan->host_only = BLASD_ROUNDING_HOST_ONLY;
        plan->flops += 20 * plan->items * m * n * (n + (double)l.columns);
        plan->workspace_bytes += (uint64_t)(8 * m * (n + (double)l.columns) + 500 * n * n);
        return blasd_exact_check(job, err);
    }
    return 0;
}

/* Twice as many rows as columns, one right-hand side. */
static bool sample(struct blasd_job *job, int64_t n, int64_t items, enum blasd_dtype dtype) {
    int64_t a[3] = {items, 2 * n, n}, b[3] = {items, 2 * n, 1};
    if (items < 1) return false;
    blasd_job_give(job, BLASD_LSTSQ_A, dtype, items > 1 ? 3 : 2, items > 1 ? a : a + 1);
    blasd_job_give(job, BLASD_LSTSQ_B, dtype, items > 1 ? 3 : 1, items > 1 ? b : b + 1);
    return true;
}

const struct blasd_op blasd_op_lstsq = {
    .name = "lstsq",
    .summary = "Least squares of least norm, minimise ||b - a @ x||",
    .doc =
        "As numpy.linalg.lstsq gives it, also for stacks: by the singular values of a, those of "
        "which rcond says that they are nothing left out. Computed in float64, a and each column "
        "of b scaled by powers of two where elements are near the ends of the range, and "
        "rounded to the dtype of the inputs; with more digits where x is unique and its condition, "
        "or the square of that beside the residual, asks for them. Warnings say where the rank is "
        "less than m and n, and where digits are lost; `info` says of which matrix. "
        "regression fits models to data; this solves equations.",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = plan,
    .slower = 4,
    .sample = sample};
