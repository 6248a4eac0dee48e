/* A client for blasd in plain C: matrices in, matrices out, over HTTP.
 *
 *     struct blasd_client *client = blasd_client_new("http://127.0.0.1:8080");
 *     double a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
 *     struct blasd_array in[2] = {
 *         {.name = "a", .dtype = "float64", .rank = 2, .shape = {2, 2}, .data = a},
 *         {.name = "b", .dtype = "float64", .rank = 2, .shape = {2, 2}, .data = b}};
 *     struct blasd_request request = {.op = "matmul", .inputs = in, .input_count = 2};
 *     struct blasd_problem problem;
 *     struct blasd_reply *reply;
 *     if (blasd_client_run(client, &request, 60, NULL, NULL, &reply, &problem) == 0) {
 *         const struct blasd_array *c = blasd_reply_array(reply, "c");
 *         ... c->data holds 19 22 43 50 ...
 *         blasd_reply_free(reply);
 *     } else
 *         fprintf(stderr, "%s\n", problem.message);
 *     blasd_client_free(client);
 *
 * Needs libcurl and jansson. A client serves any number of threads at once, once it is set up; the
 * other objects belong to one thread at a time. After fork parent and child may both go on with a
 * client (but over TLS not where another thread used it just then, for OpenSSL has locks); the
 * arrays of blasd_shared_new are one memory to both, and a blasd_async stays with the process that
 * made it. Functions return 0, or -1 with `problem` filled. Times are in seconds.
 * Nothing is printed, nothing exits.
 *
 * The structs of this header are to be made of zeros, as initializers make them: their `reserved`
 * is room for later versions, and what is not zero there is refused (invalid_request), for it is
 * meant for a newer library. */
#ifndef BLASD_CLIENT_H
#define BLASD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; blasd_library_version tells that of the library. */
#define BLASD_VERSION_MAJOR 0
#define BLASD_VERSION_MINOR 3
#define BLASD_VERSION_PATCH 0
#define BLASD_VERSION_AT_LEAST(major, minor, patch)                                                \
    (BLASD_VERSION_MAJOR * 1000000 + BLASD_VERSION_MINOR * 1000 + BLASD_VERSION_PATCH >=           \
     (major)*1000000 + (minor)*1000 + (patch))

#define BLASD_ARRAY_RANK 8

struct blasd_client;
struct blasd_reply;
struct blasd_shared;
struct blasd_async;

/* A dense row-major array. In a request everything is borrowed; in a reply everything belongs to
 * the reply (blasd_reply_data gives its elements to be written to). */
struct blasd_array {
    const char *name; /* of the input or output, as GET /ops tells */
    const char
        *dtype; /* float64 float32 float16 bfloat16 int64 … uint8 bool complex128 complex64 */
    int rank;   /* 0 to BLASD_ARRAY_RANK */
    int64_t shape[BLASD_ARRAY_RANK];
    const void *data; /* aligned to its elements in a reply; NULL only where there are none */
    uint64_t reserved[2];
};

/* An input that lies in a .npy file. */
struct blasd_file {
    const char *name;
    const char *path;
    uint64_t reserved[2];
};

/* One job of any operation. The inputs come in one of three ways; their names and the parameters
 * are the operation's, as GET /ops and docs/operations.md tell them.
 *
 * `references` are inputs beside those, which are not sent: what the service has, or makes by a
 * rule. {"a":{"tensor":ID},"b":{"job":ID,"output":"x","slice":[[0,100]]},"c":{"eye":500}}, as
 * docs/tensors.md and docs/rules.md tell.
 *
 * Or a graph of several steps (docs/graphs.md): `steps` and no op; the inputs are then the data
 * that steps name by {"input":NAME}, and the reply's arrays are called STEP.OUTPUT. */
