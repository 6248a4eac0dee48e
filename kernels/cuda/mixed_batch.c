/* Jobs of different shapes in one batch: which of its tasks are alike, and the launches that its
 * jobs share. Read next: mixed_batch.cuh, async_batch.c. */
#include "kernels/cuda/device.h"

#include <stdlib.h>
#include <string.h>

int blasd_cuda_find_jobs(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    const struct blasd_cuda_job *all = &slot->job;
    slot->jobs = blasd_cuda_scrap_take(&slot->scraps, (size_t)all->count * sizeof *slot->jobs);
    slot->job_count = 0;
    if (slot->jobs == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for %d tasks", all->count);
    for (int t = 0; t < all->count; t++) {
        struct blasd_cuda_job *job = &slot->jobs[slot->job_count];
        if (t > 0 && blasd_key_equal(&all->tasks[t].plan->key, &all->tasks[t - 1].plan->key)) {
            job[-1].count++;
            continue;
        }
        *job = *all;
        job->first = t;
        job->tasks = all->tasks + t;
        job->count = 1;
        slot->job_count++;
    }
    return 0;
}

int blasd_cuda_share_add(struct blasd_cuda_job *job, const struct blasd_cuda_joint *alone,
                         const void *share, struct blasd_err *err) {
    struct blasd_cuda_slot *slot = job->slot;
    struct blasd_cuda_joint *joint;
    void *kept;
    int code = blasd_cuda_host(job, sizeof *joint, (void **)&joint, err);
    if (code == 0) code = blasd_cuda_host(job, alone->share_bytes, &kept, err);
    if (code != 0 || alone->blocks == 0) return code;
    memcpy(kept, share, alone->share_bytes);
    *joint = *alone;
    joint->shares = kept;
    joint->count = 1;
    joint->number = slot->joint_count++;
    joint->next = slot->joints;
    slot->joints = joint;
    return 0;
}

/* Stage by stage; launches that can be one side by side, in the order of the jobs. */
static int compare(const void *left, const void *right) {
    const struct blasd_cuda_joint *a = *(const struct blasd_cuda_joint *const *)left,
                                  *b = *(const struct blasd_cuda_joint *const *)right;
    if (a->stage != b->stage) return a->stage < b->stage ? -1 : 1;
    if (a->kernel != b->kernel) return (uintptr_t)a->kernel < (uintptr_t)b->kernel ? -1 : 1;
    if (a->threads != b->threads) return a->threads < b->threads ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* One launch of the `count` launches of one kernel, whose shares become its table. */
static int join(struct blasd_cuda_job *job, struct blasd_cuda_joint *const *alone, int count,
                struct blasd_cuda_joint *ret, struct blasd_err *err) {
    size_t each = alone[0]->share_bytes;
    void *host, *device;
    int code = blasd_cuda_table(job, (size_t)count * each, &host, &device, err);
    if (code != 0) return code;
    *ret = *alone[0];
    ret->blocks = 0;
    for (int i = 0; i < count; i++) {
        struct blasd_share_head *head = (void *)((char *)host + (size_t)i * each);
        memcpy(head, alone[i]->shares, each);
        head->first = ret->blocks;
        ret->blocks += alone[i]->blocks;
        if (alone[i]->shared_bytes > ret->shared_bytes) ret->shared_bytes = alone[i]->shared_bytes;
    }
    ret->shares = device;
    ret->count = count;
    return 0;
}

/* How many of them, from the first on, can be one launch. */
static int alike(struct blasd_cuda_joint *const *list, int count) {
    int64_t blocks = list[0]->blocks;
    int n = 1;
    while (n < count && list[n]->stage == list[0]->stage && list[n]->kernel == list[0]->kernel &&
           list[n]->threads == list[0]->threads && blocks + list[n]->blocks <= INT32_MAX)
        blocks += list[n++]->blocks;
    return n;
}

int blasd_cuda_join_launches(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    struct blasd_cuda_job *job = &slot->job;
    struct blasd_cuda_joint **list, *joined;
    int count = slot->joint_count, made = 0, code;
    if (count == 0) return 0;
    code = blasd_cuda_host(job, (size_t)count * sizeof *list, (void **)&list, err);
    if (code == 0)
        code = blasd_cuda_host(job, (size_t)count * sizeof *joined, (void **)&joined, err);
    if (code != 0) return code;
    for (struct blasd_cuda_joint *at = slot->joints; at != NULL; at = at->next)
        list[at->number] = at;
    qsort(list, (size_t)count, sizeof *list, compare);
    for (int i = 0, n; code == 0 && i < count; i += n) {
        n = alike(list + i, count - i);
        code = join(job, list + i, n, &joined[made++], err);
    }
    slot->joints = joined;
    slot->joint_count = made;
    return code;
}

int blasd_cuda_start_joints(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && i < slot->joint_count; i++)
        code = slot->joints[i].start(&slot->joints[i], slot->run, err);
    return code;
}
