/* The ring of events: numbers without gaps but where something is lost, each tenant by itself,
 * readers that go on where they stood. */
#include "http/events.h"

#include "base/clock.h"
#include "wire/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEPT 8

static struct http_events *events;
static int made;

static int setup(void **state) {
    const struct blasd_queue_event begins = {.record = NULL};
    (void)state;
    made = 0;
    events = http_events_new(KEPT, NULL);
    assert_non_null(events);
    assert_false(http_events_heard(events));
    http_events_add(events, &begins);
    assert_true(http_events_heard(events));
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
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) record.outputs[i].tensor.rank = -1;
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

static struct http_events_reader reader_of(const char *tenant) {
    struct http_events_reader reader = {.state = -1};
    snprintf(reader.tenant, sizeof reader.tenant, "%s", tenant);
    assert_true(http_events_begin(events, &reader, 0));
    return reader;
}

/* What is read, as "job batch lost:3 …", and the number of the last event. */
static uint64_t last_number;
static const char *read_all(struct http_events_reader *reader, int most) {
    static char said[4096];
    struct blasd_buf out;
    char *at;
    size_t len = 0;
    said[0] = '\0';
    blasd_buf_init(&out, 1 << 20);
    assert_true(http_events_read(events, reader, most, &out) >= 0);
    assert_int_equal(blasd_buf_add(&out, "", 1), 0);
    for (at = out.data; at != NULL && *at != '\0'; at = strstr(at, "\n\n") + 2) {
        char kind[16];
        unsigned long long lost;
        assert_int_equal(sscanf(at, "event: %15s", kind), 1);
        len += (size_t)snprintf(said + len, sizeof said - len, len > 0 ? " %s" : "%s", kind);
        if (sscanf(at, "event: lost\ndata: {\"events\":%llu}", &lost) == 1)
            len += (size_t)snprintf(said + len, sizeof said - len, ":%llu", lost);
        if (strncmp(strchr(at, '\n') + 1, "id: ", 4) == 0)
            last_number = strtoull(strchr(at, '\n') + 5, NULL, 10);
    }
    blasd_buf_release(&out);
    return said;
}

