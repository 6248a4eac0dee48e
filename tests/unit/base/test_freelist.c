/* Blocks that are kept: the last first, so many and no more, each with room for all its bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/freelist.h"

#include <string.h>

static void the_last_comes_first(void **state) {
    struct blasd_freelist freelist = {.size = 100, .most = 2};
    void *a = blasd_freelist_take(&freelist), *b = blasd_freelist_take(&freelist);
    (void)state;
    assert_true(a != NULL && b != NULL && a != b);
    memset(a, 1, 100);
    memset(b, 2, 100);
    blasd_freelist_give(&freelist, a);
    blasd_freelist_give(&freelist, b);
    assert_int_equal(freelist.count, 2);
    assert_ptr_equal(blasd_freelist_take(&freelist), b);
    assert_ptr_equal(blasd_freelist_take(&freelist), a);
    assert_int_equal(freelist.count, 0);
    blasd_freelist_give(&freelist, a);
    blasd_freelist_give(&freelist, b);
    blasd_freelist_release(&freelist);
    assert_int_equal(freelist.count, 0);
    assert_null(freelist.first);
}

static void only_so_many_are_kept(void **state) {
    struct blasd_freelist freelist = {.size = sizeof(void *), .most = 3};
    void *blocks[10];
    (void)state;
    for (int i = 0; i < 10; i++) blocks[i] = blasd_freelist_take(&freelist);
    for (int i = 0; i < 10; i++) {
        blasd_freelist_give(&freelist, blocks[i]);
        assert_int_equal(freelist.count, i < 3 ? i + 1 : 3);
    }
    for (int i = 2; i >= 0; i--) {
        void *block = blasd_freelist_take(&freelist);
        assert_ptr_equal(block, blocks[i]);
        blasd_freelist_give(&freelist, NULL); /* is nothing */
        assert_int_equal(freelist.count, i);
        blocks[i] = block;
    }
    for (int i = 0; i < 3; i++) blasd_freelist_give(&freelist, blocks[i]);
    blasd_freelist_release(&freelist);
    blasd_freelist_release(&freelist); /* may be had twice */
}

static void zeroed_once_more(void **state) {
    struct blasd_freelist freelist = {.size = 64, .most = 1};
    const char zeros[64] = {0};
    char *block = blasd_freelist_take_zeroed(&freelist);
    (void)state;
    assert_memory_equal(block, zeros, 64);
    memset(block, 7, 64);
    blasd_freelist_give(&freelist, block);
    assert_ptr_equal(blasd_freelist_take_zeroed(&freelist), block);
    assert_memory_equal(block, zeros, 64);
    blasd_freelist_give(&freelist, block);
    blasd_freelist_release(&freelist);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_comes_first),
        cmocka_unit_test(only_so_many_are_kept),
        cmocka_unit_test(zeroed_once_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
