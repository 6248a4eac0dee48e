/* The many nearest: more neighbours than the kernel that reduces at once can keep are chosen from
 * rows of the matrix in scratch memory, a few rows at a time. Read next: pair_select.cu. */
#ifndef BLASD_KERNELS_DISTANCE_PAIR_SELECT_CUH
#define BLASD_KERNELS_DISTANCE_PAIR_SELECT_CUH

extern "C" {
#include "kernels/cuda/cuda_op.h"
}

#include "kernels/distance/pair_calls.cuh"

/* Lists of each row's parts become one, and go out: d in its own type, indices as int64. */
struct pair_merge {
    struct pair_lists lists;
    char *d, *index;
    int64_t d_step, index_step; /* bytes from task to task */
    int64_t rows, task_rows;    /* of all problems, of a task */
    int storage;
};
int pair_merge_lists(struct blasd_cuda_job *job, enum blasd_dtype dtype,
                     const struct pair_merge &merge, struct blasd_err *err);
/* The same after all jobs' shares of nearest points. */
int pair_share_merge(struct blasd_cuda_job *job, enum blasd_dtype dtype,
                     const struct pair_merge &merge, struct blasd_err *err);

/* The `keep` nearest in each of some rows of the matrix. */
struct pair_select {
    const void *rows; /* of the arithmetic's type, n each */
    int64_t n, count, keep;
    int64_t self; /* the column that is row 0 itself; -1: none is */
    /* scratch: `room` for each row, a power of two that is not less than keep */
    void *d;
    uint32_t *j;
    int64_t room;
    char *to, *index; /* of the first row */
    int storage;
};
int pair_select_rows(struct blasd_cuda_job *job, enum blasd_dtype dtype,
                     const struct pair_select &select, struct blasd_err *err);

/* Counts of all within a radius become starts, and row_splits; what the lists leave of their room
 * is marked. */
int pair_start_lists(struct blasd_cuda_job *job, const struct pair_args &args,
                     const struct pair_near &near, int64_t problems, struct blasd_err *err);

#endif
