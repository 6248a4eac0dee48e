/* Which jobs of a claim run together, and in what order. Pure: no I/O. Read next: runner.h. */
#ifndef BLASD_WORKER_GROUP_H
#define BLASD_WORKER_GROUP_H

#include "core/job.h"
#include "queue/worker_queue.h"

/* One claimed job. */
struct blasd_item {
    const struct blasd_claim *claim; /* borrowed until the next claim */
    const unsigned char *payload;    /* the payload beside the frame, borrowed with the claim; NULL
                                        where it is a blob */
    struct blasd_job job;            /* op NULL: the frame could not be read */
    struct blasd_plan plan;
    struct blasd_key batch_key; /* of those it can run with: plan.key, or what the kernel said */
    struct blasd_err err;       /* why the job cannot run; code BLASD_OK: it can */
    bool overran;               /* it was stopped as others should not wait for it */
    int next;                   /* the next item of the same group, -1 at its end */
};

struct blasd_group {
    int first, last, count; /* items, linked by `next` */
    bool quarantined;       /* a job that ended a worker before: alone, and after all the others */
    enum blasd_priority priority;
    double flops;
    uint64_t bytes;
};

/* Room for grouping up to `max` items at a time, reused from claim to claim. */
struct blasd_grouping {
    struct blasd_group *groups; /* owned */
    int count;                  /* of the groups made last */
    struct blasd_item **order;  /* owned; the items, those alike side by side */
};

/* 0, or -1 where memory has run out. */
int blasd_grouping_init(struct blasd_grouping *grouping, int max);
void blasd_grouping_release(struct blasd_grouping *grouping);

/* Reads the claim's frame into `item`, zeroed or read before, and plans the job; whatever is wrong
 * with it is in item->err. Its job is released by the caller in the end. */
void blasd_item_read(struct blasd_item *item, const struct blasd_claim *claim);

/* What it takes of the machine's memory. */
static inline uint64_t blasd_item_bytes(const struct blasd_item *item) {
    return item->plan.input_bytes + item->plan.output_bytes + item->plan.workspace_bytes;
}

/* Groups the items that can run: by operation, batch key, tenant (whose jobs ran beside one's own
 * is nobody's business) and priority, capped by cost. Groups of higher priority come first, then
 * those of less work; quarantined jobs last. */
void blasd_group_items(struct blasd_grouping *grouping, struct blasd_item *items, int count,
                       const struct blasd_limits *limits);

#endif
