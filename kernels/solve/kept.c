/* Read next: kept.h, engine_body.h. */
#include "kernels/solve/kept.h"

#include "base/err.h"
#include "kernels/solve/engine.h"

#include <math.h>
#include <string.h>

#define VERSION 1
#define ALIGN 64
#define LANES 8

static const char magic[8] = {'b', 'l', 'a', 's', 'd', 'L', 'U', '1'};

/* A long double in parts that every machine has. */
struct wide {
    double high, low; /* of a number in [0.5, 1) */
    int64_t exponent;
};

struct head {
    char magic[8];
    uint32_t version, dtype;
    uint64_t checksum; /* of all bytes but these */
    int64_t n;         /* of the matrix */
    int32_t assume, method;
    int32_t scaled, unsymmetric;
    double rcond, own_rcond, contraction, most;
    struct wide norm_inf, norm_1;
};

/* Where the parts begin. */
struct parts {
    uint64_t matrix, head, pivots, bytes;
};

static uint64_t up(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static struct parts parts_of(int64_t n, enum blasd_dtype dtype) {
    uint64_t size = blasd_dtype_size(dtype), square = (uint64_t)n * (uint64_t)n * size;
    uint64_t parts = (uint64_t)blasd_dtype_parts(dtype);
    struct parts at;
    at.matrix = up(square * parts);
    at.head = up(at.matrix + square);
    at.pivots = at.head + sizeof(struct head);
    at.bytes = at.pivots + parts * (uint64_t)n * sizeof(int32_t);
    return at;
}

int64_t blasd_kept_rows(int64_t n, enum blasd_dtype dtype) {
    uint64_t row = (uint64_t)n * blasd_dtype_size(dtype);
    return n == 0 ? 0 : (int64_t)((parts_of(n, dtype).bytes + row - 1) / row);
}

static struct wide wide_of(long double value) {
    struct wide wide;
    int exponent = 0;
    long double part = frexpl(value, &exponent);
    wide.high = (double)part;
    wide.low = (double)(part - (long double)wide.high);
    wide.exponent = exponent;
    return wide;
}

static long double value_of(const struct wide *wide) {
    return ldexpl((long double)wide->high + (long double)wide->low, (int)wide->exponent);
}

/* Each byte counts, in its place; LANES words at a time, for one waits for its own alone. */
static uint64_t mix(uint64_t seed, const void *data, uint64_t bytes) {
    const unsigned char *from = data;
    uint64_t sum[LANES], word = 0;
    for (int k = 0; k < LANES; k++) sum[k] = seed + (uint64_t)k;
    for (; bytes >= sizeof sum; bytes -= sizeof sum, from += sizeof sum)
        for (int k = 0; k < LANES; k++) {
            memcpy(&word, from + (size_t)k * sizeof word, sizeof word);
            sum[k] = (sum[k] ^ word) * 0x9e3779b97f4a7c15u;
            sum[k] ^= sum[k] >> 32;
        }
    for (uint64_t i = 0; i < bytes; i++)
        sum[i % LANES] = (sum[i % LANES] ^ from[i]) * 0x100000001b3u;
    for (int k = 0; k < LANES; k++) seed = ((seed ^ sum[k]) * 0x9e3779b97f4a7c15u) ^ (seed >> 29);
    return seed;
}

static struct head head_of(const struct blasd_tensor *kept) {
    struct head head;
    memcpy(&head, (const char *)kept->data + parts_of(kept->shape[1], kept->dtype).head,
           sizeof head);
    return head;
}

uint64_t blasd_kept_checksum(const struct blasd_tensor *kept) {
    struct parts at = parts_of(kept->shape[1], kept->dtype);
    struct head head = head_of(kept);
    const char *from = kept->data;
    head.checksum = 0;
    return mix(mix(mix(VERSION, from, at.head), &head, sizeof head), from + at.pivots,
               at.bytes - at.pivots);
}

static void put_matrix(const struct blasd_solve_layout *layout, int64_t n, size_t size,
                       const void *from, char *to) {
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++, to += size)
            memcpy(to,
                   (const char *)from + (size_t)(i * layout->a_row + j * layout->a_column) * size,
                   size);
}

void blasd_kept_write(const struct blasd_engine *e, const struct blasd_solve *s,
                      const struct blasd_tensor *a, void *to) {
    struct parts at = parts_of(s->n, a->dtype);
    struct blasd_solve_layout layout = blasd_solve_layout(s, a, a);
    size_t real = blasd_dtype_size(a->dtype) / (size_t)blasd_dtype_parts(a->dtype);
    struct blasd_tensor kept =
        blasd_tensor_make(a->dtype, 2, (int64_t[]){blasd_kept_rows(s->n, a->dtype), s->n});
    struct head head;
    char *bytes = kept.data = to;
    memset(&head, 0, sizeof head);
    memset(bytes, 0, (size_t)blasd_tensor_bytes(&kept));
    memcpy(bytes, e->factors, (size_t)e->n * (size_t)e->n * real);
    put_matrix(&layout, s->n, blasd_dtype_size(a->dtype), a->data, bytes + at.matrix);
    for (int64_t i = 0; i < e->n; i++) {
        int32_t pivot = e->method == BLASD_SOLVED_CHOLESKY ? 0 : (int32_t)e->pivots[i];
        memcpy(bytes + at.pivots + (size_t)i * sizeof pivot, &pivot, sizeof pivot);
    }
    memcpy(head.magic, magic, sizeof magic);
    head.version = VERSION;
    head.dtype = (uint32_t)a->dtype;
    head.n = s->n;
    head.assume = (int32_t)s->assume;
    head.method = (int32_t)e->method;
    head.scaled = e->scaled;
    head.unsymmetric = e->unsymmetric;
    head.rcond = e->rcond;
    head.own_rcond = e->own_rcond;
    head.contraction = e->contraction;
    head.most = e->most;
    head.norm_inf = wide_of(e->norm_inf);
    head.norm_1 = wide_of(e->norm_1);
    memcpy(bytes + at.head, &head, sizeof head);
    head.checksum = blasd_kept_checksum(&kept);
    memcpy(bytes + at.head, &head, sizeof head);
}

