/* A graph: steps, each a job of some operation, whose inputs are data of the request or outputs of
 * earlier steps.
 *
 * For the queue a graph is one job, of the operation `graph`: its payload holds the steps' data and
 * then, as bytes, the steps themselves (../wire/frame_graph.h); its parameters are what its plan
 * came to, so that nobody needs the steps to know what it takes. One worker runs it
 * (../worker/graph_run.h). Its outputs are the bytes of all results, and a report that says what
 * they are. Pure: no I/O. Read next: graph.c. */
#ifndef BLASD_CORE_GRAPH_H
#define BLASD_CORE_GRAPH_H

#include "core/cost.h"

/* An output of a step. */
struct blasd_graph_value {
    struct blasd_tensor tensor; /* as planned */
    int step, output;           /* positions */
    int last_use;               /* the last step that reads it, or that makes it */
    int result;                 /* position among the results; -1: it is none */
    bool in_parts;              /* steps read slices of it, which are cut on the host */
    uint64_t offset;            /* where it lies: in the results, or else in the graph's memory */
};

struct blasd_graph_step {
    char name[BLASD_NAME_MAX];
    /* filled in by blasd_graph_plan */
    int first, count; /* its values */
    int depth;        /* steps in the longest chain that ends here */
    double flops;
    struct blasd_cost_step cost;
    uint64_t bytes;       /* inputs and outputs */
    uint64_t live_bytes;  /* of the graph's memory while it runs, with what it works in */
    struct blasd_job job; /* operation, inputs, parameters; nothing else of it means anything */
};

struct blasd_graph_result {
    int step, output; /* output -1, before the plan: the step's first */
};

/* What one graph is and takes. Zero it before use; ended by blasd_graph_release. */
struct blasd_graph {
    struct blasd_graph_step **steps; /* owned, each; they read only from those before them */
    int step_count, step_room;
    struct blasd_graph_result *results; /* owned */
    int result_count;
    uint64_t program_at; /* where in the payload the steps lie */
    uint64_t payload_bytes;
    /* filled in by blasd_graph_plan */
    struct blasd_graph_value *values; /* owned */
    int value_count;
    double flops, flops_least, items;
    uint64_t results_bytes, report_bytes;
    uint64_t memory_bytes;    /* for values that are no results */
    uint64_t workspace_bytes; /* of the step that works in most, beside that */
    uint64_t device_bytes, device_least_bytes;
    uint64_t ops; /* a bit for the position of each operation in blasd_ops */
    bool host_only;
    int widest; /* the step with the most live_bytes */
};

/* Parameters of the operation `graph`, by position. */
enum blasd_graph_param {
    BLASD_GRAPH_PROGRAM_AT,
    BLASD_GRAPH_RESULTS,
    BLASD_GRAPH_REPORT,
    BLASD_GRAPH_MEMORY,
    BLASD_GRAPH_DEVICE,
    BLASD_GRAPH_DEVICE_LEAST,
    BLASD_GRAPH_OPS,
    BLASD_GRAPH_HOST_ONLY,
    BLASD_GRAPH_FLOPS,
    BLASD_GRAPH_FLOPS_LEAST,
    BLASD_GRAPH_ITEMS
};
enum { BLASD_GRAPH_OUT_RESULTS, BLASD_GRAPH_OUT_REPORT }; /* its outputs */

/* Its inputs: data and steps, then what steps refer to that lies in the store, or will. */
#define BLASD_GRAPH_GIVEN 1
#define BLASD_GRAPH_GIVEN_MAX (BLASD_MAX_INPUTS - BLASD_GRAPH_GIVEN)

extern const struct blasd_op blasd_op_graph;

/* A new step behind the others, all zero; NULL: memory has run out. Each is some kilobytes and has
 * memory of its own, which the next graph's steps get: an array of them would be given back to the
 * kernel, and faulted in again, with each graph. */
struct blasd_graph_step *blasd_graph_add(struct blasd_graph *graph);
/* Puts the step's name in front of the field of an error: "inputs.a" becomes "steps.x.inputs.a". */
void blasd_graph_blame(const char *step, struct blasd_err *err);
/* The value that is output number `output` of a step, -1: its first; NULL: it does not make it. */
struct blasd_graph_value *blasd_graph_value(const struct blasd_graph *graph, int step, int output);
/* How many values are results, once it is planned, and number `i` of them. */
int blasd_graph_results(const struct blasd_graph *graph);
const struct blasd_graph_value *blasd_graph_result(const struct blasd_graph *graph, int i);
/* Puts the steps into an order in which each stands behind those that it reads from; until then
 * their sources may name any position. graph_cycle, out_of_memory. In graph_sort.c. */
int blasd_graph_sort(struct blasd_graph *graph, struct blasd_err *err);
/* Plans the steps in turn, gives each input that is a step's output its dtype and shape, and says
 * where every value lies. The errors of blasd_job_plan, with the step in their field,
 * unknown_output and graph_too_large for more results than a job has outputs; job_too_large,
 * out_of_memory. */
int blasd_graph_plan(struct blasd_graph *graph, struct blasd_err *err);
/* Makes the planned graph a job: operation, data and parameters; other inputs it leaves as they
 * are. */
void blasd_graph_job(const struct blasd_graph *graph, struct blasd_job *job);
/* The operations that a job runs, as bits of their positions in blasd_ops: of a graph its steps'.
 */
uint64_t blasd_graph_ops(const struct blasd_job *job);
void blasd_graph_release(struct blasd_graph *graph);

#endif
