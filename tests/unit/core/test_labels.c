/* Labels: what is taken, in which order it lies, and what a list may be narrowed by. */
#include "core/labels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char labels[BLASD_LABELS_MAX];
static struct blasd_err err;

static int read_text(const char *text) {
    memset(labels, 0, sizeof labels);
    return blasd_labels_read(labels, text, strlen(text), &err);
}

static void expect(const char *text, const char *is) {
    if (read_text(text) != 0) fail_msg("%s: %s", text, err.detail);
    assert_string_equal(labels, is);
    assert_true(blasd_labels_valid(labels));
}

static void they_lie_in_one_order(void **state) {
    (void)state;
    expect("", "");
    expect("run=7", "run=7");
    expect("run=7,project=thesis", "project=thesis,run=7");
    expect("project=thesis,run=7", "project=thesis,run=7");
    expect("b=2,c=3,a=1", "a=1,b=2,c=3");
    expect("ab=1,a=2,abc=3", "a=2,ab=1,abc=3");
    expect("bare,empty=", "bare=,empty=");
    expect("team/x.y_z-1=a:b@c+d/e.f_g-2", "team/x.y_z-1=a:b@c+d/e.f_g-2");
}

static void what_is_none_is_refused(void **state) {
    static const struct {
        const char *text, *says;
    } bad[] = {{"=1", "name"},
               {"a=1,", NULL},
               {",a=1", "name"},
               {"a=1,,b=2", "name"},
               {"a=1=2", "value of"},
               {"a b=1", "name"},
               {"a=1 2", "value of"},
               {"a=\"", "value of"},
               {"\xc3\xa9=1", "name"},
               {"a=\xc3\xa9", "'a'"},
               {"a=1,b=2,a=3", "'a' is given twice"},
               {"a=1\t", "value of"},
               {"a:b=1", "name"}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (bad[i].says == NULL) { /* a comma behind the last one is none too many */
            assert_int_equal(read_text(bad[i].text), 0);
            continue;
        }
        assert_int_not_equal(read_text(bad[i].text), 0);
        assert_int_equal(err.code, BLASD_E_invalid_field);
        assert_string_equal(err.field, "labels");
        assert_non_null(strstr(err.detail, bad[i].says));
    }
    assert_int_not_equal(blasd_labels_read(labels, "a\0b=1", 5, &err), 0);
    assert_false(blasd_labels_valid("b=1,a=2"));
    assert_false(blasd_labels_valid("a"));
    assert_false(blasd_labels_valid("a=1,"));
}

static void there_are_only_so_many(void **state) {
    char text[1024] = "", part[80];
    (void)state;
    for (int i = 0; i < BLASD_LABELS_COUNT; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%sl%02d=%d", i == 0 ? "" : ",",
                 BLASD_LABELS_COUNT - 1 - i, i);
    assert_int_equal(read_text(text), 0);
    assert_true(blasd_labels_valid(labels));
    strcat(text, ",more=1");
    assert_int_not_equal(read_text(text), 0);
    memset(part, 'v', sizeof part);
    part[BLASD_LABEL_PART_MAX] = '\0';
    snprintf(text, sizeof text, "a=%s,b=%s,c=%s", part, part, part);
    assert_int_equal(read_text(text), 0);
    snprintf(text, sizeof text, "a=%s,b=%s,c=%s,d=%.55s", part, part, part, part);
    assert_int_equal(read_text(text), 0); /* 255 in all */
    assert_int_equal(strlen(labels), BLASD_LABELS_MAX - 1);
    assert_true(blasd_labels_valid(labels));
    snprintf(text, sizeof text, "d=%.56s,a=%s,b=%s,c=%s", part, part, part, part);
    assert_int_not_equal(read_text(text), 0);
    assert_non_null(strstr(err.detail, "255 characters"));
    snprintf(text, sizeof text, "a=%sv", part);
    assert_int_not_equal(read_text(text), 0);
    snprintf(text, sizeof text, "%sv=1", part);
    assert_int_not_equal(read_text(text), 0);
}

static void steps_give_the_parts(void **state) {
    static const char *const names[] = {"a", "bb", "c"}, *const values[] = {"", "x", "yz"};
    const char *at = "a=,bb=x,c=yz";
    struct blasd_label label;
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(blasd_labels_next(&at, &label));
        assert_int_equal(label.name_len, strlen(names[i]));
        assert_memory_equal(label.name, names[i], label.name_len);
        assert_int_equal(label.value_len, strlen(values[i]));
        assert_memory_equal(label.value, values[i], label.value_len);
    }
    assert_false(blasd_labels_next(&at, &label));
}

static void what_a_list_is_narrowed_by(void **state) {
    (void)state;
    assert_true(blasd_label_wanted_valid("run=7"));
    assert_true(blasd_label_wanted_valid("run="));
    assert_true(blasd_label_wanted_valid("run"));
    assert_false(blasd_label_wanted_valid(""));
    assert_false(blasd_label_wanted_valid("=7"));
    assert_false(blasd_label_wanted_valid("run=7,project=x"));
    assert_false(blasd_label_wanted_valid("run,project"));
    assert_false(blasd_label_wanted_valid("a b"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_lie_in_one_order),      cmocka_unit_test(what_is_none_is_refused),
        cmocka_unit_test(there_are_only_so_many),     cmocka_unit_test(steps_give_the_parts),
        cmocka_unit_test(what_a_list_is_narrowed_by),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
