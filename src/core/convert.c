/* Between dtypes and memory orders, and the search for values that may not be there. */
#include "core/half.h"
#include "core/tensor.h"
#include "core/wanted.h"

#include <math.h>
#include <string.h>

/* One loop for each pair of types, made by macros so that the compiler sees plain loops. `LOAD`
 * gives a double. `step` is the distance, in elements, between neighbours of the source. */
#define LOAD_PLAIN(x) ((double)(x))
#define LOAD_bool(x) ((x) != 0 ? 1.0 : 0.0) /* any byte but 0 is true, as in NumPy */
#define LOAD_float16(x) ((double)blasd_float16_read(x))
#define LOAD_bfloat16(x) ((double)blasd_bfloat16_read(x))
#define STORE_float64(v) (v)
#define STORE_float32(v) ((float)(v))
#define STORE_float16(v) blasd_float16_write(blasd_float_round_odd(v))
#define STORE_bfloat16(v) blasd_bfloat16_write(blasd_float_round_odd(v))

#define RUN(FROM, LOAD, TO, STORE)                                                                 \
    do {                                                                                           \
        const FROM *in = (const FROM *)from;                                                       \
        TO *out = (TO *)to;                                                                        \
        for (int64_t i = 0; i < n; i++) out[i] = (TO)STORE(LOAD(in[i * step]));                    \
    } while (0)

#define FROM_EACH(TO, STORE)                                                                       \
    switch (from_dtype) {                                                                          \
    case BLASD_float64: RUN(double, LOAD_PLAIN, TO, STORE); break;                                 \
    case BLASD_float32: RUN(float, LOAD_PLAIN, TO, STORE); break;                                  \
    case BLASD_float16: RUN(uint16_t, LOAD_float16, TO, STORE); break;                             \
    case BLASD_bfloat16: RUN(uint16_t, LOAD_bfloat16, TO, STORE); break;                           \
    case BLASD_int64: RUN(int64_t, LOAD_PLAIN, TO, STORE); break;                                  \
    case BLASD_int32: RUN(int32_t, LOAD_PLAIN, TO, STORE); break;                                  \
    case BLASD_int16: RUN(int16_t, LOAD_PLAIN, TO, STORE); break;                                  \
    case BLASD_int8: RUN(int8_t, LOAD_PLAIN, TO, STORE); break;                                    \
    case BLASD_uint64: RUN(uint64_t, LOAD_PLAIN, TO, STORE); break;                                \
    case BLASD_uint32: RUN(uint32_t, LOAD_PLAIN, TO, STORE); break;                                \
    case BLASD_uint16: RUN(uint16_t, LOAD_PLAIN, TO, STORE); break;                                \
    case BLASD_uint8: RUN(uint8_t, LOAD_PLAIN, TO, STORE); break;                                  \
    case BLASD_bool: RUN(uint8_t, LOAD_bool, TO, STORE); break;                                    \
    default: break; /* complex to real: the header allows none */                                  \
    }

static void run(enum blasd_dtype from_dtype, const void *from, int64_t step,
                enum blasd_dtype to_dtype, void *to, int64_t n);

/* To complex numbers, whose parts are floats that lie in turn: of some elements first the real
 * parts, then the others. */
static void run_complex(enum blasd_dtype from_dtype, const void *from, int64_t step,
                        enum blasd_dtype to_dtype, void *to, int64_t n) {
    enum blasd_dtype part = blasd_dtype_part(to_dtype), from_part = blasd_dtype_part(from_dtype);
    int parts = blasd_dtype_parts(from_dtype);
    size_t size = blasd_dtype_size(part);
    unsigned char room[256 * sizeof(double)], *out = to;
    const char *in = from;
    while (n > 0) {
        int64_t most = n < 256 ? n : 256;
        memset(out, 0, (size_t)most * 2 * size);
        for (int p = 0; p < parts; p++) {
            run(from_part, in + (size_t)p * blasd_dtype_size(from_part), step * parts, part, room,
                most);
            for (int64_t i = 0; i < most; i++)
                memcpy(out + (size_t)(2 * i + p) * size, room + (size_t)i * size, size);
        }
        in += (size_t)(most * step) * blasd_dtype_size(from_dtype);
        out += (size_t)most * 2 * size;
        n -= most;
    }
}

