/* A job from its submission to its arrays, as one exchange after the other: tries again where the
 * service says so, waits, fetches, cancels. Sends and sleeps nothing itself: client_run.c does so
 * for one job, client_async.c for many. */
#include "clients/c/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define RETRY_S 10.0     /* a front end that restarts is back by then */
#define RETRY_PAUSE 0.25 /* between two attempts to reach it */
#define GRACE 2.0        /* for the answer to a request whose wait ends with the caller's time */
#define CANCEL_LIMIT 10.0
#define NO_END 1e18
#define LONGEST 1e9 /* seconds: what is longer is as good as endless */

static double least(double a, double b) {
    return a < b ? a : b;
}

double blasd_backoff(int attempt, double retry_after) {
    unsigned char chance = 0;
    double wait = 0.1 * (double)(1 << (attempt < 6 ? attempt : 6));
    if (getrandom(&chance, 1, 0) != 1) chance = 128;
    wait = least(wait, 5) * (1 + chance / 1024.0);
    return wait > retry_after ? wait : retry_after;
}

/* A key of ours, so that a job may be sent again. */
static char *new_key(void) {
    unsigned char bytes[16];
    char *key = malloc(2 * sizeof bytes + 1);
    if (key == NULL || getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        free(key);
        return NULL;
    }
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(key + 2 * i, 3, "%02x", bytes[i]);
    return key;
}

int blasd_errand_begin(struct blasd_errand *errand, struct blasd_client *client,
                       const struct blasd_request *request, double timeout, double step,
                       struct blasd_problem *problem) {
    *errand = (struct blasd_errand){
        .client = client,
        .waits = timeout >= 0,
        .end = timeout >= 0 ? blasd_now_seconds() + least(timeout, LONGEST) : NO_END,
        .linger = blasd_now_seconds() + least(step, LONGEST),
        .step = least(step, BLASD_LONGEST_WAIT)};
    if (blasd_client_check(client, problem) != 0) return -1;
    if (blasd_request_copy(&errand->request, request, problem) != 0) return -1;
    if (client->retries == 0 || errand->request.idempotency_key != NULL) return 0;
    errand->request.idempotency_key = new_key();
    if (errand->request.idempotency_key != NULL) return 0;
    blasd_errand_end(errand);
    return blasd_refuse_memory(problem);
}

void blasd_errand_end(struct blasd_errand *errand) {
    blasd_reply_free(errand->reply);
    blasd_shared_free(errand->copy);
    blasd_request_release(&errand->request);
    *errand = (struct blasd_errand){0};
}

const char *blasd_errand_state(const struct blasd_errand *errand) {
    return errand->reply == NULL ? "waiting" : blasd_reply_state(errand->reply);
}

/* --- the exchange that comes next */

static bool prepare_submit(struct blasd_errand *errand, struct blasd_exchange *exchange,
                           CURL *curl) {
    struct blasd_client *client = errand->client;
    const struct blasd_share *share = blasd_client_sharing(client);
    const struct blasd_shared *file = errand->by_body ? NULL : errand->request.shared;
    double left = errand->end - blasd_now_seconds();
    double wait = errand->stopped ? 0 : errand->waits ? least(left, errand->step) : errand->step;
    if (wait < 0) wait = 0;
    if (!errand->by_body && errand->request.shared == NULL && share != NULL &&
        blasd_request_fits_file(&errand->request)) {
        if (errand->copy == NULL) errand->copy = blasd_shared_copy(share, &errand->request);
        file = errand->copy;
    }
    blasd_exchange_open(exchange, client, curl, wait,
                        errand->waits ? (left > 0 ? left : 0) + GRACE : 0);
    return blasd_exchange_post(exchange, &errand->request, file, wait, &errand->problem) == 0;
}

