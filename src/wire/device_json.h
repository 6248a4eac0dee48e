/* A device, and the worker that serves it, as GET /devices and `blasd devices --json` show them.
 * Read next: cost_text.h. */
#ifndef BLASD_WIRE_DEVICE_JSON_H
#define BLASD_WIRE_DEVICE_JSON_H

#include "core/cost.h"
#include "core/kernel.h"

struct json_t;

/* What a worker says of itself; all borrowed. */
struct blasd_worker_facts {
    const char *name, *host;
    const struct blasd_backend *backend;
    const struct blasd_device_info *device;
    const struct blasd_cost *cost; /* of jobs on it */
    uint64_t host_memory, jobs, failed, batches;
    int running; /* jobs */
    double uptime_s, busy_s, busy_share, jobs_per_s;
};

/* New; NULL where memory has run out. `cost` may be NULL. */
struct json_t *blasd_device_json(const struct blasd_device_info *info,
                                 const struct blasd_cost *cost);
/* The text of an object. New: freed by the caller; NULL where memory has run out. */
char *blasd_worker_json(const struct blasd_worker_facts *facts);

#endif
