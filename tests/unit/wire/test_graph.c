/* Graphs on their way in, into bytes and out again: with the operations that there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define INTAKE_REAL_OPS
#include "tests/unit/wire/intake_support.h"

#include "core/graph.h"
#include "wire/frame_graph.h"

static struct blasd_limits limits;
static struct outcome last;

static void send_as(const char *type, const void *body, size_t len) {
    const struct blasd_intake_options options = {
        .content_type = type, .graph = true, .limits = &limits};
    outcome_release(&last);
    send_body(&options, body, len, WHOLE, &last);
}

static void send_graph(const char *body) {
    send_as("application/json", body, strlen(body));
}

static void expect_good(void) {
    if (last.rc != 0) print_error("%s: %s\n", last.err.field, last.err.detail);
    assert_int_equal(last.rc, 0);
}

static void expect_bad(const char *body, enum blasd_code code, const char *field) {
    send_graph(body);
    if (last.err.code != code || strcmp(last.err.field, field) != 0)
        print_error("%s\n: %s %s: %s\n", body, blasd_err_info(last.err.code)->name, last.err.field,
                    last.err.detail);
    assert_int_equal(last.rc, -(int)code);
    assert_int_equal(last.err.code, code);
    assert_string_equal(last.err.field, field);
}

/* The graph of the job that came out, read from its payload and planned. */
static void read_back(struct blasd_graph *graph) {
    uint64_t at = (uint64_t)last.job.params[BLASD_GRAPH_PROGRAM_AT].i;
    struct blasd_err err = {0};
    *graph = (struct blasd_graph){.program_at = at};
    assert_true(at % 64 == 0 && at <= last.memory.len);
    assert_int_equal(blasd_graph_decode(last.memory.bytes + at, last.memory.len - at, graph, &err),
                     0);
    assert_int_equal(blasd_graph_plan(graph, &err), 0);
}

#define PRODUCT(a, b) "{\"op\":\"matmul\",\"inputs\":{\"a\":" a ",\"b\":" b "}}"
#define STEP(name) "{\"step\":\"" name "\"}"
#define INPUT(name) "{\"input\":\"" name "\"}"

static void test_two_steps(void **state) {
    struct blasd_graph graph;
    (void)state;
    send_graph(
        "{\"steps\":{\"x\":{\"inputs\":{\"b\":[1,2],\"a\":{\"output\":\"c\",\"step\":\"c\"}},"
        "\"params\":{\"assume_a\":\"general\"},\"op\":\"solve\"},"
        "\"c\":" PRODUCT(
            "[[1,2],[3,4]]",
            INPUT("m")) "},"
                        "\"inputs\":{\"m\":[[1,0],[0,1]]},\"priority\":\"high\",\"deadline_ms\":7,"
                        "\"device\":\"cpu\",\"results\":[\"x\"]}");
    expect_good();
    assert_ptr_equal(last.job.op, &blasd_op_graph);
    assert_int_equal(last.job.priority, BLASD_PRIORITY_HIGH);
    assert_int_equal(last.job.deadline_ms, 7);
    assert_int_equal(last.job.device, BLASD_DEVICE_CPU);
    read_back(&graph);
    assert_int_equal(graph.step_count, 2);
    assert_string_equal(graph.steps[0]->name, "c"); /* behind what it reads from */
    assert_string_equal(graph.steps[1]->name, "x");
    assert_int_equal(graph.steps[1]->job.inputs[0].source.kind, BLASD_SOURCE_STEP);
    assert_int_equal(graph.steps[1]->job.inputs[0].source.step, 0);
    assert_int_equal(graph.steps[1]->job.inputs[0].tensor.shape[1], 2);
    assert_int_equal(blasd_graph_results(&graph), 1);
    assert_int_equal(blasd_graph_result(&graph, 0)->step, 1);
    /* the job says of the graph what its plan does */
    assert_int_equal(last.job.params[BLASD_GRAPH_RESULTS].i, graph.results_bytes);
    assert_int_equal(last.job.params[BLASD_GRAPH_REPORT].i, graph.report_bytes);
    assert_int_equal(blasd_graph_ops(&last.job), graph.ops);
    assert_int_equal(__builtin_popcountll(graph.ops), 2);
    blasd_graph_release(&graph);
}

