/* What workers say of their devices, as Prometheus' text. Read next: device_metrics.c. */
#ifndef BLASD_HTTP_DEVICE_METRICS_H
#define BLASD_HTTP_DEVICE_METRICS_H

#include "base/buf.h"

/* Appends a family for each figure that some worker tells, with a row for each worker that does.
 * `stats` is what blasd_front_queue_stats gives; text that is not that adds nothing. 0, or not
 * where memory has run out. */
int http_device_metrics(const char *stats, size_t len, struct blasd_buf *out);

#endif
