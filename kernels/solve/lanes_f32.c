/* The lanes in float32, for each instruction set. Read next: lanes_body.h. */
#include "core/wanted.h"
#include "kernels/solve/systems.h"

#include <math.h>
#include <string.h>

#define REAL float
#define INT int32_t
#define UINT uint32_t
#define UNIT 0x1p-24f
#define RESIDUAL_UNIT 0x1p-52f
#define SAFE 0x1p40f

#if defined(__x86_64__)
#include <immintrin.h>

#define FNMA(a, b, c) ((vec)_mm512_fnmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define VBYTES 64
#define PICK(base, index) ((vec)_mm512_i32gather_ps((__m512i)(index), base, 4))
#define ZIP_LOW(a, b)                                                                              \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b)                                                                             \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define TALL 4
#define LANE(name) name##_avx512
#include "kernels/numeric/target_avx512.h"

#include "kernels/solve/lanes_body.h"

#include "kernels/numeric/target_end.h"
#undef FNMA
#undef VBYTES
#undef PICK
#undef ZIP_LOW
#undef ZIP_HIGH
#undef TALL
#undef LANE

#define FNMA(a, b, c) ((vec)_mm256_fnmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define VBYTES 32
#define PICK(base, index) ((vec)_mm256_i32gather_ps(base, (__m256i)(index), 4))
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define TALL 2
#define LANE(name) name##_avx2
#include "kernels/numeric/target_avx2.h"

#include "kernels/solve/lanes_body.h"

#include "kernels/numeric/target_end.h"
#undef FNMA
#undef VBYTES
#undef PICK
#undef ZIP_LOW
#undef ZIP_HIGH
#undef TALL
#undef LANE
#endif

#define FNMA(a, b, c) ((c) - (a) * (b))
#define VBYTES 16
#define PICK(base, index)                                                                          \
    ((vec){(base)[(index)[0]], (base)[(index)[1]], (base)[(index)[2]], (base)[(index)[3]]})
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define TALL 2
#define LANE(name) name##_plain
#include "kernels/solve/lanes_body.h"

#include "kernels/solve/lanes_choice.h"

void blasd_lanes_run_f32(const struct blasd_systems *shape, struct blasd_system *systems, int count,
                         void *work) {
    LANES_RUN(shape, systems, count, work);
}
