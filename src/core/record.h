/* The record of a job: everything the job document says, and where the outputs lie.
 * Read next: kernel.h. */
#ifndef BLASD_CORE_RECORD_H
#define BLASD_CORE_RECORD_H

#include "base/err.h"
#include "base/warning.h"
#include "core/job.h"
#include "core/price.h"

/* The order is part of stored records: append only. */
enum blasd_state {
    BLASD_QUEUED,
    BLASD_RUNNING,
    BLASD_SUCCEEDED,
    BLASD_FAILED,
    BLASD_CANCELLED,
    BLASD_EXPIRED,
    BLASD_STATE_COUNT
};
/* Where a stored record says its state, in one byte, for those who have no decoder at hand. */
#define BLASD_RECORD_STATE_AT 12

extern const char *const blasd_state_names[]; /* queued running succeeded failed … */
bool blasd_state_final(enum blasd_state state);
bool blasd_state_find(const char *name, enum blasd_state *ret);

/* Where the time went, in microseconds. The parts lie one after the other; total is from the first
 * byte of the request to the end of the job. */
struct blasd_timing {
    int64_t receive_us;    /* first byte of the request to submission */
    int64_t queue_us;      /* submission to a worker's claim */
    int64_t batch_wait_us; /* claim to the start of its batch */
    int64_t upload_us;     /* inputs to where the kernel reads them, conversions included */
    int64_t compute_us;    /* the kernel, for the whole batch it ran in */
    int64_t download_us;   /* outputs to where they are fetched from */
    int64_t total_us;
};

#define BLASD_METHOD_MAX 48
#define BLASD_MAX_WARNINGS 4

struct blasd_execution {
    char device[16]; /* "cpu:0", "cuda:0" */
    char device_name[64];
    char method[BLASD_METHOD_MAX]; /* of the kernel, e.g. "dgemm" or "lu+refine" */
    int warning_count;
    int batch_size; /* jobs that ran in the same call, this one included */
    int attempts;   /* workers that began it, the one that ended it included */
    double flops;
    uint64_t bytes;       /* inputs and outputs */
    double energy_joules; /* of the device, for the whole batch; 0: not known */
    struct blasd_warning warnings[BLASD_MAX_WARNINGS]; /* warning_count of them */
};

struct blasd_output {
    struct blasd_tensor tensor; /* rank -1: absent; data borrowed from wherever the record's
                                   payload is, once bound */
    uint64_t offset, bytes;     /* where in the record's payload; offset is a multiple of 64 */
};

#define BLASD_OUTPUT_DIGEST 32 /* bytes of a SHA-256 */

struct blasd_graph_report; /* ../wire/frame_graph.h */

/* A plain value; owns nothing. What is long stands last, for blasd_record_init. */
struct blasd_record {
    char id[BLASD_ID_LEN + 1];
    char op[BLASD_NAME_MAX];
    enum blasd_state state;
    enum blasd_priority priority;
    enum blasd_device_class device; /* the class it is queued for, where that is known: once it
                                       has begun, execution.device says more */
    int64_t created_us, started_us, finished_us; /* wall clock; 0: not yet */
    double progress;                             /* 0 to 1 */
    int64_t remaining_us; /* of one that runs: to its end, as far as can be told; -1: not known */
    struct blasd_timing timing;
    const struct blasd_graph_report *graph; /* of a graph whose outputs were read: their names, and
                                               its steps; borrowed, no part of a stored record */
    uint64_t payload_bytes;
    bool payload_in_blob;     /* the outputs are the blob "ID.out", not bytes in the record */
    struct blasd_slice slice; /* or they lie there, where one is given */
    uint8_t trace_id[BLASD_TRACE_ID];  /* zeros: none, or nobody here knows it */
    const struct blasd_prices *prices; /* borrowed, no part of what is stored; NULL: there are none.
                                          Set by who makes a document that tells the cost */
    int output_count;
    struct blasd_execution execution;
    struct blasd_err error; /* code BLASD_OK: none */
    struct blasd_keeping keeping;
    char labels[BLASD_LABELS_MAX];
    bool digested;                                           /* there is a digest of each output */
    uint8_t digests[BLASD_MAX_OUTPUTS][BLASD_OUTPUT_DIGEST]; /* as ../worker/digest.h says */
    struct blasd_output outputs[BLASD_MAX_OUTPUTS]; /* by position in the operation's descriptor,
                                                       output_count of them */
};

/* Makes it a record that says nothing. What is long is not touched, but for how long it is. */
void blasd_record_init(struct blasd_record *record);

/* Whether the job made the output. */
static inline bool blasd_record_has(const struct blasd_record *record, int i) {
    return i < record->output_count && record->outputs[i].tensor.rank >= 0;
}
/* Whether the output is there to be sent; one that is withheld has a shape and no bytes. */
static inline bool blasd_record_sends(const struct blasd_record *record, int i) {
    return blasd_record_has(record, i) && !blasd_withholds(&record->keeping, i);
}
/* The class of devices it ran on; until it has begun, the one it is queued for. */
enum blasd_device_class blasd_record_class(const struct blasd_record *record);
/* Which output of the job whose record that is `reference` means: its position, which is not
 * negative. Errors, about `field`: job_not_ended, input_failed if it did not succeed,
 * unknown_output, and reference_not_found for one that was neither sent nor kept. */
int blasd_record_output(const struct blasd_record *record, const struct blasd_reference *reference,
                        const char *field, struct blasd_err *err);
/* A worker that was taken over writes into a record what it likes: a time in us, an energy in mJ, a
 * number of bytes counts for this at the most (12 days, 1 TiB), so that sums of some million stay
 * what they are. NaN and what is less than 0 count for nothing. */
#define BLASD_TOLD_MOST 0x1p40
double blasd_told(double value, double most);
/* Its share of what its batch took. */
struct blasd_usage blasd_record_usage(const struct blasd_record *record);

#endif
