/* Answering with a record: as a document, or with its tensors, from the record or from a blob.
 *
 * Small answers are made whole. Large ones are sent piece by piece. Read next: ../wire/answer.h. */
#include "base/cut.h"
#include "http/etag.h"
#include "http/jobs.h"
#include "http/reply.h"
#include "wire/frame.h"
#include "wire/graph_out.h"
#include "wire/tensor_document.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_BYTES 262144 /* answers up to here are made in one piece */
#define PIECE_BYTES 262144

/* What an answer is made from, for as long as its making and sending takes. */
struct response_context {
    struct http_exchange *exchange; /* borrowed, while the blob is fetched */
    struct http_loop *home;         /* borrowed */
    struct blasd_record record;
    struct blasd_stored_tensor tensor; /* or this is sent, where its id is given */
    struct blasd_graph_report *graph;  /* of the record, or NULL; owned */
    struct blasd_blob blob;            /* the outputs, or zeros */
    void *copy;                        /* the outputs, where they came with the record; owned */
    struct blasd_answer *answer;       /* owned */
    uint64_t round;                    /* in which it had its last piece */
};

static struct response_context *context_new(struct http_exchange *exchange,
                                            const struct blasd_record *record) {
    struct response_context *context = calloc(1, sizeof *context);
    if (context == NULL) return NULL;
    context->exchange = exchange;
    context->home = exchange->home;
    context->record = *record;
    return context;
}

static void context_free(void *cls) {
    struct response_context *context = cls;
    if (context == NULL) return;
    blasd_answer_free(context->answer);
    blasd_blob_close(&context->blob);
    free(context->copy);
    free(context->graph);
    free(context);
}

/* The file may be cut by who shares it. */
static void watch(const struct response_context *context) {
    blasd_cut_watch(context->blob.data,
                    context->blob.data == NULL ? 0 : (size_t)context->blob.mapped);
}

static bool was_cut(struct response_context *context) {
    if (blasd_cut_seen()) context->blob.cut = true;
    return context->blob.cut;
}

static ssize_t read_piece(void *cls, uint64_t pos, char *out, size_t max) {
    struct response_context *context = cls;
    size_t len;
    (void)pos;
    context->home->turn.more = true;
    if (!http_pieces_next(&context->home->pieces, &context->round)) return 0;
    watch(context);
    len = blasd_answer_read(context->answer, out, max);
    if (was_cut(context)) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (len == 0) return MHD_CONTENT_READER_END_OF_STREAM;
    http_count(&context->home->metrics->sent_bytes, len);
    context->home->pieces.bytes += len;
    return (ssize_t)len;
}

/* The one that an operation is asked for: the first of its outputs. -1: the record has none. */
static int main_output(const struct blasd_record *record) {
    for (int i = 0; i < record->output_count; i++)
        if (blasd_record_sends(record, i)) return i;
    return -1;
}

static void send_tensors(struct http_exchange *exchange, struct http_body body,
                         enum blasd_format format) {
    bool post = exchange->request.method == HTTP_POST, partial = exchange->wanted.partial;
    const char *type = blasd_format_type(format);
    struct http_job_headers job;
    struct http_header rows[8] = {{NULL, NULL}};
    char range[80];
    http_etag_of_output(exchange, format);
    snprintf(range, sizeof range, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, exchange->wanted.from,
             exchange->wanted.to, exchange->wanted.all);
    if (exchange->form.dialect != NULL) {
        type = exchange->form.dialect->headers(exchange, rows, range);
    } else {
        bool ranges = http_etag_is_output(exchange) && format != BLASD_FORMAT_JSON;
        http_job_headers(exchange, post ? exchange->id : NULL, &job);
        rows[0] = (struct http_header){"Accept-Ranges", ranges ? "bytes" : NULL};
        rows[1] = (struct http_header){"Content-Range", ranges && partial ? range : NULL};
        memcpy(rows + 2, job.rows, sizeof job.rows);
    }
    http_reply(exchange, partial ? 206 : 200, type, rows, body);
}

