/* A graph on the CUDA backend, over the stand-in library: what steps make for each other stays on
 * the device, goes to the host where there is no room or the host has to look, and is gone in the
 * end, whatever fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern const struct blasd_backend blasd_backend;
#define GRAPH_BACKEND blasd_backend
#include "../worker/graph_bed.h"

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"
#include "tests/unit/kernels/quick.h"

#include <math.h>

#define N 24 /* of matrices */
#define BYTES ((int64_t)(N * N * sizeof(double)))

/* A matrix of small numbers, as JSON; those on the diagonal are large. */
static const char *matrix(const char *dtype, double scale, int seed) {
    static char rooms[4][N * N * 24];
    static int turn;
    char *text = rooms[turn++ % 4];
    size_t len = (size_t)sprintf(text, "{\"dtype\":\"%s\",\"data\":[", dtype);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            len += (size_t)sprintf(text + len, "%s%.17g%s", j == 0 ? (i == 0 ? "[" : ",[") : ",",
                                   scale * ((i * 7 + j * 3 + seed) % 5 + (i == j ? 3 * N : 1)),
                                   j == N - 1 ? "]" : "");
    sprintf(text + len, "]}");
    return text;
}

static void open_device(uint64_t most) {
    struct blasd_err err;
    blasd_cuda_sizes.cache_least = 1;
    blasd_cuda_sizes.cache_bytes = most;
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
}

static void close_device(void) {
    blasd_backend.device_close(device);
    assert_int_equal(blasd_standin.device_blocks + blasd_standin.host_blocks, 0);
    assert_int_equal(blasd_standin.device_bytes, 0);
    device = NULL;
}

static struct blasd_graph_report *report_of(const struct bed *bed) {
    const struct blasd_tensor *told = &bed->task.outputs[BLASD_GRAPH_OUT_REPORT];
    struct blasd_graph_report *report;
    struct blasd_err err;
    assert_int_equal(blasd_graph_report_read(bed->report, (size_t)told->shape[0],
                                             (uint64_t)bed->plan.outputs[0].shape[0], &report,
                                             &err),
                     0);
    return report;
}

static int step_at(const struct blasd_graph_report *report, const char *name) {
    for (int i = 0; i < report->step_count; i++)
        if (strcmp(report->steps[i].name, name) == 0) return i;
    fail_msg("no step %s", name);
    return -1;
}

/* The first step takes m, as often as it reads it; what follows is of what it made. */
static char *chain(const char *m) {
    static char body[1 << 16];
    sprintf(body,
            "{\"inputs\":{\"m\":%s},\"steps\":{"
            "\"a\":" PRODUCT(
                INPUT("m"),
                INPUT("m")) ","
                            "\"b\":" PRODUCT(
                                STEP("a"),
                                STEP("a")) ","
                                           "\"x\":{\"op\":\"solve\",\"inputs\":{"
                                           "\"a\":" STEP("a") ",\"b\":" STEP(
                                               "b") "}},"
                                                    "\"q\":{\"op\":\"qr\",\"inputs\":{"
                                                    "\"a\":" STEP("x") "}},"
                                                                       "\"d\":" PRODUCT(
                                                                           "{\"step\":\"q\","
                                                                           "\"output\":\"R\"}",
                                                                           STEP("x")) "},"
                                                                                      "\"results\""
                                                                                      ":[\"d\"]}",
            m);
    return body;
}

/* The same on the CPU. */
static double *right_of(const char *body, int64_t count) {
    struct blasd_device *cpu;
    struct blasd_err err;
    struct bed bed;
    double *kept = malloc((size_t)count * sizeof *kept);
    assert_non_null(kept);
    assert_int_equal(blasd_backend_cpu.device_open(0, &cpu, &err), 0);
    bed = run_on(&blasd_backend_cpu, cpu, body, -1);
    assert_int_equal(bed.code, 0);
    memcpy(kept, bed.results, (size_t)count * sizeof *kept);
    drop(&bed);
    blasd_backend_cpu.device_close(cpu);
    return kept;
}

static void expect_near(const void *got, const double *right, int64_t count) {
    const double *numbers = got;
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(numbers[i] - right[i]) <= 1e-8 * (1 + fabs(right[i]))))
            fail_msg("element %d: %g, not %g", (int)i, numbers[i], right[i]);
}

