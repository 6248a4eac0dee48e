/* Writing rows of GET /metrics. Read next: metrics.c. */
#include "http/metric_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void http_metric_head(struct http_metric_rows *rows, enum blasd_metric metric) {
    const struct blasd_metric_info *info = blasd_metric_info(metric);
    if (rows->written == info) return;
    rows->written = info;
    rows->failed |= blasd_buf_printf(rows->out, "# HELP %s %s\n# TYPE %s %s\n", info->name,
                                     info->meaning, info->name, info->type);
}

/* A label's value: quotes, backslashes and line ends escaped. */
static int put_value(struct blasd_buf *out, const char *value) {
    int failed = 0;
    for (size_t len; *value != '\0'; value += len) {
        len = strcspn(value, "\n\"\\");
        if (len > 0)
            failed |= blasd_buf_add(out, value, len);
        else
            failed |= blasd_buf_printf(out, "\\%c", *value == '\n' ? 'n' : *value);
        if (len == 0) len = 1;
    }
    return failed;
}

/* name{label="value",…}, with `le` as the last label where that is not NULL. */
static void put_series(struct http_metric_rows *rows, enum blasd_metric metric, const char *suffix,
                       const char *const *values, const char *le) {
    const struct blasd_metric_info *info = blasd_metric_info(metric);
    const char *between = "{";
    int failed;
    http_metric_head(rows, metric);
    failed = blasd_buf_printf(rows->out, "%s%s", info->name, suffix);
    for (const char *label = info->labels; *label != '\0'; values++) {
        size_t len = strcspn(label, " ");
        failed |= blasd_buf_printf(rows->out, "%s%.*s=\"", between, (int)len, label);
        failed |= put_value(rows->out, *values);
        failed |= blasd_buf_puts(rows->out, "\"");
        between = ",";
        label += len + (label[len] == ' ');
    }
    if (le != NULL) {
        failed |= blasd_buf_printf(rows->out, "%sle=\"%s\"", between, le);
        between = ",";
    }
    rows->failed |= failed | blasd_buf_puts(rows->out, *between == '{' ? " " : "} ");
}

void http_metric_row(struct http_metric_rows *rows, enum blasd_metric metric,
                     const char *const *values, double value) {
    put_series(rows, metric, "", values, NULL);
    rows->failed |= blasd_buf_printf(rows->out, "%.17g\n", value);
}

void http_metric_histogram(struct http_metric_rows *rows, enum blasd_metric metric,
                           const char *const *values, const struct blasd_histogram_sum *sum,
                           const int64_t *bounds, double unit) {
    uint64_t count = 0;
    for (int i = 0; i <= BLASD_BUCKETS; i++) {
        char le[32] = "+Inf";
        if (i < BLASD_BUCKETS) snprintf(le, sizeof le, "%g", (double)bounds[i] / unit);
        count += sum->buckets[i];
        put_series(rows, metric, "_bucket", values, le);
        rows->failed |= blasd_buf_printf(rows->out, "%" PRIu64 "\n", count);
    }
    put_series(rows, metric, "_sum", values, NULL);
    rows->failed |= blasd_buf_printf(rows->out, "%.17g\n", (double)sum->sum / unit);
    put_series(rows, metric, "_count", values, NULL);
    rows->failed |= blasd_buf_printf(rows->out, "%" PRIu64 "\n", count);
}
