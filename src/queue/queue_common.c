/* The few values that both sides of the queue share and that need no Redis: the anonymous tenant
 * and the limits as the functions take them. Read next: redis_link.c. */
#include "queue/redis_link.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct blasd_principal blasd_anonymous = {.tenant = "anonymous"};

#define LEAST_BYTES (64 * BLASD_MIB)

/* A limit of 0 is a share of the store; a store whose size is not known counts as 4 GiB. */
static uint64_t share_or(uint64_t limit, uint64_t all, uint64_t parts) {
    if (limit) return limit;
    if (!all) all = 4 * BLASD_GIB;
    return all / parts > LEAST_BYTES ? all / parts : LEAST_BYTES;
}

void blasd_link_limits(const struct blasd_queue_options *options, struct blasd_link_limits *ret) {
    const struct blasd_limits *limits = options->limits;
    uint64_t free_bytes = 0, all_bytes = 0;
    if (!limits->queue_bytes || !limits->record_bytes || !limits->record_sync_bytes)
        blasd_store_space(options->store, &free_bytes, &all_bytes);
    ret->queue_jobs = limits->queue_jobs;
    ret->queue_bytes = share_or(limits->queue_bytes, all_bytes, 2);
    ret->record_bytes = share_or(limits->record_bytes, all_bytes, 4);
    ret->record_sync_bytes = share_or(limits->record_sync_bytes, all_bytes, 64);
    snprintf(ret->text, sizeof ret->text,
             "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
             " %" PRIu64,
             limits->attempts, ret->record_bytes, limits->record_sync_s, limits->record_async_s,
             ret->queue_jobs, ret->queue_bytes, limits->lease_ms, ret->record_sync_bytes);
}
