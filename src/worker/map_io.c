/* Inputs to where the kernel reads them, outputs to where it writes them. */
#include "worker/map_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The payload's first byte, aligned to 64: the mapped blob or slice, or a copy of what came with
 * the frame (which lies wherever the reply of Redis put it). */
static int map_payload(struct blasd_worker_queue *queue, struct blasd_arena *arena,
                       const struct blasd_item *item, struct blasd_io *io, unsigned char **ret,
                       struct blasd_err *err) {
    const struct blasd_job *job = &item->job;
    if (job->payload_bytes == 0 && blasd_job_refers(job)) return 0; /* nothing came */
    if (job->payload_in_blob) {
        char name[BLASD_BLOB_NAME];
        int code;
        snprintf(name, sizeof name, "%s.in", item->claim->id);
        /* it may have been got before the queue went away */
        code = io->has_in
                   ? 0
                   : blasd_worker_queue_blob_get(queue, name, job->payload_bytes, &io->in, err);
        if (code != 0) return code;
        io->has_in = true;
        *ret = io->in.data;
        return 0;
    }
    if (blasd_slice_given(&job->slice)) {
        const void *data;
        blasd_views_let_go(io->view);
        int code = blasd_worker_queue_slice_get(queue, &job->slice, job->payload_bytes, &data,
                                                &io->view, err);
        *ret = (unsigned char *)(uintptr_t)data; /* no kernel writes to its inputs */
        return code;
    }
    *ret = blasd_arena_take(arena, job->payload_bytes);
    if (*ret == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for %llu bytes of inputs",
                          (unsigned long long)job->payload_bytes);
    if (job->payload_bytes > 0) memcpy(*ret, item->payload, job->payload_bytes);
    return 0;
}

static bool in_payload(const struct blasd_job *job, const struct blasd_input *input) {
    const struct blasd_source *source = &input->source;
    return source->kind == BLASD_SOURCE_PAYLOAD && source->offset % BLASD_ALIGN == 0 &&
           source->bytes == blasd_tensor_bytes(&input->tensor) &&
           source->offset <= job->payload_bytes &&
           source->bytes <= job->payload_bytes - source->offset;
}

/* Integers become float64, which cannot hold all of them. */
static void warn_of_integers(const struct blasd_tensor *from, const char *name,
                             struct blasd_task *task) {
    int64_t at = blasd_tensor_first_inexact(from->dtype, from->data, blasd_tensor_elements(from));
    if (at < 0) return;
    if (from->dtype == BLASD_int64)
        blasd_task_warn(task, BLASD_W_large_integers,
                        "%s: float64 cannot hold all integers beyond 2^53: %lld is rounded", name,
                        (long long)((const int64_t *)from->data)[at]);
    else
        blasd_task_warn(task, BLASD_W_large_integers,
                        "%s: float64 cannot hold all integers beyond 2^53: %llu is rounded", name,
                        (unsigned long long)((const uint64_t *)from->data)[at]);
}

int blasd_io_map_input(struct blasd_arena *arena, const struct blasd_job *job,
                       const struct blasd_plan *plan, int i, const struct blasd_tensor *input,
                       struct blasd_task *task, struct blasd_err *err) {
    enum blasd_dtype dtype = plan->input_dtype[i];
    struct blasd_tensor from = *input, *to = &task->inputs[i];
    if (from.rank < 2) from.order = BLASD_ROW_MAJOR;
    if (from.dtype == dtype && (from.order == BLASD_ROW_MAJOR || plan->keep_order[i])) {
        *to = from;
        return 0;
    }
    if (!blasd_dtype_converts(from.dtype, dtype))
        return blasd_fail(err, BLASD_E_internal_error, "", "no conversion from %s to %s",
                          blasd_dtype_name(from.dtype), blasd_dtype_name(dtype));
    *to = blasd_tensor_make(dtype, from.rank, from.shape);
    to->data = blasd_tensor_check(to, "", err) == 0
                   ? blasd_arena_take(arena, blasd_tensor_bytes(to))
                   : NULL;
    if (to->data == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to convert input %d to %s", i,
                          blasd_dtype_name(dtype));
    blasd_tensor_convert(&from, to);
    if (blasd_dtype_kind(blasd_dtype_part(dtype)) == 'f')
        warn_of_integers(&from, job->op->inputs[i].name, task);
    return 0;
}

int blasd_io_copy_part(struct blasd_arena *arena, const struct blasd_reference *slice,
                       const void *at, struct blasd_tensor *from, struct blasd_err *err) {
    uint64_t bytes = blasd_tensor_bytes(from);
    from->data = blasd_arena_take(arena, bytes);
    if (from->data == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for %llu bytes of a slice",
                          (unsigned long long)bytes);
    if (slice->sliced > 0)
        blasd_reference_gather(slice, at, from);
    else
        blasd_reference_copy(at, bytes, from->data);
    return 0;
}

