/* Bind, run, store, finish; smaller parts where memory is short, single jobs where a whole batch
 * failed, again and again where Redis is away. */
#include "worker/runner.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/wanted.h"
#include "wire/frame.h"
#include "worker/digest.h"
#include "worker/graph_run.h"
#include "worker/phases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ARENA_KEEP (UINT64_C(256) << 20)
#define SEND_BYTES ((size_t)16 << 20) /* of records in one call of finish */

void blasd_batcher_init(struct blasd_batcher *batcher, const struct blasd_limits *limits) {
    uint64_t most =
        limits->job_bytes > limits->claim_bytes ? limits->job_bytes : limits->claim_bytes;
    *batcher = (struct blasd_batcher){.room = &batcher->rooms[0], .other = &batcher->rooms[1]};
    for (int i = 0; i < 2; i++) blasd_arena_init(&batcher->rooms[i].arena, most, ARENA_KEEP);
    blasd_completions_init(&batcher->completions);
}

void blasd_batcher_release(struct blasd_batcher *batcher) {
    for (int i = 0; i < 2; i++) {
        struct blasd_batch_room *room = &batcher->rooms[i];
        blasd_arena_release(&room->arena);
        free(room->members);
        free(room->ids);
        free(room->tasks);
        free(room->ios);
        *room = (struct blasd_batch_room){0};
    }
    blasd_completions_release(&batcher->completions);
}

/* Whether it is worth trying again what failed with queue_unavailable; sleeps first, longer with
 * each of the `tries`. False once the lease is lost, or soon after the worker was told to stop: the
 * jobs are then run again. */
static bool try_again(const struct blasd_batcher *batcher, int *tries) {
    int64_t ms = INT64_C(10) << (*tries < 6 ? *tries : 6);
    struct timespec pause = {.tv_sec = 0, .tv_nsec = ms * 1000000};
    bool stopping = batcher->options->stopping(batcher->options->arg);
    if (blasd_heartbeat_lost(batcher->heartbeat) || (stopping && *tries > 8)) return false;
    nanosleep(&pause, NULL);
    ++*tries;
    return true;
}

static void *grow(void *array, size_t rows, size_t row_bytes, bool *failed) {
    void *grown = realloc(array, rows * row_bytes);
    if (grown == NULL) *failed = true;
    return grown == NULL ? array : grown;
}

static int make_room(struct blasd_batch_room *room, int count) {
    size_t rows = room->rows < 16 ? 16 : (size_t)room->rows;
    bool failed = false;
    if (count <= room->rows) return 0;
    while (rows < (size_t)count) rows *= 2;
    room->members = grow(room->members, rows, sizeof *room->members, &failed);
    room->ids = grow(room->ids, rows, sizeof *room->ids, &failed);
    room->tasks = grow(room->tasks, rows, sizeof *room->tasks, &failed);
    room->ios = grow(room->ios, rows, sizeof *room->ios, &failed);
    if (failed) return -1;
    room->rows = (int)rows;
    return 0;
}

static void remove_inputs(struct blasd_batcher *batcher, const struct blasd_item *item) {
    char name[BLASD_BLOB_NAME];
    snprintf(name, sizeof name, "%s.in", item->claim->id);
    blasd_worker_queue_blob_remove(batcher->queue, name);
}

/* Closes what a job held and removes the result that was begun, so that the job can be run again.
 * Once the lease is lost the name belongs to another worker's result, also where nobody has said so
 * yet. */
static void discard(struct blasd_batcher *batcher, struct blasd_io *io) {
    if (!batcher->lost && !blasd_heartbeat_lost(batcher->heartbeat))
        blasd_io_drop(batcher->queue, io);
    blasd_io_close(io);
    blasd_worker_queue_slice_done(batcher->queue, &io->slice, true);
    io->slice = (struct blasd_slice){0};
}

