/* What front_queues.c and front_sums.c share: the queues, and questions that are asked of several.
 */
#ifndef BLASD_QUEUE_FRONT_SET_H
#define BLASD_QUEUE_FRONT_SET_H

#include "base/list.h"
#include "queue/front_queues.h"

struct blasd_front_queues {
    struct blasd_queue_options options; /* a copy, for queues */
    int count;
    struct blasd_front_queue *of[BLASD_QUEUES_MOST]; /* owned */
    int turn;                                        /* the next job in turn goes to, */
    bool taken;                                      /* and one did since the last flush */
    struct blasd_queue_view view;
    struct blasd_list questions; /* that are not answered: front_sums.c */
};

/* Frees what nobody will answer any more. */
void front_sums_free(struct blasd_front_queues *all);

#endif