static struct blasd_answer *make_answer(struct http_exchange *exchange,
                                        const struct blasd_record *record, const char *payload,
                                        int output, enum blasd_format format,
                                        struct blasd_err *err) {
    if (exchange->form.dialect != NULL)
        return exchange->form.dialect->answer(exchange, record, payload, err);
    return http_etag_cut(exchange, blasd_answer_new(record, payload, output, format), err);
}

/* Takes the context. */
static void stream_tensors(struct response_context *context, struct http_exchange *exchange,
                           const char *payload, int output, enum blasd_format format) {
    struct blasd_err err = {0};
    watch(context);
    if (http_exchange_reserve(exchange, PIECE_BYTES, &err) != 0) /* libmicrohttpd's block */
        ;                                                        /* answered below */
    else if (context->tensor.id[0] != '\0')
        context->answer =
            http_etag_cut(exchange,
                          blasd_tensor_answer_new(&context->tensor.tensor, context->tensor.id,
                                                  context->blob.data, format),
                          &err);
    else
        context->answer = make_answer(exchange, &context->record, payload, output, format, &err);
    if (was_cut(context))
        blasd_fail(&err, BLASD_E_record_expired, "", "the outputs of the job were cut");
    if (err.code == BLASD_OK && context->answer == NULL) (void)blasd_no_memory(&err);
    if (err.code != BLASD_OK) {
        context_free(context);
        http_reply_problem(exchange, &err);
        return;
    }
    send_tensors(exchange,
                 (struct http_body){.kind = HTTP_PIECES,
                                    .read = read_piece,
                                    .release = context_free,
                                    .cls = context,
                                    .size = blasd_answer_size(context->answer),
                                    .block = PIECE_BYTES},
                 format);
}

/* Reads a short answer into `body`, which is empty. */
static void read_whole(struct http_exchange *exchange, const struct blasd_record *record,
                       const char *payload, int output, enum blasd_format format,
                       struct blasd_buf *body, struct blasd_err *err) {
    struct blasd_answer *answer = make_answer(exchange, record, payload, output, format, err);
    int64_t size = answer == NULL ? 0 : blasd_answer_size(answer); /* negative: not known yet */
    bool whole = false;
    while (answer != NULL && !whole) {
        size_t len, more = size > (int64_t)body->len ? (size_t)size - body->len : 4096;
        if (blasd_buf_reserve(body, more) != 0) break;
        len = blasd_answer_read(answer, body->data + body->len, body->cap - body->len);
        body->len += len;
        whole = len == 0 || (int64_t)body->len == size;
    }
    if (!whole && err->code == BLASD_OK)
        blasd_fail(err, BLASD_E_no_space, "", "memory has run out (limit memory_bytes)");
    blasd_answer_free(answer);
}

static bool wants_tensors(const struct http_exchange *exchange) {
    return exchange->wanted.output != HTTP_DOCUMENT || exchange->wanted.format != BLASD_FORMAT_JSON;
}

/* What the exchange asks for, in the answer's terms. */
static int output_wanted(const struct http_exchange *exchange, const struct blasd_record *record) {
    int output =
        exchange->wanted.output == HTTP_DOCUMENT ? HTTP_ALL_OUTPUTS : exchange->wanted.output;
    if (output == HTTP_ALL_OUTPUTS && exchange->wanted.format == BLASD_FORMAT_NPY)
        output = main_output(record);
    return output;
}

static bool is_cut(void *context) {
    return was_cut(context);
}

/* Takes the context. */
static void answer_document(struct response_context *context, struct http_exchange *exchange) {
    watch(context);
    http_reply_document(exchange, 200, &context->record, context->blob.data, is_cut, context);
    context_free(context);
}

/* The tensors of a blob. Takes the context. */
static void answer_from_blob(struct response_context *context, struct http_exchange *exchange) {
    stream_tensors(context, exchange, context->blob.data, output_wanted(exchange, &context->record),
                   (enum blasd_format)exchange->wanted.format);
}

static int check_wanted(struct http_exchange *exchange, const struct blasd_record *record,
                        struct blasd_err *err);

/* The outputs of a graph are named in its blob. False where there was a problem, which is the
 * answer: the context is gone. */
