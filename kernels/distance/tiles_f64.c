/* The inner loops of distance for float64. Read next: tiles_body.h. */
#define T double
#define BITS int64_t
#define FABS __builtin_fabs
#define SQRT __builtin_sqrt
#define SQUARE_MOST DISTANCE_SQUARE_MOST_F64
#define SQUARE_LEAST DISTANCE_SQUARE_LEAST_F64
#define NAME(x) blasd_distance_##x##f64
#include "kernels/distance/tiles_body.h"
