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
/* Appends a string literal as it is. */
#define JSON_OUT_LITERAL(out, literal) json_out_raw(out, "" literal, sizeof(literal) - 1)
/* A JSON string, with its quotes. What is not UTF-8 becomes U+FFFD. */
void json_out_string(struct json_out *out, const char *text);
/* The inside of a JSON string, from `len` bytes of which none is cut from its character. */
void json_out_escaped(struct json_out *out, const char *text, size_t len);
void json_out_bool(struct json_out *out, bool value);
void json_out_int(struct json_out *out, int64_t value);
void json_out_uint(struct json_out *out, uint64_t value);
/* NaN and infinities as strings. */
void json_out_double(struct json_out *out, double value);
/* Microseconds as milliseconds: 1500 gives 1.5. */
void json_out_ms(struct json_out *out, int64_t us);

/* The pieces under these, for callers with room of their own: each writes at `p`, at most
 * JSON_NUMBER_MOST bytes, and returns one past it. */
#define JSON_NUMBER_MOST 36
char *json_write_double(char *p, double value);
char *json_write_float(char *p, float value);

#endif
