/* A job as it travels from the request to the worker, and the plan an operation makes for it.
 * Read next: record.h (how it ended), then kernel.h (how it runs). */
#ifndef BLASD_CORE_JOB_H
#define BLASD_CORE_JOB_H

#include "base/id.h"
#include "core/labels.h"
#include "core/op.h"
#include "core/reference.h"
#include "core/rule.h"
#include "core/slice.h"
#include "core/trace.h"

/* The order is part of stored frames: append only. */
enum blasd_priority { BLASD_PRIORITY_HIGH, BLASD_PRIORITY_NORMAL, BLASD_PRIORITY_LOW };
enum blasd_device_class { BLASD_DEVICE_ANY, BLASD_DEVICE_CPU, BLASD_DEVICE_CUDA };
#define BLASD_PRIORITY_COUNT 3
#define BLASD_DEVICE_CLASS_COUNT 3

extern const char *const blasd_priority_names[];     /* high normal low */
extern const char *const blasd_device_class_names[]; /* any cpu cuda; users write auto for any */

/* Where the elements of an input come from. The numbers are part of stored frames. */
enum blasd_source_kind {
    BLASD_SOURCE_NONE = 0,    /* the input was not given */
    BLASD_SOURCE_PAYLOAD = 1, /* the bytes that came with the request */
    BLASD_SOURCE_TENSOR = 2,  /* a tensor that is kept: the blob ID.in, in `reference` */
    BLASD_SOURCE_JOB = 3,     /* an output of a job that has ended: its blob ID.out */
    BLASD_SOURCE_STEP = 4,    /* in a step of a graph, an output of an earlier step (graph.h) */
    BLASD_SOURCE_RULE = 5,    /* a rule that makes them where they are used */
    BLASD_SOURCE_GIVEN =
        7 /* in a step of a graph, input number `step` of the graph, which refers */
};

struct blasd_source {
    enum blasd_source_kind kind;
    union {
        struct {
            uint64_t offset, bytes; /* in the job's payload, at a multiple of 64; or in the blob */
            int step, output;       /* of BLASD_SOURCE_STEP: positions; output -1: its first */
        };
        struct blasd_rule rule; /* BLASD_SOURCE_RULE, which has no bytes there */
    };
};

struct blasd_input {
    struct blasd_tensor tensor; /* dtype, order and shape; data is NULL until a worker binds it */
    struct blasd_source source;
    struct blasd_reference *reference; /* owned; NULL: it never was one */
    int64_t first_nonfinite; /* index, in the order sent, of the first NaN or infinity; -1: none */
    /* Looked for on the way in, only where a port of this name asks (blasd_ops_values), and no part
     * of a stored job: what they show was refused. */
    int64_t first_negative; /* likewise the first element below 0; -1: none, or not looked for */
    int64_t first_not_positive; /* likewise the first that is 0 or less */
    bool splits;                /* looked at as BLASD_VALUES_SPLITS; false: the next say nothing */
    int64_t first_descent;      /* then: the first element that such must not have; -1: none */
    int64_t last;               /* then: the last element */
    bool all_zero;              /* there are elements, and they are 0; false: or not looked for */
};

/* What few jobs have. */
struct blasd_extras {
    char labels[BLASD_LABELS_MAX]; /* "": none */
    bool digest;                   /* the record tells a SHA-256 of each output */
    struct blasd_keeping keeping;
};

/* The payload (the tensors' bytes) lies beside it. It owns its extras and what its inputs refer
 * by; a copy shares them, and one of the two is ended by blasd_job_release. Inputs stand last, so
 * that a job of an operation with few takes as much memory as these (blasd_job_size). */
struct blasd_job {
    char id[BLASD_ID_LEN + 1];
    const struct blasd_op *op; /* static */
    enum blasd_priority priority;
    enum blasd_device_class device;
    int64_t deadline_ms; /* from submission on Redis' clock; 0: none */
    uint16_t most_s;     /* it may compute for so long, where job_s is not less; 0: job_s alone */
    uint64_t payload_bytes;
    bool payload_in_blob;        /* the payload is the blob "ID.in", not bytes beside the frame */
    struct blasd_slice slice;    /* or it lies there, where one is given */
    int64_t receive_us;          /* from the request's first byte to submission */
    int64_t created_us;          /* Redis' clock at submission, microseconds since 1970 */
    struct blasd_trace trace;    /* that it is a part of, if any */
    struct blasd_extras *extras; /* owned; NULL: it has none */
    struct blasd_value params[BLASD_MAX_PARAMS]; /* by position in op->params, defaults filled in */
    struct blasd_input inputs[BLASD_MAX_INPUTS]; /* by position in op->inputs */
};

/* Bytes of a job of the operation: those of its inputs that it does not have are not touched. */
size_t blasd_job_size(const struct blasd_op *op);
/* Makes `to` a copy, which shares what the job owns. */
void blasd_job_share(const struct blasd_job *job, struct blasd_job *to);
/* Ends what the job owns; nothing of a zeroed one. */
void blasd_job_release(struct blasd_job *job);
/* The extras, made where there are none yet; NULL: memory has run out. */
struct blasd_extras *blasd_job_extras(struct blasd_job *job);
static inline const char *blasd_job_labels(const struct blasd_job *job) {
    return job->extras == NULL ? "" : job->extras->labels;
}
/* What becomes of its outputs; of a job that says nothing of it, that none is kept. */
const struct blasd_keeping *blasd_job_keeping(const struct blasd_job *job);

