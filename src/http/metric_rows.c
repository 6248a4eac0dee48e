/* Writing rows of GET /metrics. Read next: metrics.c. */
#include "http/metric_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int http_metric_head(struct blasd_buf *out, enum blasd_metric metric) {
    const struct blasd_metric_info *info = blasd_metric_info(metric);
    return blasd_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", info->name, info->meaning,
                            info->name, info->type);
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
static int put_series(struct blasd_buf *out, enum blasd_metric metric, const char *suffix,
                      const char *const *values, const char *le) {
    const struct blasd_metric_info *info = blasd_metric_info(metric);
    const char *between = "{";
    int failed = blasd_buf_printf(out, "%s%s", info->name, suffix);
    for (const char *label = info->labels; *label != '\0'; values++) {
        size_t len = strcspn(label, " ");
        failed |= blasd_buf_printf(out, "%s%.*s=\"", between, (int)len, label);
        failed |= put_value(out, *values);
        failed |= blasd_buf_puts(out, "\"");
        between = ",";
        label += len + (label[len] == ' ');
    }
    if (le != NULL) {
        failed |= blasd_buf_printf(out, "%sle=\"%s\"", between, le);
        between = ",";
    }
    return failed | blasd_buf_puts(out, *between == '{' ? " " : "} ");
}

int http_metric_row(struct blasd_buf *out, enum blasd_metric metric, const char *const *values,
                    double value) {
    return put_series(out, metric, "", values, NULL) | blasd_buf_printf(out, "%.17g\n", value);
}

int http_metric_one(struct blasd_buf *out, enum blasd_metric metric, double value) {
    return http_metric_head(out, metric) | http_metric_row(out, metric, NULL, value);
}

int http_metric_histogram(struct blasd_buf *out, enum blasd_metric metric,
                          const char *const *values, const struct blasd_histogram_sum *sum,
                          const int64_t *bounds, double unit) {
    uint64_t count = 0;
    int failed = 0;
    for (int i = 0; i <= BLASD_BUCKETS; i++) {
        char le[32] = "+Inf";
        if (i < BLASD_BUCKETS) snprintf(le, sizeof le, "%g", (double)bounds[i] / unit);
        count += sum->buckets[i];
        failed |= put_series(out, metric, "_bucket", values, le);
        failed |= blasd_buf_printf(out, "%" PRIu64 "\n", count);
    }
    failed |= put_series(out, metric, "_sum", values, NULL);
    failed |= blasd_buf_printf(out, "%.17g\n", (double)sum->sum / unit);
    failed |= put_series(out, metric, "_count", values, NULL);
    return failed | blasd_buf_printf(out, "%" PRIu64 "\n", count);
}
