/* The blocking ways: each call takes a handle, performs its requests on it one after the other, and
 * gives it back, so that threads need not wait for each other. */
#include "clients/c/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_STEP 0.5 /* between two calls of `progress` */
#define LATE_S 2.0        /* beyond the wait that was asked for */
#define EARLY_S 0.1       /* before which a service answers that shuts down; then pauses */

static void sleep_seconds(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (seconds > 0) nanosleep(&time, NULL);
}

/* --- single requests */

static int open_question(struct blasd_exchange *exchange, const struct blasd_question *question,
                         struct blasd_problem *problem) {
    const char *accept = question->accept == NULL ? "application/json" : question->accept;
    exchange->path = question->to;
    if (question->body != NULL)
        return blasd_exchange_send(exchange, question->path, accept, question->body, problem);
    blasd_exchange_ask(exchange, question->method, question->path, accept);
    if (question->json != NULL) blasd_exchange_json(exchange, question->json);
    return 0;
}

int blasd_client_ask(struct blasd_client *client, const struct blasd_question *question,
                     struct blasd_reply **ret, struct blasd_problem *problem) {
    CURL *curl;
    int code = blasd_client_check(client, problem);
    if (ret != NULL) *ret = NULL;
    if (code != 0) return code;
    curl = blasd_handle_take(client);
    if (curl == NULL) return blasd_refuse_memory(problem);
    for (int attempt = 0;; attempt++) {
        struct blasd_exchange exchange;
        bool sent_once;
        CURLcode sent;
        blasd_exchange_open(&exchange, client, curl, question->wait, 0);
        exchange.once = question->once;
        code = open_question(&exchange, question, problem);
        if (code == 0) {
            sent = exchange.failed ? CURLE_OUT_OF_MEMORY : curl_easy_perform(curl);
            code = question->to != NULL ? blasd_exchange_end(&exchange, sent, problem)
                                        : blasd_exchange_reply(&exchange, sent, ret, problem);
        }
        sent_once = exchange.once && exchange.sent;
        blasd_exchange_close(&exchange);
        if (code == 0 || !problem->retry || attempt >= client->retries) break;
        if (sent_once && !blasd_was_refused(problem)) break;
        sleep_seconds(blasd_backoff(attempt, problem->retry_after));
    }
    blasd_handle_give(client, curl);
    return code;
}

static int look(struct blasd_client *client, const char *method, const char *path, double wait,
                struct blasd_reply **ret, struct blasd_problem *problem) {
    struct blasd_question question = {.method = method, .path = path, .wait = wait};
    return blasd_client_ask(client, &question, ret, problem);
}

/* The whole result, as bytes. */
static int fetch(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                 struct blasd_problem *problem) {
    char path[BLASD_PATH];
    struct blasd_question question = {
        .method = "GET", .path = path, .accept = "application/x-safetensors"};
    if (blasd_id_path(path, BLASD_OF_JOB, id, "/result", problem) != 0) return -1;
    return blasd_client_ask(client, &question, ret, problem);
}

static int look_at_job(struct blasd_client *client, const char *id, double wait,
                       struct blasd_reply **ret, struct blasd_problem *problem) {
    char path[BLASD_PATH], rest[48] = "", seconds[32];
    blasd_wait_text(seconds, wait);
    if (wait > 0) snprintf(rest, sizeof rest, "?wait=%s", seconds);
    if (blasd_id_path(path, BLASD_OF_JOB, id, rest, problem) != 0) return -1;
    if (look(client, "GET", path, wait, ret, problem) != 0) return -1;
    if (blasd_reply_check_job(*ret, problem) == 0) return 0;
    blasd_reply_free(*ret);
    *ret = NULL;
    return -1;
}

/* In turns, for the service refuses a wait that is too long for one request. */
int blasd_client_get(struct blasd_client *client, const char *id, double wait_seconds,
                     struct blasd_reply **ret, struct blasd_problem *problem) {
    double end = blasd_now_seconds() + wait_seconds, left = wait_seconds, asked;
    *ret = NULL;
    for (;;) {
        asked = blasd_now_seconds();
        if (look_at_job(client, id, left < BLASD_LONGEST_WAIT ? left : BLASD_LONGEST_WAIT, ret,
                        problem) != 0)
            return -1;
        left = end - blasd_now_seconds();
        if (!(left > 0) || blasd_reply_ended(*ret)) return 0;
        if (blasd_now_seconds() < asked + EARLY_S) sleep_seconds(left < EARLY_S ? left : EARLY_S);
        blasd_reply_free(*ret);
        *ret = NULL;
    }
}

