/* Grouping: a hash table from (operation, key, priority) to the group being filled. */
#include "worker/group.h"

#include "wire/frame.h"

#include <stdlib.h>

/* Tasks are a few kilobytes each, and a blob takes two descriptors and a mapping. */
#define GROUP_JOBS 1024

int blasd_grouping_init(struct blasd_grouping *grouping, int max) {
    unsigned buckets = 16;
    while (buckets < 2u * (unsigned)max) buckets *= 2;
    *grouping = (struct blasd_grouping){.bucket_count = buckets, .max = max};
    grouping->groups = calloc((size_t)max, sizeof *grouping->groups);
    grouping->buckets = calloc(buckets, sizeof *grouping->buckets);
    if (grouping->groups != NULL && grouping->buckets != NULL) return 0;
    blasd_grouping_release(grouping);
    return -1;
}

void blasd_grouping_release(struct blasd_grouping *grouping) {
    free(grouping->groups);
    free(grouping->buckets);
    *grouping = (struct blasd_grouping){0};
}

void blasd_item_read(struct blasd_item *item, const struct blasd_claim *claim) {
    size_t payload_at = 0;
    item->claim = claim;
    item->payload = NULL;
    item->job.op = NULL;
    item->err = (struct blasd_err){0};
    item->next = -1;
    if (blasd_job_decode(claim->frame, claim->frame_len, &item->job, &payload_at, &item->err) !=
        0) {
        item->job.op = NULL;
        return;
    }
    if (!item->job.payload_in_blob && !blasd_slice_given(&item->job.slice)) {
        item->payload = (const unsigned char *)claim->frame + payload_at;
        if (item->job.payload_bytes > claim->frame_len - payload_at) {
            blasd_fail(&item->err, BLASD_E_internal_error, "",
                       "the stored job is cut short: %zu of %llu bytes of input are there",
                       claim->frame_len - payload_at, (unsigned long long)item->job.payload_bytes);
            return;
        }
    }
    if (blasd_job_plan(&item->job, &item->plan, &item->err) == 0) item->company = item->plan.key;
}

/* FNV-1a */
static unsigned hash_bytes(unsigned hash, const void *bytes, size_t len) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < len; i++) hash = (hash ^ at[i]) * 16777619u;
    return hash;
}

static unsigned item_hash(const struct blasd_item *item) {
    const struct blasd_key *key = &item->company;
    unsigned hash = hash_bytes(2166136261u, &item->job.op, sizeof item->job.op);
    hash = hash_bytes(hash, &item->job.priority, sizeof item->job.priority);
    return hash_bytes(hash, key->bytes, key->len <= BLASD_KEY_MAX ? key->len : 0);
}

static uint64_t item_bytes(const struct blasd_item *item) {
    return item->plan.input_bytes + item->plan.output_bytes + item->plan.workspace_bytes;
}

static bool same_call(const struct blasd_item *a, const struct blasd_item *b) {
    return a->job.priority == b->job.priority && a->job.op == b->job.op &&
           blasd_key_equal(&a->company, &b->company);
}

static bool fits(const struct blasd_group *group, const struct blasd_item *item,
                 const struct blasd_limits *limits) {
    return group->count < GROUP_JOBS &&
           group->flops + item->plan.flops <= (double)limits->batch_flops &&
           group->bytes + item_bytes(item) <= limits->claim_bytes;
}

static void group_start(struct blasd_grouping *grouping, const struct blasd_item *item, int at) {
    grouping->groups[grouping->count++] = (struct blasd_group){.first = at,
                                                               .last = at,
                                                               .count = 1,
                                                               .suspect = item->claim->attempts > 0,
                                                               .priority = item->job.priority,
                                                               .flops = item->plan.flops,
                                                               .bytes = item_bytes(item)};
}

static void group_place(struct blasd_grouping *grouping, struct blasd_item *items, int at,
                        const struct blasd_limits *limits) {
    struct blasd_item *item = &items[at];
    unsigned mask = grouping->bucket_count - 1, slot = item_hash(item) & mask;
    int found;
    if (item->claim->attempts > 0 || !item->plan.batchable) {
        group_start(grouping, item, at);
        return;
    }
    for (; (found = grouping->buckets[slot]) >= 0; slot = (slot + 1) & mask) {
        struct blasd_group *group = &grouping->groups[found];
        if (!same_call(item, &items[group->first])) continue;
        if (!fits(group, item, limits)) break; /* a new group takes the full one's place */
        items[group->last].next = at;
        group->last = at;
        group->count++;
        group->flops += item->plan.flops;
        group->bytes += item_bytes(item);
        return;
    }
    grouping->buckets[slot] = grouping->count;
    group_start(grouping, item, at);
}

static int compare(const void *left, const void *right) {
    const struct blasd_group *a = left, *b = right;
    if (a->suspect != b->suspect) return a->suspect ? 1 : -1;
    if (a->priority != b->priority) return a->priority < b->priority ? -1 : 1;
    if (a->flops < b->flops) return -1;
    if (a->flops > b->flops) return 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

void blasd_group_items(struct blasd_grouping *grouping, struct blasd_item *items, int count,
                       const struct blasd_limits *limits) {
    grouping->count = 0;
    for (unsigned i = 0; i < grouping->bucket_count; i++) grouping->buckets[i] = -1;
    for (int i = 0; i < count; i++) {
        items[i].next = -1;
        if (items[i].err.code == BLASD_OK) group_place(grouping, items, i, limits);
    }
    qsort(grouping->groups, (size_t)grouping->count, sizeof *grouping->groups, compare);
}
