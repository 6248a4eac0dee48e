/* Counters, for GET /metrics. Each loop writes its own and reads none; the route adds them up. */
#ifndef BLASD_HTTP_METRICS_H
#define BLASD_HTTP_METRICS_H

#include "base/histogram.h"
#include "core/record.h"

#include <stdatomic.h>
#include <stdint.h>

#define HTTP_MAX_ROUTES 64
#define HTTP_MAX_STATUSES 25

/* What jobs of one operation that were waited for came to. */
struct http_op_metrics {
    _Atomic uint64_t succeeded, failed, last_ms;
    _Atomic uint64_t executions; /* in 2^-20: a job in a batch of n is 1/n of one */
    _Atomic uint64_t succeeded_us, failed_us, queue_us, upload_us, compute_us, download_us;
};

struct http_metrics {
    _Atomic uint64_t requests[HTTP_MAX_ROUTES + 1][HTTP_MAX_STATUSES]; /* last row: no route */
    _Atomic uint64_t sent[BLASD_DEVICE_CLASS_COUNT]; /* jobs queued for each class of devices */
    _Atomic uint64_t connections, in_flight, waiting;
    _Atomic uint64_t received_bytes, sent_bytes;
    _Atomic uint64_t problems[BLASD_E_COUNT];
    struct blasd_histogram redis;               /* round trips of the loop's queue */
    struct http_op_metrics ops[BLASD_OPS_MOST]; /* by position in blasd_ops */
};

/* Only the loop that owns a counter adds to it, so that no locked instruction is needed. */
static inline void http_count(_Atomic uint64_t *counter, uint64_t more) {
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + more, memory_order_relaxed);
}
static inline void http_uncount(_Atomic uint64_t *counter) {
    http_count(counter, UINT64_MAX);
}

/* `route`: its row, or negative for none; `problem`: what the answer says, or BLASD_OK. */
void http_metrics_request(struct http_metrics *metrics, int route, unsigned status,
                          enum blasd_code problem);
/* A job that was waited for. */
void http_metrics_job(struct http_metrics *metrics, const struct blasd_record *record);

struct http_server;
struct blasd_oip_stats;
/* Adds up what all loops have counted of operation number `i`. */
void http_metrics_op(const struct http_server *server, int i, struct blasd_oip_stats *ret);

#endif