struct blasd_request {
    const char *op;
    const struct blasd_array *inputs; /* arrays, or */
    int input_count;
    const struct blasd_file *files; /* files, or */
    int file_count;
    const struct blasd_shared *shared; /* arrays in shared memory, all that this one has */
    const char *params;                /* a JSON object as text; NULL: the defaults */
    const char *priority;              /* high normal low; NULL: normal */
    const char *device;                /* auto cpu cuda; NULL: auto */
    int64_t deadline_ms;               /* milliseconds from submission; 0: none */
    const char *idempotency_key;       /* NULL: none; the same job is not queued twice under one */
    const char *steps;                 /* of a graph, a JSON object as text; else NULL */
    const char *results;    /* what is sent, a JSON list; NULL: of a job all that is not kept, of a
                               graph what no step reads */
    const char *labels;     /* "NAME=VALUE,NAME=VALUE", to find it by; NULL: none */
    const char *references; /* inputs that are not sent, a JSON object as text; NULL: none */
    const char *keep;       /* outputs that become tensors, a JSON list; NULL: none */
    const char *notify;     /* a URL that is told of its end; NULL: none */
    bool digest;            /* the reply tells a SHA-256 of each output, execution.digest */
    uint64_t reserved[1];
};

/* What went wrong: the service's problem document, or a failure to reach it (status 0, code
 * "connection_failed"). Filled whole by the function that fails. */
struct blasd_problem {
    int status;
    bool retry;         /* the same request may succeed later */
    double retry_after; /* seconds after which the service says to come again; 0: it did not */
    char code[48];
    char field[72];    /* the member at fault, or "" */
    char message[640]; /* for people: title, detail, advice */
    char advice[256];  /* what to do, by itself, or "" */
    int64_t least;     /* what the parameter `field` has to be at the least; 0: not told */
    uint64_t reserved[7];
};

/* Such as "0.3.0". */
const char *blasd_library_version(void);

/* --- blasd_client: a service, and how it is spoken to */

/* `url` is copied: http://HOST:PORT or https://…, with user:password@ before the host where a proxy
 * asks for them, or unix:/PATH of a socket; NULL: the environment variable BLASD_URL, else
 * http://127.0.0.1:8080. The key is taken from BLASD_API_KEY where that is set. Proxies are taken
 * from the environment (http_proxy, https_proxy, no_proxy), never for this machine's own
 * addresses. Nothing is sent yet. New; NULL where memory has run out. */
struct blasd_client *blasd_client_new(const char *url);
void blasd_client_free(struct blasd_client *client); /* takes NULL */

/* These set a client up, before threads share it. What they are given is copied. */

/* The key, sent as `Authorization: Bearer KEY`; NULL: none. A user in the URL goes before it. */
int blasd_client_set_api_key(struct blasd_client *client, const char *key,
                             struct blasd_problem *problem);
/* For https: a file of the authorities to trust in place of the system's, and a client certificate
 * with its key, all PEM; NULL: none, and `key_file` NULL: it is in `cert_file`. The service is
 * verified unless `verify` is false, which lets anybody pretend to be it. */
int blasd_client_set_tls(struct blasd_client *client, const char *ca_file, const char *cert_file,
                         const char *key_file, bool verify, struct blasd_problem *problem);
/* A header of every request, such as traceparent; a second one of the same name is sent, too. */
int blasd_client_set_header(struct blasd_client *client, const char *name, const char *value,
                            struct blasd_problem *problem);
/* How often a request that got no answer, or one that says to come later, is sent again (0 unless
 * set; at most 100), after 0.1 s, 0.2 s … 5 s or the time that the service names, whichever is
 * longer. Jobs then carry an idempotency key each, the same every time, so that none runs twice; a
 * tensor that may be kept already is not sent again. */
int blasd_client_set_retries(struct blasd_client *client, int retries,
                             struct blasd_problem *problem);
/* A service that is silent for so long, beyond the time that it was asked to wait, is given up
 * (connection_failed); 60 unless set. */
int blasd_client_set_silence(struct blasd_client *client, double seconds,
                             struct blasd_problem *problem);

/* --- blasd_job: a job from its submission to its end */

/* Called twice a second or so while a job is not finished; returning false cancels it. `state` is
 * the job's, or "waiting" while the service has not said that it has taken it. */
typedef bool (*blasd_progress_fn)(void *arg, const char *state, double progress);

/* Submit, wait and fetch in one: a reply with arrays, or a problem (a failed job's error, too; code
 * "timeout" after `timeout_seconds`, with the job cancelled). `progress` may be NULL. Where the
 * service has no room now (429, 503) it is tried again after the time that the service names,
 * within the timeout; a service that goes away while the job is under way is asked again for some
 * seconds. */
