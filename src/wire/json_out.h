/* JSON text into a capped buffer: strings with every escape, numbers that read back the same.
 *
 * Sticky: where memory or the cap runs out, `failed` is set and later calls do nothing, so that a
 * document is written straight through and looked at once. The caller writes braces and commas as
 * text. Read next: json_elements.h. */
#ifndef BLASD_WIRE_JSON_OUT_H
#define BLASD_WIRE_JSON_OUT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct json_out {
    struct blasd_buf *buf; /* borrowed */
    bool failed;
};

/* Appends bytes as they are. */
static inline void json_out_raw(struct json_out *out, const char *text, size_t len) {
    if (!out->failed && blasd_buf_add(out->buf, text, len) != 0) out->failed = true;
}
/* The inside of a JSON string, from `len` bytes of which none is cut from its character. What is
 * not UTF-8 becomes U+FFFD. */
void json_out_escaped(struct json_out *out, const char *text, size_t len);
/* Appends `format` with values in the places of
 *     %s  a string, in quotes (const char *)    %n  the same, or null where it is ""
 *     %r  a text as it is (const char *)        %b  true or false (bool)
 *     %i  int64_t      %u  uint64_t             %f  double; NaN and infinities as strings
 *     %m  microseconds as milliseconds, 1500 as 1.5 (int64_t)
 *     %t  microseconds since 1970 as a date, or null where there is none (int64_t) */
void json_out_put(struct json_out *out, const char *format, ...);

/* The pieces under these, for callers with room of their own: each writes at `p`, at most
 * JSON_NUMBER_MOST bytes, and returns one past it. */
#define JSON_NUMBER_MOST 36
char *json_write_double(char *p, double value);
char *json_write_float(char *p, float value);

#endif
