/* The shortest decimal text of a floating-point number, of those the closest to it: what to_chars
 * writes, character for character, in less than half its time.
 *
 * After R. Giulietti, "The Schubfach way to render doubles" (2021). A number v = c 2^q is scaled by
 * a power of ten of 128 bits so that the interval of what rounds to v is longer than 1 and at most
 * 10 units long, in quarters of units. If a multiple of ten lies in it, that is the answer (zeros
 * at its end dropped), else the nearest unit that does. The scaling leaves out bits; the last one
 * kept is set if any of them was ("rounding to odd"), which is all that comparing needs to know.
 * The tests hold every float and many doubles against to_chars. Read next: number.cc. */
#include "wire/number.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

using wide = unsigned __int128;

constexpr int LEAST_POWER = -292, MOST_POWER = 324;

struct power {
    uint64_t high, low;
};

/* A whole number of up to 1280 bits, for the table. */
struct big {
    static constexpr int WORDS = 20;
    uint64_t words[WORDS] = {};

    constexpr void times_ten() {
        uint64_t carry = 0;
        for (uint64_t &word : words) {
            wide product = (wide)word * 10 + carry;
            word = (uint64_t)product;
            carry = (uint64_t)(product >> 64);
        }
    }
    constexpr void by_ten() {
        uint64_t rest = 0;
        for (int i = WORDS - 1; i >= 0; i--) {
            wide part = (wide)rest << 64 | words[i];
            words[i] = (uint64_t)(part / 10);
            rest = (uint64_t)(part % 10);
        }
    }
    /* Its first 128 bits, plus one: above the exact value, by one unit at the most. */
    constexpr power top() const {
        int i = WORDS - 1, shift = 0;
        while (words[i] == 0) i--;
        while ((words[i] << shift >> 63) == 0) shift++;
        uint64_t part[3] = {words[i], i > 0 ? words[i - 1] : 0, i > 1 ? words[i - 2] : 0};
        uint64_t high = shift == 0 ? part[0] : part[0] << shift | part[1] >> (64 - shift);
        uint64_t low = shift == 0 ? part[1] : part[1] << shift | part[2] >> (64 - shift);
        return {low == UINT64_MAX ? high + 1 : high, low + 1};
    }
};

constexpr std::array<power, MOST_POWER - LEAST_POWER + 1> make_powers() {
    std::array<power, MOST_POWER - LEAST_POWER + 1> powers{};
    big up, down;
    up.words[0] = 1;
    for (int k = 0; k <= MOST_POWER; k++, up.times_ten()) powers[k - LEAST_POWER] = up.top();
    down.words[big::WORDS - 1] = UINT64_C(1) << 63;
    for (int k = -1; k >= LEAST_POWER; k--) {
        down.by_ten(); /* rounded down again and again is rounded down once */
        powers[k - LEAST_POWER] = down.top();
    }
    return powers;
}

constexpr auto powers = make_powers();

/* floor(log10(2^q)), floor(log10(3/4 2^q)) and floor(log2(10^k)) in the ranges needed here. */
constexpr int log10_of_2_to(int q) {
    return (q * 1262611) >> 22;
}
constexpr int log10_of_3_quarters_2_to(int q) {
    return (q * 1262611 - 524031) >> 22;
}
constexpr int log2_of_10_to(int k) {
    return (k * 1741647) >> 19;
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
    uint64_t longer = units + (pick & 1), shorter = tens + tens_up;
    return {longer ^ ((longer ^ shorter) & (0 - (uint64_t)short_one)), k + short_one};
}

inline decimal shortest(double number) {
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
    const power &by = powers[(size_t)(-k - LEAST_POWER)];
    wide low = (wide)by.low * ((4 * c) << shift);
    wide value_high = (wide)by.high * ((4 * c) << shift) + (uint64_t)(low >> 64);
    uint64_t value_low = (uint64_t)low;
    int up = shift + 1, down = up - uneven;
    wide step = (wide)by.high << up | by.low >> (64 - up);
    uint64_t above_low = value_low + (by.low << up);
    wide above = value_high + step + (above_low < value_low);
    wide step_down = (wide)by.high << down | by.low >> (64 - down);
    wide below = value_high - step_down - (value_low < by.low << down);
    return choose(to_odd(below), to_odd(value_high), to_odd(above), (c & 1) == 0, k);
}

inline decimal shortest(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    uint32_t c = bits & ((UINT32_C(1) << 23) - 1);
    int biased = (int)(bits >> 23 & 0xff), q = biased == 0 ? -149 : biased - 150;
    bool uneven = c == 0 && biased > 1;
    if (biased != 0) c |= UINT32_C(1) << 23;
    int k = uneven ? log10_of_3_quarters_2_to(q) : log10_of_2_to(q);
    int shift = q + log2_of_10_to(-k) + 1;
    uint64_t by = powers[(size_t)(-k - LEAST_POWER)].high + 1;
    return choose(scaled(by, (4 * c - 2 + uneven) << shift), scaled(by, (4 * c) << shift),
                  scaled(by, (4 * c + 2) << shift), (c & 1) == 0, k);
}

inline void drop_zeros(decimal *d) {
    if (d->digits % 10 != 0) return;
    while (d->digits % 10000 == 0) d->digits /= 10000, d->exponent += 4;
    while (d->digits % 10 == 0) d->digits /= 10, d->exponent++;
}

/* Eight digits at once, the first in the lowest byte: four, then two, then one in each part of a
 * word. */
