/* Files that are handed in: where they go, and the reading of one. */
#include "http/shared_files.h"

#include "http/jobs.h"
#include "http/reply.h"
#include "wire/part_header.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

#define TURN_BYTES (UINT64_C(2) << 20) /* about half a millisecond */
#define PIECE_BYTES (256 * BLASD_KIB)  /* stays in the cache until it has been looked at */

static int check_on(const struct http_exchange *exchange, struct blasd_err *err) {
    if (exchange->home->server->options->share) return 0;
    return blasd_fail(err, BLASD_E_sharing_off, "", "the service was started without --share");
}

void http_share(struct http_exchange *exchange) {
    const struct http_server *server = exchange->home->server;
    char tag[BLASD_TENANT_TAG + 1];
    struct blasd_err err = {0};
    blasd_front_queue_tag(http_queue(exchange), &exchange->caller.principal, tag);
    if (check_on(exchange, &err) != 0)
        http_reply_problem(exchange, &err);
    else
        http_reply_json(exchange, json_pack("{s:s,s:s,s:s,s:i,s:I}", "directory",
                                            blasd_store_path(server->store), "prefix", tag,
                                            "suffix", ".put", "alignment", 64, "body_bytes",
                                            (json_int_t)server->limits->body_bytes));
}

int http_shared_file_adopt(struct http_exchange *exchange, struct http_body_sink *sink,
                           struct blasd_err *err) {
    const struct http_request *request = &exchange->request;
    char tag[BLASD_TENANT_TAG + 1];
    int rc = check_on(exchange, err);
    if (rc != 0) return rc;
    blasd_front_queue_tag(http_queue(exchange), &exchange->caller.principal, tag);
    if (strncmp(request->body_file, tag, strlen(tag)) != 0)
        return blasd_fail(err, BLASD_E_body_file_refused, "Body-File",
                          "the name does not begin with the prefix that GET /share gave you");
    if (request->framing.chunked || request->framing.content_length > 0)
        return blasd_fail(err, BLASD_E_malformed_query, "Body-File",
                          "a request whose body is a file has no other body");
    if (request->content_type != NULL &&
        !blasd_media_type_is(request->content_type, HTTP_SHARED_FILE_TYPE))
        return blasd_fail(err, BLASD_E_unsupported_media_type, "Content-Type",
                          "a file that is handed in is " HTTP_SHARED_FILE_TYPE);
    return http_body_sink_adopt(sink, request->body_file, err);
}

void http_shared_file_read(struct http_loop *loop, struct http_shared_file *file) {
    blasd_list_append(&loop->shared_files, &file->node);
}

/* Reads on in a body. */
static int read_on(struct http_loop *loop, struct http_shared_file *file, struct blasd_err *err) {
    uint64_t end = file->sink->total;
    struct blasd_buf *piece = &loop->scratch;
    int rc = 0;
    blasd_buf_reset(piece);
    if (blasd_buf_reserve(piece, PIECE_BYTES) != 0) return blasd_no_memory(err);
    if (end - file->at > TURN_BYTES) end = file->at + TURN_BYTES;
    while (rc == 0 && file->at < end) {
        size_t len = end - file->at < PIECE_BYTES ? (size_t)(end - file->at) : PIECE_BYTES;
        rc = blasd_blob_read(&file->sink->blob, file->at, piece->data, len, err);
        if (rc == 0) rc = blasd_intake_feed(file->intake, piece->data, len, err);
        file->at += len;
    }
    return rc == 0 && file->at < file->sink->total ? 1 : rc;
}

void http_shared_file_turn(struct http_loop *loop) {
    struct http_shared_file *file;
    struct blasd_err err = {0};
    int rc;
    if (blasd_list_empty(&loop->shared_files)) return;
    file = blasd_container_of(loop->shared_files.next, struct http_shared_file, node);
    blasd_list_remove(&file->node);
    rc = read_on(loop, file, &err);
    if (rc > 0)
        http_shared_file_read(loop, file); /* behind the others */
    else
        file->done(file->arg, rc == 0 ? NULL : &err);
}
