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
 * Needs libcurl and jansson. A client serves one thread at a time; several may exist. After fork
 * parent and child may both go on with one; the arrays of blasd_shared_new are one memory to both.
 * Functions return 0, or -1 with `problem` filled. Nothing is printed, nothing exits. */
#ifndef BLASD_CLIENT_H
#define BLASD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLASD_ARRAY_RANK 8

struct blasd_client;
struct blasd_reply;
struct blasd_shared;

/* A dense row-major array. In a request everything is borrowed until the call returns; in a reply
 * everything belongs to the reply, and may be written to. */
struct blasd_array {
    const char *name; /* of the input or output, as GET /ops tells */
    const char
        *dtype; /* float64 float32 float16 bfloat16 int64 … uint8 bool complex128 complex64 */
    int rank;   /* 0 to BLASD_ARRAY_RANK */
    int64_t shape[BLASD_ARRAY_RANK];
    void *data; /* aligned to its elements in a reply; NULL only where there are no elements */
};

/* An input that lies in a .npy file. */
struct blasd_file {
    const char *name;
    const char *path;
};

/* The inputs come in one of three ways. */
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
    int64_t deadline_ms;               /* 0: none */
    const char *idempotency_key;       /* NULL: none; the same job is not queued twice under one */
};

/* What went wrong: the service's problem document, or a failure to reach it (status 0, code
 * "connection_failed"). */
struct blasd_problem {
    int status;
    bool retry;         /* the same request may succeed later */
    double retry_after; /* seconds after which the service says to come again; 0: it did not */
    char code[48];
    char field[72];    /* the member at fault, or "" */
    char message[640]; /* for people: title, detail, advice */
};

/* `url` is copied, and may have user:password@ before the host; NULL: the environment variable
 * BLASD_URL, else http://127.0.0.1:8080. Nothing is sent yet. New; NULL where memory has run out. A
 * service that is silent for a minute, beyond the time that it was asked to wait, is given up
 * (connection_failed). */
struct blasd_client *blasd_client_new(const char *url);
void blasd_client_free(struct blasd_client *client); /* takes NULL */

/* Sends a job, never twice unless it has an idempotency_key, and waits up to `wait_seconds` for its
 * end (0: does not wait). The reply has the job document, and the arrays where the job has
 * succeeded. A job that failed is a reply, not a problem: see blasd_reply_state. */
int blasd_client_submit(struct blasd_client *client, const struct blasd_request *request,
                        double wait_seconds, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* The job as it stands, after waiting up to `wait_seconds` for its end; no arrays. */
int blasd_client_get(struct blasd_client *client, const char *id, double wait_seconds,
                     struct blasd_reply **ret, struct blasd_problem *problem);
/* The job with its arrays; a problem where it has none (yet). */
int blasd_client_result(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* Cancels the job, which must not have ended (job_ended). */
int blasd_client_cancel(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* What can be asked: a reply whose document is that of GET /ops. */
int blasd_client_ops(struct blasd_client *client, struct blasd_reply **ret,
                     struct blasd_problem *problem);
/* Forgets a job that has ended, with its tensors; cancels it where it has not. */
int blasd_client_forget(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* Writes one output to a .npy file. */
int blasd_client_save(struct blasd_client *client, const char *id, const char *output,
                      const char *path, struct blasd_problem *problem);

/* Writes one output of a reply to a .npy file, without asking the service. */
int blasd_reply_save(const struct blasd_reply *reply, const char *output, const char *path,
                     struct blasd_problem *problem);

/* Called twice a second or so while a job is not finished; returning false cancels it. `state` is
 * the job's, or "waiting" while the service has no room for it yet. */
typedef bool (*blasd_progress_fn)(void *arg, const char *state, double progress);

/* Submit, wait and fetch in one: a reply with arrays, or a problem (a failed job's error, too; code
 * "timeout" after `timeout_seconds`, with the job cancelled). `progress` may be NULL. Where the
 * service has no room now (429, 503) it is tried again after the time that the service names,
 * within the timeout; a service that goes away while the job is under way is asked again for some
 * seconds. */
int blasd_client_run(struct blasd_client *client, const struct blasd_request *request,
                     double timeout_seconds, blasd_progress_fn progress, void *arg,
                     struct blasd_reply **ret, struct blasd_problem *problem);

/* --- Shared memory: docs/sharing.md. Linux only. */

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
/* One of its arrays, to be written to `data`; NULL: there is none of that name. Borrowed. */
const struct blasd_array *blasd_shared_array(const struct blasd_shared *shared, const char *name);
/* Jobs that were taken are not harmed by it. Takes NULL. It may outlive the client. */
void blasd_shared_free(struct blasd_shared *shared);

/* Whether the reply's arrays are mapped: they stay as they are until the reply is freed, also when
 * the job is forgotten. blasd_client_forget, after blasd_reply_free, gives their memory to the next
 * result. */
bool blasd_reply_mapped(const struct blasd_reply *reply);

/* --- Replies */

void blasd_reply_free(struct blasd_reply *reply); /* takes NULL */
/* All borrowed from the reply. */
const char *blasd_reply_id(const struct blasd_reply *reply);
const char *blasd_reply_state(const struct blasd_reply *reply); /* queued running succeeded … */
bool blasd_reply_ended(const struct blasd_reply *reply);
double blasd_reply_progress(const struct blasd_reply *reply);
const char *blasd_reply_document(const struct blasd_reply *reply); /* the job document, JSON text */
/* Whether the job failed, was cancelled or has expired: then `problem` says why. */
bool blasd_reply_failed(const struct blasd_reply *reply, struct blasd_problem *problem);
int blasd_reply_array_count(const struct blasd_reply *reply);
const struct blasd_array *blasd_reply_array_at(const struct blasd_reply *reply, int i);
const struct blasd_array *blasd_reply_array(const struct blasd_reply *reply, const char *name);

#ifdef __cplusplus
}
#endif

#endif
