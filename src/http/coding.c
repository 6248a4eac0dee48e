/* zlib, behind what the front end needs of it. */
#include "http/coding.h"

#include "base/limits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#define PIECE_BYTES 65536
#define LEVEL 1 /* numbers as text shrink to nearly as little, several times as fast */
#define PACK_LEAST                                                                                 \
    4096 /* bytes; many clients always ask, and a short one costs more than it saves */

struct http_stream {
    z_stream z;
    bool packs, ended, input_ended;
    uint64_t out; /* bytes unpacked so far */
    char piece[PIECE_BYTES];
};

static const char *const names[] = {"identity", "gzip", "deflate"};

const char *http_coding_name(enum http_coding coding) {
    return names[coding];
}

bool http_coding_find(const char *name, enum http_coding *ret) {
    for (int i = HTTP_CODING_NONE; i <= HTTP_CODING_DEFLATE; i++)
        if (strcasecmp(name, names[i]) == 0) {
            *ret = (enum http_coding)i;
            return true;
        }
    return false;
}

/* The weight behind a coding, in thousandths: ";q=0.5" is 500. */
static int weight_of(const char *at, const char *end) {
    int weight = 0;
    while (at < end && (*at == ' ' || *at == '\t' || *at == ';')) at++;
    if (end - at < 3 || (at[0] != 'q' && at[0] != 'Q') || at[1] != '=') return 1000;
    if (at[2] == '1') return 1000;
    at += 3;
    if (at < end && *at == '.') at++;
    for (int unit = 100; at < end && unit > 0 && *at >= '0' && *at <= '9'; unit /= 10)
        weight += (*at++ - '0') * unit;
    return weight;
}

enum http_coding http_coding_accepted(const char *value) {
    /* by itself identity is acceptable, and no more than that */
    int weights[] = {[HTTP_CODING_NONE] = 0, [HTTP_CODING_GZIP] = 0, [HTTP_CODING_DEFLATE] = 0};
    enum http_coding best = HTTP_CODING_NONE;
    while (*value != '\0') {
        const char *end = value + strcspn(value, ",");
        size_t len;
        while (*value == ' ' || *value == '\t') value++;
        len = strcspn(value, ";, \t");
        for (int i = HTTP_CODING_NONE; i <= HTTP_CODING_DEFLATE; i++)
            if (strlen(names[i]) == len && strncasecmp(value, names[i], len) == 0)
                weights[i] = weight_of(value + len, end);
        value = *end == '\0' ? end : end + 1;
    }
    for (int i = HTTP_CODING_GZIP; i <= HTTP_CODING_DEFLATE; i++) {
        bool first = best == HTTP_CODING_NONE;
        if (weights[i] > 0 && (first ? weights[i] >= weights[best] : weights[i] > weights[best]))
            best = (enum http_coding)i;
    }
    return best;
}

/* 15 bits of window; 16 more: in gzip's wrapping. */
static int window(enum http_coding coding) {
    return coding == HTTP_CODING_GZIP ? 15 + 16 : 15;
}

static struct http_stream *stream_new(enum http_coding coding, bool packs) {
    struct http_stream *stream = malloc(sizeof *stream);
    int rc;
    if (stream == NULL) return NULL;
    memset(stream, 0, offsetof(struct http_stream, piece));
    stream->packs = packs;
    rc = packs ? deflateInit2(&stream->z, LEVEL, Z_DEFLATED, window(coding), 8, Z_DEFAULT_STRATEGY)
               : inflateInit2(&stream->z, window(coding));
    if (rc == Z_OK) return stream;
    free(stream);
    return NULL;
}

struct http_stream *http_unpacker_new(enum http_coding coding) {
    return stream_new(coding, false);
}

struct http_stream *http_packer_new(enum http_coding coding) {
    return stream_new(coding, true);
}

void http_stream_free(struct http_stream *stream) {
    if (stream == NULL) return;
    (void)(stream->packs ? deflateEnd(&stream->z) : inflateEnd(&stream->z));
    free(stream);
}