/* To 64 bits, modulo 2^64. */
#define LOAD_INTEGER(x) ((uint64_t)(int64_t)(x))
#define STORE_INTEGER(v) (v)
static void run_integer(enum blasd_dtype from_dtype, const void *from, int64_t step, void *to,
                        int64_t n) {
    switch (from_dtype) {
    case BLASD_int64:
    case BLASD_uint64: RUN(uint64_t, LOAD_INTEGER, uint64_t, STORE_INTEGER); break;
    case BLASD_int32: RUN(int32_t, LOAD_INTEGER, uint64_t, STORE_INTEGER); break;
    case BLASD_int16: RUN(int16_t, LOAD_INTEGER, uint64_t, STORE_INTEGER); break;
    case BLASD_int8: RUN(int8_t, LOAD_INTEGER, uint64_t, STORE_INTEGER); break;
    case BLASD_uint32: RUN(uint32_t, LOAD_INTEGER, uint64_t, STORE_INTEGER); break;
    case BLASD_uint16: RUN(uint16_t, LOAD_INTEGER, uint64_t, STORE_INTEGER); break;
    case BLASD_uint8: RUN(uint8_t, LOAD_INTEGER, uint64_t, STORE_INTEGER); break;
    case BLASD_bool: RUN(uint8_t, LOAD_bool, uint64_t, STORE_INTEGER); break;
    default: break; /* the header allows integers only */
    }
}

static void run(enum blasd_dtype from_dtype, const void *from, int64_t step,
                enum blasd_dtype to_dtype, void *to, int64_t n) {
    if (from_dtype == to_dtype && step == 1) {
        memcpy(to, from, (size_t)n * blasd_dtype_size(to_dtype));
        return;
    }
    switch (to_dtype) {
    case BLASD_float64: FROM_EACH(double, STORE_float64); break;
    case BLASD_float32: FROM_EACH(float, STORE_float32); break;
    case BLASD_float16: FROM_EACH(uint16_t, STORE_float16); break;
    case BLASD_bfloat16: FROM_EACH(uint16_t, STORE_bfloat16); break;
    case BLASD_complex128:
    case BLASD_complex64: run_complex(from_dtype, from, step, to_dtype, to, n); break;
    case BLASD_int64:
    case BLASD_uint64: run_integer(from_dtype, from, step, to, n); break;
    default: break; /* the header allows no others */
    }
}

#define LOOK_BYTES ((size_t)4 << 20) /* looked at between two questions whether it is wanted */
#define RUN_MOST INT64_C(65536)      /* elements converted between two */

/* The same, for as long as it is wanted: false where it is not. `*done` is the caller's count, 0 at
 * first. */
static bool run_wanted(enum blasd_dtype from_dtype, const void *from, int64_t step,
                       enum blasd_dtype to_dtype, void *to, int64_t n, int64_t *done) {
    size_t from_size = blasd_dtype_size(from_dtype), to_size = blasd_dtype_size(to_dtype);
    for (int64_t at = 0; at < n; at += RUN_MOST) {
        int64_t count = n - at < RUN_MOST ? n - at : RUN_MOST;
        if (!blasd_wanted_after(done, count)) return false;
        run(from_dtype, (const char *)from + at * step * (int64_t)from_size, step, to_dtype,
            (char *)to + (size_t)at * to_size, count);
    }
    return true;
}

/* Column-major to row-major: row by row of the target, with a constant step in the source. */
static void reorder(const struct blasd_tensor *from, struct blasd_tensor *to) {
    int rank = from->rank;
    int64_t row = from->shape[rank - 1], step = 1, rows, done = 0;
    int64_t index[BLASD_MAX_RANK] = {0}, stride[BLASD_MAX_RANK];
    const char *source = from->data;
    char *target = to->data;
    for (int i = 0; i < rank; i++) {
        stride[i] = step;
        step *= from->shape[i];
    }
    rows = row == 0 ? 0 : step / row;
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = 0;
        for (int i = 0; i < rank - 1; i++) at += index[i] * stride[i];
        if (!run_wanted(from->dtype, source + at * (int64_t)blasd_dtype_size(from->dtype),
                        stride[rank - 1], to->dtype, target, row, &done))
            return;
        target += row * (int64_t)blasd_dtype_size(to->dtype);
        for (int i = rank - 2; i >= 0 && ++index[i] == from->shape[i]; i--) index[i] = 0;
    }
}