/* A part of what a step makes: its shape, whatever stands first, and as stored the slice itself. */
static void test_parts(void **state) {
    struct blasd_graph graph;
    const struct blasd_input *rows, *columns;
    (void)state;
    send_graph("{\"steps\":{\"c\":" PRODUCT(
        "[[1,2],[3,4],[5,6]]",
        "[[1,0,2],[0,1,3]]") ","
                             "\"r\":" PRODUCT(
                                 "{\"slice\":[[1,null]],\"step\":\"c\"}",
                                 "{\"dtype\":\"float64\",\"output\":\"c\",\"step\":\"c\","
                                 "\"slice\":[[null,null],[0,1]]}") "}}");
    expect_good();
    read_back(&graph);
    rows = &graph.steps[1]->job.inputs[0];
    columns = &graph.steps[1]->job.inputs[1];
    assert_true(graph.values[0].in_parts && !graph.values[1].in_parts);
    assert_int_equal(rows->tensor.shape[0], 2);
    assert_int_equal(rows->tensor.shape[1], 3);
    assert_int_equal(columns->tensor.shape[0], 3);
    assert_int_equal(columns->tensor.shape[1], 1);
    assert_int_equal(rows->reference->sliced, 1);
    assert_true(rows->reference->from[0] == 1 && rows->reference->to[0] == BLASD_SLICE_OPEN);
    assert_int_equal(columns->reference->sliced, 2);
    assert_int_equal(columns->reference->to[1], 1);
    blasd_graph_release(&graph);
}

#define PART(slice) "{\"step\":\"c\",\"slice\":" slice "}"
#define OF_PART(part)                                                                              \
    "{\"steps\":{\"c\":" PRODUCT("[[1,2],[3,4]]", "[[1,0],[0,1]]") ",\"d\":" PRODUCT(part,         \
                                                                                     part) "}}"

static void test_parts_that_are_none(void **state) {
    (void)state;
    expect_bad(OF_PART(PART("[[0,3]]")), BLASD_E_invalid_reference, "steps.d.inputs.a");
    expect_bad(OF_PART(PART("[[1,0]]")), BLASD_E_invalid_reference, "steps.d.inputs.a");
    expect_bad(OF_PART(PART("[[0,1],[0,1],[0,1]]")), BLASD_E_invalid_reference, "steps.d.inputs.a");
    expect_bad(OF_PART(PART("[[-1,1]]")), BLASD_E_invalid_reference, "steps.d.inputs.a");
    expect_bad(OF_PART(PART("[0,1]")), BLASD_E_invalid_reference, "steps.d.inputs.a");
    expect_bad(OF_PART("{\"step\":\"c\",\"slice\":[],\"slice\":[]}"), BLASD_E_invalid_reference,
               "steps.d.inputs.a");
    expect_bad(OF_PART("{\"step\":\"c\",\"dtype\":\"float32\"}"), BLASD_E_invalid_reference,
               "steps.d.inputs.a");
    expect_bad(OF_PART("{\"step\":\"c\",\"dtype\":\"float\"}"), BLASD_E_unsupported_dtype,
               "steps.d.inputs.a");
    expect_bad("{\"inputs\":{\"m\":[[1,0],[0,1]]},\"steps\":{\"d\":" PRODUCT(
                   "{\"input\":\"m\",\"slice\":[[0,1]]}", "[[1]]") "}}",
               BLASD_E_invalid_reference, "steps.d.inputs.a");
}