/* The span of a job that has ended so. */
static void add_span(struct blasd_batcher *batcher, const struct blasd_completion *row,
                     const struct blasd_item *item) {
    struct blasd_record record;
    struct blasd_err err;
    size_t size;
    if (item->job.op == NULL || !item->job.trace.sampled || batcher->options->otlp == NULL) return;
    if (blasd_record_decode_bare(row->record, row->record_len, &record, &size, &err) == 0)
        blasd_spans_job(&batcher->span, &item->job.trace, &record);
}

/* After finish: blobs that nothing refers to any more go at once. Where finish had to be tried
 * twice, "not accepted" may mean "the first try did it": then only a sweep can tell. One that was
 * cancelled, or has expired, was ended by Redis: who hears of that has its span. */
static void after_ack(struct blasd_batcher *batcher, bool certain) {
    struct blasd_completions *completions = &batcher->completions;
    for (int i = 0; i < completions->count; i++) {
        const struct blasd_completion_of *of = &completions->of[i];
        if (completions->rows[i].accepted || (!certain && !batcher->lost)) {
            add_span(batcher, &completions->rows[i], of->item);
            blasd_ended_log(&of->ended, of->item, batcher->info.id, batcher->options);
            blasd_phases_tenant(blasd_heartbeat_phases(batcher->heartbeat), of->item->claim->tenant,
                                &of->ended.used);
        }
        if (of->io != NULL && !completions->rows[i].accepted && certain)
            blasd_io_drop(batcher->queue, of->io);
        if (of->io != NULL) blasd_io_close(of->io);
        blasd_worker_queue_slice_done(batcher->queue, &completions->rows[i].slice, certain);
        if (completions->rows[i].accepted && of->item->claim->stored)
            remove_inputs(batcher, of->item);
    }
}

/* Sends the completions collected so far. Whatever cannot be ended is given up with the lease, so
 * that the queue hands it out again. */
static void send(struct blasd_batcher *batcher) {
    struct blasd_completions *completions = &batcher->completions;
    int code = 0, tries = 0;
    while (completions->count > 0 && !batcher->lost) {
        struct blasd_err err = {0};
        bool lost = false;
        code = blasd_worker_queue_finish(batcher->queue, blasd_completions_rows(completions),
                                         completions->count, &lost, &err);
        if (lost) batcher->lost = true;
        if (code == 0) break;
        if (tries == 0)
            blasd_log(BLASD_LOG_WARN, "cannot end %d jobs: %s", completions->count, err.detail);
        if (code == -(int)BLASD_E_queue_unavailable && try_again(batcher, &tries)) continue;
        batcher->lost = true;
    }
    after_ack(batcher, code == 0 && tries == 0 && !batcher->lost);
    blasd_completions_reset(completions);
}

static void end_job(struct blasd_batcher *batcher, const struct blasd_item *item,
                    const struct blasd_task *task, struct blasd_io *io,
                    const struct blasd_err *error, const struct blasd_batch_times *times,
                    int batch_size) {
    struct blasd_batch_place place = {batcher->info.id, batcher->info.name, batch_size};
    struct blasd_record record;
    struct blasd_err err = {0};
    const void *payload = io != NULL ? io->base : NULL;
    blasd_completion_record(item, task, io, error, times, &place, &record);
    if (error != NULL && task != NULL && task->told != NULL) {
        blasd_completion_tell(task, &record);
        payload = task->told;
    }
    blasd_phases_job(blasd_heartbeat_phases(batcher->heartbeat), &record);
    if (blasd_completions_add(&batcher->completions, &record, item, io, payload, &err) != 0) {
        blasd_log(BLASD_LOG_WARN, "cannot make the record of job %s: %s", item->claim->id,
                  err.detail);
        if (io != NULL) discard(batcher, io);
        blasd_completion_record(item, task, NULL, &err, times, &place, &record);
        if (blasd_completions_add(&batcher->completions, &record, item, NULL, NULL, &err) != 0)
            batcher->lost = true;
    }
    if (batcher->completions.bytes.len >= SEND_BYTES) send(batcher);
}