int blasd_client_result(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    const char *directory = blasd_client_directory(client);
    *ret = NULL;
    if (directory != NULL && blasd_client_get(client, id, 0, ret, problem) == 0) {
        if (blasd_reply_map(*ret, directory)) return 0;
        blasd_reply_free(*ret);
        *ret = NULL;
    }
    return fetch(client, id, ret, problem);
}

static int end_job(struct blasd_client *client, const char *id, const char *query,
                   struct blasd_reply **ret, struct blasd_problem *problem) {
    char path[BLASD_PATH];
    *ret = NULL;
    if (blasd_id_path(path, BLASD_OF_JOB, id, query, problem) != 0) return -1;
    return look(client, "DELETE", path, 0, ret, problem);
}

int blasd_client_cancel(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    return end_job(client, id, "", ret, problem);
}

int blasd_client_forget(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    return end_job(client, id, "?forget=1", ret, problem);
}

int blasd_client_cancel_all(struct blasd_client *client, const char *query,
                            struct blasd_reply **ret, struct blasd_problem *problem) {
    return blasd_client_list(client, "DELETE", "/jobs", query, ret, problem);
}

int blasd_client_ops(struct blasd_client *client, struct blasd_reply **ret,
                     struct blasd_problem *problem) {
    return look(client, "GET", "/ops", 0, ret, problem);
}

int blasd_client_devices(struct blasd_client *client, struct blasd_reply **ret,
                         struct blasd_problem *problem) {
    return look(client, "GET", "/devices", 0, ret, problem);
}

int blasd_client_list(struct blasd_client *client, const char *method, const char *path,
                      const char *query, struct blasd_reply **ret, struct blasd_problem *problem) {
    char whole[1024];
    *ret = NULL;
    if (query == NULL) query = "";
    for (const char *at = query; *at != '\0'; at++)
        if (!isgraph((unsigned char)*at) || *at == '#')
            return blasd_problem_set(problem, "invalid_request",
                                     "a query is made of visible characters; write others as %%XX");
    if (snprintf(whole, sizeof whole, "%s%s%s", path, *query != '\0' ? "?" : "", query) >=
        (int)sizeof whole)
        return blasd_problem_set(problem, "invalid_request", "the query is too long");
    return look(client, method, whole, 0, ret, problem);
}

int blasd_client_jobs(struct blasd_client *client, const char *query, struct blasd_reply **ret,
                      struct blasd_problem *problem) {
    return blasd_client_list(client, "GET", "/jobs", query, ret, problem);
}

int blasd_client_dry_run(struct blasd_client *client, const struct blasd_request *request,
                         struct blasd_reply **ret, struct blasd_problem *problem) {
    struct blasd_question question = {.path = "/jobs?dry_run=1", .body = request};
    *ret = NULL;
    if (blasd_request_check(request, problem) != 0) return -1;
    if (request->steps != NULL) question.path = "/graphs?dry_run=1";
    return blasd_client_ask(client, &question, ret, problem);
}

int blasd_client_ready(struct blasd_client *client, struct blasd_problem *problem) {
    struct blasd_reply *reply;
    int code = look(client, "GET", "/health/ready", 0, &reply, problem);
    blasd_reply_free(reply);
    return code;
}

int blasd_refuse_no_path(struct blasd_problem *problem) {
    return blasd_problem_set(problem, "file_not_writable", "the path of the file to write is NULL");
}

int blasd_client_save(struct blasd_client *client, const char *id, const char *output,
                      const char *path, struct blasd_problem *problem) {
    char rest[96], url_path[BLASD_PATH];
    struct blasd_question question = {
        .method = "GET", .path = url_path, .accept = "application/x-npy", .to = path};
    size_t len = output == NULL ? 0 : strlen(output);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)output[i]) && output[i] != '_' && output[i] != '-') len = 0;
    if (len == 0 || len > 64)
        return blasd_problem_set(problem, "unknown_output", "'%.80s' is not the name of an output",
                                 output == NULL ? "" : output);
    if (path == NULL) return blasd_refuse_no_path(problem);
    snprintf(rest, sizeof rest, "/outputs/%s", output);
    if (blasd_id_path(url_path, BLASD_OF_JOB, id, rest, problem) != 0) return -1;
    return blasd_client_ask(client, &question, NULL, problem);
}

