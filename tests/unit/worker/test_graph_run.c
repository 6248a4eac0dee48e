/* A graph on the CPU, without a queue: values, what a step may refuse, and being told to stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define INTAKE_REAL_OPS
#include "tests/unit/wire/intake_support.h"

#include "core/graph.h"
#include "core/parallel.h"
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

static struct bed run(const char *body, int most) {
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
    bed.code =
        blasd_graph_run(&blasd_backend_cpu, device, &bed.arena, &bed.task, &bed.watch, &bed.err);
    assert_false(blasd_parallel_in_series()); /* however it ended */
    return bed;
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

static void test_values_and_report(void **state) {
    struct blasd_graph_report *report;
    struct blasd_err err = {0};
    struct bed bed =
        run("{\"inputs\":{\"m\":{\"dtype\":\"int32\",\"data\":[[1,1],[0,1]]}},\"steps\":{"
            "\"a\":" PRODUCT(
                INPUT("m"),
                INPUT("m")) ","
                            "\"b\":" PRODUCT(
                                STEP("a"), STEP("a")) ","
                                                      "\"c\":" PRODUCT(
                                                          STEP("b"),
                                                          STEP("a")) "},\"results\":[\"c\",\"a\"]}",
            -1);
    const struct blasd_tensor *told = &bed.task.outputs[BLASD_GRAPH_OUT_REPORT];
    const double c[] = {1, 6, 0, 1}, a[] = {1, 2, 0, 1};
    (void)state;
    assert_int_equal(bed.code, 0);
    assert_int_equal(bed.task.err.code, BLASD_OK);
    assert_int_equal(blasd_graph_report_read(bed.report, (size_t)told->shape[0],
                                             (uint64_t)bed.plan.outputs[0].shape[0], &report, &err),
                     0);
    assert_int_equal(report->step_count, 3);
    assert_int_equal(report->output_count, 2);
    assert_string_equal(report->ports[0].name, "c.c");
    assert_memory_equal(bed.results + report->outputs[0].offset, c, sizeof c);
    assert_memory_equal(bed.results + report->outputs[1].offset, a, sizeof a);
    for (int i = 32; i < 64; i++) assert_int_equal(bed.results[i], 0); /* between two results */
    assert_true(report->steps[2].execution.method[0] != '\0');
    free(report);
    drop(&bed);
}

/* What the record of a graph that failed will say: the steps before number `at` were done. */
static void expect_told(const struct bed *bed, int at) {
    struct blasd_graph_report *report;
    struct blasd_err err;
    assert_non_null(bed->task.told);
    assert_int_equal(
        blasd_graph_report_read(bed->task.told, (size_t)bed->task.told_bytes, 0, &report, &err), 0);
    assert_int_equal(report->output_count, 0);
    assert_true(report->step_count > at);
    for (int i = 0; i < report->step_count; i++)
        assert_int_equal(report->steps[i].timing.total_us == BLASD_GRAPH_NOT_DONE, i >= at);
    free(report);
}

static void test_stops_between_steps(void **state) {
    static const char four[] = "{\"steps\":{\"a\":" PRODUCT(
        "[[1]]",
        "[[1]]") ","
                 "\"b\":" PRODUCT(STEP("a"),
                                  "[[1]]") ","
                                           "\"c\":" PRODUCT(STEP("b"),
                                                            "[[1]]") ","
                                                                     "\"d\":" PRODUCT(STEP("c"),
                                                                                      "[[1]]") "}}";
    struct bed bed = run(four, 2);
    (void)state;
    assert_int_equal(bed.code, -(int)BLASD_E_cancelled);
    assert_true(bed.progress < 0.9);
    expect_told(&bed, 2);
    drop(&bed);
    bed = run(four, -1);
    assert_int_equal(bed.code, 0);
    assert_true(bed.progress >= 0.74);
    assert_null(bed.task.told);
    drop(&bed);
}

static void expect_failure(const char *body, enum blasd_code code, const char *field) {
    struct bed bed = run(body, -1);
    if (bed.err.code != code) print_error("%s: %s\n", bed.err.field, bed.err.detail);
    assert_int_equal(bed.code, -(int)code);
    assert_int_equal(bed.err.code, code);
    assert_memory_equal(bed.err.field, field, strlen(field));
    expect_told(&bed, 1); /* the first step was good, the second failed */
    drop(&bed);
}

static void test_a_step_that_fails(void **state) {
    (void)state;
    expect_failure(
        "{\"steps\":{\"p\":" PRODUCT(
            "[[1,1],[1,1]]", "[[1,0],[0,1]]") ","
                                              "\"x\":{\"op\":\"solve\",\"inputs\":{\"a\":" STEP(
                                                  "p") ",\"b\":[1,2]}}}}",
        BLASD_E_singular_matrix, "steps.x");
    expect_failure("{\"steps\":{\"p\":" PRODUCT(
                       "[[1e200]]", "[[1e200]]") ","
                                                 "\"x\":{\"op\":\"solve\",\"inputs\":{\"a\":" STEP(
                                                     "p") ",\"b\":[1]}}}}",
                   BLASD_E_not_finite, "steps.x.inputs.a");
    expect_failure(
        "{\"steps\":{\"p\":" PRODUCT(
            "[[-1],[1]]",
            "[1]") ","
                   "\"r\":{\"op\":\"regression\",\"inputs\":{\"x\":[[1],[2]],\"y\":[1,2],"
                   "\"sample_weight\":" STEP("p") "}}}}",
        BLASD_E_out_of_range, "steps.r.inputs.sample_weight");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_report),
        cmocka_unit_test(test_stops_between_steps),
        cmocka_unit_test(test_a_step_that_fails),
    };
    struct blasd_err err;
    int failed;
    if (blasd_backend_cpu.device_open(0, &device, &err) != 0) return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    blasd_backend_cpu.device_close(device);
    return failed;
}
