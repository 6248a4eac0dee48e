/* What the client's own files share; not for its users. */
#ifndef BLASD_CLIENT_INTERNAL_H
#define BLASD_CLIENT_INTERNAL_H

#include "clients/c/blasd.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>

#define BLASD_REPLY_ARRAYS 64

struct blasd_reply {
    unsigned char *body; /* owned: what the service sent; arrays point into it */
    size_t len;
    unsigned char *map; /* owned: where arrays lie in shared memory, or NULL */
    size_t map_len;
    _Atomic(json_t *) document; /* owned; of a job that came with its arrays NULL until asked for */
    json_t *header; /* owned: the safetensors header, which owns the names; NULL for JSON */
    char *text;     /* owned: the document as the service wrote it */
    struct blasd_array arrays[BLASD_REPLY_ARRAYS];
    int array_count;
    bool complete; /* has all arrays of the job */
    bool of_job;   /* which came with them, and so has succeeded */
};

#define BLASD_SHARED_NAME 32 /* digits */

/* One file of ours in the service's directory. It is locked, or the service would sweep it. */
struct blasd_shared {
    char name[BLASD_SHARED_NAME + 1];
    char *path; /* owned */
    int fd;
    pid_t owner;        /* the process that made it, and removes it */
    unsigned char *map; /* owned; NULL: the file was written, not mapped */
    size_t len;
    struct blasd_array *arrays; /* owned, with their names; none where it was written */
    int array_count;
};

/* The safetensors dtype code of a NumPy name and back, with the element's size; NULL: unknown. */
const char *blasd_dtype_code(const char *name, size_t *size);
const char *blasd_dtype_of_code(const char *code, size_t *size);

/* Bytes of an array, or -1 where its dtype is unknown or its shape absurd. */
int64_t blasd_array_bytes(const struct blasd_array *array);
/* Whether name, dtype, rank and lengths can be; `problem` says which cannot. */
int blasd_array_check(const struct blasd_array *array, struct blasd_problem *problem);
/* Where an array begins that comes after `at` bytes of data. */
uint64_t blasd_array_place(uint64_t at, unsigned alignment);
/* A safetensors header, its length in front, padded to a multiple of 64; arrays begin at multiples
 * of `alignment` and `*data_bytes` lie behind the header. `metadata` is stolen, and may be NULL.
 * New, for free(); NULL and `problem` where an array is not well formed. */
unsigned char *blasd_tensors_header(const struct blasd_array *arrays, int count, unsigned alignment,
                                    json_t *metadata, size_t *len, uint64_t *data_bytes,
                                    struct blasd_problem *problem);
/* The lengths of a JSON array; false where there are more than an array can have. */
bool blasd_shape_read(const json_t *shape, int *rank, int64_t lengths[BLASD_ARRAY_RANK]);
int blasd_refuse_memory(struct blasd_problem *problem); /* for the request */
/* What cannot be said in JSON must not be left out in silence. */
int blasd_refuse_text(struct blasd_problem *problem);
/* Makes a reply of a body, which it takes over also where it fails. */
struct blasd_reply *blasd_reply_parse(unsigned char *body, size_t len, bool safetensors,
                                      struct blasd_problem *problem);
/* Its document, read at the first question: who wants the arrays alone does not pay for it. */
const json_t *blasd_reply_json(const struct blasd_reply *reply);
/* Fills `problem` from a problem document (or whatever the body is). */
void blasd_problem_parse(struct blasd_problem *problem, long status, const void *body, size_t len);
/* The same from a JSON value; NULL is taken. */
void blasd_problem_from(struct blasd_problem *problem, const json_t *document);
/* Whether there was no room for it, so that nothing came of it; of a 502 or 504 something may have.
 */
