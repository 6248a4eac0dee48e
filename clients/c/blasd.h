/* A client for blasd in plain C: matrices in, matrices out, over HTTP.
 *
 *     struct blasd_client *client = blasd_client_new("http://127.0.0.1:8080");
 *     double a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
 *     struct blasd_array in[2] = {{.name = "a", .dtype = "float64", .rank = 2, .shape = {2, 2},
 * .data = a},
 *                                 {.name = "b", .dtype = "float64", .rank = 2, .shape = {2, 2},
 * .data = b}}; struct blasd_request request = {.op = "matmul", .inputs = in, .input_count = 2};
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
 * Needs libcurl and jansson. A client serves one thread at a time; several may exist. Functions
 * return 0, or -1 with `problem` filled. Nothing is printed, nothing exits. */
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

/* A dense row-major array. In a request everything is borrowed until the call returns; in a reply
 * everything belongs to the reply. */
struct blasd_array {
    const char *name;  /* of the input or output, as GET /ops tells */
    const char *dtype; /* float64 float32 float16 bfloat16 int64 … uint8 bool */
    int rank;          /* 0 to BLASD_ARRAY_RANK */
    int64_t shape[BLASD_ARRAY_RANK];
    void *data; /* aligned to its elements in a reply */
};

/* An input that lies in a .npy file. */
struct blasd_file {
    const char *name;
    const char *path;
};

struct blasd_request {
    const char *op;
    const struct blasd_array *inputs; /* arrays, or */
    int input_count;
    const struct blasd_file *files; /* files; not both */
    int file_count;
    const char *params;          /* a JSON object as text; NULL: the defaults */
    const char *priority;        /* high normal low; NULL: normal */
    const char *device;          /* auto cpu cuda; NULL: auto */
    int64_t deadline_ms;         /* 0: none */
    const char *idempotency_key; /* NULL: none */
};

/* What went wrong: the service's problem document, or a failure to reach it (status 0, code
 * "connection_failed"). */
struct blasd_problem {
    int status;
    bool retry; /* the same request may succeed later */
    char code[48];
    char field[72];    /* the member at fault, or "" */
    char message[640]; /* for people: title, detail, advice */
};

/* `url` is copied. New; NULL where memory has run out. */
struct blasd_client *blasd_client_new(const char *url);
void blasd_client_free(struct blasd_client *client); /* takes NULL */

/* Sends a job, and waits up to `wait_seconds` for its end (0: does not wait). The reply has the job
 * document, and the arrays where the job has succeeded. A job that failed is a reply, not a
 * problem: see blasd_reply_state. */
int blasd_client_submit(struct blasd_client *client, const struct blasd_request *request,
                        double wait_seconds, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* The job as it stands, after waiting up to `wait_seconds` for its end; no arrays. */
int blasd_client_get(struct blasd_client *client, const char *id, double wait_seconds,
                     struct blasd_reply **ret, struct blasd_problem *problem);
/* The job with its arrays; a problem where it has none (yet). */
int blasd_client_result(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* Cancels the job, or forgets it where it has ended. */
int blasd_client_cancel(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem);
/* Writes one output to a .npy file. */
int blasd_client_save(struct blasd_client *client, const char *id, const char *output,
                      const char *path, struct blasd_problem *problem);

/* Called now and then while a job is not finished; returning false cancels it. */
typedef bool (*blasd_progress_fn)(void *arg, const char *state, double progress);

/* Submit, wait and fetch in one: a reply with arrays, or a problem (a failed job's error, too; code
 * "timeout" after `timeout_seconds`, with the job cancelled). `progress` may be NULL. */
int blasd_client_run(struct blasd_client *client, const struct blasd_request *request,
                     double timeout_seconds, blasd_progress_fn progress, void *arg,
                     struct blasd_reply **ret, struct blasd_problem *problem);

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
