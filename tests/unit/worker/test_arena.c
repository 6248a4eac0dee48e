/* The arena: alignment, reuse, its cap. */
#include "worker/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static void test_pieces_are_aligned_and_apart(void **state) {
    struct blasd_arena arena;
    unsigned char *pieces[50];
    (void)state;
    blasd_arena_init(&arena, 64 * MIB, 64 * MIB);
    for (int i = 0; i < 50; i++) {
        uint64_t bytes = (uint64_t)i * 7919;
        pieces[i] = blasd_arena_take(&arena, bytes);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 64, 0);
        memset(pieces[i], i, bytes);
    }
    for (int i = 0; i < 50; i++)
        for (uint64_t n = 0; n < (uint64_t)i * 7919; n++) assert_int_equal(pieces[i][n], i);
    blasd_arena_release(&arena);
}

static void test_memory_is_used_again(void **state) {
    struct blasd_arena arena;
    void *first;
    (void)state;
    blasd_arena_init(&arena, 64 * MIB, 64 * MIB);
    for (int i = 0; i < 8; i++) assert_non_null(blasd_arena_take(&arena, MIB)); /* many blocks */
    blasd_arena_reset(&arena);
    first = blasd_arena_take(&arena, MIB); /* one that holds them all */
    for (int i = 1; i < 8; i++) assert_non_null(blasd_arena_take(&arena, MIB));
    blasd_arena_reset(&arena);
    assert_ptr_equal(blasd_arena_take(&arena, MIB), first);
    blasd_arena_release(&arena);
}

static void test_cap(void **state) {
    struct blasd_arena arena;
    (void)state;
    blasd_arena_init(&arena, 4 * MIB, MIB);
    assert_non_null(blasd_arena_take(&arena, 3 * MIB));
    assert_null(blasd_arena_take(&arena, 2 * MIB));
    assert_null(blasd_arena_take(&arena, UINT64_MAX));
    assert_null(blasd_arena_take(&arena, UINT64_MAX - 62));
    assert_non_null(blasd_arena_take(&arena, MIB));
    assert_non_null(blasd_arena_take(&arena, 0));
    blasd_arena_reset(&arena);
    assert_non_null(blasd_arena_take(&arena, 4 * MIB));
    blasd_arena_release(&arena);
}

static void test_what_came_behind_a_mark_is_taken_back(void **state) {
    struct blasd_arena arena;
    struct blasd_arena_mark mark;
    unsigned char *kept, *next;
    (void)state;
    blasd_arena_init(&arena, 8 * MIB, MIB);
    mark = blasd_arena_mark(&arena); /* of an empty one */
    assert_non_null(blasd_arena_take(&arena, 64));
    blasd_arena_rewind(&arena, &mark);
    assert_int_equal(arena.used, 0);
    kept = blasd_arena_take(&arena, 64);
    mark = blasd_arena_mark(&arena);
    next = blasd_arena_take(&arena, 64);
    memset(kept, 7, 64);
    for (int i = 0; i < 100; i++) { /* in the block, and in others */
        blasd_arena_rewind(&arena, &mark);
        assert_int_equal(arena.used, 64);
        assert_ptr_equal(blasd_arena_take(&arena, 64), next);
        assert_non_null(blasd_arena_take(&arena, 3 * MIB));
        assert_non_null(blasd_arena_take(&arena, 3 * MIB));
    }
    for (int i = 0; i < 64; i++) assert_int_equal(kept[i], 7);
    blasd_arena_release(&arena);
}

/* Linux would promise it. */
static void test_more_than_the_machine_has(void **state) {
    struct blasd_arena arena;
    (void)state;
    blasd_arena_init(&arena, UINT64_C(1) << 50, MIB);
    assert_null(blasd_arena_take(&arena, UINT64_C(1) << 45));
    blasd_arena_release(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_are_aligned_and_apart),
        cmocka_unit_test(test_memory_is_used_again),
        cmocka_unit_test(test_cap),
        cmocka_unit_test(test_what_came_behind_a_mark_is_taken_back),
        cmocka_unit_test(test_more_than_the_machine_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
