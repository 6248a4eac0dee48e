/* Where the tensors of a request body land: in memory while they are small, in a blob once they
 * are not. What is in memory goes on in a slice, or beside the job's frame, or after all to a blob.
 * Those of a file that was handed in stay where they are.
 * Read next: shared_files.h, upload.h. */
#ifndef BLASD_HTTP_BODY_SINK_H
#define BLASD_HTTP_BODY_SINK_H

#include "base/buf.h"
#include "http/exchange.h"
#include "store/segment.h"
#include "wire/intake.h"

/* A sum over bytes, as far as they have come. */
struct http_sum {
    uint64_t bytes;      /* how many */
    uint64_t hash, more; /* of whole words, made in two ways */
    uint64_t part;       /* the bytes of one that has begun */
};

/* What it comes to. Two bodies that share the one half do not share the other. */
struct http_digest {
    uint64_t hash, more;
};

struct http_body_sink {
    struct blasd_sink base; /* must come first */
    struct http_loop *loop; /* borrowed */
    const char *id;         /* of the job, for the blob's name; borrowed */
    bool exact;             /* the tensors come to no more than `expected`, about */
    struct blasd_buf memory;
    bool begun;             /* something was written into the blob */
    struct blasd_blob blob; /* once total exceeds memory.max; grows as it is written */
    uint64_t total;         /* bytes of payload reserved */
    uint64_t expected;      /* what total will come to, as a guess from the size of the body */
    uint64_t claim_limit;   /* what total may come to, from the size of the body */
    uint64_t intake;        /* bytes reserved of the server's intake */
    struct blasd_account *account; /* the tenant's, of that; borrowed */
    /* Of its tensors, one after the other as they came, each from its begin to its end. Made then:
     * at once it would take the loop a third of a second for a gigabyte. */
    struct http_sum sum;
    bool sum_wanted;
};

/* Bytes of tensors that are held in memory. */
size_t http_body_sink_memory(const struct http_server *server);
void http_body_sink_init(struct http_body_sink *sink, const struct http_exchange *exchange);
/* Tells the empty sink what will come: what is not JSON has its tensors as they will lie. */
void http_body_sink_expect(struct http_body_sink *sink, const struct http_request *request,
                           uint64_t body_limit);
/* The body is the file `given` of the blob store's directory, whole: from now on the payload is
 * that file, and what is written into the sink is passed over. The errors of blasd_blob_adopt. */
int http_body_sink_adopt(struct http_body_sink *sink, const char *given, struct blasd_err *err);
/* Frees what it holds; a blob is closed and not removed. */
void http_body_sink_release(struct http_body_sink *sink);
/* Makes the bytes reserved of the server's intake, of which a tenant has three quarters at most, at
 * least `bytes`. no_space. */
int http_body_sink_intake(struct http_body_sink *sink, uint64_t bytes, struct blasd_err *err);
/* All is written: allocates what nobody wrote to. What is in memory then has `total` bytes.
 * no_space. */
int http_body_sink_finish(struct http_body_sink *sink, struct blasd_err *err);
/* Puts what is in memory into a blob. no_space. */
int http_body_sink_store(struct http_body_sink *sink, struct blasd_err *err);
/* Whether the payload lies in a blob, and whether that is open. */
static inline bool http_body_sink_in_blob(const struct http_body_sink *sink) {
    return sink->blob.name[0] != '\0';
}
/* A sum, of a zeroed one on: the same whatever pieces the bytes come in. */
void http_sum_add(struct http_sum *sum, const void *bytes, size_t len);
struct http_digest http_sum_end(const struct http_sum *sum);

#endif
