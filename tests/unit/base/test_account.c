/* Accounts that are part of one another. */
#include "base/account.h"
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_limits_hold_upwards(void **state) {
    struct blasd_account all = {.limit = 100}, a = {.limit = 75, .parent = &all},
                         b = {.limit = 75, .parent = &all};
    (void)state;
    assert_true(blasd_account_take(&a, 75) && !blasd_account_take(&a, 1));
    assert_true(blasd_account_take(&b, 25) && !blasd_account_take(&b, 1));
    assert_true(a.used == 75 && b.used == 25 && all.used == 100);
    blasd_account_give(&a, 10);
    assert_true(blasd_account_take(&b, 10) && !blasd_account_take(&b, UINT64_MAX));
    assert_true(a.used == 65 && b.used == 35 && all.used == 100);
    blasd_account_give(NULL, 7);
    assert_true(blasd_account_take(NULL, 7));
}

static void test_a_buffer_is_counted_as_it_grows(void **state) {
    struct blasd_account all = {.limit = 1000};
    struct blasd_buf buf;
    char bytes[600] = {0};
    (void)state;
    blasd_buf_init(&buf, 100000);
    buf.account = &all;
    assert_int_equal(blasd_buf_add(&buf, bytes, 600), 0);
    assert_int_equal(all.used, buf.cap);
    assert_int_equal(blasd_buf_add(&buf, bytes, 600), -1);
    assert_true(buf.len == 600 && all.used == buf.cap);
    blasd_buf_release(&buf);
    assert_int_equal(all.used, 0);
    assert_ptr_equal(buf.account, &all);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits_hold_upwards),
                                       cmocka_unit_test(test_a_buffer_is_counted_as_it_grows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