/* What input `i` refers to, where it lies or as a copy; and its values looked at. */
static int map_reference(struct blasd_worker_queue *queue, struct blasd_arena *arena,
                         const struct blasd_item *item, int i, struct blasd_io *io,
                         struct blasd_tensor *from, struct blasd_err *err) {
    const struct blasd_input *input = &item->job.inputs[i];
    uint64_t extent = blasd_reference_extent(input->reference, from);
    uint64_t bytes = input->reference->blob_bytes, at = input->source.offset;
    char name[BLASD_BLOB_NAME];
    struct blasd_blob *blob;
    int code;
    if (io->referred == NULL) io->referred = calloc(BLASD_MAX_INPUTS, sizeof *io->referred);
    if (io->referred == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the inputs");
    blob = &io->referred[i];
    if (extent > bytes || at > bytes - extent)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "the stored job says that input %d lies outside its tensor", i);
    blasd_input_blob(input, name);
    /* one that is open was got before the queue went away */
    code = blob->store != NULL ? 0 : blasd_worker_queue_blob_get(queue, name, bytes, blob, err);
    if (code != 0) return code;
    from->data = (unsigned char *)blob->data + at;
    if (blasd_input_sliced(input) > 0 || at % BLASD_ALIGN != 0) /* where no tensor may begin */
        code = blasd_io_copy_part(arena, input->reference, (unsigned char *)blob->data + at, from,
                                  err);
    return code != 0 ? code : blasd_input_look(&item->job, i, from, err);
}

/* Where the elements of an input are: in the payload, or in memory that a rule has filled, or will
 * where the kernel makes them in the same dtype. */
static int find_elements(struct blasd_arena *arena, const struct blasd_item *item, int i,
                         unsigned char *payload, bool leave, struct blasd_tensor *from,
                         struct blasd_err *err) {
    const struct blasd_input *input = &item->job.inputs[i];
    if (input->source.kind != BLASD_SOURCE_RULE) {
        from->data = payload + input->source.offset;
        return in_payload(&item->job, input)
                   ? 0
                   : blasd_fail(err, BLASD_E_internal_error, "",
                                "the stored job says that input %d lies outside its payload", i);
    }
    from->data = blasd_arena_take(arena, blasd_tensor_bytes(from));
    if (from->data == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for %llu bytes of input %d",
                          (unsigned long long)blasd_tensor_bytes(from), i);
    if (!leave) blasd_rule_fill(&input->source.rule, from);
    return 0;
}

const struct blasd_key *blasd_io_name_input(struct blasd_arena *arena, const char *id,
                                            const struct blasd_input *input, int64_t at,
                                            const struct blasd_tensor *from,
                                            const struct blasd_tensor *to) {
    struct blasd_key *key = blasd_arena_take(arena, sizeof *key);
    if (key == NULL) return NULL; /* nothing but a copy is lost by it */
    key->len = 0;
    blasd_key_add(key, id, BLASD_ID_LEN);
    blasd_key_add_int(key, input->source.kind);
    blasd_key_add_int(key, at);
    for (int i = 0; i < blasd_input_sliced(input); i++)
        blasd_key_add_int(key, input->reference->to[i]);
    blasd_key_add_tensor(key, from);
    blasd_key_add_tensor(key, to);
    return key;
}

static int map_input(struct blasd_worker_queue *queue, struct blasd_arena *arena,
                     const struct blasd_item *item, int i, unsigned char *payload,
                     struct blasd_task *task, unsigned makes_inputs, struct blasd_io *io,
                     struct blasd_err *err) {
    const struct blasd_input *input = &item->job.inputs[i];
    struct blasd_tensor from = input->tensor;
    bool leave = input->source.kind == BLASD_SOURCE_RULE && (makes_inputs >> i & 1) != 0 &&
                 from.dtype == item->plan.input_dtype[i];
    int code = blasd_source_refers(&input->source)
                   ? map_reference(queue, arena, item, i, io, &from, err)
                   : find_elements(arena, item, i, payload, leave, &from, err);
    if (code != 0) return code;
    if (leave) task->unmade |= 1u << i;
    code = blasd_io_map_input(arena, &item->job, &item->plan, i, &from, task, err);
    if (code == 0 && blasd_source_refers(&input->source))
        task->names[i] =
            blasd_io_name_input(arena, input->reference->id, input, (int64_t)input->source.offset,
                                &from, &task->inputs[i]);
    return code;
}

