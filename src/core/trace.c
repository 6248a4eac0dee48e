/* Reading and making the ids of traces. */
#include "core/trace.h"

#include "base/hex.h"
#include "base/id.h"

#include <string.h>

#define HEADER_LEN 55 /* 00-TRACE-SPAN-FLAGS */

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads `len` bytes of two digits each; false where they are none, or all zero. */
static bool read_bytes(const char *text, uint8_t *bytes, size_t len) {
    uint8_t any = 0;
    for (size_t i = 0; i < len; i++) {
        int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);
        if (low < 0) return false;
        bytes[i] = (uint8_t)(high << 4 | low);
        any |= bytes[i];
    }
    return any != 0;
}

/* A later version may have more behind what this one has. */
static bool version_fits(const char *text, size_t len) {
    int high = digit(text[0]), low = digit(text[1]);
    if (high < 0 || low < 0 || (high == 15 && low == 15)) return false;
    return high == 0 && low == 0 ? len == HEADER_LEN : len == HEADER_LEN || text[HEADER_LEN] == '-';
}

bool blasd_trace_read(const char *text, size_t len, struct blasd_trace *ret) {
    struct blasd_trace trace;
    int high, low;
    if (len < HEADER_LEN || memchr(text, '\0', HEADER_LEN) != NULL || !version_fits(text, len))
        return false;
    if (text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
    if (!read_bytes(text + 3, trace.id, sizeof trace.id) ||
        !read_bytes(text + 36, trace.span, sizeof trace.span))
        return false;
    high = digit(text[53]);
    low = digit(text[54]);
    if (high < 0 || low < 0) return false;
    trace.sampled = (low & 1) != 0;
    *ret = trace;
    return true;
}

void blasd_trace_text(const uint8_t id[BLASD_TRACE_ID], char text[BLASD_TRACE_TEXT]) {
    char *at = text;
    for (int i = 0; i < BLASD_TRACE_ID; i++) at = blasd_hex_write(at, id[i], 2);
    *at = '\0';
}

void blasd_trace_random(uint8_t *bytes, size_t len) {
    char text[BLASD_TRACE_TEXT];
    do {
        blasd_random_hex(text, 2 * len);
    } while (!read_bytes(text, bytes, len));
}

void blasd_trace_job_span(const char *id, uint8_t span[BLASD_SPAN_ID]) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *id != '\0'; id++) hash = (hash ^ (uint8_t)*id) * UINT64_C(0x100000001b3);
    hash |= 1;
    memcpy(span, &hash, BLASD_SPAN_ID);
}
