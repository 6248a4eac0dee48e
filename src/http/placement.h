/* Which class of devices a job goes to where the user leaves it open, and which jobs are too large
 * for every device.
 *
 * Each loop looks at the workers now and then (their measured costs, memory, operations, how much
 * waits for each class) and predicts from that when a job would end on either class. As long as
 * only one class lives, a job costs some comparisons and a prediction here. Read next: placement.c.
 */
#ifndef BLASD_HTTP_PLACEMENT_H
#define BLASD_HTTP_PLACEMENT_H

#include "core/cost.h"
#include "queue/front_queue.h"

#include <jansson.h>

#define HTTP_PLACEMENT_RING 256 /* jobs sent to a class whose cost is remembered one by one */

/* What is known of the live workers of one class. */
struct http_placement_class {
    bool seen;              /* at the last look there was one */
    bool measured;          /* `cost` is known */
    struct blasd_cost cost; /* of one of them: those of a class are taken to be alike */
    uint64_t ops;           /* a bit for each position in blasd_ops: some worker runs it */
    uint64_t host_bytes;    /* of memory, most of any; 0: not told */
    uint64_t device_bytes;  /* of a device with memory of its own */
    double mean_s;          /* a job's share of the time they computed lately; 0: not known */
    double work_s;          /* predicted for what waits or runs, as of `at_ns` */
    int64_t at_ns;
    double rate; /* predicted seconds that a worker has really done in a second, lately */
    double look_s, added_s; /* work_s at the last look, and what was added since */
    int64_t look_ns;
    double shares[HTTP_PLACEMENT_RING]; /* predicted for job n that was sent here, at n % RING */
    uint64_t sent;                      /* jobs */
};

struct http_placement {
    struct http_placement_class of[BLASD_DEVICE_CLASS_COUNT]; /* cpu and cuda; `any` is not used */
    bool known;                                               /* there was a look */
    bool asking;
    int64_t asked_ns;
    int workers[BLASD_DEVICE_CLASS_COUNT]; /* live ones when it was asked */
    double most_s; /* a job may take; 0: any time will do. Set by who owns this */
};

struct http_loop;

/* Called a few times a second: asks the queue about the workers where that is due. */
void http_placement_tick(struct http_loop *loop);
/* Takes in the text of BLASD_FIGURES_STATS. `loops`: how many send jobs as this one does. */
void http_placement_learn(struct http_placement *placement, const char *text, size_t len, int loops,
                          int64_t now_ns);
/* Takes in such a text that came for another reason, where what it tells is not known yet. */
void http_placement_heard(struct http_loop *loop, const char *text, size_t len);
/* What the job takes on a device of the class that has nothing else to do. False: not known. */
bool http_placement_predict(const struct http_placement *placement, enum blasd_device_class class,
                            const struct blasd_op *op, const struct blasd_plan *plan,
                            struct blasd_cost_guess *ret);
/* Refuses a job that no live worker it may go to has the memory for, with job_too_large.
 * `host_bytes`: inputs, outputs, workspace. */
int http_placement_check(const struct http_placement *placement,
                         const struct blasd_queue_view *view, enum blasd_device_class device,
                         const struct blasd_plan *plan, uint64_t host_bytes, struct blasd_err *err);
/* Refuses a job that is predicted to take longer than a job may on each class that it may go to,
 * with job_too_long; `key_s`: as its key allows, 0: no less than others. A class whose speed is not
 * known yet may be fast enough. */
int http_placement_check_time(const struct http_placement *placement,
                              const struct blasd_queue_view *view, enum blasd_device_class device,
                              const struct blasd_op *op, const struct blasd_plan *plan,
                              uint64_t host_bytes, uint64_t key_s, struct blasd_err *err);
/* The class where a job of device `any` is predicted to end first, and in *share_s what it adds to
 * the work there; `any` where only one class lives or nothing is known to choose by. */
enum blasd_device_class http_placement_best(const struct http_placement *placement,
                                            const struct blasd_queue_view *view,
                                            const struct blasd_op *op,
                                            const struct blasd_plan *plan, uint64_t host_bytes,
                                            int64_t now_ns, double *share_s);
/* The same: it is to be queued for it, and is counted as sent there. */
enum blasd_device_class http_placement_pick(struct http_placement *placement,
                                            const struct blasd_queue_view *view,
                                            const struct blasd_op *op,
                                            const struct blasd_plan *plan, uint64_t host_bytes,
                                            int64_t now_ns);
/* Counts a job that the user sent to a class. */
void http_placement_sent(struct http_placement *placement, const struct blasd_queue_view *view,
                         enum blasd_device_class class, const struct blasd_op *op,
                         const struct blasd_plan *plan, int64_t now_ns);
/* Seconds that the job adds to the work of the class it is queued for, as far as can be said: what
 * counts for the share of who sends it. */
double http_placement_work(const struct http_placement *placement,
                           const struct blasd_queue_view *view, enum blasd_device_class class,
                           const struct blasd_op *op, const struct blasd_plan *plan);
/* Jobs that wait for a class or run there, and the seconds that are predicted for them, where that
 * was asked for; `queue`: that member of the stats. */
double http_placement_jobs(const json_t *queue, enum blasd_device_class class);
double http_placement_waits_s(const json_t *queue, enum blasd_device_class class);
/* Whether there is anything to choose: both classes live. */
static inline bool http_placement_open(const struct blasd_queue_view *view) {
    return view->workers_of[BLASD_DEVICE_CPU] > 0 && view->workers_of[BLASD_DEVICE_CUDA] > 0;
}

#endif