static inline bool blasd_was_refused(const struct blasd_problem *problem) {
    return problem->status == 429 || problem->status == 503;
}
/* Of a good answer whose text is none of the service's. */
int blasd_refuse_document(struct blasd_problem *problem, const char *text, size_t len);
/* Whether the reply is of a job: it has an id and a state. */
int blasd_reply_check_job(const struct blasd_reply *reply, struct blasd_problem *problem);
int blasd_problem_set(struct blasd_problem *problem, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* --- client_request.c: what is asked for */

/* Whether its inputs may come in a file: what the file does not have the URL's query says, and that
 * has neither steps nor references. */
static inline bool blasd_request_fits_file(const struct blasd_request *request) {
    return request->steps == NULL && request->references == NULL;
}
/* Whether it can be sent as it is. */
int blasd_request_check(const struct blasd_request *request, struct blasd_problem *problem);
int blasd_input_check(const struct blasd_array *array, struct blasd_problem *problem);
/* `what` has something in its reserved members. */
int blasd_refuse_reserved(const char *what, struct blasd_problem *problem);
/* A copy of a request, of everything but the arrays' data and `shared`. -1 and `problem` where it
 * cannot be sent as it is. */
int blasd_request_copy(struct blasd_request *to, const struct blasd_request *from,
                       struct blasd_problem *problem);
void blasd_request_release(struct blasd_request *request); /* of blasd_request_copy's, or zeros */

/* What a request says beside its inputs, as texts by name: op, params, priority, … New; NULL and
 * `problem` where one of them is no UTF-8. */
json_t *blasd_request_words(const struct blasd_request *request, struct blasd_problem *problem);
/* --- client_upload.c: a request body on its way out, a header, then the arrays where they lie */

struct blasd_upload {
    const struct blasd_array *arrays;
    int count;
    const unsigned char *header;
    size_t header_len;
    uint64_t total, sent;
};

/* For CURLOPT_READFUNCTION and CURLOPT_SEEKFUNCTION; `arg` is a struct blasd_upload. */
size_t blasd_upload_read(char *out, size_t size, size_t count, void *arg);
int blasd_upload_seek(void *arg, curl_off_t offset, int origin);

/* --- client.c: what is known of the service, and handles that idle */

#define BLASD_IDLE_HANDLES 32

/* Where files are shared with the service, and what their names begin with. Stays as it is until
 * the client is freed, for calls in other threads use it. */
struct blasd_share {
    struct blasd_share *older; /* owned */
    char prefix[BLASD_SHARED_NAME + 1];
    char directory[];
};

struct blasd_client {
    char *base;        /* the service's URL without a slash at its end */
    char *shown;       /* the same without user and password, for messages */
    char *socket_path; /* of a unix: URL, or NULL */
    bool has_user;     /* the URL has one */
    bool is_loopback;
    bool bad_url; /* it is none of a service */
    bool bad_key; /* BLASD_API_KEY cannot be sent */
    char *ca_file, *cert_file, *key_file;
    bool verify;
    struct curl_slist *key_header; /* one line, or NULL */
    struct curl_slist *headers;    /* of every request */
    int retries;
    double silence_s;
    _Atomic(struct blasd_share *) shares; /* owned; the first is the one that is used, */
    atomic_bool sharing;                  /* while this is so */
    /* each with a connection that is kept; taken and put back without a lock, which a fork might
     * find locked for good */
    _Atomic(CURL *) idle[BLASD_IDLE_HANDLES];
};

/* A handle for one request at a time, to be given back; NULL where memory has run out. One that
 * another process made is left to that: its connection is not ours. */
CURL *blasd_handle_take(struct blasd_client *client);
void blasd_handle_give(struct blasd_client *client, CURL *curl);
/* Where files are shared, or NULL; the directory alone. */
const struct blasd_share *blasd_client_sharing(struct blasd_client *client);
const char *blasd_client_directory(struct blasd_client *client);
/* From now on they are shared there; -1: no memory. */
int blasd_client_share_in(struct blasd_client *client, const char *directory, const char *prefix);
/* Takes user and password out of the URL; false: there are none. */
bool blasd_hide_user(char *url);
/* Whether it can be spoken with: it has a URL, and a key that can be sent. */
int blasd_client_check(const struct blasd_client *client, struct blasd_problem *problem);
double blasd_now_seconds(void); /* of a clock that only goes on */

/* --- client_exchange.c: one request and its answer, whoever waits for it */

struct blasd_exchange {
    struct blasd_client *client;
    CURL *curl; /* borrowed */
    struct curl_slist *headers;
    curl_mime *form;
    unsigned char *header; /* of the tensors, in front of what `upload` sends */
    struct blasd_upload upload;
    unsigned char *data; /* the answer as it arrives */
    size_t len, cap;
    const char *path; /* of the file that a good answer is to be written to, or NULL */
    FILE *file;
    int file_error;        /* errno */
    bool once;             /* what is sent must not be sent again, */
    const char *otherwise; /* for which there is this way, in words; NULL: there is none */
    bool sent;
    bool failed; /* memory ran out while it was put together */
    char error[CURL_ERROR_SIZE];
};

/* Empty, on a handle. `wait`: seconds for which the service may be silent on purpose; `limit`:
 * after how many it is given up whatever it says, or 0. */
void blasd_exchange_open(struct blasd_exchange *exchange, struct blasd_client *client, CURL *curl,
                         double wait, double limit);
void blasd_exchange_close(struct blasd_exchange *exchange); /* the handle stays */
void blasd_exchange_ask(struct blasd_exchange *exchange, const char *method, const char *path,
                        const char *accept);
/* Sends this text along, which is JSON and stays until then. */
void blasd_exchange_json(struct blasd_exchange *exchange, const char *text);
/* POST /jobs, with inputs in the body, or in a file. -1 and `problem` where it cannot be said. */
int blasd_exchange_post(struct blasd_exchange *exchange, const struct blasd_request *request,
                        const struct blasd_shared *file, double wait,
                        struct blasd_problem *problem);
/* POST of a body: inputs and words of a request that may have no op. */
int blasd_exchange_send(struct blasd_exchange *exchange, const char *path, const char *accept,
                        const struct blasd_request *request, struct blasd_problem *problem);
/* What came of it: 0, or -1 and `problem` unless the status is 200, 201 or 202. */
int blasd_exchange_end(struct blasd_exchange *exchange, CURLcode code,
                       struct blasd_problem *problem);
/* The same, and the answer as a reply. */
int blasd_exchange_reply(struct blasd_exchange *exchange, CURLcode code, struct blasd_reply **ret,
                         struct blasd_problem *problem);
/* The path of a job or a tensor: "/jobs/ID" and what follows. -1 and `problem` where `id` is none.
 */
#define BLASD_PATH 256
#define BLASD_OF_JOB "job"
#define BLASD_OF_TENSOR "tensor"
int blasd_id_path(char path[BLASD_PATH], const char *of, const char *id, const char *rest,
                  struct blasd_problem *problem);
/* "12.345", whatever the locale says of decimal points. */
void blasd_wait_text(char text[32], double seconds);

/* --- client_errand.c: a job from its submission to its arrays, one exchange after the other */

enum blasd_step {
    BLASD_SEND,  /* blasd_errand_prepare, send, blasd_errand_take */
    BLASD_SLEEP, /* errand.pause seconds, then BLASD_SEND */
    BLASD_DONE   /* errand.reply, or errand.problem where it is NULL */
};

struct blasd_errand {
    struct blasd_client *client;
    struct blasd_request request; /* a copy */
    struct blasd_shared *copy;    /* owned: the file that the inputs were copied into, or NULL */
    bool by_body;                 /* the service takes no file */
    bool waits;                   /* for the end, and tries again where there is no room */
    bool stopped;                 /* nobody wants it any more */
    enum { BLASD_SUBMIT, BLASD_LOOK, BLASD_FETCH, BLASD_CANCEL } phase;
    double end;    /* of the caller's timeout, by blasd_now_seconds */
    double linger; /* one that does not wait for the end looks for it until then */
    double step;   /* longest wait of one request */
    double pause;
    double retry_end; /* of a service that is away; 0: it answers */
    int retries;
    bool uncertain;            /* the service may have taken it, though it has not answered */
    struct blasd_reply *reply; /* the newest, owned */
    struct blasd_problem problem;
};

#define BLASD_LONGEST_WAIT 20.0 /* one request holds the connection no longer */

/* Begins one: BLASD_SEND comes next. `timeout` < 0: it ends with the submission, after a wait of
 * `step`, however long. -1 and `problem` where the request cannot be sent. */
int blasd_errand_begin(struct blasd_errand *errand, struct blasd_client *client,
                       const struct blasd_request *request, double timeout, double step,
                       struct blasd_problem *problem);
void blasd_errand_end(struct blasd_errand *errand); /* frees all but what was taken from it */
/* Opens the exchange that comes next; false: it is done. */
bool blasd_errand_prepare(struct blasd_errand *errand, struct blasd_exchange *exchange, CURL *curl);
/* What the answer means. Closes the exchange. */
enum blasd_step blasd_errand_take(struct blasd_errand *errand, struct blasd_exchange *exchange,
                                  CURLcode code);
/* Nobody wants it any more; not while an exchange is open. */
enum blasd_step blasd_errand_stop(struct blasd_errand *errand);
/* The same while one is, which ends without an answer: where it was the submission, a service that
 * may have taken the job under a key is asked which it was. Closes the exchange. */
enum blasd_step blasd_errand_abort(struct blasd_errand *errand, struct blasd_exchange *exchange);
/* Its time is over while it waited for its turn to be sent, for the first time or again: says so in
 * its problem. */
void blasd_errand_late(struct blasd_errand *errand);
/* "queued", …, or "waiting" before the service has taken it. */
const char *blasd_errand_state(const struct blasd_errand *errand);
double blasd_backoff(int attempt, double retry_after);

/* --- client_run.c: the blocking ways */

/* All borrowed. */
struct blasd_question {
    const char *method, *path;
    const char *accept;               /* NULL: JSON */
    double wait;                      /* seconds for which the service may be silent on purpose */
    const char *to;                   /* the file that the answer goes to, or NULL */
    const struct blasd_request *body; /* what is sent, by POST; or NULL */
    const char *json;                 /* or this is, as it is; or NULL */
    bool once;                        /* a second time it would be done twice */
};
/* A question and its answer, asked again as often as the client is to. `ret` takes the answer
 * unless a file does. */
int blasd_client_ask(struct blasd_client *client, const struct blasd_question *question,
                     struct blasd_reply **ret, struct blasd_problem *problem);
int blasd_refuse_no_path(struct blasd_problem *problem);
/* A list; `query` narrows it, and may be NULL. */
int blasd_client_list(struct blasd_client *client, const char *method, const char *path,
                      const char *query, struct blasd_reply **ret, struct blasd_problem *problem);

/* --- client_share.c: files in the service's directory */

/* An empty file of ours, to be laid out by one of the next two. */
int blasd_shared_open(const struct blasd_share *share, struct blasd_shared **ret,
                      struct blasd_problem *problem);
/* Gives the file room for these arrays and maps it; values are zeros. no_space. */
int blasd_shared_lay_out(struct blasd_shared *shared, const struct blasd_array *specs, int count,
                         struct blasd_problem *problem);
/* A file with the request's inputs copied into it; NULL where sending them is better (they are
 * small) or the only way (no room, no directory, a .npy file that is not row-major as it lies). */
struct blasd_shared *blasd_shared_copy(const struct blasd_share *share,
                                       const struct blasd_request *request);
/* Maps the outputs of a job that has succeeded; false: they do not all lie in a file there. */
bool blasd_reply_map(struct blasd_reply *reply, const char *directory);

/* --- client_npy.c */

/* Whether the .npy file is row-major and little-endian, as safetensors are: then fills all of
 * `array` but its name and data, and `*data_at`, where the elements begin. What is no .npy file at
 * all is for the service to refuse. */
bool blasd_client_npy_read(int fd, struct blasd_array *array, uint64_t *data_at);
/* Removes an output file that could not be written whole, but never a device or a pipe. */
void blasd_remove_partial(const char *path);

#endif
