/* Factors as they are kept: one tensor that holds the matrix, its factors and what the engine found
 * out about them, so that the systems of later jobs cost substitutions alone.
 *
 * Layout, of parts at multiples of 64 bytes: the factors (of complex matrices those of the real one
 * of twice the size), the matrix by columns, a head, the pivots. The tensor's dtype is the
 * matrix's, its last dimension n, so that a plan can tell both. Read next: kept.c. */
#ifndef BLASD_KERNELS_KEPT_H
#define BLASD_KERNELS_KEPT_H

#include "kernels/solve/systems.h"

/* Rows of the tensor that holds the factors of n unknowns. */
int64_t blasd_kept_rows(int64_t n, enum blasd_dtype dtype);

/* Makes the tensor's bytes from an engine that has just run blasd_engine_factor. `s` and `a`: the
 * system and its matrix as the job has them, real or complex. */
void blasd_kept_write(const struct blasd_engine *engine, const struct blasd_solve *s,
                      const struct blasd_tensor *a, void *to);

/* Of all its bytes but those that hold the checksum. */
uint64_t blasd_kept_checksum(const struct blasd_tensor *kept);
/* Checks what was given as factors; invalid_tensor where it is something else, of another version
 * or damaged. */
int blasd_kept_check(const struct blasd_tensor *kept, struct blasd_err *err);
enum blasd_assume blasd_kept_assume(const struct blasd_tensor *kept);
/* The matrix within it, column-major; borrows its memory. */
struct blasd_tensor blasd_kept_matrix(const struct blasd_tensor *kept);

/* Brings the engine to where it was when `engine->kept` was written, but for the matrix and its
 * scales: it borrows the factors. Whether the scaled matrix is the one within the tensor. */
bool blasd_kept_restore(struct blasd_engine *engine);

#endif