static void test_bytes_of_data(void **state) {
    struct blasd_graph graph;
    const struct blasd_source *source;
    const double wanted[] = {1, 2, 3, 4};
    (void)state;
    send_graph("{\"steps\":{\"c\":" PRODUCT("[[1,2],[3,4]]",
                                            "{\"dtype\":\"float32\",\"data\":[[5],[6]]}") "}}");
    expect_good();
    read_back(&graph);
    source = &graph.steps[0]->job.inputs[0].source;
    assert_int_equal(source->kind, BLASD_SOURCE_PAYLOAD);
    assert_memory_equal(last.memory.bytes + source->offset, wanted, sizeof wanted);
    assert_int_equal(graph.steps[0]->job.inputs[1].tensor.dtype, BLASD_float32);
    assert_int_equal(blasd_graph_results(&graph), 1); /* what nobody reads */
    blasd_graph_release(&graph);
}

/* Values that are wanted at the same time lie apart; others share. */
static void test_memory(void **state) {
    struct blasd_graph graph;
    (void)state;
    send_graph("{\"inputs\":{\"m\":[[1,0],[0,1]]},\"results\":[\"e\"],\"steps\":{"
               "\"a\":" PRODUCT(
                   INPUT("m"),
                   INPUT("m")) ","
                               "\"b\":" PRODUCT(
                                   STEP("a"),
                                   INPUT("m")) ","
                                               "\"c\":" PRODUCT(
                                                   STEP("b"),
                                                   STEP("a")) ","
                                                              "\"d\":" PRODUCT(
                                                                  STEP("c"),
                                                                  INPUT("m")) ","
                                                                              "\"e\":" PRODUCT(
                                                                                  STEP("d"),
                                                                                  INPUT("m")) "}}");
    expect_good();
    read_back(&graph);
    assert_int_equal(graph.memory_bytes, 2 * 64 + 32); /* a, b and c while c is made */
    for (int i = 0; i < graph.value_count; i++)
        for (int j = i + 1; j < graph.value_count; j++) {
            const struct blasd_graph_value *one = &graph.values[i], *other = &graph.values[j];
            if (one->result < 0 && other->result < 0 && one->last_use >= other->step)
                assert_int_not_equal(one->offset, other->offset);
        }
    assert_int_equal(graph.steps[graph.widest]->name[0], 'c');
    assert_int_equal(graph.steps[4]->depth, 5);
    blasd_graph_release(&graph);
}

/* What a card does not move: values that are no results, and data that was sent for an earlier
 * step. */
static void test_what_stays(void **state) {
    struct blasd_graph graph;
    (void)state;
    send_graph("{\"inputs\":{\"m\":[[1,2],[3,4]]},\"steps\":{\"a\":" PRODUCT(
        INPUT("m"),
        INPUT("m")) ",\"b\":" PRODUCT(STEP("a"),
                                      INPUT(
                                          "m")) ",\"c\":" PRODUCT(STEP("b"),
                                                                  "[[5,6],[7,8]]") "},\"results\":["
                                                                                   "\"a\",\"c\"]}");
    expect_good();
    read_back(&graph);
    for (int s = 0; s < 3; s++) {
        static const double in[] = {32, 64, 32}, out[] = {0, 32, 0};
        assert_true(graph.steps[s]->cost.resident_in == in[s]);
        assert_true(graph.steps[s]->cost.resident_out == out[s]);
    }
    blasd_graph_release(&graph);
}

static void test_references_that_lead_nowhere(void **state) {
    (void)state;
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1]]", STEP("d")) "}}", BLASD_E_unknown_step,
               "steps.c.inputs.b");
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1]]", INPUT("d")) "}}", BLASD_E_unknown_input,
               "steps.c.inputs.b");
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1]]", "[[1]]") ",\"d\":" PRODUCT(
                   "{\"step\":\"c\",\"output\":\"x\"}", "[[1]]") "}}",
               BLASD_E_unknown_output, "steps.d.inputs.a");
    expect_bad("{\"steps\":{\"c\":" PRODUCT(STEP("c"), "[[1]]") "}}", BLASD_E_graph_cycle,
               "steps.c.inputs.a");
    expect_bad(
        "{\"steps\":{\"c\":" PRODUCT(STEP("d"), "[[1]]") ",\"d\":" PRODUCT("[[1]]", STEP("c")) "}}",
        BLASD_E_graph_cycle, "steps.d.inputs.b");
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1]]", "[[1]]") "},\"results\":[\"d\"]}",
               BLASD_E_unknown_step, "results");
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1]]", "[[1]]") "},\"results\":[\"c.d\"]}",
               BLASD_E_unknown_output, "results");
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1]]", "[[1]]") "},\"inputs\":{\"z\":1}}",
               BLASD_E_invalid_field, "inputs.z");
    /* an output that the step does not make as it is asked for */
    expect_bad(
        "{\"steps\":{\"s\":{\"op\":\"svd\",\"inputs\":{\"a\":[[1]]},\"params\":{\"compute_uv\":"
        "false}},\"c\":" PRODUCT("{\"step\":\"s\",\"output\":\"U\"}", "[[1]]") "}}",
        BLASD_E_unknown_output, "steps.c.inputs.a");
}

