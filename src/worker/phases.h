/* What a worker counts of the jobs it ends, for GET /metrics: where their time went, and how many
 * ran at once. Read next: lease.c, which publishes it. */
#ifndef BLASD_WORKER_PHASES_H
#define BLASD_WORKER_PHASES_H

#include "base/buf.h"
#include "base/histogram.h"
#include "core/price.h"
#include "core/principal.h"
#include "core/record.h"
#include "trace/otlp.h"

#include <pthread.h>

#define BLASD_PHASES 7          /* as in struct blasd_timing */
#define BLASD_PHASES_TENANTS 64 /* that are counted by their names */

/* What jobs of a tenant used of the device. */
struct blasd_phases_tenant {
    char name[BLASD_TENANT_MAX];
    uint64_t jobs;
    struct blasd_usage used;
};

struct blasd_phases {
    struct {
        struct blasd_histogram times[BLASD_PHASES], batch;
    } ops[BLASD_OPS_MOST]; /* by position in blasd_ops */
    _Atomic uint64_t jobs;
    pthread_mutex_t lock;                                         /* of what follows */
    struct blasd_phases_tenant tenants[BLASD_PHASES_TENANTS + 1]; /* the last: of all others */
    int tenant_count;
};

void blasd_phases_init(struct blasd_phases *phases);

/* A job has ended: any thread may say so. */
void blasd_phases_job(struct blasd_phases *phases, const struct blasd_record *record);
/* The queue has taken the end of one of its jobs; "": of who has no name. */
void blasd_phases_tenant(struct blasd_phases *phases, const char *tenant,
                         const struct blasd_usage *used);
/* So many jobs ran as one call. `op` may be NULL: it is not counted then. */
void blasd_phases_batch(struct blasd_phases *phases, const struct blasd_op *op, int jobs);
/* How many jobs were counted. */
uint64_t blasd_phases_jobs(const struct blasd_phases *phases);
/* Appends {"ops":{OP:{PHASE:[counts by bucket …, sum],…,"batch":[…]},…}} and a zero byte; 0, or -1
 * where memory has run out. Operations of which there was no job are left out. Spans
 * that were sent, dropped and refused stand beside "ops", where any are exported, and what
 * tenants used: "tenants":{TENANT:[jobs, us of the device, mJ],…}. */
int blasd_phases_text(struct blasd_phases *phases, const struct blasd_otlp *otlp,
                      struct blasd_buf *out);

#endif
