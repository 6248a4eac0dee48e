/* A body on its way to become a job: what jobs_post.c takes in and jobs_submit.c gives to the
 * queue. Private to the two. Read next: jobs_post.c. */
#ifndef BLASD_HTTP_UPLOAD_H
#define BLASD_HTTP_UPLOAD_H

#include "http/body_sink.h"
#include "http/shared_files.h"

struct http_upload {
    struct http_exchange *exchange; /* borrowed: the upload is its part */
    struct http_body_sink sink;
    struct blasd_intake *intake;           /* owned; NULL once the body is read */
    struct {                               /* what does not come in the body */
        struct http_shared_file file;      /* where it is a file, while that is read */
        struct http_remote_inputs *remote; /* while inputs by URL are fetched; owned */
    } elsewhere;
    struct http_unpacker *unpacker; /* of a body that comes compressed; owned */
    uint64_t body_limit;
    double wait_s; /* 0: the answer is 202 at once */
    /* what the document says until a worker takes the job */
    const char *op; /* static */
    enum blasd_priority priority;
    enum blasd_device_class device; /* the class it is queued for */
    int64_t created_us, receive_us;
    char labels[BLASD_LABELS_MAX];
    struct {                      /* to other jobs, and to tensors */
        struct blasd_input *sent; /* owned: the inputs as they came, of a job that refers to others
                                   * and has an Idempotency-Key */
        struct http_digest
            fingerprint;       /* of a graph with both: what tells its request from others */
        struct blasd_err lost; /* why what it refers to cannot be found, where it may be the request
                                * of an earlier job all the same */
    } references;
    char *notify; /* a URL, checked, that is told of its end; owned; NULL: none */
    /* Owned: kept while its references are looked up, and, if it may wait for room, until the queue
     * has taken it; else NULL. */
    struct blasd_job *job;
    struct {
        struct blasd_cost_step *of; /* a graph; owned; NULL: none, or not known */
        int count;
        struct blasd_buf results; /* of a dry run: blasd_intake_outputs */
    } steps;
    uint64_t cost;    /* of that job */
    double work_s;    /* predicted */
    uint64_t outputs; /* bytes that its plan predicts, where they are more than its inputs */
    uint64_t result;  /* bytes that its record will take */
    uint64_t made_bytes, made; /* of outputs that become tensors, and how many do */
    struct {
        bool small; /* the job may share its entry of the queue with those of the same key */
        struct blasd_key key;
    } batch;
};

/* A job that was checked: its plan, and the bytes that it takes of the queue and of a worker. */
struct http_checked {
    struct blasd_plan plan;
    uint64_t cost, memory;
};
/* jobs_check.c. Whether the job can be run and answered here. */
int http_upload_check(struct http_upload *upload, const struct blasd_job *job,
                      struct http_checked *ret, struct blasd_err *err);
/* Chooses where a job that was checked goes, and with which others; notes what room its record, and
 * the tensors that it makes, will take. */
void http_upload_place(struct http_upload *upload, const struct blasd_job *job,
                       const struct http_checked *checked);

/* Bytes of the body, as far as they are known before it is read. */
uint64_t http_upload_bytes(const struct http_upload *upload);
/* jobs_submit.c. Gives the job, whose bytes are all in the sink, to the queue; `cost` is what it
 * takes of the queue. The answer follows: at once, or when the job has ended, or the time is up.
 * On an error nothing was submitted, and the caller answers; no_space, and the errors of
 * blasd_blob_*. */
int http_upload_submit(struct http_upload *upload, struct blasd_job *job, uint64_t cost,
                       struct blasd_err *err);
/* Takes the fingerprint of a graph that refers to others, while it says no more than the request
 * did: once it is planned it depends on them. */
int http_upload_fingerprint(struct http_upload *upload, const struct blasd_job *job,
                            struct blasd_err *err);
/* What the job refers to cannot be found, for `why`: asks for the job that its Idempotency-Key
 * names, which was taken in when it could. Where there is none the answer is `why`. Errors as
 * above. */
int http_upload_ask(struct http_upload *upload, struct blasd_job *job, const struct blasd_err *why,
                    struct blasd_err *err);

#endif
