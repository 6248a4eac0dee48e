/* Spares: what is taken is zero whatever was in it, what was given back last comes first, and no
 * more are kept than asked for. */
#include "base/spares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SIZE 200
#define MOST 3

static void assert_zero(const unsigned char *memory) {
    for (int i = 0; i < SIZE; i++) assert_int_equal(memory[i], 0);
}

static void test_the_latest_comes_back_first_and_clean(void **state) {
    struct blasd_spares spares = {0};
    void *one = blasd_spares_take(&spares, SIZE), *other = blasd_spares_take(&spares, SIZE);
    (void)state;
    assert_non_null(one);
    assert_non_null(other);
    assert_zero(one);
    memset(one, 0xab, SIZE);
    memset(other, 0xcd, SIZE);
    blasd_spares_give(&spares, one, MOST);
    blasd_spares_give(&spares, other, MOST);
    assert_int_equal(spares.count, 2);
    assert_ptr_equal(blasd_spares_take(&spares, SIZE), other);
    assert_ptr_equal(blasd_spares_take(&spares, SIZE), one);
    assert_int_equal(spares.count, 0);
    assert_zero(one);
    assert_zero(other);
    blasd_spares_give(&spares, one, MOST);
    blasd_spares_give(&spares, other, MOST);
    blasd_spares_release(&spares);
    assert_null(spares.first);
    assert_int_equal(spares.count, 0);
}

static void test_no_more_are_kept_than_asked_for(void **state) {
    struct blasd_spares spares = {0};
    void *taken[2 * MOST];
    (void)state;
    for (int i = 0; i < 2 * MOST; i++) taken[i] = blasd_spares_take(&spares, SIZE);
    for (int i = 0; i < 2 * MOST; i++) blasd_spares_give(&spares, taken[i], MOST);
    assert_int_equal(spares.count, MOST);
    blasd_spares_release(&spares);
}

static void test_without_a_store_it_is_malloc(void **state) {
    void *memory = blasd_spares_take(NULL, SIZE);
    (void)state;
    assert_non_null(memory);
    assert_zero(memory);
    blasd_spares_give(NULL, memory, MOST); /* freed: the sanitizers would see it */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_latest_comes_back_first_and_clean),
        cmocka_unit_test(test_no_more_are_kept_than_asked_for),
        cmocka_unit_test(test_without_a_store_it_is_malloc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
