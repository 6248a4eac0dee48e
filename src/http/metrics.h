/* Counters, for GET /metrics. Each loop writes its own and reads none; the route adds them up. */
#ifndef BLASD_HTTP_METRICS_H
#define BLASD_HTTP_METRICS_H

#include "core/record.h"

#include <stdatomic.h>
#include <stdint.h>

#define HTTP_MAX_ROUTES 24
#define HTTP_MAX_STATUSES 24
#define HTTP_BUCKETS 16

struct http_histogram {
    _Atomic uint64_t buckets[HTTP_BUCKETS + 1]; /* the last one: beyond all bounds */
    _Atomic uint64_t sum_us;
};

struct http_metrics {
    _Atomic uint64_t requests[HTTP_MAX_ROUTES + 1][HTTP_MAX_STATUSES]; /* last row: no route */
    _Atomic uint64_t sent[BLASD_DEVICE_CLASS_COUNT]; /* jobs queued for each class of devices */
    _Atomic uint64_t connections, in_flight, waiting;
    _Atomic uint64_t received_bytes, sent_bytes;
    struct http_histogram queue, compute, total;
};

/* Only the loop that owns a counter adds to it, so that no locked instruction is needed. */
static inline void http_count(_Atomic uint64_t *counter, uint64_t more) {
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + more, memory_order_relaxed);
}
static inline void http_uncount(_Atomic uint64_t *counter) {
    http_count(counter, UINT64_MAX);
}

/* `route`: its row, or negative for none. */
void http_metrics_request(struct http_metrics *metrics, int route, unsigned status);
/* The times of a job that was waited for. */
void http_metrics_job(struct http_metrics *metrics, const struct blasd_record *record);

#endif
