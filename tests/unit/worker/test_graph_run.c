/* A graph on the CPU, without a queue: values, what a step may refuse, and being told to stop. */
#define GRAPH_BACKEND blasd_backend_cpu
#include "graph_bed.h"

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

/* Appends a step, the product of the two. */
static void add_product(char *body, const char *name, const char *a, const char *b) {
    sprintf(body + strlen(body), "%s\"%s\":" PRODUCT("%s", "%s"),
            body[strlen(body) - 1] == '{' ? "" : ",", name, a, b);
}

/* Appends one that is the part of c that the slice means, for it has `columns` columns. */
static void add_part(char *body, const char *name, const char *slice, int columns) {
    char part[64], eye[16];
    sprintf(part, "{\"step\":\"c\",\"slice\":%s}", slice);
    sprintf(eye, "{\"eye\":%d}", columns);
    add_product(body, name, part, eye);
}

/* Rows where they lie and from where no tensor may begin, columns, and nothing of it. */
static void test_parts_of_values(void **state) {
    static const double odd[] = {11, 12, 13, 14, 15}, columns[] = {6, 7, 14, 15, 22, 23};
    char body[2048] = "{\"steps\":{";
    const double *results;
    struct bed bed;
    (void)state;
    add_product(body, "c", "[[0,1,2,3,4,5,6,7],[8,9,10,11,12,13,14,15],[16,17,18,19,20,21,22,23]]",
                "{\"eye\":8}");
    add_part(body, "rows", "[[1,3]]", 8);
    add_part(body, "odd", "[[1,2],[3,8]]", 5);
    add_part(body, "columns", "[[null,null],[6,null]]", 2);
    add_part(body, "none", "[[2,2]]", 8);
    add_part(body, "all", "[[null,null]]", 8);
    strcat(body, "},\"results\":[\"rows\",\"odd\",\"columns\",\"none\",\"all\"]}");
    bed = run(body, -1);
    results = (const double *)(void *)bed.results;
    assert_int_equal(bed.code, 0);
    for (int i = 0; i < 16; i++) assert_true(results[i] == 8 + i);
    assert_memory_equal(results + 16, odd, sizeof odd);
    assert_memory_equal(results + 24, columns, sizeof columns);
    for (int i = 0; i < 24; i++) assert_true(results[32 + i] == i);
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
        cmocka_unit_test(test_parts_of_values),
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
