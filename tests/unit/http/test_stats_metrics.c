/* The queue's stats as rows of GET /metrics. */
#include "http/stats_metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct blasd_buf out;

static const char *metrics_of(const char *stats) {
    struct http_metric_rows rows = {.out = &out};
    blasd_buf_reset(&out);
    http_stats_metrics(stats, strlen(stats), &rows);
    assert_int_equal(rows.failed, 0);
    assert_int_equal(blasd_buf_add(&out, "", 1), 0);
    return out.data;
}

static int count(const char *text, const char *part) {
    int found = 0;
    while ((text = strstr(text, part)) != NULL) {
        found++;
        text++;
    }
    return found;
}

static void only_what_is_told(void **state) {
    const char *text = metrics_of(
        "{\"workers\":{\"one\":{\"device\":\"cuda:0\",\"device_name\":\"A card\",\"memory_bytes\":"
        "1000,\"memory_free_bytes\":250,\"busy_percent\":40,\"power_watts\":312.5,"
        "\"energy_joules\":1e6,\"busy_share\":0.5},\"two\":{\"device\":\"cpu:0\",\"memory_bytes\":"
        "64}},\"queue\":{}}");
    (void)state;
    assert_int_equal(count(text, "# TYPE blasd_device_memory_bytes gauge\n"), 1);
    assert_int_equal(count(text, "\nblasd_device_memory_bytes{"), 2);
    assert_non_null(strstr(text,
                           "\nblasd_device_memory_free_bytes{worker=\"one\",device=\"cuda:0\","
                           "device_name=\"A card\"} 250\n"));
    assert_non_null(strstr(text, "device_name=\"A card\"} 0.40000000000000002\n"));
    assert_non_null(strstr(text, "} 312.5\n"));
    assert_non_null(strstr(text, "# TYPE blasd_device_energy_joules_total counter\n"));
    assert_non_null(strstr(text, "} 1000000\n"));
    assert_int_equal(count(text, "worker=\"two\""), 1);
}

static void what_is_sent_to_others(void **state) {
    const char *text =
        metrics_of("{\"totals\":{\"webhooks delivered\":7,\"webhooks failed\":2},\"webhooks\":1}");
    (void)state;
    assert_non_null(strstr(text, "\nblasd_webhooks_waiting 1\n"));
    assert_non_null(strstr(text, "\nblasd_webhooks_total{outcome=\"delivered\"} 7\n"));
    assert_non_null(strstr(text, "\nblasd_webhooks_total{outcome=\"failed\"} 2\n"));
    assert_non_null(strstr(text, "\nblasd_webhooks_total{outcome=\"given_up\"} 0\n"));
    assert_null(strstr(metrics_of("{}"), "blasd_webhooks")); /* of an earlier version */
}

static void ends_of_jobs(void **state) {
    const char *text =
        metrics_of("{\"totals\":{\"matmul submitted\":7,\"matmul succeeded\":4,\"matmul failed "
                   "out_of_memory\":1,"
                   "\"matmul failed poisoned\":2,\"solve cancelled\":3,\"unheard of\":9}}");
    (void)state;
    assert_int_equal(count(text, "# TYPE blasd_jobs_total counter\n"), 1);
    assert_non_null(strstr(text, "\nblasd_jobs_submitted_total{op=\"matmul\"} 7\n"));
    assert_non_null(strstr(text, "\nblasd_jobs_submitted_total{op=\"solve\"} 0\n"));
    assert_non_null(strstr(text, "\nblasd_jobs_total{op=\"matmul\",state=\"succeeded\"} 4\n"));
    assert_non_null(strstr(text, "\nblasd_jobs_total{op=\"matmul\",state=\"failed\"} 3\n"));
    assert_non_null(strstr(text, "\nblasd_jobs_total{op=\"solve\",state=\"cancelled\"} 3\n"));
    assert_non_null(
        strstr(text, "\nblasd_job_failures_total{op=\"matmul\",code=\"poisoned\"} 2\n"));
    assert_int_equal(count(text, "\nblasd_job_failures_total{"), 2);
    assert_null(strstr(text, "unheard"));
}

static void names_are_escaped(void **state) {
    const char *text =
        metrics_of("{\"workers\":{\"a\\\"b\\\\c\\nd\":{\"device\":7,\"memory_bytes\":1}}}");
    (void)state;
    assert_non_null(strstr(text, "\nblasd_device_memory_bytes{worker=\"a\\\"b\\\\c\\nd\",device="
                                 "\"\",device_name=\"\"} 1\n"));
}