void blasd_batch_refuse(struct blasd_batcher *batcher, struct blasd_item *items, int count,
                        int64_t claimed_ns) {
    int64_t now = blasd_clock_ns();
    struct blasd_batch_times times = {claimed_ns, now, now, now, now};
    blasd_spans_batch_begin(&batcher->span, batcher->options->otlp);
    for (int i = 0; i < count && !batcher->lost; i++)
        if (items[i].err.code != BLASD_OK)
            end_job(batcher, &items[i], NULL, NULL, &items[i].err, &times, 1);
    send(batcher);
}

static int map_job(struct blasd_batcher *batcher, const struct blasd_item *item,
                   struct blasd_task *task, struct blasd_io *io, struct blasd_err *err) {
    const struct blasd_kernel *kernel =
        blasd_backend_kernel(batcher->options->backend, item->job.op);
    unsigned makes_inputs = kernel == NULL ? 0 : kernel->makes_inputs;
    int code, tries = 0;
    memset(io, 0, sizeof *io);
    task->job = &item->job;
    task->plan = &item->plan;
    blasd_task_reset(task);
    do {
        code = blasd_io_map_inputs(batcher->queue, &batcher->room->arena, item, makes_inputs, task,
                                   io, err);
    } while (code == -(int)BLASD_E_queue_unavailable && try_again(batcher, &tries));
    if (code == 0)
        code = blasd_io_map_outputs(batcher->queue, &batcher->options->queue, &batcher->room->arena,
                                    item, task, io, err);
    if (code != 0) discard(batcher, io);
    return code;
}

static void discard_part(struct blasd_batcher *batcher, struct blasd_item **members, int count) {
    for (int i = 0, k = 0; i < count; i++)
        if (members[i]->err.code == BLASD_OK) discard(batcher, &batcher->room->ios[k++]);
}

/* Maps `count` members; tasks and ios are those that could be. A job that cannot be mapped fails
 * alone, but for memory, which the caller answers with a smaller part. Negative: nothing is mapped.
 */
static int map_part(struct blasd_batcher *batcher, struct blasd_item **members, int count,
                    int *mapped, struct blasd_err *err) {
    int live = 0;
    for (int i = 0; i < count; i++) members[i]->err = (struct blasd_err){0};
    for (int i = 0; i < count; i++) {
        int code = map_job(batcher, members[i], &batcher->room->tasks[live],
                           &batcher->room->ios[live], &members[i]->err);
        if (code == 0) {
            live++;
            continue;
        }
        if (code == -(int)BLASD_E_queue_unavailable) batcher->lost = true;
        if (!batcher->lost && (code != -(int)BLASD_E_out_of_memory || count == 1)) continue;
        *err = members[i]->err;
        discard_part(batcher, members, i);
        for (int j = 0; j <= i; j++) members[j]->err = (struct blasd_err){0};
        return code;
    }
    *mapped = live;
    return 0;
}

/* What it means that the kernel returned `code`, given what it was told meanwhile. */
static int heed(struct blasd_batcher *batcher, int code, struct blasd_err *err) {
    enum blasd_told told = blasd_heartbeat_ran(batcher->heartbeat, batcher->slot);
    if (code == -(int)BLASD_E_device_error) return code;
    if (told == BLASD_UNWANTED) return 0; /* store_part says so for each job */
    if (told == BLASD_TOO_LONG || (told == BLASD_OVERRAN && code != 0))
        return blasd_heartbeat_too_long(batcher->heartbeat, batcher->slot, err);
    if (code != 0 && err->code == BLASD_OK)
        blasd_fail(err, BLASD_E_internal_error, "", "the kernel gave up without saying why");
    return code;
}

