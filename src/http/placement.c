/* Predicting where a job ends first: the work that waits for a class, shared by its workers, then
 * the job by itself.
 *
 * How many jobs wait is the queue's word, once a second; how long they take is known from what this
 * loop sent there last, for they leave in about the order in which they came. Between two looks the
 * work grows by what is sent and shrinks with the time that passes. */
#include "http/placement.h"

#include "base/err.h"
#include "http/exchange.h"
#include "wire/cost_text.h"
#include "wire/stats_load.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS INT64_C(1000000000)     /* while there is something to choose */
#define GLANCE_NS INT64_C(10000000000)  /* while there is not: only for memory */
#define TIMEOUT_NS INT64_C(30000000000) /* for an answer */
#define RATE_LEAST (1.0 / 32)           /* of what was predicted */
#define RATE_MOST 32.0
#define DEVICE_SHARE                                                                               \
    0.9 /* of a device's memory that a job may need and still be sent there unasked */

static uint64_t bytes_of(const json_t *info, const char *name) {
    json_int_t bytes = json_integer_value(json_object_get(info, name));
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static void learn_ops(struct http_placement_class *class, const json_t *info) {
    const json_t *ops = json_object_get(info, "ops");
    if (!json_is_array(ops)) class->ops = UINT64_MAX; /* it does not say */
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const char *name = json_string_value(json_array_get(ops, i));
        const struct blasd_op *op = name == NULL ? NULL : blasd_op_find(name);
        int at = op == NULL ? -1 : blasd_op_position(op);
        if (at >= 0 && at < 64) class->ops |= UINT64_C(1) << at;
    }
}

/* What the live workers of one class say of themselves. */
static void learn_workers(struct http_placement_class *class, const char *name, json_t *workers) {
    double busy = 0, jobs = 0;
    const char *key;
    json_t *info;
    class->seen = class->measured = false;
    class->ops = class->host_bytes = class->device_bytes = 0;
    json_object_foreach(workers, key, info) {
        const char *of = json_string_value(json_object_get(info, "class"));
        uint64_t host = bytes_of(info, "host_memory_bytes"),
                 device = bytes_of(info, "memory_bytes");
        if (of == NULL || strcmp(of, name) != 0) continue;
        class->seen = true;
        if (!class->measured)
            class->measured = blasd_cost_read_object(json_object_get(info, "cost"), &class->cost) &&
                              blasd_cost_known(&class->cost);
        learn_ops(class, info);
        if (host > class->host_bytes) class->host_bytes = host;
        if (device > class->device_bytes) class->device_bytes = device;
        busy += json_number_value(json_object_get(info, "busy_share"));
        jobs += json_number_value(json_object_get(info, "jobs_per_s"));
    }
    class->mean_s = jobs > 0 && busy > 0 ? busy / jobs : 0;
}

/* The sum of a figure over the priorities of a class. */
static double sum_of(const json_t *queue, enum blasd_device_class class_id, const char *figure) {
    const json_t *class = json_object_get(queue, blasd_device_class_names[class_id]);
    double sum = 0;
    for (int p = 0; p < BLASD_PRIORITY_COUNT; p++) {
        const json_t *row = json_object_get(class, blasd_priority_names[p]);
        sum += json_number_value(json_object_get(row, figure));
    }
    return sum > 0 ? sum : 0;
}

double http_placement_jobs(const json_t *queue, enum blasd_device_class class_id) {
    return sum_of(queue, class_id, "queued") + sum_of(queue, class_id, "claimed");
}

double http_placement_waits_s(const json_t *queue, enum blasd_device_class class_id) {
    return sum_of(queue, class_id, "work_us") * 1e-6;
}

/* The work of the last `jobs` jobs of this class: those that this loop sent last, as far as they
 * are remembered, and the rest like them. */
static double last_work(const struct http_placement_class *class, double jobs, int loops) {
    double own = ceil(jobs / (loops < 1 ? 1 : loops)), sum = 0;
    uint64_t known = class->sent < HTTP_PLACEMENT_RING ? class->sent : HTTP_PLACEMENT_RING;
    if (!(jobs > 0)) return 0;
    if (known == 0) return jobs * class->mean_s;
    if (own < (double)known) known = (uint64_t)own;
    for (uint64_t i = 1; i <= known; i++)
        sum += class->shares[(class->sent - i) % HTTP_PLACEMENT_RING];
    return sum / (double)known * jobs;
}

/* Takes the work that is left at a look. Where the class had work all the time since the last one,
 * what has gone tells its rate: the prediction may be wrong, or the machine busy with other things.
 */