/* --- jobs */

/* Who is told how the job stands, and may say that it is to be cancelled: one of the two, or none.
 */
struct audience {
    blasd_progress_fn progress;
    blasd_watch_fn watch;
    void *arg;
};

static bool has_ears(const struct audience *audience) {
    return audience->progress != NULL || audience->watch != NULL;
}

/* False where it is to end. */
static bool tell(const struct blasd_errand *errand, const struct audience *audience) {
    const struct blasd_reply *reply = errand->reply;
    if (audience->watch != NULL)
        return audience->watch(audience->arg, blasd_errand_state(errand), reply);
    return audience->progress == NULL ||
           audience->progress(audience->arg, blasd_errand_state(errand),
                              reply == NULL ? 0 : blasd_reply_progress(reply));
}

/* Sleeps, in pieces between which it tells; false where the job is to end. */
static bool pause_for(const struct blasd_errand *errand, const struct audience *audience) {
    double end = blasd_now_seconds() + errand->pause, left = errand->pause;
    for (; left > 0; left = end - blasd_now_seconds()) {
        sleep_seconds(!has_ears(audience) || left < PROGRESS_STEP ? left : PROGRESS_STEP);
        if (!tell(errand, audience)) return false;
    }
    return true;
}

/* A request under way, in which those who listen are told, too: a large body, or a service that
 * says nothing, may take long. */
struct performance {
    const struct blasd_errand *errand;
    const struct blasd_exchange *exchange;
    const struct audience *audience;
    double begin, told;
    bool unwanted; /* somebody said that it is to end, */
    bool aborted;  /* and it was not waited for */
};

/* Not while a job without a key may have been taken whose id is on its way: nobody could cancel it.
 * A service that is late has most likely hung. */
static bool may_abort(const struct performance *now, bool all_sent) {
    const struct blasd_errand *errand = now->errand;
    if (errand->phase != BLASD_SUBMIT || errand->request.idempotency_key != NULL) return true;
    if (!now->exchange->sent || !all_sent) return true;
    return blasd_now_seconds() > now->begin + errand->step + LATE_S;
}

static int on_progress(void *arg, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                       curl_off_t up) {
    struct performance *now = arg;
    (void)down_all, (void)down;
    if (!now->unwanted && blasd_now_seconds() < now->told + PROGRESS_STEP) return 0;
    now->unwanted = now->unwanted || !tell(now->errand, now->audience);
    now->told = blasd_now_seconds();
    now->aborted = now->unwanted && may_abort(now, up >= up_all);
    return now->aborted;
}

