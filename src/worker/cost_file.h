/* Keeping measured costs from one start of a worker to the next: a small file for each device,
 * which holds as long as device, libraries, blasd and its operations are the same. Read next:
 * cost_file.c. Where `dir` is NULL nothing is kept. */
#ifndef BLASD_WORKER_COST_FILE_H
#define BLASD_WORKER_COST_FILE_H

#include "core/cost.h"
#include "core/kernel.h"

/* Reads what `dir` holds for the device, with what jobs have taught. False where there is nothing,
 * it is of another device, library or version, too old, or cannot be read. */
bool blasd_cost_file_load(const char *dir, const struct blasd_device_info *info,
                          const char *version, struct blasd_cost *ret);
/* Writes it, making `dir` (not what is above it) where it is missing; the file is there whole or
 * not at all. */
int blasd_cost_file_save(const char *dir, const struct blasd_device_info *info, const char *version,
                         const struct blasd_cost *cost, struct blasd_err *err);

/* Writes, beside what was measured, what has come to it from jobs since: it is read with that, and
 * goes with it. */
int blasd_cost_file_learnt(const char *dir, const struct blasd_device_info *info,
                           const char *version, const struct blasd_cost *cost,
                           struct blasd_err *err);

/* Notes that measuring begins. False where it began so often before without an end that it is
 * better left: it may be what ends the worker. */
bool blasd_cost_file_begin(const char *dir, const struct blasd_device_info *info);
/* Measuring has ended, or was given up in order. */
void blasd_cost_file_end(const char *dir, const struct blasd_device_info *info);

#endif
