/* POST /jobs?dry_run=1: what a job would do, without doing it. Read next: placement.h, whose
 * predictions are told. */
#ifndef BLASD_HTTP_DRY_RUN_H
#define BLASD_HTTP_DRY_RUN_H

#include "http/exchange.h"

/* Answers, once the queue has told how much waits, with what `job` would do: its plan and
 * `host_bytes` of memory, which were checked as those of a job that is to be queued. Both are
 * copied. no_space. */
int http_dry_run(struct http_exchange *exchange, const struct blasd_job *job,
                 const struct blasd_plan *plan, uint64_t host_bytes, struct blasd_err *err);

#endif
