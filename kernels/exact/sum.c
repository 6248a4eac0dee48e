/* Exact sums: carries, the value, and its rounding. Read next: sum.h. */
#include "kernels/exact/sum.h"

#include "core/tensor.h"

void blasd_exact_new(struct blasd_exact_sum *sum) {
    memset(sum, 0, sizeof *sum);
    sum->low = EXACT_DIGITS;
}

void blasd_exact_clear(struct blasd_exact_sum *sum) {
    for (int i = sum->low; i < sum->high; i++) sum->digit[i] = 0;
    sum->low = EXACT_DIGITS;
    sum->high = 0;
    sum->added = 0;
    sum->special = 0;
    sum->terms = 0;
}

void blasd_exact_carry(struct blasd_exact_sum *sum) {
    int64_t carry = 0;
    int i = sum->low;
    for (; i < EXACT_DIGITS - 1 && (i < sum->high || (carry != 0 && carry != -1)); i++) {
        int64_t all = sum->digit[i] + carry;
        sum->digit[i] = (int64_t)(uint32_t)all;
        carry = (all - sum->digit[i]) >> 32;
    }
    if (carry != 0) sum->digit[i++] += carry; /* the sign stays in the highest digit */
    if (i > sum->high) sum->high = i;
    sum->added = 0;
}

static int64_t trimmed(const uint64_t *limb, int64_t length) {
    while (length > 0 && limb[length - 1] == 0) length--;
    return length;
}

void blasd_exact_read(struct blasd_exact_sum *sum, struct blasd_exact_number *ret) {
    int64_t carry = 0;
    memset(ret, 0, sizeof *ret);
    if (sum->low >= sum->high) return;
    blasd_exact_carry(sum);
    ret->negative = sum->digit[sum->high - 1] < 0;
    ret->exponent = EXACT_LOWEST + 32 * sum->low;
    for (int i = sum->low; i < sum->high; i++) {
        int64_t all = (ret->negative ? -sum->digit[i] : sum->digit[i]) + carry;
        carry = all >> 32;
        ret->limb[(i - sum->low) / 2] |= (uint64_t)(uint32_t)all << 32 * ((i - sum->low) & 1);
    }
    ret->length = (int)trimmed(ret->limb, EXACT_LIMBS);
}

/* What special terms make of a sum. */
static double special(const struct blasd_exact_sum *sum) {
    if (sum->special == EXACT_PLUS) return INFINITY;
    return sum->special == EXACT_MINUS ? -INFINITY : __builtin_nan("");
}

void blasd_exact_add_scaled(struct blasd_exact_sum *sum, struct blasd_exact_sum *other,
                            double factor) {
    struct blasd_exact_number number;
    int exponent;
    uint64_t mantissa = blasd_exact_split(factor, &exponent);
    if (other->special != 0) {
        blasd_exact_note(sum, special(other) * factor);
        return;
    }
    if ((other->terms & EXACT_BELOW) != 0) blasd_exact_note(sum, factor < 0 ? 0.0 : -0.0);
    if ((other->terms & EXACT_ABOVE) != 0) blasd_exact_note(sum, factor < 0 ? -0.0 : 0.0);
    sum->terms |= other->terms & EXACT_OTHER;
    blasd_exact_read(other, &number);
    for (int i = 0; i < number.length && mantissa != 0; i++)
        blasd_exact_add_bits(sum, (unsigned __int128)number.limb[i] * mantissa,
                             number.exponent + 64 * i + exponent,
                             number.negative != (bool)signbit(factor));
}

int64_t blasd_exact_bits(const uint64_t *limb, int64_t length) {
    length = trimmed(limb, length);
    return length == 0 ? 0 : 64 * length - __builtin_clzll(limb[length - 1]);
}

/* Digits of a floating dtype, the exponent of its last place near 0, and of what is beyond it. */
struct format {
    int digits, least, most;
};
static struct format format_of(enum blasd_dtype dtype) {
    switch (dtype) {
    case BLASD_float32: return (struct format){24, -149, 128};
    case BLASD_float16: return (struct format){11, -24, 16};
    case BLASD_bfloat16: return (struct format){8, -133, 128};
    default: return (struct format){53, -1074, 1024};
    }
}

