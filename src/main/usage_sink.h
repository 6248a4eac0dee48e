/* Where `blasd meter` writes what jobs used: a file of lines or a receiver of web requests; each a
 * CloudEvents 1.0 event in JSON. (Into Redis itself it goes with the step that settles it:
 * queue/usage_stream.h.) */
#ifndef BLASD_MAIN_USAGE_SINK_H
#define BLASD_MAIN_USAGE_SINK_H

#include "base/err.h"
#include "queue/queue.h"

#include <stdbool.h>

struct usage_sink;

/* `to`: "file:PATH", or "http://…" or "https://…", of events of the queues of `options`. New: free
 * with usage_sink_free. invalid_field; internal_error where the file cannot be written or another
 * process writes it. */
int usage_sink_open(const char *to, const struct blasd_queue_options *options,
                    struct usage_sink **ret, struct blasd_err *err);
void usage_sink_free(struct usage_sink *sink);

/* The sequence of the last event of queue `number` that was written, or that the file holds, ""
 * where there is none: what is not behind it need not be written again. */
const char *usage_sink_last(const struct usage_sink *sink, int number);
/* Writes `count` events of one queue, or none: they are on the disk, or the receiver has said that
 * it has them. queue_unavailable where a later try may go well. */
int usage_sink_write(struct usage_sink *sink, char *const *events, int count,
                     struct blasd_err *err);

#endif
