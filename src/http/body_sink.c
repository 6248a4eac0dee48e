/* The sink of a request body. */
#include "http/body_sink.h"

#include "base/container.h"
#include "base/cut.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A blob grows by so much at a time: allocating gigabytes at once would hold the loop up. */
#define GROW_BYTES (UINT64_C(4) << 20)
/* To map half a gibibyte takes the loop 50 ms and more, to unmap it 30: what is larger than this is
 * written piece by piece, which costs more in all and holds nobody up. */
#define MAP_MOST (UINT64_C(128) << 20)

/* A sum over bytes that come in pieces of any length. */
static void sum_word(struct http_sum *sum, uint64_t word) {
    sum->hash = (sum->hash ^ word) * UINT64_C(0x9fb21c651e98df25);
    sum->hash ^= sum->hash >> 32;
    sum->more = (sum->more + word) * UINT64_C(0xbf58476d1ce4e5b9);
    sum->more ^= sum->more >> 31;
}

void http_sum_add(struct http_sum *sum, const void *bytes, size_t len) {
    const unsigned char *at = bytes, *end = at + len;
    uint64_t word;
    for (; at < end && sum->bytes % sizeof word != 0; sum->bytes++) {
        sum->part |= (uint64_t)*at++ << 8 * (sum->bytes % sizeof word);
        if ((sum->bytes + 1) % sizeof word == 0) {
            sum_word(sum, sum->part);
            sum->part = 0;
        }
    }
    for (; (size_t)(end - at) >= sizeof word; at += sizeof word, sum->bytes += sizeof word) {
        memcpy(&word, at, sizeof word);
        sum_word(sum, word);
    }
    for (; at < end; sum->bytes++) sum->part |= (uint64_t)*at++ << 8 * (sum->bytes % sizeof word);
}

struct http_digest http_sum_end(const struct http_sum *sum) {
    struct http_sum all = *sum;
    sum_word(&all, sum->part);
    sum_word(&all, sum->bytes);
    return (struct http_digest){all.hash ^ all.hash >> 29, all.more ^ all.more >> 29};
}

int http_body_sink_store(struct http_body_sink *sink, struct blasd_err *err) {
    char name[BLASD_BLOB_NAME];
    uint64_t have = sink->memory.len;
    int rc;
    if (have > sink->total) have = sink->total;
    snprintf(name, sizeof name, "%s.in", sink->id);
    /* what goes to Redis is exactly as long as its tensors */
    if (blasd_store_kind(sink->loop->server->store) != BLASD_STORE_DIR) sink->expected = 0;
    rc = blasd_blob_obtain(sink->loop->server->store, name, sink->expected, &sink->blob, err);
    if (rc == 0 && have > 0) rc = blasd_blob_grow(&sink->blob, have, err);
    if (rc == 0 && have > 0)
        rc = blasd_blob_write(&sink->blob, 0, sink->memory.data, (size_t)have, err);
    blasd_buf_release(&sink->memory);
    return rc;
}

/* What lies between two tensors is stored and passed on, too: from the end of one, or of a piece of
 * it, to where the next may begin. A tensor's own bytes are all written, piece after piece, or the
 * body is refused. */
static void clear_gap(struct blasd_buf *memory, size_t end) {
    size_t next = blasd_align_up(end);
    memset(memory->data + end, 0, (next < memory->len ? next : memory->len) - end);
}

/* Makes the memory as long as what is reserved. At once it becomes as large as all will be: each
 * growing copies what is there. */
static int make_room(struct http_body_sink *sink, struct blasd_err *err) {
    struct blasd_buf *memory = &sink->memory;
    size_t end = memory->len, more = (size_t)(sink->total - end), room = more;
    if (more == 0) return 0;
    /* whatever describes a tensor is longer than the gap before it: one was described that cannot
     * come */
    if (sink->exact && memory->len >= BLASD_SLICE_LEAST && sink->total > sink->expected)
        return blasd_fail(err, BLASD_E_invalid_tensor, "inputs",
                          "the tensors are said to have %" PRIu64
                          " bytes, more than the body they come in can hold",
                          sink->total);
    if (sink->exact && sink->expected > sink->total && sink->expected <= memory->max)
        room = (size_t)(sink->expected - memory->len);
    if (blasd_buf_reserve(memory, room) != 0) return blasd_no_memory(err);
    memory->len += more;
    clear_gap(memory, end);
    return 0;
}

