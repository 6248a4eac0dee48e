/* How the steps of a graph are stored in its job's payload, and what its worker reports of them.
 * Both are data, not promises: every field is checked when it is read. Read next: frame_graph.c. */
#ifndef BLASD_WIRE_FRAME_GRAPH_H
#define BLASD_WIRE_FRAME_GRAPH_H

#include "base/buf.h"
#include "core/graph.h"
#include "core/record.h"

/* Appends the steps and results of a graph, planned or not. */
int blasd_graph_encode(const struct blasd_graph *graph, struct blasd_buf *out,
                       struct blasd_err *err);
/* Reads what blasd_graph_encode wrote into a zeroed graph whose program_at is set, without planning
 * it. Released by the caller, also after an error. */
int blasd_graph_decode(const void *bytes, size_t len, struct blasd_graph *graph,
                       struct blasd_err *err);

/* total_us of a step at which a graph failed, and of those behind it. */
#define BLASD_GRAPH_NOT_DONE (-1)

/* What became of a step. */
struct blasd_graph_ran {
    char name[BLASD_NAME_MAX], op[BLASD_NAME_MAX];
    struct blasd_timing timing;
    struct blasd_execution execution;     /* method, flops, bytes, energy */
    int64_t upload_bytes, download_bytes; /* over a card's bus; -1: there is none */
};

#define BLASD_GRAPH_OUTPUT_MAX 64 /* bytes of "STEP.OUTPUT" with its zero */

/* What a graph that has ended says of itself; one that has failed has no outputs. */
struct blasd_graph_report {
    int step_count, output_count;
    struct blasd_port ports[BLASD_MAX_OUTPUTS + 1]; /* the results' names, ended by a NULL */
    char names[BLASD_MAX_OUTPUTS][BLASD_GRAPH_OUTPUT_MAX];
    struct blasd_output outputs[BLASD_MAX_OUTPUTS]; /* in the payload's part that holds them */
    struct blasd_graph_ran steps[];                 /* in the order in which they ran */
};

/* Writing one, piece by piece: the head, each step, each result. */
int blasd_graph_report_begin(int steps, int results, struct blasd_buf *out, struct blasd_err *err);
int blasd_graph_report_step(const struct blasd_graph_ran *ran, struct blasd_buf *out,
                            struct blasd_err *err);
int blasd_graph_report_result(const char *step, const char *output,
                              const struct blasd_tensor *tensor, uint64_t offset,
                              struct blasd_buf *out, struct blasd_err *err);
/* New: free() it. Its outputs lie within `results_bytes`. */
int blasd_graph_report_read(const void *bytes, size_t len, uint64_t results_bytes,
                            struct blasd_graph_report **ret, struct blasd_err *err);

#endif
