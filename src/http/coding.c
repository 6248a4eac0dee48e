/* zlib, behind what the front end needs of it. */
#include "http/coding.h"

#include "base/limits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#define PIECE_BYTES 65536

struct http_unpacker {
    z_stream z;
    bool ended;
    uint64_t out; /* bytes unpacked so far */
    char piece[PIECE_BYTES];
};

static const char *const names[] = {"identity", "gzip", "deflate"};

bool http_coding_find(const char *name, enum http_coding *ret) {
    for (int i = HTTP_CODING_NONE; i <= HTTP_CODING_DEFLATE; i++)
        if (strcasecmp(name, names[i]) == 0) {
            *ret = (enum http_coding)i;
            return true;
        }
    return false;
}

/* Whether a weight stands behind a coding that rejects it: ";q=0", ";q=0.000". */
static bool is_rejected(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == ';')) at++;
    if (end - at < 3 || (at[0] != 'q' && at[0] != 'Q') || at[1] != '=') return false;
    for (at += 2; at < end; at++)
        if (*at >= '1' && *at <= '9') return false;
    return true;
}

bool http_coding_takes_gzip(const char *value) {
    while (*value != '\0') {
        const char *end = value + strcspn(value, ",");
        size_t len;
        while (*value == ' ' || *value == '\t') value++;
        len = strcspn(value, ";, \t");
        if (len == 4 && strncasecmp(value, "gzip", len) == 0) return !is_rejected(value + len, end);
        value = *end == '\0' ? end : end + 1;
    }
    return false;
}

/* 15 bits of window; 16 more: in gzip's wrapping. */
static int window(enum http_coding coding) {
    return coding == HTTP_CODING_GZIP ? 15 + 16 : 15;
}

struct http_unpacker *http_unpacker_new(enum http_coding coding) {
    struct http_unpacker *unpacker = malloc(sizeof *unpacker);
    if (unpacker == NULL) return NULL;
    memset(unpacker, 0, offsetof(struct http_unpacker, piece));
    if (inflateInit2(&unpacker->z, window(coding)) == Z_OK) return unpacker;
    free(unpacker);
    return NULL;
}

void http_unpacker_free(struct http_unpacker *unpacker) {
    if (unpacker == NULL) return;
    (void)inflateEnd(&unpacker->z);
    free(unpacker);
}

int http_unpack(struct http_unpacker *unpacker, const void *bytes, size_t len, size_t *used,
                uint64_t most,
                int (*take)(void *arg, const void *bytes, size_t len, struct blasd_err *err),
                void *arg, struct blasd_err *err) {
    z_stream *z = &unpacker->z;
    const uint64_t before = unpacker->out;
    size_t out;
    int rc;
    z->next_in = (void *)(uintptr_t)bytes;
    z->avail_in = (uInt)len; /* a piece of a body */
    do {
        if (unpacker->ended && z->avail_in > 0)
            return blasd_fail(err, BLASD_E_malformed_query, "Content-Encoding",
                              "something follows the compressed body");
        z->next_out = (void *)unpacker->piece;
        z->avail_out = PIECE_BYTES;
        rc = inflate(z, Z_NO_FLUSH);
        if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
            return blasd_fail(err, BLASD_E_malformed_query, "Content-Encoding",
                              "the body is not compressed as the header says");
        unpacker->ended = rc == Z_STREAM_END;
        out = PIECE_BYTES - z->avail_out;
        unpacker->out += out;
        if (unpacker->out > most)
            return blasd_fail(err, BLASD_E_body_too_large, "",
                              "unpacked the body has more than %" PRIu64 " bytes", most);
        if (out > 0 && (rc = take(arg, unpacker->piece, out, err)) != 0) return rc;
        if (z->avail_in > 0 && unpacker->out - before >= HTTP_UNPACK_TURN) break;
    } while (z->avail_in > 0 || (out == PIECE_BYTES && !unpacker->ended));
    *used = len - z->avail_in;
    return 0;
}

uint64_t http_unpacked(const struct http_unpacker *unpacker) {
    return unpacker->out;
}

int http_unpack_end(const struct http_unpacker *unpacker, struct blasd_err *err) {
    if (unpacker->ended) return 0;
    return blasd_fail(err, BLASD_E_malformed_query, "Content-Encoding",
                      "the compressed body ends too early");
}
