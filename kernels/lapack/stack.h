/* What the operations that take matrices apart have in common: a matrix or a stack of them as input
 * `a`, outputs for each, and a walk over the matrices of all jobs in a batch. All of them compute
 * in float64 whatever the dtype, with the matrix scaled by a power of two where its elements are
 * near the ends of the range, and round once.
 *
 * stack.c knows no BLAS and serves every backend; stack_run.c is the CPU's.
 * Read next: lapack.h, ../eigh/op_eigh.c. */
#ifndef BLASD_KERNELS_STACK_H
#define BLASD_KERNELS_STACK_H

#include "core/kernel.h"
#include "kernels/lapack/lapack.h"

/* ---- the job in lengths: for plans ---- */

#define BLASD_STACK_SIDE 23000   /* the shorter side of a matrix at most: workspaces count in int */
#define BLASD_STACK_LONG 1000000 /* the longer one */

struct blasd_stack {
    int64_t m, n; /* of each matrix */
    int rank;     /* of the batch */
    int64_t batch[BLASD_MAX_RANK];
    int64_t count; /* matrices */
    bool single;   /* results are float32 */
    bool minus;    /* blasd_stack_note */
};

/* Of a port: `lengths` (0 to 2) for each matrix of the stack. */
#define BLASD_STACK_LENGTHS(lengths)                                                               \
    .min_rank = (lengths), .max_rank = BLASD_MAX_RANK - 2 + (lengths)
/* Ports but for their names, shapes and texts: the matrices, something made of each of them, and a
 * number that is said of each. */
#define BLASD_STACK_INPUT                                                                          \
    .dtypes = BLASD_DTYPES_FLOAT | BLASD_DTYPES_INTEGER, BLASD_STACK_LENGTHS(2), .finite = true
#define BLASD_STACK_OUTPUT(lengths) .dtypes = BLASD_DTYPES_FLOAT, BLASD_STACK_LENGTHS(lengths)
#define BLASD_STACK_FIGURE(dtype)                                                                  \
    .shape = "(...)", .dtypes = BLASD_DTYPE_BIT(dtype), BLASD_STACK_LENGTHS(0)

/* Reads input 0, which has passed the checks of its port. square: m must be n. */
int blasd_stack_read(const struct blasd_job *job, bool square, struct blasd_stack *ret,
                     struct blasd_err *err);
/* As op.sample, of operations that take matrices as input 0 alone: square ones. */
bool blasd_stack_sample(struct blasd_job *job, int64_t n, int64_t items, enum blasd_dtype dtype);
/* What plans share: dtypes, items, and `flops` and `workspace` (elements) of one matrix. */
void blasd_stack_plan(struct blasd_plan *plan, const struct blasd_job *job,
                      const struct blasd_stack *stack, double flops, double workspace);
/* An output of `rank` lengths (0 to 2) for each matrix, in the dtype of results. */
void blasd_stack_output(struct blasd_plan *plan, int output, const struct blasd_stack *stack,
                        int rank, int64_t rows, int64_t columns);
/* A number of float64 for each matrix, as those that say how good a result is; or of int64. */
void blasd_stack_figure(struct blasd_plan *plan, int output, const struct blasd_stack *stack,
                        enum blasd_dtype dtype);

/* ---- elements ---- */

/* Matrix `item` of the input, m x n, into `to`, column-major; or its transpose, n x m. */
void blasd_stack_copy(const struct blasd_tensor *input, int64_t item, int64_t m, int64_t n,
                      bool trans, double *to);
/* What follows, up to how good results are, may take seconds of a large matrix, and leaves off
 * where nobody wants it any more. */

void blasd_stack_move(int64_t count, const double *from, double *to); /* they do not overlap */
/* Makes a column-major n x n matrix symmetric, by its upper triangle or its lower one. */
void blasd_stack_mirror(int64_t n, double *a, bool upper);
/* Makes `count` elements times 2^e and returns e: 0 unless the largest is near an end of the range.
 */
int blasd_stack_scale(int64_t count, double *x);