static void test_members(void **state) {
    (void)state;
    expect_bad("{}", BLASD_E_invalid_field, "steps");
    expect_bad("{\"steps\":{}}", BLASD_E_invalid_field, "steps");
    expect_bad("{\"steps\":[]}", BLASD_E_invalid_field, "steps");
    expect_bad("{\"op\":\"matmul\",\"steps\":{}}", BLASD_E_unknown_field, "op");
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1]]", "[[1]]") "},\"params\":{}}",
               BLASD_E_unknown_field, "params");
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1]]", "[[1]]") "},\"steps\":{}}",
               BLASD_E_invalid_field, "steps");
    expect_bad(
        "{\"steps\":{\"c\":" PRODUCT("[[1]]", "[[1]]") ",\"c\":" PRODUCT("[[1]]", "[[1]]") "}}",
        BLASD_E_invalid_field, "steps.c");
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1]]", "[[1]]") "},\"results\":[\"c\",\"c\"]}",
               BLASD_E_invalid_field, "results");
    expect_bad("{\"steps\":{\"\":" PRODUCT("[[1]]", "[[1]]") "}}", BLASD_E_invalid_field, "steps");
    expect_bad("{\"steps\":{\"c\":{\"op\":\"graph\"}}}", BLASD_E_unknown_operation, "steps.c.op");
    expect_bad("{\"steps\":{\"c\":{\"op\":\"matmul\",\"op\":\"matmul\"}}}", BLASD_E_invalid_field,
               "steps.c.op");
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1,2]]", "[[1]]") "}}", BLASD_E_shape_mismatch,
               "steps.c.inputs.b");
    expect_bad("{\"steps\":{\"c\":" PRODUCT("[[1", "[[1]]") "}}", BLASD_E_invalid_tensor,
               "steps.c.inputs.a[0][1]");
    expect_bad("{\"steps\":{\"c\":{\"op\":\"matmul\",\"params\":{\"alpha\":}}}}",
               BLASD_E_malformed_json, "steps.c");
}

/* Data that any step may read is looked at for what any input refuses. */
static void test_values_of_data(void **state) {
    static const char head[] =
        "{\"inputs\":{\"q\":[0,-1,1]},\"steps\":{\"r\":{\"op\":\"regression\","
        "\"inputs\":{\"x\":[[1],[2],[3]],\"y\":[1,2,3],\"sample_weight\":"
        "{\"input\":\"q\"}}}}}";
    (void)state;
    expect_bad(head, BLASD_E_out_of_range, "steps.r.inputs.sample_weight");
    expect_bad(
        "{\"inputs\":{\"q\":{\"full\":[3],\"value\":-1}},\"steps\":{\"r\":{\"op\":\"regression\","
        "\"inputs\":{\"x\":[[1],[2],[3]],\"y\":[1,2,3],\"sample_weight\":{\"input\":\"q\"}}}}}",
        BLASD_E_out_of_range, "steps.r.inputs.sample_weight");
    expect_bad(
        "{\"inputs\":{\"q\":[[\"NaN\"]]},\"steps\":{\"r\":{\"op\":\"solve\",\"inputs\":{\"a\":"
        "{\"input\":\"q\"},\"b\":[1]}}}}",
        BLASD_E_not_finite, "steps.r.inputs.a");
}

