/* A graph on one device: its steps one after the other, with what they make for each other in this
 * process' memory. Read next: graph_run.c. */
#ifndef BLASD_WORKER_GRAPH_RUN_H
#define BLASD_WORKER_GRAPH_RUN_H

#include "core/kernel.h"
#include "worker/arena.h"

/* Runs the one task, of the operation `graph`, as a kernel would. Values that are no results are
 * taken from `arena`. A step that fails makes the task fail with that problem, its field beginning
 * with the step's name. */
int blasd_graph_run(const struct blasd_backend *backend, struct blasd_device *device,
                    struct blasd_arena *arena, struct blasd_task *task, struct blasd_watch *watch,
                    struct blasd_err *err);

#endif
