/* Runs of JSON numbers: the digits eight at a time, the rounding by one multiplication.
 *
 * Digits make an integer w below 10^19, so the number is w 10^q. Where w and 10^|q| are both exact
 * as doubles, one operation rounds it. Else the first 64 bits of 10^q, too small by less than one
 * unit, times w give the number's first bits, too small by less than one unit of the upper word:
 * where the bits below the rounding bit are neither all ones (a carry might be missing) nor all
 * zeros (it might be a tie), they say how to round. What is left, one in 256, and numbers that are
 * long, tiny, huge or odd go through from_chars. Read next: number.cc. */
#include "wire/number.h"
#include "wire/number_powers.h"

#include <cstring>

namespace {

using wide = unsigned __int128;
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first digit is the lowest byte");

constexpr uint64_t ZEROS = UINT64_C(0x3030303030303030);

/* The highest half of each byte that is no digit's value is not zero; bytes behind the first such
 * one may say anything. `word`: eight characters, each less '0' by exclusive or. */
inline uint64_t no_digits(uint64_t word) {
    return ((word + UINT64_C(0x0606060606060606)) | word) & UINT64_C(0xf0f0f0f0f0f0f0f0);
}

/* The integer of eight digits' values: pairs, then fours, then all. */
inline uint64_t eight_digits(uint64_t word) {
    word = (word * 10 + (word >> 8)) & UINT64_C(0x00ff00ff00ff00ff);
    word = (word * 100 + (word >> 16)) & UINT64_C(0x0000ffff0000ffff);
    return (word * 10000 + (word >> 32)) & UINT64_C(0xffffffff);
}

/* Reads digits to the first byte that is none and puts them behind those of `value`, modulo 2^64;
 * looks at seven bytes behind. */
inline const char *read_digits(const char *p, uint64_t *value) {
    static constexpr uint64_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    for (;;) {
        uint64_t word, other;
        std::memcpy(&word, p, sizeof word);
        word ^= ZEROS;
        other = no_digits(word);
        if (other != 0) {
            int n = __builtin_ctzll(other) >> 3;
            /* zeros before them do no harm; in two steps, for n may be 0 */
            *value = *value * tens[n] + eight_digits(word << (56 - 8 * n) << 8);
            return p + n;
        }
        *value = *value * 100000000 + eight_digits(word);
        p += 8;
    }
}

/* w 10^q for 0 < w, where that is a normal double and its rounding certain; *bits without sign. */
inline bool round_product(uint64_t w, int q, uint64_t *bits) {
    if (q < blasd::LEAST_POWER || q > 288) return false;
    int zeros = __builtin_clzll(w);
    uint64_t high = (uint64_t)((wide)(w << zeros) * blasd::power_of_ten(q).high >> 64);
    int top = (int)(high >> 63); /* its highest bit is this or the one below */
    uint64_t rest = high & 0x1ff;
    uint64_t digits = high >> (9 + top); /* 53 bits and the rounding bit */
    uint64_t exponent = (uint64_t)(1023 + 62 + top - zeros + blasd::log2_of_10_to(q));
    /* the highest of the 53 adds one to the exponent, and a carry out of them one more */
    *bits = (exponent << 52) + ((digits + 1) >> 1);
    return rest - 1 < 0x1fe;
}

/* The number at `p`, or NULL where it takes the slow way, which may find it to be none. */
inline const char *read_quick(const char *p, double *ret) {
    static constexpr double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    uint64_t negative = *p == '-', w = 0, bits;
    const char *first = p + negative;
    int exponent = 0;
    p = read_digits(first, &w);
    std::ptrdiff_t digits = p - first;
    bool zero = *first == '0';
    if (digits == 0 || (zero && digits > 1)) return nullptr;
    if (*p == '.') {
        const char *fraction = p + 1;
        p = read_digits(fraction, &w);
        if (p == fraction) return nullptr;
        digits += p - fraction;
        exponent = (int)(fraction - p);
    }
    if (digits > 19 + zero) return nullptr;
    if (*p == 'e' || *p == 'E') {
        bool below = p[1] == '-';
        p += p[1] == '-' || p[1] == '+' ? 2 : 1;
        uint64_t size = 0;
        const char *from = p;
        p = read_digits(p, &size);
        if (p == from || p - from > 4) return nullptr;
        exponent += below ? -(int)size : (int)size;
    }
    if (w < UINT64_C(1000000000000000) && exponent >= -22 && exponent <= 22) {
        double exact = (double)w;
        exact = exponent < 0 ? exact / tens[-exponent] : exact * tens[exponent];
        std::memcpy(&bits, &exact, sizeof bits);
    } else if (w == 0 || !round_product(w, exponent, &bits)) {
        return nullptr;
    }
    bits |= negative << 63;
    std::memcpy(ret, &bits, sizeof bits);
    return p;
}

/* Digits alone, as masks, labels and small examples have them. */
inline const char *read_digit(const char *p, double *ret) {
    unsigned digit = (unsigned char)*p - '0';
    if (digit > 9 || (p[1] != ',' && p[1] != ']')) return nullptr;
    *ret = digit;
    return p + 1;
}

inline const char *skip_space(const char *p) {
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') p++;
    return p;
}

} // namespace

const char *blasd_numbers_read(const char *p, const char *end, double *values, size_t most,
                               size_t *count) {
    const char *behind = p;
    size_t n = 0;
    while (n < most) {
        const char *next = read_digit(p, values + n);
        if (next == nullptr) next = read_quick(p, values + n);
        if (next == nullptr) next = blasd_number_read(p, end, values + n);
        if (next == nullptr) break;
        behind = next;
        n++;
        p = *next == ',' ? next : skip_space(next);
        if (*p != ',') break;
        p = skip_space(p + 1);
    }
    *count = n;
    return behind;
}
