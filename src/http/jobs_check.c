/* Whether a job that was read can be run and answered: its plan, its caller, the limits, what is
 * asked of its outputs; and where it goes. Read next: jobs_post.c, which asks. */
#include "core/graph.h"
#include "http/exchange.h"
#include "http/upload.h"

#include <inttypes.h>
#include <stdio.h>

static int check_kept(const struct blasd_job *job, const struct blasd_plan *plan,
                      struct blasd_err *err) {
    const struct blasd_keeping *keeping = blasd_job_keeping(job);
    for (int i = 0; job->op->outputs[i].name != NULL; i++) {
        const char *name = job->op->outputs[i].name;
        char field[BLASD_NAME_MAX + 8];
        if (!blasd_keeps(keeping, i) || plan->outputs[i].rank >= 0) continue;
        snprintf(field, sizeof field, "keep.%s", name);
        return blasd_fail(err, BLASD_E_invalid_field, field,
                          "this job does not make the output '%s'", name);
    }
    return 0;
}

static int check_array(const struct http_upload *upload, const struct blasd_job *job,
                       const struct blasd_plan *plan, struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    const struct blasd_keeping *keeping = blasd_job_keeping(job);
    int output = 0;
    bool sends;
    if (exchange->wanted.format != BLASD_FORMAT_NPY) return 0;
    while (job->op->outputs[output + 1].name != NULL &&
           (plan->outputs[output].rank < 0 || blasd_withholds(keeping, output)))
        output++;
    sends = plan->outputs[output].rank >= 0 && !blasd_withholds(keeping, output);
    if (sends && plan->outputs[output].dtype != BLASD_bfloat16) return 0;
    if (http_other_format(exchange)) return 0;
    return blasd_fail(err, BLASD_E_not_acceptable, "Accept",
                      sends ? "the output is bfloat16, which a .npy file cannot hold"
                            : "no output is sent that a .npy file could hold: name one in "
                              "results, or accept application/json");
}

#define RECORD_BYTES 1024 /* of a record, with what Redis spends on it */

static void predict(struct http_upload *upload, const struct blasd_job *job,
                    const struct blasd_plan *plan) {
    const struct blasd_keeping *keeping = blasd_job_keeping(job);
    upload->result = RECORD_BYTES;
    upload->made_bytes = upload->made = 0;
    for (int i = 0; job->op->outputs[i].name != NULL; i++) {
        uint64_t bytes;
        if (plan->outputs[i].rank < 0) continue;
        bytes = blasd_tensor_bytes(&plan->outputs[i]);
        if (!blasd_withholds(keeping, i)) upload->result += bytes;
        if (!blasd_keeps(keeping, i)) continue;
        upload->made_bytes += bytes;
        upload->made++;
    }
}

/* The class of devices that the job is queued for. */
static enum blasd_device_class choose_device(struct http_loop *loop, const struct blasd_job *job,
                                             const struct blasd_plan *plan, uint64_t memory) {
    const struct blasd_queue_view *view = blasd_front_queue_view(loop->queue);
    if (!http_placement_open(view)) return job->device;
    if (job->device == BLASD_DEVICE_ANY)
        return http_placement_pick(&loop->placement, view, job->op, plan, memory,
                                   blasd_loop_now(loop->loop));
    http_placement_sent(&loop->placement, view, job->device, job->op, plan,
                        blasd_loop_now(loop->loop));
    return job->device;
}

/* Jobs up to this size may share an entry of the queue: one worker does a whole entry of them in
 * some milliseconds, and moves few bytes for it. */
#define SMALL_FLOPS 1e6
#define SMALL_BYTES (64 * UINT64_C(1024))

static void choose_batch_key(struct http_upload *upload, const struct blasd_job *job,
                             const struct blasd_plan *plan, uint64_t cost) {
    bool plain =
        !blasd_job_refers(job) && blasd_job_keeping(job)->keep == 0 && upload->notify == NULL;
    upload->batch.small =
        plain && plan->batchable && plan->flops <= SMALL_FLOPS && cost <= SMALL_BYTES;
    if (upload->batch.small) upload->batch.key = plan->key;
}