static enum blasd_step perform(struct blasd_errand *errand, struct blasd_exchange *exchange,
                               const struct audience *audience) {
    double begin = blasd_now_seconds();
    struct performance now = {errand, exchange, audience, begin, begin, false, false};
    enum blasd_step step;
    CURLcode code;
    /* what cancels it is not cancelled */
    if (has_ears(audience) && !errand->stopped && errand->phase != BLASD_CANCEL) {
        curl_easy_setopt(exchange->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
        curl_easy_setopt(exchange->curl, CURLOPT_XFERINFODATA, &now);
        curl_easy_setopt(exchange->curl, CURLOPT_NOPROGRESS, 0L);
    }
    code = curl_easy_perform(exchange->curl);
    if (now.aborted) return blasd_errand_abort(errand, exchange);
    step = blasd_errand_take(errand, exchange, code);
    if (step == BLASD_DONE || errand->phase == BLASD_FETCH || errand->phase == BLASD_CANCEL)
        return step;
    if (now.unwanted ||
        (step == BLASD_SEND && errand->phase == BLASD_LOOK && !tell(errand, audience)))
        return blasd_errand_stop(errand);
    return step;
}

static void drive(struct blasd_errand *errand, CURL *curl, const struct audience *audience) {
    struct blasd_exchange exchange;
    enum blasd_step step = BLASD_SEND;
    while (step != BLASD_DONE) {
        if (step == BLASD_SLEEP && !pause_for(errand, audience)) {
            step = blasd_errand_stop(errand);
            continue;
        }
        if (!blasd_errand_prepare(errand, &exchange, curl)) return;
        step = perform(errand, &exchange, audience);
    }
}

static int run(struct blasd_client *client, const struct blasd_request *request, double timeout,
               double step, const struct audience *audience, struct blasd_reply **ret,
               struct blasd_problem *problem) {
    struct blasd_errand errand;
    CURL *curl;
    int code;
    *ret = NULL;
    if (blasd_errand_begin(&errand, client, request, timeout, step, problem) != 0) return -1;
    curl = blasd_handle_take(client);
    if (curl == NULL)
        blasd_refuse_memory(&errand.problem);
    else
        drive(&errand, curl, audience);
    code = errand.reply != NULL ? 0 : -1;
    *ret = errand.reply;
    errand.reply = NULL;
    if (code != 0) *problem = errand.problem;
    blasd_errand_end(&errand);
    if (curl != NULL) blasd_handle_give(client, curl);
    return code;
}

int blasd_client_submit(struct blasd_client *client, const struct blasd_request *request,
                        double wait_seconds, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    const struct audience nobody = {.progress = NULL};
    return run(client, request, -1, wait_seconds > 0 ? wait_seconds : 0, &nobody, ret, problem);
}

int blasd_client_run(struct blasd_client *client, const struct blasd_request *request,
                     double timeout_seconds, blasd_progress_fn progress, void *arg,
                     struct blasd_reply **ret, struct blasd_problem *problem) {
    const struct audience audience = {.progress = progress, .arg = arg};
    return run(client, request, timeout_seconds > 0 ? timeout_seconds : 0,
               progress != NULL ? PROGRESS_STEP : BLASD_LONGEST_WAIT, &audience, ret, problem);
}

int blasd_client_run_watched(struct blasd_client *client, const struct blasd_request *request,
                             double timeout_seconds, blasd_watch_fn watch, void *arg,
                             struct blasd_reply **ret, struct blasd_problem *problem) {
    const struct audience audience = {.watch = watch, .arg = arg};
    return run(client, request, timeout_seconds > 0 ? timeout_seconds : 0, PROGRESS_STEP, &audience,
               ret, problem);
}

/* --- sharing */

/* Whether we may use the directory and it holds a blob store's mark: the service's word alone would
 * let it choose any directory of ours. */
static bool is_blob_directory(const char *directory) {
    char *mark;
    struct stat info;
    if (asprintf(&mark, "%s/.store", directory) < 0) return false;
    bool is = access(directory, R_OK | W_OK | X_OK) == 0 && lstat(mark, &info) == 0 &&
              S_ISREG(info.st_mode);
    free(mark);
    return is;
}

static int refuse_directory(struct blasd_problem *problem, const char *directory) {
    return blasd_problem_set(problem, "sharing_off",
                             "the service's directory %s cannot be used from here: it is another "
                             "machine's, or another user's",
                             directory);
}

int blasd_client_share(struct blasd_client *client, struct blasd_problem *problem) {
    struct blasd_reply *reply = NULL;
    const char *directory, *prefix;
    int code = -1;
    atomic_store(&client->sharing, false);
    if (look(client, "GET", "/share", 0, &reply, problem) != 0 || reply == NULL) return -1;
    directory = json_string_value(json_object_get(reply->document, "directory"));
    prefix = json_string_value(json_object_get(reply->document, "prefix"));
    if (directory == NULL)
        blasd_problem_set(problem, "bad_answer", "the service's answer could not be read");
    else if (!is_blob_directory(directory))
        refuse_directory(problem, directory);
    else if (blasd_client_share_in(client, directory, prefix == NULL ? "" : prefix) != 0)
        blasd_problem_set(problem, "out_of_memory", "no memory for the directory's name");
    else
        code = 0;
    blasd_reply_free(reply);
    return code;
}

int blasd_shared_new(struct blasd_client *client, const struct blasd_array *specs, int count,
                     struct blasd_shared **ret, struct blasd_problem *problem) {
    const struct blasd_share *share = blasd_client_sharing(client);
    *ret = NULL;
    if (share == NULL)
        return blasd_problem_set(problem, "sharing_off",
                                 "the client shares nothing: call blasd_client_share first");
    if (count < 0 || (count > 0 && specs == NULL))
        return blasd_problem_set(problem, "invalid_request",
                                 "the number of arrays is positive, but the arrays are NULL");
    if (blasd_shared_open(share, ret, problem) != 0) return -1;
    if (blasd_shared_lay_out(*ret, specs, count, problem) == 0) return 0;
    blasd_shared_free(*ret);
    *ret = NULL;
    return -1;
}
