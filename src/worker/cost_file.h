/* Keeping what jobs have taught a worker of its device's speed from one start to the next: else the
 * first long job of each kind after a restart would go by usual figures. A small file for each
 * device, which holds as long as device, libraries, blasd and its operations are the same. Where
 * `dir` is NULL nothing is kept. Read next: cost_file.c. */
#ifndef BLASD_WORKER_COST_FILE_H
#define BLASD_WORKER_COST_FILE_H

#include "core/cost.h"
#include "core/kernel.h"

/* Reads what `dir` holds for the device. False, with the usual figures of such a device, where
 * there is nothing, it is of another device, library or version, too old, or cannot be read. */
bool blasd_cost_file_load(const char *dir, const struct blasd_device_info *info,
                          const char *version, struct blasd_cost *ret);
/* Writes it, making `dir` (not what is above it) where it is missing; the file is there whole or
 * not at all. */
int blasd_cost_file_save(const char *dir, const struct blasd_device_info *info, const char *version,
                         const struct blasd_cost *cost, struct blasd_err *err);

#endif