static int run_kernel(struct blasd_batcher *batcher, int count, struct blasd_err *err) {
    const struct blasd_op *op = batcher->room->tasks[0].job->op;
    const struct blasd_kernel *kernel = blasd_backend_kernel(batcher->options->backend, op);
    struct blasd_watch *watch = blasd_heartbeat_watch(batcher->heartbeat, batcher->slot);
    int code;
    if (op->composed)
        return heed(batcher,
                    blasd_graph_run(batcher->options->backend, batcher->device,
                                    &batcher->room->arena, batcher->room->tasks, watch, err),
                    err);
    if (kernel == NULL)
        return blasd_fail(err, BLASD_E_no_such_device, "op", "%s does not run %s", batcher->info.id,
                          op->name);
    code = kernel->run(batcher->device, batcher->room->tasks, count, watch, err);
    return heed(batcher, code, err);
}

/* What it means that the batch was stopped while its inputs were made and its outputs got room. */
static int stopped_early(struct blasd_batcher *batcher, struct blasd_item **members, int count,
                         struct blasd_err *err) {
    int code = heed(batcher, blasd_fail(err, BLASD_E_cancelled, "", "stopped before it ran"), err);
    if (code != 0 && count == 1 && members[0]->err.code != BLASD_OK) members[0]->err = *err;
    return code;
}

/* A kernel may make an output smaller than was planned, never larger. */
static void check_outputs(struct blasd_task *task, const struct blasd_io *io) {
    for (int i = 0; task->job->op->outputs[i].name != NULL; i++) {
        const struct blasd_tensor *output = &task->outputs[i];
        if (task->plan->outputs[i].rank < 0) continue;
        if (output->data != io->at[i] || blasd_tensor_check(output, "", NULL) != 0 ||
            blasd_tensor_bytes(output) > io->reserved[i])
            blasd_fail(&task->err, BLASD_E_internal_error, "",
                       "the kernel gave back an output '%s' it was not asked for",
                       task->job->op->outputs[i].name);
    }
}

static int put_blob(struct blasd_batcher *batcher, struct blasd_blob *blob, struct blasd_err *err) {
    int code, tries = 0;
    do {
        code = blasd_worker_queue_blob_put(batcher->queue, blob, err);
    } while (code == -(int)BLASD_E_queue_unavailable && try_again(batcher, &tries));
    if (code == -(int)BLASD_E_queue_unavailable) batcher->lost = true;
    return code;
}

/* The outputs that become tensors. */
static int store_kept(struct blasd_batcher *batcher, const struct blasd_task *task,
                      struct blasd_io *io, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; io->kept != NULL && code == 0 && i < BLASD_MAX_OUTPUTS; i++) {
        if (io->kept[i].store == NULL) continue;
        code = blasd_io_keep(io, task, i, err);
        if (code == 0) code = put_blob(batcher, &io->kept[i], err);
    }
    return code;
}

static int store_outputs(struct blasd_batcher *batcher, const struct blasd_task *task,
                         struct blasd_io *io, struct blasd_err *err) {
    int code = blasd_digest_outputs(task, io, err);
    if (code == 0) code = store_kept(batcher, task, io, err);
    if (code != 0 || !io->has_out) return code;
    code = blasd_io_settle(io, err);
    return code != 0 ? code : put_blob(batcher, &io->out, err);
}

/* What follows the kernel: each task that did well gets its outputs stored. */
static void store_part(struct blasd_batcher *batcher, int live) {
    bool unwanted = blasd_heartbeat_told(batcher->heartbeat, batcher->slot) == BLASD_UNWANTED;
    for (int k = 0; k < live && !batcher->lost; k++) {
        struct blasd_task *task = &batcher->room->tasks[k];
        if (unwanted) /* the kernel may have stopped half-way */
            blasd_fail(&task->err, BLASD_E_cancelled, "", "the job was cancelled or has expired");
        if (task->err.code == BLASD_OK) check_outputs(task, &batcher->room->ios[k]);
        if (task->err.code == BLASD_OK)
            store_outputs(batcher, task, &batcher->room->ios[k], &task->err);
    }
}

