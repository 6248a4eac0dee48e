/* The queues of a deployment from a front end's side: which of them a job, a tensor, a tenant is
 * in, and what is asked of all of them. One object a loop.
 *
 * Each queue is whole and knows of no other (front_queue.h). Where a job or tensor is its id says.
 * A new one goes
 *   - where its tenant is at home, by hash of its name: tensors, jobs that are fetched later, for
 * they may be referred to together; what has an Idempotency-Key, for it may come again; jobs of a
 * tenant with quotas of its own, which one queue can keep;
 *   - else, a job that somebody waits for: to the next queue in turn that has room; of one turn of
 * the loop all to one, or small jobs would find few others to share an entry with. A tenant's home
 * that takes no jobs, or is full, is passed over by what may lie elsewhere. With one queue
 * everything is that one's, and costs nothing. Read next: front_queues.c (the choice), front_sums.c
 * (what is asked of all). */
#ifndef BLASD_QUEUE_FRONT_QUEUES_H
#define BLASD_QUEUE_FRONT_QUEUES_H

#include "queue/front_queue.h"

struct blasd_front_queues;

/* As blasd_front_queue_open, _free and _flush, for all. */
int blasd_front_queues_open(const struct blasd_queue_options *options, struct blasd_loop *loop,
                            const struct blasd_front_queue_hooks *hooks,
                            struct blasd_front_queues **ret, struct blasd_err *err);
void blasd_front_queues_free(struct blasd_front_queues *all); /* takes NULL */
void blasd_front_queues_flush(struct blasd_front_queues *all);

/* The number of the queue that an id, or the name of a blob, says it is in. */
int blasd_front_queues_number(const struct blasd_front_queues *all, const char *id);
/* That queue. */
struct blasd_front_queue *blasd_front_queues_of(const struct blasd_front_queues *all,
                                                const char *id);
/* The tenant's home. */
struct blasd_front_queue *blasd_front_queues_home(const struct blasd_front_queues *all,
                                                  const struct blasd_principal *principal);

/* What is known of a new job before its body is read. */
struct blasd_front_want {
    const struct blasd_principal *principal; /* borrowed, as the next */
    const uint64_t
        *coming; /* to each queue: jobs on their way, which its view does not count yet */
    uint64_t bytes;
    bool waited_for; /* it is not to be fetched later */
    bool keyed;      /* it has an Idempotency-Key */
};
/* Whether such a job lies in its tenant's home, and nowhere else. */
bool blasd_front_queues_bound(const struct blasd_front_want *want);
/* The queue for it, maybe one that is full, where all are that it may go to. */
struct blasd_front_queue *blasd_front_queues_choose(struct blasd_front_queues *all,
                                                    const struct blasd_front_want *want);

/* All of them as one: jobs are taken where any takes some, and a worker counts once. The pointer
 * stays the same; it is as of now. */
const struct blasd_queue_view *blasd_front_queues_view(struct blasd_front_queues *all);

/* The calls of front_queue.h of the same names, for all queues. Of several: a page has a part from
 * each of them, newest first; figures are added up over those that answer; use (and lists) are told
 * whole or not at all. What a list is asked with stays until the answer. */
void blasd_front_queues_subscribe(struct blasd_front_queues *all, bool wanted);
void blasd_front_queues_tag(const struct blasd_front_queues *all,
                            const struct blasd_principal *principal,
                            char tag[BLASD_TENANT_TAG + 1]);
void blasd_front_queues_list(struct blasd_front_queues *all,
                             const struct blasd_principal *principal,
                             const struct blasd_list_query *query, blasd_list_fn done, void *arg);
void blasd_front_queues_tensor_list(struct blasd_front_queues *all,
                                    const struct blasd_principal *principal, int limit,
                                    const char *cursor, blasd_tensors_fn done, void *arg);
void blasd_front_queues_figures(struct blasd_front_queues *all,
                                const struct blasd_figures_query *query, blasd_text_fn done,
                                void *arg);

#endif