int blasd_client_run(struct blasd_client *client, const struct blasd_request *request,
                     double timeout_seconds, blasd_progress_fn progress, void *arg,
                     struct blasd_reply **ret, struct blasd_problem *problem);

/* Called as blasd_progress_fn, with the job as the service last told of it: `job` is NULL until it
 * has. */
typedef bool (*blasd_watch_fn)(void *arg, const char *state, const struct blasd_reply *job);

/* As blasd_client_run for one who wants to know more than the progress, such as
 * blasd_reply_remaining. */
int blasd_client_run_watched(struct blasd_client *client, const struct blasd_request *request,
                             double timeout_seconds, blasd_watch_fn watch, void *arg,
                             struct blasd_reply **ret, struct blasd_problem *problem);

/* Sends a job, never twice unless it has an idempotency key, and waits up to `wait_seconds` for its
 * end (0: does not wait). The reply has the job document, and the arrays where the job has
 * succeeded. A job that failed is a reply, not a problem: see blasd_reply_failed. */
int blasd_client_submit(struct blasd_client *client, const struct blasd_request *request,
                        double wait_seconds, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* The job as it stands, after waiting up to `wait_seconds`, however long, for its end; no arrays.
 */
int blasd_client_get(struct blasd_client *client, const char *id, double wait_seconds,
                     struct blasd_reply **ret, struct blasd_problem *problem);
/* The job with its arrays; a problem where it has none (yet). */
int blasd_client_result(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* Cancels the job, which must not have ended (job_ended). */
int blasd_client_cancel(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* Cancels a page of the jobs that have not ended and that GET /jobs with this query would list; the
 * query has at least one filter, as in "state=queued&label=run=1". The reply's document has
 * "cancelled", how many, and a "cursor" while there may be more. */
int blasd_client_cancel_all(struct blasd_client *client, const char *query,
                            struct blasd_reply **ret, struct blasd_problem *problem);
/* Forgets a job with its tensors; one that has not ended is cancelled first. */
int blasd_client_forget(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* Writes one output to a .npy file; a file of that name stays as it is where the service refuses.
 */
int blasd_client_save(struct blasd_client *client, const char *id, const char *output,
                      const char *path, struct blasd_problem *problem);

/* What the service would do with a job, or a graph, without doing it: the reply's document has
 * flops, bytes, peak_bytes, outputs, device and why, predicted, cost. A request that would be
 * refused is refused. */
int blasd_client_dry_run(struct blasd_client *client, const struct blasd_request *request,
                         struct blasd_reply **ret, struct blasd_problem *problem);

/* Replies whose document (blasd_reply_document) is that of GET /ops, GET /devices, or GET /jobs;
 * `query` narrows the list, such as "state=queued&limit=20", and may be NULL. */
int blasd_client_ops(struct blasd_client *client, struct blasd_reply **ret,
                     struct blasd_problem *problem);
int blasd_client_devices(struct blasd_client *client, struct blasd_reply **ret,
                         struct blasd_problem *problem);
int blasd_client_jobs(struct blasd_client *client, const char *query, struct blasd_reply **ret,
                      struct blasd_problem *problem);
/* Whether jobs are taken and run: 0, or -1 and why not. */
int blasd_client_ready(struct blasd_client *client, struct blasd_problem *problem);

/* --- blasd_tensor: tensors that stay at the service */

/* What the service says of one. Filled whole by the function that is given it. */
struct blasd_tensor_info {
    char id[64]; /* a job's input refers to it so: {"tensor":ID} */
    char dtype[16];
    int rank;
    int64_t shape[BLASD_ARRAY_RANK];
    int64_t bytes;
    int64_t life_s;      /* so long it lives from each use on; 0: it was not told */
    char expires_at[40]; /* UTC, as 2026-01-31T12:00:00.000000Z */
    char location[32];   /* "host" */
    char sha256[72];     /* of its elements' bytes, in hexadecimal; "": nobody asked for it */
    uint64_t reserved[8];
};

/* One that is to be kept: an array, or a .npy file. */
struct blasd_put {
    const struct blasd_array *array; /* its name is not looked at; or */
    const char *path;                /* of the file */
    int64_t life_s;                  /* so long from each use on; 0: as long as the service likes */
    bool sha256;                     /* the service sums its bytes */
    uint64_t reserved[6];
};

/* Sends it, never twice. Where no answer comes it may be kept all the same, until its life is
 * over. */
int blasd_tensor_put(struct blasd_client *client, const struct blasd_put *put,
                     struct blasd_tensor_info *ret, struct blasd_problem *problem);
/* What is known of it now, such as its dtype and shape, without its elements; `id` may be that in
 * `ret`, here and in the next. tensor_not_found, tensor_expired. */
int blasd_tensor_look(struct blasd_client *client, const char *id, struct blasd_tensor_info *ret,
                      struct blasd_problem *problem);
/* From now on it lives so long from each use on. */
int blasd_tensor_prolong(struct blasd_client *client, const char *id, int64_t life_s,
                         struct blasd_tensor_info *ret, struct blasd_problem *problem);
/* A reply with one array, blasd_reply_array_at(reply, 0), named by its id; of no job. One that came
 * in Fortran order is not_acceptable: save it. */
int blasd_tensor_get(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                     struct blasd_problem *problem);
/* Writes it to a .npy file; a file of that name stays as it is where the service refuses. */
int blasd_tensor_save(struct blasd_client *client, const char *id, const char *path,
                      struct blasd_problem *problem);
/* Forgets it; jobs that refer to it already still find it. */
int blasd_tensor_delete(struct blasd_client *client, const char *id, struct blasd_problem *problem);
/* A reply whose document is that of GET /tensors; `query` is such as "limit=20", and may be NULL.
 */
int blasd_client_tensors(struct blasd_client *client, const char *query, struct blasd_reply **ret,
                         struct blasd_problem *problem);
/* The tensor that an output of a job has become; false: it was not kept. */
bool blasd_reply_tensor(const struct blasd_reply *reply, const char *output,
                        struct blasd_tensor_info *ret);

/* --- blasd_async: many jobs in flight, in a program's own event loop */

/* Jobs in flight, all of one thread:
 *
 *     struct blasd_async *async = blasd_async_new(client, 64);
 *     struct pollfd own = {.fd = blasd_async_fd(async), .events = POLLIN};
 *     ... blasd_async_submit(async, &request, 60, on_done, arg, &job, &problem) for each ...
 *     while (blasd_async_turn(async, 0) > 0) poll(&own, 1, -1);
 *     blasd_async_free(async);
 *
 * `client` is borrowed and must outlive it. At most `connections` requests are under way at a time
 * (0: 64); the other jobs wait their turn, so hundreds or thousands may be submitted at once. NULL
 * where memory or descriptors have run out. */
struct blasd_async *blasd_async_new(struct blasd_client *client, int connections);

/* Called once for each job that was submitted, from blasd_async_turn or blasd_async_free: with the
 * reply, which from then on is the callee's to free, or with NULL and what went wrong. It may
 * submit and cancel, but neither turn nor free. */
typedef void (*blasd_done_fn)(void *arg, uint64_t job, struct blasd_reply *reply,
                              const struct blasd_problem *problem);

/* As blasd_client_run, but returns at once: 0 and the job's number among those of `async`, from 1
 * on (`job` may be NULL), or -1 where it cannot be sent at all; `done` is not called then. The
 * request is copied but for its arrays' data and `shared`, which must stay until `done` is
 * called. */
int blasd_async_submit(struct blasd_async *async, const struct blasd_request *request,
                       double timeout_seconds, blasd_done_fn done, void *arg, uint64_t *job,
                       struct blasd_problem *problem);
/* A descriptor that poll, select and epoll find readable when blasd_async_turn has something to do.
 * It stays the same. Not to be read or closed. */
int blasd_async_fd(const struct blasd_async *async);
/* Does a part of what there is to do, that of a few jobs at the most, after waiting up to
 * `wait_seconds` for something (0: does not wait), and calls `done` for jobs that have ended. Where
 * more is to be done the descriptor stays readable. Returns how many are in flight. */
int blasd_async_turn(struct blasd_async *async, double wait_seconds);
/* Cancels a job: `done` will be called with the code "cancelled", unless it has ended by then.
 * False where there is no such job in flight. */
bool blasd_async_cancel(struct blasd_async *async, uint64_t job);
/* Calls `done`, with the code "cancelled", for what is in flight. The service may go on with those
 * jobs: who minds cancels each and turns until none is left. Takes NULL. */
void blasd_async_free(struct blasd_async *async);

/* --- blasd_shared: shared memory, docs/sharing.md. Linux only. */

/* From here on the client exchanges large arrays with the service through files that both map, in
 * place of sending them: for a service on this machine, of this user (or for root), that was
 * started with --share. Else -1 and a problem, "sharing_off" or that the service cannot be reached;
 * the client then serves as before and sends everything, so who does not mind can ignore it.
 *
 * What changes: inputs of together a MiB and more are copied once, into a file, whether they are
 * arrays or .npy files; smaller ones are sent, and so are files in Fortran order or big-endian.
 * Where the file cannot be made (the store is full), or the service does not take it (it was
 * started anew, without --share), the inputs are sent after all. Results that lie in a file are
 * mapped; others come over the connection. A file left behind by a program that was killed is
 * removed by the service within some ten seconds. */
int blasd_client_share(struct blasd_client *client, struct blasd_problem *problem);

/* New arrays in shared memory, their values zeros: `specs` says name, dtype, rank and shape, its
 * `data` is not looked at. They are inputs without any copy, as `shared` of a request, again and
 * again, and may be changed once the job has ended; what is changed sooner spoils that job's
 * result. sharing_off, invalid_tensor, or no_space where the service's store is full. */
int blasd_shared_new(struct blasd_client *client, const struct blasd_array *specs, int count,
                     struct blasd_shared **ret, struct blasd_problem *problem);
/* One of its arrays; NULL: there is none of that name. Borrowed. */
const struct blasd_array *blasd_shared_array(const struct blasd_shared *shared, const char *name);
/* The elements of one, to be written to; NULL: there is none of that name. Borrowed. */
void *blasd_shared_data(struct blasd_shared *shared, const char *name);
/* Jobs that were taken are not harmed by it. Takes NULL. It may outlive the client. */
void blasd_shared_free(struct blasd_shared *shared);

/* Whether the reply's arrays are mapped: they stay as they are until the reply is freed, also when
 * the job is forgotten. blasd_client_forget, after blasd_reply_free, gives their memory to the next
 * result. */
bool blasd_reply_mapped(const struct blasd_reply *reply);

/* --- blasd_reply: what a job came to */

void blasd_reply_free(struct blasd_reply *reply); /* takes NULL */
/* All borrowed from the reply. */
const char *blasd_reply_id(const struct blasd_reply *reply);
const char *blasd_reply_state(const struct blasd_reply *reply); /* queued running succeeded … */
bool blasd_reply_ended(const struct blasd_reply *reply);
double blasd_reply_progress(const struct blasd_reply *reply); /* 0 to 1 */
/* Seconds that the job will yet take, as far as the service can tell while it runs; -1: it cannot.
 */
double blasd_reply_remaining(const struct blasd_reply *reply);
const char *blasd_reply_document(const struct blasd_reply *reply); /* the job document, JSON text */
/* Whether the job failed, was cancelled or has expired: then `problem` says why. */
bool blasd_reply_failed(const struct blasd_reply *reply, struct blasd_problem *problem);
int blasd_reply_array_count(const struct blasd_reply *reply);
/* In the operation's order: the first is its main output. NULL: there is none of that number. */
const struct blasd_array *blasd_reply_array_at(const struct blasd_reply *reply, int i);
/* NULL: there is none of that name. */
const struct blasd_array *blasd_reply_array(const struct blasd_reply *reply, const char *name);
/* The elements of one, to be written to; NULL: there is none of that name. */
void *blasd_reply_data(struct blasd_reply *reply, const char *name);
/* Writes one output of a reply to a .npy file, without asking the service. */
int blasd_reply_save(const struct blasd_reply *reply, const char *output, const char *path,
                     struct blasd_problem *problem);

#ifdef __cplusplus
}
#endif

#endif
