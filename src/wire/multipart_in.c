/* The reader of multipart/form-data (RFC 7578): parts between delimiters, each with headers and a
 * content that is either a .npy file or the text of a member.
 *
 * The delimiter is CR LF, two dashes and the boundary. It holds one CR, its first byte, so a
 * delimiter that begins inside a piece and goes on in the next needs no more memory than a count
 * of the bytes that matched. Read next: npy_in.c. */
#include "base/buf.h"
#include "base/text.h"
#include "wire/body_reader.h"
#include "wire/inputs_text.h"
#include "wire/npy_in.h"
#include "wire/part_header.h"
#include "wire/sanitize.h"

#include <stdlib.h>
#include <string.h>

#define HEADERS_MOST 8192 /* bytes of one part's headers */

enum stage {
    PREAMBLE, /* what comes before the first delimiter, ignored */
    BEHIND,   /* behind a delimiter: "--" ends the body, CR LF begins a part */
    HEADERS,
    CONTENT,
    EPILOGUE, /* what comes behind the last delimiter, ignored */
};

enum content { UNDECIDED, NPY, TEXT };

struct multipart_reader {
    struct blasd_body_reader base;
    const struct blasd_body *body;
    char delimiter[4 + 70];
    size_t delimiter_len, matched; /* bytes of the delimiter that came last */
    enum stage stage;
    char behind[2]; /* the two bytes behind a delimiter */
    int behind_len;
    uint64_t parts;

    struct blasd_part_header part;
    struct blasd_buf headers;
    enum content content;
    struct blasd_buf text; /* of a member, or the first bytes of a file */
    uint64_t text_total;   /* of all parts, against the limit envelope_bytes */
    struct blasd_npy_in npy;
};

static int malformed(struct blasd_err *err, const char *what) {
    return blasd_fail(err, BLASD_E_malformed_multipart, "", "%s", what);
}

/* Makes the part a .npy file now that its first bytes have come. */
static int begin_npy(struct multipart_reader *reader, struct blasd_err *err) {
    const struct blasd_part_header *part = &reader->part;
    char field[64], shown[BLASD_SANITIZED_MAX];
    struct blasd_named_input *to;
    int rc;
    blasd_sanitize(shown, part->name, strlen(part->name));
    blasd_input_field(field, shown);
    if (memcmp(reader->text.data, BLASD_NPY_MAGIC, BLASD_NPY_MAGIC_LEN) != 0) {
        if (!part->is_file)
            return blasd_fail(
                err, BLASD_E_unknown_field, shown,
                "the part '%s' is neither a .npy file nor op, params, params.NAME, "
                "priority, deadline_ms, device, labels, inputs, keep, results, notify "
                "or digest",
                shown);
        return blasd_fail(err, BLASD_E_malformed_npy, field,
                          "the file of part '%s' does not begin as .npy files do", shown);
    }
    rc = blasd_named_inputs_add(reader->body->inputs, part->name, strlen(part->name), &to, err);
    if (rc != 0) return rc;
    blasd_npy_release(&reader->npy);
    blasd_npy_begin(&reader->npy, reader->body, to);
    reader->content = NPY;
    rc = blasd_npy_feed(&reader->npy, reader->text.data, reader->text.len, err);
    blasd_buf_reset(&reader->text);
    return rc;
}

static int add_text(struct multipart_reader *reader, const char *bytes, size_t len,
                    struct blasd_err *err) {
    uint64_t most = reader->body->limits->envelope_bytes;
    if (len > most - reader->text_total || !blasd_buf_fits(&reader->text, len))
        return blasd_fail(err, BLASD_E_body_too_large, "",
                          "the parts that are no tensors are larger than %llu bytes, the limit "
                          "envelope_bytes",
                          (unsigned long long)most);
    if (blasd_buf_add(&reader->text, bytes, len) != 0) return blasd_no_memory(err);
    reader->text_total += len;
    return 0;
}