int blasd_io_map_inputs(struct blasd_worker_queue *queue, struct blasd_arena *arena,
                        const struct blasd_item *item, unsigned makes_inputs,
                        struct blasd_task *task, struct blasd_io *io, struct blasd_err *err) {
    const struct blasd_arena_mark before = blasd_arena_mark(arena);
    unsigned char *payload = NULL;
    int code = map_payload(queue, arena, item, io, &payload, err);
    for (int i = 0; i < BLASD_MAX_INPUTS; i++) {
        task->inputs[i].data = NULL;
        task->names[i] = NULL;
    }
    task->unmade = 0;
    for (int i = 0; code == 0 && item->job.op->inputs[i].name != NULL; i++)
        if (blasd_job_has(&item->job, i))
            code = map_input(queue, arena, item, i, payload, task, makes_inputs, io, err);
    /* it may be tried again and again while Redis is away */
    if (code != 0) blasd_arena_rewind(arena, &before);
    return code;
}

/* Outputs of a blob with fresh pages are computed in memory that is warm, and written once they are
 * there: that is half the cost of faulting the pages in, each filled with zeros first. Not above
 * this many bytes a batch, for they are held twice. */
#define STAGED_BYTES (UINT64_C(32) << 20)

/* A worker that died while it ran this job may have left a result, which goes. But where this
 * worker stood still for longer than its lease it may be another one's, and the job has ended: the
 * queue knows. And it may stand still behind the answer: what goes is what was there before. */
static int make_way(struct blasd_worker_queue *queue, struct blasd_store *store, const char *id,
                    const char *name, struct blasd_err *err) {
    struct blasd_blob left;
    bool ours = false;
    int code;
    if (!blasd_blob_find(store, name, &left)) return 0;
    code = blasd_worker_queue_progress(queue, &id, 1, 0, -1, &ours, err);
    if (code == 0 && ours)
        blasd_blob_remove(&left);
    else
        blasd_blob_close(&left);
    if (code != 0 || ours) return code;
    return blasd_fail(err, BLASD_E_cancelled, "", "the job has ended, or another worker has it");
}

/* Another worker that does not know yet that its lease is lost makes one of that name, too. */
static int obtain(struct blasd_worker_queue *queue, struct blasd_store *store, const char *id,
                  const char *name, uint64_t bytes, struct blasd_blob *blob,
                  struct blasd_err *err) {
    int code, tries = 0;
    do {
        code = make_way(queue, store, id, name, err);
        if (code != 0) return code;
        code = blasd_blob_obtain(store, name, bytes, blob, err);
    } while (code != 0 && ++tries < 4 && blasd_store_has(store, name));
    return code;
}

static int make_blob(struct blasd_worker_queue *queue, struct blasd_store *store,
                     struct blasd_arena *arena, const struct blasd_item *item, struct blasd_io *io,
                     struct blasd_err *err) {
    char name[BLASD_BLOB_NAME];
    int code;
    snprintf(name, sizeof name, "%s.out", item->claim->id);
    code = obtain(queue, store, item->claim->id, name, io->payload_bytes, &io->out, err);
    if (code != 0) return code;
    io->has_out = true;
    code = blasd_blob_fit(&io->out, io->payload_bytes, err);
    if (code == 0 && !io->out.recycled && blasd_store_kind(store) == BLASD_STORE_DIR &&
        arena->used + io->payload_bytes <= STAGED_BYTES)
        io->base = blasd_arena_take(arena, io->payload_bytes);
    io->staged = io->base != NULL;
    if (code != 0 || io->staged) return code;
    code = blasd_blob_map(&io->out, err);
    if (code == 0) io->base = io->out.data;
    return code;
}

/* The blob of an output that becomes a tensor: computed in it, or copied to it in the end where the
 * output is sent, too. */
