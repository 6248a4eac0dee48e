/* A graph while it is read: what graph_members.c finds in the JSON of steps and results, and
 * graph_in.c makes a job of. Private to the two. */
#ifndef BLASD_WIRE_GRAPH_PARTS_H
#define BLASD_WIRE_GRAPH_PARTS_H

#include "core/graph.h"
#include "wire/graph_in.h"
#include "wire/json_text.h"

/* What an input or a result names. */
struct graph_reference {
    bool input;                   /* data of the request; else a step */
    char name[BLASD_JSON_WORD];   /* of either */
    char output[BLASD_JSON_WORD]; /* of the step; "": not said */
};

struct graph_references {
    struct graph_reference *items; /* owned */
    int count, room;
};

struct blasd_graph_in {
    const struct blasd_limits *limits;  /* borrowed */
    struct blasd_sink *sink;            /* borrowed */
    struct blasd_graph graph;           /* while it is read, steps are in the order they came in; */
    struct graph_references references; /* an input's source.step is first its position here */
    struct graph_references results;
    bool has_steps, has_results;
    int *by_name; /* owned: positions of the steps, sorted by name */
    struct blasd_input given[BLASD_GRAPH_GIVEN_MAX]; /* at most the limit graph_tensors: what steps
                                                        refer to, as it was sent */
    int given_count;
};

/* A member of the graph that came as text, with zeros behind it; nothing where it is empty. */
int graph_in_text(struct blasd_graph_in *graph, const char *name, const struct blasd_buf *from,
                  struct blasd_err *err);

#endif