static void test_limits(void **state) {
    static const char three[] = "{\"steps\":{\"a\":" PRODUCT("[[1]]", "[[1]]") ",\"b\":" PRODUCT(
        STEP("a"), "[[1]]") ","
                            "\"c\":" PRODUCT(STEP("b"),
                                             "[[1]]") "},\"results\":[\"a\",\"b\",\"c\"]}";
    struct blasd_graph graph;
    (void)state;
    limits.graph_steps = limits.graph_depth = limits.graph_results = 3;
    send_graph(three);
    expect_good();
    limits.graph_steps = 2;
    expect_bad(three, BLASD_E_graph_too_large, "steps");
    limits.graph_steps = 3;
    limits.graph_depth = 2;
    expect_bad(three, BLASD_E_graph_too_large, "steps.c");
    limits.graph_depth = 3;
    limits.graph_results = 2;
    expect_bad(three, BLASD_E_graph_too_large, "results");
    limits.graph_results = 3;
    /* what it takes at its widest, and a byte less */
    send_graph(three);
    expect_good();
    read_back(&graph);
    limits.job_bytes = last.memory.len + graph.results_bytes + graph.report_bytes +
                       graph.memory_bytes + graph.workspace_bytes;
    send_graph(three);
    expect_good();
    limits.job_bytes--;
    expect_bad(three, BLASD_E_job_too_large, "steps.a");
    blasd_graph_release(&graph);
    blasd_limits_init(&limits);
}

/* As parts of a form, and as metadata, the members are texts. */
static void test_other_formats(void **state) {
    static const char form[] =
        "--B\r\nContent-Disposition: form-data; name=\"steps\"\r\n\r\n"
        " {\"c\":" PRODUCT("[[1]]", "[[2]]") "} \r\n"
                                             "--B\r\nContent-Disposition: form-data; "
                                             "name=\"results\"\r\n\r\n[\"c.c\"]\r\n--B--\r\n";
    static const char header[] =
        "{\"__metadata__\":{\"steps\":\"{\\\"c\\\":{\\\"op\\\":\\\"matmul\\\","
        "\\\"inputs\\\":{\\\"a\\\":{\\\"input\\\":\\\"m\\\"},\\\"b\\\":[[1]]}}}\"},"
        "\"m\":{\"dtype\":\"F64\",\"shape\":[1,1],\"data_offsets\":[0,8]}}";
    unsigned char body[sizeof header + 16] = {0};
    struct blasd_graph graph;
    (void)state;
    send_as("multipart/form-data; boundary=B", form, sizeof form - 1);
    expect_good();
    body[0] = sizeof header - 1;
    body[1] = (unsigned char)((sizeof header - 1) >> 8);
    memcpy(body + 8, header, sizeof header - 1);
    send_as("application/x-safetensors", body, sizeof header - 1 + 16);
    expect_good();
    read_back(&graph);
    assert_int_equal(graph.steps[0]->job.inputs[0].tensor.rank, 2);
    blasd_graph_release(&graph);
    /* where the body is used in place, steps have no place */
    memory_in_place = true;
    send_as("application/x-safetensors", body, sizeof header - 1 + 16);
    memory_in_place = false;
    assert_int_equal(last.err.code, BLASD_E_body_file_refused);
}

/* Every byte of a stored graph may be another one, and it may end anywhere. */
static void test_stored_graphs_that_are_damaged(void **state) {
    struct blasd_err err;
    uint64_t at;
    unsigned char *bytes;
    size_t len;
    (void)state;
    send_graph("{\"steps\":{\"a\":" PRODUCT("[[1]]", "[[1]]") ",\"b\":" PRODUCT(STEP("a"),
                                                                                STEP("a")) "}}");
    expect_good();
    at = (uint64_t)last.job.params[BLASD_GRAPH_PROGRAM_AT].i;
    len = (size_t)(last.memory.len - at);
    bytes = malloc(len);
    for (size_t i = 0; i < len; i++) {
        struct blasd_graph graph = {.program_at = at};
        assert_int_not_equal(blasd_graph_decode(last.memory.bytes + at, i, &graph, &err), 0);
        blasd_graph_release(&graph);
        for (unsigned flip = 1; flip < 256; flip <<= 1) {
            struct blasd_graph other = {.program_at = at};
            memcpy(bytes, last.memory.bytes + at, len);
            bytes[i] ^= (unsigned char)flip;
            if (blasd_graph_decode(bytes, len, &other, &err) == 0)
                (void)blasd_graph_plan(&other, &err);
            blasd_graph_release(&other);
        }
    }
    free(bytes);
}

