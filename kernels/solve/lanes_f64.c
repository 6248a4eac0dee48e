/* The lanes in float64, for each instruction set. Read next: lanes_body.h. */
#include "core/wanted.h"
#include "kernels/solve/systems.h"

#include <math.h>
#include <string.h>

#define REAL double
#define INT int64_t
#define UINT uint64_t
#define UNIT 0x1p-53
#define RESIDUAL_UNIT 0x1p-104
#define SAFE 0x1p200

#if defined(__x86_64__)
#include <immintrin.h>

#define FNMA(a, b, c) ((vec)_mm512_fnmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define FUSED(a, b, c) ((vec)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define VBYTES 64
#define PICK(base, index) ((vec)_mm512_i64gather_pd((__m512i)(index), base, 8))
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define TALL 4
#define LANE(name) name##_avx512
#include "kernels/numeric/target_avx512.h"

#include "kernels/solve/lanes_body.h"

#include "kernels/numeric/target_end.h"
#undef FNMA
#undef FUSED
#undef VBYTES
#undef PICK
#undef ZIP_LOW
#undef ZIP_HIGH
#undef TALL
#undef LANE

#define FNMA(a, b, c) ((vec)_mm256_fnmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define FUSED(a, b, c) ((vec)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define VBYTES 32
#define PICK(base, index) ((vec)_mm256_i64gather_pd(base, (__m256i)(index), 8))
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define TALL 2
#define LANE(name) name##_avx2
#include "kernels/numeric/target_avx2.h"

#include "kernels/solve/lanes_body.h"

#include "kernels/numeric/target_end.h"
#undef FNMA
#undef FUSED
#undef VBYTES
#undef PICK
#undef ZIP_LOW
#undef ZIP_HIGH
#undef TALL
#undef LANE
#endif

#define FNMA(a, b, c) ((c) - (a) * (b))
#define FUSED(a, b, c)                                                                             \
    ((vec){__builtin_fma((a)[0], (b)[0], (c)[0]), __builtin_fma((a)[1], (b)[1], (c)[1])})
#define VBYTES 16
#define PICK(base, index) ((vec){(base)[(index)[0]], (base)[(index)[1]]})
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 2)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 1, 3)
#define TALL 2
#define LANE(name) name##_plain
#include "kernels/solve/lanes_body.h"

#include "kernels/solve/lanes_choice.h"

void blasd_lanes_run_f64(const struct blasd_systems *shape, struct blasd_system *systems, int count,
                         void *work) {
    LANES_RUN(shape, systems, count, work);
}
