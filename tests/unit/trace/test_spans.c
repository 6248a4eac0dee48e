/* Jobs and batches become spans: which, and how they hang together. The collector is nobody. */
#include "trace/spans.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct blasd_otlp_options options = {.url = "http://127.0.0.1:1",
                                                  .spans_most = 16,
                                                  .part = "a \"part\"",
                                                  .version = "1",
                                                  .instance = "one"};

static struct blasd_record record_of(const char *id) {
    struct blasd_record record = {
        .op = "matmul",
        .state = BLASD_SUCCEEDED,
        .created_us = 1000000,
        .finished_us = 1000060,
        .timing = {.receive_us = 5, .queue_us = 10, .upload_us = 20, .compute_us = 30}};
    snprintf(record.id, sizeof record.id, "%s", id);
    return record;
}

static void written(void **state) {
    struct blasd_span span = {.kind = BLASD_SPAN_SERVER,
                              .name = "job \"x\"\n",
                              .start_us = 1,
                              .end_us = 1234567,
                              .error = "shape_mismatch"};
    struct blasd_span_link link = {.trace = {0xab}, .span = {1, 2}};
    struct blasd_buf out;
    (void)state;
    span.trace[0] = 0x0f;
    span.id[7] = 1;
    span.links = &link;
    span.link_count = 1;
    for (int i = 0; i < BLASD_SPAN_ATTRIBUTES + 3; i++) blasd_span_number(&span, "n", i);
    assert_int_equal(span.attribute_count, BLASD_SPAN_ATTRIBUTES);
    blasd_buf_init(&out, BLASD_MIB);
    assert_int_equal(blasd_otlp_json(&options, &span, 1, &out), 0);
    assert_int_equal(blasd_buf_add(&out, "", 1), 0);
    assert_non_null(strstr(out.data, "\"stringValue\":\"a \\\"part\\\"\""));
    assert_non_null(strstr(out.data, "\"traceId\":\"0f000000000000000000000000000000\",\"spanId\":"
                                     "\"0000000000000001\",\"name\":\"job \\\"x\\\"?\",\"kind\":2,"
                                     "\"startTimeUnixNano\":\"1000\",\"endTimeUnixNano\":"
                                     "\"1234567000\""));
    assert_non_null(strstr(out.data, "\"links\":[{\"traceId\":\"ab000000000000000000000000000000\","
                                     "\"spanId\":\"0102000000000000\"}]"));
    assert_non_null(
        strstr(out.data, "\"status\":{\"code\":2,\"message\":\"shape_mismatch\"}}]}]}]}"));
    blasd_buf_release(&out);
    blasd_buf_init(&out, 50);
    assert_int_not_equal(blasd_otlp_json(&options, &span, 1, &out), 0);
    blasd_buf_release(&out);
}

static void only_what_is_sampled(void **state) {
    struct blasd_trace trace = {.id = {1}, .span = {2}, .sampled = true};
    struct blasd_batch_span batch;
    struct blasd_otlp *otlp;
    struct blasd_err err = {0};
    struct blasd_record record = record_of("s1");
    (void)state;
    assert_int_equal(blasd_otlp_new(&options, &otlp, &err), 0);
    assert_int_equal(blasd_otlp_start(otlp, &err), 0);
    blasd_spans_batch_begin(&batch, otlp);
    trace.sampled = false;
    blasd_spans_job(&batch, &trace, &record);
    assert_int_equal(batch.jobs, 0);
    trace.sampled = true;
    blasd_spans_job(&batch, &trace, &record);
    assert_int_equal(batch.jobs, 1);
    assert_memory_equal(batch.links[0].trace, trace.id, sizeof trace.id);
    for (int i = 0; i < BLASD_SPAN_LINKS + 5; i++) blasd_spans_job(&batch, &trace, &record);
    assert_int_equal(batch.jobs, BLASD_SPAN_LINKS + 6);
    blasd_spans_batch_end(&batch, "matmul", "cpu:0", batch.jobs, 1, 2);
    assert_int_equal(batch.jobs, 0);
    assert_true(blasd_otlp_counts(otlp).dropped > 0); /* 16 have room, and some are on their way */
    blasd_spans_batch_begin(&batch, NULL);
    blasd_spans_job(&batch, &trace, &record);
    assert_int_equal(batch.jobs, 0);
    blasd_otlp_stop(otlp);
    blasd_otlp_stop(NULL);
}

/* A job that no worker has ended: its own span and the one of its wait, where it is sampled. */
static void of_a_job_that_never_ran(void **state) {
    struct blasd_trace trace = {.id = {1}, .span = {2}};
    struct blasd_record record = record_of("s1");
    struct blasd_otlp *otlp;
    struct blasd_err err = {0};
    (void)state;
    record.state = BLASD_EXPIRED;
    record.error.code = BLASD_E_deadline_exceeded;
    assert_int_equal(blasd_otlp_new(&options, &otlp, &err), 0);
    for (int i = 0; i < 20; i++) blasd_spans_unfinished(otlp, &trace, &record);
    trace.sampled = true;
    for (int i = 0; i < 8; i++) blasd_spans_unfinished(otlp, &trace, &record);
    assert_int_equal(blasd_otlp_counts(otlp).dropped, 0); /* nobody takes any: 16 have room */
    blasd_spans_unfinished(otlp, &trace, &record);
    assert_int_equal(blasd_otlp_counts(otlp).dropped, 2);
    blasd_spans_unfinished(NULL, &trace, &record);
    blasd_otlp_stop(otlp);
}

static void shares(void **state) {
    static const double some[] = {0, 0.1, 0.5, 1};
    (void)state;
    assert_false(blasd_otlp_samples(NULL));
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct blasd_otlp_options own = options;
        struct blasd_otlp *otlp;
        struct blasd_err err = {0};
        int taken = 0;
        own.sample = some[i];
        assert_int_equal(blasd_otlp_new(&own, &otlp, &err), 0);
        for (int n = 0; n < 10000; n++) taken += blasd_otlp_samples(otlp);
        assert_true(taken >= some[i] * 10000 - 500 && taken <= some[i] * 10000 + 500);
        assert_true((taken == 0) == (some[i] == 0) && (taken == 10000) == (some[i] == 1));
        blasd_otlp_stop(otlp);
    }
}

static int check(const char *url, const char *headers) {
    struct blasd_otlp_options own = options;
    struct blasd_err err = {0};
    int code;
    own.url = url;
    own.headers = headers;
    code = blasd_otlp_check(&own, &err);
    assert_null(strstr(err.detail, "hunter2"));
    return code;
}

static void addresses_and_headers(void **state) {
    (void)state;
    assert_int_equal(check("http://127.0.0.1:4318", NULL), 0);
    assert_int_equal(check("https://example.org/a/path", "x-key=hunter2,b=c=d"), 0);
    assert_int_not_equal(check("127.0.0.1:4318", NULL), 0);
    assert_int_not_equal(check("file:///etc/passwd", NULL), 0);
    assert_int_not_equal(check("http://", NULL), 0);
    assert_int_not_equal(check("http://me:hunter2@example.org", NULL), 0);
    assert_int_not_equal(check("http://127.0.0.1:4318", "hunter2"), 0);
    assert_int_not_equal(check("http://127.0.0.1:4318", "a=b,=hunter2"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written),
        cmocka_unit_test(only_what_is_sampled),
        cmocka_unit_test(of_a_job_that_never_ran),
        cmocka_unit_test(shares),
        cmocka_unit_test(addresses_and_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
