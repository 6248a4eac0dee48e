/* One large task as several smaller ones, so that a part of it computes while the next goes up and
 * the last comes down: a stack's problems, or the rows of a product. Each is a job of its own to
 * the operation, planned anew. Read next: async_batch.c. */
#include "kernels/cuda/device.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PIECES 256 /* of one task */

/* One piece of a task that was cut. */
struct cut_job {
    int *notes; /* its part of its task's */
    struct blasd_job job;
    struct blasd_plan plan;
    struct blasd_key names[BLASD_MAX_INPUTS];
};

/* What a batch was before it was cut. */
struct blasd_cuda_whole {
    struct blasd_task *tasks; /* the caller's */
    int count;
    int *first;                /* owned: of each, its first piece; one more is the end */
    struct blasd_task *pieces; /* owned */
    struct cut_job **jobs;     /* owned: of each piece, NULL where its task was not cut */
    int **notes;               /* owned, and each: of each problem of a task that was cut */
};

uint64_t blasd_cuda_task_bytes(const struct blasd_task *task) {
    uint64_t bytes = 0;
    for (int i = 0; i < BLASD_MAX_INPUTS; i++)
        if (task->inputs[i].data != NULL) bytes += blasd_tensor_bytes(&task->inputs[i]);
    for (int o = 0; task->job->op->outputs[o].name != NULL; o++)
        if (task->outputs[o].rank >= 0) bytes += blasd_tensor_bytes(&task->outputs[o]);
    return bytes;
}

static bool begins_with(const struct blasd_tensor *tensor, int64_t length) {
    return tensor->rank > 0 && tensor->shape[0] == length && tensor->order == BLASD_ROW_MAJOR;
}

static bool can_be_cut(const struct blasd_task *task, int input, int64_t length) {
    const struct blasd_tensor *sent = &task->job->inputs[input].tensor;
    /* of integers the host tells in words what their largest can lead to: of all of them at once */
    return begins_with(&task->inputs[input], length) && sent->order == BLASD_ROW_MAJOR &&
           (blasd_dtype_kind(sent->dtype) == 'f' || blasd_dtype_kind(sent->dtype) == 'c');
}

/* The length of the first dimension, where the tensors have it. */
static int64_t stack_length(const struct blasd_task *task, unsigned shared) {
    int64_t length = task->outputs[0].shape[0];
    if (task->unmade != 0 || task->outputs[0].rank < 1) return 1;
    for (int o = 0; task->job->op->outputs[o].name != NULL; o++)
        if (task->outputs[o].rank >= 0 && !begins_with(&task->outputs[o], length)) return 1;
    for (int i = 0; i < BLASD_MAX_INPUTS; i++)
        if (task->inputs[i].data != NULL && (shared >> i & 1) == 0 && !can_be_cut(task, i, length))
            return 1;
    return length;
}

/* How a task is cut. */
struct cut {
    int count;    /* pieces */
    int64_t each; /* items of the first dimension in each, but for the last */
    struct blasd_cuda_stack stack;
};

static struct cut cut_of(const struct blasd_cuda_op *op, const struct blasd_task *task,
                         const struct blasd_device *device) {
    uint64_t part_bytes = device->sizes.part_bytes;
    uint64_t bytes = blasd_cuda_task_bytes(task), pieces = (bytes + part_bytes - 1) / part_bytes;
    struct cut cut = {.count = 1, .stack.grain = 1};
    int64_t length;
    if (pieces < 2 || op->stack == NULL) return cut;
    op->stack(task, &device->facts, &cut.stack);
    length = cut.stack.problems > 0 ? stack_length(task, cut.stack.shared) : 1;
    if (pieces > MOST_PIECES) pieces = MOST_PIECES;
    cut.each = (length + (int64_t)pieces - 1) / (int64_t)pieces;
    cut.each = cut.each > cut.stack.grain ? cut.each - cut.each % cut.stack.grain : cut.stack.grain;
    /* the last one has half a piece at least */
    cut.count = (int)((length + cut.each / 2) / cut.each);
    if (cut.count < 1) cut.count = 1;
    return cut;
}

