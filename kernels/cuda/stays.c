/* Outputs that stay on the device, for steps to come of the same graph: which do, and what the host
 * is told of them in place of their elements. Where they lie is cache.c's. Read next:
 * async_batch.c.
 */
#include "kernels/cuda/device.h"

/* Brings what a task's inputs have on the device alone. */
static int bring_inputs(struct blasd_task *task, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && task->away != 0; i++) {
        if ((task->away >> i & 1) == 0) continue;
        code = blasd_cuda_cache_bring(task->device, task->names[i], err);
        if (code == 0) task->away &= ~(1u << i);
    }
    return code;
}

void blasd_cuda_find_away(struct blasd_device *device, struct blasd_task *task) {
    task->away = 0;
    task->bring = bring_inputs;
    task->device = device;
    for (int i = 0; i < BLASD_MAX_INPUTS; i++)
        if (task->names[i] != NULL && task->inputs[i].data != NULL &&
            blasd_cuda_cache_away(device, task->names[i]))
            task->away |= 1u << i;
}

static bool is_looked_at(enum blasd_dtype dtype) {
    return blasd_dtype_kind(dtype) == 'f' || blasd_dtype_kind(dtype) == 'c';
}

bool blasd_cuda_stays(struct blasd_cuda_slot *slot, int task, int output, const void *place) {
    struct blasd_task *of = &slot->job.tasks[task];
    const struct blasd_tensor *tensor = &of->outputs[output];
    if (of->stays == NULL || of->stays[output].name == NULL ||
        (slot->op->stays >> output & 1) == 0 || !is_looked_at(tensor->dtype))
        return false;
    if (slot->staying == NULL)
        slot->staying = blasd_cuda_scrap_take(
            &slot->scraps, (size_t)(slot->job.count * slot->output_count) * sizeof *slot->staying);
    if (slot->staying == NULL || !blasd_cuda_cache_stay(slot->device, of->stays[output].name, place,
                                                        blasd_tensor_bytes(tensor), tensor->data))
        return false;
    slot->staying[slot->staying_count++] =
        (struct blasd_cuda_staying){.task = task, .output = output};
    return true;
}

int blasd_cuda_stays_prepare(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && i < slot->staying_count; i++) {
        void *host, *device;
        code =
            blasd_cuda_return(&slot->job, BLASD_CUDA_SEEN * sizeof(uint64_t), &host, &device, err);
        if (code != 0) break;
        slot->staying[i].host = host;
        slot->staying[i].device = device;
    }
    return code;
}

int blasd_cuda_stays_look(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && i < slot->staying_count; i++) {
        const struct blasd_cuda_staying *one = &slot->staying[i];
        code = blasd_cuda_look(
            slot->run, slot->device->calls, &slot->job.tasks[one->task].outputs[one->output],
            blasd_cuda_out(&slot->job, one->task, one->output), one->device, err);
    }
    return code;
}

int blasd_cuda_stays_fill(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && i < slot->staying_count; i++) {
        const struct blasd_cuda_staying *one = &slot->staying[i];
        code = blasd_cuda_cache_fill(slot->device,
                                     slot->job.tasks[one->task].stays[one->output].name, err);
    }
    return code;
}

void blasd_cuda_stays_tell(struct blasd_cuda_slot *slot) {
    for (int i = 0; i < slot->staying_count; i++) {
        const struct blasd_cuda_staying *one = &slot->staying[i];
        struct blasd_stay *stay = &slot->job.tasks[one->task].stays[one->output];
        stay->away = true;
        stay->seen = blasd_cuda_seen(one->host);
    }
}

int blasd_cuda_bring_outputs(struct blasd_cuda_job *job, int t, struct blasd_err *err) {
    struct blasd_task *task = &job->tasks[t];
    struct blasd_device *device = job->slot->device;
    int code = 0;
    for (int o = 0; code == 0 && task->stays != NULL && o < job->slot->output_count; o++) {
        struct blasd_stay *stay = &task->stays[o];
        if (!stay->away) continue;
        code = blasd_cuda_cache_bring(device, stay->name, err);
        if (code != 0) break;
        blasd_cuda_cache_forget(device, stay->name);
        stay->away = false;
    }
    return code;
}

const struct blasd_seen *blasd_cuda_seen_of(const struct blasd_task *task, int output) {
    return task->stays != NULL && task->stays[output].away ? &task->stays[output].seen : NULL;
}
