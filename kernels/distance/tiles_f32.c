/* The inner loops of distance for float32. Read next: tiles_body.h. */
#define T float
#define BITS int32_t
#define FABS __builtin_fabsf
#define SQRT __builtin_sqrtf
#define SQUARE_MOST DISTANCE_SQUARE_MOST_F32
#define SQUARE_LEAST DISTANCE_SQUARE_LEAST_F32
#define NAME(x) blasd_distance_##x##f32
#include "kernels/distance/tiles_body.h"
