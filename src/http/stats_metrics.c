/* Rows of GET /metrics from the queue's stats: about jobs, which it counts where they end; about
 * what waits; about devices, from what workers tell with their heartbeats: memory, and what cards
 * count themselves; and what workers count of the jobs they end (worker/phases.h). Knows nothing of
 * Redis. Read next: metrics.c. */
#include "http/stats_metrics.h"

#include "core/op.h"
#include "core/record.h"
#include "http/metric_rows.h"
#include "wire/stats_load.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *text_of(const json_t *info, const char *key) {
    const char *text = json_string_value(json_object_get(info, key));
    return text == NULL ? "" : text;
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* A number of the stats and the metric that tells it, in another unit. */
struct figure {
    const char *key;
    double factor;
    enum blasd_metric metric;
};
#define COUNT(figures) (sizeof(figures) / sizeof *(figures))

/* A row for each worker that tells the figure. */
static void put_devices(json_t *workers, struct http_metric_rows *rows) {
    static const struct figure figures[] = {
        {"memory_bytes", 1, METRIC(blasd_device_memory_bytes)},
        {"memory_free_bytes", 1, METRIC(blasd_device_memory_free_bytes)},
        {"busy_share", 1, METRIC(blasd_device_busy_ratio)},
        {"busy_percent", 0.01, METRIC(blasd_device_utilization_ratio)},
        {"power_watts", 1, METRIC(blasd_device_power_watts)},
        {"energy_joules", 1, METRIC(blasd_device_energy_joules_total)}};
    const char *worker;
    json_t *info;
    for (const struct figure *one = figures; one < figures + COUNT(figures); one++)
        json_object_foreach(workers, worker, info) {
            const json_t *value = json_object_get(info, one->key);
            const char *values[] = {worker, text_of(info, "device"), text_of(info, "device_name")};
            if (json_is_number(value))
                http_metric_row(rows, one->metric, values, json_number_value(value) * one->factor);
        }
}

static double total_of(const json_t *totals, const char *op, const char *what) {
    char key[BLASD_NAME_MAX + 32];
    snprintf(key, sizeof key, "%s %s", op, what);
    return number_of(totals, key);
}

/* The rows of one operation's failures, by code, where `rows` is not NULL; returns how many jobs
 * they are. */
static double put_failures(json_t *totals, const char *op, struct http_metric_rows *rows) {
    char head[BLASD_NAME_MAX + 32];
    size_t len = (size_t)snprintf(head, sizeof head, "%s failed ", op);
    double sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(totals, key, value) {
        const char *values[] = {op, key + len};
        if (strncmp(key, head, len) != 0) continue;
        sum += json_number_value(value);
        if (rows != NULL)
            http_metric_row(rows, METRIC(blasd_job_failures_total), values,
                            json_number_value(value));
    }
    return sum;
}

static void put_jobs(json_t *totals, struct http_metric_rows *rows) {
    if (!json_is_object(totals)) return;
    for (const struct blasd_op *const *op = blasd_ops; *op != NULL; op++)
        http_metric_row(rows, METRIC(blasd_jobs_submitted_total), &(*op)->name,
                        total_of(totals, (*op)->name, "submitted"));
    for (const struct blasd_op *const *op = blasd_ops; *op != NULL; op++)
        for (int state = BLASD_SUCCEEDED; state <= BLASD_EXPIRED; state++) {
            const char *values[] = {(*op)->name, blasd_state_names[state]};
            http_metric_row(rows, METRIC(blasd_jobs_total), values,
                            state == BLASD_FAILED ? put_failures(totals, (*op)->name, NULL)
                                                  : total_of(totals, values[0], values[1]));
        }
    for (const struct blasd_op *const *op = blasd_ops; *op != NULL; op++)
        put_failures(totals, (*op)->name, rows);
}

/* What waits in each place of the queue, and what runs. */
static void put_queue(const json_t *queue, struct http_metric_rows *rows) {
    static const struct figure figures[] = {
        {"queued", 1, METRIC(blasd_queue_waiting_jobs)},
        {"claimed", 1, METRIC(blasd_queue_claimed_jobs)},
        {"oldest_us", 1e-6, METRIC(blasd_queue_oldest_seconds)}};
    if (json_object_get(queue, "running") == NULL) return;
    for (const struct figure *one = figures; one < figures + COUNT(figures); one++)
        for (int i = 0; i < BLASD_DEVICE_CLASS_COUNT * BLASD_PRIORITY_COUNT; i++) {
            const char *values[] = {blasd_device_class_names[i / BLASD_PRIORITY_COUNT],
                                    blasd_priority_names[i % BLASD_PRIORITY_COUNT]};
            const json_t *place = json_object_get(json_object_get(queue, values[0]), values[1]);
            http_metric_row(rows, one->metric, values, number_of(place, one->key) * one->factor);
        }
    http_metric_row(rows, METRIC(blasd_queue_running_jobs), NULL, number_of(queue, "running"));
    http_metric_row(rows, METRIC(blasd_results_bytes), NULL, number_of(queue, "records_bytes"));
}

static uint64_t count_at(const json_t *numbers, size_t i) {
    return (uint64_t)blasd_told(json_number_value(json_array_get(numbers, i)), 0x1p53);
}

/* BLASD_BUCKETS + 1 counts and the sum; false where that is not what it is. */
static bool read_histogram(const json_t *numbers, struct blasd_histogram_sum *ret) {
    if (json_array_size(numbers) != BLASD_BUCKETS + 2) return false;
    for (size_t i = 0; i <= BLASD_BUCKETS; i++) ret->buckets[i] = count_at(numbers, i);
    ret->sum = count_at(numbers, BLASD_BUCKETS + 1);
    return true;
}

