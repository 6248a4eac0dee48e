/* The inner loops of distance for float64. Read next: tiles_body.h. */
#define T double
#define BITS int64_t
#define FABS __builtin_fabs
#define SQRT __builtin_sqrt
#define SQUARE_MOST 0x1p1020  /* above, a sum of squares may have overflowed */
#define SQUARE_LEAST 0x1p-960 /* below, squares may have lost bits to underflow */
#define NAME(x) blasd_distance_##x##f64
#include "kernels/distance/tiles_body.h"