static void learn_work(struct http_placement_class *class, double left_s, int workers,
                       int64_t now_ns) {
    double passed = (double)(now_ns - class->look_ns) * 1e-9 * (workers < 1 ? 1 : workers);
    double rate = 1;
    if (class->look_s > 0 && left_s > 0 && class->look_ns > 0 && passed > 0)
        rate = (class->look_s + class->added_s - left_s) / passed;
    if (!(rate > RATE_LEAST)) rate = RATE_LEAST;
    if (!(rate < RATE_MOST)) rate = RATE_MOST;
    class->rate = class->rate > 0 ? (class->rate + rate) / 2 : rate;
    class->work_s = class->look_s = left_s;
    class->added_s = 0;
    class->at_ns = class->look_ns = now_ns;
}

void http_placement_learn(struct http_placement *placement, const char *text, size_t len, int loops,
                          int64_t now_ns) {
    json_t *stats = blasd_stats_load(text, len);
    const json_t *queue = json_object_get(stats, "queue");
    if (stats == NULL) return;
    for (int c = BLASD_DEVICE_CPU; c <= BLASD_DEVICE_CUDA; c++) {
        struct http_placement_class *class = &placement->of[c];
        learn_workers(class, blasd_device_class_names[c], json_object_get(stats, "workers"));
        learn_work(class,
                   last_work(class, http_placement_jobs(queue, (enum blasd_device_class)c), loops),
                   placement->workers[c], now_ns);
    }
    placement->known = true;
    json_decref(stats);
}

static void learn_now(struct http_loop *loop, const char *text, size_t len) {
    http_placement_learn(&loop->placement, text, len, loop->server->options->loops,
                         blasd_loop_now(loop->loop));
}

static void on_stats(void *arg, const struct blasd_err *err, const char *text, size_t len) {
    struct http_loop *loop = arg;
    loop->placement.asking = false;
    if (err == NULL) learn_now(loop, text, len);
}

void http_placement_heard(struct http_loop *loop, const char *text, size_t len) {
    struct http_placement *placement = &loop->placement;
    const struct blasd_queue_view *view = blasd_front_queue_view(loop->queue);
    bool known = placement->known;
    for (int c = BLASD_DEVICE_CPU; c <= BLASD_DEVICE_CUDA; c++)
        if (view->workers_of[c] > 0 && !placement->of[c].measured) known = false;
    if (known) return; /* two looks that follow each other closely tell nothing of a rate */
    memcpy(placement->workers, view->workers_of, sizeof placement->workers);
    learn_now(loop, text, len);
}

void http_placement_tick(struct http_loop *loop) {
    struct http_placement *placement = &loop->placement;
    const struct blasd_queue_view *view = blasd_front_queue_view(loop->queue);
    int64_t now = blasd_loop_now(loop->loop), since = now - placement->asked_ns;
    bool changed = false;
    for (int c = 0; c < BLASD_DEVICE_CLASS_COUNT; c++)
        if (placement->workers[c] != view->workers_of[c]) changed = true;
    if (!view->available || (placement->asking && since < TIMEOUT_NS)) return;
    if (!changed && since < (http_placement_open(view) ? LOOK_NS : GLANCE_NS)) return;
    memcpy(placement->workers, view->workers_of, sizeof placement->workers);
    placement->asking = true;
    placement->asked_ns = now;
    blasd_front_queue_figures(loop->queue, &(struct blasd_figures_query){0}, on_stats, loop);
}

/* ---- memory ---- */

static bool may_go(const struct http_placement *placement, const struct blasd_queue_view *view,
                   enum blasd_device_class device, int class) {
    return view->workers_of[class] > 0 && placement->of[class].seen &&
           (device == BLASD_DEVICE_ANY || (int)device == class);
}

static bool fits(const struct http_placement_class *class, int number,
                 const struct blasd_plan *plan, uint64_t host_bytes) {
    if (class->host_bytes > 0 && host_bytes > class->host_bytes) return false;
    if (number == BLASD_DEVICE_CUDA && plan->host_only != NULL) return false;
    return number != BLASD_DEVICE_CUDA || class->device_bytes == 0 ||
           plan->device_least_bytes <= class->device_bytes;
}