inline uint64_t eight_digits(uint32_t value) {
    uint64_t word = value / 10000 | (uint64_t)(value % 10000) << 32;
    uint64_t part = (word * 10486 >> 20) & UINT64_C(0x0000007f0000007f); /* a hundredth */
    word = part | (word - part * 100) << 16;
    part = (word * 103 >> 10) & UINT64_C(0x000f000f000f000f); /* a tenth */
    return (part | (word - part * 10) << 8) + UINT64_C(0x3030303030303030);
}

inline int count_digits(uint64_t value) {
    constexpr uint64_t steps[] = {UINT64_C(1),
                                  UINT64_C(10),
                                  UINT64_C(100),
                                  UINT64_C(1000),
                                  UINT64_C(10000),
                                  UINT64_C(100000),
                                  UINT64_C(1000000),
                                  UINT64_C(10000000),
                                  UINT64_C(100000000),
                                  UINT64_C(1000000000),
                                  UINT64_C(10000000000),
                                  UINT64_C(100000000000),
                                  UINT64_C(1000000000000),
                                  UINT64_C(10000000000000),
                                  UINT64_C(100000000000000),
                                  UINT64_C(1000000000000000),
                                  UINT64_C(10000000000000000),
                                  UINT64_C(100000000000000000)};
    int guess = (64 - __builtin_clzll(value | 1)) * 1233 >> 12; /* of its bits times log10(2) */
    return guess + (value >= steps[guess]);
}

/* The text of n digits, 17 at the most, in registers: read from memory again just after it was
 * written there it would cost more than its making. The first digit stands apart where there are
 * 17; `rest` begins with the next one. */
struct text {
    wide rest;
    int left; /* digits in it */

    inline text(char **p, uint64_t digits, int n) {
        uint64_t high = digits / 100000000;
        **p = (char)('0' + high / 100000000);
        rest = eight_digits((uint32_t)(high % 100000000)) |
               (wide)eight_digits((uint32_t)(digits % 100000000)) << 64;
        left = n > 16 ? 16 : n;
        *p += n - left;
        rest >>= 8 * (16 - left);
    }
    /* Writes it without its first `from` digits, and touches 16 bytes. */
    inline void write(char *p, int from) const {
        wide digits = from > 15 ? 0 : rest >> (8 * from);
        std::memcpy(p, &digits, sizeof digits);
    }
};

char *write_scientific(char *p, uint64_t digits, int n, int place) {
    char first[17 + 1], *at = first;
    text all(&at, digits, n);
    all.write(at, 0);
    *p++ = first[0];
    if (n > 1) {
        *p++ = '.';
        std::memcpy(p, first + 1, 16);
        p += n - 1;
    }
    *p++ = 'e';
    *p++ = place < 0 ? '-' : '+';
    int size = place < 0 ? -place : place;
    if (size >= 100) *p++ = (char)('0' + size / 100);
    *p++ = (char)('0' + size / 10 % 10);
    *p++ = (char)('0' + size % 10);
    return p;
}

/* Writes n digits of which the first stands at 10^place. As to_chars does, in the shorter of the
 * two notations, and plain where they are of one length. */
inline char *write_decimal(char *p, const decimal &d) {
    int n = count_digits(d.digits), place = n - 1 + d.exponent;
    int scientific = n + (n > 1) + (place <= -100 || place >= 100 ? 5 : 4);
    int plain = d.exponent >= 0 ? n + d.exponent : place >= 0 ? n + 1 : n + 1 - place;
    if (scientific < plain) return write_scientific(p, d.digits, n, place);
    if (place < 0) { /* not below -4, or the other one would be shorter */
        std::memcpy(p, "0.000000", 8);
        p += 1 - place;
    }
    char *start = p;
    text all(&p, d.digits, n);
    all.write(p, 0);
    if (place < 0) return start + n;
    if (d.exponent >= 0) {
        std::memcpy(start + n, "00000000", 8); /* there are no more than five */
        return start + n + d.exponent;
    }
    char *point = start + place + 1;
    all.write(point + 1, (int)(point - p));
    *point = '.';
    return start + n + 1;
}

/* From here on not every integer is a `real`, and to_chars' plain notation shows all digits of the
 * number rather than the shortest ones. */
template <typename real>
constexpr real whole_limit = sizeof(real) == sizeof(double) ? (real)9007199254740992.0
                                                            : (real)16777216.0;

/* Numbers of up to three decimals, which people write and prices are. No two decimals of 15 digits
 * or fewer round to the same double, so one that rounds to this number is its shortest. */
inline bool few_decimals(double size, decimal *d) {
    double thousands = size * 1000, nearest = (double)(uint64_t)(thousands + 0.5);
    if (!(size < 1e9 && std::fabs(thousands - nearest) < 1e-3 && nearest / 1000 == size))
        return false;
    *d = {(uint64_t)nearest, -3};
    return true;
}

inline bool few_decimals(float, decimal *) {
    return false;
}

template <typename real> inline char *write(char *out, real value) {
    real size = std::fabs(value);
    if (!(size > 0 && size < whole_limit<real>))
        return std::to_chars(out, out + BLASD_NUMBER_MAX, value).ptr;
    *out = '-'; /* as likely as not: no branch */
    out += value < 0;
    uint64_t whole = (uint64_t)size;
    decimal d = {whole, 0};
    if ((real)whole != size && !few_decimals(size, &d)) d = shortest(size);
    drop_zeros(&d);
    return write_decimal(out, d);
}

} // namespace

char *blasd_number_write(char *out, double value) {
    return write(out, value);
}

char *blasd_number_write_float(char *out, float value) {
    return write(out, value);
}
