/* The shortest decimal text of a floating-point number, of those the closest to it: what to_chars
 * writes, character for character, in a third of its time.
 *
 * After R. Giulietti, "The Schubfach way to render doubles" (2021). A number v = c 2^q is scaled by
 * a power of ten of 128 bits so that the interval of what rounds to v is longer than 1 and at most
 * 10 units long, in quarters of units. If a multiple of ten lies in it, that is the answer (zeros
 * at its end dropped), else the nearest unit that does. The scaling leaves out bits; the last one
 * kept is set if any of them was ("rounding to odd"), which is all that comparing needs to know.
 * The tests hold floats and doubles against to_chars. Read next: number.cc. */
#include "wire/number.h"
#include "wire/number_powers.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__x86_64__) && !defined(BLASD_NUMBER_PLAIN)
#include <emmintrin.h> /* SSE2, which every such processor has */
#define WITH_SSE2 1
#else
#define WITH_SSE2 0
#endif

namespace {

using wide = unsigned __int128;
using blasd::log2_of_10_to, blasd::power_of_ten;
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first digit is the lowest byte");

/* floor(log10(2^q)) and floor(log10(3/4 2^q)) in the ranges needed here. */
constexpr int log10_of_2_to(int q) {
    return (q * 1262611) >> 22;
}
constexpr int log10_of_3_quarters_2_to(int q) {
    return (q * 1262611 - 524031) >> 22;
}
struct decimal {
    uint64_t digits;
    int exponent; /* the value is digits 10^exponent */
};

/* A product of 192 bits without the lowest 64, whose carry is taken care of by who makes it. */
inline uint64_t to_odd(wide product) {
    return (uint64_t)(product >> 64) | ((uint64_t)product > 1);
}

/* For floats 64 bits of the power suffice. */
inline uint64_t scaled(uint64_t by, uint32_t c) {
    wide all = (wide)by * c;
    return (uint64_t)(all >> 64) | ((uint64_t)all >> 32 > 1);
}

/* The answer from the three scaled numbers, in quarters: the value and its neighbours' midpoints.
 * Where c is even the midpoints round to it too. All that could be is computed and then chosen
 * from, for no branch here could be foretold. */
inline decimal choose(uint64_t below, uint64_t value, uint64_t above, bool even, int k) {
    uint64_t least = below + !even, most = above - !even;
    uint64_t units = value / 4, tens = units / 10, middle = 4 * units + 2;
    bool tens_down = least <= 40 * tens, tens_up = 40 * tens + 40 <= most;
    bool down = least <= 4 * units, up = 4 * units + 4 <= most;
    bool nearer = (value > middle) | ((value == middle) & ((units & 1) != 0));
    bool short_one = (units >= 10) & (tens_down != tens_up);
    /* masks, for the compiler would make branches of conditions */
    uint64_t one_of_two = (uint64_t)(down != up), pick = (one_of_two & up) | (~one_of_two & nearer);
    uint64_t longer = units + (pick & 1), shorter = 10 * (tens + tens_up);
    return {longer ^ ((longer ^ shorter) & (0 - (uint64_t)short_one)), k};
}

/* A power's 128 bits shifted by 0 < n < 64 places. */
struct shifted {
    wide high;
    uint64_t low;

