/* What ended jobs used, as the queue notes it for whoever bills it: a stream that one process at a
 * time takes from, and sums by tenant and hour that GET /usage tells.
 *
 * The stream's entries stay until they are settled, so that a process that dies between the two
 * leaves them to the next: whoever writes them elsewhere knows by their sequence what it has. The
 * functions behind it are told in functions/contract.lua. Read next: ../main/cmd_meter.c. */
#ifndef BLASD_QUEUE_USAGE_STREAM_H
#define BLASD_QUEUE_USAGE_STREAM_H

#include "core/record.h"
#include "queue/queue.h"

#define BLASD_USAGE_SEQUENCE 48 /* bytes of one with its zero */

/* A job that ended. The texts are borrowed during the call. */
struct blasd_usage_job {
    const char *sequence; /* of digits: later jobs' are greater, compared as texts */
    const char *tenant;
    struct blasd_record *record; /* without outputs; may be changed */
};

struct blasd_usage_stream;

/* Connects, and has the queue note what jobs use from now on. New: free with blasd_usage_free.
 * queue_unavailable; invalid_field where another process takes it already. */
int blasd_usage_open(const struct blasd_queue_options *options, struct blasd_usage_stream **ret,
                     struct blasd_err *err);
void blasd_usage_free(struct blasd_usage_stream *usage);

/* Reads the oldest entries that were not settled and calls `each` for their jobs; returns how many
 * these are, 0 where there are none yet. A job that `each` refuses (not 0) ends that: its code. */
int blasd_usage_read(struct blasd_usage_stream *usage,
                     int (*each)(void *arg, const struct blasd_usage_job *job,
                                 struct blasd_err *err),
                     void *arg, struct blasd_err *err);
/* Whether the last read left some: it takes so many entries at once. */
bool blasd_usage_more(const struct blasd_usage_stream *usage);
/* What was read last is written elsewhere: it goes, and counts among the sums. `events`: JSON
 * texts, one for each job, that go to {q}:cloudevents with the same step; NULL: none.
 * queue_unavailable: it may have gone or not; what has not will be read again. */
int blasd_usage_settle(struct blasd_usage_stream *usage, char *const *events, int count,
                       struct blasd_err *err);
/* No more is noted from now on; what there is can still be read. */
int blasd_usage_stop(struct blasd_usage_stream *usage, struct blasd_err *err);

#endif
