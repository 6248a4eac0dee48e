/* Warnings: one table of codes for what a job that succeeds says of its results.
 *
 * docs/warnings.md is generated from BLASD_WARNINGS. Read next: err.h. */
#ifndef BLASD_BASE_WARNING_H
#define BLASD_BASE_WARNING_H

/* X(number, code, what it means, what to do). Numbers and codes are part of the contract: they stay
 * as they are, and new ones get new numbers. Numbers are 1 to 127. */
#define BLASD_WARNINGS(X)                                                                          \
    X(1, near_singular, "A matrix is singular to working precision: x may have no correct digit",  \
      "Check the matrix, or solve a least-squares problem.")                                       \
    X(2, no_solution, "Systems of a stack have no solution", "See the output info.")               \
    X(3, inexact, "A result is less exact than the method promises",                               \
      "Turn refinement on, or see the named output.")                                              \
    X(4, precision_loss, "Elements of a result may have few correct digits, or none",              \
      "See the output error_estimate; send float64 or scale the inputs.")                          \
    X(5, overflow, "Elements of a result are beyond the range of their dtype",                     \
      "Change the units of the inputs, or send float64.")                                          \
    X(6, underflow, "Elements of a result are below the range of their dtype",                     \
      "Change the units of the inputs, or send float64.")                                          \
    X(7, not_symmetric, "A matrix is not symmetric: one of its triangles was used",                \
      "Send a symmetric matrix, or solve it with assume_a \"general\".")                           \
    X(8, not_positive_definite, "Matrices of a stack are not positive definite",                   \
      "See the output info.")                                                                      \
    X(9, not_converged, "An iteration ended before it converged",                                  \
      "Raise the number of iterations or the tolerance.")                                          \
    X(10, diverged, "An iteration moved away from the solution",                                   \
      "Lower learning_rate, or scale the inputs.")                                                 \
    X(11, not_certifiable, "No bound on the error could be proven",                                \
      "Turn certify off, or send a better conditioned problem.")                                   \
    X(12, rank_deficient, "Columns depend on each other: the solution is that of least norm",      \
      "Remove columns, or use a penalty.")                                                         \
    X(13, rank_truncated, "The parameter rcond left out singular values",                          \
      "Lower rcond to keep them.")                                                                 \
    X(14, ill_conditioned, "The rounding of the inputs leaves few correct digits",                 \
      "Send more digits, remove columns, or set rcond.")                                           \
    X(15, no_degrees_of_freedom, "A fit has as many coefficients as observations",                 \
      "Send more observations, or remove columns.")                                                \
    X(16, leverage_one, "An observation decides a coefficient alone",                              \
      "Remove it, or use nonrobust standard errors.")                                              \
    X(17, negative_r2, "A fit is worse than a constant", "Check the method and its parameters.")   \
    X(18, exact_fit, "A fit leaves no residual: its standard errors are rounding",                 \
      "Do not interpret its statistics.")                                                          \
    X(19, constant_target, "A target does not vary: r2 has no meaning",                            \
      "Do not interpret its statistics.")                                                          \
    X(20, covariance_ill_conditioned, "The inverse of a covariance has few correct digits",        \
      "Remove dependent features, or send VI.")                                                    \
    X(21, zero_row, "The metric has no value for a zero row",                                      \
      "Remove the row, or use another metric.")                                                    \
    X(22, large_integers, "Integers, or sums of them, beyond 2^53 are rounded to float64",         \
      "Use exact if the operation has it, or send smaller integers.")                              \
    X(23, integer_overflow, "Integers beyond the range of their dtype wrap around",                \
      "Send smaller integers, or float64.")                                                        \
    X(24, group_without_fit, "Groups of a job have no fit: their outputs are NaN",                 \
      "See the output info.")                                                                      \
    X(127, others_left_out, "A job has more warnings than its document holds",                     \
      "Send the parts as separate jobs.")

enum blasd_warning_code {
#define X(number, name, title, advice) BLASD_W_##name = (number),
    BLASD_WARNINGS(X)
#undef X
};

/* One row of the table. */
struct blasd_warning_info {
    enum blasd_warning_code code;
    const char *name; /* static, and so are the others */
    const char *title;
    const char *advice;
};

/* What a job says of its results: which warning of the table, and the numbers in words. */
#define BLASD_WARNING_MAX 160
struct blasd_warning {
    enum blasd_warning_code code;
    char text[BLASD_WARNING_MAX];
};

/* Row `i` of the table in its order; NULL behind the last. */
const struct blasd_warning_info *blasd_warning_row(int i);
/* The row with this number, or NULL. */
const struct blasd_warning_info *blasd_warning_find(int number);

#endif
