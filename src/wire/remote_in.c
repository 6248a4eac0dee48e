/* Of a safetensors file the header is read, and then the one tensor: what lies between the two is
 * not asked for. */
#include "wire/remote_in.h"

#include "wire/npy_in.h"
#include "wire/safetensors_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct blasd_remote_in {
    struct blasd_body body; /* as the request's, but of the length of what is fetched */
    int current;
    struct blasd_named_input *to; /* borrowed, as the next */
    struct blasd_remote *remote;
    char field[64];
    struct blasd_npy_in npy;
    struct blasd_tensor_writer writer; /* of the other formats */
    struct blasd_buf header; /* of safetensors: the eight bytes of its length, then itself */
    bool writing;
};

void blasd_remote_free(struct blasd_remote *remote) {
    if (remote == NULL) return;
    json_decref(remote->url);
    json_decref(remote->tensor);
    free(remote);
}

int blasd_remote_in_new(const struct blasd_body *body, struct blasd_remote_in **ret,
                        struct blasd_err *err) {
    bool any = false;
    *ret = NULL;
    for (int i = 0; i < body->inputs->count; i++) any |= body->inputs->items[i].remote != NULL;
    if (!any) return 0;
    *ret = calloc(1, sizeof **ret);
    if (*ret == NULL) return blasd_fail(err, BLASD_E_no_space, "", "memory has run out");
    (*ret)->body = *body;
    (*ret)->current = -1;
    return 0;
}

static void let_go(struct blasd_remote_in *in) {
    if (in->to == NULL) return;
    blasd_npy_release(&in->npy);
    blasd_buf_release(&in->header);
}

void blasd_remote_in_free(struct blasd_remote_in *in) {
    if (in == NULL) return;
    let_go(in);
    free(in);
}

const char *blasd_remote_in_next(struct blasd_remote_in *in) {
    const struct blasd_named_inputs *inputs = in->body.inputs;
    let_go(in);
    in->to = NULL;
    while (++in->current < inputs->count && inputs->items[in->current].remote == NULL) continue;
    if (in->current >= inputs->count) return NULL;
    in->to = &in->body.inputs->items[in->current];
    in->remote = in->to->remote;
    in->writing = false;
    snprintf(in->field, sizeof in->field, "inputs.%s", in->to->name);
    blasd_npy_begin(&in->npy, &in->body, in->to);
    in->npy.slice = in->remote->slice;
    blasd_body_buf(&in->body, &in->header,
                   (size_t)in->body.limits->envelope_bytes + 8 + BLASD_JSON_SLACK);
    return json_string_value(in->remote->url);
}

const char *blasd_remote_in_field(const struct blasd_remote_in *in) {
    return in->field;
}

static int check_bytes(const struct blasd_remote_in *in, uint64_t bytes, struct blasd_err *err) {
    if (bytes <= in->body.limits->body_bytes) return 0;
    return blasd_fail(err, BLASD_E_body_too_large, in->field,
                      "%llu bytes of what is at the URL are wanted; the limit body_bytes is %llu",
                      (unsigned long long)bytes, (unsigned long long)in->body.limits->body_bytes);
}

/* Has the tensor, which is known, written. */
static int begin_writing(struct blasd_remote_in *in, struct blasd_err *err) {
    uint64_t bytes = blasd_tensor_bytes(&in->to->input.tensor);
    in->writing = true;
    return blasd_tensor_writer_begin(&in->writer, in->body.inputs->sink, in->to, bytes, true, false,
                                     err);
}

/* Of bytes and nothing else: they are all there. */
static int begin_raw(struct blasd_remote_in *in, uint64_t size, uint64_t *at, uint64_t *end,
                     struct blasd_err *err) {
    struct blasd_tensor *tensor = &in->to->input.tensor;
    uint64_t raw = blasd_tensor_bytes(&in->remote->raw);
    int rc;
    if (size != raw)
        return blasd_fail(err, BLASD_E_invalid_tensor, in->field,
                          "its dtype and shape make %llu bytes, and %llu are there",
                          (unsigned long long)raw, (unsigned long long)size);
    *tensor = in->remote->raw;
    rc = blasd_reference_place(&in->remote->slice, tensor, at, in->field, err);
    *end = *at + blasd_tensor_bytes(tensor);
    return rc == 0 ? check_bytes(in, *end - *at, err) : rc;
}

/* A file that is wanted whole comes whole; of one of which a part is meant first the header. */
static int begin_npy(const struct blasd_remote_in *in, uint64_t size, uint64_t *end,
                     struct blasd_err *err) {
    *end = in->npy.slice.sliced > 0 ? blasd_npy_wants(&in->npy) : size;
    if (*end > size)
        return blasd_fail(err, BLASD_E_malformed_npy, in->field,
                          "a file of %llu bytes is no .npy file", (unsigned long long)size);
    return check_bytes(in, *end, err);
}

