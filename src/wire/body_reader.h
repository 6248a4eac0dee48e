/* What the readers of the body formats share. Each takes a body in pieces, writes its tensors to
 * the sink and notes the rest as its fields. Read next: json_in.c, safetensors_in.c,
 * multipart_in.c. */
#ifndef BLASD_WIRE_BODY_READER_H
#define BLASD_WIRE_BODY_READER_H

#include "wire/request_fields.h"
#include "wire/tensor_writer.h"

/* What a reader works on; all borrowed. */
struct blasd_body {
    const struct blasd_limits *limits;
    uint64_t content_length; /* 0: not known */
    struct blasd_named_inputs *inputs;
    struct blasd_request_fields *fields;
    struct blasd_graph_in *graph;  /* where the request is one: takes its members; else NULL */
    void *room;                    /* BLASD_READER_ROOM bytes that a reader may be made in */
    struct blasd_account *account; /* counts what readers hold; NULL: nothing does */
};

#define BLASD_READER_ROOM 4096

/* A buffer of a reader, with up to `max` bytes, which the body's account counts. */
static inline void blasd_body_buf(const struct blasd_body *body, struct blasd_buf *buf,
                                  size_t max) {
    blasd_buf_init(buf, max);
    buf->account = body->account;
}

struct blasd_json_text;
/* The JSON of a body, which gathers in a buffer of its own: made, added to as far as json_bytes
 * allows, and ended, which makes it a text. */
void blasd_body_json(const struct blasd_body *body, struct blasd_buf *buf);
int blasd_body_json_add(const struct blasd_body *body, struct blasd_buf *buf, const char *bytes,
                        size_t len, struct blasd_err *err);
int blasd_body_json_end(const struct blasd_body *body, struct blasd_buf *buf,
                        struct blasd_json_text *text, struct blasd_err *err);

struct blasd_body_reader {
    int (*feed)(struct blasd_body_reader *reader, const char *bytes, size_t len,
                struct blasd_err *err);
    /* The body has ended. */
    int (*finish)(struct blasd_body_reader *reader, struct blasd_err *err);
    void (*free)(struct blasd_body_reader *reader);
};

/* New readers, each to be freed with its own `free`; NULL where memory has run out. `body` is
 * borrowed for the reader's life. */
struct blasd_body_reader *blasd_json_reader_new(const struct blasd_body *body);
struct blasd_body_reader *blasd_safetensors_reader_new(const struct blasd_body *body);
/* `boundary`, of 1 to 70 bytes, is copied. */
struct blasd_body_reader *blasd_multipart_reader_new(const struct blasd_body *body,
                                                     const char *boundary, size_t len);

#endif
