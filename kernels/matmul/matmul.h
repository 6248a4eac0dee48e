/* What a matmul job means in lengths, for the plan and for every backend. Read next: op_matmul.c.
 */
#ifndef BLASD_KERNELS_MATMUL_H
#define BLASD_KERNELS_MATMUL_H

#include "core/job.h"

#define BLASD_DECLARED "kernels/matmul/matmul.def"
#include "core/op_enums.h"
enum { BLASD_MATMUL_NATIVE, BLASD_MATMUL_TF32, BLASD_MATMUL_BF16, BLASD_MATMUL_FP64_EMULATED };

/* One operand a or b, as a stack of matrices: a vector is one row of a, or one column of b. */
struct blasd_matmul_operand {
    int64_t rows, columns; /* after the transposition that was asked for */
    bool transposed;       /* never for a vector */
    int batch_rank;
    int64_t batch[BLASD_MAX_RANK];
};

struct blasd_matmul {
    struct blasd_matmul_operand a, b;
    int64_t m, n, k;
    int batch_rank;
    int64_t batch[BLASD_MAX_RANK], batch_count;
    bool add_c;   /* c is there and beta is not 0 */
    bool exact;   /* integers modulo 2^64 */
    bool correct; /* each element the nearest to the exact one */
    double alpha, beta;
};

/* Reads shapes and parameters; shape_mismatch, invalid_shape or missing_input where they do not fit
 * together. */
int blasd_matmul_read(const struct blasd_job *job, struct blasd_matmul *ret, struct blasd_err *err);

/* How the elements of an operand lie: steps from matrix to matrix, row to row, column to column. */
struct blasd_matmul_steps {
    int64_t matrix, row, column;
};
struct blasd_matmul_steps blasd_matmul_steps(const struct blasd_tensor *tensor,
                                             const struct blasd_matmul_operand *operand);
/* Where in c, broadcast to the result, the result's element `at` lies. */
int64_t blasd_matmul_place_of_c(const struct blasd_tensor *c, const struct blasd_tensor *out,
                                int64_t at);

struct blasd_task;
/* Warns where all inputs are integers and sums of their products can be beyond what float64 holds
 * exactly, or with `exact` are beyond what the result holds. */
void blasd_matmul_warn(struct blasd_task *task);
/* Of a product that has been made: warns of elements that are not finite, of factors that are, and
 * of products that vanished before alpha made them large. */
void blasd_matmul_judge_range(struct blasd_task *task, const struct blasd_matmul *mm);

struct blasd_cpu_progress;
/* Makes a product of integers modulo 2^64, on `threads` of the host. False: stopped. */
bool blasd_matmul_exact(struct blasd_task *task, const struct blasd_matmul *mm, int threads,
                        struct blasd_cpu_progress *progress);

#endif
