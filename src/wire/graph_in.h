/* The graph of a request: steps and results as JSON, which become one job.
 *
 *     {"steps": {"g": {"op": "matmul", "inputs": {"a": {"input": "a"}, "b": [[1], [2]]}},
 *                "x": {"op": "solve", "inputs": {"a": {"input": "a"},
 *                                                "b": {"step": "g", "output": "c"}}}},
 *      "inputs": {"a": [[2, 0], [0, 2]]}, "results": ["x"]}
 *
 * Data that stands in a step goes to the sink as it is read; steps are told apart, brought into an
 * order, planned and stored behind it at the end. Read next: ../core/graph.h. */
#ifndef BLASD_WIRE_GRAPH_IN_H
#define BLASD_WIRE_GRAPH_IN_H

#include "wire/json_text.h"
#include "wire/request_fields.h"

struct blasd_graph_in;

/* Limits and sink are borrowed. NULL: memory has run out. */
struct blasd_graph_in *blasd_graph_in_new(const struct blasd_limits *limits,
                                          struct blasd_sink *sink);
void blasd_graph_in_free(struct blasd_graph_in *graph); /* takes NULL */

/* Reads the member `steps` or `results`, whose value begins at `value`. */
int blasd_graph_in_member(struct blasd_graph_in *graph, const struct blasd_json_text *text,
                          const char *name, const char *value, const char **next,
                          struct blasd_err *err);
/* All has come: reads what `fields` gathered of the two as text, checks the graph as a whole and
 * makes it a job. `inputs` are the data that steps name by {"input":…}. */
int blasd_graph_in_job(struct blasd_graph_in *graph, const struct blasd_request_fields *fields,
                       const struct blasd_named_inputs *inputs, struct blasd_job *job,
                       struct blasd_err *err);
/* Where the steps refer to tensors or other jobs, they are inputs of the job that that made, and it
 * goes no further: once these are described there, this plans the graph and completes the job. */
int blasd_graph_in_plan(struct blasd_graph_in *graph, struct blasd_job *job, struct blasd_err *err);
/* What each step of the planned graph takes: *count of them, new; free with free(). NULL: memory
 * has run out. */
struct blasd_cost_step *blasd_graph_in_costs(const struct blasd_graph_in *graph, int *count);
/* Its results, as members of a JSON object, "STEP.OUTPUT":{…}: what document_planned writes.
 * Appended; -1 where memory has run out. */
struct blasd_buf;
int blasd_graph_in_outputs(const struct blasd_graph_in *graph, struct blasd_buf *out);
/* Before that: the steps as they came, appended as bytes of no other use than to tell them from
 * others. */
int blasd_graph_in_steps(const struct blasd_graph_in *graph, struct blasd_buf *out,
                         struct blasd_err *err);

#endif
