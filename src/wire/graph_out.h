/* A graph's record, once its outputs are there: they say what they are. Read next: graph_out.c. */
#ifndef BLASD_WIRE_GRAPH_OUT_H
#define BLASD_WIRE_GRAPH_OUT_H

#include "wire/frame_graph.h"

/* Whether the record is of a graph that was run to its end, good or bad, and its outputs are still
 * one of bytes, where it has succeeded, and one that tells what they are. */
bool blasd_graph_folded(const struct blasd_record *record);
/* Gives such a record the results as its outputs, and its steps, which it borrows from *ret: new,
 * free() it. */
int blasd_graph_unfold(struct blasd_record *record, const void *payload,
                       struct blasd_graph_report **ret, struct blasd_err *err);

#endif