static void test_in_order(void **state) {
    uint64_t first, before = (uint64_t)blasd_clock_wall_us();
    struct http_events_reader reader = reader_of("anonymous");
    (void)state;
    assert_string_equal(read_all(&reader, 100), "");
    happens("anonymous", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(read_all(&reader, 100), "job");
    first = last_number;
    assert_true(first >= before && first <= (uint64_t)blasd_clock_wall_us());
    happens("anonymous", "matmul", BLASD_RUNNING, "w1");
    happens("anonymous", "matmul", BLASD_SUCCEEDED, NULL);
    assert_string_equal(read_all(&reader, 2), "batch job");
    assert_string_equal(read_all(&reader, 2), "job");
    assert_int_equal(last_number, first + 3);
    assert_string_equal(read_all(&reader, 2), "");
}

static void test_the_ring_goes_round(void **state) {
    struct http_events_reader reader = reader_of("a");
    (void)state;
    happens("a", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(read_all(&reader, 100), "job");
    for (int i = 0; i < KEPT + 3; i++) happens("a", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(read_all(&reader, 2), "lost:3 job job");
    assert_string_equal(read_all(&reader, 100), "job job job job job job");
}

static void test_what_was_not_told(void **state) {
    struct http_events_reader reader = reader_of("a");
    const struct blasd_queue_event begins = {.record = NULL};
    struct blasd_queue_event skipped = {.tenant = "a", .jobs = 5};
    (void)state;
    http_events_add(events, &skipped);
    assert_string_equal(read_all(&reader, 100), "lost:5");
    happens("a", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(read_all(&reader, 100), "job");
    http_events_add(events, &skipped);
    assert_string_equal(read_all(&reader, 100), "lost:5");
    assert_string_equal(read_all(&reader, 100), "");
    happens("a", "matmul", BLASD_QUEUED, NULL);
    http_events_add(events, &begins); /* there was no hearing for a while */
    assert_string_equal(read_all(&reader, 100), "job lost:1");
    happens("a", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(read_all(&reader, 100), "job");
}

static void test_tenants_and_filters(void **state) {
    struct http_events_reader a = reader_of("a"), b = reader_of("b"), solves = reader_of("a"),
                              ends = reader_of("a");
    uint64_t number;
    (void)state;
    solves.op = "solve";
    ends.state = BLASD_SUCCEEDED;
    happens("a", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(read_all(&a, 100), "job");
    number = last_number;
    for (int i = 0; i < 3; i++) happens("b", "matmul", BLASD_QUEUED, NULL);
    happens("a", "solve", BLASD_RUNNING, "w1");
    happens("a", "matmul", BLASD_SUCCEEDED, NULL);
    assert_string_equal(read_all(&a, 100), "batch job job");
    assert_int_equal(last_number, number + 3); /* b's are not counted */
    assert_string_equal(read_all(&b, 100), "job job job");
    assert_string_equal(read_all(&solves, 100), "batch job");
    assert_string_equal(read_all(&ends, 100), "job");
}

static void test_coming_again(void **state) {
    struct http_events_reader reader = reader_of("a");
    uint64_t number;
    (void)state;
    for (int i = 0; i < 6; i++) happens(i % 2 ? "b" : "a", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(read_all(&reader, 1), "job");
    number = last_number;
    reader = (struct http_events_reader){.tenant = "a", .state = -1};
    assert_true(http_events_begin(events, &reader, number));
    assert_int_equal(reader.number, number);
    assert_string_equal(read_all(&reader, 100), "job job");
    assert_true(http_events_begin(events, &reader, number + 2)); /* the last */
    assert_string_equal(read_all(&reader, 100), "");
    for (int i = 0; i < KEPT; i++) happens("a", "matmul", BLASD_QUEUED, NULL);
    assert_true(http_events_begin(events, &reader, number + 2)); /* all behind it are there */
    assert_false(http_events_begin(events, &reader, number + 1));
    assert_string_equal(read_all(&reader, 100), "job job job job job job job job");
    assert_false(http_events_begin(events, &reader, number + 1000)); /* never given */
    assert_string_equal(read_all(&reader, 100), "");
    reader = (struct http_events_reader){.tenant = "new", .state = -1};
    assert_false(http_events_begin(events, &reader, number));
}

/* What nobody was told of behind the last event is lost, for who comes again as for who stayed. */
static void test_coming_again_behind_the_last(void **state) {
    const struct blasd_queue_event silent = {.tenant = "a", .jobs = 3};
    struct http_events_reader reader = reader_of("a"), again = {.tenant = "a", .state = -1};
    (void)state;
    happens("a", "matmul", BLASD_QUEUED, NULL);
    assert_string_equal(read_all(&reader, 100), "job");
    http_events_add(events, &silent);
    assert_true(http_events_begin(events, &again, last_number));
    assert_string_equal(read_all(&again, 100), "lost:3");
    assert_string_equal(read_all(&reader, 100), "lost:3");
}

/* As in every other document of a job. */
static void test_what_it_costs(void **state) {
    const struct blasd_prices prices = {.per_hour = {[BLASD_DEVICE_CPU] = 1},
                                        .priced = {[BLASD_DEVICE_CPU] = true},
                                        .currency = "EUR"};
    struct http_events_reader reader;
    struct blasd_buf out;
    (void)state;
    http_events_free(events);
    events = http_events_new(KEPT, &prices);
    assert_non_null(events);
    reader = reader_of("a");
    happens("a", "matmul", BLASD_SUCCEEDED, NULL);
    blasd_buf_init(&out, 1 << 20);
    assert_int_equal(http_events_read(events, &reader, 1, &out), 1);
    assert_int_equal(blasd_buf_add(&out, "", 1), 0);
    assert_non_null(strstr(out.data, "\"currency\":\"EUR\""));
    blasd_buf_release(&out);
}

static void test_how_many(void **state) {
    (void)state;
    assert_true(http_events_join(events, "a", 3, 2));
    assert_true(http_events_join(events, "a", 3, 2));
    assert_false(http_events_join(events, "a", 3, 2));
    assert_true(http_events_join(events, "b", 3, 2));
    assert_false(http_events_join(events, "c", 3, 2));
    http_events_forget(events); /* not while they read */
    assert_true(http_events_heard(events));
    http_events_leave(events, "a");
    assert_int_equal(http_events_readers(events), 2);
    assert_true(http_events_join(events, "c", 3, 2));
    http_events_leave(events, "a");
    http_events_leave(events, "b");
    http_events_leave(events, "c");
    http_events_forget(events);
    assert_false(http_events_heard(events));
}

static void test_devices(void **state) {
    struct http_events_reader few = reader_of("a"), all = reader_of("a");
    (void)state;
    all.all = true;
    http_events_set_devices(events, strdup("{\"all\":1}"), strdup("{}"));
    assert_string_equal(read_all(&few, 100), "devices");
    assert_string_equal(read_all(&all, 100), "devices");
    assert_string_equal(read_all(&all, 100), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_ring_goes_round, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_not_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tenants_and_filters, setup, teardown),
        cmocka_unit_test_setup_teardown(test_coming_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_coming_again_behind_the_last, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_it_costs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_how_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_devices, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