/* Whether pivots stay within the matrix: rows from 1 on; of LDL' two equal ones below 0 stand for a
 * block of two rows. */
static bool pivots_fit(const struct blasd_tensor *kept, enum blasd_solve_method method) {
    int64_t n = kept->shape[1] * blasd_dtype_parts(kept->dtype), k = 0;
    const char *from = (const char *)kept->data + parts_of(kept->shape[1], kept->dtype).pivots;
    while (method != BLASD_SOLVED_CHOLESKY && k < n) {
        int32_t pivot[2] = {0, 0};
        bool pair;
        memcpy(pivot, from + (size_t)k * sizeof *pivot, k + 1 < n ? sizeof pivot : sizeof *pivot);
        pair = method == BLASD_SOLVED_LDLT && pivot[0] < 0 && pivot[0] == pivot[1];
        if (pair ? pivot[0] < -n : pivot[0] < 1 || pivot[0] > n) return false;
        k += pair ? 2 : 1;
    }
    return true;
}

/* Whether the head says what a factorization may be. */
static bool head_fits(const struct head *head) {
    bool method = head->method == BLASD_SOLVED_LU || head->method == BLASD_SOLVED_LDLT ||
                  head->method == BLASD_SOLVED_CHOLESKY;
    return method &&
           (head->assume == BLASD_ASSUME_GENERAL || head->assume == BLASD_ASSUME_SYMMETRIC ||
            head->assume == BLASD_ASSUME_POSITIVE_DEFINITE ||
            head->assume == BLASD_ASSUME_HERMITIAN);
}

int blasd_kept_check(const struct blasd_tensor *kept, struct blasd_err *err) {
    struct head head;
    if (kept->shape[1] == 0) return 0;
    head = head_of(kept);
    if (memcmp(head.magic, magic, sizeof magic) != 0 || head.n != kept->shape[1] ||
        head.dtype != (uint32_t)kept->dtype)
        return blasd_fail(err, BLASD_E_invalid_tensor, "inputs.factor",
                          "it is not an output of the operation factor");
    if (head.version != VERSION)
        return blasd_fail(err, BLASD_E_invalid_tensor, "inputs.factor",
                          "it is of version %u of factors, this worker reads %d", head.version,
                          VERSION);
    if (head.checksum != blasd_kept_checksum(kept) || !head_fits(&head) ||
        !pivots_fit(kept, (enum blasd_solve_method)head.method))
        return blasd_fail(err, BLASD_E_invalid_tensor, "inputs.factor", "the factors are damaged");
    return 0;
}

enum blasd_assume blasd_kept_assume(const struct blasd_tensor *kept) {
    return kept->shape[1] == 0 ? BLASD_ASSUME_GENERAL : (enum blasd_assume)head_of(kept).assume;
}

struct blasd_tensor blasd_kept_matrix(const struct blasd_tensor *kept) {
    int64_t n = kept->shape[1];
    struct blasd_tensor a = blasd_tensor_make(kept->dtype, 2, (int64_t[]){n, n});
    a.order = BLASD_COLUMN_MAJOR;
    a.data = (char *)kept->data + parts_of(n, kept->dtype).matrix;
    return a;
}

bool blasd_kept_restore(struct blasd_engine *e) {
    const struct blasd_tensor *kept = e->kept;
    struct parts at = parts_of(kept->shape[1], kept->dtype);
    struct head head = head_of(kept);
    e->factors = kept->data;
    for (int64_t i = 0; i < e->n; i++) {
        int32_t pivot;
        memcpy(&pivot, (const char *)kept->data + at.pivots + (size_t)i * sizeof pivot,
               sizeof pivot);
        e->pivots[i] = pivot;
    }
    e->info = 0;
    e->method = (enum blasd_solve_method)head.method;
    e->scaled = head.scaled != 0;
    e->unsymmetric = head.unsymmetric != 0;
    e->rcond = head.rcond;
    e->own_rcond = head.own_rcond;
    e->contraction = head.contraction;
    e->most = head.most;
    e->norm_inf = value_of(&head.norm_inf);
    e->norm_1 = value_of(&head.norm_1);
    return !e->scaled && !e->unsymmetric && blasd_dtype_parts(kept->dtype) == 1;
}
