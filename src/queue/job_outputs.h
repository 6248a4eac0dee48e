/* The outputs of jobs that have ended, for who is neither front end nor worker: wherever they lie,
 * all of them at once. Read next: ../main/put_send.c, which puts them. */
#ifndef BLASD_QUEUE_JOB_OUTPUTS_H
#define BLASD_QUEUE_JOB_OUTPUTS_H

#include "core/record.h"
#include "queue/queue.h"

struct blasd_job_outputs;

/* One job's. Zero it before use. */
struct blasd_payload {
    const void *data;
    struct blasd_blob blob; /* they lie there, mapped: a file that somebody may cut (base/cut.h) */
    void *copy;             /* or here; owned */
};

/* Connects at the first call that has to. New: free with blasd_job_outputs_free. */
int blasd_job_outputs_open(const struct blasd_queue_options *options,
                           struct blasd_job_outputs **ret, struct blasd_err *err);
void blasd_job_outputs_free(struct blasd_job_outputs *outputs); /* takes NULL */

/* `inlined`: the bytes behind the record. record_expired where they are not kept any more;
 * queue_unavailable, out_of_memory. To be given to blasd_payload_release in any case. */
int blasd_job_outputs_get(struct blasd_job_outputs *outputs, const struct blasd_record *record,
                          const void *inlined, struct blasd_payload *ret, struct blasd_err *err);
void blasd_payload_release(struct blasd_payload *payload);
/* Lets go of what has not been looked at for long; to be called about once a second. */
void blasd_job_outputs_trim(struct blasd_job_outputs *outputs);

#endif
