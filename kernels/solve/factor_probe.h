/* Right-hand sides that show whether factors know the inverse, for the host and for CUDA.
 * Read next: condition_body.h. */
#ifndef BLASD_KERNELS_FACTOR_PROBE_H
#define BLASD_KERNELS_FACTOR_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SOLVE_EVERYWHERE __host__ __device__
#else
#define SOLVE_EVERYWHERE
#endif

#define BLASD_SOLVE_PROBES 8
/* The length of what each probe may leave. A singular matrix leaves at least the probe's part along
 * one direction, which is as likely small as a normal variable is: all are below with 3e-6. */
#define BLASD_SOLVE_PROBE_LEFT 0x1p-2

/* Element i of probe p: pseudo-random, 0.5 to 1.5 in size. */
SOLVE_EVERYWHERE static inline double blasd_solve_probe(int64_t i, int p) {
    uint32_t h = (uint32_t)(i * BLASD_SOLVE_PROBES + p + 1) * 0x9e3779b9u;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h ^= h >> 16;
    return ((double)(h >> 1) * 0x1p-31 + 0.5) * ((h & 1) != 0 ? -1 : 1);
}

/* Whether QR may do what LU did not: where the condition lets refinement converge with fewer errors
 * than LU's usual ones, or pivots grew by far more than usually. */
SOLVE_EVERYWHERE static inline bool blasd_solve_may_help(double n, double unit, double rcond,
                                                         double contraction) {
    double growth = contraction * rcond / (4 * unit);
    return rcond > 32 * n * unit || (growth > n && growth * rcond > 2 * n * unit);
}

/* Whether the condition leaves it open that a matrix of n unknowns is singular. */
SOLVE_EVERYWHERE static inline bool blasd_solve_is_open(double n, double unit, double rcond,
                                                        double contraction) {
    return !(rcond >= 2 * n * unit) || !(contraction * (n < 4 ? 4 : n) < 2);
}

#endif
