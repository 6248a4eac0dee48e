/* Hexadecimal text, in lower case. */
#ifndef BLASD_BASE_HEX_H
#define BLASD_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Writes the lowest 4 * `digits` bits of `number`; returns one past the last digit. */
static inline char *blasd_hex_write(char *out, uint64_t number, unsigned digits) {
    for (unsigned i = digits; i-- > 0; number >>= 4) out[i] = "0123456789abcdef"[number & 15];
    return out + digits;
}

/* Whether `text` begins with `len` digits, and no more. */
static inline bool blasd_hex_begins(const char *text, size_t len) {
    return strspn(text, "0123456789abcdef") == len;
}

#endif