/* Items `from` to `from + count` of the tensor. */
static struct blasd_tensor part_of(const struct blasd_tensor *tensor, int64_t from, int64_t count) {
    struct blasd_tensor part = *tensor;
    uint64_t item = blasd_tensor_bytes(tensor) / (uint64_t)tensor->shape[0];
    part.shape[0] = count;
    if (tensor->data != NULL) part.data = (char *)tensor->data + (uint64_t)from * item;
    return part;
}

/* What all pieces of a batch's tasks share goes up once: by a name of its own, which is shorter
 * than those that others give. */
static struct blasd_key name_of(const struct blasd_async_batch *batch) {
    struct blasd_key key = {0};
    blasd_key_add_int(&key, batch->number);
    return key;
}

static void name_shared(const struct blasd_async_batch *batch, int t, int input,
                        struct blasd_task *piece, struct blasd_key *name) {
    if (piece->names[input] != NULL) return;
    *name = name_of(batch);
    blasd_key_add_int(name, (int64_t)t * BLASD_MAX_INPUTS + input);
    piece->names[input] = name;
}

static int make_piece(const struct blasd_cuda_op *op, const struct blasd_task *whole,
                      unsigned shared, int64_t from, int64_t count, struct blasd_task *piece,
                      struct cut_job *cut) {
    struct blasd_err ignored;
    int code;
    *piece = *whole;
    piece->residents = NULL;
    piece->job = &cut->job;
    piece->plan = &cut->plan;
    cut->job = *whole->job;
    for (int i = 0; i < BLASD_MAX_INPUTS; i++) {
        if (whole->inputs[i].data == NULL || (shared >> i & 1) != 0) continue;
        piece->inputs[i] = part_of(&whole->inputs[i], from, count);
        cut->job.inputs[i].tensor.shape[0] = count;
        if (whole->names[i] == NULL) continue;
        cut->names[i] = *whole->names[i];
        blasd_key_add_int(&cut->names[i], from);
        blasd_key_add_int(&cut->names[i], count);
        piece->names[i] = &cut->names[i];
    }
    for (int o = 0; whole->job->op->outputs[o].name != NULL; o++)
        if (whole->outputs[o].rank >= 0)
            piece->outputs[o] = part_of(&whole->outputs[o], from, count);
    code = blasd_job_plan(&cut->job, &cut->plan, &ignored);
    if (code == 0 && op->kernel.adapt != NULL) op->kernel.adapt(&cut->job, &cut->plan);
    return code;
}

static void whole_free(struct blasd_cuda_whole *whole) {
    for (int p = 0; whole->jobs != NULL && p < whole->first[whole->count]; p++)
        free(whole->jobs[p]);
    for (int t = 0; whole->notes != NULL && t < whole->count; t++) free(whole->notes[t]);
    free(whole->notes);
    free(whole->jobs);
    free(whole->first);
    free(whole->pieces);
    free(whole);
}

static int cut_task(const struct blasd_async_batch *batch, struct blasd_cuda_whole *whole, int t,
                    const struct blasd_cuda_op *op, const struct cut *how) {
    const struct blasd_task *task = &whole->tasks[t];
    int count = whole->first[t + 1] - whole->first[t];
    struct blasd_task *pieces = &whole->pieces[whole->first[t]];
    int64_t length;
    if (count == 1) {
        *pieces = *task;
        return 0;
    }
    length = task->outputs[0].shape[0];
    whole->notes[t] = calloc((size_t)how->stack.problems, sizeof **whole->notes);
    if (whole->notes[t] == NULL) return -1;
    for (int p = 0; p < count; p++) {
        int64_t from = p * how->each, many = p < count - 1 ? how->each : length - from;
        struct cut_job *cut = calloc(1, sizeof *cut);
        whole->jobs[whole->first[t] + p] = cut;
        if (cut == NULL) return -1;
        cut->notes = whole->notes[t] + from * (how->stack.problems / length);
        if (make_piece(op, task, how->stack.shared, from, many, &pieces[p], cut) != 0) return -1;
        for (int i = 0; i < BLASD_MAX_INPUTS; i++)
            if ((how->stack.shared >> i & 1) != 0 && task->inputs[i].data != NULL)
                name_shared(batch, t, i, &pieces[p], &cut->names[i]);
    }
    return 0;
}