/* Of a call of the kernel, whose jobs have been noted. */
static void note_batch(struct blasd_batcher *batcher, const struct blasd_op *op, int jobs,
                       const struct blasd_batch_times *times) {
    int64_t now = blasd_clock_wall_us() - blasd_clock_ns() / 1000; /* wall clock minus steady */
    blasd_phases_batch(blasd_heartbeat_phases(batcher->heartbeat), op, jobs);
    blasd_spans_batch_end(&batcher->span, op->name, batcher->info.id, jobs,
                          now + times->began_ns / 1000, now + times->stored_ns / 1000);
}

static int finish_part(struct blasd_batcher *batcher, struct blasd_item **members, int count,
                       int live, const struct blasd_batch_times *times) {
    int failed = 0;
    blasd_spans_batch_begin(&batcher->span, batcher->options->otlp);
    for (int i = 0, k = 0; i < count; i++) {
        struct blasd_item *item = members[i];
        struct blasd_task *task = NULL;
        struct blasd_io *io = NULL;
        const struct blasd_err *error = &item->err;
        if (item->err.code == BLASD_OK) {
            task = &batcher->room->tasks[k];
            io = &batcher->room->ios[k++];
            error = task->err.code == BLASD_OK ? NULL : &task->err;
        }
        if (io != NULL && (error != NULL || batcher->lost)) {
            discard(batcher, io);
            io = NULL;
        }
        if (error != NULL) failed++;
        if (!batcher->lost) end_job(batcher, item, task, io, error, times, live > 0 ? live : 1);
    }
    send(batcher);
    if (live > 0) note_batch(batcher, members[0]->job.op, live, times);
    return failed;
}

/* How long such work takes here; what was stopped half-way, failed, which may be long before its
 * end, or shared the device, says nothing of that. */
static void learn(struct blasd_batcher *batcher, int live, const struct blasd_batch_times *times) {
    struct blasd_watch *watch = blasd_heartbeat_watch(batcher->heartbeat, batcher->slot);
    if (blasd_heartbeat_told(batcher->heartbeat, batcher->slot) != BLASD_GO_ON ||
        (watch->sharers != NULL && watch->sharers(watch) > 1))
        return;
    for (int i = 0; i < live; i++)
        if (batcher->room->tasks[i].err.code != BLASD_OK) return;
    blasd_heartbeat_learn(batcher->heartbeat, batcher->room->tasks, live,
                          times->ran_ns - times->mapped_ns);
}

/* Whether the batch was stopped, as others should not wait for it. */
static bool overran(const struct blasd_batcher *batcher) {
    return blasd_heartbeat_told(batcher->heartbeat, batcher->slot) == BLASD_OVERRAN;
}

/* What follows the kernel, which returned `code`: records, or where the part must be tried again in
 * another way, as if it had not run. Returns as run_part does. */
static int part_ran(struct blasd_batcher *batcher, struct blasd_item **members, int count, int live,
                    struct blasd_batch_times *times, int code, int *failed,
                    const struct blasd_err *err) {
    times->ran_ns = blasd_clock_ns();
    if (blasd_heartbeat_lost(batcher->heartbeat)) batcher->lost = true;
    if (code == -(int)BLASD_E_device_error || batcher->lost ||
        (code != 0 && (count > 1 || overran(batcher)))) {
        discard_part(batcher, members, count);
        return code;
    }
    if (code != 0) batcher->room->tasks[0].err = *err;
    if (code == 0 && live > 0) learn(batcher, live, times);
    store_part(batcher, live);
    times->stored_ns = blasd_clock_ns();
    *failed += finish_part(batcher, members, count, live, times);
    return 0;
}

/* Runs some members of a group as one call. Negative where that should be tried in smaller parts,
 * or not at all (device_error); nothing has been ended then. */
