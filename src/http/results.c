/* Answering with a record: as a document, or with its tensors, from the record or from a blob.
 *
 * Small answers are made whole. Large ones are sent piece by piece, and one tensor alone straight
 * from where it is mapped. Read next: ../wire/answer.h. */
#include "base/cut.h"
#include "http/jobs.h"
#include "http/reply.h"
#include "wire/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_BYTES 262144 /* answers up to here are made in one piece */
#define PIECE_BYTES 262144
#define HEADER_BYTES 65536
/* Of a mapped tensor the system takes what a socket holds, some megabytes, at once: beyond so many
 * at a time they are sent in pieces, which have their share of a turn. */
#define MAPPED_MOST 4

/* What an answer is made from, for as long as its making and sending takes. */
struct parcel {
    struct http_exchange *exchange; /* borrowed, while the blob is fetched */
    struct http_loop *home;         /* borrowed */
    struct blasd_record record;
    struct blasd_blob blob;      /* the outputs, or zeros */
    void *copy;                  /* the outputs, where they came with the record; owned */
    struct blasd_answer *answer; /* owned */
    char *header;                /* of a tensor sent from where it is mapped; owned */
    bool mapped;                 /* it is one of home->pieces.mapped */
    uint64_t round;              /* in which it had its last piece */
};

static struct parcel *parcel_new(struct http_exchange *exchange,
                                 const struct blasd_record *record) {
    struct parcel *parcel = calloc(1, sizeof *parcel);
    if (parcel == NULL) return NULL;
    parcel->exchange = exchange;
    parcel->home = exchange->home;
    parcel->record = *record;
    return parcel;
}

static void parcel_free(void *cls) {
    struct parcel *parcel = cls;
    if (parcel == NULL) return;
    if (parcel->mapped) parcel->home->pieces.mapped--;
    blasd_answer_free(parcel->answer);
    blasd_blob_close(&parcel->blob);
    free(parcel->copy);
    free(parcel->header);
    free(parcel);
}

/* The file may be cut by who shares it. */
static void watch(const struct parcel *parcel) {
    blasd_cut_watch(parcel->blob.data, parcel->blob.data == NULL ? 0 : (size_t)parcel->blob.mapped);
}

static bool was_cut(struct parcel *parcel) {
    if (blasd_cut_seen()) parcel->blob.cut = true;
    return parcel->blob.cut;
}

static ssize_t read_piece(void *cls, uint64_t pos, char *out, size_t max) {
    struct parcel *parcel = cls;
    size_t len;
    (void)pos;
    parcel->home->turn.more = true;
    if (!http_pieces_next(&parcel->home->pieces, &parcel->round)) return 0;
    watch(parcel);
    len = blasd_answer_read(parcel->answer, out, max);
    if (was_cut(parcel)) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (len == 0) return MHD_CONTENT_READER_END_OF_STREAM;
    http_count(&parcel->home->metrics->sent_bytes, len);
    parcel->home->pieces.bytes += len;
    return (ssize_t)len;
}

static int output_count(const struct blasd_record *record, int *only) {
    int count = 0;
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) {
        if (record->outputs[i].tensor.rank < 0) continue;
        *only = i;
        count++;
    }
    return count;
}

/* One tensor in a binary format is a header and its bytes as they lie in memory. NULL where this
 * is not such an answer. */
static struct MHD_Response *from_mapping(struct parcel *parcel, const char *payload, int output,
                                         enum blasd_format format, uint64_t size) {
    const struct blasd_record *record = &parcel->record;
    struct MHD_IoVec parts[2];
    struct MHD_Response *response;
    uint64_t bytes;
    if (format == BLASD_FORMAT_JSON || parcel->home->pieces.mapped >= MAPPED_MOST) return NULL;
    /* of a file that is cut the system sends what is there, and libmicrohttpd waits for the rest */
    if (parcel->home->server->options->share) return NULL;
    if (output < 0 && output_count(record, &output) != 1) return NULL;
    bytes = record->outputs[output].bytes;
    if (bytes > size || size - bytes > HEADER_BYTES) return NULL;
    parts[0].iov_len = (size_t)(size - bytes);
    parcel->header = malloc(parts[0].iov_len + 1);
    if (parcel->header == NULL) return NULL;
    if (blasd_answer_read(parcel->answer, parcel->header, parts[0].iov_len) != parts[0].iov_len)
        return NULL;
    parts[0].iov_base = parcel->header;
    parts[1].iov_base = payload + record->outputs[output].offset;
    parts[1].iov_len = (size_t)bytes;
    response = MHD_create_response_from_iovec(parts, 2, parcel_free, parcel);
    if (response == NULL) return NULL;
    parcel->mapped = true;
    parcel->home->pieces.mapped++;
    http_count(&parcel->home->metrics->sent_bytes, size);
    return response;
}

