/* Numbers of JSON through from_chars. This and number_write.cc are the only C++ in the front end:
 * they neither throw nor allocate. Read next: number_write.cc. */
#include "wire/number.h"

#include <charconv>
#include <cstddef>
#include <cstring>
#include <limits>

namespace {

inline bool digit(char c) {
    return c >= '0' && c <= '9';
}

/* The parts of a number whose grammar was checked. */
struct parts {
    const char *digits;   /* the first digit */
    const char *integer;  /* one past the integer part */
    const char *fraction; /* one past the fraction, == integer where there is none */
    const char *end;      /* one past the number */
};

/* Reads a number's shape by JSON's grammar; false where it is not one. */
bool scan(const char *p, const char *end, struct parts *ret) {
    if (p < end && *p == '-') p++;
    ret->digits = p;
    if (p == end || !digit(*p)) return false;
    if (*p == '0') {
        p++;
        if (p < end && digit(*p)) return false;
    }
    while (p < end && digit(*p)) p++;
    ret->integer = ret->fraction = p;
    if (p < end && *p == '.') {
        const char *first = ++p;
        while (p < end && digit(*p)) p++;
        if (p == first) return false;
        ret->fraction = p;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        const char *first = p;
        while (p < end && digit(*p)) p++;
        if (p == first) return false;
    }
    ret->end = p;
    return true;
}

/* What from_chars would not tell apart: whether a number beyond a double's range is huge or tiny.
 * The decimal place of the first digit that is not 0, plus the exponent, tells. */
bool huge(const parts &n) {
    const char *p = n.digits;
    std::ptrdiff_t place = n.integer - n.digits;
    long exponent = 0;
    while (p < n.fraction && (*p == '0' || *p == '.')) {
        if (*p == '0') place--;
        p++;
    }
    p = n.fraction;
    if (p < n.end) {
        bool negative = p[1] == '-';
        p += p[1] == '-' || p[1] == '+' ? 2 : 1;
        for (; p < n.end; p++)
            if (exponent < 1000000000000L) exponent = exponent * 10 + (*p - '0');
        if (negative) exponent = -exponent;
    }
    return place + exponent > 0;
}

const char *read_slow(const char *p, const char *end, double *ret) {
    parts n;
    if (!scan(p, end, &n)) return nullptr;
    std::from_chars_result r = std::from_chars(p, n.end, *ret);
    if (r.ec == std::errc::result_out_of_range) {
        double size = huge(n) ? std::numeric_limits<double>::infinity() : 0.0;
        *ret = *p == '-' ? -size : size;
    } else if (r.ec != std::errc() || r.ptr != n.end) {
        return nullptr;
    }
    return n.end;
}

/* Whether the eight bytes at `p` are digits: a digit's high half is 3, and stays so when 6 is
 * added. */
inline bool eight_digits(const char *p) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    return ((word & (word + UINT64_C(0x0606060606060606))) & UINT64_C(0xf0f0f0f0f0f0f0f0)) ==
           UINT64_C(0x3030303030303030);
}

/* Reads the digits behind a point where there are few of them: `whole`, the digits so far, and
 * those make an integer below 2^53, which a division by a power of ten (exact up to 10^22) rounds
 * once. NULL where there are too many or an exponent follows. */
inline const char *read_short(const char *p, const char *end, uint64_t whole, std::ptrdiff_t digits,
                              double *ret) {
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *from = p;
    if (digits > 15 || (end - p >= 16 && eight_digits(p) && eight_digits(p + 8))) return nullptr;
    if (end - p > 16 - digits) end = p + (16 - digits);
    while (p < end && digit(*p)) whole = whole * 10 + (uint64_t)(*p++ - '0');
    /* at the end of what was allowed there may be more */
    if (p == end || *p == 'e' || *p == 'E') return nullptr;
    *ret = (double)whole / powers[p - from];
    return p;
}

} // namespace

const char *blasd_number_read(const char *p, const char *end, double *ret) {
    const char *digits = p < end && *p == '-' ? p + 1 : p;
    const char *q = digits;
    uint64_t whole = 0;
    while (q < end && digit(*q)) {
        whole = whole * 10 + (uint64_t)(*q - '0');
        q++;
    }
    if (q == digits || (*digits == '0' && q - digits > 1)) return nullptr;
    if (q == end || (*q != '.' && *q != 'e' && *q != 'E')) {
        /* up to 15 digits a double holds every integer */
        if (q - digits > 15) return read_slow(p, end, ret);
        *ret = digits == p ? (double)whole : -(double)whole;
        return q;
    }
    /* from_chars takes "1." and stops before a bare "e": only these two need a second look */
    if (*q == '.' && (q + 1 == end || !digit(q[1]))) return nullptr;
    if (*q == '.') {
        const char *next = read_short(q + 1, end, whole, q - digits, ret);
        if (next != nullptr) {
            if (digits != p) *ret = -*ret;
            return next;
        }
    }
    std::from_chars_result r = std::from_chars(p, end, *ret);
    if (r.ec != std::errc() || (r.ptr < end && (*r.ptr == 'e' || *r.ptr == 'E')))
        return read_slow(p, end, ret);
    return r.ptr;
}

enum blasd_number_int blasd_number_read_int(const char *p, const char *end, const char **next,
                                            uint64_t *magnitude, bool *negative) {
    parts n;
    uint64_t value = 0;
    *next = nullptr;
    if (!scan(p, end, &n)) return BLASD_INT_LITERAL;
    *next = n.end;
    if (n.integer != n.end) return BLASD_INT_LITERAL;
    *negative = *p == '-';
    for (const char *q = n.digits; q < n.integer; q++) {
        uint64_t d = (uint64_t)(*q - '0');
        if (value > (UINT64_MAX - d) / 10) return BLASD_INT_RANGE;
        value = value * 10 + d;
    }
    *magnitude = value;
    return BLASD_INT_OK;
}

char *blasd_number_write_int(char *out, int64_t value) {
    return std::to_chars(out, out + BLASD_NUMBER_MAX, value).ptr;
}