static void expect_gone(const struct bed *bed) {
    char ids[4][BLASD_ID_LEN + 1];
    (void)bed;
    assert_int_equal(blasd_backend.device_kept(device, ids, 4), 0);
    assert_int_equal(device->cache.count, 0);
    assert_int_equal(device->cache.bytes, 0);
}

/* A result that later steps read, too, stays there for them, and is on the host in the end. */
static void a_result_that_is_read_comes_back(void **state) {
    char *body = chain(matrix("float64", 1, 0)), *results = strstr(body, "[\"d\"]");
    double *right;
    struct bed bed;
    (void)state;
    strcpy(results, "[\"a\",\"d\"]}");
    right = right_of(body, 2 * N * N);
    open_device(0);
    bed = run(body, -1);
    assert_int_equal(bed.code, 0);
    expect_near(bed.results, right, 2 * N * N);
    expect_gone(&bed);
    drop(&bed);
    free(right);
    close_device();
}

static void what_steps_make_stays(void **state) {
    const char *body = chain(matrix("float64", 1, 0));
    double *right = right_of(body, N * N);
    struct blasd_graph_report *report;
    const struct blasd_graph_ran *ran;
    struct bed bed;
    (void)state;
    open_device(0);
    bed = run(body, -1);
    assert_int_equal(bed.code, 0);
    expect_near(bed.results, right, N * N);
    report = report_of(&bed);
    ran = report->steps;
    assert_true(ran[step_at(report, "a")].upload_bytes >= BYTES);
    assert_true(ran[step_at(report, "a")].upload_bytes < 2 * BYTES); /* m, and tables */
    assert_true(ran[step_at(report, "d")].download_bytes >= BYTES);
    for (int i = 0; i < report->step_count; i++) {
        if (strcmp(ran[i].name, "a") != 0) assert_true(ran[i].upload_bytes < BYTES);
        if (strcmp(ran[i].name, "d") != 0) assert_true(ran[i].download_bytes < BYTES);
        assert_int_equal(ran[i].timing.total_us, ran[i].timing.upload_us +
                                                     ran[i].timing.compute_us +
                                                     ran[i].timing.download_us);
    }
    expect_gone(&bed);
    free(report);
    drop(&bed);
    free(right);
    close_device();
}

/* A part is cut on the host: what it is of comes down, and goes up for those that read all of it.
 */
static void what_is_read_in_parts_comes_down(void **state) {
    static char body[1 << 16];
    static const char steps[] = "\"a\":" PRODUCT(INPUT("m"), INPUT("m")),
                      rows[] = "{\"step\":\"a\",\"slice\":[[1,9]]}",
                      columns[] = "{\"step\":\"a\",\"slice\":[[null,null],[3,5]]}";
    double *right;
    struct bed bed;
    (void)state;
    sprintf(body,
            "{\"inputs\":{\"m\":%s},\"steps\":{%s,\"b\":" PRODUCT("%s", "%s") ",\"c\":" PRODUCT(
                "%s", "%s") "},\"results\":[\"c\"]}",
            matrix("float64", 1, 0), steps, rows, STEP("a"), STEP("b"), columns);
    right = right_of(body, 8 * 2);
    open_device(0);
    bed = run(body, -1);
    assert_int_equal(bed.code, 0);
    expect_near(bed.results, right, 8 * 2);
    expect_gone(&bed);
    drop(&bed);
    free(right);
    close_device();
}

