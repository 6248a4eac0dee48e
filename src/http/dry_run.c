/* The document of a job that is not run. */
#include "http/dry_run.h"

#include "base/clock.h"
#include "http/jobs.h"
#include "http/reply.h"
#include "http/upload.h"
#include "wire/document.h"
#include "wire/stats_load.h"

#include <math.h>
#include <stdlib.h>

#define DOCUMENT_MOST BLASD_MIB

/* What is asked about, until the queue has answered. */
struct dry_run {
    struct http_exchange *exchange;
    const struct blasd_op *op;
    enum blasd_device_class device; /* that the job asks for */
    struct blasd_plan plan;         /* whose steps are the exchange's */
    uint64_t host_bytes;
};

/* Where the job would go, and the reason (static). */
struct outlook {
    enum blasd_device_class device;
    const char *why;
    double queue_s, upload_s, compute_s, download_s; /* NaN: not known */
    double device_s;                                 /* the last three together */
};

static void choose(const struct dry_run *run, struct outlook *ret) {
    struct http_loop *loop = run->exchange->home;
    const struct blasd_queue_view *view = blasd_front_queue_view(loop->queue);
    bool cpu = view->workers_of[BLASD_DEVICE_CPU] > 0,
         cuda = view->workers_of[BLASD_DEVICE_CUDA] > 0;
    ret->device = run->device;
    if (run->device != BLASD_DEVICE_ANY) {
        ret->why = view->workers_of[run->device] > 0
                       ? "the job asks for it"
                       : "the job asks for it, but no worker of that class is running now";
    } else if (!cpu && !cuda) {
        ret->why = "no worker is alive: the first to come would take it";
    } else if (cpu != cuda) {
        ret->device = cpu ? BLASD_DEVICE_CPU : BLASD_DEVICE_CUDA;
        ret->why = "the only class of devices that is alive";
    } else {
        double ignored;
        ret->device = http_placement_best(&loop->placement, view, run->op, &run->plan,
                                          run->host_bytes, blasd_clock_ns(), &ignored);
        ret->why = ret->device == BLASD_DEVICE_ANY
                       ? "too little is known of the devices: the first that is free would take it"
                       : "predicted to end first there, of the devices that can take it";
    }
}

static double own_jobs(const json_t *stats, enum blasd_device_class class_id) {
    const json_t *own = json_object_get(stats, "own");
    return json_number_value(json_object_get(own, blasd_device_class_names[class_id]));
}

/* What waits for the class and runs there, shared by its workers. One of several tenants is told of
 * its own jobs alone, as if each were like this one (`job_s`): the sum, and what jobs take as a
 * rule, would tell how many others have, and how long theirs are. */
static double queue_of(const struct dry_run *run, const json_t *stats, enum blasd_device_class at,
                       int workers, double job_s) {
    const json_t *queue = json_object_get(stats, "queue");
    double jobs = own_jobs(stats, at) + own_jobs(stats, BLASD_DEVICE_ANY);
    if (!http_sees_all(run->exchange)) return jobs > 0 ? jobs * job_s / workers : 0;
    return (http_placement_waits_s(queue, at) + http_placement_waits_s(queue, BLASD_DEVICE_ANY)) /
           workers;
}

/* The queue, and the job by itself. */
static void predict(const struct dry_run *run, const json_t *stats, struct outlook *ret) {
    const struct http_loop *loop = run->exchange->home;
    int workers = blasd_front_queue_view(loop->queue)->workers_of[ret->device];
    struct blasd_cost_guess guess;
    bool known;
    ret->queue_s = ret->upload_s = ret->compute_s = ret->download_s = ret->device_s = NAN;
    if (ret->device == BLASD_DEVICE_ANY || workers <= 0) return;
    known = http_placement_predict(&loop->placement, ret->device, run->op, &run->plan, &guess);
    ret->queue_s =
        queue_of(run, stats, ret->device, workers, known ? guess.alone_s : BLASD_COST_JOB_S);
    if (!known) return;
    ret->device_s = guess.alone_s;
    ret->upload_s = guess.upload_s;
    ret->download_s = guess.download_s;
    ret->compute_s = guess.alone_s - guess.upload_s - guess.download_s;
}

static void put_ms(struct json_out *out, const char *name, double seconds) {
    json_out_put(out, "\"%r\":", name);
    if (isfinite(seconds))
        json_out_put(out, "%f", seconds * 1e3);
    else
        json_out_put(out, "null");
}

