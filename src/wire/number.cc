/* A number of JSON through from_chars: for those that come alone, and those the quick way of
 * number_read.cc leaves over. The number files are the only C++ in the front end: they neither
 * throw nor allocate. Read next: number_read.cc. */
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

} // namespace

const char *blasd_number_read(const char *p, const char *end, double *ret) {
    const char *digits = p < end && *p == '-' ? p + 1 : p;
    const char *q = digits;
    while (q < end && digit(*q)) q++;
    if (q == digits || (*digits == '0' && q - digits > 1)) return nullptr;
    /* from_chars takes "1." and stops before a bare "e": only these two need a second look */
    if (q < end && *q == '.' && (q + 1 == end || !digit(q[1]))) return nullptr;
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
