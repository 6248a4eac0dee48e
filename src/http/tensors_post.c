/* POST /tensors: each tensor of the body goes to a blob of its own, as it comes, and then all are
 * put at once. Read next: tensors_get.c. */
#include "base/clock.h"
#include "base/container.h"
#include "base/hex.h"
#include "http/body_sink.h"
#include "http/reply.h"
#include "http/tensors.h"
#include "wire/part_header.h"
#include "wire/tensor_body.h"
#include "wire/tensor_document.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Offsets say in their high bits which tensor it is. */
#define PLACE_BITS 48

struct arriving {
    char id[BLASD_ID_LEN + 1];
    struct http_body_sink sink;
    gnutls_hash_hd_t sum; /* owned; NULL: nobody asked for it */
};

struct tensors_upload {
    struct http_side side;          /* must come first */
    struct blasd_sink sink;         /* must come second */
    struct http_exchange *exchange; /* borrowed: this is its part */
    struct blasd_intake *intake;    /* owned; NULL once the body is read */
    uint64_t body_limit;
    struct blasd_tensor_body body;
    int count;
    struct arriving *of[BLASD_NAMED_INPUTS_MAX]; /* owned, in the order of their coming */
    char names[BLASD_NAMED_INPUTS_MAX][BLASD_NAME_MAX];
    struct blasd_tensor_put puts[BLASD_NAMED_INPUTS_MAX];
};

static struct tensors_upload *upload_of(struct http_exchange *exchange) {
    return blasd_container_of(exchange->side, struct tensors_upload, side);
}

/* Whether they stay is for Redis to say: what it does not know the sweep removes. */
static void release(struct http_side *side) {
    struct tensors_upload *upload = blasd_container_of(side, struct tensors_upload, side);
    blasd_intake_free(upload->intake);
    for (int i = 0; i < upload->count; i++) {
        http_body_sink_release(&upload->of[i]->sink);
        if (upload->of[i]->sum != NULL) gnutls_hash_deinit(upload->of[i]->sum, NULL);
        free(upload->of[i]);
    }
    free(upload);
}

/* Nothing of it is wanted any more, and Redis knows of none. */
static void discard(struct tensors_upload *upload) {
    blasd_intake_free(upload->intake);
    upload->intake = NULL;
    for (int i = 0; i < upload->count; i++) {
        struct http_body_sink *sink = &upload->of[i]->sink;
        bool stored = http_body_sink_in_blob(sink);
        http_body_sink_release(sink);
        if (stored) blasd_front_queue_blob_remove(http_queue(upload->exchange), sink->blob.name);
    }
}

/* What is kept is no input of anything: readers say inputs.a[1], and the request a[1]. */
static void leave_out_inputs(char *text) {
    static const char prefix[] = "inputs.";
    const size_t skip = sizeof prefix - 1;
    while ((text = strstr(text, prefix)) != NULL)
        memmove(text, text + skip, strlen(text + skip) + 1);
}

static void refuse(struct http_exchange *exchange, const struct blasd_err *err) {
    struct blasd_err shown = *err;
    if (exchange->side != NULL) discard(upload_of(exchange));
    leave_out_inputs(shown.field);
    leave_out_inputs(shown.detail);
    http_log_tensors_refused(exchange, &shown);
    http_reply_problem(exchange, &shown);
}

static int sink_reserve(struct blasd_sink *base, uint64_t bytes, uint64_t *offset,
                        struct blasd_err *err) {
    struct tensors_upload *upload = blasd_container_of(base, struct tensors_upload, sink);
    struct http_exchange *exchange = upload->exchange;
    struct arriving *one;
    int rc;
    if (upload->count == BLASD_NAMED_INPUTS_MAX)
        return blasd_fail(err, BLASD_E_invalid_tensor, "", "at most %d tensors come in one request",
                          BLASD_NAMED_INPUTS_MAX);
    if ((one = calloc(1, sizeof *one)) == NULL) return blasd_no_memory(err);
    blasd_front_queue_id(http_queue(exchange), &exchange->caller.principal, BLASD_ID_TENSOR,
                         one->id);
    if (exchange->request.query.sha256 && gnutls_hash_init(&one->sum, GNUTLS_DIG_SHA256) != 0) {
        free(one);
        return blasd_no_memory(err);
    }
    http_body_sink_init(&one->sink, exchange);
    one->sink.id = one->id;
    http_body_sink_expect(&one->sink, &exchange->request, upload->body_limit);
    one->sink.expected = bytes;
    one->sink.exact = false;
    upload->of[upload->count++] = one;
    if ((rc = one->sink.base.reserve(&one->sink.base, bytes, offset, err)) != 0) return rc;
    *offset = (uint64_t)(upload->count - 1) << PLACE_BITS;
    return 0;
}