static bool unfold_blob(struct response_context *context, struct http_exchange *exchange) {
    struct blasd_err err = {0};
    int rc;
    if (!blasd_graph_folded(&context->record)) return true;
    watch(context);
    rc = blasd_graph_unfold(&context->record, context->blob.data, &context->graph, &err);
    if (was_cut(context))
        rc = blasd_fail(&err, BLASD_E_record_expired, "", "the outputs of the job were cut");
    if (rc == 0 && wants_tensors(exchange)) rc = check_wanted(exchange, &context->record, &err);
    if (rc == 0) return true;
    context_free(context);
    http_reply_problem(exchange, &err);
    return false;
}

static void on_blob(void *arg, const struct blasd_err *err, struct blasd_blob *blob) {
    static const struct blasd_err gone = {.code = BLASD_E_tensor_expired,
                                          .detail = "the tensor has just made way for others"};
    struct response_context *context = arg;
    struct http_exchange *exchange = context->exchange;
    if (err != NULL && err->code == BLASD_E_inputs_lost && context->tensor.id[0] != '\0')
        err = &gone;
    if (err == NULL) {
        context->blob = *blob;
        blob->store = NULL; /* it is ours now */
    }
    if (exchange->connection == NULL || exchange->state == HTTP_AT_GONE) {
        context_free(context);
    } else if (err != NULL) {
        context_free(context);
        http_reply_problem(exchange, err);
    } else if (!unfold_blob(context, exchange)) {
        ; /* answered */
    } else if (wants_tensors(exchange)) {
        answer_from_blob(context, exchange);
    } else {
        answer_document(context, exchange);
    }
    http_exchange_release(exchange);
}

void http_result_tensor(struct http_exchange *exchange, const struct blasd_stored_tensor *tensor) {
    static const struct blasd_record none = {.state = BLASD_SUCCEEDED};
    char name[BLASD_BLOB_NAME];
    struct response_context *context = context_new(exchange, &none);
    if (context == NULL) {
        http_reply_no_memory(exchange);
        return;
    }
    context->tensor = *tensor;
    exchange->wanted.ranges = true;
    exchange->wanted.output = 0;
    snprintf(name, sizeof name, "%s.in", tensor->id);
    http_exchange_enter(exchange, HTTP_AT_ANSWERED);
    http_exchange_hold(exchange);
    blasd_front_queue_blob_get(http_queue(exchange), name, blasd_stored_bytes(tensor->bytes),
                               on_blob, context);
}

static void fetch_blob(struct http_exchange *exchange, const struct blasd_record *record) {
    char name[BLASD_BLOB_NAME];
    struct response_context *context = context_new(exchange, record);
    if (context == NULL) {
        http_reply_no_memory(exchange);
        return;
    }
    snprintf(name, sizeof name, "%s.out", record->id);
    http_exchange_wait_end(exchange);
    http_exchange_enter(exchange, HTTP_AT_ANSWERED);
    http_exchange_hold(exchange);
    blasd_front_queue_blob_get(http_queue(exchange), name, record->payload_bytes, on_blob, context);
}

/* The bytes at `payload` are borrowed for this call alone, and sending takes longer. */
static struct response_context *context_copy(struct http_exchange *exchange,
                                             const struct blasd_record *record, const char *payload,
                                             struct blasd_err *err) {
    struct response_context *context;
    if (http_exchange_reserve(exchange, record->payload_bytes, err) != 0) return NULL;
    context = context_new(exchange, record);
    if (context != NULL) context->copy = malloc(record->payload_bytes);
    if (context == NULL || context->copy == NULL) {
        context_free(context);
        blasd_no_memory(err);
        return NULL;
    }
    memcpy(context->copy, payload, record->payload_bytes);
    return context;
}

