/* What is done to large tensors before a kernel has them leaves off once nobody wants it, and is
 * done to the end where somebody does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "core/job.h"
#include "core/wanted.h"

#define ROWS INT64_C(1500)
#define COLUMNS INT64_C(1500) /* more elements than are done between any two questions */
#define COUNT (ROWS * COLUMNS)
#define UNTOUCHED 0x77

static bool wanted;

static bool on_go_on(struct blasd_watch *watch, double progress) {
    (void)watch, (void)progress;
    return wanted;
}

static struct blasd_watch watch = {.go_on = on_go_on};
static struct blasd_tensor from, to;

static struct blasd_tensor make(enum blasd_dtype dtype) {
    struct blasd_tensor tensor = blasd_tensor_make(dtype, 2, (const int64_t[]){ROWS, COLUMNS});
    tensor.data = malloc(blasd_tensor_bytes(&tensor));
    assert_non_null(tensor.data);
    memset(tensor.data, UNTOUCHED, blasd_tensor_bytes(&tensor));
    return tensor;
}

static int setup(void **state) {
    (void)state;
    from = make(BLASD_float32);
    to = make(BLASD_float64);
    for (int64_t i = 0; i < COUNT; i++) ((float *)from.data)[i] = 1;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    free(from.data);
    free(to.data);
    return 0;
}

static void fill(void) {
    const struct blasd_rule rule = {.kind = BLASD_RULE_NORMAL, .seed = 1};
    blasd_rule_fill(&rule, &to);
}

static void convert(void) {
    blasd_tensor_convert(&from, &to);
}

static void reorder(void) {
    from.order = BLASD_COLUMN_MAJOR;
    blasd_tensor_convert(&from, &to);
}

static void reorder_one_row(void) {
    from.order = BLASD_COLUMN_MAJOR;
    from.shape[0] = to.shape[0] = 1;
    from.shape[1] = to.shape[1] = COUNT;
    blasd_tensor_convert(&from, &to);
}

static void gather(void) {
    struct blasd_reference reference = {.sliced = 2, .to = {1, ROWS}};
    struct blasd_tensor part = to;
    part.dtype = BLASD_float32;
    blasd_reference_gather(&reference, from.data, &part);
}

static void copy(void) {
    blasd_reference_copy(from.data, blasd_tensor_bytes(&from), to.data);
}

static const struct {
    const char *name;
    void (*make)(void);
    size_t size; /* of an element of what is made */
} makers[] = {{"fill", fill, 8},       {"convert", convert, 8},
              {"reorder", reorder, 8}, {"reorder one row", reorder_one_row, 8},
              {"gather", gather, 4},   {"copy", copy, 4}};

/* Whether the last element was made, and the first of what was not. */
static bool last_is_made(size_t size) {
    unsigned char element[8];
    memset(element, UNTOUCHED, sizeof element);
    return memcmp((unsigned char *)to.data + (COUNT - 1) * (int64_t)size, element, size) != 0;
}

static void test_made_to_the_end_where_it_is_wanted(void **state) {
    struct blasd_err err;
    (void)state;
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++) {
        setup(NULL);
        wanted = true;
        blasd_wanted_begin(&watch);
        assert_true(blasd_wanted_tell(0));
        makers[m].make();
        assert_int_equal(blasd_wanted_end(0, &err), 0);
        if (!last_is_made(makers[m].size)) fail_msg("%s", makers[m].name);
        teardown(NULL);
    }
}

static void test_left_where_it_is_not(void **state) {
    struct blasd_err err;
    (void)state;
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++) {
        setup(NULL);
        wanted = false;
        blasd_wanted_begin(&watch);
        assert_false(blasd_wanted_tell(0));
        makers[m].make();
        assert_int_equal(blasd_wanted_end(0, &err), -BLASD_E_cancelled);
        if (last_is_made(makers[m].size)) fail_msg("%s", makers[m].name);
        teardown(NULL);
    }
}

/* A NaN, a negative number, one that float64 cannot hold, and one that is not 0, all at the end. */
static bool found(void) {
    unsigned char *bytes = to.data;
    double nan_at_end = (double)__builtin_nanf(""), negative = -1;
    int64_t inexact = (INT64_C(1) << 53) + 1;
    bool all = true;
    memset(bytes, 0, blasd_tensor_bytes(&to));
    memcpy(bytes + 8 * (COUNT - 1), &nan_at_end, 8);
    all = all && blasd_tensor_first_nonfinite(BLASD_float64, bytes, COUNT) == COUNT - 1;
    memcpy(bytes + 8 * (COUNT - 1), &negative, 8);
    all = all && blasd_tensor_first_negative(BLASD_float64, bytes, COUNT, false) == COUNT - 1;
    all = all && !blasd_tensor_all_zero(BLASD_float64, bytes, COUNT);
    memcpy(bytes + 8 * (COUNT - 1), &inexact, 8);
    return all && blasd_tensor_first_inexact(BLASD_int64, bytes, COUNT) == COUNT - 1;
}

static void test_searches(void **state) {
    struct blasd_err err;
    (void)state;
    assert_true(found()); /* for nobody in particular */
    for (int i = 0; i < 2; i++) {
        wanted = i == 0;
        blasd_wanted_begin(&watch);
        (void)blasd_wanted_tell(0);
        if (wanted) {
            assert_true(found());
        } else {
            assert_false(found());
            assert_int_equal(blasd_tensor_first_nonfinite(BLASD_float64, to.data, COUNT), -1);
            assert_int_equal(blasd_tensor_first_negative(BLASD_float64, to.data, COUNT, false), -1);
            assert_int_equal(blasd_tensor_first_inexact(BLASD_int64, to.data, COUNT), -1);
            assert_true(blasd_tensor_all_zero(BLASD_float64, to.data, COUNT));
        }
        assert_int_equal(blasd_wanted_end(0, &err), wanted ? 0 : -BLASD_E_cancelled);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_to_the_end_where_it_is_wanted),
        cmocka_unit_test(test_left_where_it_is_not),
        cmocka_unit_test_setup_teardown(test_searches, setup, teardown),
    };
    return cmocka_run_group_tests_name("unwanted", tests, NULL, NULL);
}