static void send_tensors(struct http_exchange *exchange, struct MHD_Response *response,
                         enum blasd_format format) {
    if (response != NULL) {
        http_reply_headers(exchange, response, blasd_format_type(format));
        http_reply_job_headers(exchange, response,
                               exchange->request.method == HTTP_POST ? exchange->id : NULL);
    }
    http_exchange_answer(exchange, 200, response);
}

/* Takes the parcel. */
static void stream_tensors(struct parcel *parcel, struct http_exchange *exchange,
                           const char *payload, int output, enum blasd_format format) {
    struct MHD_Response *response = NULL;
    int64_t size;
    parcel->answer = blasd_answer_new(&parcel->record, payload, output, format);
    size = parcel->answer == NULL ? -1 : blasd_answer_size(parcel->answer);
    if (size > 0) response = from_mapping(parcel, payload, output, format, (uint64_t)size);
    if (response == NULL && parcel->answer != NULL && parcel->header == NULL)
        response = MHD_create_response_from_callback(size < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)size,
                                                     PIECE_BYTES, read_piece, parcel, parcel_free);
    if (response == NULL) parcel_free(parcel);
    send_tensors(exchange, response, format);
}

/* Reads a short answer into memory; NULL where that has run out. */
static struct MHD_Response *read_whole(struct http_exchange *exchange,
                                       const struct blasd_record *record, const char *payload,
                                       int output, enum blasd_format format) {
    struct blasd_answer *answer = blasd_answer_new(record, payload, output, format);
    int64_t size = answer == NULL ? 0 : blasd_answer_size(answer); /* negative: not known yet */
    struct MHD_Response *response = NULL;
    struct blasd_buf body;
    size_t len = 0;
    bool whole = false;
    blasd_buf_init(&body, 64 * WHOLE_BYTES);
    while (answer != NULL && !whole) {
        size_t more = size > (int64_t)body.len ? (size_t)size - body.len : 4096;
        if (blasd_buf_reserve(&body, more) != 0) break;
        len = blasd_answer_read(answer, body.data + body.len, body.cap - body.len);
        body.len += len;
        whole = len == 0 || (int64_t)body.len == size;
    }
    if (whole)
        response = MHD_create_response_from_buffer(body.len, body.data, MHD_RESPMEM_MUST_FREE);
    if (response != NULL)
        http_count(&exchange->home->metrics->sent_bytes, body.len);
    else
        blasd_buf_release(&body);
    blasd_answer_free(answer);
    return response;
}

static bool wants_tensors(const struct http_exchange *exchange) {
    return exchange->wanted.output != HTTP_DOCUMENT || exchange->wanted.format != BLASD_FORMAT_JSON;
}

/* What the exchange asks for, in the answer's terms. */
static int output_wanted(const struct http_exchange *exchange, const struct blasd_record *record) {
    int output =
        exchange->wanted.output == HTTP_DOCUMENT ? HTTP_ALL_OUTPUTS : exchange->wanted.output;
    if (output == HTTP_ALL_OUTPUTS && exchange->wanted.format == BLASD_FORMAT_NPY)
        output_count(record, &output);
    return output;
}

/* Takes the parcel. */
static void answer_document(struct parcel *parcel, struct http_exchange *exchange) {
    struct MHD_Response *response;
    watch(parcel);
    response = http_reply_document_response(exchange, 200, &parcel->record, parcel->blob.data);
    if (!was_cut(parcel)) {
        http_exchange_answer(exchange, 200, response);
    } else {
        if (response != NULL) MHD_destroy_response(response);
        http_reply_fail(exchange, BLASD_E_record_expired, "", "the outputs of the job were cut");
    }
    parcel_free(parcel);
}

