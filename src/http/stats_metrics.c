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

/* A row for each worker that tells the figure, and no head where none does. */
static int put_device(enum blasd_metric metric, const char *key, double factor, json_t *workers,
                      struct blasd_buf *out) {
    const char *worker;
    json_t *info;
    bool headed = false;
    int failed = 0;
    json_object_foreach(workers, worker, info) {
        const json_t *figure = json_object_get(info, key);
        const char *values[] = {worker, text_of(info, "device"), text_of(info, "device_name")};
        if (!json_is_number(figure)) continue;
        if (!headed) failed |= http_metric_head(out, metric);
        headed = true;
        failed |= http_metric_row(out, metric, values, json_number_value(figure) * factor);
    }
    return failed;
}

static int put_devices(json_t *workers, struct blasd_buf *out) {
    return put_device(METRIC(blasd_device_memory_bytes), "memory_bytes", 1, workers, out) |
           put_device(METRIC(blasd_device_memory_free_bytes), "memory_free_bytes", 1, workers,
                      out) |
           put_device(METRIC(blasd_device_busy_ratio), "busy_share", 1, workers, out) |
           put_device(METRIC(blasd_device_utilization_ratio), "busy_percent", 0.01, workers, out) |
           put_device(METRIC(blasd_device_power_watts), "power_watts", 1, workers, out) |
           put_device(METRIC(blasd_device_energy_joules_total), "energy_joules", 1, workers, out);
}

static double total_of(const json_t *totals, const char *op, const char *what) {
    char key[BLASD_NAME_MAX + 32];
    snprintf(key, sizeof key, "%s %s", op, what);
    return number_of(totals, key);
}

/* The rows of one operation's failures, by code; returns how many jobs they are. */
static double put_failures(json_t *totals, const char *op, struct blasd_buf *out, int *failed) {
    char head[BLASD_NAME_MAX + 32];
    size_t len = (size_t)snprintf(head, sizeof head, "%s failed ", op);
    double sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(totals, key, value) {
        const char *values[] = {op, key + len};
        if (strncmp(key, head, len) != 0) continue;
        sum += json_number_value(value);
        if (out != NULL)
            *failed |= http_metric_row(out, METRIC(blasd_job_failures_total), values,
                                       json_number_value(value));
    }
    return sum;
}

static int put_jobs(json_t *totals, struct blasd_buf *out) {
    int failed = 0;
    if (!json_is_object(totals)) return 0;
    failed |= http_metric_head(out, METRIC(blasd_jobs_submitted_total));
    for (const struct blasd_op *const *op = blasd_ops; *op != NULL; op++)
        failed |= http_metric_row(out, METRIC(blasd_jobs_submitted_total), &(*op)->name,
                                  total_of(totals, (*op)->name, "submitted"));
    failed |= http_metric_head(out, METRIC(blasd_jobs_total));
    for (const struct blasd_op *const *op = blasd_ops; *op != NULL; op++)
        for (int state = BLASD_SUCCEEDED; state <= BLASD_EXPIRED; state++) {
            const char *values[] = {(*op)->name, blasd_state_names[state]};
            failed |= http_metric_row(out, METRIC(blasd_jobs_total), values,
                                      state == BLASD_FAILED
                                          ? put_failures(totals, (*op)->name, NULL, NULL)
                                          : total_of(totals, values[0], values[1]));
        }
    failed |= http_metric_head(out, METRIC(blasd_job_failures_total));
    for (const struct blasd_op *const *op = blasd_ops; *op != NULL; op++)
        put_failures(totals, (*op)->name, out, &failed);
    return failed;
}

/* One figure of what waits in each place of the queue. */
static int put_places(enum blasd_metric metric, const char *key, double factor, const json_t *queue,
                      struct blasd_buf *out) {
    int failed = http_metric_head(out, metric);
    for (int class = 0; class < BLASD_DEVICE_CLASS_COUNT; class ++)
        for (int priority = 0; priority < BLASD_PRIORITY_COUNT; priority++) {
            const char *values[] = {blasd_device_class_names[class],
                                    blasd_priority_names[priority]};
            const json_t *place = json_object_get(json_object_get(queue, values[0]), values[1]);
            failed |= http_metric_row(out, metric, values, number_of(place, key) * factor);
        }
    return failed;
}