static int run_part(struct blasd_batcher *batcher, struct blasd_item **members, int count,
                    int64_t claimed_ns, struct blasd_err *err) {
    struct blasd_batch_times times = {.claimed_ns = claimed_ns, .began_ns = blasd_clock_ns()};
    struct blasd_err ignored;
    int live = 0, failed = 0, code;
    bool stopped;
    blasd_heartbeat_begin(batcher->heartbeat, batcher->slot, members, count);
    blasd_wanted_begin(blasd_heartbeat_watch(batcher->heartbeat, batcher->slot));
    code = map_part(batcher, members, count, &live, err);
    stopped = blasd_wanted_end(0, &ignored) != 0;
    if (code == 0) {
        times.mapped_ns = blasd_clock_ns();
        if (stopped)
            code = stopped_early(batcher, members, count, err);
        else if (live > 0)
            code = run_kernel(batcher, live, err);
        code = part_ran(batcher, members, count, live, &times, code, &failed, err);
    }
    blasd_heartbeat_end(batcher->heartbeat, batcher->slot, code == 0 ? count : 0, failed);
    blasd_arena_reset(&batcher->room->arena);
    return code;
}

/* Runs all members in the room, in smaller parts where memory is short, one by one where a call
 * failed as a whole, or took longer than one job may. */
static int run_members(struct blasd_batcher *batcher, int count, int part, int64_t claimed_ns,
                       struct blasd_err *err) {
    int code = 0;
    for (int at = 0; at < count && !batcher->lost;) {
        int size = part < count - at ? part : count - at;
        struct blasd_err problem = {0};
        code = run_part(batcher, batcher->room->members + at, size, claimed_ns, &problem);
        if (code == -(int)BLASD_E_device_error) {
            *err = problem;
            break;
        }
        if (code != 0 && !batcher->lost && overran(batcher)) {
            for (int i = at; i < at + size; i++) batcher->room->members[i]->overran = true;
        } else if (code != 0 && !batcher->lost) { /* never one member: that one has then failed */
            part = code == -(int)BLASD_E_out_of_memory ? size / 2 : 1;
            continue;
        }
        at += size;
    }
    return code == -(int)BLASD_E_device_error && !batcher->lost ? code : 0;
}

static void swap_rooms(struct blasd_batcher *batcher) {
    struct blasd_batch_room *room = batcher->room;
    batcher->room = batcher->other;
    batcher->other = room;
}

/* Ends the batch that began before; its members, tasks and ios are in the room in hand. The
 * heartbeat knows its jobs. */
static int end_pending(struct blasd_batcher *batcher, const struct blasd_batch_pending *pending,
                       struct blasd_err *err) {
    struct blasd_batch_times times = {.claimed_ns = pending->claimed_ns,
                                      .began_ns = pending->began_ns,
                                      .mapped_ns = pending->mapped_ns};
    struct blasd_item **members = batcher->room->members;
    struct blasd_err problem = {0};
    int failed = 0, code = pending->kernel->end(pending->batch, &problem);
    code = heed(batcher, code, &problem);
    if (code == 0 || code == -(int)BLASD_E_device_error ||
        (code == -(int)BLASD_E_job_too_long && pending->count == 1)) {
        code = part_ran(batcher, members, pending->count, pending->live, &times, code, &failed,
                        &problem);
        blasd_heartbeat_end(batcher->heartbeat, batcher->slot, code == 0 ? pending->count : 0,
                            failed);
        blasd_arena_reset(&batcher->room->arena);
    } else {
        /* also where another batch's end made it stop: it is run again by itself */
        int part = code == -(int)BLASD_E_job_too_long ? 1 : pending->count;
        discard_part(batcher, members, pending->count);
        blasd_heartbeat_end(batcher->heartbeat, batcher->slot, 0, 0);
        blasd_arena_reset(&batcher->room->arena);
        code = run_members(batcher, pending->count, part, pending->claimed_ns, &problem);
    }
    if (code != 0 && !batcher->lost) *err = problem;
    return batcher->lost ? 0 : code;
}

