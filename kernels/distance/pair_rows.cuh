/* What is done on the device to the points before their distances: rows scaled, centred or divided
 * by their sums; variances and covariances. The CPU does the same in prepare.c with long doubles;
 * here sums are double-double.
 *
 * But for means the metrics that want it are computed in float64. Read next: pair_rows.cu. */
#ifndef BLASD_KERNELS_DISTANCE_PAIR_ROWS_CUH
#define BLASD_KERNELS_DISTANCE_PAIR_ROWS_CUH

extern "C" {
#include "kernels/cuda/cuda_op.h"
}

#include "kernels/distance/pair_calls.cuh"

/* The rows of one operand of all tasks, one task's after the other's. */
struct pair_ready {
    const char *from;
    int64_t from_step; /* bytes from task to task; rows of one task lie side by side */
    char *to;          /* all of them side by side */
    const char *w;     /* weights, or NULL */
    int64_t w_step;
    int64_t rows, k;  /* of a task */
    int64_t all_rows; /* of all tasks */
    int kind;         /* enum distance_rows */
    int *flags;       /* of each task: PAIR_ZERO_ROW where a row has no direction, or no shares */
};
int pair_make_ready(struct blasd_cuda_job *job, const struct pair_ready &ready,
                    struct blasd_err *err);

/* w = 1 / v, `count` of them. */
int pair_reciprocals(struct blasd_cuda_job *job, const double *v, double *w, int64_t count,
                     struct blasd_err *err);

/* Scratch for the statistics of the points of `problems` problems; taken in prepare. */
struct pair_statistics {
    double *partial;                /* sums of chunks of points: high and low parts */
    double *means;                  /* of each problem's coordinates: high and low parts */
    int64_t chunks, each, problems; /* each: points of a chunk */
    /* of one problem's covariance, one after the other */
    double *centred, *matrix, *inverse, *diagonal;
    void *work, *host_work;
    size_t work_bytes, host_bytes;
    int *info;   /* of each problem; not 0: the host is to see, with more digits */
    double most; /* units of rounding of a variance to what of it is its own */
};
int pair_statistics_take(struct blasd_cuda_job *job, const struct pair_args &args, int64_t problems,
                         bool covariance, struct pair_statistics *ret, struct blasd_err *err);
/* statistics.means of each problem's coordinates. */
int pair_means(struct blasd_cuda_job *job, enum blasd_dtype dtype, const struct pair_args &args,
               const struct pair_statistics &statistics, struct blasd_err *err);
/* w[problem][k] = 1 / variance of each coordinate over x and y (x alone). */
int pair_variances(struct blasd_cuda_job *job, const struct pair_args &args,
                   const struct pair_statistics &statistics, double *w, struct blasd_err *err);
/* v[problem][k][k] = the inverse of the covariance matrix. */
int pair_covariances(struct blasd_cuda_job *job, const struct pair_args &args,
                     const struct pair_statistics &statistics, double *v, struct blasd_err *err);

#endif
