/* What a job used, as an event: every member, and texts that need care. */
#include "wire/cloud_event.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ID "s6b0478b5d0db4086ec3887a9e99d8c287b6784e6"

static json_t *event_of(const struct blasd_record *record, const struct blasd_job_use *use) {
    struct blasd_buf buf;
    json_t *event;
    blasd_buf_init(&buf, 1 << 16);
    assert_int_equal(blasd_cloud_event(record, use, &buf), 0);
    assert_null(memchr(buf.data, '\n', buf.len));
    event = json_loadb(buf.data, buf.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(event);
    blasd_buf_release(&buf);
    return event;
}

static void says(const json_t *object, const char *key, const char *value) {
    assert_string_equal(json_string_value(json_object_get(object, key)), value);
}

static double number(const json_t *object, const char *key) {
    assert_true(json_is_number(json_object_get(object, key)));
    return json_number_value(json_object_get(object, key));
}

static void every_member_has_its_value(void **state) {
    struct blasd_record record = {.id = ID,
                                  .op = "matmul",
                                  .state = BLASD_FAILED,
                                  .created_us = 1769860800000001,
                                  .finished_us = 1769860801000002};
    const struct blasd_job_use use = {.queue = "blue", .tenant = "physics", .sequence = "0001"};
    json_t *event;
    const json_t *data;
    (void)state;
    snprintf(record.execution.device, sizeof record.execution.device, "cuda:3");
    record.execution.bytes = UINT64_C(9007199254740993);
    record.execution.flops = 1e12;
    record.execution.energy_joules = 1.75;
    record.timing = (struct blasd_timing){.receive_us = 9000,
                                          .upload_us = 500,
                                          .compute_us = 9000,
                                          .download_us = 1000,
                                          .total_us = 90000};
    record.execution.batch_size = 7;
    record.execution.attempts = 2;
    event = event_of(&record, &use);
    says(event, "specversion", "1.0");
    says(event, "id", ID);
    says(event, "source", "/blasd/blue");
    says(event, "type", "blasd.job.ended.v1");
    says(event, "subject", "physics");
    says(event, "time", "2026-01-31T12:00:01.000002Z");
    says(event, "sequence", "0001");
    says(event, "datacontenttype", "application/json");
    data = json_object_get(event, "data");
    says(data, "tenant", "physics");
    says(data, "op", "matmul");
    says(data, "state", "failed");
    says(data, "created_at", "2026-01-31T12:00:00.000001Z");
    says(data, "finished_at", "2026-01-31T12:00:01.000002Z");
    says(data, "device", "cuda:3");
    assert_true(fabs(number(data, "device_seconds") - 0.0015) < 1e-12);
    assert_true(number(data, "energy_joules") == 0.25);
    assert_true(json_integer_value(json_object_get(data, "bytes")) == INT64_C(9007199254740993));
    assert_true(number(data, "flops") == 1e12);
    assert_true(number(data, "batch_size") == 7);
    assert_null(json_object_get(data, "cost"));
    assert_true(number(data, "attempts") == 2);
    json_decref(event);
}

static void prices_make_costs(void **state) {
    struct blasd_prices prices;
    struct blasd_err err;
    struct blasd_record record = {
        .id = ID, .op = "matmul", .state = BLASD_SUCCEEDED, .prices = &prices};
    const struct blasd_job_use use = {.queue = "q", .tenant = "a", .sequence = "1"};
    json_t *event;
    (void)state;
    assert_int_equal(blasd_prices_read("cpu=3600/h,currency=EUR", &prices, &err), 0);
    snprintf(record.execution.device, sizeof record.execution.device, "cpu:0");
    record.execution.batch_size = 2;
    record.timing.compute_us = 3000000;
    event = event_of(&record, &use);
    assert_true(number(json_object_get(json_object_get(event, "data"), "cost"), "amount") == 1.5);
    says(json_object_get(json_object_get(event, "data"), "cost"), "currency", "EUR");
    json_decref(event);
}

static void what_no_worker_ran_has_no_device(void **state) {
    struct blasd_record record = {.id = ID, .op = "solve", .state = BLASD_CANCELLED};
    const struct blasd_job_use use = {.queue = "q", .tenant = "a", .sequence = "1"};
    json_t *event = event_of(&record, &use);
    (void)state;
    assert_true(json_is_null(json_object_get(json_object_get(event, "data"), "device")));
    says(json_object_get(event, "data"), "state", "cancelled");
    json_decref(event);
}

static void without_room_that_is_said(void **state) {
    struct blasd_record record = {.id = ID, .op = "solve", .state = BLASD_CANCELLED};
    const struct blasd_job_use use = {.queue = "q", .tenant = "a", .sequence = "1"};
    struct blasd_buf buf;
    (void)state;
    blasd_buf_init(&buf, 100);
    assert_int_equal(blasd_cloud_event(&record, &use, &buf), -1);
    blasd_buf_release(&buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_has_its_value),
        cmocka_unit_test(prices_make_costs),
        cmocka_unit_test(what_no_worker_ran_has_no_device),
        cmocka_unit_test(without_room_that_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
