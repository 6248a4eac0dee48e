/* The order of a graph's steps. */
#include "base/err.h"
#include "base/text.h"
#include "core/graph.h"

#include <stdlib.h>

/* Steps being ordered, each behind those that it reads from: depth first, in the order they came
 * in. */
struct ordering {
    const struct blasd_graph *graph;
    int *place;          /* where in the order a step is; -1: not yet, -2: it waits for others */
    int *stack, *inputs; /* steps that wait, and how many inputs of each were looked at */
    int depth, done;
};

/* The next step that the topmost one has to wait for, or -1. */
static int next_wanted(struct ordering *ordering) {
    const struct blasd_job *job =
        &ordering->graph->steps[ordering->stack[ordering->depth - 1]]->job;
    int *i = &ordering->inputs[ordering->depth - 1];
    while (job->op->inputs[*i].name != NULL) {
        const struct blasd_source *source = &job->inputs[(*i)++].source;
        if (source->kind == BLASD_SOURCE_STEP && ordering->place[source->step] < 0)
            return source->step;
    }
    return -1;
}

static void push(struct ordering *ordering, int step) {
    ordering->place[step] = -2;
    ordering->stack[ordering->depth] = step;
    ordering->inputs[ordering->depth++] = 0;
}

static int order_from(struct ordering *ordering, int first, struct blasd_err *err) {
    push(ordering, first);
    while (ordering->depth > 0) {
        int top = ordering->stack[ordering->depth - 1], wanted = next_wanted(ordering);
        const struct blasd_graph_step *step = ordering->graph->steps[top];
        if (wanted < 0) {
            ordering->place[top] = ordering->done++;
            ordering->depth--;
        } else if (ordering->place[wanted] == -1) {
            push(ordering, wanted);
        } else {
            char field[64];
            int input = ordering->inputs[ordering->depth - 1] - 1;
            blasd_fail(err, BLASD_E_graph_cycle,
                       blasd_input_field(field, step->job.op->inputs[input].name),
                       "the step '%s' reads from '%s', which waits for it", step->name,
                       ordering->graph->steps[wanted]->name);
            blasd_graph_blame(step->name, err);
            return -(int)BLASD_E_graph_cycle;
        }
    }
    return 0;
}

/* Puts the steps into that order. Positions in inputs and results follow. */
static void apply_order(struct blasd_graph *graph, int *place) {
    for (int s = 0; s < graph->step_count; s++) {
        struct blasd_job *job = &graph->steps[s]->job;
        for (int i = 0; job->op->inputs[i].name != NULL; i++)
            if (job->inputs[i].source.kind == BLASD_SOURCE_STEP)
                job->inputs[i].source.step = place[job->inputs[i].source.step];
    }
    for (int r = 0; r < graph->result_count; r++)
        graph->results[r].step = place[graph->results[r].step];
    for (int s = 0; s < graph->step_count; s++)
        while (place[s] != s) {
            int to = place[s];
            struct blasd_graph_step *step = graph->steps[s];
            graph->steps[s] = graph->steps[to];
            graph->steps[to] = step;
            place[s] = place[to];
            place[to] = to;
        }
}

int blasd_graph_sort(struct blasd_graph *graph, struct blasd_err *err) {
    size_t count = (size_t)graph->step_count;
    int *room = malloc(3 * count * sizeof *room), rc = 0;
    struct ordering ordering = {.graph = graph, .place = room};
    if (room == NULL) return blasd_no_memory(err);
    ordering.stack = room + count;
    ordering.inputs = room + 2 * count;
    for (size_t s = 0; s < count; s++) ordering.place[s] = -1;
    for (int s = 0; rc == 0 && s < graph->step_count; s++)
        if (ordering.place[s] == -1) rc = order_from(&ordering, s, err);
    if (rc == 0) apply_order(graph, ordering.place);
    free(room);
    return rc;
}
