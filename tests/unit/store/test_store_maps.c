/* Mappings kept for the next time: which one is given out, how many stay, and for how long. */
#include "store/store_maps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/mman.h>

#define MIB (UINT64_C(1) << 20)

static struct store_map map_new(uint64_t inode, uint64_t bytes) {
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(data != MAP_FAILED);
    return (struct store_map){.data = data, .bytes = bytes, .inode = inode};
}

/* As if nobody had used any of them for so much longer. */
static void let_pass(struct store_maps *maps, int64_t ms) {
    for (int i = 0; i < maps->count; i++) maps->items[i].since_ns -= ms * INT64_C(1000000);
}

static void test_the_one_of_the_file_is_given_out_once(void **state) {
    struct store_maps maps;
    struct store_map map = map_new(7, MIB);
    (void)state;
    store_maps_init(&maps, 64 * MIB);
    store_maps_keep(&maps, map);
    assert_null(store_maps_take(&maps, 8, false, MIB).data);
    assert_null(store_maps_take(&maps, 7, true, MIB).data);
    assert_null(store_maps_take(&maps, 7, false, MIB + 1).data);
    assert_ptr_equal(store_maps_take(&maps, 7, false, MIB).data, map.data);
    assert_null(store_maps_take(&maps, 7, false, MIB).data);
    munmap(map.data, map.bytes);
    store_maps_release(&maps);
}

static void test_large_ones_go_soon_and_small_ones_later(void **state) {
    struct store_maps maps;
    (void)state;
    store_maps_init(&maps, 256 * MIB);
    store_maps_keep(&maps, map_new(1, 4 * MIB));
    store_maps_keep(&maps, map_new(2, 64 * MIB));
    store_maps_keep(&maps, map_new(3, 4 * MIB));
    store_maps_trim(&maps, false);
    assert_int_equal(maps.count, 3);
    let_pass(&maps, 5000);
    store_maps_trim(&maps, false);
    assert_int_equal(maps.count, 2);
    assert_int_equal(maps.bytes, 8 * MIB);
    assert_int_equal(maps.items[0].inode, 1);
    assert_int_equal(maps.items[1].inode, 3);
    let_pass(&maps, 60000);
    store_maps_trim(&maps, false);
    assert_int_equal(maps.count, 0);
    store_maps_release(&maps);
}

static void test_the_longest_idle_make_way(void **state) {
    struct store_maps maps;
    (void)state;
    store_maps_init(&maps, 10 * MIB);
    for (uint64_t inode = 1; inode <= 3; inode++) store_maps_keep(&maps, map_new(inode, 4 * MIB));
    assert_int_equal(maps.count, 2); /* in bytes */
    assert_int_equal(maps.items[0].inode, 2);
    store_maps_keep(&maps, map_new(4, 11 * MIB)); /* more than all may have */
    assert_int_equal(maps.count, 2);
    for (uint64_t inode = 0; inode < STORE_MAPS_MOST + 10; inode++)
        store_maps_keep(&maps, map_new(100 + inode, 4096));
    assert_int_equal(maps.count, STORE_MAPS_MOST);
    assert_int_equal(maps.items[0].inode, 110);
    store_maps_trim(&maps, true);
    assert_int_equal(maps.count, 0);
    assert_int_equal(maps.bytes, 0);
    store_maps_release(&maps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_one_of_the_file_is_given_out_once),
        cmocka_unit_test(test_large_ones_go_soon_and_small_ones_later),
        cmocka_unit_test(test_the_longest_idle_make_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
