/* What several queues tell, as one. */
#include "wire/stats_sum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static json_t *sum_of(const char *const *texts, int count) {
    size_t lens[4];
    struct blasd_buf out;
    json_t *sum;
    blasd_buf_init(&out, 65536);
    for (int i = 0; i < count; i++) lens[i] = strlen(texts[i]);
    assert_int_equal(blasd_stats_sum(texts, lens, count, &out), 0);
    sum = json_loadb(out.data, out.len, 0, NULL);
    assert_non_null(sum);
    blasd_buf_release(&out);
    return sum;
}

static void check(const char *const *texts, int count, const char *wanted) {
    json_t *sum = sum_of(texts, count), *should = json_loads(wanted, 0, NULL);
    assert_non_null(should);
    if (!json_equal(sum, should)) {
        char *is = json_dumps(sum, JSON_SORT_KEYS);
        fail_msg("it is %s", is);
    }
    json_decref(sum);
    json_decref(should);
}

static void test_numbers_are_added(void **state) {
    static const char *const texts[] = {
        "{\"totals\":{\"matmul "
        "succeeded\":3},\"queue\":{\"jobs\":2,\"cpu\":{\"high\":{\"queued\":1}}},"
        "\"webhooks\":1}",
        "{\"totals\":{\"matmul succeeded\":4,\"solve succeeded\":1},\"queue\":{\"jobs\":5,"
        "\"cpu\":{\"high\":{\"queued\":2,\"claimed\":1}}},\"webhooks\":0}"};
    (void)state;
    check(texts, 2,
          "{\"totals\":{\"matmul succeeded\":7,\"solve succeeded\":1},\"queue\":{\"jobs\":7,"
          "\"cpu\":{\"high\":{\"queued\":3,\"claimed\":1}}},\"webhooks\":1}");
}

static void test_the_longest_wait_is_that_of_all(void **state) {
    static const char *const texts[] = {"{\"cpu\":{\"low\":{\"queued\":1,\"oldest_us\":70}}}",
                                        "{\"cpu\":{\"low\":{\"queued\":1,\"oldest_us\":900}}}",
                                        "{\"cpu\":{\"low\":{\"queued\":0}}}"};
    (void)state;
    check(texts, 3, "{\"cpu\":{\"low\":{\"queued\":2,\"oldest_us\":900}}}");
}

static void test_a_worker_counts_once(void **state) {
    static const char *const texts[] = {
        "{\"workers\":{\"w\":{\"jobs\":9}},\"figures\":{\"w\":{\"a\":1}}}",
        "{\"workers\":{\"w\":{\"jobs\":9},\"v\":{\"jobs\":1}},\"figures\":{\"w\":{\"a\":1}}}"};
    (void)state;
    check(texts, 2,
          "{\"workers\":{\"w\":{\"jobs\":9},\"v\":{\"jobs\":1}},\"figures\":{\"w\":{\"a\":1}}}");
}

static void test_rows_of_one_hour_are_one(void **state) {
    static const char *const texts[] = {
        "{\"rows\":[{\"tenant\":\"t\",\"hour\":7,\"op\":\"solve\",\"jobs\":1,\"flops\":0.5}]}",
        "{\"rows\":{}}",
        ("{\"rows\":[{\"tenant\":\"u\",\"hour\":7,\"op\":\"solve\",\"jobs\":4,\"flops\":1.5},"
         "{\"tenant\":\"t\",\"hour\":7,\"op\":\"solve\",\"jobs\":2,\"flops\":0.25}]}")};
    (void)state;
    check(texts, 3,
          "{\"rows\":[{\"tenant\":\"t\",\"hour\":7,\"op\":\"solve\",\"jobs\":3,\"flops\":0.75},"
          "{\"tenant\":\"u\",\"hour\":7,\"op\":\"solve\",\"jobs\":4,\"flops\":1.5}]}");
}

static void test_what_is_no_document_is_refused(void **state) {
    static const char *const texts[] = {"{}", "{\"a\":"};
    static const size_t lens[] = {2, 5};
    struct blasd_buf out;
    (void)state;
    blasd_buf_init(&out, 4096);
    assert_int_equal(blasd_stats_sum(texts, lens, 2, &out), -1);
    blasd_buf_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_added),
        cmocka_unit_test(test_the_longest_wait_is_that_of_all),
        cmocka_unit_test(test_a_worker_counts_once),
        cmocka_unit_test(test_rows_of_one_hour_are_one),
        cmocka_unit_test(test_what_is_no_document_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
