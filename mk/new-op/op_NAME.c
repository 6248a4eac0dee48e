/* NAME: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_NAME.c. */
#include "base/err.h"
#include "core/op.h"
#include "kernels/NAME/NAME.h"

#define BLASD_DECLARED "kernels/NAME/NAME.def"
#include "core/op_tables.h"

/* Checks how shapes and parameters fit together, and states what the job makes and costs. The key
 * of its batch follows from NAME.def. */
static int plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    const struct blasd_tensor *x = &job->inputs[BLASD_NAME_X].tensor;
    enum blasd_dtype dtype = x->dtype == BLASD_float32 ? BLASD_float32 : BLASD_float64;
    int64_t n = x->shape[x->rank - 1], elements = blasd_tensor_elements(x);
    (void)err;
    plan->input_dtype[BLASD_NAME_X] = dtype;
    plan->outputs[BLASD_NAME_Y] = blasd_tensor_make(dtype, x->rank, x->shape);
    plan->items = n > 0 ? (double)(elements / n) : 0;
    plan->flops = (double)elements;
    plan->device_bytes = 2 * blasd_tensor_bytes(&plan->outputs[BLASD_NAME_Y]);
    plan->batchable = true;
    return 0;
}

/* Jobs that every test of all operations runs. */
static bool sample(struct blasd_job *job, int64_t n, int64_t items, enum blasd_dtype dtype) {
    int64_t shape[2] = {items, n};
    if (items < 1) return false;
    blasd_job_give(job, BLASD_NAME_X, dtype, items > 1 ? 2 : 1, items > 1 ? shape : shape + 1);
    return true;
}

const struct blasd_op blasd_op_NAME = {.name = "NAME",
                                       .summary = "scale * x",
                                       .doc = "One or more paragraphs for people.",
                                       .inputs = inputs,
                                       .outputs = outputs,
                                       .params = params,
                                       .plan = plan,
                                       .sample = sample};
