/* solve by elimination with complete pivoting in long double, for tests. */
#ifndef BLASD_KERNELS_REF_SOLVE_H
#define BLASD_KERNELS_REF_SOLVE_H

#include <stdint.h>

/* Solves a x = b, both row-major, (n, n) and (n, columns); both are overwritten, b by x. Returns 0,
 * or k, from 1, where all that is left at step k is exactly zero. */
int64_t blasd_ref_solve(int64_t n, int64_t columns, long double *a, long double *b);

#endif