/* Bits [from, from + 64) of a whole number; `from` may be negative. */
static uint64_t bits_from(const uint64_t *limb, int64_t length, int64_t from) {
    int64_t at = from >= 0 ? from / 64 : -((63 - from) / 64);
    int shift = (int)(from - at * 64);
    uint64_t low = at >= 0 && at < length ? limb[at] : 0;
    uint64_t high = at + 1 >= 0 && at + 1 < length ? limb[at + 1] : 0;
    return shift == 0 ? low : low >> shift | high << (64 - shift);
}

/* Whether a bit below number `below` is set. */
static bool any_below(const uint64_t *limb, int64_t length, int64_t below) {
    for (int64_t i = 0; i < length && i * 64 < below; i++)
        if ((below - i * 64 >= 64 ? limb[i] : limb[i] << (64 - (below - i * 64))) != 0) return true;
    return false;
}

double blasd_exact_nearest(const uint64_t *limb, int64_t length, int64_t exponent, bool negative,
                           bool more, enum blasd_dtype dtype) {
    const struct format format = format_of(dtype);
    int64_t bits = blasd_exact_bits(limb, length), from = bits - format.digits;
    uint64_t kept, half;
    double value;
    if (bits == 0) return 0;
    if (bits + exponent > format.most) return negative ? -INFINITY : INFINITY;
    if (from + exponent < format.least) from = format.least - exponent;
    if (from > bits) return negative ? -0.0 : 0.0;
    kept = bits_from(limb, length, from);
    half = bits_from(limb, length, from - 1) & 1;
    if (half != 0 && (more || (kept & 1) != 0 || any_below(limb, length, from - 1))) kept++;
    value = ldexp((double)kept, (int)(from + exponent));
    if (value >= ldexp(1, format.most - 1) * 2) value = INFINITY;
    return negative ? -value : value;
}

double blasd_exact_round(struct blasd_exact_sum *sum, enum blasd_dtype dtype) {
    struct blasd_exact_number number;
    if (sum->special != 0) return special(sum);
    blasd_exact_read(sum, &number);
    if (number.length == 0) return sum->terms == EXACT_BELOW ? -0.0 : 0.0;
    return blasd_exact_nearest(number.limb, number.length, number.exponent, number.negative, false,
                               dtype);
}

/* The whole part of a square root. */
static uint64_t whole_root(unsigned __int128 square) {
    double guess = sqrt((double)square);
    uint64_t root = guess >= 0x1p64 ? UINT64_MAX : (uint64_t)guess;
    for (int i = 0; i < 2; i++) {
        unsigned __int128 next = ((unsigned __int128)root + square / root) / 2;
        root = next > UINT64_MAX ? UINT64_MAX : (uint64_t)next;
    }
    while ((unsigned __int128)root * root > square) root--;
    while (root < UINT64_MAX && (unsigned __int128)(root + 1) * (root + 1) <= square) root++;
    return root;
}

double blasd_exact_root(struct blasd_exact_sum *sum, enum blasd_dtype dtype) {
    struct blasd_exact_number number;
    int64_t from;
    unsigned __int128 square;
    uint64_t root;
    if (sum->special != 0) return special(sum);
    blasd_exact_read(sum, &number);
    if (number.length == 0) return 0;
    if (number.negative) return __builtin_nan("");
    from = blasd_exact_bits(number.limb, number.length) - 128;
    if (((from + number.exponent) & 1) != 0) from++;
    square = (unsigned __int128)bits_from(number.limb, number.length, from + 64) << 64 |
             bits_from(number.limb, number.length, from);
    root = whole_root(square);
    return blasd_exact_nearest(&root, 1, (from + number.exponent) / 2, false,
                               (unsigned __int128)root * root != square ||
                                   any_below(number.limb, number.length, from),
                               dtype);
}

double blasd_exact_narrow_half(double value, enum blasd_dtype dtype) {
    int exponent;
    uint64_t mantissa = blasd_exact_split(value, &exponent);
    if (!isfinite(value)) return value;
    return blasd_exact_nearest(&mantissa, 1, exponent, signbit(value), false, dtype);
}

void blasd_exact_store(double value, enum blasd_dtype dtype, void *data, int64_t at) {
    if (dtype == BLASD_float64) {
        ((double *)data)[at] = value;
    } else if (dtype == BLASD_float32) {
        ((float *)data)[at] = (float)value;
    } else {
        struct blasd_tensor from = blasd_tensor_make(BLASD_float64, 0, NULL);
        struct blasd_tensor to = blasd_tensor_make(dtype, 0, NULL);
        from.data = &value;
        to.data = (char *)data + (size_t)at * blasd_dtype_size(dtype);
        blasd_tensor_convert(&from, &to);
    }
}