static bool prepare_of_job(struct blasd_errand *errand, struct blasd_exchange *exchange,
                           CURL *curl) {
    char path[BLASD_PATH], rest[48] = "", seconds[32];
    double left = (errand->waits ? errand->end : errand->linger) - blasd_now_seconds();
    double wait = 0, limit = 0;
    const char *method = "GET", *accept = "application/json";
    if (errand->phase == BLASD_LOOK) {
        wait = left > 0 ? least(left, errand->step) : 0;
        limit = (left > 0 ? left : 0) + GRACE;
        blasd_wait_text(seconds, wait);
        snprintf(rest, sizeof rest, "?wait=%s", seconds);
    } else if (errand->phase == BLASD_FETCH) {
        snprintf(rest, sizeof rest, "/result");
        accept = "application/x-safetensors";
    } else {
        method = "DELETE";
        limit = CANCEL_LIMIT;
    }
    if (blasd_id_path(path, BLASD_OF_JOB, blasd_reply_id(errand->reply), rest, &errand->problem) !=
        0)
        return false;
    blasd_exchange_open(exchange, errand->client, curl, wait, limit);
    blasd_exchange_ask(exchange, method, path, accept);
    return true;
}

bool blasd_errand_prepare(struct blasd_errand *errand, struct blasd_exchange *exchange,
                          CURL *curl) {
    bool good;
    *exchange = (struct blasd_exchange){0};
    good = errand->phase == BLASD_SUBMIT ? prepare_submit(errand, exchange, curl)
                                         : prepare_of_job(errand, exchange, curl);
    if (good && !exchange->failed) return true;
    if (good) blasd_refuse_memory(&errand->problem);
    blasd_exchange_close(exchange);
    blasd_reply_free(errand->reply);
    errand->reply = NULL;
    return false;
}

/* --- what an answer means */

/* With `problem`. */
static enum blasd_step fail(struct blasd_errand *errand) {
    blasd_reply_free(errand->reply);
    errand->reply = NULL;
    return BLASD_DONE;
}

static enum blasd_step go_on(struct blasd_errand *errand, int phase) {
    errand->phase = phase;
    errand->retry_end = 0;
    return BLASD_SEND;
}

static enum blasd_step time_out(struct blasd_errand *errand) {
    blasd_problem_set(&errand->problem, "timeout", "the job did not end in time and was cancelled");
    errand->problem.retry = true;
    return go_on(errand, BLASD_CANCEL);
}

void blasd_errand_late(struct blasd_errand *errand) {
    struct blasd_problem *problem = &errand->problem;
    char before[sizeof problem->message];
    snprintf(before, sizeof before, "%s", problem->message);
    if (errand->uncertain)
        blasd_problem_set(problem, "timeout",
                          "no answer in time. The service may have taken the job");
    else if (problem->code[0] != '\0')
        blasd_problem_set(
            problem, "timeout",
            "the job's time was over before it was taken; at the last attempt: %.400s", before);
    else
        blasd_problem_set(problem, "timeout", "the job's time was over before it could be sent");
    problem->retry = true;
}

enum blasd_step blasd_errand_stop(struct blasd_errand *errand) {
    errand->stopped = true;
    blasd_problem_set(&errand->problem, "cancelled", "the job was cancelled");
    if (errand->reply != NULL)
        return blasd_reply_ended(errand->reply) ? fail(errand) : go_on(errand, BLASD_CANCEL);
    /* under a key the service goes on with a job whose connection ends: its id is needed */
    if (errand->request.idempotency_key != NULL && errand->uncertain)
        return go_on(errand, BLASD_SUBMIT);
    return BLASD_DONE;
}

enum blasd_step blasd_errand_abort(struct blasd_errand *errand, struct blasd_exchange *exchange) {
    if (errand->phase == BLASD_SUBMIT && exchange->sent) errand->uncertain = true;
    blasd_exchange_close(exchange);
    return blasd_errand_stop(errand);
}

/* The reply is the newest word of the service. */
static enum blasd_step settle(struct blasd_errand *errand) {
    struct blasd_reply *reply = errand->reply;
    const char *directory = blasd_client_directory(errand->client);
    if (errand->stopped) return blasd_errand_stop(errand);
    if (reply->of_job) return BLASD_DONE;
    if (!blasd_reply_ended(reply)) {
        double now = blasd_now_seconds();
        if (now < (errand->waits ? errand->end : errand->linger)) return go_on(errand, BLASD_LOOK);
        return errand->waits ? time_out(errand) : BLASD_DONE;
    }
    if (strcmp(blasd_reply_state(reply), "succeeded") == 0) {
        if (reply->complete || (directory != NULL && blasd_reply_map(reply, directory)))
            return BLASD_DONE;
        return go_on(errand, BLASD_FETCH);
    }
    if (errand->waits && blasd_reply_failed(reply, &errand->problem)) return fail(errand);
    return BLASD_DONE;
}

