/* What the queue counts of jobs, and workers say of their devices, as Prometheus' text. Read next:
 * stats_metrics.c. */
#ifndef BLASD_HTTP_STATS_METRICS_H
#define BLASD_HTTP_STATS_METRICS_H

#include "http/metric_rows.h"

/* Writes what jobs were submitted and how they ended, in the whole deployment since its queue was
 * made, and a row of each figure for each worker that tells it. `stats` is what BLASD_FIGURES_STATS
 * gives; text that is not that adds nothing. */
void http_stats_metrics(const char *stats, size_t len, struct http_metric_rows *rows);

#endif