/* Takes bytes of the part's content. */
static int feed_content(struct multipart_reader *reader, const char *bytes, size_t len,
                        struct blasd_err *err) {
    if (reader->content == UNDECIDED) {
        size_t take = BLASD_NPY_MAGIC_LEN - reader->text.len;
        int rc;
        if (take > len) take = len;
        if ((rc = add_text(reader, bytes, take, err)) != 0) return rc;
        if (reader->text.len < BLASD_NPY_MAGIC_LEN) return 0;
        if ((rc = begin_npy(reader, err)) != 0) return rc;
        bytes += take;
        len -= take;
    }
    if (len == 0) return 0;
    if (reader->content == NPY) return blasd_npy_feed(&reader->npy, bytes, len, err);
    return add_text(reader, bytes, len, err);
}

static bool is_inputs(const struct multipart_reader *reader) {
    return strcmp(reader->part.name, BLASD_INPUTS_TEXT) == 0;
}

static int end_content(struct multipart_reader *reader, struct blasd_err *err) {
    const char *text = reader->text.len > 0 ? reader->text.data : "";
    int rc;
    switch (reader->content) {
    case UNDECIDED: /* shorter than the magic: let the check of it say what is wrong */
        while (reader->text.len < BLASD_NPY_MAGIC_LEN)
            if ((rc = add_text(reader, "", 1, err)) != 0) return rc;
        return begin_npy(reader, err);
    case NPY: return blasd_npy_finish(&reader->npy, err);
    default:
        rc = is_inputs(reader)
                 ? blasd_inputs_text(reader->body->inputs, reader->body->limits, text,
                                     reader->text.len, err)
                 : blasd_request_fields_text(reader->body->fields, BLASD_IN_BODY, reader->part.name,
                                             text, reader->text.len, err);
        blasd_buf_reset(&reader->text);
        return rc;
    }
}

/* The headers of a part are complete: what is it? */
static int begin_part(struct multipart_reader *reader, struct blasd_err *err) {
    int rc = blasd_part_header_read(reader->headers.data, reader->headers.len, &reader->part, err);
    if (rc != 0) return rc;
    blasd_buf_reset(&reader->headers);
    blasd_buf_reset(&reader->text);
    reader->content =
        is_inputs(reader) || blasd_request_fields_knows(reader->body->fields, reader->part.name)
            ? TEXT
            : UNDECIDED;
    reader->stage = CONTENT;
    reader->matched = 0;
    return 0;
}

/* Gathers header lines up to the empty one. */
static int feed_headers(struct multipart_reader *reader, const char **bytes, size_t *len,
                        struct blasd_err *err) {
    while (*len > 0) {
        const char *line = memchr(*bytes, '\n', *len);
        size_t take = line == NULL ? *len : (size_t)(line - *bytes) + 1, all;
        if (!blasd_buf_fits(&reader->headers, take))
            return blasd_fail(err, BLASD_E_malformed_multipart, "",
                              "the headers of part %llu are larger than %d bytes",
                              (unsigned long long)reader->parts, HEADERS_MOST);
        if (blasd_buf_add(&reader->headers, *bytes, take) != 0) return blasd_no_memory(err);
        *bytes += take;
        *len -= take;
        if (line == NULL) return 0;
        all = reader->headers.len;
        if (all == 2 ? memcmp(reader->headers.data, "\r\n", 2) == 0
                     : all >= 4 && memcmp(reader->headers.data + all - 4, "\r\n\r\n", 4) == 0)
            return begin_part(reader, err);
    }
    return 0;
}

/* Looks at the two bytes behind a delimiter; spaces may stand before CR LF. */
static int feed_behind(struct multipart_reader *reader, const char **bytes, size_t *len,
                       struct blasd_err *err) {
    while (*len > 0 && reader->behind_len < 2) {
        char c = *(*bytes)++;
        (*len)--;
        if (reader->behind_len == 0 && (c == ' ' || c == '\t')) continue;
        reader->behind[reader->behind_len++] = c;
    }
    if (reader->behind_len < 2) return 0;
    reader->behind_len = 0;
    if (memcmp(reader->behind, "--", 2) == 0) {
        reader->stage = EPILOGUE;
        return 0;
    }
    if (memcmp(reader->behind, "\r\n", 2) != 0)
        return malformed(err, "a boundary is followed by neither a line's end (CR LF) nor --");
    if (++reader->parts > reader->body->limits->multipart_parts)
        return blasd_fail(err, BLASD_E_malformed_multipart, "",
                          "there are more than %llu parts, the limit multipart_parts",
                          (unsigned long long)reader->body->limits->multipart_parts);
    reader->stage = HEADERS;
    return 0;
}

