/* Resident outputs, left on the device for steps to come of the same graph: which, and what the
 * host is told of them in place of their elements. Where they lie is cache.c's. Read next:
 * async_batch.c.
 */
#include "kernels/cuda/device.h"

/* Copies what a task's inputs have on the device alone to the host. */
static int inputs_to_host(struct blasd_task *task, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && task->device_only != 0; i++) {
        if ((task->device_only >> i & 1) == 0) continue;
        code = blasd_cuda_cache_to_host(task->device, task->names[i], err);
        if (code == 0) task->device_only &= ~(1u << i);
    }
    return code;
}

void blasd_cuda_find_device_only(struct blasd_device *device, struct blasd_task *task) {
    task->device_only = 0;
    task->to_host = inputs_to_host;
    task->device = device;
    for (int i = 0; i < BLASD_MAX_INPUTS; i++)
        if (task->names[i] != NULL && task->inputs[i].data != NULL &&
            blasd_cuda_cache_device_only(device, task->names[i]))
            task->device_only |= 1u << i;
}

static bool is_looked_at(enum blasd_dtype dtype) {
    return blasd_dtype_kind(dtype) == 'f' || blasd_dtype_kind(dtype) == 'c';
}

bool blasd_cuda_make_resident(struct blasd_cuda_slot *slot, int task, int output,
                              const void *place) {
    struct blasd_task *of = &slot->job.tasks[task];
    const struct blasd_tensor *tensor = &of->outputs[output];
    if (of->residents == NULL || of->residents[output].name == NULL ||
        (slot->op->residents >> output & 1) == 0 || !is_looked_at(tensor->dtype))
        return false;
    if (slot->residents == NULL)
        slot->residents =
            blasd_cuda_scrap_take(&slot->scraps, (size_t)(slot->job.count * slot->output_count) *
                                                     sizeof *slot->residents);
    if (slot->residents == NULL ||
        !blasd_cuda_cache_make_resident(slot->device, of->residents[output].name, place,
                                        blasd_tensor_bytes(tensor), tensor->data))
        return false;
    slot->residents[slot->resident_count++] =
        (struct blasd_cuda_resident){.task = task, .output = output};
    return true;
}

int blasd_cuda_residents_prepare(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && i < slot->resident_count; i++) {
        void *host, *device;
        code =
            blasd_cuda_return(&slot->job, BLASD_CUDA_SEEN * sizeof(uint64_t), &host, &device, err);
        if (code != 0) break;
        slot->residents[i].host = host;
        slot->residents[i].device = device;
    }
    return code;
}

int blasd_cuda_residents_look(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && i < slot->resident_count; i++) {
        const struct blasd_cuda_resident *one = &slot->residents[i];
        code = blasd_cuda_look(
            slot->run, slot->device->calls, &slot->job.tasks[one->task].outputs[one->output],
            blasd_cuda_out(&slot->job, one->task, one->output), BLASD_CUDA_SEEN, one->device, err);
    }
    return code;
}

int blasd_cuda_residents_fill(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && i < slot->resident_count; i++) {
        const struct blasd_cuda_resident *one = &slot->residents[i];
        code = blasd_cuda_cache_fill(slot->device,
                                     slot->job.tasks[one->task].residents[one->output].name, err);
    }
    return code;
}

void blasd_cuda_residents_tell(struct blasd_cuda_slot *slot) {
    for (int i = 0; i < slot->resident_count; i++) {
        const struct blasd_cuda_resident *one = &slot->residents[i];
        struct blasd_resident *resident = &slot->job.tasks[one->task].residents[one->output];
        resident->device_only = true;
        resident->seen = blasd_cuda_seen(one->host);
    }
}

int blasd_cuda_outputs_to_host(struct blasd_cuda_job *job, int t, struct blasd_err *err) {
    struct blasd_task *task = &job->tasks[t];
    struct blasd_device *device = job->slot->device;
    int code = 0;
    for (int o = 0; code == 0 && task->residents != NULL && o < job->slot->output_count; o++) {
        struct blasd_resident *resident = &task->residents[o];
        if (!resident->device_only) continue;
        code = blasd_cuda_cache_to_host(device, resident->name, err);
        if (code != 0) break;
        blasd_cuda_cache_forget(device, resident->name);
        resident->device_only = false;
    }
    return code;
}

const struct blasd_seen *blasd_cuda_seen_of(const struct blasd_task *task, int output) {
    return task->residents != NULL && task->residents[output].device_only
               ? &task->residents[output].seen
               : NULL;
}
