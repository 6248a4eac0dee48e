/* Readers of events: each is told of its tenant's, of what it wants, and of what it lost. */
#include "http/events.h"

#include "wire/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RATE 8

static struct http_events *events;
static int made;

static int setup(void **state) {
    const struct blasd_queue_event begins = {.record = NULL};
    (void)state;
    made = 0;
    events = http_events_new(RATE, NULL);
    assert_non_null(events);
    http_events_add(events, &begins);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    http_events_free(events);
    return 0;
}

/* A job of the tenant comes into that state; with a worker, in a batch of its own. */
static void happens(const char *tenant, const char *op, enum blasd_state job_state,
                    const char *worker) {
    struct blasd_record record = {.state = job_state};
    struct blasd_queue_event told = {.worker = worker, .jobs = 1, .first = true};
    struct blasd_buf frame;
    snprintf(record.execution.device, sizeof record.execution.device, "cpu");
    blasd_id_new(BLASD_ID_ASYNC, 1000000 + made++, record.id);
    snprintf(record.op, sizeof record.op, "%s", op);
    snprintf(told.tenant, sizeof told.tenant, "%s", tenant);
    blasd_buf_init(&frame, 65536);
    assert_int_equal(blasd_record_encode(&record, &frame, NULL), 0);
    told.record = frame.data;
    told.len = frame.len;
    http_events_add(events, &told);
    blasd_buf_release(&frame);
}

static void join(struct http_events_reader *reader, const char *tenant) {
    reader->state = -1;
    snprintf(reader->tenant, sizeof reader->tenant, "%s", tenant);
    assert_true(http_events_join(events, reader, 100, 100));
    assert_true(http_events_begin(events, reader));
    reader->second = INT64_MAX; /* the clock's seconds are none of these tests' */
}

/* The next second has come. */
static void next_second(struct http_events_reader *reader) {
    reader->told = 0;
}

/* What is taken, as "job batch lost:3 …". */
static const char *take(struct http_events_reader *reader, bool all) {
    static char said[4096];
    struct blasd_buf out;
    size_t len = 0;
    said[0] = '\0';
    blasd_buf_init(&out, HTTP_EVENTS_WAITING);
    http_events_take(events, reader, all, &out);
    assert_int_equal(blasd_buf_add(&out, "", 1), 0);
    for (char *at = out.data; *at != '\0'; at = strstr(at, "\n\n") + 2) {
        char kind[16], lost[16];
        assert_int_equal(sscanf(at, "event: %15s", kind), 1);
        len += (size_t)snprintf(said + len, sizeof said - len, len > 0 ? " %s" : "%s", kind);
        if (sscanf(at, "event: lost\ndata: {\"events\":%15[^}]}", lost) == 1)
            len += (size_t)snprintf(said + len, sizeof said - len, ":%s", lost);
    }
    blasd_buf_release(&out);
    return said;
}