/* What lies in a slice is read there once, into what will be sent. */
static void answer_tensors(struct http_exchange *exchange, const struct blasd_record *record,
                           const char *payload) {
    enum blasd_format format = (enum blasd_format)exchange->wanted.format;
    int output = output_wanted(exchange, record);
    bool whole = record->payload_bytes <= WHOLE_BYTES / 4;
    struct blasd_buf body;
    struct response_context *context = NULL;
    struct blasd_view *hold = NULL;
    struct blasd_err err = {0};
    if (record->payload_in_blob) {
        fetch_blob(exchange, record);
        return;
    }
    blasd_buf_init(&body, 64 * WHOLE_BYTES);
    body.account = &exchange->memory;
    if (blasd_slice_given(&record->slice))
        payload = blasd_front_queue_slice_look(http_queue(exchange), &record->slice,
                                               record->payload_bytes, &hold, &err);
    if (err.code == BLASD_OK && whole)
        read_whole(exchange, record, payload, output, format, &body, &err);
    else if (err.code == BLASD_OK)
        context = context_copy(exchange, record, payload, &err);
    (void)blasd_front_queue_slice_let_go(hold, &record->slice, &err);
    if (err.code != BLASD_OK) {
        context_free(context);
        http_reply_problem(exchange, &err);
    } else if (whole) {
        send_tensors(exchange, http_buf(&body), format);
    } else if (context != NULL) {
        stream_tensors(context, exchange, context->copy, output, format);
    }
    blasd_buf_release(&body);
}

static bool has_small_output(const struct http_exchange *exchange,
                             const struct blasd_record *record) {
    uint64_t most = exchange->home->server->limits->answer_inline_elements;
    for (int i = 0; i < record->output_count; i++)
        if (blasd_record_sends(record, i) &&
            (uint64_t)blasd_tensor_elements(&record->outputs[i].tensor) <= most)
            return true;
    return false;
}

/* Whether the record has what the exchange asks for, maybe in another format that the client takes;
 * else the answer is a problem. */
static int check_wanted(struct http_exchange *exchange, const struct blasd_record *record,
                        struct blasd_err *err) {
    if (!blasd_state_final(record->state))
        return blasd_fail(err, BLASD_E_not_finished, "", "the job is %s",
                          blasd_state_names[record->state]);
    if (record->state != BLASD_SUCCEEDED) {
        *err = record->error;
        return -(int)err->code;
    }
    if (exchange->captures[1][0] != '\0') {
        exchange->wanted.output = blasd_answer_output(record, exchange->captures[1]);
        if (exchange->wanted.output < 0)
            return blasd_fail(err, BLASD_E_output_not_found, exchange->captures[1],
                              "the job sends no output '%s': those it sends have an href in its "
                              "document",
                              exchange->captures[1]);
    }
    if (exchange->wanted.format == BLASD_FORMAT_NPY &&
        !blasd_answer_possible(record, output_wanted(exchange, record), BLASD_FORMAT_NPY) &&
        !http_other_format(exchange))
        return blasd_fail(err, BLASD_E_not_acceptable, "Accept",
                          output_wanted(exchange, record) < 0
                              ? "the job sends no output that a .npy file could hold"
                              : "a .npy file cannot hold bfloat16");
    return 0;
}

/* The payload of `record`, which came with it at `beside`, or lies in a slice and is copied to the
 * loop's scratch, or is NULL: it lies in a blob, or nobody needs it. record_expired, no_space. */
static int read_payload(struct http_exchange *exchange, const struct blasd_record *record,
                        const char *beside, const char **payload, struct blasd_err *err) {
    struct blasd_buf *scratch = &exchange->home->scratch;
    int rc;
    *payload = record->payload_in_blob ? NULL : beside;
    if (!blasd_slice_given(&record->slice)) return 0;
    *payload = NULL;
    if (!blasd_graph_folded(record) && !has_small_output(exchange, record)) return 0;
    blasd_buf_reset(scratch);
    rc = blasd_front_queue_slice_read(http_queue(exchange), &record->slice, record->payload_bytes,
                                      scratch, err);
    if (rc == 0) *payload = scratch->data;
    return rc;
}

/* A graph that has succeeded: answered once its outputs are known by name. */
static void answer_graph(struct http_exchange *exchange, const struct blasd_record *record,
                         const char *payload) {
    struct blasd_record unfolded = *record;
    struct blasd_graph_report *graph = NULL;
    struct blasd_err err = {0};
    if (record->payload_in_blob) {
        fetch_blob(exchange, record);
        return;
    }
    if (read_payload(exchange, record, payload, &payload, &err) != 0 ||
        blasd_graph_unfold(&unfolded, payload, &graph, &err) != 0) {
        http_reply_problem(exchange, &err);
        return;
    }
    unfolded.slice = (struct blasd_slice){0}; /* it was read */
    http_result_answer(exchange, &unfolded, payload);
    free(graph);
}