void blasd_tensor_convert(const struct blasd_tensor *from, struct blasd_tensor *to) {
    int64_t done = 0;
    if (from->order == BLASD_COLUMN_MAJOR && from->rank > 1)
        reorder(from, to);
    else
        (void)run_wanted(from->dtype, from->data, 1, to->dtype, to->data,
                         blasd_tensor_elements(from), &done);
}

/* How elements are judged, eight bytes at a time: ((word & mask) + add) & flag is not 0 where one
 * of the elements in the word is at fault. For floating types: the bits of the exponent are all
 * ones exactly where adding one to them carries into the place of the sign. */
struct scan {
    uint64_t mask, add, flag;
};

#define REPEAT2(x) ((uint64_t)(x) << 32 | (uint64_t)(x))
#define REPEAT4(x) REPEAT2((uint64_t)(x) << 16 | (uint64_t)(x))

static const struct scan scans[BLASD_DTYPE_COUNT] = {
    [BLASD_float64] = {UINT64_C(0x7ff0000000000000), UINT64_C(0x0010000000000000),
                       UINT64_C(0x8000000000000000)},
    [BLASD_float32] = {REPEAT2(0x7f800000), REPEAT2(0x00800000), REPEAT2(0x80000000)},
    [BLASD_float16] = {REPEAT4(0x7c00), REPEAT4(0x0400), REPEAT4(0x8000)},
    [BLASD_bfloat16] = {REPEAT4(0x7f80), REPEAT4(0x0080), REPEAT4(0x8000)},
    [BLASD_bool] = {REPEAT4(0xfefe), 0, REPEAT4(0xfefe)},
};

