/* traceparent: what is one, and what is not. */
#include "core/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static bool reads(const char *text, struct blasd_trace *ret) {
    *ret = (struct blasd_trace){.sampled = false};
    return blasd_trace_read(text, strlen(text), ret);
}

static void well_formed(void **state) {
    struct blasd_trace trace;
    char text[BLASD_TRACE_TEXT];
    (void)state;
    assert_true(reads("00-" TRACE "-" SPAN "-01", &trace));
    assert_true(trace.sampled);
    blasd_trace_text(trace.id, text);
    assert_string_equal(text, TRACE);
    assert_int_equal(trace.span[1], 0xf0);
    assert_true(reads("00-" TRACE "-" SPAN "-00", &trace));
    assert_false(trace.sampled);
    assert_true(reads("00-" TRACE "-" SPAN "-fe", &trace));
    assert_false(trace.sampled);
    assert_true(reads("cc-" TRACE "-" SPAN "-01", &trace)); /* a later version */
    assert_true(reads("cc-" TRACE "-" SPAN "-01-what-comes", &trace));
}

static void malformed(void **state) {
    static const char *const texts[] = {"",
                                        "00",
                                        "00-" TRACE "-" SPAN,
                                        "00-" TRACE "-" SPAN "-0",
                                        "00-" TRACE "-" SPAN "-0g",
                                        "00-" TRACE "-" SPAN "-01-more",
                                        "00-" TRACE "-" SPAN "-01 ",
                                        "cc-" TRACE "-" SPAN "-01.more",
                                        "ff-" TRACE "-" SPAN "-01",
                                        "0g-" TRACE "-" SPAN "-01",
                                        "00_" TRACE "-" SPAN "-01",
                                        "00-" TRACE "_" SPAN "-01",
                                        "00-" TRACE "-" SPAN "_01",
                                        "00-00000000000000000000000000000000-" SPAN "-01",
                                        "00-" TRACE "-0000000000000000-01",
                                        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
                                        "00-4bf92f3577b34da6a3ce929d0e0e473z-" SPAN "-01"};
    struct blasd_trace trace;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_false(reads(texts[i], &trace));
        assert_false(blasd_trace_given(trace.id));
    }
    assert_false(blasd_trace_read("00-" TRACE "-\0" SPAN "-01", 56, &trace));
}

static void made(void **state) {
    struct blasd_trace trace = {.sampled = true};
    uint8_t one[BLASD_SPAN_ID], same[BLASD_SPAN_ID], other[BLASD_SPAN_ID];
    (void)state;
    assert_false(blasd_trace_given(trace.id));
    blasd_trace_random(trace.id, sizeof trace.id);
    assert_true(blasd_trace_given(trace.id));
    blasd_trace_job_span("s0123", one);
    blasd_trace_job_span("s0123", same);
    blasd_trace_job_span("s0124", other);
    assert_memory_equal(one, same, sizeof one);
    assert_memory_not_equal(one, other, sizeof one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed),
        cmocka_unit_test(malformed),
        cmocka_unit_test(made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
