/* The records of a batch: made, encoded, sent to the queue in as few round trips as their size
 * allows, and sent again while Redis is away. Read next: heartbeat.h. */
#ifndef BLASD_WORKER_COMPLETION_H
#define BLASD_WORKER_COMPLETION_H

#include "base/buf.h"
#include "queue/worker_queue.h"
#include "worker/ended.h"
#include "worker/group.h"
#include "worker/map_io.h"

/* When the parts of a batch began and ended, on blasd_clock_ns. */
struct blasd_batch_times {
    int64_t claimed_ns, began_ns, mapped_ns, ran_ns, stored_ns;
};

/* Where and with whom a batch ran. */
struct blasd_batch_place {
    const char *device, *device_name; /* borrowed */
    int batch_size;
};

/* Whose completion a row is. */
struct blasd_completion_of {
    size_t at;                     /* where in `bytes` its record begins */
    const struct blasd_item *item; /* borrowed */
    struct blasd_io *io;           /* borrowed; NULL where the job never held any memory */
    char *kept;                    /* owned: of its outputs that became tensors; NULL: none did */
    struct blasd_ended ended;      /* what is told of it */
};

/* Room for the completions of one batch, reused. */
struct blasd_completions {
    struct blasd_completion *rows;  /* owned */
    struct blasd_completion_of *of; /* owned; beside each row, whose it is */
    int count, room;
    struct blasd_buf bytes; /* the encoded records, one after the other */
};

void blasd_completions_init(struct blasd_completions *completions);
void blasd_completions_release(struct blasd_completions *completions);
void blasd_completions_reset(struct blasd_completions *completions);

/* The record of a job: its outputs from `task` and `io`, or `error` where that is not NULL
 * (`task` and `io` may then be NULL). */
void blasd_completion_record(const struct blasd_item *item, const struct blasd_task *task,
                             const struct blasd_io *io, const struct blasd_err *error,
                             const struct blasd_batch_times *times,
                             const struct blasd_batch_place *place, struct blasd_record *record);
/* Puts into the record of a job that failed what its task told beside that: its payload is then
 * task->told. */
void blasd_completion_tell(const struct blasd_task *task, struct blasd_record *record);
/* Appends a completion; the payload of an inline record is copied (NULL where there is none). `io`
 * may be NULL; it and `item` are borrowed until the reset. */
int blasd_completions_add(struct blasd_completions *completions, const struct blasd_record *record,
                          const struct blasd_item *item, struct blasd_io *io, const void *payload,
                          struct blasd_err *err);
/* The completions, ready for blasd_worker_queue_finish; borrowed until the next add or reset. */
struct blasd_completion *blasd_completions_rows(struct blasd_completions *completions);

#endif
