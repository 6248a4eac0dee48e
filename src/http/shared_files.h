/* Tensors that come as a file of the blob store's directory, from a client on the same machine:
 * GET /share tells where and how, `Body-File: NAME` of POST /jobs hands a file in.
 *
 * The file is read as a body is, by the same reader, for it must be checked before the job is
 * taken: every value is looked at once, some MiB in each turn of the loop. It is read and not
 * mapped, for a client that cuts it meanwhile must not end this process. Read next: jobs_post.c. */
#ifndef BLASD_HTTP_SHARED_FILES_H
#define BLASD_HTTP_SHARED_FILES_H

#include "http/body_sink.h"

#define HTTP_SHARED_FILE_TYPE "application/x-safetensors"

/* A file being read. A plain value, in its owner's hands until `done` is called, which
 * happens from http_shared_file_turn. */
struct http_shared_file {
    struct http_body_sink *sink; /* has adopted the file; borrowed, as the next two */
    struct blasd_intake *intake;
    void (*done)(void *arg, const struct blasd_err *err); /* err NULL: all was read and fed */
    void *arg;
    uint64_t at;            /* bytes read so far */
    struct blasd_list node; /* in the loop's shared_files */
};

/* Takes the file that the request's Body-File names into the sink. malformed_query, sharing_off,
 * unsupported_media_type, and the errors of blasd_blob_adopt. */
int http_shared_file_adopt(struct http_exchange *exchange, struct http_body_sink *sink,
                           struct blasd_err *err);
/* Begins. */
void http_shared_file_read(struct http_loop *loop, struct http_shared_file *file);
/* Called in each turn of the loop: goes on with the one that has waited longest. */
void http_shared_file_turn(struct http_loop *loop);

#endif
