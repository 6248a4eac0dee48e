/* Blocks that are kept: the last first, so many and no more, each with room for all its bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/spares.h"

#include <string.h>

static void the_last_comes_first(void **state) {
    struct blasd_spares spares = {.size = 100, .most = 2};
    void *a = blasd_spares_take(&spares), *b = blasd_spares_take(&spares);
    (void)state;
    assert_true(a != NULL && b != NULL && a != b);
    memset(a, 1, 100);
    memset(b, 2, 100);
    blasd_spares_give(&spares, a);
    blasd_spares_give(&spares, b);
    assert_int_equal(spares.count, 2);
    assert_ptr_equal(blasd_spares_take(&spares), b);
    assert_ptr_equal(blasd_spares_take(&spares), a);
    assert_int_equal(spares.count, 0);
    blasd_spares_give(&spares, a);
    blasd_spares_give(&spares, b);
    blasd_spares_release(&spares);
    assert_int_equal(spares.count, 0);
    assert_null(spares.first);
}

static void only_so_many_are_kept(void **state) {
    struct blasd_spares spares = {.size = sizeof(void *), .most = 3};
    void *blocks[10];
    (void)state;
    for (int i = 0; i < 10; i++) blocks[i] = blasd_spares_take(&spares);
    for (int i = 0; i < 10; i++) {
        blasd_spares_give(&spares, blocks[i]);
        assert_int_equal(spares.count, i < 3 ? i + 1 : 3);
    }
    for (int i = 2; i >= 0; i--) {
        void *block = blasd_spares_take(&spares);
        assert_ptr_equal(block, blocks[i]);
        blasd_spares_give(&spares, NULL); /* is nothing */
        assert_int_equal(spares.count, i);
        blocks[i] = block;
    }
    for (int i = 0; i < 3; i++) blasd_spares_give(&spares, blocks[i]);
    blasd_spares_release(&spares);
    blasd_spares_release(&spares); /* may be had twice */
}

static void zeroed_once_more(void **state) {
    struct blasd_spares spares = {.size = 64, .most = 1};
    const char zeros[64] = {0};
    char *block = blasd_spares_take_zeroed(&spares);
    (void)state;
    assert_memory_equal(block, zeros, 64);
    memset(block, 7, 64);
    blasd_spares_give(&spares, block);
    assert_ptr_equal(blasd_spares_take_zeroed(&spares), block);
    assert_memory_equal(block, zeros, 64);
    blasd_spares_give(&spares, block);
    blasd_spares_release(&spares);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_comes_first),
        cmocka_unit_test(only_so_many_are_kept),
        cmocka_unit_test(zeroed_once_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