static inline bool blasd_source_refers(const struct blasd_source *source) {
    return source->kind == BLASD_SOURCE_TENSOR || source->kind == BLASD_SOURCE_JOB;
}
/* Whether any input refers to a blob of the store. */
bool blasd_job_refers(const struct blasd_job *job);
/* Whether the job holds a blob while it is pending: what the input refers to, or a tensor whose few
 * bytes were copied to the payload, so that `reference` has its id yet. */
static inline bool blasd_input_holds(const struct blasd_input *input) {
    return input->reference != NULL && input->reference->id[0] != '\0';
}
/* The reference of the input, made where it has none yet; NULL: memory has run out. */
struct blasd_reference *blasd_input_refer(struct blasd_input *input);
/* Makes `to` the same, with a reference of its own. */
int blasd_input_copy(struct blasd_input *to, const struct blasd_input *from, struct blasd_err *err);
/* How many lengths of what it refers to are bounded. */
static inline int blasd_input_sliced(const struct blasd_input *input) {
    return input->reference == NULL ? 0 : input->reference->sliced;
}
/* The name of the blob that the input holds. */
#define BLASD_REFERRED_NAME (BLASD_ID_LEN + 5)
void blasd_input_blob(const struct blasd_input *input, char name[BLASD_REFERRED_NAME]);
/* Of input number `i`, whose elements were not looked at on the way in, and have come now: what its
 * port asks of values. */
int blasd_input_look(const struct blasd_job *job, int i, const struct blasd_tensor *tensor,
                     struct blasd_err *err);

/* Whether input number `i` was given. */
static inline bool blasd_job_has(const struct blasd_job *job, int i) {
    return job->inputs[i].source.kind != BLASD_SOURCE_NONE;
}

#define BLASD_KEY_MAX 256

/* What two jobs of one operation must share to run as one call; compared byte by byte. */
struct blasd_key {
    unsigned len;
    unsigned char bytes[BLASD_KEY_MAX];
};

/* The value as one number. */
int64_t blasd_value_bits(const struct blasd_param *param, const struct blasd_value *value);

/* Appends to a key; a key that would overflow becomes one that equals no other. */
void blasd_key_add(struct blasd_key *key, const void *bytes, size_t len);
void blasd_key_add_int(struct blasd_key *key, int64_t value);
/* Adds dtype, rank and shape. */
void blasd_key_add_tensor(struct blasd_key *key, const struct blasd_tensor *tensor);
bool blasd_key_equal(const struct blasd_key *a, const struct blasd_key *b);

struct blasd_cost_step;

/* What an operation will do for one job: made by op->plan from shapes and parameters alone. */
struct blasd_plan {
    /* the dtype in which each input is handed to the kernel (the worker converts, and makes it
     * row-major); BLASD_MAX_INPUTS of them, those not given are ignored */
    enum blasd_dtype input_dtype[BLASD_MAX_INPUTS];
    bool keep_order[BLASD_MAX_INPUTS]; /* the kernel reads column-major itself: do not copy */
    /* floating-point operations, as usually counted, with all iterations that may be made; at least
     * one for each problem and each element, which blasd_job_plan sees to */
    double flops;
    double slower; /* than those of a product, so many times, about; filled in by blasd_job_plan */
    double flops_least;                 /* what is certain of them; 0: all */
    double items;                       /* problems among which they are spread; 0 counts as 1 */
    uint64_t input_bytes, output_bytes; /* filled in by blasd_job_plan */
    uint64_t made_bytes;                /* of input_bytes: what rules make; the same */
    /* on the host beside inputs and outputs, at the peak; blasd_job_plan adds inputs that are
     * converted */
    uint64_t workspace_bytes;
    uint64_t device_bytes; /* on a device with memory of its own, everything, at the peak */
    /* of these, what no backend can cut or stream: a device with less memory refuses the job; 0: it
     * runs on any */
    uint64_t device_least_bytes;
    const char *host_only; /* NULL; or only the CPU runs it: what the kernels of a device take, in
                            * words that name the limit; static */
    struct blasd_key key;  /* of the batch this job can join: inputs and parameters, filled in by
                            * blasd_job_plan from the descriptor */
    bool batchable;        /* false: runs alone */
    /* of a graph, where who has its steps says so: what each of them takes; borrowed */
    const struct blasd_cost_step *steps;
    int step_count;
    /* by position in op->outputs, as many as that has; rank -1: this job does not have it */
    struct blasd_tensor outputs[BLASD_MAX_OUTPUTS];
};

/* Marks every output of `plan` as absent, then calls op->plan, then adds up bytes. The checks that
 * the descriptor states (required inputs, dtypes, ranks, values, parameter ranges) come first,
 * so that a job which passes is right in everything but its values. */
int blasd_job_plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err);

/* An input that is not given. */
void blasd_input_init(struct blasd_input *input);
/* Notes what BLASD_VALUES_SPLITS forbids in n elements of an input (bytes of its dtype) that are
 * elements `from` and on; all before them were looked at. */
void blasd_input_look_at_splits(struct blasd_input *input, int64_t from, const void *data,
                                int64_t n);

/* Sets parameters to their defaults and inputs to not given, for operation `op`. */
void blasd_job_init(struct blasd_job *job, const struct blasd_op *op);
/* Gives input number `i` a dtype and a row-major shape, as if its bytes had come: for op->sample.
 */
void blasd_job_give(struct blasd_job *job, int i, enum blasd_dtype dtype, int rank,
                    const int64_t *shape);

#endif