static int sink_reserve(struct blasd_sink *base, uint64_t bytes, uint64_t *offset,
                        struct blasd_err *err) {
    struct http_body_sink *sink = blasd_container_of(base, struct http_body_sink, base);
    uint64_t at = blasd_align_up(sink->total);
    int rc;
    if (bytes > sink->claim_limit || at > sink->claim_limit - bytes)
        return blasd_fail(err, BLASD_E_invalid_tensor, "inputs",
                          "the tensors are said to have %" PRIu64
                          " bytes and more, which the body cannot hold",
                          bytes);
    rc = http_body_sink_intake(sink, at + bytes, err);
    if (rc != 0) return rc;
    if (!http_body_sink_in_blob(sink) && at + bytes > sink->memory.max &&
        (rc = http_body_sink_store(sink, err)) != 0)
        return rc;
    sink->total = at + bytes;
    *offset = at;
    return 0;
}

/* How large the blob should be once it must hold `bytes`. In the end it is as large as the body,
 * rather than its tensors, so that it fits the next body of the same kind. */
static uint64_t grown(const struct http_body_sink *sink, uint64_t bytes) {
    uint64_t size = (bytes + GROW_BYTES - 1) / GROW_BYTES * GROW_BYTES;
    uint64_t most = sink->total > sink->expected ? sink->total : sink->expected;
    return size < most ? size : most;
}

/* Where it served before, somebody may hold on to the file and cut it. */
static int check_cut(struct blasd_blob *blob, struct blasd_err *err) {
    if (blasd_cut_seen()) blob->cut = true;
    if (!blob->cut) return 0;
    return blasd_fail(err, BLASD_E_no_space, "",
                      "another process has truncated a file of the blob store");
}

static int write_blob(struct http_body_sink *sink, uint64_t offset, const void *bytes, size_t len,
                      struct blasd_err *err) {
    struct blasd_blob *blob = &sink->blob;
    /* In a recycled blob the gaps between tensors keep what lay there: nobody reads them.
     * Into pages that are there already bytes are best copied. Fresh ones are best written, which
     * spares them the zeros that they would be filled with. */
    if (!sink->begun && blob->recycled && blob->bytes >= sink->total && blob->bytes <= MAP_MOST)
        (void)blasd_blob_map(blob, NULL); /* where it cannot be had, it is written */
    sink->begun = true;
    if (offset + len > blob->bytes) {
        int rc;
        blasd_blob_unmap(blob);
        rc = blasd_blob_grow(blob, grown(sink, offset + len), err);
        if (rc != 0) return rc;
    }
    if (blob->data == NULL) return blasd_blob_write(blob, offset, bytes, len, err);
    blasd_cut_watch(blob->data, (size_t)blob->mapped);
    memcpy((char *)blob->data + offset, bytes, len);
    return check_cut(blob, err);
}

static int sink_write(struct blasd_sink *base, uint64_t offset, const void *bytes, size_t len,
                      struct blasd_err *err) {
    struct http_body_sink *sink = blasd_container_of(base, struct http_body_sink, base);
    int rc;
    if (len == 0) return 0;
    if (offset > sink->total || len > sink->total - offset)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "a tensor was written outside the room reserved for it");
    if (sink->sum_wanted) http_sum_add(&sink->sum, bytes, len);
    if (http_body_sink_in_blob(sink)) return write_blob(sink, offset, bytes, len, err);
    if ((rc = make_room(sink, err)) != 0) return rc;
    memcpy(sink->memory.data + offset, bytes, len);
    clear_gap(&sink->memory, (size_t)offset + len);
    return 0;
}

