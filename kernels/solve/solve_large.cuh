/* Systems that fill the device by themselves: one after the other, each by the library's calls,
 * with the host deciding between them. Read next: solve_large.cu. */
#ifndef BLASD_KERNELS_SOLVE_LARGE_CUH
#define BLASD_KERNELS_SOLVE_LARGE_CUH

#include "kernels/solve/solve_large_kernels.cuh"

extern "C" {
#include "kernels/cuda/cuda_op.h"
}

/* One block of right-hand sides while it is worked on. */
struct large_block {
    int first, k; /* columns of the job's b */
    int steps[LARGE_COLUMNS];
    double norm_b[LARGE_COLUMNS], error[LARGE_COLUMNS], last[LARGE_COLUMNS];
    bool done[LARGE_COLUMNS], converged[LARGE_COLUMNS];
};

/* Device arrays are of the system's precision unless they say otherwise. */
struct solve_large {
    struct blasd_cuda_job *job;
    struct solve_batch batch;
    bool single;
    enum blasd_dtype dtype;
    int n, block, parts; /* parts: of a residual's sums */
    void *matrix, *factors, *x, *b, *r, *d, *work, *host_work;
    size_t work_bytes, host_bytes;
    double *pairs, *sizes; /* of residuals; four for each row: see measure in large_matrix.cu */
    struct large_column *columns;
    int64_t *pivots;
    int *info, *unsymmetric;
    unsigned long long *most; /* two */
    /* on the host */
    void *pinned; /* the sizes of rows and columns, four for each; or what goes up or has come */
    size_t pinned_bytes;
    bool sending; /* something that goes up is in it, and nobody has waited since */
    double *v, *sign;
    struct large_block *columns_at_work;
    /* of the matrix at hand */
    const void *a;
    int64_t system;
    struct solve_matrix state;
    int code; /* of what failed inside a callback */
};

/* In prepare: takes memory. */
int solve_large_prepare(struct blasd_cuda_job *job, struct solve_large *large,
                        const struct solve_batch *batch, bool single, struct blasd_err *err);
/* In compute: solves all systems of the job; waits for the device once a step. */
int solve_large_compute(struct blasd_cuda_job *job, struct solve_large *large,
                        struct blasd_err *err);

#endif