/* Whether the caller may have it run, of a graph each of its steps. */
static int check_caller(const struct blasd_identity *caller, const struct blasd_job *job,
                        struct blasd_err *err) {
    uint64_t ops = blasd_graph_ops(job);
    int rc = 0;
    for (int i = 0; rc == 0 && ops >> i != 0; i++)
        if ((ops >> i & 1) != 0)
            rc = blasd_identity_check_job(caller, blasd_ops[i], job->priority, err);
    return rc;
}

int http_upload_check(struct http_upload *upload, const struct blasd_job *job,
                      struct http_checked *ret, struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    const struct blasd_limits *limits = exchange->home->server->limits;
    const struct blasd_plan *plan = &ret->plan;
    int rc = blasd_job_plan(job, &ret->plan, err);
    if (rc != 0) return rc;
    ret->plan.steps = upload->steps.of;
    ret->plan.step_count = upload->steps.count;
    if (__builtin_add_overflow(plan->input_bytes, plan->output_bytes, &ret->cost) ||
        __builtin_add_overflow(ret->cost, plan->workspace_bytes, &ret->memory))
        ret->memory = UINT64_MAX;
    if ((rc = check_caller(&exchange->caller, job, err)) != 0) return rc;
    if ((rc = check_kept(job, plan, err)) != 0) return rc;
    if (plan->items > (double)limits->job_items)
        return blasd_fail(err, BLASD_E_job_too_large, "inputs",
                          "its leading dimensions make %.0f problems, and a job may have %" PRIu64
                          " (limit job_items): send them in several jobs",
                          plan->items, limits->job_items);
    if (ret->memory > limits->job_bytes)
        return blasd_fail(err, BLASD_E_job_too_large, "",
                          "inputs, outputs and workspace come to %" PRIu64
                          " bytes, and a job may have %" PRIu64 " (limit job_bytes)",
                          ret->memory, limits->job_bytes);
    if (ret->cost >
        blasd_front_queue_view(http_queue(exchange))->bytes_limit) /* nor ever will it */
        return blasd_fail(err, BLASD_E_job_too_large, "",
                          "inputs and outputs come to %" PRIu64
                          " bytes, and the whole queue takes %" PRIu64 " (limit queue_bytes)",
                          ret->cost, blasd_front_queue_view(http_queue(exchange))->bytes_limit);
    rc = http_placement_check(&exchange->home->placement,
                              blasd_front_queue_view(http_queue(exchange)), job->device, plan,
                              ret->memory, err);
    if (rc == 0)
        rc = http_placement_check_time(&exchange->home->placement,
                                       blasd_front_queue_view(http_queue(exchange)), job->device,
                                       job->op, plan, ret->memory, exchange->caller.job_s, err);
    return rc == 0 ? check_array(upload, job, plan, err) : rc;
}

void http_upload_place(struct http_upload *upload, const struct blasd_job *job,
                       const struct http_checked *checked) {
    struct http_exchange *exchange = upload->exchange;
    const struct blasd_plan *plan = &checked->plan;
    /* inputs that lie there already make no room for outputs, nor do those for what is kept */
    bool apart = blasd_job_refers(job) || blasd_job_keeping(job)->keep != 0;
    upload->outputs =
        apart || plan->output_bytes > plan->input_bytes - plan->made_bytes ? plan->output_bytes : 0;
    predict(upload, job, plan);
    upload->device = choose_device(exchange->home, job, plan, checked->memory);
    upload->work_s = http_placement_work(&exchange->home->placement,
                                         blasd_front_queue_view(http_queue(exchange)),
                                         upload->device, job->op, plan);
    choose_batch_key(upload, job, plan, checked->cost);
}