/* The service shares nothing (any more), or has another directory. */
static bool takes_no_file(const struct blasd_problem *problem) {
    return strcmp(problem->code, "sharing_off") == 0 ||
           strcmp(problem->code, "body_file_refused") == 0;
}

/* A full queue says when to come back; what got no answer is sent again as often as is wanted. */
static enum blasd_step submit_again(struct blasd_errand *errand, bool sent) {
    struct blasd_problem *problem = &errand->problem;
    double now = blasd_now_seconds();
    if (!errand->by_body && (errand->copy != NULL || errand->request.shared != NULL) &&
        takes_no_file(problem)) {
        if (errand->copy != NULL) atomic_store(&errand->client->sharing, false);
        errand->by_body = true;
        return BLASD_SEND;
    }
    if (errand->stopped) {
        blasd_problem_set(problem, "cancelled", "the job was cancelled");
        return BLASD_DONE;
    }
    if (errand->waits && now >= errand->end && strcmp(problem->code, "connection_failed") == 0) {
        blasd_problem_set(problem, "timeout", "%s: no answer in time%s", errand->client->shown,
                          sent ? ". The service may have taken the job" : "");
        problem->retry = true;
        return BLASD_DONE;
    }
    /* of a 502 or 504 it may have been taken */
    if (errand->waits && blasd_was_refused(problem) && problem->retry_after > 0)
        errand->pause = problem->retry_after;
    else if (problem->retry && errand->retries < errand->client->retries)
        errand->pause = blasd_backoff(errand->retries++, problem->retry_after);
    else
        return BLASD_DONE;
    return now + errand->pause >= errand->end ? BLASD_DONE : BLASD_SLEEP;
}

/* Who gives up can come back for it. */
static void say_id(struct blasd_errand *errand) {
    struct blasd_problem *problem = &errand->problem;
    size_t len = strlen(problem->message);
    snprintf(problem->message + len, sizeof problem->message - len, ". The job %s goes on",
             blasd_reply_id(errand->reply));
}

/* A service that cannot be reached, or says that it cannot answer now, is asked again for some
 * seconds: the job is safe meanwhile. */
static enum blasd_step ask_again(struct blasd_errand *errand) {
    double now = blasd_now_seconds();
    if (errand->retry_end == 0) errand->retry_end = now + RETRY_S;
    if (errand->waits && now >= errand->end && errand->phase == BLASD_LOOK) return time_out(errand);
    /* who was not to wait for its end has what the service last said of it */
    if (!errand->waits && errand->phase == BLASD_LOOK &&
        (!errand->problem.retry || now + RETRY_PAUSE >= least(errand->retry_end, errand->linger)))
        return BLASD_DONE;
    if (!errand->problem.retry) return fail(errand);
    if (now + RETRY_PAUSE >= errand->retry_end) {
        say_id(errand);
        return fail(errand);
    }
    errand->pause = RETRY_PAUSE;
    return BLASD_SLEEP;
}

enum blasd_step blasd_errand_take(struct blasd_errand *errand, struct blasd_exchange *exchange,
                                  CURLcode code) {
    struct blasd_problem ignored;
    struct blasd_reply *reply = NULL;
    bool cancel = errand->phase == BLASD_CANCEL, sent = exchange->sent;
    int got = blasd_exchange_reply(exchange, code, &reply, cancel ? &ignored : &errand->problem);
    blasd_exchange_close(exchange);
    if (got == 0 && !cancel && (got = blasd_reply_check_job(reply, &errand->problem)) != 0) {
        blasd_reply_free(reply);
        reply = NULL;
    }
    if (cancel) { /* whatever came of it */
        blasd_reply_free(reply);
        return fail(errand);
    }
    if (errand->phase == BLASD_SUBMIT)
        errand->uncertain = got != 0 && sent && errand->problem.status == 0;
    if (got != 0)
        return errand->phase == BLASD_SUBMIT ? submit_again(errand, sent) : ask_again(errand);
    if (errand->phase == BLASD_SUBMIT) {
        blasd_shared_free(errand->copy); /* a job that was taken has a name of its own for it */
        errand->copy = NULL;
    }
    blasd_reply_free(errand->reply);
    errand->reply = reply;
    return settle(errand);
}
