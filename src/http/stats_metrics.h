/* What the queue counts of jobs, and workers say of their devices, as Prometheus' text. Read next:
 * stats_metrics.c. */
#ifndef BLASD_HTTP_STATS_METRICS_H
#define BLASD_HTTP_STATS_METRICS_H

#include "base/buf.h"

/* Appends what jobs were submitted and how they ended, in the whole deployment since its queue was
 * made, and a family for each figure that some worker tells, with a row for each worker that does.
 * `stats` is what BLASD_FIGURES_STATS gives; text that is not that adds nothing. 0, or not
 * where memory has run out. */
int http_stats_metrics(const char *stats, size_t len, struct blasd_buf *out);

#endif