static void test_reports(void **state) {
    struct blasd_graph_ran ran = {.name = "a",
                                  .op = "matmul",
                                  .timing = {.compute_us = 5},
                                  .upload_bytes = 7,
                                  .download_bytes = -1};
    const int64_t shape[] = {2, 1};
    struct blasd_tensor tensor = blasd_tensor_make(BLASD_float64, 2, shape);
    struct blasd_graph_report *report;
    struct blasd_buf out;
    struct blasd_err err = {0};
    (void)state;
    memcpy(ran.execution.method, "dgemm", 6);
    blasd_buf_init(&out, 4096);
    assert_int_equal(blasd_graph_report_begin(1, 1, &out, &err), 0);
    assert_int_equal(blasd_graph_report_step(&ran, &out, &err), 0);
    assert_int_equal(blasd_graph_report_result("a", "c", &tensor, 64, &out, &err), 0);
    assert_int_equal(blasd_graph_report_read(out.data, out.len, 80, &report, &err), 0);
    assert_int_equal(report->step_count, 1);
    assert_string_equal(report->ports[0].name, "a.c");
    assert_null(report->ports[1].name);
    assert_int_equal(report->outputs[0].offset, 64);
    assert_int_equal(report->steps[0].timing.compute_us, 5);
    assert_int_equal(report->steps[0].upload_bytes, 7);
    assert_int_equal(report->steps[0].download_bytes, -1);
    assert_string_equal(report->steps[0].execution.method, "dgemm");
    free(report);
    /* outside the results */
    assert_int_not_equal(blasd_graph_report_read(out.data, out.len, 79, &report, &err), 0);
    for (size_t i = 0; i < out.len; i++) {
        assert_int_not_equal(blasd_graph_report_read(out.data, i, 80, &report, &err), 0);
        out.data[i] = (char)~out.data[i];
        if (blasd_graph_report_read(out.data, out.len, 80, &report, &err) == 0) free(report);
        out.data[i] = (char)~out.data[i];
    }
    blasd_buf_release(&out);
}

/* Any order of the steps gives the same graph but for its own order, and every name its own. */
static void test_long_chains(void **state) {
    const int count = 1000;
    size_t room = 200000, len;
    char *body = malloc(room);
    struct blasd_graph graph;
    (void)state;
    len = (size_t)snprintf(body, room, "{\"results\":[\"s0\"],\"steps\":{");
    for (int i = 0; i < count; i++)
        len +=
            (size_t)snprintf(body + len, room - len,
                             "%s\"s%d\":{\"op\":\"matmul\",\"inputs\":{\"a\":%s%d%s,\"b\":[[1]]}}",
                             i == 0 ? "" : ",", i, i + 1 < count ? "{\"step\":\"s" : "[[", i + 1,
                             i + 1 < count ? "\"}" : "]]");
    snprintf(body + len, room - len, "}}");
    send_graph(body);
    expect_good();
    read_back(&graph);
    assert_string_equal(graph.steps[0]->name, "s999");
    assert_string_equal(graph.steps[999]->name, "s0");
    assert_int_equal(graph.steps[999]->depth, 1000);
    assert_int_equal(graph.memory_bytes, 64 + 8);
    blasd_graph_release(&graph);
    free(body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_steps),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_that_are_none),
        cmocka_unit_test(test_bytes_of_data),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_what_stays),
        cmocka_unit_test(test_references_that_lead_nowhere),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_values_of_data),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_other_formats),
        cmocka_unit_test(test_stored_graphs_that_are_damaged),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_long_chains),
    };
    int failed;
    blasd_limits_init(&limits);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    outcome_release(&last);
    return failed;
}
