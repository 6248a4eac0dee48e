/* The reader of inference requests: the bytes of a body as they come, the JSON first, then tensors
 * that follow it. Read next: oip_request.c. */
#include "oip/oip_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int feed_tensors(struct oip_reader *reader, const char *bytes, size_t len,
                        struct blasd_err *err) {
    while (len > 0) {
        struct blasd_tensor_writer *writer = &reader->writers[reader->current];
        size_t take = len;
        int rc;
        if (reader->current == reader->count)
            return blasd_fail(err, BLASD_E_invalid_tensor, "inputs",
                              "bytes follow the last tensor that the JSON describes");
        if (take > writer->left) take = (size_t)writer->left;
        if ((rc = blasd_tensor_writer_feed(writer, bytes, take, err)) != 0) return rc;
        if (writer->left == 0) reader->current++;
        bytes += take;
        len -= take;
    }
    return 0;
}

static int feed(struct blasd_body_reader *base, const char *bytes, size_t len,
                struct blasd_err *err) {
    struct oip_reader *reader = (struct oip_reader *)base;
    const struct blasd_oip *oip = reader->oip;
    size_t take = 0; /* of the JSON */
    int rc;
    if (!reader->begun) {
        take = len;
        if (oip->has_header && take > oip->header_bytes - reader->text.len)
            take = (size_t)(oip->header_bytes - reader->text.len);
        if ((rc = blasd_body_json_add(reader->body, &reader->text, bytes, take, err)) != 0)
            return rc;
        if (!oip->has_header || reader->text.len < oip->header_bytes) return 0;
        if ((rc = oip_read_request(reader, err)) != 0) return rc;
    }
    return feed_tensors(reader, bytes + take, len - take, err);
}

static int finish(struct blasd_body_reader *base, struct blasd_err *err) {
    struct oip_reader *reader = (struct oip_reader *)base;
    char field[64];
    if (!reader->begun && reader->oip->has_header && reader->oip->header_bytes > 0)
        return blasd_fail(err, BLASD_E_malformed_json, "",
                          "the body ends inside its JSON: %zu of %llu bytes came", reader->text.len,
                          (unsigned long long)reader->oip->header_bytes);
    if (!reader->begun) return oip_read_request(reader, err);
    while (reader->current < reader->count && reader->writers[reader->current].left == 0)
        reader->current++;
    if (reader->current == reader->count) return 0;
    snprintf(field, sizeof field, "inputs.%s", reader->writers[reader->current].to->name);
    return blasd_fail(err, BLASD_E_invalid_tensor, field,
                      "the body ends %llu bytes before the end of this tensor",
                      (unsigned long long)reader->writers[reader->current].left);
}

static void free_reader(struct blasd_body_reader *base) {
    blasd_buf_release(&((struct oip_reader *)base)->text);
}

void blasd_oip_release(struct blasd_oip *oip) {
    free(oip->id);
    oip->id = NULL;
}

struct blasd_body_reader *blasd_oip_reader_new(const struct blasd_body *body, void *arg) {
    struct oip_reader *reader = body->room;
    /* the writers are set when they are begun */
    reader->base = (struct blasd_body_reader){feed, finish, free_reader};
    reader->body = body;
    reader->oip = arg;
    reader->begun = false;
    reader->count = reader->current = 0;
    blasd_body_json(body, &reader->text);
    return &reader->base;
}
