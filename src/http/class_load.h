/* GET /load: how much work waits for each class of devices, and how many workers would clear it in
 * a given time: what starts and ends workers asks that (KEDA's metrics-api scaler, say). */
#ifndef BLASD_HTTP_CLASS_LOAD_H
#define BLASD_HTTP_CLASS_LOAD_H

#include <jansson.h>

#define HTTP_LOAD_TARGET_S 30 /* where the request names no other */

/* From the text of BLASD_FIGURES_METRICS. Jobs for any class count with cpu, but where workers of
 * cuda alone live. `target_s` is above 0. New reference; NULL where the text is no document. */
json_t *http_load_document(const char *stats, size_t len, double target_s);

#endif
