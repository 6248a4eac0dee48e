/* Small texts put together without printf, whose price (more than a hundred nanoseconds, a multiple
 * of it where a library has registered conversions of its own) shows on paths that every job takes.
 */
#ifndef BLASD_BASE_TEXT_H
#define BLASD_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLASD_TEXT_NUMBER 21 /* digits of any uint64_t and a zero */

/* Writes the texts one after the other into `out` of `size` bytes, cut to fit and ended by a zero;
 * `c` may be NULL. Returns the length written. */
size_t blasd_text_join(char *out, size_t size, const char *a, const char *b, const char *c);
/* Writes `number` in decimal digits; returns their count. */
size_t blasd_text_number(char out[BLASD_TEXT_NUMBER], uint64_t number);

/* Length of the UTF-8 character that begins at `text`, or 0 where none does: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
size_t blasd_utf8_len(const char *text, const char *end);
/* Whether all of it is UTF-8, without a zero. */
bool blasd_utf8_text(const char *text, size_t len);

/* Writes "inputs.NAME", as errors call an input, cut to fit, and returns it. */
#define BLASD_INPUT_FIELD 64
const char *blasd_input_field(char field[BLASD_INPUT_FIELD], const char *name);

#endif
