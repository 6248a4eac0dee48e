/* Sizes from which distance goes another way on CUDA. Tests make them small, benchmarks compare. */
#ifndef BLASD_KERNELS_DISTANCE_PAIR_LIMITS_H
#define BLASD_KERNELS_DISTANCE_PAIR_LIMITS_H

#include <stdint.h>

struct blasd_distance_limits {
    int64_t stream_bytes;  /* a block of rows that goes down while the next is computed */
    int64_t nearest_most;  /* neighbours that are kept at once; more are selected from rows */
    int64_t select_bytes;  /* rows of a matrix that many neighbours are selected from */
    int64_t product_bytes; /* rows of a matrix product in scratch memory */
    int64_t product_pairs; /* entries of a problem from which a product may serve */
    /* and coordinates, in float64 and in float32 arithmetic */
    int64_t product_deep_f64, product_deep_f32;
};
extern struct blasd_distance_limits blasd_distance_limits;

#endif