static int sink_write(struct blasd_sink *base, uint64_t offset, const void *bytes, size_t len,
                      struct blasd_err *err) {
    struct tensors_upload *upload = blasd_container_of(base, struct tensors_upload, sink);
    struct arriving *one = upload->of[offset >> PLACE_BITS];
    struct blasd_sink *sink = &one->sink.base;
    if (one->sum != NULL) gnutls_hash(one->sum, bytes, len); /* they come in order */
    return sink->write(sink, offset & ((UINT64_C(1) << PLACE_BITS) - 1), bytes, len, err);
}

static int open_intake(struct tensors_upload *upload, struct blasd_err *err) {
    const struct http_request *request = &upload->exchange->request;
    const char *type = request->content_type;
    struct blasd_intake_options options = {.content_type = type,
                                           .content_length = request->framing.content_length,
                                           .limits = upload->exchange->home->server->limits,
                                           .account = &upload->exchange->memory,
                                           .freelist = &upload->exchange->home->freelists.intakes};
    bool npy = blasd_media_type_is(type, "application/x-npy"),
         alone = npy || http_request_is_json(request);
    int rc;
    upload->body = (struct blasd_tensor_body){.npy = npy, .named = !alone};
    if (alone) options.reader = blasd_tensor_body_reader_new;
    options.reader_arg = &upload->body;
    rc = blasd_intake_new(&options, &upload->sink, &upload->intake, err);
    if (rc == 0 || err->code != BLASD_E_unsupported_media_type) return rc;
    return blasd_fail(err, BLASD_E_unsupported_media_type, "Content-Type",
                      "tensors come as application/x-npy, application/json, "
                      "application/x-safetensors or multipart/form-data");
}

static int check_length(struct tensors_upload *upload, uint64_t bytes, struct blasd_err *err) {
    const struct blasd_limits *limits = upload->exchange->home->server->limits;
    if (bytes <= upload->body_limit) return 0;
    return blasd_fail(
        err, BLASD_E_body_too_large, "",
        "the body has %" PRIu64 " bytes or more; at most %" PRIu64 " are taken (limit %s)", bytes,
        upload->body_limit, upload->body_limit == limits->json_bytes ? "json_bytes" : "body_bytes");
}

static int start(struct tensors_upload *upload, struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    const struct http_request *request = &exchange->request;
    const struct blasd_limits *limits = exchange->home->server->limits;
    const struct blasd_queue_view *view = blasd_front_queue_view(http_queue(exchange));
    int rc;
    upload->body_limit = request->content_type != NULL && http_request_is_json(request)
                             ? limits->json_bytes
                             : limits->body_bytes;
    if (exchange->home->stopping.draining)
        return blasd_fail(err, BLASD_E_draining, "", "the service takes no new tensors");
    if (!view->available)
        return blasd_fail(err, view->trouble->code, "", "%s", view->trouble->detail);
    if (request->body_file != NULL)
        return blasd_fail(err, BLASD_E_malformed_query, "Body-File",
                          "a tensor that is to be kept comes in the body");
    if ((rc = check_length(upload, request->framing.content_length, err)) != 0) return rc;
    return open_intake(upload, err);
}

void http_tensors_post_begin(struct http_exchange *exchange) {
    struct tensors_upload *upload = calloc(1, sizeof *upload);
    struct blasd_err err = {0};
    if (upload == NULL) {
        http_reply_no_memory(exchange);
        return;
    }
    exchange->side = &upload->side;
    upload->side.release = release;
    upload->exchange = exchange;
    upload->sink = (struct blasd_sink){.reserve = sink_reserve, .write = sink_write};
    if (start(upload, &err) != 0) refuse(exchange, &err);
}

void http_tensors_post_body(struct http_exchange *exchange, const void *bytes, size_t len) {
    struct tensors_upload *upload = upload_of(exchange);
    struct blasd_err err = {0};
    int rc = check_length(upload, exchange->body.seen, &err);
    if (rc == 0) rc = blasd_intake_feed(upload->intake, bytes, len, &err);
    if (rc != 0) refuse(exchange, &err);
}

/* The tensor's bytes are a blob, whole. */
static int store(struct arriving *one, uint64_t bytes, struct blasd_err *err) {
    struct http_body_sink *sink = &one->sink;
    int rc;
    sink->total = bytes;
    rc = http_body_sink_finish(sink, err);
    if (rc == 0 && !http_body_sink_in_blob(sink)) rc = http_body_sink_store(sink, err);
    if (rc != 0) return rc;
    blasd_blob_unmap(&sink->blob);
    return blasd_blob_fit(&sink->blob, blasd_stored_bytes(bytes), err);
}

static void write_sum(const struct arriving *one, char text[BLASD_SHA256_MAX]) {
    unsigned char sum[BLASD_SHA256_MAX / 2];
    if (one->sum == NULL) return;
    gnutls_hash_output(one->sum, sum);
    for (size_t i = 0; i < sizeof sum; i++) text = blasd_hex_write(text, sum[i], 2);
    *text = '\0';
}

