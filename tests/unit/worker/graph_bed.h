/* A graph without a queue: from JSON to what its worker makes of it, on GRAPH_BACKEND. */
#ifndef BLASD_TESTS_GRAPH_BED_H
#define BLASD_TESTS_GRAPH_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define INTAKE_REAL_OPS
#include "tests/unit/wire/intake_support.h"

#include "core/graph.h"
#include "wire/frame_graph.h"
#include "worker/graph_run.h"

static struct blasd_device *device;

/* What a graph is run with, and what it was asked. */
struct bed {
    struct blasd_watch watch; /* must come first */
    int asked, most;          /* how often it may go on; -1: always */
    double progress;
    struct outcome sent;
    struct blasd_plan plan;
    struct blasd_task task;
    unsigned char *payload, *results, *report; /* owned */
    struct blasd_arena arena;
    struct blasd_err err;
    int code;
};

static bool on_go_on(struct blasd_watch *watch, double progress) {
    struct bed *bed = (struct bed *)(void *)watch;
    assert_true(progress >= bed->progress && progress <= 1.0000001);
    bed->progress = progress;
    return bed->most < 0 || bed->asked++ < bed->most;
}

static unsigned char *aligned(uint64_t bytes) {
    unsigned char *room = aligned_alloc(64, blasd_align_up(bytes) + 64);
    assert_non_null(room);
    memset(room, 0xa5, blasd_align_up(bytes) + 64);
    return room;
}

static struct bed run_on(const struct blasd_backend *backend, struct blasd_device *on,
                         const char *body, int most) {
    struct bed bed = {.watch = {.go_on = on_go_on}, .most = most};
    struct blasd_limits limits;
    const struct blasd_intake_options options = {
        .content_type = "application/json", .graph = true, .limits = &limits};
    blasd_limits_init(&limits);
    blasd_arena_init(&bed.arena, UINT64_C(1) << 30, UINT64_C(1) << 20);
    send_body(&options, body, strlen(body), WHOLE, &bed.sent);
    if (bed.sent.rc != 0) print_error("%s: %s\n", bed.sent.err.field, bed.sent.err.detail);
    assert_int_equal(bed.sent.rc, 0);
    assert_int_equal(blasd_job_plan(&bed.sent.job, &bed.plan, &bed.err), 0);
    bed.payload = aligned(bed.sent.memory.len);
    memcpy(bed.payload, bed.sent.memory.bytes, bed.sent.memory.len);
    bed.results = aligned(blasd_tensor_bytes(&bed.plan.outputs[BLASD_GRAPH_OUT_RESULTS]));
    bed.report = aligned(blasd_tensor_bytes(&bed.plan.outputs[BLASD_GRAPH_OUT_REPORT]));
    bed.task.job = &bed.sent.job;
    bed.task.plan = &bed.plan;
    bed.task.inputs[0] = bed.sent.job.inputs[0].tensor;
    bed.task.inputs[0].data = bed.payload;
    for (int i = 0; i < 2; i++) bed.task.outputs[i] = bed.plan.outputs[i];
    bed.task.outputs[BLASD_GRAPH_OUT_RESULTS].data = bed.results;
    bed.task.outputs[BLASD_GRAPH_OUT_REPORT].data = bed.report;
    bed.code = blasd_graph_run(backend, on, &bed.arena, &bed.task, &bed.watch, &bed.err);
    return bed;
}

static struct bed run(const char *body, int most) {
    return run_on(&GRAPH_BACKEND, device, body, most);
}

static void drop(struct bed *bed) {
    outcome_release(&bed->sent);
    free(bed->payload);
    free(bed->results);
    free(bed->report);
    blasd_arena_release(&bed->arena);
}

#define PRODUCT(a, b) "{\"op\":\"matmul\",\"inputs\":{\"a\":" a ",\"b\":" b "}}"
#define STEP(name) "{\"step\":\"" name "\"}"
#define INPUT(name) "{\"input\":\"" name "\"}"

#endif
