/* What is told of each job that this worker has ended: a line of the log, and what its tenant used.
 * Read next: phases.h. */
#ifndef BLASD_WORKER_ENDED_H
#define BLASD_WORKER_ENDED_H

#include "core/price.h"
#include "core/record.h"

struct blasd_item;
struct blasd_worker_options;

/* A plain value. */
struct blasd_ended {
    enum blasd_state state;
    enum blasd_code code; /* BLASD_OK: none */
    int attempts;
    struct blasd_usage used;
    double flops;
    uint64_t bytes;
};

struct blasd_ended blasd_ended_of(const struct blasd_record *record);
/* Logs the job of `item`, which ran on the device called `device`: each one where the options say
 * so, else those that failed, some in a second. */
void blasd_ended_log(const struct blasd_ended *ended, const struct blasd_item *item,
                     const char *device, const struct blasd_worker_options *options);

#endif
