/* Exact sums of numbers and of products, and the one rounding at their end.
 *
 * A sum is a fixed-point number that is long enough for each term, in digits of 32 bits that hold
 * their carries until it is read (Kulisch). Whole numbers alone: the same on each machine.
 * Read next: sum.c, then rounded_product.c. */
#ifndef BLASD_KERNELS_EXACT_SUM_H
#define BLASD_KERNELS_EXACT_SUM_H

#include "core/dtype.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Digit 0 is worth 2^-3264: three factors of a term, each down to 2^-1074, end above it. */
#define EXACT_DIGITS 208
#define EXACT_LOWEST (-3264)
#define EXACT_LIMBS (EXACT_DIGITS / 2)

/* What an infinite or undefined term makes of a sum; kinds of terms: -0, 0, any other. */
enum { EXACT_NAN = 1, EXACT_PLUS = 2, EXACT_MINUS = 4 };
enum { EXACT_BELOW = 1, EXACT_ABOVE = 2, EXACT_OTHER = 4 };

struct blasd_exact_sum {
    int64_t digit[EXACT_DIGITS];
    int low, high;    /* digits from low to high - 1 may be other than 0 */
    int64_t added;    /* since carries were last taken */
    unsigned special; /* EXACT_* */
    unsigned terms;   /* EXACT_BELOW, ...: of which kinds there were some */
};

/* A finite number: limb[0 .. length - 1] as one whole number, times 2^exponent. Zero has length 0.
 */
struct blasd_exact_number {
    uint64_t limb[EXACT_LIMBS];
    int length, exponent;
    bool negative;
};

/* Before the first use of its memory, then before each sum. */
void blasd_exact_new(struct blasd_exact_sum *sum);
void blasd_exact_clear(struct blasd_exact_sum *sum);
/* Takes the carries of all digits. */
void blasd_exact_carry(struct blasd_exact_sum *sum);
/* The value of a sum whose terms were finite; takes carries. */
void blasd_exact_read(struct blasd_exact_sum *sum, struct blasd_exact_number *ret);
/* The sum plus `factor`, which is finite, times all terms of `other`, of which it takes carries. */
void blasd_exact_add_scaled(struct blasd_exact_sum *sum, struct blasd_exact_sum *other,
                            double factor);
/* The sum as the nearest number of a floating dtype, which a double holds. */
double blasd_exact_round(struct blasd_exact_sum *sum, enum blasd_dtype dtype);
/* The same of its square root. */
double blasd_exact_root(struct blasd_exact_sum *sum, enum blasd_dtype dtype);

/* The nearest number of `dtype` to limbs * 2^exponent, and a little more where `more`; ties to
 * even. */
double blasd_exact_nearest(const uint64_t *limb, int64_t length, int64_t exponent, bool negative,
                           bool more, enum blasd_dtype dtype);
/* A number that the dtype holds, to its place. */
void blasd_exact_store(double value, enum blasd_dtype dtype, void *data, int64_t at);
/* Bits of a whole number. */
int64_t blasd_exact_bits(const uint64_t *limb, int64_t length);

/* A double as the nearest number of `dtype`; NaN stays one. */
double blasd_exact_narrow_half(double value, enum blasd_dtype dtype);
static inline double blasd_exact_narrow(double value, enum blasd_dtype dtype) {
    if (dtype == BLASD_float64) return value;
    return dtype == BLASD_float32 ? (float)value : blasd_exact_narrow_half(value, dtype);
}

/* A finite double as mantissa * 2^exponent. */
static inline uint64_t blasd_exact_split(double value, int *exponent) {
    uint64_t bits;
    int field;
    memcpy(&bits, &value, sizeof bits);
    field = (int)(bits >> 52 & 0x7ff);
    bits &= 0xfffffffffffffu;
    *exponent = field == 0 ? -1074 : field - 1075;
    return field == 0 ? bits : bits | 1ull << 52;
}

/* mantissa * 2^exponent, the mantissa below 2^120. */
static inline void blasd_exact_add_bits(struct blasd_exact_sum *sum, unsigned __int128 mantissa,
                                        int exponent, bool negative) {
    int at = (exponent - EXACT_LOWEST) >> 5, shift = (exponent - EXACT_LOWEST) & 31;
    unsigned __int128 low = (unsigned __int128)(uint64_t)mantissa << shift;
    unsigned __int128 high =
        ((unsigned __int128)(uint64_t)(mantissa >> 64) << shift) + (uint64_t)(low >> 64);
    int64_t sign = negative ? -1 : 0, *digit = sum->digit + at;
    digit[0] += ((int64_t)(uint32_t)low ^ sign) - sign;
    digit[1] += ((int64_t)(uint32_t)(low >> 32) ^ sign) - sign;
    digit[2] += ((int64_t)(uint32_t)high ^ sign) - sign;
    digit[3] += ((int64_t)(uint32_t)(high >> 32) ^ sign) - sign;
    digit[4] += ((int64_t)(uint32_t)(high >> 64) ^ sign) - sign;
    if (at < sum->low) sum->low = at;
    if (at + 5 > sum->high) sum->high = at + 5;
    sum->terms |= EXACT_OTHER;
    if (++sum->added >= 1 << 30) blasd_exact_carry(sum);
}

/* A term that is 0, or not finite. */
static inline void blasd_exact_note(struct blasd_exact_sum *sum, double term) {
    sum->terms |= term != 0 ? EXACT_OTHER : signbit(term) ? EXACT_BELOW : EXACT_ABOVE;
    if (isnan(term)) sum->special |= EXACT_NAN;
    if (isinf(term)) sum->special |= term > 0 ? EXACT_PLUS : EXACT_MINUS;
}

/* a b, or -a b. */
static inline void blasd_exact_add_product(struct blasd_exact_sum *sum, double a, double b) {
    int ea, eb;
    uint64_t ma, mb;
    if (a == 0 || b == 0 || !isfinite(a) || !isfinite(b)) {
        /* no product of finite numbers is infinite here, and none vanishes */
        blasd_exact_note(sum, isfinite(a) && isfinite(b)
                                  ? a * b
                                  : (isfinite(a) ? copysign(a != 0, a) : a) *
                                        (isfinite(b) ? copysign(b != 0, b) : b));
        return;
    }
    ma = blasd_exact_split(a, &ea);
    mb = blasd_exact_split(b, &eb);
    blasd_exact_add_bits(sum, (unsigned __int128)ma * mb, ea + eb, signbit(a) != signbit(b));
}
static inline void blasd_exact_add(struct blasd_exact_sum *sum, double a) {
    blasd_exact_add_product(sum, a, 1);
}

#endif