static uint64_t load(const unsigned char *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* Compiled for wider registers too, of which the loader picks: twice as fast with AVX2. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* it would trip over the resolver */
#define WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define WITH_AVX2
#endif

/* Bytes at the start of `p` that hold no element at fault, in whole blocks of `words`. */
__attribute__((always_inline)) static inline size_t scan_words(const struct scan *by,
                                                               const unsigned char *p, size_t bytes,
                                                               const size_t words) {
    const size_t block = words * sizeof(uint64_t);
    const uint64_t mask = by->mask, add = by->add, flag = by->flag;
    size_t at = 0;
    for (; bytes - at >= block; at += block) {
        uint64_t seen = 0;
        for (size_t i = 0; i < words; i++) seen |= (load(p + at + 8 * i) & mask) + add;
        if ((seen & flag) != 0) break;
    }
    return at;
}

/* The same, in large blocks as far as they go, for each costs as much again to decide on as to look
 * at 64 bytes of it, and small ones behind them. */
WITH_AVX2 static size_t scan_blocks(const struct scan *by, const unsigned char *p, size_t bytes) {
    size_t at = scan_words(by, p, bytes, 128);
    return at + scan_words(by, p + at, bytes - at, 16);
}

int64_t blasd_tensor_first_nonfinite(enum blasd_dtype dtype, const void *data, int64_t n) {
    const struct scan *by = &scans[blasd_dtype_part(dtype)];
    const unsigned char *p = data;
    size_t size = blasd_dtype_size(blasd_dtype_part(dtype));
    size_t bytes = (size_t)n * blasd_dtype_size(dtype), at;
    if (by->mask == 0) return -1;
    for (at = 0; bytes - at > LOOK_BYTES; at += LOOK_BYTES) {
        if (!blasd_wanted()) return -1;
        if (scan_blocks(by, p + at, LOOK_BYTES) < LOOK_BYTES) break;
    }
    at += scan_blocks(by, p + at, bytes - at);
    for (; at < bytes; at += size) {
        uint64_t word = 0;
        memcpy(&word, p + at, size);
        /* one element in the lowest place: the places above hold zeros and never carry */
        if ((((word & by->mask) + by->add) & by->flag) != 0)
            return (int64_t)(at / blasd_dtype_size(dtype));
    }
    return -1;
}

/* Searches for the first element whose bits, less `from`, are `least` or more as an unsigned
 * number. With s for the bit of the sign alone, those are: below 0, of floats (0, s + 1) for -0.0
 * is s, of signed integers (0, s); 0 or below, of both (1, s - 1) for 0 turns into the largest
 * number; 0, of unsigned ones (1, the largest number). Blocks become vector instructions; only one
 * that holds such an element is searched.
 */
#define SEARCH_FROM(TYPE)                                                                          \
    do {                                                                                           \
        for (int64_t start = 0, done = 0; start < n && blasd_wanted_after(&done, 1024);            \
             start += 1024) {                                                                      \
            int64_t end = start + 1024 < n ? start + 1024 : n;                                     \
            TYPE bits, bad = 0;                                                                    \
            for (int64_t i = start; i < end; i++) {                                                \
                memcpy(&bits, bytes + (size_t)i * sizeof bits, sizeof bits);                       \
                bad |= (TYPE)((TYPE)(bits - (TYPE)from) >= (TYPE)least);                           \
            }                                                                                      \
            for (int64_t i = start; bad != 0 && i < end; i++) {                                    \
                memcpy(&bits, bytes + (size_t)i * sizeof bits, sizeof bits);                       \
                if ((TYPE)(bits - (TYPE)from) >= (TYPE)least) return i;                            \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static int64_t search_from(size_t size, const unsigned char *bytes, int64_t n, uint64_t from,
                           uint64_t least) {
    switch (size) {
    case 8: SEARCH_FROM(uint64_t); break;
    case 4: SEARCH_FROM(uint32_t); break;
    case 2: SEARCH_FROM(uint16_t); break;
    default: SEARCH_FROM(uint8_t); break;
    }
    return -1;
}

int64_t blasd_tensor_first_descent(const void *data, int64_t n, int64_t *last) {
    int64_t found = -1, value;
    for (int64_t i = 0; i < n; i++, *last = value) {
        memcpy(&value, (const char *)data + i * (int64_t)sizeof value, sizeof value);
        if (value < *last && found < 0) found = i;
    }
    return found;
}

int64_t blasd_tensor_first_negative(enum blasd_dtype dtype, const void *data, int64_t n,
                                    bool zero_too) {
    size_t size = blasd_dtype_size(blasd_dtype_part(dtype));
    uint64_t sign = UINT64_C(1) << (8 * size - 1);
    char kind = blasd_dtype_kind(dtype);
    if (kind == 'c') return -1;
    if (kind != 'f' && kind != 'i')
        return zero_too ? search_from(size, data, n, 1, UINT64_MAX) : -1;
    if (zero_too) return search_from(size, data, n, 1, sign - 1);
    return search_from(size, data, n, 0, kind == 'f' ? sign + 1 : sign);
}

/* Whether a magnitude has more than 53 binary digits, zeros at its end aside. */
static bool is_inexact(uint64_t magnitude) {
    return magnitude != 0 && (magnitude >> __builtin_ctzll(magnitude)) >> 53 != 0;
}

int64_t blasd_tensor_first_inexact(enum blasd_dtype dtype, const void *data, int64_t n) {
    const uint64_t most = UINT64_C(1) << 53; /* up to here all are exact */
    bool is_signed = dtype == BLASD_int64;
    const unsigned char *bytes = data;
    if (!is_signed && dtype != BLASD_uint64) return -1;
    for (int64_t start = 0, done = 0; start < n && blasd_wanted_after(&done, 1024); start += 1024) {
        int64_t end = start + 1024 < n ? start + 1024 : n;
        uint64_t bits, large = 0;
        for (int64_t i = start; i < end; i++) {
            memcpy(&bits, bytes + 8 * i, sizeof bits);
            large |= is_signed ? bits + most > 2 * most : bits > most;
        }
        for (int64_t i = start; large != 0 && i < end; i++) {
            memcpy(&bits, bytes + 8 * i, sizeof bits);
            if (is_inexact(is_signed && bits >> 63 != 0 ? 0 - bits : bits)) return i;
        }
    }
    return -1;
}

bool blasd_tensor_all_zero(enum blasd_dtype dtype, const void *data, int64_t n) {
    const unsigned char *bytes = data;
    enum blasd_dtype part = blasd_dtype_part(dtype);
    size_t size = blasd_dtype_size(part);
    /* little-endian: the sign of a float is in its last byte */
    unsigned char last = blasd_dtype_kind(part) == 'f' ? 0x7f : 0xff;
    int64_t done = 0;
    n *= blasd_dtype_parts(dtype);
    for (int64_t i = 0; i < n && blasd_wanted_after(&done, 0); i++, bytes += size) {
        unsigned seen = bytes[size - 1] & last;
        for (size_t k = 0; k + 1 < size; k++) seen |= bytes[k];
        if (seen != 0) return false;
    }
    return true;
}