    inline shifted(const blasd::power &by, int n)
        : high((wide)(by.high >> (64 - n)) << 64 | (by.high << n | by.low >> (64 - n))),
          low(by.low << n) {
    }
};

/* The answer for every double. */
decimal shortest_exact(double number) {
    uint64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    uint64_t c = bits & ((UINT64_C(1) << 52) - 1);
    int biased = (int)(bits >> 52 & 0x7ff), q = biased == 0 ? -1074 : biased - 1075;
    bool uneven = c == 0 && biased > 1; /* the neighbour below is nearer than the one above */
    if (biased != 0) c |= UINT64_C(1) << 52;
    int k = uneven ? log10_of_3_quarters_2_to(q) : log10_of_2_to(q);
    int shift = q + log2_of_10_to(-k) + 1;
    /* the midpoints are two quarters away, or one: that much is added and taken off rather than
     * multiplying again */
    const blasd::power &by = power_of_ten(-k);
    wide low = (wide)by.low * ((4 * c) << shift);
    wide value_high = (wide)by.high * ((4 * c) << shift) + (uint64_t)(low >> 64);
    uint64_t value_low = (uint64_t)low;
    shifted up(by, shift + 1), down(by, shift + 1 - uneven);
    wide above = value_high + up.high + (value_low + up.low < value_low);
    wide below = value_high - down.high - (value_low < down.low);
    return choose(to_odd(below), to_odd(value_high), to_odd(above), (c & 1) == 0, k);
}

/* The answer for every float. */
decimal shortest_exact(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    uint32_t c = bits & ((UINT32_C(1) << 23) - 1);
    int biased = (int)(bits >> 23 & 0xff), q = biased == 0 ? -149 : biased - 150;
    bool uneven = c == 0 && biased > 1;
    if (biased != 0) c |= UINT32_C(1) << 23;
    int k = uneven ? log10_of_3_quarters_2_to(q) : log10_of_2_to(q);
    int shift = q + log2_of_10_to(-k) + 1;
    uint64_t by = power_of_ten(-k).high + 1;
    return choose(scaled(by, (4 * c - 2 + uneven) << shift), scaled(by, (4 * c) << shift),
                  scaled(by, (4 * c + 2) << shift), (c & 1) == 0, k);
}

/* What the answer for doubles and floats of the common sort is made of. */
template <typename real> struct layout;
template <> struct layout<double> {
    using bits = uint64_t;
    static constexpr int FRACTION = 52, BIAS = 1075;
    static constexpr uint64_t DOUBT = 16;
    static inline wide scale(uint64_t c, const blasd::power &by) {
        return (wide)by.high * c + (uint64_t)((wide)by.low * c >> 64);
    }
};
template <> struct layout<float> {
    using bits = uint32_t;
    static constexpr int FRACTION = 23, BIAS = 150;
    static constexpr uint64_t DOUBT = UINT64_C(1) << 32;
    static inline wide scale(uint64_t c, const blasd::power &by) {
        return (wide)by.high * c;
    }
};

/* The common sort is normal and no power of two, so that its two neighbours are equally near: then
 * half the interval is one shift away, and units with 64 bits behind the point suffice wherever
 * none of the three comparisons below is a near thing (their sides are out by a few in the last
 * place; for floats by less than 2^30). Where one is, all is done again exactly. */
template <typename real> inline decimal shortest(real number) {
    using form = layout<real>;
    typename form::bits bits;
    std::memcpy(&bits, &number, sizeof bits);
    uint64_t one = UINT64_C(1) << form::FRACTION, fraction = bits & (one - 1);
    int biased = (int)(bits >> form::FRACTION); /* the number has no sign */
    if (__builtin_expect(fraction == 0 || biased == 0, 0)) return shortest_exact(number);
    int q = biased - form::BIAS, k = log10_of_2_to(q), shift = q + log2_of_10_to(-k) + 1;
    const blasd::power &by = power_of_ten(-k);
    wide value = form::scale((fraction | one) << shift, by);
    uint64_t units = (uint64_t)(value >> 64), part = (uint64_t)value, tens = units / 10;
    /* less than ten: five bits before the point, one of them for a sign, 59 behind it */
    constexpr uint64_t TEN = UINT64_C(10) << 59, HALF = UINT64_C(1) << 63;
    uint64_t last = (units - 10 * tens) << 59 | part >> 5, half = by.high >> (6 - shift);
    uint64_t low = last - half, high = last + half - TEN; /* negative; not negative: inside */
    if (__builtin_expect((low + form::DOUBT < 2 * form::DOUBT) |
                             (high + form::DOUBT < 2 * form::DOUBT) |
                             (part - HALF + form::DOUBT < 2 * form::DOUBT),
                         0))
        return shortest_exact(number);
    uint64_t up = ~high >> 63, inside = 0 - (low >> 63 | up);
    uint64_t nearest = units + (part >> 63), shorter = 10 * (tens + up);
    return {nearest ^ ((nearest ^ shorter) & inside), k};
}

/* The values of eight digits, the first in the lowest byte: four, then two, then one in each part
 * of a word. */
inline uint64_t eight_digits(uint32_t value) {
    uint64_t word = value / 10000 | (uint64_t)(value % 10000) << 32;
    uint64_t part = (word * 10486 >> 20) & UINT64_C(0x0000007f0000007f); /* a hundredth */
    word = part | (word - part * 100) << 16;
    part = (word * 103 >> 10) & UINT64_C(0x000f000f000f000f); /* a tenth */
    return part | (word - part * 10) << 8;
}

constexpr uint64_t ZEROS = UINT64_C(0x3030303030303030);

/* Zeros at the end of eight digits: 8 where all are. */
inline int zeros_behind(uint64_t word) {
    return (__builtin_clzll(word | 1) >> 3) + (word == 0);
}

/* The characters of twice eight digits, and how many zeros are at the end. */
#if WITH_SSE2
inline wide sixteen_digits(uint32_t front, uint32_t back, int *zeros) {
    __m128i all = _mm_set_epi64x(back, front);
    __m128i part = _mm_srli_epi64(_mm_mul_epu32(all, _mm_set1_epi64x(3518437209)), 45);
    __m128i left = _mm_sub_epi64(all, _mm_mul_epu32(part, _mm_set1_epi64x(10000)));
    all = _mm_or_si128(part, _mm_slli_epi64(left, 32)); /* four below 10000 */
    part = _mm_srli_epi16(_mm_mulhi_epu16(all, _mm_set1_epi32(10486)), 4);
    left = _mm_sub_epi16(all, _mm_mullo_epi16(part, _mm_set1_epi32(100)));
    all = _mm_or_si128(part, _mm_slli_epi32(left, 16)); /* eight below 100 */
    part = _mm_mulhi_epu16(all, _mm_set1_epi16(6554));
    left = _mm_sub_epi16(all, _mm_mullo_epi16(part, _mm_set1_epi16(10)));
    all = _mm_or_si128(part, _mm_slli_epi16(left, 8)); /* sixteen below 10 */
    int others = ~_mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_setzero_si128())) & 0xffff;
    *zeros = __builtin_clz((unsigned)others << 1 | 1) - 15;
    all = _mm_or_si128(all, _mm_set1_epi8('0'));
    return (uint64_t)_mm_cvtsi128_si64(all) |
           (wide)(uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(all, all)) << 64;
}
#else
inline wide sixteen_digits(uint32_t front, uint32_t back, int *zeros) {
    uint64_t first = eight_digits(front), second = eight_digits(back);
    *zeros = zeros_behind(second) + (second == 0 ? zeros_behind(first) : 0);
    return (first | ZEROS) | (wide)(second | ZEROS) << 64;
}
#endif

