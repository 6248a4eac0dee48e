/* Measuring a device: jobs of every operation, of sizes that grow, through the backend's own `run`,
 * so that whatever a job pays is in the figure: conversions left out, launches, transfers, threads.
 *
 * Done in steps of some tens of milliseconds, which the worker takes while it has nothing else to
 * do; all of them come to less than a second. Other processes may get in the way of any step, so
 * all are taken again some time later, and the least counts. Read next: cost_file.h (where the
 * figures are kept). */
#ifndef BLASD_WORKER_MEASURE_H
#define BLASD_WORKER_MEASURE_H

#include "core/cost.h"
#include "core/kernel.h"

struct blasd_measure;

/* `backend` and `device` are borrowed until the end. */
int blasd_measure_new(const struct blasd_backend *backend, struct blasd_device *device,
                      struct blasd_measure **ret, struct blasd_err *err);
void blasd_measure_free(struct blasd_measure *measure); /* takes NULL */
/* Times one thing. 1: there is more to do; 0: that was the last; -device_error where the device
 * cannot go on (no other error ends it: what cannot be measured is left out). */
int blasd_measure_step(struct blasd_measure *measure, struct blasd_err *err);
/* Begins again with the first step; what is then faster than before counts. */
void blasd_measure_again(struct blasd_measure *measure);
/* What the steps so far have found; to be used after the last one. */
void blasd_measure_cost(const struct blasd_measure *measure, struct blasd_cost *ret);
/* Puts the rates that GET /devices and `blasd devices` name into `info`. */
void blasd_measure_info(const struct blasd_cost *cost, struct blasd_device_info *info);

#endif
