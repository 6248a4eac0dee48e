/* Bytes from a URL become an input. */
#include "wire/remote_in.h"

#include "base/text.h"
#include "wire/npy_in.h"

#include <stdlib.h>
#include <string.h>

struct blasd_remote_in {
    struct blasd_body body; /* as the request's, but of the length of what is fetched */
    int current;
    struct blasd_named_input *to; /* borrowed, as the next */
    struct blasd_remote *remote;
    char field[64];
    struct blasd_npy_in npy;
    struct blasd_tensor_writer writer; /* of plain bytes */
};

void blasd_remote_free(struct blasd_remote *remote) {
    if (remote == NULL) return;
    free(remote->url);
    free(remote);
}

int blasd_remote_in_new(const struct blasd_body *body, struct blasd_remote_in **ret,
                        struct blasd_err *err) {
    bool any = false;
    *ret = NULL;
    for (int i = 0; i < body->inputs->count; i++) any |= body->inputs->items[i].remote != NULL;
    if (!any) return 0;
    *ret = calloc(1, sizeof **ret);
    if (*ret == NULL) return blasd_no_memory(err);
    (*ret)->body = *body;
    (*ret)->current = -1;
    return 0;
}

static void let_go(struct blasd_remote_in *in) {
    if (in->to == NULL) return;
    blasd_npy_release(&in->npy);
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
    blasd_input_field(in->field, in->to->name);
    blasd_npy_begin(&in->npy, &in->body, in->to);
    return in->remote->url;
}

const char *blasd_remote_in_field(const struct blasd_remote_in *in) {
    return in->field;
}

int blasd_remote_in_size(struct blasd_remote_in *in, uint64_t size, struct blasd_err *err) {
    const struct blasd_tensor *raw = &in->remote->raw;
    in->body.content_length = size;
    if (size > in->body.limits->body_bytes)
        return blasd_fail(err, BLASD_E_body_too_large, in->field,
                          "%llu bytes are at the URL; the limit body_bytes is %llu",
                          (unsigned long long)size,
                          (unsigned long long)in->body.limits->body_bytes);
    if (!in->remote->plain) return 0;
    if (size != blasd_tensor_bytes(raw))
        return blasd_fail(err, BLASD_E_invalid_tensor, in->field,
                          "its dtype and shape make %llu bytes, and %llu are there",
                          (unsigned long long)blasd_tensor_bytes(raw), (unsigned long long)size);
    in->to->input.tensor = *raw;
    return blasd_tensor_writer_begin(&in->writer, in->body.inputs->sink, in->to, size, true, false,
                                     err);
}

int blasd_remote_in_feed(struct blasd_remote_in *in, const char *bytes, size_t len,
                         struct blasd_err *err) {
    return in->remote->plain ? blasd_tensor_writer_feed(&in->writer, bytes, len, err)
                             : blasd_npy_feed(&in->npy, bytes, len, err);
}

int blasd_remote_in_finish(struct blasd_remote_in *in, struct blasd_err *err) {
    const struct blasd_remote *remote = in->remote;
    enum blasd_dtype is = in->to->input.tensor.dtype;
    int rc = remote->plain ? 0 : blasd_npy_finish(&in->npy, err);
    if (rc == 0 && remote->typed && remote->dtype != is)
        rc = blasd_fail(err, BLASD_E_invalid_reference, in->field,
                        "the tensor at the URL is %s, not %s", blasd_dtype_name(is),
                        blasd_dtype_name(remote->dtype));
    return rc;
}

void blasd_named_inputs_release(struct blasd_named_inputs *inputs) {
    for (int i = 0; i < inputs->count; i++) {
        blasd_remote_free(inputs->items[i].remote);
        free(inputs->items[i].input.reference);
    }
    inputs->count = 0;
}
