/* A batch of regressions on its way through the device: what cuda_regression.cu (which kernels) and
 * gram_memory.cu (where they find their arrays) share. */
#ifndef BLASD_REGRESSION_GRAM_PLAN_CUH
#define BLASD_REGRESSION_GRAM_PLAN_CUH

extern "C" {
#include "kernels/cuda/cuda_op.h"
#include "kernels/regression/device_fit.h"
}

#include "kernels/regression/gram.cuh"

/* What came as float32. */
struct gram_widening {
    const struct gram_span *spans; /* on the device */
    int count;                     /* 0: it came as float64 */
    int64_t longest;
};

struct gram_plan {
    struct regression_shape asked; /* the job */
    struct regression_shape shape; /* what is done: ridge, where that is what it comes to */
    enum regression_where where;
    struct gram_way way;
    struct gram_shape gram;
    struct gram_arrays arrays;
    struct gram_widening widening;
    struct gram_descent descent;
    struct gram_sparse sparse;
    struct gram_outputs outputs;
    struct gram_settling settling;
    struct gram_factor_wants wants;
    struct dd *weighted; /* q x q, for robust errors */
    double *ranges;      /* of the columns, block by block */
    struct regression_results results;
};

/* Everything on the device for a plan whose shapes are filled in. */
int gram_take(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err);

#endif