/* A document that cannot be had as tensors is still a document, but not for who takes an array and
 * nothing else: a job that has ended without one is then a problem, whose status says so. */
static bool wants_array_alone(const struct http_exchange *exchange,
                              const struct blasd_record *record) {
    return exchange->wanted.format == BLASD_FORMAT_NPY && blasd_state_final(record->state) &&
           exchange->request.accepts.of[BLASD_FORMAT_JSON].q == 0;
}

void http_result_answer(struct http_exchange *exchange, const struct blasd_record *record,
                        const char *payload) {
    struct blasd_err err = {0};
    bool tensors = wants_tensors(exchange), made = exchange->request.method == HTTP_POST;
    if (blasd_graph_folded(record)) {
        answer_graph(exchange, record, payload);
        return;
    }
    if (exchange->wanted.output == HTTP_DOCUMENT && record->state != BLASD_SUCCEEDED &&
        !wants_array_alone(exchange, record))
        tensors = false;
    if (tensors && check_wanted(exchange, record, &err) != 0) {
        http_reply_problem(exchange, &err);
    } else if (tensors && wants_tensors(exchange)) {
        answer_tensors(exchange, record, payload);
    } else if (record->state == BLASD_SUCCEEDED && record->payload_in_blob &&
               has_small_output(exchange, record)) {
        fetch_blob(exchange, record);
    } else if (read_payload(exchange, record, payload, &payload, &err) != 0) {
        http_reply_problem(exchange, &err);
    } else {
        http_reply_document(exchange, made && !blasd_state_final(record->state) ? 202 : 200, record,
                            payload, NULL, NULL);
    }
}

/* A job that was cancelled or forgotten. Its outputs, which came with it at `beside` or lie
 * elsewhere, may be gone by now. */
static void answer_deleted(struct http_exchange *exchange, struct blasd_record *record,
                           const char *beside) {
    struct blasd_graph_report *graph = NULL;
    struct blasd_err gone = {0};
    const char *payload;
    if (record->state == BLASD_CANCELLED) http_log_cancelled(exchange, record);
    if (read_payload(exchange, record, beside, &payload, &gone) != 0) payload = NULL;
    if (payload != NULL && blasd_graph_folded(record))
        (void)blasd_graph_unfold(record, payload, &graph, &gone);
    http_reply_document(exchange, 200, record, payload, NULL, NULL);
    free(graph);
}

void http_result_record(struct http_exchange *exchange, const struct blasd_err *err,
                        const void *bytes, size_t len, bool unended_too) {
    struct blasd_record record;
    struct blasd_err bad = {0};
    size_t payload_at;
    if (!http_exchange_open(exchange)) return;
    if (err == NULL && blasd_record_decode(bytes, len, &record, &payload_at, &bad) != 0) err = &bad;
    if (err != NULL) {
        http_reply_problem(exchange, err);
        return;
    }
    record.prices = exchange->home->server->options->prices;
    if (exchange->form.graph && strcmp(record.op, blasd_op_graph.name) != 0) {
        http_reply_fail(exchange, BLASD_E_job_not_found, "", "no graph has this id");
    } else if (exchange->request.method == HTTP_DELETE) {
        answer_deleted(exchange, &record, (const char *)bytes + payload_at);
    } else if (unended_too || blasd_state_final(record.state))
        http_result_answer(exchange, &record, (const char *)bytes + payload_at);
}

void http_result_on_record(void *arg, const struct blasd_err *err, const void *record, size_t len) {
    struct http_exchange *exchange = arg;
    http_result_record(exchange, err, record, len, true);
    http_exchange_release(exchange);
}

/* A client that was to wait, and is told that the job has not ended, will ask again: its end is
 * promised for later. */
void http_jobs_fetch(struct http_exchange *exchange) {
    bool promised = exchange->request.method == HTTP_POST || exchange->wait.time_up;
    http_exchange_hold(exchange);
    (promised ? blasd_front_queue_keep
              : blasd_front_queue_get)(http_queue(exchange), &exchange->caller.principal,
                                       exchange->id, http_result_on_record, exchange);
}