static int make_kept(struct blasd_worker_queue *queue, struct blasd_store *store,
                     const struct blasd_item *item, int i, struct blasd_io *io,
                     struct blasd_err *err) {
    uint64_t bytes = blasd_stored_bytes(blasd_align_up(io->reserved[i]));
    char id[BLASD_ID_LEN + 1], name[BLASD_BLOB_NAME];
    int code;
    if (io->kept == NULL) io->kept = calloc(BLASD_MAX_OUTPUTS, sizeof *io->kept);
    if (io->kept == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the outputs");
    blasd_keeping_id(blasd_job_keeping(&item->job), item->claim->id, i, id);
    snprintf(name, sizeof name, "%s.in", id);
    code = obtain(queue, store, item->claim->id, name, bytes, &io->kept[i], err);
    if (code == 0) code = blasd_blob_fit(&io->kept[i], bytes, err);
    if (code == 0) code = blasd_blob_map(&io->kept[i], err);
    if (code == 0 && blasd_withholds(blasd_job_keeping(&item->job), i))
        io->at[i] = io->kept[i].data;
    return code;
}

/* Where outputs are computed that are not sent. */
static int map_kept(struct blasd_worker_queue *queue, struct blasd_store *store,
                    struct blasd_arena *arena, const struct blasd_item *item, struct blasd_io *io,
                    struct blasd_err *err) {
    const struct blasd_keeping *keeping = blasd_job_keeping(&item->job);
    if ((keeping->keep | keeping->withhold) == 0) return 0;
    for (int i = 0; item->job.op->outputs[i].name != NULL; i++) {
        if (item->plan.outputs[i].rank < 0) continue;
        if (blasd_keeps(keeping, i)) {
            int code = make_kept(queue, store, item, i, io, err);
            if (code != 0) return code;
        } else if (blasd_withholds(keeping, i)) {
            io->at[i] = blasd_arena_take(arena, blasd_align_up(io->reserved[i]));
            if (io->at[i] == NULL)
                return blasd_fail(err, BLASD_E_out_of_memory, "",
                                  "no memory for %llu bytes of an output",
                                  (unsigned long long)io->reserved[i]);
        }
    }
    return 0;
}

int blasd_io_map_outputs(struct blasd_worker_queue *queue,
                         const struct blasd_queue_options *options, struct blasd_arena *arena,
                         const struct blasd_item *item, struct blasd_task *task,
                         struct blasd_io *io, struct blasd_err *err) {
    const struct blasd_tensor *planned = item->plan.outputs;
    uint64_t total = 0;
    int code;
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) task->outputs[i].rank = -1;
    for (int i = 0; item->job.op->outputs[i].name != NULL; i++) {
        if (planned[i].rank < 0) continue;
        io->reserved[i] = blasd_tensor_bytes(&planned[i]);
        if (blasd_withholds(blasd_job_keeping(&item->job), i)) continue;
        io->offsets[i] = total;
        total += blasd_align_up(io->reserved[i]);
    }
    code = map_kept(queue, options->store, arena, item, io, err);
    if (code != 0) return code;
    io->payload_bytes = total;
    io->base = blasd_worker_queue_slice_take(queue, item->claim->id, total, &io->slice);
    if (io->base != NULL) {
        /* no blob and no copy */
    } else if (total > options->limits->inline_bytes) {
        code = make_blob(queue, options->store, arena, item, io, err);
        if (code != 0) return code;
    } else if ((io->base = blasd_arena_take(arena, total)) == NULL) {
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for %llu bytes of outputs",
                          (unsigned long long)total);
    }
    for (int i = 0; item->job.op->outputs[i].name != NULL; i++) {
        uint64_t bytes = io->reserved[i];
        if (planned[i].rank < 0) continue;
        task->outputs[i] = planned[i];
        task->outputs[i].order = BLASD_ROW_MAJOR;
        if (io->at[i] == NULL) io->at[i] = io->base + io->offsets[i];
        task->outputs[i].data = io->at[i];
        /* what lies between two outputs travels too, and must not be another job's bytes */
        memset((unsigned char *)task->outputs[i].data + bytes, 0, blasd_align_up(bytes) - bytes);
    }
    return 0;
}

int blasd_io_settle(struct blasd_io *io, struct blasd_err *err) {
    if (!io->staged) return 0;
    io->staged = false;
    return blasd_blob_write(&io->out, 0, io->base, io->payload_bytes, err);
}

int blasd_io_keep(struct blasd_io *io, const struct blasd_task *task, int i,
                  struct blasd_err *err) {
    uint64_t bytes = blasd_tensor_bytes(&task->outputs[i]);
    struct blasd_blob *blob = &io->kept[i];
    if (io->at[i] != blob->data && bytes > 0) memcpy(blob->data, io->at[i], bytes);
    blasd_blob_unmap(blob);
    return blasd_blob_fit(blob, blasd_stored_bytes(bytes), err);
}

void blasd_io_drop(struct blasd_worker_queue *queue, struct blasd_io *io) {
    for (int i = 0; io->kept != NULL && i < BLASD_MAX_OUTPUTS; i++)
        blasd_worker_queue_blob_discard(queue, &io->kept[i]);
    if (io->has_out) blasd_worker_queue_blob_discard(queue, &io->out);
    io->has_out = false;
}

static void close_all(struct blasd_blob **blobs, int count) {
    for (int i = 0; *blobs != NULL && i < count; i++) blasd_blob_close(&(*blobs)[i]);
    free(*blobs);
    *blobs = NULL;
}

void blasd_io_close(struct blasd_io *io) {
    close_all(&io->referred, BLASD_MAX_INPUTS);
    close_all(&io->kept, BLASD_MAX_OUTPUTS);
    if (io->has_in) blasd_blob_close(&io->in);
    if (io->has_out) blasd_blob_close(&io->out);
    blasd_views_let_go(io->view);
    free(io->digests);
    io->digests = NULL;
    io->has_in = io->has_out = false;
    io->view = NULL;
}
