/* Rows of GET /metrics from the queue's stats: about jobs, which it counts where they end, and
 * about devices, from what workers tell with their heartbeats: memory, and what cards count
 * themselves. Knows nothing of Redis. Read next: metrics.c. */
#include "http/stats_metrics.h"

#include "core/op.h"
#include "core/record.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct family {
    const char *key, *name, *type, *help;
    double factor;
} families[] = {
    {"memory_bytes", "blasd_device_memory_bytes", "gauge", "Memory of the worker's device.", 1},
    {"memory_free_bytes", "blasd_device_memory_free_bytes", "gauge", "What of it is free.", 1},
    {"busy_share", "blasd_device_busy_ratio", "gauge",
     "Share of the time in which the worker had a batch in hand.", 1},
    {"busy_percent", "blasd_device_utilization_ratio", "gauge",
     "Share of the time in which anything ran on the card, as it tells itself.", 0.01},
    {"power_watts", "blasd_device_power_watts", "gauge", "What the card draws now.", 1},
    {"energy_joules", "blasd_device_energy_joules_total", "counter",
     "What the card has drawn since its driver was loaded.", 1},
};

/* A label's value: quotes, backslashes and line ends escaped. */
static int put_label(struct blasd_buf *out, const char *name, const char *value) {
    int failed = blasd_buf_printf(out, "%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '\n')
            failed |= blasd_buf_puts(out, "\\n");
        else if (*value == '"' || *value == '\\')
            failed |= blasd_buf_printf(out, "\\%c", *value);
        else
            failed |= blasd_buf_add(out, value, 1);
    }
    return failed | blasd_buf_puts(out, "\"");
}

static const char *text_of(const json_t *info, const char *key) {
    const char *text = json_string_value(json_object_get(info, key));
    return text == NULL ? "" : text;
}

static int put_family(const struct family *family, json_t *workers, struct blasd_buf *out) {
    const char *worker;
    json_t *info;
    bool headed = false;
    int failed = 0;
    json_object_foreach(workers, worker, info) {
        const json_t *figure = json_object_get(info, family->key);
        if (!json_is_number(figure)) continue;
        if (!headed)
            failed |= blasd_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", family->name,
                                       family->help, family->name, family->type);
        headed = true;
        failed |= blasd_buf_printf(out, "%s{", family->name);
        failed |= put_label(out, "worker", worker);
        failed |= put_label(out, ",device", text_of(info, "device"));
        failed |= put_label(out, ",device_name", text_of(info, "device_name"));
        failed |= blasd_buf_printf(out, "} %.17g\n", json_number_value(figure) * family->factor);
    }
    return failed;
}

static json_int_t total_of(const json_t *totals, const char *op, const char *what) {
    char key[BLASD_NAME_MAX + 32];
    snprintf(key, sizeof key, "%s %s", op, what);
    return json_integer_value(json_object_get(totals, key));
}

/* The rows of one operation's failures, by code; returns how many jobs they are. */
static json_int_t put_failures(json_t *totals, const char *op, struct blasd_buf *out, int *failed) {
    char head[BLASD_NAME_MAX + 32];
    size_t len = (size_t)snprintf(head, sizeof head, "%s failed ", op);
    json_int_t sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(totals, key, value) {
        json_int_t count = json_integer_value(value);
        if (strncmp(key, head, len) != 0) continue;
        sum += count;
        if (out == NULL) continue;
        *failed |= blasd_buf_printf(out, "blasd_job_failures_total{op=\"%s\"", op);
        *failed |= put_label(out, ",code", key + len);
        *failed |= blasd_buf_printf(out, "} %" JSON_INTEGER_FORMAT "\n", count);
    }
    return sum;
}

static int put_jobs(json_t *totals, struct blasd_buf *out) {
    int failed = 0;
    if (!json_is_object(totals)) return 0;
    failed |= blasd_buf_puts(out, "# HELP blasd_jobs_submitted_total Jobs taken in.\n"
                                  "# TYPE blasd_jobs_submitted_total counter\n");
    for (const struct blasd_op *const *op = blasd_ops; *op != NULL; op++)
        failed |= blasd_buf_printf(
            out, "blasd_jobs_submitted_total{op=\"%s\"} %" JSON_INTEGER_FORMAT "\n", (*op)->name,
            total_of(totals, (*op)->name, "submitted"));
    failed |= blasd_buf_puts(out, "# HELP blasd_jobs_total Jobs that have ended, by final state.\n"
                                  "# TYPE blasd_jobs_total counter\n");
    for (const struct blasd_op *const *op = blasd_ops; *op != NULL; op++)
        for (int state = BLASD_SUCCEEDED; state < BLASD_STATE_COUNT; state++)
            failed |= blasd_buf_printf(
                out, "blasd_jobs_total{op=\"%s\",state=\"%s\"} %" JSON_INTEGER_FORMAT "\n",
                (*op)->name, blasd_state_names[state],
                state == BLASD_FAILED ? put_failures(totals, (*op)->name, NULL, &failed)
                                      : total_of(totals, (*op)->name, blasd_state_names[state]));
    failed |= blasd_buf_puts(out, "# HELP blasd_job_failures_total Failed jobs, by error code.\n"
                                  "# TYPE blasd_job_failures_total counter\n");
    for (const struct blasd_op *const *op = blasd_ops; *op != NULL; op++)
        put_failures(totals, (*op)->name, out, &failed);
    return failed;
}

static int put_tensors(const json_t *document, struct blasd_buf *out) {
    const json_t *tensors = json_object_get(document, "tensors");
    const json_t *totals = json_object_get(document, "totals");
    int failed = 0;
    if (!json_is_object(tensors)) return 0;
    failed |= blasd_buf_printf(out,
                               "# HELP blasd_tensors Tensors that are kept.\n"
                               "# TYPE blasd_tensors gauge\n"
                               "blasd_tensors %" JSON_INTEGER_FORMAT "\n",
                               json_integer_value(json_object_get(tensors, "count")));
    failed |= blasd_buf_printf(out,
                               "# HELP blasd_tensor_bytes Bytes of tensors that are kept.\n"
                               "# TYPE blasd_tensor_bytes gauge\n"
                               "blasd_tensor_bytes %" JSON_INTEGER_FORMAT "\n",
                               json_integer_value(json_object_get(tensors, "bytes")));
    failed |=
        blasd_buf_printf(out,
                         "# HELP blasd_tensors_evicted_total Tensors that made way for others.\n"
                         "# TYPE blasd_tensors_evicted_total counter\n"
                         "blasd_tensors_evicted_total %" JSON_INTEGER_FORMAT "\n",
                         json_integer_value(json_object_get(totals, "tensors evicted")));
    return failed;
}

int http_stats_metrics(const char *stats, size_t len, struct blasd_buf *out) {
    json_t *document = json_loadb(stats, len, 0, NULL);
    json_t *workers = json_object_get(document, "workers");
    int failed = put_jobs(json_object_get(document, "totals"), out);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        failed |= put_family(&families[i], workers, out);
    failed |= put_tensors(document, out);
    json_decref(document);
    return failed;
}
