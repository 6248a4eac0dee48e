/* Measured costs as JSON: what is written is read, and nothing else is taken for a cost. */
#include "base/err.h"
#include "wire/cost_text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void there_and_back(void **state) {
    struct blasd_cost cost = {.launch_s = 3e-6,
                              .flops_s = {1e9, 2e9},
                              .copy_bytes_s = 12.5e9,
                              .upload_bytes_s = 25e9},
                      read;
    char *text;
    (void)state;
    for (int i = 0; i < BLASD_COST_POINTS; i++) {
        assert_true(blasd_cost_add(&cost.curves[0][0], pow(10, i + 3), pow(10, i - 6), 5e-7));
        assert_true(blasd_cost_add(&cost.curves[3][1], i + 1, 1e-12 * (i + 1), 1e-12));
    }
    cost.early[1] = 0.125;
    text = blasd_cost_write(&cost);
    assert_non_null(text);
    assert_int_equal(blasd_cost_read(text, strlen(text), &read, NULL), 0);
    assert_true(read.early[1] == 0.125 && read.early[0] == 0);
    assert_true(fabs(read.copy_bytes_s - cost.copy_bytes_s) <= 1e-3 * cost.copy_bytes_s);
    assert_true(read.launch_s == cost.launch_s && read.flops_s[0] == 1e9 && read.flops_s[1] == 2e9);
    assert_true(read.upload_bytes_s == 25e9 && read.download_bytes_s == 0);
    for (int op = 0; op < BLASD_OPS_MOST; op++)
        for (int p = 0; p < BLASD_COST_PRECISIONS; p++) {
            const struct blasd_cost_curve *a = &cost.curves[op][p], *b = &read.curves[op][p];
            assert_int_equal(a->count, b->count);
            for (int i = 0; i < a->count; i++) {
                assert_true(fabs(a->points[i].flops - b->points[i].flops) <=
                            1e-5 * a->points[i].flops);
                assert_true(fabs(a->points[i].alone_s - b->points[i].alone_s) <=
                            1e-3 * a->points[i].alone_s);
                assert_true(fabs(a->points[i].each_s - b->points[i].each_s) <=
                            1e-3 * a->points[i].each_s);
            }
        }
    free(text);
}

/* The largest that can be must fit where it is published and kept. */
static void all_that_can_be_fits(void **state) {
    struct blasd_cost cost = {.copy_bytes_s = 12.3456789e9};
    char *text;
    (void)state;
    for (int op = 0; op < BLASD_OPS_MOST; op++) {
        cost.early[op] = 0.0123456789;
        for (int p = 0; p < BLASD_COST_PRECISIONS; p++)
            for (int i = 0; i < BLASD_COST_POINTS; i++)
                assert_true(blasd_cost_add(&cost.curves[op][p], 1.2345678e100 * (i + 1),
                                           1.23456789e-7 * (i + 1), 1.23456789e-9));
    }
    text = blasd_cost_write(&cost);
    assert_non_null(text);
    assert_true(strlen(text) <= BLASD_COST_TEXT_MOST);
    free(text);
}

#define WITH(points) "{\"copy_gbytes_s\":1,\"curves\":{\"matmul\":{\"float64\":" points "}}}"

static void what_is_refused(void **state) {
    static const char *const bad[] = {
        "",
        "[]",
        "null",
        "{",
        "{}",
        "{\"copy_gbytes_s\":1}",
        "{\"copy_gbytes_s\":0,\"curves\":{}}",
        "{\"copy_gbytes_s\":-1,\"curves\":{}}",
        "{\"copy_gbytes_s\":1e300,\"curves\":{}}",
        "{\"copy_gbytes_s\":\"1\",\"curves\":{}}",
        "{\"copy_gbytes_s\":1,\"curves\":[]}",
        "{\"copy_gbytes_s\":1,\"upload_gbytes_s\":-1,\"curves\":{}}",
        "{\"copy_gbytes_s\":1,\"download_gbytes_s\":\"fast\",\"curves\":{}}",
        "{\"copy_gbytes_s\":1,\"curves\":{},\"ends_early\":{\"matmul\":0}}",
        "{\"copy_gbytes_s\":1,\"curves\":{},\"ends_early\":{\"matmul\":1.5}}",
        "{\"copy_gbytes_s\":1,\"curves\":{},\"ends_early\":{\"matmul\":\"1\"}}",
        WITH("[[1,1]]"),
        WITH("[[1,1,1,1]]"),
        WITH("[[1,1,\"1\"]]"),
        WITH("[1]"),
        WITH("[[0,1,1]]"),
        WITH("[[1,-1,1]]"),
        WITH("[[1,1,0]]"),
        WITH("[[2,1,1],[1,1,1]]"),
        WITH("[[1,1e300,1]]"),
        WITH("[[1,1,1],[2,1,1],[3,1,1],[4,1,1],[5,1,1],[6,1,1],[7,1,1],[8,1,1],[9,1,1],[10,1,1],"
             "[11,1,1],[12,1,1],[13,1,1],"
             "[14,1,1],[15,1,1],[16,1,1],[17,1,1]]"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct blasd_cost cost, zero = {0};
        struct blasd_err err = {0};
        memset(&cost, 1, sizeof cost);
        if (blasd_cost_read(bad[i], strlen(bad[i]), &cost, &err) == 0) fail_msg("%s", bad[i]);
        assert_int_equal(err.code, BLASD_E_malformed_json);
        assert_memory_equal(&cost, &zero, sizeof cost);
    }
}

static void what_is_passed_over(void **state) {
    static const char text[] =
        "{\"copy_gbytes_s\":2,\"later\":[1],\"curves\":{\"fft\":{\"float64\":"
        "[[1,1,1]]},\"matmul\":{\"float8\":[[1,1,1]],\"float32\":[]}}}";
    struct blasd_cost cost;
    (void)state;
    assert_int_equal(blasd_cost_read(text, sizeof text - 1, &cost, NULL), 0);
    assert_true(cost.copy_bytes_s == 2e9);
    assert_true(blasd_cost_known(&cost)); /* what is not there is as usual */
    assert_int_equal(cost.curves[0][0].count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(all_that_can_be_fits),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(what_is_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
