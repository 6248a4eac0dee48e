/* What one batch of distance is to the host: its shape, where things lie on the device, and what is
 * still to be made there. Filled by pair_prepare.cu, worked off by cuda_distance.cu. */
#ifndef BLASD_KERNELS_DISTANCE_PAIR_STATE_CUH
#define BLASD_KERNELS_DISTANCE_PAIR_STATE_CUH

extern "C" {
#include "kernels/cuda/cuda_op.h"
#include "kernels/distance/distance.h"
#include "kernels/distance/pair_limits.h"
}

#include "kernels/distance/pair_calls.cuh"
#include "kernels/distance/pair_product.cuh"
#include "kernels/distance/pair_rows.cuh"
#include "kernels/distance/pair_select.cuh"

/* A larger job fills the device by itself: it joins no mixed batch. */
#define PAIR_MIXED_FLOPS 2e8

struct pair_state {
    struct distance_shape shape;
    struct distance_args loop;
    struct pair_args args;
    int64_t problems; /* of all tasks */
    size_t size;      /* of a number in the arithmetic */
    bool empty, streamed, wide;
    bool shared; /* launched with the other jobs of the batch */
    struct pair_ready ready[2];
    int ready_count;
    char *weights; /* of seuclidean */
    int64_t reciprocals;
    struct pair_statistics statistics, means; /* for variances or covariances; for a product */
    bool variances, covariances;
    char *inverse; /* of mahalanobis */
    int *info;     /* on the host: two for each problem */
    int *flags;    /* on the host, of each task: PAIR_ZERO_ROW, PAIR_LEFT */
    struct pair_matrix matrix;
    struct pair_lists lists;
    struct pair_near near;
    struct pair_select select;
    struct pair_product product;
    bool multiplied; /* a full or condensed matrix by way of a product */
    char *rows[2];   /* of the matrix: streamed, or to select from */
    int64_t rows_each;
    int sent[2];
};

/* A matrix that, with all it takes, does not fit half of the device goes down in blocks of rows. */
bool pair_too_large(const struct blasd_task *task, const struct blasd_gpu_facts *facts);
/* Whether the host is to compute a task, for its weights, variances or matrix. */
bool pair_on_host(const struct blasd_task *task, const struct distance_shape *shape);
/* Fills job->state; takes memory, puts no work on the stream. */
int pair_prepare(struct blasd_cuda_job *job, struct blasd_err *err);

/* Operations for one entry of the matrix, about. */
double pair_entry_work(const struct pair_state *state);
/* Tiles along one side of the matrix. */
static inline int64_t pair_tiles(int64_t points) {
    return (points + PAIR_SIDE - 1) / PAIR_SIDE;
}

#endif