/* How many bytes at `bytes` go on with the delimiter behind the first `from` of it. */
static size_t match(const struct multipart_reader *reader, size_t from, const char *bytes,
                    size_t len) {
    size_t n = 0;
    while (n < len && from + n < reader->delimiter_len && bytes[n] == reader->delimiter[from + n])
        n++;
    return n;
}

/* Takes bytes up to the next delimiter, or all there are. In the preamble they are dropped. */
static int feed_until_delimiter(struct multipart_reader *reader, const char **bytes, size_t *len,
                                struct blasd_err *err) {
    const char *p = *bytes, *end = p + *len, *run;
    bool keep = reader->stage == CONTENT;
    int rc;
    if (reader->matched > 0) {
        size_t n = match(reader, reader->matched, p, *len);
        p += n;
        if (reader->matched + n < reader->delimiter_len && p < end) {
            /* it was content after all; a new match can only begin at the next byte */
            rc = keep ? feed_content(reader, reader->delimiter, reader->matched + n, err) : 0;
            if (rc != 0) return rc;
            reader->matched = 0;
        } else {
            reader->matched += n;
        }
    }
    run = p;
    while (reader->matched == 0 && p < end) {
        const char *cr = memchr(p, '\r', (size_t)(end - p));
        size_t n = cr == NULL ? 0 : match(reader, 0, cr, (size_t)(end - cr));
        p = cr == NULL ? end : cr + n;
        if (cr != NULL && (n == reader->delimiter_len || p == end)) reader->matched = n;
    }
    if (keep && (rc = feed_content(reader, run, (size_t)(p - run) - (run < p ? reader->matched : 0),
                                   err)) != 0)
        return rc;
    *len = (size_t)(end - p);
    *bytes = p;
    if (reader->matched < reader->delimiter_len) return 0;
    reader->matched = 0;
    reader->stage = BEHIND;
    return keep ? end_content(reader, err) : 0;
}

static int feed(struct blasd_body_reader *base, const char *bytes, size_t len,
                struct blasd_err *err) {
    struct multipart_reader *reader = (struct multipart_reader *)base;
    int rc = 0;
    while (rc == 0 && len > 0) {
        switch (reader->stage) {
        case PREAMBLE:
        case CONTENT: rc = feed_until_delimiter(reader, &bytes, &len, err); break;
        case BEHIND: rc = feed_behind(reader, &bytes, &len, err); break;
        case HEADERS: rc = feed_headers(reader, &bytes, &len, err); break;
        default: return 0;
        }
    }
    return rc;
}

static int finish(struct blasd_body_reader *base, struct blasd_err *err) {
    struct multipart_reader *reader = (struct multipart_reader *)base;
    if (reader->stage == EPILOGUE) return 0;
    if (reader->stage == PREAMBLE)
        return malformed(err, "the boundary that Content-Type gives is nowhere in the body");
    if (reader->stage == CONTENT && reader->content == NPY)
        return blasd_fail(err, BLASD_E_malformed_multipart, reader->npy.field,
                          "the body ends inside the file of %s, without its final boundary",
                          reader->npy.field);
    return malformed(err, "the body ends without its final boundary");
}

static void free_reader(struct blasd_body_reader *base) {
    struct multipart_reader *reader = (struct multipart_reader *)base;
    blasd_buf_release(&reader->headers);
    blasd_buf_release(&reader->text);
    blasd_npy_release(&reader->npy);
    free(reader);
}

struct blasd_body_reader *blasd_multipart_reader_new(const struct blasd_body *body,
                                                     const char *boundary, size_t len) {
    struct multipart_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) return NULL;
    reader->base = (struct blasd_body_reader){feed, finish, free_reader};
    reader->body = body;
    memcpy(reader->delimiter, "\r\n--", 4);
    memcpy(reader->delimiter + 4, boundary, len);
    reader->delimiter_len = 4 + len;
    /* the first delimiter may stand at the very start, without its CR LF */
    reader->matched = 2;
    blasd_body_buf(body, &reader->headers, HEADERS_MOST);
    blasd_body_buf(body, &reader->text, (size_t)body->limits->envelope_bytes);
    return &reader->base;
}
