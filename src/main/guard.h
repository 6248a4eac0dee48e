/* A worker's guard: a process beside it that has the address and the password of Redis, which the
 * worker has not, makes its connections, and lets its own requests through alone
 * (../queue/worker_rules.h). Without it whoever takes a worker over can write anything to the
 * queue.
 *
 * One guard for one worker, of which it is a child; they end together. Read next: cmd_guard.c. */
#ifndef BLASD_MAIN_GUARD_H
#define BLASD_MAIN_GUARD_H

#include "base/err.h"
#include "main/options.h"

/* Starts it, and forgets what leads to Redis: common->redis is NULL afterwards. Where the guard
 * ends, this process does at once, as it would killed. To be called before this process gives its
 * rights up, with limits that are settled (blasd_queue_settle). Returns the socket behind which the
 * guard is, for blasd_queue_options.guard; internal_error. */
int guard_start(struct common_options *common, const char *worker, struct blasd_err *err);

#endif