/* Of the decompositions, too. */
static void parts_of_matrices_stay(void **state) {
    static char body[1 << 16];
    struct blasd_graph_report *report;
    uint64_t down = 0;
    double *right;
    struct bed bed;
    (void)state;
    sprintf(body,
            "{\"inputs\":{\"m\":%s},\"steps\":{"
            "\"a\":{\"op\":\"matmul\",\"params\":{\"transpose_b\":true},"
            "\"inputs\":{\"a\":{\"input\":\"m\"},\"b\":{\"input\":\"m\"}}},"
            "\"l\":{\"op\":\"cholesky\",\"inputs\":{\"a\":{\"step\":\"a\"}}},"
            "\"v\":{\"op\":\"eigh\",\"inputs\":{\"a\":{\"step\":\"a\"}}},"
            "\"u\":{\"op\":\"svd\",\"inputs\":{\"a\":{\"step\":\"l\",\"output\":\"L\"}}},"
            "\"w\":{\"op\":\"matmul\",\"params\":{\"transpose_b\":true},\"inputs\":{"
            "\"a\":{\"step\":\"u\",\"output\":\"U\"},\"b\":{\"step\":\"u\",\"output\":\"U\"}}},"
            "\"x\":{\"op\":\"lstsq\",\"inputs\":{\"a\":{\"step\":\"l\",\"output\":\"L\"},"
            "\"b\":{\"step\":\"w\"}}},"
            "\"y\":{\"op\":\"matmul\",\"params\":{\"transpose_b\":true},\"inputs\":{"
            "\"a\":{\"step\":\"v\",\"output\":\"eigenvectors\"},"
            "\"b\":{\"step\":\"v\",\"output\":\"eigenvectors\"}}},"
            "\"d\":{\"op\":\"matmul\",\"inputs\":{\"a\":{\"step\":\"y\"},"
            "\"b\":{\"step\":\"x\",\"output\":\"x\"}}}},\"results\":[\"d\"]}",
            matrix("float64", 1, 7));
    right = right_of(body, N * N);
    open_device(0);
    bed = run(body, -1);
    if (bed.code != 0) fail_msg("%s: %s", bed.err.field, bed.err.detail);
    expect_near(bed.results, right, N * N);
    report = report_of(&bed);
    for (int i = 0; i < report->step_count; i++) down += report->steps[i].download_bytes;
    /* what lstsq takes, and d; not a, L, U, VH, x and eigenvectors */
    assert_true(down < 4 * BYTES);
    for (const char *const *name = (const char *const[]){"a", "u", "y", NULL}; *name != NULL;
         name++)
        assert_true(report->steps[step_at(report, *name)].download_bytes < BYTES);
    expect_gone(&bed);
    free(report);
    drop(&bed);
    free(right);
    close_device();
}

/* One that is refused says so on the host, and of a stack the others are right. */
static void what_is_refused_is_on_the_host(void **state) {
    static const char body[] =
        "{\"steps\":{\"l\":{\"op\":\"cholesky\",\"inputs\":{"
        "\"a\":[[[4,2],[2,5]],[[1,2],[2,1]],[[9,0],[0,1]]]}},"
        "\"c\":{\"op\":\"matmul\",\"inputs\":{\"a\":{\"step\":\"l\",\"output\":\"L\"},"
        "\"b\":[[1,0],[0,1]]}}},\"results\":[\"c\"]}";
    static const double right[] = {2, 0, 1, 2, NAN, NAN, NAN, NAN, 3, 0, 0, 1};
    struct bed bed;
    (void)state;
    open_device(0);
    bed = run(body, -1);
    if (bed.code != 0) fail_msg("%s: %s", bed.err.field, bed.err.detail);
    for (int i = 0; i < 12; i++) {
        double got;
        memcpy(&got, bed.results + (size_t)i * sizeof got, sizeof got);
        assert_true(isnan(right[i]) ? isnan(got) : got == right[i]);
    }
    expect_gone(&bed);
    drop(&bed);
    close_device();
}

/* Each is freed after the last step that reads it: the next one takes its memory. */
static void values_are_freed_after_their_last_use(void **state) {
    static char body[1 << 16];
    size_t len = (size_t)sprintf(
        body, "{\"inputs\":{\"m\":%s},\"steps\":{\"s0\":" PRODUCT(INPUT("m"), INPUT("m")),
        matrix("float64", 1e-2, 1));
    struct bed bed;
    uint64_t down;
    long before;
    (void)state;
    for (int i = 1; i < 40; i++)
        len += (size_t)sprintf(body + len,
                               ",\"s%d\":{\"op\":\"matmul\",\"inputs\":{\"a\":{\"step\":\"s%d\"},"
                               "\"b\":{\"input\":\"m\"}}}",
                               i, i - 1);
    sprintf(body + len, "}}");
    /* the matrix, and two values at a time */
    open_device((uint64_t)(3 * BYTES + BYTES / 2));
    before = blasd_standin.device_allocs;
    down = blasd_standin.bytes_down;
    bed = run(body, -1);
    assert_int_equal(bed.code, 0);
    assert_true(blasd_standin.device_allocs - before < 12);
    assert_true(blasd_standin.bytes_down - down < (uint64_t)(4 * BYTES));
    expect_gone(&bed);
    drop(&bed);
    close_device();
}

