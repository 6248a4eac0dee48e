/* What a job used as an event for who bills it: CloudEvents 1.0, in JSON, on one line. */
#ifndef BLASD_WIRE_CLOUD_EVENT_H
#define BLASD_WIRE_CLOUD_EVENT_H

#include "base/buf.h"
#include "core/record.h"

/* What the record does not say. Borrowed. */
struct blasd_job_use {
    const char *queue, *tenant, *sequence;
};

/* Appends the event, without a line's end. 0, or -1 where there is no memory. */
int blasd_cloud_event(const struct blasd_record *record, const struct blasd_job_use *use,
                      struct blasd_buf *out);

#endif