static void put_outputs(struct json_out *out, const struct dry_run *run) {
    const char *comma = "";
    json_out_put(out, "\"outputs\":{");
    if (run->op->composed) {
        const struct blasd_buf *results = &run->exchange->upload->steps.results;
        json_out_raw(out, results->data, results->len);
    }
    for (int i = 0; run->op->outputs[i].name != NULL && !run->op->composed; i++) {
        if (run->plan.outputs[i].rank < 0) continue;
        json_out_put(out, "%r", comma);
        document_planned(out, run->op->outputs[i].name, &run->plan.outputs[i]);
        comma = ",";
    }
    json_out_put(out, "}");
}

static void put_cost(struct json_out *out, const struct dry_run *run,
                     const struct outlook *outlook) {
    const struct blasd_prices *prices = run->exchange->home->server->options->prices;
    struct blasd_usage usage = {.device = outlook->device, .device_s = outlook->device_s};
    if (prices != NULL && isfinite(outlook->device_s))
        document_cost(out, prices, &usage);
    else
        json_out_put(out, "\"cost\":null");
}

static void answer(const struct dry_run *run, const json_t *stats) {
    const struct blasd_plan *plan = &run->plan;
    struct outlook outlook;
    struct blasd_buf body;
    struct json_out out = {.buf = &body};
    blasd_buf_init(&body, DOCUMENT_MOST);
    choose(run, &outlook);
    predict(run, stats, &outlook);
    json_out_put(&out, "{\"op\":%s,\"flops\":%f,\"bytes\":%u,\"peak_bytes\":%u,", run->op->name,
                 plan->flops, plan->input_bytes + plan->output_bytes, run->host_bytes);
    if (outlook.device == BLASD_DEVICE_CUDA)
        json_out_put(&out, "\"device_bytes\":%u,", plan->device_bytes);
    put_outputs(&out, run);
    json_out_put(&out, ",\"device\":%s,\"why\":%s,\"predicted\":{",
                 outlook.device == BLASD_DEVICE_ANY ? "auto"
                                                    : blasd_device_class_names[outlook.device],
                 outlook.why);
    put_ms(&out, "queue_ms", outlook.queue_s);
    json_out_put(&out, ",");
    put_ms(&out, "upload_ms", outlook.upload_s);
    json_out_put(&out, ",");
    put_ms(&out, "compute_ms", outlook.compute_s);
    json_out_put(&out, ",");
    put_ms(&out, "download_ms", outlook.download_s);
    json_out_put(&out, "},");
    put_cost(&out, run, &outlook);
    json_out_put(&out, "}");
    if (out.failed) {
        blasd_buf_release(&body);
        http_reply_fail(run->exchange, BLASD_E_no_space, "", "memory has run out");
    } else {
        http_reply(run->exchange, 200, HTTP_TYPE_JSON, NULL, http_buf(&body));
    }
}

static void on_stats(void *arg, const struct blasd_err *err, const char *text, size_t len) {
    struct dry_run *run = arg;
    struct http_exchange *exchange = run->exchange;
    if (http_exchange_open(exchange)) {
        json_t *stats = err == NULL ? blasd_stats_load(text, len) : NULL;
        struct http_loop *loop = exchange->home;
        /* where there is something to choose it is looked each second anyway */
        if (err == NULL &&
            (!loop->placement.known || !http_placement_open(blasd_front_queue_view(loop->queue))))
            http_placement_heard(loop, text, len);
        if (err != NULL)
            http_reply_problem(exchange, err);
        else
            answer(run, stats);
        json_decref(stats);
    }
    free(run);
    http_exchange_release(exchange);
}

int http_dry_run(struct http_exchange *exchange, const struct blasd_job *job,
                 const struct blasd_plan *plan, uint64_t host_bytes, struct blasd_err *err) {
    struct dry_run *run = malloc(sizeof *run);
    if (run == NULL) return blasd_no_memory(err);
    *run = (struct dry_run){exchange, job->op, job->device, *plan, host_bytes};
    http_exchange_hold(exchange);
    blasd_front_queue_figures(
        http_queue(exchange),
        &(struct blasd_figures_query){.of = BLASD_FIGURES_METRICS,
                                      .tenant = exchange->caller.principal.tenant},
        on_stats, run);
    return 0;
}