/* A column-major m x n matrix with leading dimension ld, transposed or not, times 2^e into item
 * `item` of an output, row-major. False where an element left the range of the dtype. */
bool blasd_stack_store(const struct blasd_tensor *output, int64_t item, int64_t m, int64_t n,
                       const double *from, int64_t ld, bool trans, int e);
/* The `each` elements of an item are NaN: it has no result. Nothing where the job lacks the output.
 */
void blasd_stack_store_nan(const struct blasd_tensor *output, int64_t item, int64_t each);
/* A figure of an item (float64), where the job has it. */
void blasd_stack_put(const struct blasd_tensor *output, int64_t item, double value);
/* Rounds to float32 where results are that, so that what is said of them holds for them. */
void blasd_stack_round(const struct blasd_stack *stack, double *x, int64_t count);

/* ---- how good ---- */

/* Half of the least number of float64 and of float32 that is not 0, as powers of two. */
#define BLASD_STACK_LEAST (-1075)
#define BLASD_STACK_LEAST_SINGLE (-150)

/* What measuring a sum of `k` products in float64 may hide, in units of the norms. */
double blasd_stack_slack(int64_t k);
/* What storing `values` numbers times 2^-e takes from them below the dtype's range, at most: the
 * length of it, before that. */
double blasd_stack_lost(const struct blasd_stack *stack, int64_t values, int e);
double blasd_stack_norm(int64_t count, const double *x); /* Frobenius, no overflow by scaled x */
/* || V' V(:, all) - [1 0] || for the first `k` of `columns` columns of v (m rows); room: k x
 * columns. */
double blasd_stack_orthogonality(int threads, int64_t m, int64_t k, int64_t columns,
                                 const double *v, double *room);
/* The output info of a task, where it has one: for each matrix 0, or the number of the first
 * warning that was noted of it; with `minus` less than 0, where numbers above 0 say something else.
 */
void blasd_stack_clear_info(struct blasd_task *task, const struct blasd_stack *stack);
void blasd_stack_note(struct blasd_task *task, const struct blasd_stack *stack, int64_t item,
                      enum blasd_warning_code code);
/* Warns where one of the figures (float64, ended with -1) is above what the method promises. */
void blasd_stack_judge(struct blasd_task *task, const struct blasd_stack *stack,
                       const int *figures);
/* Items whose `each` elements of an output begin with NaN: `what` did not converge, which fails a
 * job of one matrix. Returns how many there are. */
int64_t blasd_stack_judge_lost(struct blasd_task *task, const struct blasd_stack *stack, int output,
                               int64_t each, const char *what);
/* How many matrices of input 0, which lies on the host, are not symmetric. */
int64_t blasd_stack_uneven(const struct blasd_task *task, const struct blasd_stack *stack);
/* Warns of so many: their upper triangles were used, or their lower ones. */
void blasd_stack_judge_symmetry(struct blasd_task *task, const struct blasd_stack *stack,
                                int64_t uneven, bool upper);
/* Warns where elements of an output are beyond the range of its dtype, or NaN, which is what sums
 * of such are; `lost` NaN are those of items without a result. */
void blasd_stack_judge_range(struct blasd_task *task, const struct blasd_stack *stack, int output,
                             const char *name, int64_t lost);

/* ---- the CPU's walk over a batch ---- */

struct blasd_stack_work {
    struct blasd_stack stack; /* stack.count matrices a task */
    double flops;             /* of one */
    /* Takes one matrix of a task: on any thread, but each at a time. Where it has no memory it sets
     * the task's err. */
    void (*item)(const struct blasd_stack_work *work, struct blasd_task *task, int64_t item,
                 int threads);
    /* Says what became of a task: method, warnings, error. */
    void (*finish)(const struct blasd_stack_work *work, struct blasd_task *task);
};
int blasd_stack_run(const struct blasd_stack_work *work, struct blasd_device *device,
                    struct blasd_task *tasks, int count, struct blasd_watch *watch,
                    struct blasd_err *err);
void blasd_stack_no_memory(struct blasd_task *task);

#endif
