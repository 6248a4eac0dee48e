/* A job from its submission to its arrays: tries again where the service says so, waits, cancels.
 */
#include "clients/c/internal.h"

#include <string.h>
#include <time.h>

#define LONGEST_WAIT 20.0  /* one request holds the connection no longer */
#define PROGRESS_STEP 0.5  /* between two calls of `progress` */
#define PATIENCE 10.0      /* a front end that restarts is back by then */
#define PATIENCE_STEP 0.25 /* between two attempts to reach it */

/* A run, as its steps need it. */
struct errand {
    struct blasd_client *client;
    double end; /* of the caller's patience, by now_seconds */
    blasd_progress_fn progress;
    void *arg;
    struct blasd_problem *problem;
};

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double least(double a, double b) {
    return a < b ? a : b;
}

static double step_of(const struct errand *errand) {
    double left = errand->end - now_seconds();
    double step = errand->progress != NULL ? PROGRESS_STEP : LONGEST_WAIT;
    return left < 0 ? 0 : least(left, step);
}

static bool goes_on(const struct errand *errand, const char *state, double progress) {
    return errand->progress == NULL || errand->progress(errand->arg, state, progress);
}

/* Sleeps; false where `progress` wants no more. */
static bool pause_for(const struct errand *errand, const char *state, double progress,
                      double seconds) {
    for (double end = now_seconds() + seconds, left = seconds; left > 0;
         left = end - now_seconds()) {
        double step = least(left, PROGRESS_STEP);
        struct timespec time = {(time_t)step, (long)((step - (double)(time_t)step) * 1e9)};
        nanosleep(&time, NULL);
        if (!goes_on(errand, state, progress)) return false;
    }
    return true;
}

/* Cancels a job that nobody waits for any more, whatever comes of it. */
static void abandon(struct blasd_client *client, const char *id) {
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    if (blasd_client_cancel(client, id, &reply, &problem) == 0) blasd_reply_free(reply);
}

static int cancelled(const struct errand *errand) {
    return blasd_problem_set(errand->problem, "cancelled", "the job was cancelled");
}

/* A full queue says when to come back; anything else is for the caller. */
static int submit(const struct errand *errand, const struct blasd_request *request,
                  struct blasd_reply **reply) {
    while (blasd_client_submit(errand->client, request, step_of(errand), reply, errand->problem) !=
           0) {
        double seconds = errand->problem->retry_after;
        if (seconds <= 0 || now_seconds() + seconds >= errand->end) return -1;
        if (!pause_for(errand, "waiting", 0, seconds)) return cancelled(errand);
    }
    return 0;
}

/* The job as it stands. A service that cannot be reached, or says that it cannot answer now, is
 * asked again for some seconds: the job is safe meanwhile. */
static int look_again(const struct errand *errand, struct blasd_reply **reply) {
    const char *id = blasd_reply_id(*reply), *state = blasd_reply_state(*reply);
    double progress = blasd_reply_progress(*reply);
    double end = least(now_seconds() + PATIENCE, errand->end);
    struct blasd_reply *next = NULL;
    while (blasd_client_get(errand->client, id, step_of(errand), &next, errand->problem) != 0) {
        if (!errand->problem->retry || now_seconds() + PATIENCE_STEP >= end) return -1;
        if (!pause_for(errand, state, progress, PATIENCE_STEP)) {
            abandon(errand->client, id);
            return cancelled(errand);
        }
    }
    blasd_reply_free(*reply);
    *reply = next;
    return 0;
}

/* `*reply` is replaced by newer ones. */
static int wait_for_end(const struct errand *errand, struct blasd_reply **reply) {
    while (!blasd_reply_ended(*reply)) {
        const char *id = blasd_reply_id(*reply);
        if (!goes_on(errand, blasd_reply_state(*reply), blasd_reply_progress(*reply))) {
            abandon(errand->client, id);
            return cancelled(errand);
        }
        if (now_seconds() >= errand->end) {
            abandon(errand->client, id);
            blasd_problem_set(errand->problem, "timeout",
                              "the job did not end in time and was cancelled");
            errand->problem->retry = true;
            return -1;
        }
        if (look_again(errand, reply) != 0) return -1;
    }
    return 0;
}

int blasd_client_run(struct blasd_client *client, const struct blasd_request *request,
                     double timeout_seconds, blasd_progress_fn progress, void *arg,
                     struct blasd_reply **ret, struct blasd_problem *problem) {
    const struct errand errand = {client, now_seconds() + timeout_seconds, progress, arg, problem};
    struct blasd_reply *reply = NULL;
    *ret = NULL;
    if (submit(&errand, request, &reply) == 0 && wait_for_end(&errand, &reply) == 0 &&
        !blasd_reply_failed(reply, problem) &&
        blasd_client_complete(client, &reply, problem) == 0) {
        *ret = reply;
        return 0;
    }
    blasd_reply_free(reply);
    return -1;
}