static int put_waiting(const json_t *queue, struct blasd_buf *out) {
    if (json_object_get(queue, "running") == NULL) return 0;
    return put_places(METRIC(blasd_queue_waiting_jobs), "queued", 1, queue, out) |
           put_places(METRIC(blasd_queue_claimed_jobs), "claimed", 1, queue, out) |
           put_places(METRIC(blasd_queue_oldest_seconds), "oldest_us", 1e-6, queue, out) |
           http_metric_one(out, METRIC(blasd_queue_running_jobs), number_of(queue, "running")) |
           http_metric_one(out, METRIC(blasd_results_bytes), number_of(queue, "records_bytes"));
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
static int put_counted(bool phases, const char *worker, const char *class, const char *op,
                       json_t *counted, struct blasd_buf *out) {
    const char *phase;
    json_t *numbers;
    int failed = 0;
    json_object_foreach(counted, phase, numbers) {
        const char *values[] = {op, phase, class, worker}, *batch[] = {op, class, worker};
        struct blasd_histogram_sum sum;
        if ((strcmp(phase, "batch") != 0) != phases || !read_histogram(numbers, &sum)) continue;
        failed |= phases ? http_metric_histogram(out, METRIC(blasd_job_phase_seconds), values, &sum,
                                                 blasd_bounds_us, 1e6)
                         : http_metric_histogram(out, METRIC(blasd_batch_jobs), batch, &sum,
                                                 blasd_bounds_jobs, 1);
    }
    return failed;
}

static int put_all_counted(bool phases, json_t *figures, const json_t *workers,
                           struct blasd_buf *out) {
    const char *worker, *op;
    json_t *told, *counted;
    int failed =
        http_metric_head(out, phases ? METRIC(blasd_job_phase_seconds) : METRIC(blasd_batch_jobs));
    json_object_foreach(figures, worker, told) {
        const char *device = text_of(json_object_get(workers, worker), "device");
        char class[16];
        snprintf(class, sizeof class, "%.*s", (int)strcspn(device, ":"), device);
        json_object_foreach(json_object_get(told, "ops"), op, counted) failed |=
            put_counted(phases, worker, class, op, counted, out);
    }
    return failed;
}

static int put_spans(json_t *figures, struct blasd_buf *out) {
    static const char *const outcomes[] = {"sent", "dropped", "refused"};
    const char *worker;
    json_t *told;
    bool headed = false;
    int failed = 0;
    json_object_foreach(figures, worker, told) {
        json_t *spans = json_object_get(told, "spans");
        if (!json_is_object(spans)) continue;
        if (!headed) failed |= http_metric_head(out, METRIC(blasd_worker_otlp_spans_total));
        headed = true;
        for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++) {
            const char *values[] = {worker, outcomes[i]};
            failed |= http_metric_row(out, METRIC(blasd_worker_otlp_spans_total), values,
                                      number_of(spans, outcomes[i]));
        }
    }
    return failed;
}

static int put_tenant(enum blasd_metric metric, const char *key, json_t *tenants,
                      struct blasd_buf *out) {
    const char *tenant;
    json_t *has;
    int failed = http_metric_head(out, metric);
    json_object_foreach(tenants, tenant, has) {
        if (json_object_get(has, key) == NULL) continue; /* nobody counts it */
        failed |= http_metric_row(out, metric, &tenant, number_of(has, key));
    }
    return failed;
}

static int put_tenants(json_t *tenants, struct blasd_buf *out) {
    if (!json_is_object(tenants)) return 0;
    return put_tenant(METRIC(blasd_tenant_waiting_jobs), "waiting", tenants, out) |
           put_tenant(METRIC(blasd_tenant_jobs), "jobs", tenants, out) |
           put_tenant(METRIC(blasd_tenant_bytes), "bytes", tenants, out) |
           put_tenant(METRIC(blasd_tenant_results_bytes), "results_bytes", tenants, out);
}

#define TENANTS_MOST 65 /* that a worker may name */

/* One of the numbers that workers count by tenant. */
static int put_used(enum blasd_metric metric, size_t number, double factor, json_t *figures,
                    struct blasd_buf *out) {
    const char *worker, *tenant;
    json_t *told, *numbers;
    int failed = http_metric_head(out, metric);
    json_object_foreach(figures, worker, told) {
        int rows = 0;
        json_object_foreach(json_object_get(told, "tenants"), tenant, numbers) {
            const char *values[] = {tenant, worker};
            if (rows++ == TENANTS_MOST) break;
            failed |=
                http_metric_row(out, metric, values, (double)count_at(numbers, number) * factor);
        }
    }
    return failed;
}

static int put_all_used(json_t *figures, struct blasd_buf *out) {
    return put_used(METRIC(blasd_tenant_ended_jobs_total), 0, 1, figures, out) |
           put_used(METRIC(blasd_tenant_device_seconds_total), 1, 1e-6, figures, out) |
           put_used(METRIC(blasd_tenant_energy_joules_total), 2, 1e-3, figures, out);
}

static int put_tensors(const json_t *document, struct blasd_buf *out) {
    const json_t *tensors = json_object_get(document, "tensors");
    if (!json_is_object(tensors)) return 0;
    return http_metric_one(out, METRIC(blasd_tensors), number_of(tensors, "count")) |
           http_metric_one(out, METRIC(blasd_tensor_bytes), number_of(tensors, "bytes")) |
           http_metric_one(out, METRIC(blasd_tensors_evicted_total),
                           number_of(json_object_get(document, "totals"), "tensors evicted"));
}

static int put_webhooks(const json_t *document, struct blasd_buf *out) {
    static const char *const outcomes[] = {"delivered", "failed", "given_up"};
    const enum blasd_metric tries = METRIC(blasd_webhooks_total);
    const json_t *count = json_object_get(document, "webhooks");
    const json_t *totals = json_object_get(document, "totals");
    int failed = 0;
    if (!json_is_number(count)) return 0; /* of an earlier version */
    failed = http_metric_one(out, METRIC(blasd_webhooks_waiting), json_number_value(count)) |
             http_metric_head(out, tries);
    for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++)
        failed |=
            http_metric_row(out, tries, &outcomes[i], total_of(totals, "webhooks", outcomes[i]));
    return failed;
}

int http_stats_metrics(const char *stats, size_t len, struct blasd_buf *out) {
    json_t *document = blasd_stats_load(stats, len);
    json_t *workers = json_object_get(document, "workers");
    json_t *figures = json_object_get(document, "figures");
    int failed = put_jobs(json_object_get(document, "totals"), out) | put_devices(workers, out) |
                 put_waiting(json_object_get(document, "queue"), out);
    if (json_is_object(figures))
        failed |= put_all_counted(true, figures, workers, out) |
                  put_all_counted(false, figures, workers, out) | put_spans(figures, out);
    failed |= put_tenants(json_object_get(document, "tenants"), out);
    if (json_is_object(json_object_get(document, "tenants"))) failed |= put_all_used(figures, out);
    failed |= put_tensors(document, out);
    failed |= put_webhooks(document, out);
    json_decref(document);
    return failed;
}