/* Less room than the values take: the oldest goes to the host, under use, and comes back. */
static void without_room_values_go_to_the_host(void **state) {
    const char *body = chain(matrix("float64", 1, 2));
    double *right = right_of(body, N * N);
    (void)state;
    for (int half = 1; half <= 16; half++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            struct bed bed;
            blasd_standin.seed = seed;
            open_device((uint64_t)(half * BYTES / 2));
            bed = run(body, -1);
            assert_int_equal(bed.code, 0);
            expect_near(bed.results, right, N * N);
            expect_gone(&bed);
            drop(&bed);
            close_device();
        }
    }
    blasd_standin.seed = 1;
    free(right);
}

/* One that no step reads for a while is the first to go, and goes up again when it is read. */
static void what_is_idle_makes_room(void **state) {
    static char body[1 << 16];
    struct blasd_graph_report *report;
    double *right;
    struct bed bed;
    (void)state;
    sprintf(body,
            "{\"inputs\":{\"m\":%s},\"steps\":{\"a\":" PRODUCT(
                INPUT("m"),
                INPUT("m")) ","
                            "\"b\":" PRODUCT(INPUT("m"), STEP("a")) ",\"c\":" PRODUCT(
                                STEP("b"),
                                STEP("b")) ","
                                           "\"d\":" PRODUCT(STEP("c"), STEP("c")) ",\"e\":" PRODUCT(
                                               STEP("d"), STEP("a")) "}}",
            matrix("float64", 1e-2, 6));
    right = right_of(body, N * N);
    open_device((uint64_t)(2 * BYTES + BYTES / 2));
    bed = run(body, -1);
    assert_int_equal(bed.code, 0);
    expect_near(bed.results, right, N * N);
    report = report_of(&bed);
    assert_true(report->steps[step_at(report, "a")].download_bytes < BYTES);
    assert_true(report->steps[step_at(report, "c")].download_bytes >= BYTES); /* a */
    assert_true(report->steps[step_at(report, "d")].upload_bytes < BYTES);
    assert_true(report->steps[step_at(report, "e")].upload_bytes >= BYTES); /* a again */
    expect_gone(&bed);
    free(report);
    drop(&bed);
    free(right);
    close_device();
}

/* Where the host has to look, or converts, it has the elements. */
static void the_host_gets_what_it_needs(void **state) {
    static char body[1 << 16];
    static const char *const dtypes[] = {"float64", "float32"};
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int scale = 0; scale < 2; scale++) {
            double *right;
            struct bed bed;
            sprintf(
                body,
                "{\"inputs\":{\"m\":%s},\"steps\":{"
                "\"a\":" PRODUCT(
                    INPUT("m"),
                    INPUT("m")) ","
                                "\"b\":{\"op\":\"matmul\",\"params\":{\"alpha\":0.5},\"inputs\":{"
                                "\"a\":" STEP("a") ",\"b\":" STEP(
                                    "a") "}},"
                                         "\"s\":{\"op\":\"svd\",\"inputs\":{\"a\":" STEP(
                                             "b") "}},"
                                                  "\"q\":{\"op\":\"qr\",\"inputs\":{\"a\":" STEP(
                                                      "b") "}},"
                                                           "\"w\":{\"op\":\"matmul\",\"inputs\":{"
                                                           "\"a\":{\"dtype\":\"float64\",\"data\":["
                                                           "[1]]},"
                                                           "\"b\":{\"step\":\"s\",\"output\":"
                                                           "\"residual\"}}}},"
                                                           "\"results\":[\"s.S\",\"a\"]}",
                matrix(dtypes[d], scale ? 1 : 1e-3, 3));
            /* a number is no operand of matmul */
            *strstr(body, ",\"w\":") = '\0';
            strcat(body, "},\"results\":[\"s.S\",\"a\"]}");
            if (d == 1) { /* float32 results: compared with themselves, without anything staying */
                open_device(1);
                bed = run(body, -1);
                assert_int_equal(bed.code, 0);
                right = malloc(16 * N * N);
                memcpy(right, bed.results, N * sizeof(float));
                drop(&bed);
                close_device();
                open_device(0);
                bed = run(body, -1);
                assert_memory_equal(bed.results, right, N * sizeof(float));
            } else {
                right = right_of(body, N);
                open_device(0);
                bed = run(body, -1);
                assert_int_equal(bed.code, 0);
                expect_near(bed.results, right, N);
            }
            expect_gone(&bed);
            drop(&bed);
            close_device();
            free(right);
        }
}

