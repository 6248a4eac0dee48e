/* Small products for AVX2 and FMA. With AVX-512 the BLAS has kernels of its own for them, and
 * without either it does not pay. Read next: small_body.h. */
#include "kernels/matmul/small.h"

#include "kernels/numeric/instructions.h"

#include <string.h>

#define MOST_SIDE 128   /* rows, columns, depth */
#define MOST_WORK 5.3e5 /* multiplications: 80 x 80 x 80 */

#if defined(__x86_64__)
#include <immintrin.h>

bool blasd_small_takes(int64_t m, int64_t n, int64_t k) {
    return m <= MOST_SIDE && n <= MOST_SIDE && k <= MOST_SIDE &&
           (double)m * (double)n * (double)k <= MOST_WORK && blasd_instructions() == BLASD_AVX2;
}

#define LINE 64 /* bytes, of a cache */

/* The way through blasd_small.soon, some bytes for each tile: all at once they would fill the
 * buffers that the product's own reads wait for. */
struct fetching {
    const char *at, *end;                /* of what is being fetched */
    const struct blasd_small_soon *then; /* what comes after it, or NULL */
    size_t share;                        /* bytes for each tile; 0: there is nothing to fetch */
};

static void fetch_from(struct fetching *fetching, const struct blasd_small_soon *soon) {
    fetching->at = soon->data;
    fetching->end = soon->data + soon->bytes;
}

static struct fetching fetching_of(const struct blasd_small *p, int64_t tiles) {
    size_t bytes = p->soon[0].bytes + p->soon[1].bytes;
    struct fetching fetching = {.then = NULL};
    if (bytes == 0) return fetching;
    fetch_from(&fetching, &p->soon[0]);
    fetching.then = &p->soon[1];
    fetching.share = bytes / (size_t)tiles + LINE;
    return fetching;
}

static inline void fetch(struct fetching *fetching) {
    size_t left, bytes;
    if (fetching->share == 0) return;
    left = (size_t)(fetching->end - fetching->at);
    bytes = left < fetching->share ? left : fetching->share;
    for (size_t i = 0; i < bytes; i += LINE) __builtin_prefetch(fetching->at + i, 0, 2);
    fetching->at += bytes;
    if (bytes < left || fetching->then == NULL) return;
    fetch_from(fetching, fetching->then);
    fetching->then = NULL;
}

#define REAL float
#define LANES 8
#define NAME(name) name##_f32
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define VEC __m256
#define SPLAT(x) _mm256_set1_ps(x)
#define LOAD(from) _mm256_loadu_ps(from)
#define STORE(to, v) _mm256_storeu_ps(to, v)
#include "kernels/numeric/target_avx2.h"

#include "kernels/matmul/small_body.h"

#include "kernels/numeric/target_end.h"
#undef REAL
#undef LANES
#undef NAME
#undef FMA
#undef VEC
#undef SPLAT
#undef LOAD
#undef STORE

#define REAL double
#define LANES 4
#define NAME(name) name##_f64
#define FMA(a, b, c) _mm256_fmadd_pd(a, b, c)
#define VEC __m256d
#define SPLAT(x) _mm256_set1_pd(x)
#define LOAD(from) _mm256_loadu_pd(from)
#define STORE(to, v) _mm256_storeu_pd(to, v)
#include "kernels/numeric/target_avx2.h"

#include "kernels/matmul/small_body.h"

#include "kernels/numeric/target_end.h"

#else

bool blasd_small_takes(int64_t m, int64_t n, int64_t k) {
    (void)m;
    (void)n;
    (void)k;
    return false;
}
void blasd_small_f32(const struct blasd_small *product) {
    (void)product;
}
void blasd_small_f64(const struct blasd_small *product) {
    (void)product;
}

#endif