int http_placement_check(const struct http_placement *placement,
                         const struct blasd_queue_view *view, enum blasd_device_class device,
                         const struct blasd_plan *plan, uint64_t host_bytes,
                         struct blasd_err *err) {
    uint64_t most = 0, least = 0;
    bool any = false;
    for (int c = BLASD_DEVICE_CPU; c <= BLASD_DEVICE_CUDA; c++) {
        const struct http_placement_class *class = &placement->of[c];
        if (!may_go(placement, view, device, c)) continue;
        if (fits(class, c, plan, host_bytes)) return 0;
        any = true;
        if (class->host_bytes > most) most = class->host_bytes;
        if (c == BLASD_DEVICE_CUDA) least = class->device_bytes;
    }
    if (!any) return 0;
    if (host_bytes > most)
        return blasd_fail(err, BLASD_E_job_too_large, "",
                          "inputs, outputs and workspace come to %" PRIu64
                          " bytes, and the largest worker's machine has %" PRIu64
                          " (host_memory_bytes in GET /devices)",
                          host_bytes, most);
    if (plan->host_only != NULL)
        return blasd_fail(err, BLASD_E_job_too_large, "device",
                          "%s; this job is beyond that, and no worker of class cpu %s",
                          plan->host_only,
                          device == BLASD_DEVICE_CUDA ? "was asked for" : "is alive");
    return blasd_fail(err, BLASD_E_job_too_large, "",
                      "the device must hold %" PRIu64 " bytes at once, and the largest has %" PRIu64
                      " (memory_bytes in GET /devices)",
                      plan->device_least_bytes, least);
}

/* ---- time ---- */

/* Of a graph's steps; `least`: what is certain of their operations. */
static bool predict_steps(const struct blasd_cost *cost, bool makes_free, bool least,
                          const struct blasd_plan *plan, struct blasd_cost_guess *ret) {
    size_t bytes = (size_t)plan->step_count * sizeof *plan->steps;
    struct blasd_cost_step *steps = plan->steps == NULL ? NULL : malloc(bytes + 1);
    bool known;
    if (steps == NULL) return false;
    memcpy(steps, plan->steps, bytes);
    for (int s = 0; s < plan->step_count; s++) {
        struct blasd_cost_work *work = &steps[s].work;
        if (makes_free) { /* a card */
            work->made_bytes = 0;
            work->bytes -= steps[s].resident_in + steps[s].resident_out;
            work->out_bytes -= steps[s].resident_out;
        }
        work->least = least;
        if (!least || !(steps[s].flops_least > 0)) continue;
        work->flops = steps[s].flops_least;
        work->ends_early = false;
    }
    known = blasd_cost_predict_steps(cost, steps, plan->step_count, ret);
    free(steps);
    return known;
}

static bool predict(const struct http_placement_class *class, int number, const struct blasd_op *op,
                    const struct blasd_plan *plan, bool least, struct blasd_cost_guess *ret) {
    struct blasd_cost_work work;
    int position = blasd_op_position(op);
    bool makes_free = number == BLASD_DEVICE_CUDA; /* all its units make inputs by rules */
    if (!class->measured || position < 0) return false;
    if (op->composed) return predict_steps(&class->cost, makes_free, least, plan, ret);
    blasd_cost_work(plan, position, &work);
    if (makes_free) work.made_bytes = 0;
    work.least = least;
    if (least && plan->flops_least > 0) {
        work.flops = plan->flops_least;
        work.ends_early = false;
    }
    return blasd_cost_predict(&class->cost, &work, ret);
}

bool http_placement_predict(const struct http_placement *placement, enum blasd_device_class number,
                            const struct blasd_op *op, const struct blasd_plan *plan,
                            struct blasd_cost_guess *ret) {
    return predict(&placement->of[number], number, op, plan, false, ret);
}

int http_placement_check_time(const struct http_placement *placement,
                              const struct blasd_queue_view *view, enum blasd_device_class device,
                              const struct blasd_op *op, const struct blasd_plan *plan,
                              uint64_t host_bytes, uint64_t key_s, struct blasd_err *err) {
    bool by_key = key_s > 0 && !(placement->most_s > 0 && placement->most_s <= (double)key_s);
    double least = INFINITY, most_s = by_key ? (double)key_s : placement->most_s;
    for (int c = BLASD_DEVICE_CPU; most_s > 0 && c <= BLASD_DEVICE_CUDA; c++) {
        const struct http_placement_class *class = &placement->of[c];
        struct blasd_cost_guess guess;
        if (!may_go(placement, view, device, c) || !fits(class, c, plan, host_bytes)) continue;
        if (!predict(class, c, op, plan, true, &guess)) return 0;
        if (guess.alone_s < least) least = guess.alone_s;
    }
    if (!isfinite(least) || least <= most_s) return 0;
    return blasd_fail(
        err, BLASD_E_job_too_long, "",
        "it is predicted to take %.3g s at least (%.3g operations, %.0f problems), and a "
        "job may take %" PRIu64 " s (%s)",
        least, plan->flops_least > 0 ? plan->flops_least : plan->flops,
        plan->items < 1 ? 1 : plan->items, (uint64_t)most_s, by_key ? "of its key" : "limit job_s");
}

/* Of a processor, where nothing was measured. */
#define USUAL_FLOPS 1e10
#define USUAL_BYTES 1e9

