/* An inference on its way: what it adds to a job's, and its answer. Read next: oip_routes.c. */
#include "http/inference.h"

#include "base/container.h"

#include "http/jobs.h"
#include "http/reply.h"
#include "http/upload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)256 * BLASD_KIB)
#define LATE_S 5 /* the job's own deadline comes first */

struct http_inference {
    struct blasd_oip oip;
    size_t header_bytes; /* of the answer's JSON; 0: it is all there is */
    /* inputs that are fetched from shared memory */
    struct http_shared_file fetching;
    struct http_exchange *exchange; /* borrowed */
    int current, fd;                /* the one being fetched; -1: it is still to be opened */
    uint64_t at;
    /* outputs that are put there: the one being put in `current`, and how much of it in `at` */
    const struct blasd_record *record; /* borrowed, as the next one, while that takes */
    const char *payload;
    bool delivered;
};

static void release(struct http_exchange *exchange) {
    struct http_inference *inference = exchange->form.inference;
    blasd_oip_release(&inference->oip);
    if (inference->fd >= 0) close(inference->fd);
    free(inference);
}

/* --- the request -------------------------------------------------------------------------------
 */

static int read_json_bytes(const struct http_request *request, struct blasd_oip *oip,
                           struct blasd_err *err) {
    const char *text = request->json_bytes;
    oip->has_header = text != NULL;
    if (text == NULL) return 0;
    if (!http_count_read(text, &oip->header_bytes))
        return blasd_fail(err, BLASD_E_malformed_query, "Inference-Header-Content-Length",
                          "the header is not a whole number");
    if (request->framing.chunked || request->coding != HTTP_CODING_NONE ||
        oip->header_bytes <= request->framing.content_length)
        return 0;
    return blasd_fail(err, BLASD_E_malformed_query, "Inference-Header-Content-Length",
                      "the JSON cannot be longer than the body, which has %" PRIu64 " bytes",
                      request->framing.content_length);
}

/* Makes the request one of POST /jobs that waits. */
static int translate(struct http_exchange *exchange, struct http_inference *inference,
                     struct blasd_err *err) {
    const struct blasd_limits *limits = exchange->home->server->limits;
    struct http_request *request = &exchange->request;
    int64_t wait_ms = (int64_t)limits->wait_s * 1000;
    inference->oip.wait_ms =
        wait_ms < (int64_t)limits->deadline_ms ? wait_ms : (int64_t)limits->deadline_ms;
    inference->oip.shared = exchange->home->server->options->share;
    request->query.given |= HTTP_PARAM_WAIT;
    request->query.wait_s = (double)(limits->wait_s + LATE_S);
    request->accepts = (struct blasd_accept){0};
    request->prefer = (struct http_prefer){0};
    request->content_type =
        request->json_bytes == NULL ? HTTP_TYPE_JSON : "application/octet-stream";
    request->elsewhere = inference->oip.shared;
    exchange->wanted.output = HTTP_ALL_OUTPUTS;
    return read_json_bytes(request, &inference->oip, err);
}

void http_inference_begin(struct http_exchange *exchange) {
    struct http_inference *inference;
    struct blasd_err err = {0};
    const struct blasd_op *op = http_oip_model_find(exchange, &err);
    if (op == NULL) {
        http_reply_problem(exchange, &err);
        return;
    }
    inference = exchange->form.inference = calloc(1, sizeof *inference);
    if (inference == NULL) {
        http_reply_fail(exchange, BLASD_E_no_space, "", "memory has run out");
        return;
    }
    inference->oip.op = op;
    inference->exchange = exchange;
    inference->fd = -1;
    if (translate(exchange, inference, &err) != 0)
        http_reply_problem(exchange, &err);
    else
        http_jobs_post_begin(exchange);
}

static void say_intake(struct http_exchange *exchange, struct blasd_intake_options *options) {
    options->reader = blasd_oip_reader_new;
    options->reader_arg = &exchange->form.inference->oip;
}

/* --- inputs in shared memory -------------------------------------------------------------------
 */