int blasd_batch_finish(struct blasd_batcher *batcher, struct blasd_err *err) {
    struct blasd_batch_pending pending = batcher->pending;
    int code;
    if (pending.kernel == NULL) return 0;
    batcher->pending.kernel = NULL;
    swap_rooms(batcher);
    code = end_pending(batcher, &pending, err);
    swap_rooms(batcher);
    return code;
}

/* Begins the members in the room on a device that works by itself, then ends the batch before.
 * False where it could not begin: nothing has changed then. */
static bool begin_members(struct blasd_batcher *batcher, const struct blasd_kernel *kernel,
                          int count, int64_t claimed_ns, int *code, struct blasd_err *err) {
    struct blasd_batch_pending pending = {.kernel = kernel, .count = count},
                               before = batcher->pending;
    struct blasd_err problem = {0};
    pending.claimed_ns = claimed_ns;
    pending.began_ns = blasd_clock_ns();
    if (before.kernel == NULL)
        blasd_heartbeat_begin(batcher->heartbeat, batcher->slot, batcher->room->members, count);
    if (map_part(batcher, batcher->room->members, count, &pending.live, &problem) != 0)
        goto not_begun;
    pending.mapped_ns = blasd_clock_ns();
    if (pending.live < count || /* those that could not be mapped are ended the other way */
        kernel->begin(batcher->device, batcher->room->tasks, count,
                      blasd_heartbeat_watch(batcher->heartbeat, batcher->slot), &pending.batch,
                      &problem) != 0) {
        discard_part(batcher, batcher->room->members, count);
        goto not_begun;
    }
    swap_rooms(batcher);
    batcher->pending = pending;
    *code = before.kernel != NULL ? end_pending(batcher, &before, err) : 0;
    /* from here on the heartbeat is about this batch */
    if (before.kernel != NULL && *code == 0)
        blasd_heartbeat_begin(batcher->heartbeat, batcher->slot, batcher->other->members, count);
    return true;
not_begun:
    if (before.kernel == NULL) blasd_heartbeat_end(batcher->heartbeat, batcher->slot, 0, 0);
    blasd_arena_reset(&batcher->room->arena);
    return false;
}

int blasd_batch_run(struct blasd_batcher *batcher, struct blasd_item *items,
                    const struct blasd_group *group, int64_t claimed_ns, struct blasd_err *err) {
    const struct blasd_kernel *kernel =
        blasd_backend_kernel(batcher->options->backend, items[group->first].job.op);
    bool overlaps = kernel != NULL && kernel->begin != NULL && !group->quarantined;
    bool first = batcher->pending.kernel == NULL;
    int count = 0, code = 0;
    struct blasd_err problem = {0};
    if (make_room(batcher->room, group->count) != 0) { /* what was claimed goes back to the queue */
        blasd_log(BLASD_LOG_ERROR, "no memory for a batch of %d jobs", group->count);
        batcher->lost = true;
        return 0;
    }
    for (int i = group->first; i >= 0; i = items[i].next) {
        batcher->room->ids[count] = items[i].claim->id;
        batcher->room->members[count++] = &items[i];
    }
    if ((first || !overlaps) && (code = blasd_batch_finish(batcher, err)) != 0) return code;
    /* a mark that does not arrive costs no job: only a crash would not be counted */
    if (blasd_worker_queue_begin(batcher->queue, batcher->room->ids, count, &problem) != 0)
        blasd_log(BLASD_LOG_DEBUG, "cannot mark a batch as begun: %s", problem.detail);
    if (overlaps && begin_members(batcher, kernel, count, claimed_ns, &code, err)) return code;
    if (!first && overlaps) { /* it could not begin beside the other: by itself, then */
        code = blasd_batch_finish(batcher, err);
        if (code != 0 || batcher->lost) return code;
    }
    return run_members(batcher, count, count, claimed_ns, err);
}
