/* What several queues tell, as one: the texts of the functions `stats` and `usage`.
 *
 * Numbers are added, but how long the oldest job has waited, which is the longest wait; of workers,
 * and what they count, each is taken once, for it tells every queue the same; rows of use are added
 * where they are of the same tenant, hour and operation. */
#ifndef BLASD_WIRE_STATS_SUM_H
#define BLASD_WIRE_STATS_SUM_H

#include "base/buf.h"

/* 0, or -1 where memory has run out or a text is none of these. */
int blasd_stats_sum(const char *const *texts, const size_t *lens, int count, struct blasd_buf *out);

#endif