static void what_workers_count(void **state) {
    const char *text = metrics_of(
        "{\"workers\":{\"one\":{\"device\":\"cpu:0\"}},\"figures\":{\"one\":{\"ops\":{\"matmul\":{"
        "\"queue\":[1,2,0,0,0,0,0,0,0,0,0,0,0,0,0,0,4,7000000],"
        "\"batch\":[0,3,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,6],\"bad\":[1,2],\"worse\":7}},"
        "\"spans\":{\"sent\":5,\"dropped\":1}}}}");
    (void)state;
    assert_non_null(strstr(text, "\nblasd_job_phase_seconds_bucket{op=\"matmul\",phase=\"queue\","
                                 "class=\"cpu\",worker=\"one\",le=\"1e-05\"} 1\n"));
    assert_non_null(strstr(text, "worker=\"one\",le=\"300\"} 3\n"));
    assert_non_null(strstr(text, "worker=\"one\",le=\"+Inf\"} 7\n"));
    assert_non_null(strstr(text, "blasd_job_phase_seconds_sum{op=\"matmul\",phase=\"queue\","
                                 "class=\"cpu\",worker=\"one\"} 7\n"));
    assert_non_null(strstr(text, "blasd_batch_jobs_bucket{op=\"matmul\",class=\"cpu\","
                                 "worker=\"one\",le=\"2\"} 3\n"));
    assert_non_null(strstr(text, "blasd_batch_jobs_count{op=\"matmul\",class=\"cpu\","
                                 "worker=\"one\"} 3\n"));
    assert_non_null(
        strstr(text, "\nblasd_worker_otlp_spans_total{worker=\"one\",outcome=\"sent\"} 5\n"));
    assert_null(strstr(text, "bad"));
    assert_null(strstr(text, "worse"));
}

static void what_waits(void **state) {
    const char *text = metrics_of(
        "{\"queue\":{\"jobs\":3,\"running\":1,\"records_bytes\":64,\"cpu\":{\"low\":{\"queued\":2,"
        "\"claimed\":1,\"oldest_us\":1500000}}},\"tenants\":{\"acme\":{\"waiting\":2}}}");
    (void)state;
    assert_non_null(strstr(text, "\nblasd_queue_waiting_jobs{class=\"cpu\",priority=\"low\"} 2\n"));
    assert_non_null(
        strstr(text, "\nblasd_queue_oldest_seconds{class=\"cpu\",priority=\"low\"} 1.5\n"));
    assert_int_equal(count(text, "\nblasd_queue_oldest_seconds{"), 9);
    assert_non_null(strstr(text, "\nblasd_queue_running_jobs 1\n"));
    assert_non_null(strstr(text, "\nblasd_tenant_waiting_jobs{tenant=\"acme\"} 2\n"));
}

static void what_is_not_statistics_adds_nothing(void **state) {
    static const char *const texts[] = {"",
                                        "{",
                                        "[]",
                                        "7",
                                        "{}",
                                        "{\"workers\":[]}",
                                        "{\"workers\":{\"a\":7,\"b\":null,\"c\":[]}}",
                                        "{\"workers\":{\"a\":{\"power_watts\":\"much\"}}}"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_string_equal(metrics_of(texts[i]), "");
}

static void memory_that_runs_out_is_told(void **state) {
    static const char text[] = "{\"workers\":{\"a\":{\"memory_bytes\":1}}}";
    struct blasd_buf small;
    (void)state;
    blasd_buf_init(&small, 20);
    struct http_metric_rows rows = {.out = &small};
    http_stats_metrics(text, sizeof text - 1, &rows);
    assert_int_not_equal(rows.failed, 0);
    blasd_buf_release(&small);
}

/* A worker that says of itself what is no JSON is not there; the others are. */
static void one_that_cannot_be_read(void **state) {
    const char *text = metrics_of(
        "{\"workers\":{\"one\":{\"device\":\"cpu:0\",\"memory_bytes\":64},\"two\":{\"device\":"
        "\"cpu:0\",\"memory_bytes\":NaN}},\"figures\":{\"two\":{\"ops\":NaN}},\"queue\":{},"
        "\"totals\":{\"matmul succeeded\":3}}");
    (void)state;
    assert_int_equal(count(text, "\nblasd_device_memory_bytes{"), 1);
    assert_int_equal(count(text, "op=\"matmul\",state=\"succeeded\"} 3\n"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_told),
        cmocka_unit_test(what_is_sent_to_others),
        cmocka_unit_test(ends_of_jobs),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(what_workers_count),
        cmocka_unit_test(what_waits),
        cmocka_unit_test(one_that_cannot_be_read),
        cmocka_unit_test(what_is_not_statistics_adds_nothing),
        cmocka_unit_test(memory_that_runs_out_is_told),
    };
    int failed;
    blasd_buf_init(&out, 1 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    blasd_buf_release(&out);
    return failed;
}
