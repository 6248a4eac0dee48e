/* Grouping: items sorted by what must be equal, then cut where it is not. */
#include "worker/group.h"

#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

/* Tasks are a few kilobytes each, and a blob takes two descriptors and a mapping. */
#define GROUP_JOBS 1024

int blasd_grouping_init(struct blasd_grouping *grouping, int max) {
    *grouping = (struct blasd_grouping){0};
    grouping->groups = calloc((size_t)max, sizeof *grouping->groups);
    grouping->order = calloc((size_t)max, sizeof *grouping->order);
    if (grouping->groups != NULL && grouping->order != NULL) return 0;
    blasd_grouping_release(grouping);
    return -1;
}

void blasd_grouping_release(struct blasd_grouping *grouping) {
    free(grouping->groups);
    free(grouping->order);
    *grouping = (struct blasd_grouping){0};
}

void blasd_item_read(struct blasd_item *item, const struct blasd_claim *claim) {
    size_t payload_at = 0;
    item->claim = claim;
    item->payload = NULL;
    blasd_job_release(&item->job); /* of the claim before */
    item->err = (struct blasd_err){0};
    item->overran = false;
    item->next = -1;
    if (blasd_job_decode(claim->frame, claim->frame_len, &item->job, &payload_at, &item->err) != 0)
        return;
    if (!item->job.payload_in_blob && !blasd_slice_given(&item->job.slice)) {
        item->payload = (const unsigned char *)claim->frame + payload_at;
        if (item->job.payload_bytes > claim->frame_len - payload_at) {
            blasd_fail(&item->err, BLASD_E_internal_error, "",
                       "the stored job is cut short: %zu of %llu bytes of input are there",
                       claim->frame_len - payload_at, (unsigned long long)item->job.payload_bytes);
            return;
        }
    }
    if (blasd_job_plan(&item->job, &item->plan, &item->err) == 0) item->batch_key = item->plan.key;
}

static bool runs_alone(const struct blasd_item *item) {
    return item->claim->attempts > 0 || !item->plan.batchable;
}

static int compare_keys(const struct blasd_key *p, const struct blasd_key *q) {
    if (p->len != q->len) return p->len < q->len ? -1 : 1;
    return p->len <= BLASD_KEY_MAX ? memcmp(p->bytes, q->bytes, p->len) : 0;
}

/* So that those which can share a call stand side by side, those alike among them too, in the order
 * in which they came. */
static int compare_items(const void *left, const void *right) {
    const struct blasd_item *a = *(const struct blasd_item *const *)left,
                            *b = *(const struct blasd_item *const *)right;
    int order = 0;
    if (runs_alone(a) != runs_alone(b)) return runs_alone(b) ? -1 : 1;
    if (a->job.priority != b->job.priority) return a->job.priority < b->job.priority ? -1 : 1;
    if (a->job.op != b->job.op) return (uintptr_t)a->job.op < (uintptr_t)b->job.op ? -1 : 1;
    if ((order = strcmp(a->claim->tenant, b->claim->tenant)) != 0) return order;
    if ((order = compare_keys(&a->batch_key, &b->batch_key)) != 0) return order;
    if ((order = compare_keys(&a->plan.key, &b->plan.key)) != 0) return order;
    return a < b ? -1 : a > b;
}

static bool same_call(const struct blasd_item *a, const struct blasd_item *b) {
    return !runs_alone(a) && !runs_alone(b) && a->job.priority == b->job.priority &&
           a->job.op == b->job.op && strcmp(a->claim->tenant, b->claim->tenant) == 0 &&
           blasd_key_equal(&a->batch_key, &b->batch_key);
}

static bool fits(const struct blasd_group *group, const struct blasd_item *item,
                 const struct blasd_limits *limits) {
    return group->count < GROUP_JOBS &&
           group->flops + item->plan.flops <= (double)limits->batch_flops &&
           group->bytes + blasd_item_bytes(item) <= limits->claim_bytes;
}

static struct blasd_group *group_start(struct blasd_grouping *grouping,
                                       const struct blasd_item *item, int at) {
    struct blasd_group *group = &grouping->groups[grouping->count++];
    *group = (struct blasd_group){.first = at,
                                  .last = at,
                                  .count = 1,
                                  .quarantined = item->claim->attempts > 0,
                                  .priority = item->job.priority,
                                  .flops = item->plan.flops,
                                  .bytes = blasd_item_bytes(item)};
    return group;
}

static int compare(const void *left, const void *right) {
    const struct blasd_group *a = left, *b = right;
    if (a->quarantined != b->quarantined) return a->quarantined ? 1 : -1;
    if (a->priority != b->priority) return a->priority < b->priority ? -1 : 1;
    if (a->flops < b->flops) return -1;
    if (a->flops > b->flops) return 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

void blasd_group_items(struct blasd_grouping *grouping, struct blasd_item *items, int count,
                       const struct blasd_limits *limits) {
    struct blasd_group *group = NULL;
    int ready = 0;
    grouping->count = 0;
    for (int i = 0; i < count; i++) {
        items[i].next = -1;
        if (items[i].err.code == BLASD_OK) grouping->order[ready++] = &items[i];
    }
    qsort(grouping->order, (size_t)ready, sizeof *grouping->order, compare_items);
    for (int i = 0; i < ready; i++) {
        struct blasd_item *item = grouping->order[i];
        if (group == NULL || !same_call(grouping->order[i - 1], item) ||
            !fits(group, item, limits)) {
            group = group_start(grouping, item, (int)(item - items));
            continue;
        }
        items[group->last].next = (int)(item - items);
        group->last = (int)(item - items);
        group->count++;
        group->flops += item->plan.flops;
        group->bytes += blasd_item_bytes(item);
    }
    qsort(grouping->groups, (size_t)grouping->count, sizeof *grouping->groups, compare);
}