static void on_blob(void *arg, const struct blasd_err *err, struct blasd_blob *blob) {
    struct parcel *parcel = arg;
    struct http_exchange *exchange = parcel->exchange;
    if (err == NULL) {
        parcel->blob = *blob;
        blob->store = NULL; /* it is ours now */
    }
    if (exchange->connection == NULL || exchange->client.gone) {
        parcel_free(parcel);
    } else if (err != NULL) {
        parcel_free(parcel);
        http_reply_problem(exchange, err);
    } else if (wants_tensors(exchange)) {
        stream_tensors(parcel, exchange, parcel->blob.data,
                       output_wanted(exchange, &parcel->record),
                       (enum blasd_format)exchange->wanted.format);
    } else {
        answer_document(parcel, exchange);
    }
    http_exchange_release(exchange);
}

static void fetch_blob(struct http_exchange *exchange, const struct blasd_record *record) {
    char name[BLASD_BLOB_NAME];
    struct parcel *parcel = parcel_new(exchange, record);
    if (parcel == NULL) {
        http_reply_fail(exchange, BLASD_E_no_space, "", "memory has run out");
        return;
    }
    snprintf(name, sizeof name, "%s.out", record->id);
    http_exchange_unwait(exchange);
    exchange->answer.made = true;
    http_exchange_hold(exchange);
    blasd_front_queue_blob_get(exchange->home->queue, name, record->payload_bytes, on_blob, parcel);
}

/* The bytes at `payload` are borrowed for this call alone, and sending takes longer. */
static struct parcel *parcel_copy(struct http_exchange *exchange, const struct blasd_record *record,
                                  const char *payload) {
    struct parcel *parcel = parcel_new(exchange, record);
    if (parcel != NULL) parcel->copy = malloc(record->payload_bytes);
    if (parcel == NULL || parcel->copy == NULL) {
        parcel_free(parcel);
        return NULL;
    }
    memcpy(parcel->copy, payload, record->payload_bytes);
    return parcel;
}

/* What lies in a slice is read there once, into what will be sent. */
static void answer_tensors(struct http_exchange *exchange, const struct blasd_record *record,
                           const char *payload) {
    enum blasd_format format = (enum blasd_format)exchange->wanted.format;
    int output = output_wanted(exchange, record);
    bool whole = record->payload_bytes <= WHOLE_BYTES / 4;
    struct MHD_Response *response = NULL;
    struct parcel *parcel = NULL;
    struct blasd_view *hold = NULL;
    struct blasd_err err = {0};
    if (record->payload_in_blob) {
        fetch_blob(exchange, record);
        return;
    }
    if (blasd_slice_given(&record->slice))
        payload = blasd_front_queue_slice_look(exchange->home->queue, &record->slice,
                                               record->payload_bytes, &hold, &err);
    if (err.code == BLASD_OK && whole)
        response = read_whole(exchange, record, payload, output, format);
    else if (err.code == BLASD_OK && (parcel = parcel_copy(exchange, record, payload)) == NULL)
        blasd_fail(&err, BLASD_E_no_space, "", "memory has run out");
    if (blasd_front_queue_slice_let_go(hold, &record->slice, &err) != 0 && response != NULL)
        MHD_destroy_response(response);
    if (err.code != BLASD_OK) {
        parcel_free(parcel);
        http_reply_problem(exchange, &err);
    } else if (whole) {
        send_tensors(exchange, response, format);
    } else {
        stream_tensors(parcel, exchange, parcel->copy, output, format);
    }
}

static bool has_small_output(const struct http_exchange *exchange,
                             const struct blasd_record *record) {
    uint64_t most = exchange->home->server->limits->answer_inline_elements;
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++)
        if (record->outputs[i].tensor.rank >= 0 &&
            (uint64_t)blasd_tensor_elements(&record->outputs[i].tensor) <= most)
            return true;
    return false;
}