/* The shortest decimal of a number that is not 0: its first digit, those behind it as characters,
 * and how many there are in all. The first stands at 10^place. All in registers: read from memory
 * again just after it was written there it would cost more than its making. */
template <typename word> struct text {
    char first;
    word rest;
    int count, place;
};

/* Puts a zero behind where there are fewer digits than `full` has: half of all, so no branch. */
inline void widen(decimal *d, uint64_t full) {
    uint64_t fewer = (d->digits - full) >> 63;
    d->digits += 9 * d->digits & (0 - fewer);
    d->exponent -= (int)fewer;
}

/* 17 digits: there are 16 or 17, and fewer only below 2^-1022. */
inline text<wide> digits_of(double size) {
    decimal d = shortest(size);
    constexpr uint64_t FULL = UINT64_C(10000000000000000);
    widen(&d, FULL);
    while (__builtin_expect(d.digits < FULL, 0)) widen(&d, FULL);
    uint64_t high = d.digits / 100000000, first = high / 100000000;
    int zeros;
    wide rest = sixteen_digits((uint32_t)(high - first * 100000000),
                               (uint32_t)(d.digits - high * 100000000), &zeros);
    return {(char)('0' + first), rest, 17 - zeros, d.exponent + 16};
}

/* 9 digits: there are 7 to 9, and fewer only below 2^-126. */
inline text<uint64_t> digits_of(float size) {
    decimal d = shortest(size);
    constexpr uint64_t FULL = 100000000;
    widen(&d, FULL);
    widen(&d, FULL);
    while (__builtin_expect(d.digits < FULL, 0)) widen(&d, FULL);
    uint64_t first = d.digits / FULL, rest = eight_digits((uint32_t)(d.digits - first * FULL));
    return {(char)('0' + first), rest | ZEROS, 9 - zeros_behind(rest), d.exponent + 8};
}

/* As in 1.2e-05. */
template <typename word> char *write_scientific(char *p, const text<word> &t) {
    p[0] = t.first;
    p[1] = '.';
    std::memcpy(p + 2, &t.rest, sizeof t.rest);
    p += t.count > 1 ? t.count + 1 : 1;
    int size = t.place < 0 ? -t.place : t.place;
    *p++ = 'e';
    *p++ = t.place < 0 ? '-' : '+';
    if (size >= 100) *p++ = (char)('0' + size / 100);
    *p++ = (char)('0' + size / 10 % 10);
    *p++ = (char)('0' + size % 10);
    return p;
}

