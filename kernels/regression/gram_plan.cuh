/* A batch of regressions on its way through the device: what cuda_regression.cu (which kernels),
 * gram_memory.cu (where they find their arrays) and gram_slices.cu (the data, whole or slice by
 * slice) share. */
#ifndef BLASD_REGRESSION_GRAM_PLAN_CUH
#define BLASD_REGRESSION_GRAM_PLAN_CUH

extern "C" {
#include "kernels/cuda/cuda_op.h"
#include "kernels/regression/device_fit.h"
}

#include "kernels/regression/gram.cuh"

/* Rows that come in turns, where not all are on the device at once: two of everything. */
struct gram_slices {
    bool sliced;
    int64_t rows, count; /* of a slice, at most; slices. Whole: n and 1 */
    double *x[2], *y[2], *w[2];
    float *narrow[2][IN_WEIGHT + 1]; /* the same as it comes, of float32 data */
    char *residuals[2], *fitted[2];
    int turn, mark[2], sent[2]; /* -1: not used yet */
    double *ranges;             /* of the columns, block by block of all slices */
};

/* What came as float32; of slices, what is in the buffers of each turn. */
struct gram_widening {
    const struct gram_span *spans; /* on the device */
    int count;                     /* of a turn; 0: it came as float64 */
    int64_t longest;
};

struct gram_plan {
    struct regression_shape asked; /* the job */
    struct regression_shape shape; /* what is done: ridge, where that is what it comes to */
    enum regression_where where;
    struct gram_way way;
    struct gram_shape gram;
    struct gram_arrays arrays;
    struct gram_slices slices;
    struct gram_widening widening;
    struct gram_descent descent;
    struct gram_sparse sparse;
    struct gram_outputs outputs;
    struct gram_settling settling;
    struct gram_factor_wants wants;
    struct twofold *weighted; /* q x q, for robust errors; of sliced data for each target */
    struct regression_results results;
    int64_t passes, passed; /* slices that are moved in all and were; for the progress */
};

/* Whether a task's data come in slices. */
bool gram_too_large(const struct regression_shape *shape, const struct blasd_gpu_facts *facts);

/* Everything on the device for a plan whose shapes are filled in. */
int gram_take(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err);

/* The passes over the data: each leaves in plan->arrays what its name says. */
int gram_pass_ranges(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err);
int gram_pass_products(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err);
int gram_pass_slopes(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err);
/* Residuals and fitted values to where they belong; the middles of robust covariances. */
int gram_pass_rows(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err);

#endif