/* What workers count of one operation: its phases, or, where `phases` is false, its batches. */
static void put_counted(bool phases, const char *worker, const char *class, const char *op,
                        json_t *counted, struct http_metric_rows *rows) {
    const char *phase;
    json_t *numbers;
    json_object_foreach(counted, phase, numbers) {
        const char *values[] = {op, phase, class, worker}, *batch[] = {op, class, worker};
        struct blasd_histogram_sum sum;
        if ((strcmp(phase, "batch") != 0) != phases || !read_histogram(numbers, &sum)) continue;
        if (phases)
            http_metric_histogram(rows, METRIC(blasd_job_phase_seconds), values, &sum,
                                  blasd_bounds_us, 1e6);
        else
            http_metric_histogram(rows, METRIC(blasd_batch_jobs), batch, &sum, blasd_bounds_jobs,
                                  1);
    }
}

static void put_all_counted(bool phases, json_t *figures, const json_t *workers,
                            struct http_metric_rows *rows) {
    const char *worker, *op;
    json_t *told, *counted;
    json_object_foreach(figures, worker, told) {
        const char *device = text_of(json_object_get(workers, worker), "device");
        char class[16];
        snprintf(class, sizeof class, "%.*s", (int)strcspn(device, ":"), device);
        json_object_foreach(json_object_get(told, "ops"), op, counted)
            put_counted(phases, worker, class, op, counted, rows);
    }
}

static void put_spans(json_t *figures, struct http_metric_rows *rows) {
    static const char *const outcomes[] = {"sent", "dropped", "refused"};
    const char *worker;
    json_t *told;
    json_object_foreach(figures, worker, told) {
        const json_t *spans = json_object_get(told, "spans");
        if (!json_is_object(spans)) continue;
        for (size_t i = 0; i < COUNT(outcomes); i++) {
            const char *values[] = {worker, outcomes[i]};
            http_metric_row(rows, METRIC(blasd_worker_otlp_spans_total), values,
                            number_of(spans, outcomes[i]));
        }
    }
}

#define TENANTS_MOST 65 /* that a worker may name */

/* What the queue counts of each tenant, and workers of those whose jobs they end. */
static void put_tenants(json_t *tenants, json_t *figures, struct http_metric_rows *rows) {
    static const struct figure counted[] = {
        {"waiting", 1, METRIC(blasd_tenant_waiting_jobs)},
        {"jobs", 1, METRIC(blasd_tenant_jobs)},
        {"bytes", 1, METRIC(blasd_tenant_bytes)},
        {"results_bytes", 1, METRIC(blasd_tenant_results_bytes)}};
    static const struct figure used[] = {/* by place in the worker's list */
                                         {NULL, 1, METRIC(blasd_tenant_ended_jobs_total)},
                                         {NULL, 1e-6, METRIC(blasd_tenant_device_seconds_total)},
                                         {NULL, 1e-3, METRIC(blasd_tenant_energy_joules_total)}};
    const char *worker, *tenant;
    json_t *told, *has;
    if (!json_is_object(tenants)) return;
    for (const struct figure *one = counted; one < counted + COUNT(counted); one++) {
        http_metric_head(rows, one->metric);
        json_object_foreach(tenants, tenant, has) if (json_object_get(has, one->key) != NULL)
            http_metric_row(rows, one->metric, &tenant, number_of(has, one->key));
    }
    for (size_t i = 0; i < COUNT(used); i++) {
        http_metric_head(rows, used[i].metric);
        json_object_foreach(figures, worker, told) {
            int count = 0;
            json_object_foreach(json_object_get(told, "tenants"), tenant, has) {
                const char *values[] = {tenant, worker};
                if (count++ == TENANTS_MOST) break;
                http_metric_row(rows, used[i].metric, values,
                                (double)count_at(has, i) * used[i].factor);
            }
        }
    }
}

static void put_tensors(const json_t *document, struct http_metric_rows *rows) {
    const json_t *tensors = json_object_get(document, "tensors");
    if (!json_is_object(tensors)) return;
    http_metric_row(rows, METRIC(blasd_tensors), NULL, number_of(tensors, "count"));
    http_metric_row(rows, METRIC(blasd_tensor_bytes), NULL, number_of(tensors, "bytes"));
    http_metric_row(rows, METRIC(blasd_tensors_evicted_total), NULL,
                    number_of(json_object_get(document, "totals"), "tensors evicted"));
}

static void put_webhooks(const json_t *document, struct http_metric_rows *rows) {
    static const char *const outcomes[] = {"delivered", "failed", "given_up"};
    const json_t *count = json_object_get(document, "webhooks");
    if (!json_is_number(count)) return; /* of an earlier version */
    http_metric_row(rows, METRIC(blasd_webhooks_waiting), NULL, json_number_value(count));
    for (size_t i = 0; i < COUNT(outcomes); i++)
        http_metric_row(rows, METRIC(blasd_webhooks_total), &outcomes[i],
                        total_of(json_object_get(document, "totals"), "webhooks", outcomes[i]));
}

void http_stats_metrics(const char *stats, size_t len, struct http_metric_rows *rows) {
    json_t *document = blasd_stats_load(stats, len);
    json_t *workers = json_object_get(document, "workers");
    json_t *figures = json_object_get(document, "figures");
    put_jobs(json_object_get(document, "totals"), rows);
    put_devices(workers, rows);
    put_queue(json_object_get(document, "queue"), rows);
    put_all_counted(true, figures, workers, rows);
    put_all_counted(false, figures, workers, rows);
    put_spans(figures, rows);
    put_tenants(json_object_get(document, "tenants"), figures, rows);
    put_tensors(document, rows);
    put_webhooks(document, rows);
    json_decref(document);
}
