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
    int first, k;                              /* columns of the job's b */
    struct large_window window[LARGE_COLUMNS]; /* b is in units of 2^window.exponent */
    bool more;                                 /* some column has another band */
    int steps[LARGE_COLUMNS];
    long double norm_b[LARGE_COLUMNS], below[LARGE_COLUMNS];    /* in the units of b */
    long double all_r[LARGE_COLUMNS], all_below[LARGE_COLUMNS]; /* of all bands */
    double error[LARGE_COLUMNS], first_error[LARGE_COLUMNS], last[LARGE_COLUMNS];
    bool done[LARGE_COLUMNS], converged[LARGE_COLUMNS];
};

/* Device arrays are of the system's precision unless they say otherwise. */
struct solve_large {
    struct blasd_cuda_job *job;
    struct solve_batch batch;
    bool single, mixes; /* mixes: float32 factors are tried first */
    enum blasd_dtype dtype;
    int n, block, parts; /* parts: of a residual's sums */
    void *matrix, *factors, *tau, *x, *b, *r, *d, *keep, *work, *host_work;
    size_t work_bytes, host_bytes;
    double *pairs, *sizes; /* of residuals; four for each row: see measure in solve_large.cu */
    int *scales, *small;   /* 2 n; LARGE_COLUMNS */
    struct large_window *windows;
    struct large_column *columns;
    int64_t *pivots;
    int *info, *unsymmetric;
    unsigned long long *most; /* two */
    /* on the host */
    void *pinned; /* the sizes of rows and columns, four for each; or what goes up or has come */
    size_t pinned_bytes;
    bool sending; /* something that goes up is in it, and nobody has waited since */
    double *v, *sign;
    int *row_scale, *column_scale;
    struct large_block *blocks; /* two */
    /* of the matrix at hand */
    const void *a;
    int64_t system;
    struct solve_matrix state;
    bool open;               /* the condition leaves it open that it is singular */
    bool narrow, was_narrow; /* the factors are float32 now; they served a job of this batch */
    int narrow_exponent;
    long double norm_1, norm_inf;
    enum solve_inverse inverse; /* of what the condition is estimated */
    int code;                   /* of what failed inside a callback */
};

/* In prepare: takes memory. */
int solve_large_prepare(struct blasd_cuda_job *job, struct solve_large *large,
                        const struct solve_batch *batch, bool single, struct blasd_err *err);
/* In compute: solves all systems of the job; waits for the device once a step. */
int solve_large_compute(struct blasd_cuda_job *job, struct solve_large *large,
                        struct blasd_err *err);
/* What the method is called, or NULL. */
const char *solve_large_name(const struct solve_large *large);

#endif