/* Whether the record has what the exchange asks for; else the answer is a problem. */
static int check_wanted(struct http_exchange *exchange, const struct blasd_record *record,
                        struct blasd_err *err) {
    int only;
    if (!blasd_state_final(record->state))
        return blasd_fail(err, BLASD_E_not_finished, "", "the job is %s",
                          blasd_state_names[record->state]);
    if (record->state == BLASD_FAILED)
        return blasd_fail(err, BLASD_E_job_failed, "", "%s: %.180s",
                          blasd_err_info(record->error.code)->name, record->error.detail);
    if (record->state != BLASD_SUCCEEDED)
        return blasd_fail(err, BLASD_E_job_ended_without_result, "", "the job is %s",
                          blasd_state_names[record->state]);
    if (exchange->captures[1][0] != '\0') {
        const struct blasd_op *op = blasd_op_find(record->op);
        exchange->wanted.output = op == NULL ? -1 : blasd_op_output(op, exchange->captures[1]);
        if (exchange->wanted.output < 0 || record->outputs[exchange->wanted.output].tensor.rank < 0)
            return blasd_fail(err, BLASD_E_output_not_found, exchange->captures[1],
                              "the job has no output '%s'", exchange->captures[1]);
    }
    if (exchange->wanted.format == BLASD_FORMAT_NPY && exchange->wanted.output < 0 &&
        output_count(record, &only) != 1)
        return blasd_fail(err, BLASD_E_not_acceptable, "Accept",
                          "the job has %d outputs, and a .npy file holds one",
                          output_count(record, &only));
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
    if (!has_small_output(exchange, record)) return 0;
    blasd_buf_reset(scratch);
    rc = blasd_front_queue_slice_read(exchange->home->queue, &record->slice, record->payload_bytes,
                                      scratch, err);
    if (rc == 0) *payload = scratch->data;
    return rc;
}

void http_result_answer(struct http_exchange *exchange, unsigned unended,
                        const struct blasd_record *record, const char *payload) {
    struct blasd_err err = {0};
    bool tensors = wants_tensors(exchange);
    /* a document that cannot be had as tensors is still a document */
    if (exchange->wanted.output == HTTP_DOCUMENT && record->state != BLASD_SUCCEEDED)
        tensors = false;
    if (tensors) {
        if (check_wanted(exchange, record, &err) != 0)
            http_reply_problem(exchange, &err);
        else
            answer_tensors(exchange, record, payload);
    } else if (record->state == BLASD_SUCCEEDED && record->payload_in_blob &&
               has_small_output(exchange, record)) {
        fetch_blob(exchange, record);
    } else if (read_payload(exchange, record, payload, &payload, &err) != 0) {
        http_reply_problem(exchange, &err);
    } else {
        http_reply_document(exchange, blasd_state_final(record->state) ? 200 : unended, record,
                            payload);
    }
}

void http_result_record(struct http_exchange *exchange, const struct blasd_err *err,
                        const void *bytes, size_t len, bool unended_too) {
    const struct blasd_err cancelled = {.code = BLASD_E_cancelled};
    struct blasd_record record;
    struct blasd_err bad = {0};
    const char *payload;
    size_t payload_at;
    if (!http_exchange_open(exchange)) return;
    if (err != NULL)
        http_reply_problem(exchange, err);
    else if (blasd_record_decode(bytes, len, &record, &payload_at, &bad) != 0)
        http_reply_problem(exchange, &bad);
    else if (exchange->request.method == HTTP_DELETE) { /* the outputs may be gone by now */
        if (record.state == BLASD_CANCELLED) http_log_job(exchange, "cancelled", &cancelled);
        if (read_payload(exchange, &record, (const char *)bytes + payload_at, &payload, &bad) != 0)
            payload = NULL;
        http_reply_document(exchange, 200, &record, payload);
    } else if (unended_too || blasd_state_final(record.state))
        http_result_answer(exchange, exchange->wait.status, &record,
                           (const char *)bytes + payload_at);
}

void http_result_on_record(void *arg, const struct blasd_err *err, const void *record, size_t len) {
    struct http_exchange *exchange = arg;
    http_result_record(exchange, err, record, len, true);
    http_exchange_release(exchange);
}

/* A 202 promises the job's end for later. */
void http_jobs_fetch(struct http_exchange *exchange) {
    http_exchange_hold(exchange);
    (exchange->wait.status == 202 ? blasd_front_queue_keep : blasd_front_queue_get)(
        exchange->home->queue, &blasd_anonymous, exchange->id, http_result_on_record, exchange);
}