double http_placement_work(const struct http_placement *placement,
                           const struct blasd_queue_view *view, enum blasd_device_class class,
                           const struct blasd_op *op, const struct blasd_plan *plan) {
    struct blasd_cost_guess guess;
    if (class == BLASD_DEVICE_ANY)
        class = view->workers_of[BLASD_DEVICE_CPU] > 0 || view->workers_of[BLASD_DEVICE_CUDA] == 0
                    ? BLASD_DEVICE_CPU
                    : BLASD_DEVICE_CUDA;
    if (!http_placement_predict(placement, class, op, plan, &guess))
        guess.share_s = BLASD_COST_JOB_S + plan->flops / USUAL_FLOPS +
                        (double)(plan->input_bytes + plan->output_bytes) / USUAL_BYTES;
    return guess.share_s;
}

/* The work that waits, now. */
static double work_now(const struct http_placement_class *class, int workers, int64_t now_ns) {
    double passed = (double)(now_ns - class->at_ns) * 1e-9 * workers * class->rate;
    return passed < class->work_s ? class->work_s - passed : 0;
}

static void count_sent(struct http_placement_class *class, int workers, double share_s,
                       int64_t now_ns) {
    class->shares[class->sent++ % HTTP_PLACEMENT_RING] = share_s;
    class->work_s = work_now(class, workers, now_ns) + share_s;
    class->added_s += share_s;
    class->at_ns = now_ns;
}

/* What must be run, as class->ops has it. */
static uint64_t ops_of(const struct blasd_op *op, const struct blasd_plan *plan) {
    uint64_t ops = 0;
    if (!op->composed) return UINT64_C(1) << blasd_op_position(op);
    for (int s = 0; s < plan->step_count; s++) ops |= UINT64_C(1) << plan->steps[s].work.op;
    return ops;
}

/* Whether the job is for the class, its speed left aside. */
static bool suits(const struct http_placement_class *class, int number, uint64_t ops,
                  const struct blasd_plan *plan, uint64_t host_bytes) {
    if (!class->seen || (class->ops & ops) != ops || !fits(class, number, plan, host_bytes))
        return false;
    /* what would have to go through the device in slices is not for it, unless it is told to */
    return number != BLASD_DEVICE_CUDA || class->device_bytes == 0 ||
           (double)plan->device_bytes <= DEVICE_SHARE * (double)class->device_bytes;
}

enum blasd_device_class http_placement_best(const struct http_placement *placement,
                                            const struct blasd_queue_view *view,
                                            const struct blasd_op *op,
                                            const struct blasd_plan *plan, uint64_t host_bytes,
                                            int64_t now_ns, double *share_s) {
    enum blasd_device_class best = BLASD_DEVICE_ANY;
    double best_s = INFINITY;
    int possible = 0, known = 0;
    if (!http_placement_open(view) || !placement->known || blasd_op_position(op) < 0)
        return BLASD_DEVICE_ANY;
    for (int c = BLASD_DEVICE_CPU; c <= BLASD_DEVICE_CUDA; c++) {
        const struct http_placement_class *class = &placement->of[c];
        struct blasd_cost_guess guess = {.alone_s = INFINITY};
        int workers = view->workers_of[c];
        double end_s;
        if (!suits(class, c, ops_of(op, plan), plan, host_bytes)) continue;
        if (http_placement_predict(placement, (enum blasd_device_class)c, op, plan, &guess)) {
            if (placement->most_s > 0 && guess.alone_s > placement->most_s) continue;
            known++;
        }
        possible++;
        end_s = work_now(class, workers, now_ns) / (workers * class->rate) + guess.alone_s;
        if (best != BLASD_DEVICE_ANY && !(end_s < best_s)) continue;
        best = (enum blasd_device_class)c;
        best_s = end_s;
        *share_s = guess.share_s;
    }
    return possible == 0 || (possible > 1 && known < possible) ? BLASD_DEVICE_ANY : best;
}

enum blasd_device_class http_placement_pick(struct http_placement *placement,
                                            const struct blasd_queue_view *view,
                                            const struct blasd_op *op,
                                            const struct blasd_plan *plan, uint64_t host_bytes,
                                            int64_t now_ns) {
    double share_s = 0;
    enum blasd_device_class best =
        http_placement_best(placement, view, op, plan, host_bytes, now_ns, &share_s);
    if (best != BLASD_DEVICE_ANY)
        count_sent(&placement->of[best], view->workers_of[best], share_s, now_ns);
    return best;
}

void http_placement_sent(struct http_placement *placement, const struct blasd_queue_view *view,
                         enum blasd_device_class class, const struct blasd_op *op,
                         const struct blasd_plan *plan, int64_t now_ns) {
    struct http_placement_class *of = &placement->of[class];
    struct blasd_cost_guess guess;
    if (http_placement_predict(placement, class, op, plan, &guess))
        count_sent(of, view->workers_of[class], guess.share_s, now_ns);
}
