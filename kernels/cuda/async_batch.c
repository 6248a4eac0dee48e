/* Batches on their way: cut into parts, each part through a slot, at most two parts at a time.
 *
 * A part begins (packed, its copies and kernels put on streams) and ends (its bytes back, its tasks
 * told). Parts end in the order in which they began. begin of a batch begins its first parts, end
 * sees the rest through; while one batch is being seen through, the next may begin.
 * Read next: cuda_job.c, what operations call. */
#include "kernels/cuda/device.h"

#include "base/clock.h"
#include "base/container.h"
#include "core/wanted.h"

#include <stdlib.h>
#include <string.h>

static const struct blasd_cuda_op *find_op(const struct blasd_op *op) {
    for (int i = 0; blasd_cuda_ops[i] != NULL; i++)
        if (strcmp(blasd_cuda_ops[i]->kernel.op, op->name) == 0) return blasd_cuda_ops[i];
    return NULL;
}

/* ---- the layout of a part ---- */

static uint64_t align_up(uint64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Inputs that stay, of a task alone, are read where they do. */
static void borrow_inputs(struct blasd_cuda_slot *slot) {
    const struct blasd_task *task = slot->job.tasks;
    for (int i = 0; slot->job.count == 1 && i < BLASD_MAX_INPUTS; i++)
        if (slot->inputs[i] != NULL && task->inputs[i].data != NULL && task->names[i] != NULL &&
            (task->unmade >> i & 1) == 0)
            slot->lent[i] =
                blasd_cuda_cache_lend(slot->device, task->names[i],
                                      blasd_tensor_bytes(&task->inputs[i]), &slot->fresh[i]);
}

static void return_inputs(struct blasd_cuda_slot *slot) {
    for (int i = 0; i < BLASD_MAX_INPUTS; i++) {
        if (slot->lent[i] != NULL) blasd_cuda_cache_return(slot->device, slot->lent[i]);
        slot->lent[i] = NULL;
    }
}

struct place {
    char **table;        /* [count][columns] of addresses */
    int columns, column; /* which one this is */
    const struct blasd_tensor *(*tensor)(const struct blasd_task *task, int column);
};

static const struct blasd_tensor *input_of(const struct blasd_task *task, int i) {
    return task->inputs[i].data != NULL ? &task->inputs[i] : NULL;
}
static const struct blasd_tensor *output_of(const struct blasd_task *task, int o) {
    return task->outputs[o].rank >= 0 ? &task->outputs[o] : NULL;
}

/* Where a lent input lies; NULL: the tensor gets a place of its own. */
static char *lent_at(const struct blasd_cuda_slot *slot, const struct place *place) {
    return place->tensor == input_of ? slot->lent[place->column] : NULL;
}

/* Gives the column's tensors their offsets, from 1 on, so that 0 means none. */
static uint64_t place_column(struct blasd_cuda_slot *slot, const struct place *place, uint64_t at) {
    struct blasd_cuda_job *job = &slot->job;
    for (int t = 0; t < job->count; t++) {
        char **entry = &place->table[(size_t)t * (size_t)place->columns + (size_t)place->column];
        const struct blasd_tensor *tensor = place->tensor(&job->tasks[t], place->column);
        if (*entry == NULL || tensor == NULL) { /* not chosen, or not there */
            *entry = NULL;
            continue;
        }
        if (lent_at(slot, place) != NULL) continue;
        *entry = (char *)(uintptr_t)(at + 1);
        at += align_up(blasd_tensor_bytes(tensor));
    }
    return at;
}

static bool is_unmade(const struct blasd_task *task, int input) {
    return (task->unmade >> input & 1) != 0;
}

/* Whether an input gets to where it is to lie without an upload: made there, or copied. */
static bool comes_otherwise(struct blasd_cuda_slot *slot, const struct blasd_task *task, int input,
                            const char *place) {
    return is_unmade(task, input) ||
           blasd_cuda_cache_hold(slot->device, task->names[input], place,
                                 blasd_tensor_bytes(&task->inputs[input]));
}

/* An offset becomes an address. Whether anything is to be copied to there, or from there. */
static bool settle(struct blasd_cuda_slot *slot, const struct place *place, int t, char *base,
                   char **entry) {
    if (lent_at(slot, place) != NULL) {
        *entry = lent_at(slot, place);
        return slot->fresh[place->column];
    }
    *entry = base + ((uintptr_t)*entry - 1);
    return place->tensor == input_of
               ? !comes_otherwise(slot, &slot->job.tasks[t], place->column, *entry)
               : !blasd_cuda_make_resident(slot, t, place->column, *entry);
}

/* Offsets become addresses, and what lies there becomes pieces to copy. */
static int settle_column(struct blasd_cuda_slot *slot, const struct place *place, char *base,
                         struct blasd_cuda_list *list, struct blasd_err *err) {
    for (int t = 0; t < slot->job.count; t++) {
        char **entry = &place->table[(size_t)t * (size_t)place->columns + (size_t)place->column];
        const struct blasd_tensor *tensor = place->tensor(&slot->job.tasks[t], place->column);
        int code;
        if (*entry == NULL || !settle(slot, place, t, base, entry)) continue;
        code =
            blasd_cuda_list_add(slot, list, *entry, tensor->data, blasd_tensor_bytes(tensor), err);
        if (code != 0) return code;
        if (lent_at(slot, place) != NULL) list->pieces[list->count - 1].apart = true;
    }
    return 0;
}

/* Marks in the tables what is to be moved. */
static int choose_moves(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    struct blasd_cuda_job *job = &slot->job;
    size_t inputs = (size_t)job->count * BLASD_MAX_INPUTS;
    size_t outputs = (size_t)job->count * (size_t)slot->output_count;
    slot->inputs = blasd_cuda_scrap_take(&slot->scraps, inputs * sizeof *slot->inputs);
    slot->outputs = blasd_cuda_scrap_take(&slot->scraps, outputs * sizeof *slot->outputs);
    if (slot->inputs == NULL || slot->outputs == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for %d tasks", job->count);
    for (int t = 0; t < job->count; t++) {
        struct blasd_cuda_moves moves = {UINT64_MAX, UINT64_MAX};
        if (slot->op->choose != NULL) slot->op->choose(&job->tasks[t], job->facts, &moves);
        /* what is not chosen, the operation moves by itself, from the host; and some look there */
        if ((job->tasks[t].unmade & ~moves.inputs) != 0 ||
            (job->tasks[t].device_only & ~(moves.inputs & slot->op->kernel.makes_inputs)) != 0)
            blasd_task_make_inputs(&job->tasks[t]);
        for (int i = 0; i < BLASD_MAX_INPUTS; i++)
            if ((moves.inputs >> i & 1) != 0)
                slot->inputs[(size_t)t * BLASD_MAX_INPUTS + (size_t)i] = (char *)slot;
        for (int o = 0; o < slot->output_count; o++)
            if ((moves.outputs >> o & 1) != 0)
                slot->outputs[(size_t)t * (size_t)slot->output_count + (size_t)o] = (char *)slot;
    }
    return 0;
}

/* So that what is to stay does not take the place of what is read. */
static void use_copies(struct blasd_cuda_slot *slot) {
    for (int t = 0; t < slot->job.count; t++)
        for (int i = 0; i < BLASD_MAX_INPUTS; i++)
            blasd_cuda_cache_use(slot->device, slot->job.tasks[t].names[i]);
}

/* All tasks' input 0, then all tasks' input 1, …: so equal tasks lie at equal steps. */
static int lay_out(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    struct place in = {slot->inputs, BLASD_MAX_INPUTS, 0, input_of};
    struct place out = {slot->outputs, slot->output_count, 0, output_of};
    uint64_t in_bytes = 0, out_bytes = 0;
    void *in_base = NULL, *out_base = NULL;
    int code;
    use_copies(slot);
    borrow_inputs(slot);
    for (out.column = 0; out.column < out.columns; out.column++)
        out_bytes = place_column(slot, &out, out_bytes);
    for (in.column = 0; in.column < in.columns; in.column++)
        in_bytes = place_column(slot, &in, in_bytes);
    /* the inputs come last, so that tables taken next lie behind them */
    code = blasd_cuda_arena_take(slot->device, &slot->arena, out_bytes, 256, &out_base, err);
    if (code == 0)
        code = blasd_cuda_arena_take(slot->device, &slot->arena, in_bytes, 256, &in_base, err);
    for (out.column = 0; code == 0 && out.column < out.columns; out.column++)
        code = settle_column(slot, &out, out_base, &slot->down, err);
    for (in.column = 0; code == 0 && in.column < in.columns; in.column++)
        code = settle_column(slot, &in, in_base, &slot->up, err);
    return code;
}

/* ---- a part through a slot ---- */

int blasd_cuda_slot_open(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    struct blasd_device *device = slot->device;
    struct blasd_gpu_event **events[] = {&slot->up_from, &slot->up_to,     &slot->run_from,
                                         &slot->run_to,  &slot->down_from, &slot->down_to};
    int code = 0;
    if (slot->run == NULL) code = device->calls->stream_open(device->gpu, &slot->run, err);
    for (size_t i = 0; code == 0 && i < sizeof events / sizeof *events; i++)
        if (*events[i] == NULL) code = device->calls->event_open(device->gpu, events[i], err);
    return code;
}

static void slot_clear(struct blasd_cuda_slot *slot) {
    return_inputs(slot);
    blasd_cuda_unpin(slot);
    blasd_cuda_arena_reset(slot->device, &slot->arena);
    blasd_cuda_scrap_release(&slot->scraps);
    blasd_cuda_ring_reset(&slot->ring);
    slot->up.count = slot->down.count = 0;
    slot->sent = (struct blasd_cuda_cursor){0, 0};
    slot->sends = 0;
    slot->residents = NULL;
    slot->resident_count = 0;
    slot->job_count = slot->joint_count = 0;
    slot->joints = NULL;
    slot->state = BLASD_SLOT_IDLE;
}

/* After a failure: nothing of this part may still run when its memory is given to others. */
static void slot_abandon(struct blasd_cuda_slot *slot) {
    struct blasd_device *device = slot->device;
    struct blasd_err ignored;
    (void)device->calls->stream_wait(device->up, &ignored);
    if (slot->run != NULL) (void)device->calls->stream_wait(slot->run, &ignored);
    (void)device->calls->stream_wait(device->down, &ignored);
    blasd_cuda_cache_settle(device);
    slot_clear(slot);
}

/* One of the operation's functions, which may be NULL, for each job of the batch. */
static int each_job(struct blasd_cuda_slot *slot,
                    int (*step)(struct blasd_cuda_job *job, struct blasd_err *err),
                    struct blasd_err *err) {
    int code = 0;
    for (int j = 0; step != NULL && code == 0 && j < slot->job_count; j++)
        code = step(&slot->jobs[j], err);
    return code;
}

static int part_prepare(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    int code = choose_moves(slot, err);
    if (code == 0) code = lay_out(slot, err);
    if (code == 0) code = blasd_cuda_find_jobs(slot, err);
    if (code == 0) code = each_job(slot, slot->op->prepare, err);
    if (code == 0) code = blasd_cuda_residents_prepare(slot, err);
    if (code == 0) code = blasd_cuda_join_launches(slot, err);
    return code;
}

static char *place_of_input(const struct blasd_cuda_slot *slot, int task, int input) {
    return slot->inputs[(size_t)task * BLASD_MAX_INPUTS + (size_t)input];
}

/* Elements that rules make, where the others are copied to. */
static int make_inputs(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    for (int t = 0; t < slot->job.count; t++) {
        const struct blasd_task *task = &slot->job.tasks[t];
        for (int i = 0; i < BLASD_MAX_INPUTS; i++) {
            void *to = place_of_input(slot, t, i);
            int code = !is_unmade(task, i) || to == NULL
                           ? 0
                           : blasd_cuda_make(slot->device->up, &task->job->inputs[i].source.rule,
                                             &task->inputs[i], to, err);
            if (code != 0) return code;
        }
    }
    return 0;
}

/* To the copies that stay, and from them; in the order of the layout. */
static int copy_inputs(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && i < BLASD_MAX_INPUTS; i++)
        for (int t = 0; code == 0 && t < slot->job.count; t++) {
            const struct blasd_task *task = &slot->job.tasks[t];
            char *place = place_of_input(slot, t, i);
            if (place == NULL || is_unmade(task, i)) continue;
            code = blasd_cuda_cache_copy(slot->device, task->names[i], place,
                                         blasd_tensor_bytes(&task->inputs[i]), err);
        }
    return code;
}

static int part_upload(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = slot->device->calls;
    struct blasd_gpu_stream *up = slot->device->up;
    int code = calls->event_record(slot->up_from, up, err);
    slot->queued_ns = blasd_clock_ns();
    if (code == 0) code = blasd_cuda_upload(slot->device, &slot->up, err);
    /* after what goes up, whose copies run on over what is small between two pieces */
    if (code == 0) code = make_inputs(slot, err);
    if (code == 0) code = copy_inputs(slot, err);
    if (code == 0) code = calls->event_record(slot->up_to, up, err);
    if (code == 0) code = calls->stream_after(slot->run, slot->up_to, err);
    return code;
}

static int part_compute(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = slot->device->calls;
    int code = calls->event_record(slot->run_from, slot->run, err);
    if (code == 0) code = each_job(slot, slot->op->compute, err);
    if (code == 0) code = blasd_cuda_start_joints(slot, err);
    if (code == 0) code = blasd_cuda_residents_look(slot, err);
    if (code == 0) code = calls->event_record(slot->run_to, slot->run, err);
    if (code == 0) code = calls->stream_after(slot->device->down, slot->run_to, err);
    if (code == 0) code = calls->event_record(slot->down_from, slot->device->down, err);
    if (code == 0) code = blasd_cuda_residents_fill(slot, err);
    if (code == 0) code = blasd_cuda_download(slot, false, err);
    /* before the next part puts its own on the stream: who waits for this one waits for no other */
    if (code == 0) code = calls->event_record(slot->down_to, slot->device->down, err);
    return code;
}

/* What there was no chunk for is sent as chunks come free. */
static int part_wait(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = slot->device->calls;
    bool left = slot->sent.piece < slot->down.count;
    int code = left ? blasd_cuda_download(slot, true, err) : 0;
    if (code == 0 && left) code = calls->event_record(slot->down_to, slot->device->down, err);
    return code == 0 ? calls->event_wait(slot->down_to, err) : code;
}

static int part_begin(struct blasd_cuda_slot *slot, const struct blasd_cuda_op *op,
                      struct blasd_task *tasks, int count, struct blasd_watch *watch,
                      struct blasd_err *err) {
    struct blasd_device *device = slot->device;
    int code;
    slot->op = op;
    slot->job = (struct blasd_cuda_job){.calls = device->calls,
                                        .gpu = device->gpu,
                                        .tasks = tasks,
                                        .count = count,
                                        .watch = watch,
                                        .facts = &device->facts,
                                        .slot = slot};
    slot->began_ns = blasd_clock_ns();
    slot->output_count = 0;
    while (tasks[0].job->op->outputs[slot->output_count].name != NULL) slot->output_count++;
    code = blasd_cuda_slot_open(slot, err);
    slot->job.stream = slot->run;
    if (code == 0) code = part_prepare(slot, err);
    if (code == 0) code = part_upload(slot, err);
    if (code == 0) code = part_compute(slot, err);
    if (code != 0) {
        slot_abandon(slot);
    } else {
        blasd_cuda_cache_settle(device);
        slot->state = BLASD_SLOT_BUSY;
    }
    return code;
}

static double exact_between(struct blasd_cuda_slot *slot, struct blasd_gpu_event *from,
                            struct blasd_gpu_event *to) {
    struct blasd_err ignored;
    double us = 0;
    if (slot->device->calls->event_us(from, to, &us, &ignored) != 0) return 0;
    return us > 0 && us < 1e15 ? us : 0;
}

static int64_t between(struct blasd_cuda_slot *slot, struct blasd_gpu_event *from,
                       struct blasd_gpu_event *to) {
    return (int64_t)exact_between(slot, from, to);
}

static uint64_t bytes_of(const struct blasd_cuda_list *list) {
    uint64_t bytes = 0;
    for (int p = 0; p < list->count; p++) bytes += list->pieces[p].bytes;
    return bytes;
}

static void tell_bytes(struct blasd_cuda_slot *slot) {
    uint64_t up = bytes_of(&slot->up);
    uint64_t down = bytes_of(&slot->down) + slot->device->cache.brought;
    slot->device->cache.brought = 0;
    for (int t = 0; t < slot->job.count; t++) {
        slot->job.tasks[t].upload_bytes = up;
        slot->job.tasks[t].download_bytes = down;
    }
}

/* Reports progress, which never goes back, and tells whether to go on. */
static bool batch_goes_on(struct blasd_async_batch *batch, double progress) {
    if (progress > batch->told) batch->told = progress < 1 ? progress : 1;
    return batch->watch == NULL || batch->watch->go_on(batch->watch, batch->told);
}

/* What the host does by itself when a part has come back may take long: whoever asks there whether
 * it is wanted (core/wanted.h) asks the batch. */
struct finish_watch {
    struct blasd_watch base;
    struct blasd_async_batch *batch;
    int count; /* tasks of the part */
};

static bool finish_go_on(struct blasd_watch *watch, double progress) {
    struct finish_watch *finish = blasd_container_of(watch, struct finish_watch, base);
    struct blasd_async_batch *batch = finish->batch;
    double done = (double)batch->ended + (0.9 + 0.1 * progress) * finish->count;
    return batch->code == 0 && batch_goes_on(batch, done / (double)batch->count);
}

static int part_finish(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    struct finish_watch watch = {
        .base.go_on = finish_go_on, .batch = slot->batch, .count = slot->job.count};
    blasd_wanted_begin(&watch.base);
    return blasd_wanted_end(each_job(slot, slot->op->finish, err), err);
}

static int part_end(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    struct blasd_device *device = slot->device;
    int64_t came_ns, upload_us, download_us;
    double compute_us;
    int code = part_wait(slot, err);
    came_ns = blasd_clock_ns();
    if (code == 0) code = blasd_cuda_store(slot, err);
    if (code == 0) blasd_cuda_residents_tell(slot);
    if (code == 0) code = part_finish(slot, err);
    if (code != 0) {
        slot_abandon(slot);
        return code;
    }
    upload_us =
        (slot->queued_ns - slot->began_ns) / 1000 + between(slot, slot->up_from, slot->up_to);
    download_us =
        between(slot, slot->down_from, slot->down_to) + (blasd_clock_ns() - came_ns) / 1000;
    compute_us = exact_between(slot, slot->run_from, slot->run_to);
    device->compute_us += compute_us;
    tell_bytes(slot);
    for (int t = 0; t < slot->job.count; t++) {
        slot->job.tasks[t].upload_us = upload_us;
        slot->job.tasks[t].download_us = download_us;
        slot->job.tasks[t].compute_us = (int64_t)compute_us + 1;
    }
    slot_clear(slot);
    return 0;
}

/* ---- batches ---- */

/* A batch that failed as a whole ends nothing more. */
static void batch_fail(struct blasd_async_batch *batch, int code, const struct blasd_err *err) {
    if (batch->code == 0) {
        batch->code = code;
        batch->err = *err;
    }
}

static void end_oldest(struct blasd_device *device) {
    struct blasd_cuda_slot *slot = &device->slots[device->oldest];
    struct blasd_async_batch *batch = slot->batch;
    struct blasd_err err = {0};
    int count = slot->job.count, code = part_end(slot, &err);
    if (code != 0) batch_fail(batch, code, &err);
    batch->ended += count;
    device->oldest = (device->oldest + 1) % BLASD_CUDA_SLOTS;
    device->busy--;
}

/* Memory that slots hold for their next batch, but that nobody uses now. */
static void give_up_memory(struct blasd_device *device) {
    for (int s = 0; s < BLASD_CUDA_SLOTS; s++)
        if (device->slots[s].state == BLASD_SLOT_IDLE)
            blasd_cuda_arena_release(device, &device->slots[s].arena);
    blasd_cuda_cache_clear(device);
    for (int s = 0; s < BLASD_CUDA_SLOTS; s++) device->slots[s].arena.want = 0;
}

/* How many of the tasks to begin next go into one part. */
static int part_count(const struct blasd_async_batch *batch) {
    uint64_t bytes = 0;
    int count = 0, left = batch->count - batch->begun;
    if (left > batch->most) left = batch->most;
    while (count < left) {
        bytes += blasd_cuda_task_bytes(&batch->tasks[batch->begun + count]);
        if (count > 0 && bytes > batch->device->sizes.part_bytes) break;
        count++;
    }
    return count;
}

/* What a part that did not fit the device leads to. */
static void short_of_memory(struct blasd_device *device, struct blasd_async_batch *batch, int count,
                            bool tried, const struct blasd_err *err) {
    if (device->busy > 0) {
        end_oldest(device); /* and what it held can be given up */
    } else if (!tried) {
        give_up_memory(device);
    } else if (count > 1) {
        batch->most = count / 2;
    } else {
        batch->tasks[batch->begun].err = *err;
        batch->begun++;
        batch->ended++;
    }
}

/* Begins a part of the batch in the free slot, or makes room for it. */
static void begin_part(struct blasd_device *device, struct blasd_async_batch *batch) {
    struct blasd_task *tasks = batch->tasks + batch->begun;
    const struct blasd_cuda_op *op = find_op(tasks->job->op);
    bool tried = false;
    for (;;) {
        struct blasd_cuda_slot *slot =
            &device->slots[(device->oldest + device->busy) % BLASD_CUDA_SLOTS];
        int count = part_count(batch), before = device->busy, code;
        struct blasd_err err = {0};
        slot->batch = batch;
        code = part_begin(slot, op, tasks, count, batch->watch, &err);
        if (code == 0) {
            batch->begun += count;
            device->busy++;
            return;
        }
        if (code != -(int)BLASD_E_out_of_memory) {
            batch_fail(batch, code, &err);
            return;
        }
        short_of_memory(device, batch, count, tried, &err);
        if (batch->code != 0 || batch->tasks + batch->begun != tasks) return;
        tried = before == 0;
    }
}

static bool all_begun(const struct blasd_async_batch *batch) {
    return batch->code != 0 || batch->begun == batch->count;
}

/* Whether anything of it is in a slot. */
static bool in_slots(const struct blasd_async_batch *batch) {
    return batch->ended < batch->begun;
}

/* The first open batch with tasks that have not begun. */
static struct blasd_async_batch *waiting_batch(struct blasd_device *device) {
    struct blasd_async_batch *batch = device->open_batches;
    while (batch != NULL && all_begun(batch)) batch = batch->next;
    return batch;
}

/* One step for everybody: fills a free slot, or else empties the oldest. */
static void go_on(struct blasd_device *device) {
    struct blasd_async_batch *batch = waiting_batch(device);
    if (batch != NULL && device->busy < BLASD_CUDA_SLOTS)
        begin_part(device, batch);
    else if (device->busy > 0)
        end_oldest(device);
}

static void fill_slots(struct blasd_device *device) {
    while (device->busy < BLASD_CUDA_SLOTS) {
        struct blasd_async_batch *batch = waiting_batch(device);
        if (batch == NULL) return;
        begin_part(device, batch);
    }
}

int blasd_cuda_begin(struct blasd_device *device, struct blasd_task *tasks, int count,
                     struct blasd_watch *watch, struct blasd_async_batch **ret,
                     struct blasd_err *err) {
    struct blasd_async_batch *batch = calloc(1, sizeof *batch), **link = &device->open_batches;
    if (batch == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a batch");
    *batch = (struct blasd_async_batch){
        .device = device, .tasks = tasks, .count = count, .most = count, .watch = watch};
    batch->number = ++device->batches;
    while (*link != NULL) link = &(*link)->next;
    *link = batch;
    blasd_cuda_energy_begin(batch);
    for (int t = 0; t < count; t++) blasd_cuda_find_device_only(device, &tasks[t]);
    blasd_cuda_cut(batch, find_op(tasks->job->op));
    fill_slots(device);
    /* batches that came first go first; this one has its turn before the caller goes on */
    while (batch->begun == 0 && batch->code == 0) go_on(device);
    *ret = batch;
    return 0;
}

bool blasd_cuda_go_on(struct blasd_cuda_job *job, double progress) {
    struct blasd_async_batch *batch = job->slot->device->open_batches;
    double share = progress < 0 ? 0 : progress > 1 ? 1 : progress;
    while (batch != NULL &&
           (job->tasks < batch->tasks || job->tasks >= batch->tasks + batch->count))
        batch = batch->next;
    if (batch == NULL) return true;
    share = ((double)batch->begun + share * job->count) / (double)batch->count;
    return batch_goes_on(batch, share);
}

int blasd_cuda_stopped(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_cancelled, "", "stopped while it ran");
}

int blasd_cuda_end(struct blasd_async_batch *batch, struct blasd_err *err) {
    struct blasd_device *device = batch->device;
    struct blasd_async_batch **link = &device->open_batches;
    int code;
    while (!all_begun(batch) || in_slots(batch)) {
        double done = (double)batch->ended / (double)batch->count;
        if (batch->code == 0 && !batch_goes_on(batch, done)) {
            struct blasd_err stopped;
            batch_fail(batch, blasd_cuda_stopped(&stopped), &stopped);
        }
        go_on(device);
    }
    if (batch->code == 0) blasd_cuda_energy_end(batch);
    blasd_cuda_join(batch, find_op(batch->tasks->job->op));
    while (*link != batch) link = &(*link)->next;
    *link = batch->next;
    code = batch->code;
    if (code != 0) *err = batch->err;
    free(batch);
    return code;
}

int blasd_cuda_run(struct blasd_device *device, struct blasd_task *tasks, int count,
                   struct blasd_watch *watch, struct blasd_err *err) {
    struct blasd_async_batch *batch;
    int code = blasd_cuda_begin(device, tasks, count, watch, &batch, err);
    return code != 0 ? code : blasd_cuda_end(batch, err);
}