int blasd_remote_in_size(struct blasd_remote_in *in, uint64_t size, uint64_t *at, uint64_t *end,
                         struct blasd_err *err) {
    int rc;
    in->body.content_length = size;
    switch (in->remote->format) {
    case BLASD_REMOTE_NPY: return begin_npy(in, size, end, err);
    case BLASD_REMOTE_RAW:
        rc = begin_raw(in, size, at, end, err);
        return rc == 0 ? begin_writing(in, err) : rc;
    case BLASD_REMOTE_SAFETENSORS: break;
    }
    *end = 8;
    if (size >= 10) return 0;
    return blasd_fail(err, BLASD_E_malformed_safetensors, in->field,
                      "a file of %llu bytes is no safetensors file", (unsigned long long)size);
}

/* The header has come, whole: finds the tensor. */
static int find_tensor(struct blasd_remote_in *in, uint64_t *at, uint64_t *end,
                       struct blasd_err *err) {
    uint64_t size = in->body.content_length, base = in->header.len;
    int rc = blasd_safetensors_find(&in->header, in->body.limits,
                                    json_string_value(in->remote->tensor), in->to, at, end, err);
    if (rc != 0) return rc;
    if (*end > size - base)
        return blasd_fail(err, BLASD_E_malformed_safetensors, in->field,
                          "the tensor ends behind the end of the file");
    *at += base;
    rc = blasd_reference_place(&in->remote->slice, &in->to->input.tensor, at, in->field, err);
    *end = *at + blasd_tensor_bytes(&in->to->input.tensor);
    if (rc == 0) rc = check_bytes(in, *end - *at, err);
    return rc == 0 ? begin_writing(in, err) : rc;
}

/* Gathers the header; what it wants next. */
static int feed_header(struct blasd_remote_in *in, const char *bytes, size_t len, uint64_t *at,
                       uint64_t *end, struct blasd_err *err) {
    struct blasd_buf *header = &in->header;
    uint64_t want = 8, most = in->body.limits->envelope_bytes;
    for (int part = 0; part < 2; part++) {
        size_t take = header->len >= want ? 0 : (size_t)(want - header->len);
        if (take > len) take = len;
        if (blasd_buf_add(header, bytes, take) != 0)
            return blasd_fail(err, BLASD_E_no_space, "", "memory has run out");
        bytes += take;
        len -= take;
        *at = header->len;
        *end = want;
        if (header->len < want) return 0;
        if (part == 1) break;
        memcpy(&want, header->data, 8);
        if (want < 2 || want > most || want > in->body.content_length - 8)
            return blasd_fail(err, BLASD_E_malformed_safetensors, in->field,
                              "this is no safetensors file, or one whose header has more than %llu "
                              "bytes (limit envelope_bytes)",
                              (unsigned long long)most);
        want += 8;
    }
    return find_tensor(in, at, end, err);
}

/* Of one of which a part is meant, first the header, which says where that lies. */
static int feed_npy(struct blasd_remote_in *in, const char *bytes, size_t len, uint64_t *at,
                    uint64_t *end, struct blasd_err *err) {
    struct blasd_npy_in *npy = &in->npy;
    bool had_header = npy->has_header;
    int rc = blasd_npy_feed(npy, bytes, len, err);
    if (rc != 0 || npy->slice.sliced == 0 || had_header) return rc;
    *end = blasd_npy_wants(npy);
    if (!npy->has_header) return 0;
    *at = npy->part_at;
    *end = *at + blasd_tensor_bytes(&in->to->input.tensor);
    return 0;
}

int blasd_remote_in_feed(struct blasd_remote_in *in, const char *bytes, size_t len, uint64_t *at,
                         uint64_t *end, struct blasd_err *err) {
    int rc;
    *at += len;
    if (in->remote->format == BLASD_REMOTE_NPY) return feed_npy(in, bytes, len, at, end, err);
    if (!in->writing) return feed_header(in, bytes, len, at, end, err);
    if (len > in->writer.left) len = (size_t)in->writer.left;
    rc = blasd_tensor_writer_feed(&in->writer, bytes, len, err);
    return rc;
}

int blasd_remote_in_finish(struct blasd_remote_in *in, struct blasd_err *err) {
    const struct blasd_remote *remote = in->remote;
    enum blasd_dtype is = in->to->input.tensor.dtype;
    int rc = 0;
    if (remote->format == BLASD_REMOTE_NPY)
        rc = blasd_npy_finish(&in->npy, err);
    else if (!in->writing || in->writer.left > 0)
        rc = blasd_fail(err, BLASD_E_malformed_safetensors, in->field, "the file ends early");
    if (rc == 0 && remote->typed && remote->dtype != is)
        rc = blasd_fail(err, BLASD_E_invalid_reference, in->field,
                        "what is at the URL is %s, and not %s", blasd_dtype_name(is),
                        blasd_dtype_name(remote->dtype));
    return rc;
}
