/* Rows of GET /metrics in Prometheus' text format; what they are called stands in
 * base/metric_table.h. Each appends to `out` and returns 0, or not where memory has run out. */
#ifndef BLASD_HTTP_METRIC_ROWS_H
#define BLASD_HTTP_METRIC_ROWS_H

#include "base/buf.h"
#include "base/histogram.h"
#include "base/metric_table.h"

#define METRIC(name) BLASD_METRIC_##name

/* What stands above a metric's rows, all of which follow it. */
int http_metric_head(struct blasd_buf *out, enum blasd_metric metric);
/* The head, and the one row of a metric without labels. */
int http_metric_one(struct blasd_buf *out, enum blasd_metric metric, double value);
/* A row; `values` are those of the table's labels, in that order. */
int http_metric_row(struct blasd_buf *out, enum blasd_metric metric, const char *const *values,
                    double value);
/* The rows of a histogram; its bounds and sum are divided by `unit`. */
int http_metric_histogram(struct blasd_buf *out, enum blasd_metric metric,
                          const char *const *values, const struct blasd_histogram_sum *sum,
                          const int64_t *bounds, double unit);

#endif
