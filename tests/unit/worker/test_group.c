/* Which items run together: what a kernel takes together, those of one shape side by side in it. */
#include "base/limits.h"
#include "worker/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ITEMS 30

/* Item i has shape i % shapes, and may run with those of its batch key i % keys. */
static void make_items(struct blasd_item *items, const struct blasd_claim *claim, int shapes,
                       int keys) {
    for (int i = 0; i < ITEMS; i++) {
        items[i] = (struct blasd_item){.claim = claim};
        items[i].plan.batchable = true;
        items[i].plan.flops = 1;
        blasd_key_add_int(&items[i].plan.key, i % shapes);
        blasd_key_add_int(&items[i].batch_key, i % keys);
    }
}

static void shapes_stand_side_by_side(void **state) {
    static struct blasd_item items[ITEMS];
    static const struct blasd_claim claim;
    struct blasd_grouping grouping;
    struct blasd_limits limits;
    (void)state;
    blasd_limits_init(&limits);
    assert_int_equal(blasd_grouping_init(&grouping, ITEMS), 0);
    make_items(items, &claim, 5, 2);
    blasd_group_items(&grouping, items, ITEMS, &limits);
    assert_int_equal(grouping.count, 2);
    for (int g = 0; g < 2; g++) {
        int changes = 0, seen = 0;
        for (int at = grouping.groups[g].first, before = -1; at >= 0; at = items[at].next) {
            assert_int_equal(at % 2, grouping.groups[g].first % 2);
            if (before >= 0 && at % 5 == before % 5) assert_true(at > before); /* as they came */
            changes += before >= 0 && at % 5 != before % 5;
            before = at;
            seen++;
        }
        assert_int_equal(seen, ITEMS / 2);
        assert_int_equal(changes, 4);
    }
    blasd_grouping_release(&grouping);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_stand_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