/* Writes a number that is no integer as to_chars does, in the shorter of the two notations, and
 * plain where they are of one length. Whether it is below 1 could not be foretold: both cases are
 * one. Digits go where they stand before the point, or below 1, and those behind it once more. */
template <typename word> inline char *write_fraction(char *p, const text<word> &t) {
    if (__builtin_expect(t.place < -3 - (t.count > 1), 0)) return write_scientific(p, t);
    int below = (int)((unsigned)t.place >> 31), before = t.place & (below - 1);
    char *start = p + ((1 - t.place) & -below);
    word behind = t.rest >> 8 * before;
    std::memcpy(p, "0000000", 8);
    *start = t.first;
    std::memcpy(start + 1, &t.rest, sizeof t.rest);
    std::memcpy(start + 2 + before - below, &behind, sizeof behind);
    p[1 + before] = '.';
    return start + t.count + 1 - below;
}

inline char *write_eight(char *p, uint64_t digits) {
    digits |= ZEROS;
    std::memcpy(p, &digits, sizeof digits);
    return p + 8;
}

/* Below 10^8, without zeros in front. */
inline char *write_start(char *p, uint32_t value) {
    uint64_t digits = eight_digits(value);
    int zeros = __builtin_ctzll(digits | UINT64_C(1) << 56) >> 3;
    return write_eight(p, digits >> 8 * zeros) - zeros;
}

inline char *write_whole(char *p, uint64_t value) {
    constexpr uint64_t EIGHT = 100000000;
    if (value < EIGHT) return write_start(p, (uint32_t)value);
    if (value < EIGHT * EIGHT)
        p = write_start(p, (uint32_t)(value / EIGHT));
    else
        p = write_eight(write_start(p, (uint32_t)(value / EIGHT / EIGHT)),
                        eight_digits((uint32_t)(value / EIGHT % EIGHT)));
    return write_eight(p, eight_digits((uint32_t)(value % EIGHT)));
}

/* From here on not every integer is a `real`, and to_chars' plain notation shows all digits of the
 * number rather than the shortest ones. */
template <typename real>
constexpr real whole_limit = (real)(UINT64_C(1) << std::numeric_limits<real>::digits);

/* Writes all but what is not finite and what is large; false for that. */
template <typename real>
__attribute__((always_inline)) inline bool write_quick(char **out, real value) {
    real size = std::fabs(value);
    if (!(size < whole_limit<real>)) return false;
    char *p = *out;
    *p = '-'; /* as likely as not: no branch */
    p += std::signbit(value);
    int64_t whole = (int64_t)size; /* signed: one instruction each way */
    if ((real)whole != size)
        *out = write_fraction(p, digits_of(size));
    else if (whole % 100000 != 0 || whole == 0)
        *out = write_whole(p, (uint64_t)whole);
    else
        return false; /* 1e+05 is the shorter way */
    return true;
}

template <typename real> inline char *write(char *out, real value) {
    if (write_quick(&out, value)) return out;
    return std::to_chars(out, out + BLASD_NUMBER_MAX, value).ptr;
}

template <typename real>
inline char *write_run(char *out, const void *values, size_t most, size_t *count) {
    const char *at = (const char *)values;
    size_t n = 0;
    char *p = out; /* never seen from outside, so that it stays in a register */
    for (; n < most; n++) {
        real value;
        std::memcpy(&value, at + n * sizeof value, sizeof value);
        if ((value == 0 && std::signbit(value)) || !write_quick(&p, value)) break;
        *p++ = ',';
    }
    *count = n;
    return p;
}

} // namespace

char *blasd_number_write(char *out, double value) {
    return write(out, value);
}

char *blasd_number_write_float(char *out, float value) {
    return write(out, value);
}

char *blasd_number_write_uint(char *out, uint64_t value) {
    return write_whole(out, value);
}

char *blasd_number_write_int(char *out, int64_t value) {
    *out = '-';
    return write_whole(out + (value < 0), value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

char *blasd_numbers_write(char *out, const void *values, size_t most, size_t *count) {
    return write_run<double>(out, values, most, count);
}

char *blasd_numbers_write_float(char *out, const void *values, size_t most, size_t *count) {
    return write_run<float>(out, values, most, count);
}
