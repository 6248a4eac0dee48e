/* factor: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_factor.c. */
#include "base/err.h"
#include "core/op.h"
#include "kernels/factor/factor_job.h"
#include "kernels/solve/kept.h"
#include "kernels/solve/solve.h"

#include <stddef.h>

static const char *const assumes[] = {[BLASD_FACTOR_GENERAL] = "general",
                                      [BLASD_FACTOR_SYMMETRIC] = "symmetric",
                                      [BLASD_FACTOR_POSITIVE_DEFINITE] = "positive_definite",
                                      [BLASD_FACTOR_HERMITIAN] = "hermitian",
                                      NULL};

#define BLASD_DECLARED "kernels/factor/factor.def"
#include "core/op_tables.h"

void blasd_factor_solve_job(const struct blasd_job *job, struct blasd_job *ret) {
    static const enum blasd_assume assume[] = {[BLASD_FACTOR_GENERAL] = BLASD_ASSUME_GENERAL,
                                               [BLASD_FACTOR_SYMMETRIC] = BLASD_ASSUME_SYMMETRIC,
                                               [BLASD_FACTOR_POSITIVE_DEFINITE] =
                                                   BLASD_ASSUME_POSITIVE_DEFINITE,
                                               [BLASD_FACTOR_HERMITIAN] = BLASD_ASSUME_HERMITIAN};
    const struct blasd_tensor *a = &job->inputs[BLASD_FACTOR_A].tensor;
    blasd_job_init(ret, blasd_op_find("solve"));
    blasd_job_give(ret, BLASD_SOLVE_A, a->dtype, 2, a->shape);
    blasd_job_give(ret, BLASD_SOLVE_B,
                   blasd_dtype_part(a->dtype) == BLASD_float32 ? BLASD_float32 : BLASD_float64, 1,
                   a->shape + 1);
    ret->inputs[BLASD_SOLVE_A].tensor.order = a->order;
    ret->params[BLASD_SOLVE_ASSUME_A].choice =
        (int)assume[job->params[BLASD_FACTOR_ASSUME_A].choice];
}

static int plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    struct blasd_job solve;
    struct blasd_solve s;
    struct blasd_plan of;
    enum blasd_dtype dtype;
    int code;
    blasd_factor_solve_job(job, &solve);
    code = blasd_solve_read(&solve, &s, err);
    if (code == 0) code = blasd_job_plan(&solve, &of, err);
    if (code != 0) return code;
    dtype = blasd_solve_dtype(&solve);
    plan->input_dtype[BLASD_FACTOR_A] = dtype;
    plan->keep_order[BLASD_FACTOR_A] = true;
    plan->outputs[BLASD_FACTOR_FACTOR] =
        blasd_tensor_make(dtype, 2, (int64_t[]){blasd_kept_rows(s.n, dtype), s.n});
    plan->outputs[BLASD_FACTOR_RCOND] = blasd_tensor_make(BLASD_float64, 0, NULL);
    plan->flops = of.flops;
    plan->items = 1;
    plan->workspace_bytes = of.workspace_bytes;
    plan->device_bytes = of.device_bytes;
    plan->host_only = "a GPU makes no factors";
    return 0;
}

const struct blasd_op blasd_op_factor = {
    .name = "factor",
    .summary = "Factors of a, for solve",
    .doc = "The factors of a matrix as solve makes them, with what else it finds out about the "
           "matrix, as one tensor: keep it, and give it to solve as `factor` in place of a, as "
           "often as there are right-hand sides. The results are those of solve with a, bit for "
           "bit, with the same refinement, warnings and certificates, at the cost of the "
           "substitutions. A matrix that is singular, or not positive definite as it should be, "
           "fails. CPU workers make and take factors.",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = plan};