/* What a step makes is looked at there as it would be here. */
static void what_a_step_refuses(void **state) {
    static const struct {
        const char *first, *second, *field;
        enum blasd_code code;
    } cases[] = {
        {PRODUCT("[[1e200,1],[1,1]]", "[[1e200,0],[0,1]]"),
         "{\"op\":\"solve\",\"inputs\":{\"a\":" STEP("p") ",\"b\":[1,2]}}", "steps.x.inputs.a",
         BLASD_E_not_finite},
        {PRODUCT("[[1,1],[1,1]]", "[[1,0],[0,1]]"),
         "{\"op\":\"solve\",\"inputs\":{\"a\":" STEP("p") ",\"b\":[1,2]}}", "steps.x",
         BLASD_E_singular_matrix},
        {PRODUCT("[[-1],[1]]", "[1]"),
         "{\"op\":\"regression\",\"inputs\":{\"x\":[[1],[2]],\"y\":[1,2],\"sample_weight\":" STEP(
             "p") "}}",
         "steps.x.inputs.sample_weight", BLASD_E_out_of_range},
        {PRODUCT("[[0],[0]]", "[1]"),
         "{\"op\":\"regression\",\"inputs\":{\"x\":[[1],[2]],\"y\":[1,2],\"sample_weight\":" STEP(
             "p") "}}",
         "steps.x.inputs.sample_weight", BLASD_E_out_of_range},
    };
    char body[1024];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bed bed;
        snprintf(body, sizeof body, "{\"steps\":{\"p\":%s,\"x\":%s}}", cases[i].first,
                 cases[i].second);
        open_device(0);
        bed = run(body, -1);
        if (bed.err.code != cases[i].code) print_error("%d: %s\n", (int)i, bed.err.detail);
        assert_int_equal(bed.err.code, cases[i].code);
        assert_memory_equal(bed.err.field, cases[i].field, strlen(cases[i].field));
        expect_gone(&bed);
        drop(&bed);
        close_device();
    }
}

/* Cancelled at any step. */
static void a_graph_that_is_stopped_leaves_nothing(void **state) {
    const char *body = chain(matrix("float64", 1, 4));
    (void)state;
    open_device(0);
    for (int most = 0; most < 5; most++) {
        struct bed bed = run(body, most);
        if (bed.code != 0) assert_int_equal(bed.code, -(int)BLASD_E_cancelled);
        expect_gone(&bed);
        drop(&bed);
    }
    close_device();
}

/* At each call and at each allocation, with room for all values and for few. */
static void faults_at_each_place(void **state) {
    static const enum blasd_code codes[] = {BLASD_E_out_of_memory, BLASD_E_internal_error,
                                            BLASD_E_device_error, BLASD_OK};
    const char *body = chain(matrix("float64", 1, 5));
    double *right = right_of(body, N * N);
    (void)state;
    for (int room = 0; room < 2; room++)
        for (int c = 0; c < 4; c++) {
            bool met = true;
            int n = 1;
            for (; met && n < 3000; n += trial_step(9)) {
                struct bed bed;
                open_device(room == 0 ? 0 : (uint64_t)(2 * BYTES));
                if (codes[c] == BLASD_OK) {
                    blasd_standin.no_memory_at = n;
                } else {
                    blasd_standin.fail_code = codes[c];
                    blasd_standin.fail_at = n;
                }
                bed = run(body, -1);
                met = blasd_standin.fail_at == 0 && blasd_standin.no_memory_at == 0;
                if (bed.code == 0) {
                    expect_near(bed.results, right, N * N);
                } else {
                    assert_int_equal(bed.code, -(int)codes[c]);
                    assert_int_not_equal(codes[c], BLASD_OK); /* for a moment: no step's fault */
                }
                expect_gone(&bed);
                drop(&bed);
                blasd_standin_repair();
                close_device();
            }
            assert_true(n > (codes[c] == BLASD_OK ? 2 : 50) && n < 3000);
        }
    free(right);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_that_is_read_comes_back),
        cmocka_unit_test(what_steps_make_stays),
        cmocka_unit_test(what_is_read_in_parts_comes_down),
        cmocka_unit_test(parts_of_matrices_stay),
        cmocka_unit_test(what_is_refused_is_on_the_host),
        cmocka_unit_test(values_are_freed_after_their_last_use),
        cmocka_unit_test(without_room_values_go_to_the_host),
        cmocka_unit_test(what_is_idle_makes_room),
        cmocka_unit_test(the_host_gets_what_it_needs),
        cmocka_unit_test(what_a_step_refuses),
        cmocka_unit_test(a_graph_that_is_stopped_leaves_nothing),
        cmocka_unit_test(faults_at_each_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