void blasd_cuda_cut(struct blasd_async_batch *batch, const struct blasd_cuda_op *op) {
    struct blasd_cuda_whole *whole;
    struct blasd_err ignored;
    int total = 0, code = 0;
    for (int t = 0; t < batch->count; t++)
        total += cut_of(op, &batch->tasks[t], batch->device).count;
    if (total == batch->count) return;
    for (int t = 0; t < batch->count; t++) /* pieces are taken from the host */
        if (batch->tasks[t].device_only != 0 &&
            batch->tasks[t].to_host(&batch->tasks[t], &ignored) != 0)
            return;
    whole = calloc(1, sizeof *whole);
    if (whole == NULL) return; /* as a whole, then */
    whole->tasks = batch->tasks;
    whole->count = batch->count;
    whole->first = calloc((size_t)batch->count + 1, sizeof *whole->first);
    whole->pieces = calloc((size_t)total, sizeof *whole->pieces);
    whole->notes = calloc((size_t)batch->count, sizeof *whole->notes);
    if (whole->first != NULL && whole->pieces != NULL && whole->notes != NULL)
        whole->jobs = calloc((size_t)total, sizeof *whole->jobs);
    for (int t = 0; whole->jobs != NULL && code == 0 && t < batch->count; t++) {
        struct cut how = cut_of(op, &batch->tasks[t], batch->device);
        whole->first[t + 1] = whole->first[t] + how.count;
        code = cut_task(batch, whole, t, op, &how);
    }
    if (whole->jobs == NULL || code != 0) {
        if (whole->jobs != NULL) whole->first[whole->count] = total;
        whole_free(whole);
        return;
    }
    batch->whole = whole;
    batch->tasks = whole->pieces;
    batch->count = batch->most = total;
}

int *blasd_cuda_notes(const struct blasd_cuda_job *job, int t) {
    const struct blasd_cuda_whole *whole = job->slot->batch->whole;
    const struct cut_job *cut = whole != NULL ? whole->jobs[&job->tasks[t] - whole->pieces] : NULL;
    return cut != NULL ? cut->notes : NULL;
}

/* What became of the pieces is what became of the task. Parts overlap, so their times may come to
 * more than it took: then each is its share of that. */
static void join(struct blasd_task *task, const struct blasd_task *pieces, int count,
                 int64_t took_us) {
    int64_t all;
    blasd_task_reset(task);
    memcpy(task->method, pieces->method, sizeof task->method);
    task->energy_joules = pieces->energy_joules;
    for (int p = 0; p < count; p++) {
        if (task->err.code == BLASD_OK) task->err = pieces[p].err;
        task->upload_us += pieces[p].upload_us;
        task->compute_us += pieces[p].compute_us;
        task->download_us += pieces[p].download_us;
        task->upload_bytes += pieces[p].upload_bytes;
        task->download_bytes += pieces[p].download_bytes;
    }
    for (int w = 0; w < pieces->warning_count; w++)
        blasd_task_warn(task, pieces->warnings[w].code, "%s", pieces->warnings[w].text);
    all = task->upload_us + task->compute_us + task->download_us;
    if (all <= took_us) return;
    task->upload_us = (int64_t)((double)task->upload_us * (double)took_us / (double)all);
    task->compute_us = (int64_t)((double)task->compute_us * (double)took_us / (double)all);
    task->download_us = (int64_t)((double)task->download_us * (double)took_us / (double)all);
}

void blasd_cuda_join(struct blasd_async_batch *batch, const struct blasd_cuda_op *op) {
    struct blasd_cuda_whole *whole = batch->whole;
    struct blasd_key name = name_of(batch);
    int64_t took_us = (blasd_clock_ns() - batch->begun_ns) / 1000;
    if (whole == NULL) return;
    blasd_cuda_cache_forget(batch->device, &name);
    for (int t = 0; t < whole->count; t++) {
        int count = whole->first[t + 1] - whole->first[t];
        struct blasd_task *task = &whole->tasks[t];
        const struct blasd_task *pieces = &whole->pieces[whole->first[t]];
        if (count == 1) {
            *task = *pieces;
            continue;
        }
        join(task, pieces, count, took_us);
        if (op->join == NULL || batch->code != 0 || task->err.code != BLASD_OK) continue;
        task->warning_count = 0;
        op->join(task, whole->notes[t]);
    }
    batch->whole = NULL;
    whole_free(whole);
}
