/* What a solve job means in lengths, for the plan and for every backend. Read next: op_solve.c. */
#ifndef BLASD_KERNELS_SOLVE_H
#define BLASD_KERNELS_SOLVE_H

#include "core/job.h"
#include "kernels/solve/factor_probe.h"

#define BLASD_DECLARED "kernels/solve/solve.def"
#include "core/op_enums.h"

/* The choices of assume_a. */
enum blasd_assume {
    BLASD_ASSUME_GENERAL,
    BLASD_ASSUME_SYMMETRIC,
    BLASD_ASSUME_POSITIVE_DEFINITE,
    BLASD_ASSUME_LOWER_TRIANGULAR,
    BLASD_ASSUME_UPPER_TRIANGULAR,
    BLASD_ASSUME_HERMITIAN /* of complex systems alone: for real ones it is symmetric */
};
/* The choices of refinement. */
enum blasd_refinement { BLASD_REFINE_AUTO, BLASD_REFINE_EXTENDED, BLASD_REFINE_NONE };

/* How a system was solved: the values of the output `method`. */
enum blasd_solve_method {
    BLASD_SOLVED_NOT,
    BLASD_SOLVED_LU,
    BLASD_SOLVED_LDLT,
    BLASD_SOLVED_CHOLESKY,
    BLASD_SOLVED_TRIANGULAR,
    BLASD_SOLVED_QR,
    BLASD_SOLVE_METHOD_COUNT
};

/* What an answer does not say of a system. */
enum {
    BLASD_SOLVE_SINGULAR = 1,    /* with info > 0: else it is not positive definite */
    BLASD_SOLVE_UNSYMMETRIC = 2, /* triangles differ where they should not */
    BLASD_SOLVE_DOUBTFUL = 4,    /* the factors may know nothing of the inverse */
    BLASD_SOLVE_LOST = 8,        /* small elements of x may have lost half of their digits */
    BLASD_SOLVE_VANISHED = 16,   /* x lies below the range of its dtype */
    BLASD_SOLVE_SETTLED = 32,    /* nothing: refinement came to rest for each right-hand side */
    BLASD_SOLVE_LEFT = 64        /* nothing: a device leaves it to the host's engine */
};

#define BLASD_SOLVE_LARGEST_N 1000000 /* unknowns */

struct blasd_solve {
    int64_t n, columns; /* of a; of b and x */
    bool vector;        /* b has one dimension */
    bool transposed;
    bool certify;
    enum blasd_assume assume;
    enum blasd_refinement refinement;
    int a_rank, b_rank; /* of the batch dimensions of each */
    int64_t a_batch[BLASD_MAX_RANK], b_batch[BLASD_MAX_RANK];
    int batch_rank; /* 0: a single system, which fails if it is singular */
    int64_t batch[BLASD_MAX_RANK], batch_count;
};

/* A job that gives `factor` as the one that gives the matrix within it; shares what the job owns.
 */
void blasd_solve_stand_in(const struct blasd_job *job, struct blasd_job *ret);
/* Reads shapes and parameters of a job that gives a; shape_mismatch or invalid_shape where they do
 * not fit together. */
int blasd_solve_read(const struct blasd_job *job, struct blasd_solve *ret, struct blasd_err *err);
/* What x has, and a and b are read in: float64, float32, complex128 or complex64. */
enum blasd_dtype blasd_solve_dtype(const struct blasd_job *job);

/* Where the elements of op(a), which is a or its transpose, and of b lie: strides in elements. Of
 * x, which is dense and row-major, there is nothing to say. */
struct blasd_solve_layout {
    int64_t a_row, a_column, b_row, b_column;
    enum blasd_assume assume; /* of op(a): a transposed triangle is the other one */
};
/* The layout that follows from how `a` and `b` of the job are stored. */
struct blasd_solve_layout blasd_solve_layout(const struct blasd_solve *s,
                                             const struct blasd_tensor *a,
                                             const struct blasd_tensor *b);

/* "lu", "ldlt", … for messages; static text. */
const char *blasd_solve_method_name(enum blasd_solve_method method);

#endif
