/* Rows of GET /metrics in Prometheus' text format; what they are called stands in
 * base/metric_table.h. */
#ifndef BLASD_HTTP_METRIC_ROWS_H
#define BLASD_HTTP_METRIC_ROWS_H

#include "base/buf.h"
#include "base/histogram.h"
#include "base/metric_table.h"

#define METRIC(name) BLASD_METRIC_##name

/* Where rows are written, those of one metric after the other. */
struct http_metric_rows {
    struct blasd_buf *out;
    int failed;                              /* not 0: memory has run out */
    const struct blasd_metric_info *written; /* whose head stands above the last row; NULL: none */
};

/* What stands above a metric's rows; where it has none it is said all the same. */
void http_metric_head(struct http_metric_rows *rows, enum blasd_metric metric);
/* A row, below the metric's head; `values` are those of the table's labels, in that order, and may
 * be NULL where it has none. */
void http_metric_row(struct http_metric_rows *rows, enum blasd_metric metric,
                     const char *const *values, double value);
/* The rows of a histogram; its bounds and sum are divided by `unit`. */
void http_metric_histogram(struct http_metric_rows *rows, enum blasd_metric metric,
                           const char *const *values, const struct blasd_histogram_sum *sum,
                           const int64_t *bounds, double unit);

#endif