static int open_input(struct http_inference *inference, struct blasd_err *err) {
    struct http_exchange *exchange = inference->exchange;
    struct http_region_owner caller;
    int rc;
    if ((rc = http_regions_caller(exchange, &caller, err)) != 0) return rc;
    return http_regions_open(&exchange->home->server->regions,
                             &inference->oip.inputs[inference->current].place, false, &caller,
                             &inference->fd, &inference->at, err);
}

/* Reads on in the current input, up to `most` bytes. */
static int fetch_some(struct http_inference *inference, struct blasd_buf *piece, uint64_t most,
                      struct blasd_err *err) {
    struct blasd_tensor_writer *writer = &inference->oip.inputs[inference->current].writer;
    int rc = 0;
    while (rc == 0 && most > 0 && writer->left > 0) {
        size_t want = writer->left < PIECE_BYTES ? (size_t)writer->left : PIECE_BYTES;
        ssize_t got = pread(inference->fd, piece->data, want, (off_t)inference->at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return blasd_fail(err, BLASD_E_invalid_tensor, "shared_memory_region",
                              "the shared memory of the input '%s' was cut", writer->to->name);
        rc = blasd_tensor_writer_feed(writer, piece->data, (size_t)got, err);
        inference->at += (uint64_t)got;
        most = (uint64_t)got < most ? most - (uint64_t)got : 0;
    }
    return rc;
}

static int fetch(struct http_loop *loop, struct http_shared_file *file, struct blasd_err *err) {
    struct http_inference *inference = ((struct http_exchange *)file->arg)->form.inference;
    struct blasd_buf *piece = &loop->scratch;
    int rc = inference->fd >= 0 ? 0 : open_input(inference, err);
    blasd_buf_reset(piece);
    if (rc == 0 && blasd_buf_reserve(piece, PIECE_BYTES) != 0)
        return blasd_fail(err, BLASD_E_no_space, "", "memory has run out");
    if (rc == 0) rc = fetch_some(inference, piece, HTTP_SHARED_TURN_BYTES, err);
    if (rc != 0 || inference->oip.inputs[inference->current].writer.left > 0)
        return rc != 0 ? rc : 1;
    close(inference->fd);
    inference->fd = -1;
    return ++inference->current < inference->oip.input_count;
}

static int gather(struct http_exchange *exchange, void (*done)(void *, const struct blasd_err *),
                  struct blasd_err *err) {
    struct http_inference *inference = exchange->form.inference;
    int rc = blasd_intake_end(exchange->upload->intake, err);
    if (rc != 0 || inference->oip.input_count == 0) return rc;
    inference->fetching = (struct http_shared_file){.go_on = fetch, .done = done, .arg = exchange};
    inference->current = 0; /* again, of a body that is read again */
    http_exchange_hold(exchange);
    http_shared_file_read(exchange->home, &inference->fetching);
    return 1;
}

/* --- the answer --------------------------------------------------------------------------------
 */

/* Writes what is there, and no more: a region that was cut is not made longer. */
static int write_all(int fd, const char *bytes, uint64_t len, uint64_t at, struct blasd_err *err) {
    while (len > 0) {
        struct stat info;
        ssize_t put;
        if (fstat(fd, &info) == 0 && (uint64_t)info.st_size < at + len)
            return blasd_fail(err, BLASD_E_invalid_field, "shared_memory_region",
                              "the shared memory was cut: it has %lld bytes",
                              (long long)info.st_size);
        put = pwrite(fd, bytes, len < PIECE_BYTES ? (size_t)len : PIECE_BYTES, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return blasd_fail(err, BLASD_E_no_space, "shared_memory_region",
                              "the shared memory cannot be written: %s", strerror(errno));
        bytes += put;
        at += (uint64_t)put;
        len -= (uint64_t)put;
    }
    return 0;
}

/* Writes up to `most` bytes of an output, from `from` on, to where it is wanted; *left is what it
 * has more. */
static int hand_over(struct http_exchange *exchange, const struct blasd_record *record,
                     const char *payload, const struct blasd_oip_output *wanted, uint64_t from,
                     uint64_t most, uint64_t *left, struct blasd_err *err) {
    const struct blasd_output *output = &record->outputs[wanted->position];
    uint64_t bytes = blasd_tensor_bytes(&output->tensor) - from, at;
    struct http_region_owner caller;
    int fd, rc;
    if ((rc = http_regions_caller(exchange, &caller, err)) != 0) return rc;
    rc = http_regions_open(&exchange->home->server->regions, &wanted->place, true, &caller, &fd,
                           &at, err);
    if (rc != 0) return rc;
    *left = bytes > most ? bytes - most : 0;
    if (bytes > 0)
        rc = write_all(fd, payload + output->offset + from, bytes - *left, at + from, err);
    close(fd);
    return rc;
}

static bool is_shared(const struct blasd_oip_output *output) {
    return output->place.region[0] != '\0';
}

/* Goes on putting outputs there. */
static int put(struct http_loop *loop, struct http_shared_file *file, struct blasd_err *err) {
    struct http_inference *inference = blasd_container_of(file, struct http_inference, fetching);
    const struct blasd_oip *oip = &inference->oip;
    uint64_t left = 0;
    (void)loop;
    while (inference->current < oip->output_count && !is_shared(&oip->outputs[inference->current]))
        inference->current++;
    if (inference->current == oip->output_count) {
        inference->delivered = true;
        return 0;
    }
    if (hand_over(inference->exchange, inference->record, inference->payload,
                  &oip->outputs[inference->current], inference->at, HTTP_SHARED_TURN_BYTES, &left,
                  err) != 0)
        return -(int)err->code;
    inference->at = left > 0 ? inference->at + HTTP_SHARED_TURN_BYTES : 0;
    inference->current += left == 0;
    return 1;
}

static int deliver(struct http_exchange *exchange, const struct blasd_record *record,
                   const void *payload, void (*done)(void *, const struct blasd_err *), void *arg,
                   struct blasd_err *err) {
    struct http_inference *inference = exchange->form.inference;
    struct blasd_answer *checked;
    bool any = false;
    for (int i = 0; i < inference->oip.output_count; i++)
        any = any || is_shared(&inference->oip.outputs[i]);
    if (!any || inference->delivered) return 0;
    /* whether each is there and fits is known before a byte is written */
    checked = blasd_oip_answer(record, payload, &inference->oip, &inference->header_bytes, err);
    if (checked == NULL) return -(int)err->code;
    blasd_answer_free(checked);
    inference->record = record;
    inference->payload = payload;
    inference->current = 0;
    inference->at = 0;
    inference->fetching = (struct http_shared_file){.go_on = put, .done = done, .arg = arg};
    http_exchange_hold(exchange);
    http_shared_file_read(exchange->home, &inference->fetching);
    return 1;
}

static struct blasd_answer *answer(struct http_exchange *exchange,
                                   const struct blasd_record *record, const void *payload,
                                   struct blasd_err *err) {
    struct http_inference *inference = exchange->form.inference;
    const struct blasd_oip *oip = &inference->oip;
    struct blasd_answer *made =
        blasd_oip_answer(record, payload, oip, &inference->header_bytes, err);
    for (int i = 0; made != NULL && !inference->delivered && i < oip->output_count; i++) {
        uint64_t left;
        if (!is_shared(&oip->outputs[i]) ||
            hand_over(exchange, record, payload, &oip->outputs[i], 0, UINT64_MAX, &left, err) == 0)
            continue;
        blasd_answer_free(made);
        made = NULL;
    }
    return made;
}

static void headers(struct http_exchange *exchange, struct MHD_Response *response) {
    char text[32];
    size_t bytes = exchange->form.inference->header_bytes;
    http_reply_headers(exchange, response, bytes > 0 ? "application/octet-stream" : HTTP_TYPE_JSON);
    if (bytes == 0) return;
    snprintf(text, sizeof text, "%zu", bytes);
    (void)MHD_add_response_header(response, "Inference-Header-Content-Length", text);
}

const struct http_dialect http_inference_dialect = {.prefix = "/v2",
                                                    .problem_type = HTTP_TYPE_JSON,
                                                    .problem = blasd_oip_problem,
                                                    .gather = gather,
                                                    .deliver = deliver,
                                                    .answer = answer,
                                                    .headers = headers,
                                                    .intake = say_intake,
                                                    .release = release};
