/* A list, in the order of arrival. Who waits is refused after the same time, so the first one is
 * also the first whose time is up.
 *
 * Refusals and jobs let in share one allowance of so many a second: the less the queue gets done,
 * the more may be refused. `spent_ns` is the time that what was spent of it takes at that
 * rate; it runs ahead of the clock by what was spent at once. Jobs alone use it up where they are
 * small, so some refusals are earned by jobs let in (`earned`, in jobs). */
#include "http/admission.h"

#include "base/clock.h"
#include "http/exchange.h"

#define SMALL_BODY (64 * BLASD_KIB)
/* A refusal takes some 20 us of the front end and 10 to 20 of the client, a third of a small job.
 * This many are a few hundredths of two cores, where there are no jobs to use these; beside many
 * small jobs one for each JOBS_A_REFUSAL is a hundredth of what the jobs take. */
#define REFUSAL_NS (1000000000 / 2000)
#define REFUSALS_AT_ONCE 64
#define JOBS_A_REFUSAL 32
#define PAUSE_NS INT64_C(10000000) /* until more may be refused: some twenty */

bool http_admission_suits(const struct http_exchange *exchange) {
    const struct http_request *request = &exchange->request;
    return !request->framing.chunked && request->body_file == NULL &&
           !request->framing.expects_continue && request->framing.content_length <= SMALL_BODY &&
           request->coding == HTTP_CODING_NONE && /* or it might be a large one */
           exchange->home->server->limits->queue_wait_ms > 0;
}

void http_admission_wait(struct http_exchange *exchange, bool again) {
    struct blasd_list *waiting = &exchange->home->admission.waiting;
    if (http_exchange_enter(exchange, HTTP_AT_ADMISSION))
        blasd_list_add(again ? waiting : waiting->prev, &exchange->admission);
}

static struct http_exchange *first_of(const struct http_loop *loop) {
    return blasd_container_of(loop->admission.waiting.next, struct http_exchange, admission);
}

static int64_t late_at(const struct http_loop *loop) {
    return first_of(loop)->began_ns + (int64_t)loop->server->limits->queue_wait_ms * 1000000;
}

static void ignore(struct blasd_timer *timer) {
    (void)timer; /* the turn of the loop lets them in */
}

/* Whether the allowance has something left. */
static bool can_spend(const struct http_loop *loop, int64_t now) {
    return loop->admission.spent_ns - now < REFUSALS_AT_ONCE * REFUSAL_NS;
}

static void spend(struct http_loop *loop, int64_t now) {
    if (loop->admission.spent_ns < now) loop->admission.spent_ns = now;
    loop->admission.spent_ns += REFUSAL_NS;
}

static void count_let_in(struct http_loop *loop, int64_t now) {
    if (can_spend(loop, now)) spend(loop, now);
    if (loop->admission.earned < REFUSALS_AT_ONCE * JOBS_A_REFUSAL) loop->admission.earned++;
}

static void count_refused(struct http_loop *loop, int64_t now) {
    if (can_spend(loop, now))
        spend(loop, now);
    else
        loop->admission.earned -= JOBS_A_REFUSAL;
}

/* Lets the first one in or refuses it. False: it goes on waiting, and so do all behind it. */
static bool serve_first(struct http_loop *loop, int64_t now) {
    struct http_exchange *exchange = first_of(loop);
    bool may_refuse = can_spend(loop, now) || loop->admission.earned >= JOBS_A_REFUSAL;
    if (!exchange->route->jobs->admit(exchange, may_refuse && now >= late_at(loop))) return false;
    if (http_exchange_open(exchange))
        count_let_in(loop, now);
    else
        count_refused(loop, now);
    return true;
}

bool http_admission_busy(const struct http_loop *loop) {
    return !blasd_list_empty(&loop->admission.waiting);
}

void http_admission_turn(struct http_loop *loop) {
    int64_t now, at;
    if (!http_admission_busy(loop)) return;
    now = blasd_clock_ns();
    while (http_admission_busy(loop) && serve_first(loop, now)) continue;
    if (!http_admission_busy(loop) || loop->admission.timer.slot != 0) return;
    at = late_at(loop);
    loop->admission.timer.fire = ignore;
    /* where this fails, the loop's tick is soon enough */
    (void)blasd_loop_timer_set(loop->loop, &loop->admission.timer, at > now ? at : now + PAUSE_NS);
}
