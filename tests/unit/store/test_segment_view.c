/* How long readers keep segments mapped, on a clock of this test's own. */
#include "store/segment.h"

#include "base/clock.h"
#include "store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S INT64_C(1000000000)

static int64_t now_ns;

int64_t blasd_clock_ns(void) {
    return now_ns;
}

int64_t blasd_clock_wall_us(void) {
    return now_ns / 1000;
}

void blasd_clock_text(int64_t us, char text[BLASD_TIME_TEXT]) {
    (void)us;
    text[0] = '\0';
}

struct fixture {
    struct store_place place;
    struct blasd_segments *segments;
    struct blasd_views *views;
    struct blasd_slice slice; /* the first of a full segment, which nobody pins */
};

/* A segment is full once a slice had to go to another. */
static void fill_one(struct fixture *f) {
    struct blasd_slice next;
    for (int i = 0; i < 64; i++) {
        void *at = blasd_segments_take(f->segments, BLASD_SEGMENT_SYNC, BLASD_SLICE_MOST, &next);
        assert_non_null(at);
        memset(at, 7, (size_t)BLASD_SLICE_MOST);
        blasd_segments_unpin(f->segments, &next, true);
        if (i == 0) f->slice = next;
        if (strcmp(next.segment, f->slice.segment) != 0) return;
    }
    fail();
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    if (store_place_open(&f->place) != 0) return -1;
    now_ns = 100 * S;
    f->segments = blasd_segments_new(f->place.store);
    f->views = blasd_views_new(f->place.store);
    fill_one(f);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    int code;
    blasd_segments_free(f->segments);
    blasd_views_free(f->views);
    code = store_place_close(&f->place);
    free(f);
    return code;
}

/* Reads the slice; returns what keeps it. */
static struct blasd_view *read_it(struct fixture *f) {
    struct blasd_view *hold;
    const unsigned char *at = blasd_views_get(f->views, &f->slice, BLASD_SLICE_MOST, &hold);
    assert_non_null(at);
    assert_int_equal(at[0], 7);
    assert_int_equal(at[BLASD_SLICE_MOST - 1], 7);
    return hold;
}

/* How often this process has the segment mapped for reading alone: the owner's mapping is not. */
static int mapped(const struct fixture *f) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, f->slice.segment) != NULL && strstr(line, " r--s ") != NULL) count++;
    fclose(maps);
    return count;
}

static void trim_at(struct fixture *f, int64_t when) {
    now_ns = when;
    blasd_views_trim(f->views);
}

static void test_a_segment_that_comes_back_into_use_is_mapped_still(void **state) {
    struct fixture *f = *state;
    blasd_views_let_go(read_it(f));
    assert_int_equal(mapped(f), 1);
    for (int s = 1; s < 60; s += 7) trim_at(f, (100 + s) * S);
    assert_int_equal(mapped(f), 1);
    blasd_views_let_go(read_it(f));
    assert_int_equal(mapped(f), 1);
    trim_at(f, (100 + 57 + 61) * S);
    assert_int_equal(mapped(f), 0);
    blasd_views_let_go(read_it(f)); /* it is only mapped again */
    assert_int_equal(mapped(f), 1);
}

static void test_memory_of_a_segment_that_was_removed_is_given_back(void **state) {
    struct fixture *f = *state;
    char name[BLASD_BLOB_NAME];
    struct blasd_view *hold = read_it(f);
    snprintf(name, sizeof name, "%s.seg", f->slice.segment);
    assert_true(blasd_store_has(f->place.store, name));
    blasd_segments_reuse(f->segments, name);
    now_ns += 6 * S;
    blasd_segments_trim(f->segments); /* it was free for long */
    assert_false(blasd_store_has(f->place.store, name));
    trim_at(f, now_ns);
    assert_int_equal(mapped(f), 1); /* somebody holds it */
    blasd_views_let_go(hold);
    trim_at(f, now_ns + S);
    assert_int_equal(mapped(f), 0);
}

/* Looking is what unmaps, where nobody has looked for long: also the segment that is looked for. */
static void test_a_segment_that_went_while_nobody_looked_is_not_found(void **state) {
    struct fixture *f = *state;
    char name[BLASD_BLOB_NAME];
    struct blasd_view *hold = read_it(f);
    blasd_views_let_go(hold);
    snprintf(name, sizeof name, "%s.seg", f->slice.segment);
    blasd_store_remove(f->place.store, name);
    now_ns += 6 * S;
    assert_null(blasd_views_get(f->views, &f->slice, BLASD_SLICE_MOST, &hold));
    assert_null(hold);
    assert_int_equal(mapped(f), 0);
}

/* What a stored job or a record says of a slice may be damaged, or a lie. */
static void test_a_slice_where_none_can_be(void **state) {
    struct fixture *f = *state;
    const uint64_t offset = f->slice.offset;
    const struct {
        uint64_t offset, bytes;
        bool good;
    } slices[] = {{offset, 64, true},
                  {offset + 1, 64, false},
                  {offset + 32, 64, false},
                  {0, 64, false},
                  {BLASD_SEGMENT_BYTES, 1, false},
                  {BLASD_SEGMENT_BYTES + 64, 0, false},
                  {offset, BLASD_SEGMENT_BYTES, false},
                  {offset, UINT64_MAX, false}};
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
        struct blasd_slice slice = f->slice;
        struct blasd_view *hold;
        slice.offset = slices[i].offset;
        if ((blasd_views_get(f->views, &slice, slices[i].bytes, &hold) != NULL) != slices[i].good)
            fail_msg("slice number %zu", i);
        if (hold != NULL) blasd_views_let_go(hold);
    }
}

static void test_no_other_name_is_a_blob(void **state) {
    struct fixture *f = *state;
    assert_false(blasd_store_has(f->place.store, ".store"));
    assert_false(blasd_store_has(f->place.store, "../blobs"));
    assert_false(blasd_store_has(f->place.store, "0123456789abcdef.seg"));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_segment_that_comes_back_into_use_is_mapped_still),
        TEST(test_memory_of_a_segment_that_was_removed_is_given_back),
        TEST(test_a_segment_that_went_while_nobody_looked_is_not_found),
        TEST(test_a_slice_where_none_can_be),
        TEST(test_no_other_name_is_a_blob),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
