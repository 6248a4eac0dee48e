/* What an operation is: its descriptor. One folder under kernels/ defines one.
 *
 * GET /ops, validation, documentation and tests are all read from descriptors, so an operation
 * says here everything that a user may know of it. Read next: job.h, then kernel.h. */
#ifndef BLASD_CORE_OP_H
#define BLASD_CORE_OP_H

#include "core/tensor.h"

#define BLASD_MAX_INPUTS 8
#define BLASD_MAX_OUTPUTS 40
#define BLASD_MAX_PARAMS 16
#define BLASD_NAME_MAX 32 /* bytes of a name with its zero */

struct blasd_err;
struct blasd_job;
struct blasd_plan;

/* What the elements of an input must be, beside finite: bits of blasd_port.values. A port that has
 * one of them is `finite` too. Refused with `out_of_range` before anything is queued. */
#define BLASD_VALUES_NOT_NEGATIVE 1u /* each is at least 0; -0.0 is 0 */
#define BLASD_VALUES_POSITIVE 2u     /* each is more than 0 */
#define BLASD_VALUES_NOT_ALL_ZERO 4u /* one of them is not 0; a tensor without elements passes */
#define BLASD_VALUES_SPLITS 8u /* int64: the first is 0, and none is less than its predecessor */
#define BLASD_VALUES_ALL 15u

/* An input or an output. */
struct blasd_port {
    const char *name;
    const char *shape; /* as documentation writes it, "(..., m, k)" */
    const char *doc;   /* one or two sentences */
    unsigned dtypes;   /* BLASD_DTYPE_BIT mask of what may be sent (inputs) or comes (outputs) */
    int min_rank, max_rank;
    bool optional;   /* inputs: may be left out. outputs: is not always there */
    bool finite;     /* inputs: NaN and infinities are refused with `not_finite` */
    unsigned values; /* inputs: BLASD_VALUES_*; 0: every finite number will do */
};

enum blasd_param_kind { BLASD_PARAM_BOOL, BLASD_PARAM_INT, BLASD_PARAM_FLOAT, BLASD_PARAM_CHOICE };

/* The value of one parameter. */
struct blasd_value {
    bool given; /* false: the default stands here */
    union {
        bool b;
        int64_t i;
        double f;
        int choice; /* index into the parameter's choices */
    };
};

struct blasd_param {
    const char *name;
    const char *doc;
    enum blasd_param_kind kind;
    struct blasd_value preset; /* the default */
    bool has_range;            /* BLASD_PARAM_INT and _FLOAT: least <= value <= most */
    bool exclusive_least;      /* the range is open at its lower end */
    double least, most;
    const char *const *choices; /* BLASD_PARAM_CHOICE: names, NULL-terminated */
};

struct blasd_op {
    const char *name;
    /* made of steps that are jobs of others: POST /graphs alone makes its jobs, and what lists
     * operations for users leaves it out */
    bool composed;
    const char *summary;              /* one line */
    const char *doc;                  /* paragraphs for documentation, plain text */
    const struct blasd_port *inputs;  /* ended by a row whose name is NULL */
    const struct blasd_port *outputs; /* ended by a row whose name is NULL */
    const struct blasd_param *params; /* ended by a row whose name is NULL */
    /* Optional: an input that is required unless the other one is given in its place. */
    const char *replaced, *substitute;
    /* Checks what rank and dtype alone do not say (how shapes fit together, parameters that
     * exclude each other) and states what the job will make and cost. Touches no data; pure. Called
     * by the front end before anything is queued and by the worker before it runs. `plan` arrives
     * zeroed. Returns 0 or a negative code with `err` filled. */
    int (*plan)(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err);
    /* Optional: the inputs of `job`, a bit each, that may hold NaN and infinities even where their
     * port says `finite`. */
    unsigned (*any_numbers)(const struct blasd_job *job);
    /* How many times as long its operations take as those of a product, about; 0: as long. */
    double slower;
    /* Optional, for tests of all operations. Gives the inputs of `job`, which is fresh, dtypes and
     * shapes: `items` problems of the size that a user would call n. False where there are no
     * such jobs. Shapes and kinds alone, no data. */
    bool (*sample)(struct blasd_job *job, int64_t n, int64_t items, enum blasd_dtype dtype);
    /* Optional: makes the elements of input `i` of a sample, which hold numbers between 0 and 1 in
     * no order, such that the job can be done with them. `input` is float64 or float32. */
    void (*sample_values)(int i, const struct blasd_tensor *input);
};

/* Tables with a place for each operation have room for these; a build with more fails. */
#define BLASD_OPS_MOST 32

/* The operations in this build, ended by NULL; generated from kernels/<name>/op_<name>.c. */
extern const struct blasd_op *const blasd_ops[];

/* The operation called `name`, or NULL. */
const struct blasd_op *blasd_op_find(const char *name);
/* "distance, matmul, regression, solve", and what is `composed` of them, if wanted. */
void blasd_op_names(bool composed, char *text, size_t size);
/* Index of `op` in blasd_ops, or -1. */
int blasd_op_position(const struct blasd_op *op);
/* Index of a port or parameter by its name, or -1. */
int blasd_op_input(const struct blasd_op *op, const char *name);
int blasd_op_output(const struct blasd_op *op, const char *name);
int blasd_op_param(const struct blasd_op *op, const char *name);
/* Whether a number is in the parameter's range. */
static inline bool blasd_param_allows(const struct blasd_param *param, double number) {
    return !param->has_range ||
           (number <= param->most &&
            (param->exclusive_least ? number > param->least : number >= param->least));
}
/* The BLASD_VALUES_* of all inputs called `name`, of whatever operation: what to look for in a
 * tensor that comes before its operation is known. */
unsigned blasd_ops_values(const char *name);
/* Tells apart descriptors whose inputs, outputs, parameters or choices differ: in stored jobs these
 * go by position. */
uint32_t blasd_op_form(const struct blasd_op *op);
int blasd_op_input_count(const struct blasd_op *op);
int blasd_op_output_count(const struct blasd_op *op);
int blasd_op_param_count(const struct blasd_op *op);

#endif