static int finish(struct tensors_upload *upload, struct blasd_err *err) {
    const struct blasd_named_inputs *inputs;
    int rc = blasd_intake_end(upload->intake, err);
    if (rc != 0) return rc;
    inputs = blasd_intake_inputs(upload->intake);
    if (inputs->count == 0)
        return blasd_fail(err, BLASD_E_invalid_tensor, "", "the body has no tensor");
    for (int i = 0; rc == 0 && i < inputs->count; i++) {
        const struct blasd_named_input *item = &inputs->items[i];
        struct arriving *one;
        if (item->input.source.kind != BLASD_SOURCE_PAYLOAD)
            return blasd_fail(err, BLASD_E_invalid_tensor, item->name,
                              "a tensor that is to be kept comes with its data");
        one = upload->of[item->input.source.offset >> PLACE_BITS];
        memcpy(upload->names[i], item->name, sizeof upload->names[i]);
        memcpy(upload->puts[i].id, one->id, sizeof one->id);
        upload->puts[i].tensor = item->input.tensor;
        upload->puts[i].blob = &one->sink.blob;
        write_sum(one, upload->puts[i].sha256);
        if (item->input.tensor.dtype == BLASD_bool && item->input.first_nonfinite >= 0)
            return blasd_fail(err, BLASD_E_invalid_tensor, item->name,
                              "a byte of a bool is neither 0 nor 1");
        rc = store(one, blasd_tensor_bytes(&item->input.tensor), err);
    }
    return rc;
}

static uint64_t life_of(const struct http_exchange *exchange) {
    bool given = (exchange->request.query.given & HTTP_PARAM_LIFE) != 0;
    return given ? exchange->request.query.life_s : exchange->home->server->limits->tensor_life_s;
}

static int write_documents(const struct tensors_upload *upload, int count, struct blasd_buf *out) {
    int64_t now = blasd_clock_wall_us();
    int failed = upload->body.named ? blasd_buf_puts(out, "{\"tensors\":{") : 0;
    for (int i = 0; i < count; i++) {
        struct blasd_stored_tensor stored = {.tensor = upload->puts[i].tensor,
                                             .bytes = blasd_tensor_bytes(&upload->puts[i].tensor),
                                             .life_s = life_of(upload->exchange),
                                             .created_us = now,
                                             .used_us = now};
        memcpy(stored.id, upload->puts[i].id, sizeof stored.id);
        memcpy(stored.sha256, upload->puts[i].sha256, sizeof stored.sha256);
        stored.expires_us = (now / 1000000 + (int64_t)stored.life_s) * 1000000;
        if (upload->body.named) {
            failed |= blasd_buf_puts(out, i == 0 ? "" : ",");
            failed |= blasd_tensor_name(upload->names[i], out);
        }
        failed |= blasd_tensor_document(&stored, out);
    }
    if (upload->body.named) failed |= blasd_buf_puts(out, "}}");
    return failed;
}

static void answer(struct tensors_upload *upload) {
    struct http_exchange *exchange = upload->exchange;
    char where[BLASD_ID_LEN + 16];
    struct blasd_buf body;
    int count = 0;
    while (count < BLASD_NAMED_INPUTS_MAX && upload->puts[count].blob != NULL) count++;
    blasd_buf_init(&body, BLASD_MIB);
    if (write_documents(upload, count, &body) != 0) {
        blasd_buf_release(&body);
        http_reply_no_memory(exchange);
        return;
    }
    snprintf(where, sizeof where, "/tensors/%s", upload->puts[0].id);
    http_reply(exchange, 201, HTTP_TYPE_JSON,
               (const struct http_header[]){{"Location", count == 1 ? where : NULL}, {NULL, NULL}},
               http_buf(&body));
}

static void on_put(void *arg, const struct blasd_err *err,
                   const struct blasd_stored_tensor *tensors, int count, const char *cursor) {
    struct http_exchange *exchange = arg;
    struct tensors_upload *upload = upload_of(exchange);
    (void)tensors, (void)count, (void)cursor;
    /* where the queue went away it may have kept them all the same: the sweep will tell */
    if (err != NULL && !blasd_front_queue_unsure(err)) discard(upload);
    if (err != NULL) http_log_tensors_refused(exchange, err);
    for (int i = 0; i < upload->count; i++) http_body_sink_release(&upload->of[i]->sink);
    if (http_exchange_open(exchange)) {
        if (err != NULL)
            http_reply_problem(exchange, err);
        else
            answer(upload);
    }
    http_exchange_release(exchange);
}

void http_tensors_post_run(struct http_exchange *exchange) {
    struct tensors_upload *upload = upload_of(exchange);
    struct blasd_err err = {0};
    int count = 0;
    if (finish(upload, &err) != 0) {
        refuse(exchange, &err);
        return;
    }
    while (count < BLASD_NAMED_INPUTS_MAX && upload->puts[count].blob != NULL) count++;
    blasd_intake_free(upload->intake);
    upload->intake = NULL;
    http_exchange_hold(exchange);
    blasd_front_queue_tensor_put(http_queue(exchange), &exchange->caller.principal,
                                 life_of(exchange), upload->puts, count, on_put, exchange);
}
