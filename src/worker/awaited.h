/* What a claimed job waited for: outputs of jobs that had not ended when it was submitted. Their
 * records came behind its frame (queue/functions/contract.lua), and say where the outputs lie. Read
 * next: map_io.h. */
#ifndef BLASD_WORKER_AWAITED_H
#define BLASD_WORKER_AWAITED_H

#include "worker/group.h"

/* Describes such inputs as they really are: from here on those that lie in a blob are of the kinds
 * BLASD_SOURCE_TENSOR and BLASD_SOURCE_JOB. What is wrong is in item->err, too. */
int blasd_awaited_resolve(struct blasd_item *item);
/* Where input `i` begins, of those that are still BLASD_SOURCE_AWAITED; *hold keeps it there until
 * blasd_views_let_go. inputs_lost. */
int blasd_awaited_find(struct blasd_worker_queue *queue, const struct blasd_item *item, int i,
                       const void **at, struct blasd_view **hold, struct blasd_err *err);

#endif
