/* The inner loops of distance for float32. Read next: tiles_body.h. */
#define T float
#define BITS int32_t
#define FABS __builtin_fabsf
#define SQRT __builtin_sqrtf
#define SQUARE_MOST 0x1p126f
#define SQUARE_LEAST 0x1p-98f
#define NAME(x) blasd_distance_##x##f32
#include "kernels/distance/tiles_body.h"