int http_unpack(struct http_stream *stream, const void *bytes, size_t len, size_t *used,
                uint64_t most,
                int (*take)(void *arg, const void *bytes, size_t len, struct blasd_err *err),
                void *arg, struct blasd_err *err) {
    z_stream *z = &stream->z;
    const uint64_t before = stream->out;
    size_t out;
    int rc;
    z->next_in = (void *)(uintptr_t)bytes;
    z->avail_in = (uInt)len; /* a piece of a body */
    do {
        if (stream->ended && z->avail_in > 0)
            return blasd_fail(err, BLASD_E_malformed_query, "Content-Encoding",
                              "something follows the compressed body");
        z->next_out = (void *)stream->piece;
        z->avail_out = PIECE_BYTES;
        rc = inflate(z, Z_NO_FLUSH);
        if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
            return blasd_fail(err, BLASD_E_malformed_query, "Content-Encoding",
                              "the body is not compressed as the header says");
        stream->ended = rc == Z_STREAM_END;
        out = PIECE_BYTES - z->avail_out;
        stream->out += out;
        if (stream->out > most)
            return blasd_fail(err, BLASD_E_body_too_large, "",
                              "unpacked the body has more than %" PRIu64 " bytes", most);
        if (out > 0 && (rc = take(arg, stream->piece, out, err)) != 0) return rc;
        if (z->avail_in > 0 && stream->out - before >= HTTP_UNPACK_TURN) break;
    } while (z->avail_in > 0 || (out == PIECE_BYTES && !stream->ended));
    *used = len - z->avail_in;
    return 0;
}

uint64_t http_unpacked(const struct http_stream *stream) {
    return stream->out;
}

int http_unpack_end(const struct http_stream *stream, struct blasd_err *err) {
    if (stream->ended) return 0;
    return blasd_fail(err, BLASD_E_malformed_query, "Content-Encoding",
                      "the compressed body ends too early");
}

size_t http_pack_read(struct http_stream *stream, size_t (*give)(void *arg, char *out, size_t max),
                      void *arg, char *out, size_t max) {
    z_stream *z = &stream->z;
    size_t room = max < UINT32_MAX ? max : UINT32_MAX, given = 0;
    z->next_out = (void *)out;
    z->avail_out = (uInt)room;
    while (z->avail_out > 0 && !stream->ended && given < HTTP_PACK_TURN) {
        if (z->avail_in == 0 && !stream->input_ended) {
            z->avail_in = (uInt)give(arg, stream->piece, PIECE_BYTES);
            z->next_in = (void *)stream->piece;
            stream->input_ended = z->avail_in == 0;
            given += z->avail_in;
        }
        stream->ended = deflate(z, stream->input_ended ? Z_FINISH : Z_NO_FLUSH) == Z_STREAM_END;
    }
    return room - z->avail_out;
}

bool http_pack_ended(const struct http_stream *stream) {
    return stream->ended;
}

/* What is left of a body that is in memory. */
struct rest {
    const char *at;
    size_t len;
};

static size_t give_rest(void *arg, char *out, size_t max) {
    struct rest *rest = arg;
    size_t n = rest->len < max ? rest->len : max;
    memcpy(out, rest->at, n);
    rest->at += n;
    rest->len -= n;
    return n;
}

bool http_coding_suits(size_t len) {
    return len >= PACK_LEAST;
}

bool http_coding_pack(enum http_coding coding, struct blasd_buf *body) {
    struct rest rest = {.at = body->data, .len = body->len};
    struct http_stream *stream;
    struct blasd_buf packed;
    bool whole = false;
    if (coding == HTTP_CODING_NONE || !http_coding_suits(body->len)) return false;
    blasd_buf_init(&packed, body->len);
    packed.account = body->account;
    stream = http_packer_new(coding);
    /* one byte less than it has: where that is filled, nothing is won */
    if (stream != NULL && blasd_buf_reserve(&packed, body->len - 1) == 0) {
        while (!stream->ended && packed.len < body->len - 1)
            packed.len += http_pack_read(stream, give_rest, &rest, packed.data + packed.len,
                                         body->len - 1 - packed.len);
        whole = stream->ended;
    }
    http_stream_free(stream);
    if (!whole) {
        blasd_buf_release(&packed);
        return false;
    }
    blasd_buf_release(body);
    packed.max = body->max;
    *body = packed;
    return true;
}