static void test_in_order(void **state) {
    struct http_events_reader reader = {.op = NULL};
    (void)state;
    join(&reader, "anonymous");
    assert_string_equal(take(&reader, false), "");
    happens("anonymous", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(take(&reader, false), "job");
    happens("anonymous", "matmul", BLASD_RUNNING, "w1");
    happens("anonymous", "matmul", BLASD_SUCCEEDED, NULL);
    assert_string_equal(take(&reader, false), "batch job job");
    assert_string_equal(take(&reader, false), "");
    http_events_leave(events, &reader);
}

static void test_too_slow(void **state) {
    struct http_events_reader reader = {.op = NULL}, quick = {.op = NULL};
    (void)state;
    join(&reader, "a");
    join(&quick, "a");
    for (int i = 0; i < RATE + 3; i++) {
        happens("a", "matmul", BLASD_QUEUED, NULL);
        next_second(&quick);
    }
    assert_string_equal(take(&reader, false), "job job job job job job job job lost:3");
    assert_string_equal(take(&quick, false), "job job job job job job job job job job job");
    happens("a", "matmul", BLASD_QUEUED, NULL);
    next_second(&reader);
    happens("a", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(take(&reader, false), "lost:1 job"); /* where it is missing */
    http_events_leave(events, &reader);
    http_events_leave(events, &quick);
}

/* A reader that takes nothing has its buffer, and no more. */
static void test_deaf(void **state) {
    struct http_events_reader reader = {.op = NULL};
    (void)state;
    join(&reader, "a");
    for (int i = 0; i < 20000; i++) {
        happens("a", "matmul", BLASD_QUEUED, NULL);
        next_second(&reader);
    }
    assert_true(reader.text.cap <= HTTP_EVENTS_WAITING && reader.lost > 0);
    http_events_leave(events, &reader);
}

static void test_what_was_not_told(void **state) {
    struct http_events_reader reader = {.op = NULL};
    const struct blasd_queue_event begins = {.record = NULL};
    struct blasd_queue_event skipped = {.tenant = "a", .jobs = 5};
    (void)state;
    join(&reader, "a");
    http_events_add(events, &skipped);
    assert_string_equal(take(&reader, false), "lost:5");
    http_events_add(events, &skipped);
    happens("a", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(take(&reader, false), "lost:5 job");
    http_events_add(events, &begins); /* there was no hearing for a while */
    assert_string_equal(take(&reader, false), "lost:null");
    happens("a", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(take(&reader, false), "job");
    http_events_leave(events, &reader);
}

static void test_tenants_and_filters(void **state) {
    struct http_events_reader a = {.op = NULL}, b = {.op = NULL}, solves = {.op = "solve"},
                              ends = {.op = NULL};
    struct blasd_queue_event skipped = {.tenant = "b", .jobs = 5};
    (void)state;
    join(&a, "a");
    join(&b, "b");
    join(&solves, "a");
    join(&ends, "a");
    ends.state = BLASD_SUCCEEDED;
    happens("a", "matmul", BLASD_QUEUED, NULL);
    for (int i = 0; i < 3; i++) happens("b", "matmul", BLASD_QUEUED, NULL);
    http_events_add(events, &skipped);
    happens("a", "solve", BLASD_RUNNING, "w1");
    happens("a", "matmul", BLASD_SUCCEEDED, NULL);
    assert_string_equal(take(&a, false), "job batch job job");
    assert_string_equal(take(&b, false), "job job job lost:5");
    assert_string_equal(take(&solves, false), "batch job");
    assert_string_equal(take(&ends, false), "job");
    http_events_leave(events, &a);
    http_events_leave(events, &b);
    http_events_leave(events, &solves);
    http_events_leave(events, &ends);
}

/* As in every other document of a job. */
static void test_what_it_costs(void **state) {
    const struct blasd_prices prices = {.per_hour = {[BLASD_DEVICE_CPU] = 1},
                                        .priced = {[BLASD_DEVICE_CPU] = true},
                                        .currency = "EUR"};
    const struct blasd_queue_event begins = {.record = NULL};
    struct http_events_reader reader = {.op = NULL};
    (void)state;
    http_events_free(events);
    events = http_events_new(RATE, &prices);
    assert_non_null(events);
    http_events_add(events, &begins);
    join(&reader, "a");
    happens("a", "matmul", BLASD_SUCCEEDED, NULL);
    assert_int_equal(blasd_buf_add(&reader.text, "", 1), 0);
    assert_non_null(strstr(reader.text.data, "\"currency\":\"EUR\""));
    http_events_leave(events, &reader);
}

static void test_how_many(void **state) {
    struct http_events_reader readers[4] = {
        {.tenant = "a"}, {.tenant = "a"}, {.tenant = "a"}, {.tenant = "b"}};
    (void)state;
    assert_true(http_events_join(events, &readers[0], 3, 2));
    assert_true(http_events_join(events, &readers[1], 3, 2));
    assert_false(http_events_join(events, &readers[2], 3, 2));
    assert_true(http_events_join(events, &readers[3], 3, 2));
    assert_false(http_events_end(events)); /* not while they read */
    assert_true(http_events_begin(events, &readers[0]));
    http_events_leave(events, &readers[0]);
    assert_int_equal(http_events_readers(events), 2);
    assert_true(http_events_join(events, &readers[2], 3, 2));
    for (int i = 1; i < 4; i++) http_events_leave(events, &readers[i]);
    assert_true(http_events_end(events));
    assert_true(http_events_join(events, &readers[0], 3, 2));
    assert_false(http_events_begin(events, &readers[0])); /* nothing is heard any more */
    http_events_leave(events, &readers[0]);
}

static void test_devices(void **state) {
    struct http_events_reader few = {.op = NULL}, all = {.op = NULL};
    (void)state;
    join(&few, "a");
    join(&all, "a");
    assert_string_equal(take(&all, true), "");
    http_events_devices(events, strdup("{\"all\":1}"), strdup("{}"));
    assert_non_null(strstr(all.text.data, "{\"all\":1}"));
    assert_string_equal(take(&all, true), "devices");
    assert_string_equal(take(&few, false), "devices");
    assert_string_equal(take(&all, true), "");
    http_events_leave(events, &few);
    http_events_leave(events, &all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_slow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deaf, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_not_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tenants_and_filters, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_it_costs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_how_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_devices, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
