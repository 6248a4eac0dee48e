/* Numbers as JSON writes them: one at a time, exact, independent of the locale.
 *
 * A reader (number_read.cc) and a printer (number_write.cc) of our own for the common sort, and
 * C++17's from_chars and to_chars for the rest; both round correctly. Knows JSON's grammar
 * of a number and nothing else of JSON. Read next: json_in.c. */
#ifndef BLASD_WIRE_NUMBER_H
#define BLASD_WIRE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLASD_NUMBER_MAX 36 /* bytes that writing any number here may touch; no zero follows it */

/* Reads the number that begins at `p`, by JSON's grammar alone: no sign +, no leading zeros, digits
 * on both sides of the point. Rounds to nearest even; what is too small becomes a subnormal or a
 * zero of its sign, what is too large an infinity of its sign (callers refuse it: JSON has none).
 * Returns one past the number, or NULL where none begins there. Does not look at what follows. */
const char *blasd_number_read(const char *p, const char *end, double *ret);

#define BLASD_NUMBER_SLACK 16 /* bytes behind a text that blasd_numbers_read may look at */

/* Reads numbers with commas, and spaces, between them, at most `most` and as long as they are
 * numbers: each as blasd_number_read does. Returns one past the last, or `p`, and their *count.
 * *end is a zero and BLASD_NUMBER_SLACK bytes from it may be read. */
const char *blasd_numbers_read(const char *p, const char *end, double *values, size_t most,
                               size_t *count);

/* How blasd_number_read_int went. */
enum blasd_number_int {
    BLASD_INT_OK,
    BLASD_INT_RANGE,   /* an integer literal that does not fit */
    BLASD_INT_LITERAL, /* a number, but with a fraction or an exponent */
};
/* Reads the number that begins at `p` as an integer without going through a double: *magnitude and
 * *negative. *next is one past the number, or NULL where none begins there. */
enum blasd_number_int blasd_number_read_int(const char *p, const char *end, const char **next,
                                            uint64_t *magnitude, bool *negative);

/* Writes the shortest text that reads back as the same value and returns one past it; no zero at
 * the end. `out` has room for BLASD_NUMBER_MAX bytes. Finite values only: JSON has no others, the
 * caller writes the strings "NaN", "Infinity" and "-Infinity". */
char *blasd_number_write(char *out, double value);
/* The shortest text that reads back as the same float. */
char *blasd_number_write_float(char *out, float value);
char *blasd_number_write_int(char *out, int64_t value);
char *blasd_number_write_uint(char *out, uint64_t value);

/* Writes up to `most` doubles, or floats, of any alignment, each with a comma behind it, and stops
 * before one that blasd_number_write leaves to to_chars (large, or a multiple of 100000) or JSON
 * writes otherwise (not finite, or -0).
 * Returns one past the last comma, and how many there are as *count. `out` has room for
 * BLASD_NUMBER_MAX + 1 bytes each. */
char *blasd_numbers_write(char *out, const void *values, size_t most, size_t *count);
char *blasd_numbers_write_float(char *out, const void *values, size_t most, size_t *count);

#ifdef __cplusplus
}
#endif
#endif