static int reserve_in_place(struct blasd_sink *base, uint64_t bytes, uint64_t *offset,
                            struct blasd_err *err) {
    struct http_body_sink *sink = blasd_container_of(base, struct http_body_sink, base);
    if (base->body_at % BLASD_ALIGN != 0)
        return blasd_fail(err, BLASD_E_body_file_refused, "inputs",
                          "a tensor begins at byte %" PRIu64
                          " of the file, which is not a multiple of %" PRIu64
                          "; pad the header with spaces, and leave gaps between the tensors",
                          base->body_at, BLASD_ALIGN);
    if (base->body_at > sink->total || bytes > sink->total - base->body_at)
        return blasd_fail(err, BLASD_E_malformed_safetensors, "inputs",
                          "a tensor ends behind the end of the file");
    *offset = base->body_at;
    return 0;
}

static int write_in_place(struct blasd_sink *base, uint64_t offset, const void *bytes, size_t len,
                          struct blasd_err *err) {
    struct http_body_sink *sink = blasd_container_of(base, struct http_body_sink, base);
    (void)offset, (void)err; /* it is there */
    if (sink->sum_wanted) http_sum_add(&sink->sum, bytes, len);
    return 0;
}

int http_body_sink_adopt(struct http_body_sink *sink, const char *given, struct blasd_err *err) {
    char name[BLASD_BLOB_NAME];
    int rc;
    snprintf(name, sizeof name, "%s.in", sink->id);
    rc = blasd_blob_adopt(sink->loop->server->store, given, name, &sink->blob, err);
    if (rc != 0) return rc;
    sink->base =
        (struct blasd_sink){.in_place = true, .reserve = reserve_in_place, .write = write_in_place};
    sink->total = sink->blob.bytes;
    return 0;
}

int http_body_sink_finish(struct http_body_sink *sink, struct blasd_err *err) {
    if (!http_body_sink_in_blob(sink)) return make_room(sink, err);
    if (sink->total > sink->blob.bytes) blasd_blob_unmap(&sink->blob);
    return blasd_blob_fit(&sink->blob, sink->total, err);
}

size_t http_body_sink_memory(const struct http_server *server) {
    bool slices = blasd_store_kind(server->store) == BLASD_STORE_DIR;
    uint64_t inlined = server->limits->inline_bytes;
    return slices && inlined < BLASD_SLICE_MOST ? BLASD_SLICE_MOST : inlined;
}

void http_body_sink_init(struct http_body_sink *sink, const struct http_exchange *exchange) {
    struct http_server *server = exchange->home->server;
    *sink = (struct http_body_sink){
        .base = {.reserve = sink_reserve, .write = sink_write},
        .loop = exchange->home,
        .id = exchange->id,
        .account = http_account_of(&server->intake, &exchange->caller.principal),
        .blob = {.fd = -1}};
    blasd_buf_init(&sink->memory, http_body_sink_memory(server));
    sink->memory.account = exchange->memory.parent;
}

/* How large a payload the body can make: text of two bytes, `1,`, may become eight. */
void http_body_sink_expect(struct http_body_sink *sink, const struct http_request *request,
                           uint64_t body_limit) {
    bool json = http_request_is_json(request);
    bool chunked = request->framing.chunked || request->coding != HTTP_CODING_NONE;
    uint64_t body = chunked ? body_limit : request->framing.content_length;
    sink->claim_limit = (json ? body * 8 : body) + 64 * (BLASD_MAX_INPUTS + 8);
    sink->expected = request->framing.content_length;
    sink->sum_wanted = request->idempotency_key != NULL;
    sink->exact = !chunked && !json && !request->elsewhere;
    if (request->elsewhere) sink->claim_limit = sink->loop->server->limits->body_bytes;
}

void http_body_sink_release(struct http_body_sink *sink) {
    blasd_buf_release(&sink->memory);
    blasd_blob_close(&sink->blob);
    blasd_account_give(sink->account, sink->intake);
    sink->intake = 0;
}

int http_body_sink_intake(struct http_body_sink *sink, uint64_t bytes, struct blasd_err *err) {
    if (bytes <= sink->intake) return 0;
    if (!blasd_account_take(sink->account, bytes - sink->intake))
        return blasd_fail(err, BLASD_E_no_space, "",
                          "%" PRIu64
                          " bytes do not fit: other requests are being received: %" PRIu64
                          " bytes at the most (limit intake_bytes)",
                          bytes, blasd_account_limit(sink->account));
    sink->intake = bytes;
    return 0;
}
