/* From a task that ran, or could not, to the bytes of its final record. */
#include "worker/completion.h"

#include "core/graph.h"
#include "wire/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A batch is sent in calls well below this; one record may be as large as inline_bytes allows. */
#define MOST_BYTES ((size_t)1 << 30)
#define KEEP_BYTES ((size_t)64 << 20)

void blasd_completions_init(struct blasd_completions *completions) {
    *completions = (struct blasd_completions){0};
    blasd_buf_init(&completions->bytes, MOST_BYTES);
}

static void free_kept(struct blasd_completions *completions) {
    for (int i = 0; i < completions->count; i++) free(completions->of[i].kept);
}

void blasd_completions_release(struct blasd_completions *completions) {
    free_kept(completions);
    free(completions->rows);
    free(completions->of);
    blasd_buf_release(&completions->bytes);
    completions->rows = NULL;
    completions->of = NULL;
    completions->count = completions->room = 0;
}

void blasd_completions_reset(struct blasd_completions *completions) {
    free_kept(completions);
    completions->count = 0;
    if (completions->bytes.cap > KEEP_BYTES)
        blasd_buf_release(&completions->bytes);
    else
        blasd_buf_reset(&completions->bytes);
}

static int64_t us(int64_t ns) {
    return ns > 0 ? ns / 1000 : 0;
}

/* When the job was submitted, as its front end says it on Redis' clock; when Redis took it, where
 * that says nothing likely. */
#define SUBMITTING_MOST_US (600 * INT64_C(1000000))
static int64_t submitted_us(const struct blasd_item *item) {
    int64_t taken = item->claim->submitted_us, since = item->job.created_us;
    bool likely =
        item->job.op != NULL && since > 0 && since <= taken && since >= taken - SUBMITTING_MOST_US;
    return likely ? since : taken;
}

/* The parts lie one after the other and add up to the total; what a kernel spent on moving data
 * itself is taken out of the time it ran. */
static void fill_timing(const struct blasd_item *item, const struct blasd_task *task,
                        const struct blasd_batch_times *times, struct blasd_timing *timing) {
    int64_t run = us(times->ran_ns - times->mapped_ns);
    int64_t up = task != NULL ? task->upload_us : 0, down = task != NULL ? task->download_us : 0;
    int64_t wait = 0; /* behind the batch before */
    int64_t queue = item->claim->claimed_us - submitted_us(item);
    if (up < 0 || up > run) up = 0;
    if (down < 0 || down > run - up) down = 0;
    if (task != NULL && task->compute_us > 0 && task->compute_us < run - up - down)
        wait = run - up - down - task->compute_us;
    timing->receive_us = item->job.op != NULL ? item->job.receive_us : 0;
    timing->queue_us = queue > 0 ? queue : 0;
    timing->batch_wait_us = us(times->began_ns - times->claimed_ns) + wait;
    timing->upload_us = us(times->mapped_ns - times->began_ns) + up;
    timing->compute_us = run - up - down - wait;
    timing->download_us = us(times->stored_ns - times->ran_ns) + down;
    timing->total_us = timing->receive_us + timing->queue_us + timing->batch_wait_us +
                       timing->upload_us + timing->compute_us + timing->download_us;
}

static void fill_execution(const struct blasd_item *item, const struct blasd_task *task,
                           const struct blasd_batch_place *place,
                           struct blasd_execution *execution) {
    strncpy(execution->device, place->device, sizeof execution->device - 1);
    strncpy(execution->device_name, place->device_name, sizeof execution->device_name - 1);
    execution->batch_size = place->batch_size;
    execution->attempts = item->claim->attempts + 1;
    if (item->job.op != NULL) {
        execution->flops = item->plan.flops;
        execution->bytes = item->plan.input_bytes + item->plan.output_bytes;
    }
    if (task == NULL) return;
    execution->energy_joules = task->energy_joules;
    memcpy(execution->method, task->method, sizeof execution->method);
    execution->method[sizeof execution->method - 1] = '\0';
    execution->warning_count =
        task->warning_count < BLASD_MAX_WARNINGS ? task->warning_count : BLASD_MAX_WARNINGS;
    for (int i = 0; i < execution->warning_count; i++) execution->warnings[i] = task->warnings[i];
}

static void fill_outputs(const struct blasd_item *item, const struct blasd_task *task,
                         const struct blasd_io *io, struct blasd_record *record) {
    record->payload_bytes = io->payload_bytes;
    record->payload_in_blob = io->has_out;
    record->slice = io->slice;
    if (item->job.extras != NULL) record->keeping = item->job.extras->keeping;
    record->output_count = blasd_op_output_count(item->job.op);
    record->digested = io->digests != NULL;
    if (record->digested) memcpy(record->digests, io->digests, sizeof record->digests);
    for (int i = 0; item->job.op->outputs[i].name != NULL; i++) {
        record->outputs[i].tensor.rank = -1;
        if (item->plan.outputs[i].rank < 0) continue;
        record->outputs[i].tensor = task->outputs[i];
        record->outputs[i].offset = io->offsets[i];
        record->outputs[i].bytes = blasd_tensor_bytes(&task->outputs[i]);
    }
}

void blasd_completion_record(const struct blasd_item *item, const struct blasd_task *task,
                             const struct blasd_io *io, const struct blasd_err *error,
                             const struct blasd_batch_times *times,
                             const struct blasd_batch_place *place, struct blasd_record *record) {
    const struct blasd_job *job = &item->job;
    bool known = job->op != NULL;
    blasd_record_init(record);
    memcpy(record->id, item->claim->id, sizeof record->id);
    strncpy(record->op, known ? job->op->name : "unknown", sizeof record->op - 1);
    if (known) snprintf(record->labels, sizeof record->labels, "%s", blasd_job_labels(job));
    record->priority = known ? job->priority : BLASD_PRIORITY_NORMAL;
    if (known) memcpy(record->trace_id, job->trace.id, sizeof record->trace_id);
    fill_timing(item, task, times, &record->timing);
    fill_execution(item, task, place, &record->execution);
    /* one clock for the whole document, Redis', which also tells how jobs follow each other */
    record->created_us = submitted_us(item);
    record->started_us =
        record->created_us + record->timing.queue_us + record->timing.batch_wait_us;
    record->finished_us = record->started_us + record->timing.upload_us +
                          record->timing.compute_us + record->timing.download_us;
    record->progress = 1.0;
    record->state = error == NULL ? BLASD_SUCCEEDED : BLASD_FAILED;
    if (error != NULL)
        record->error = *error;
    else
        fill_outputs(item, task, io, record);
}

void blasd_completion_tell(const struct blasd_task *task, struct blasd_record *record) {
    struct blasd_output *report = &record->outputs[BLASD_GRAPH_OUT_REPORT];
    record->outputs[BLASD_GRAPH_OUT_RESULTS].tensor.rank = -1;
    record->output_count = BLASD_GRAPH_OUT_REPORT + 1;
    *report = (struct blasd_output){.offset = 0};
    record->payload_bytes = report->bytes = task->told_bytes;
    report->tensor = task->outputs[BLASD_GRAPH_OUT_REPORT];
    report->tensor.shape[0] = (int64_t)task->told_bytes;
}

/* "\tID BYTES FORM" of each output of the record that became a tensor; new, or NULL where memory
 * has run out. */
static char *kept_text(const struct blasd_record *record) {
    size_t room = 1, len = 0;
    char *text, id[BLASD_ID_LEN + 1], form[BLASD_FORM_MAX];
    for (int i = 0; i < record->output_count; i++)
        if (blasd_keeps(&record->keeping, i)) room += BLASD_ID_LEN + BLASD_FORM_MAX + 32;
    if ((text = malloc(room)) == NULL) return NULL;
    text[0] = '\0';
    for (int i = 0; i < record->output_count; i++) {
        const struct blasd_tensor *tensor = &record->outputs[i].tensor;
        if (!blasd_keeps(&record->keeping, i) || tensor->rank < 0) continue;
        blasd_keeping_id(&record->keeping, record->id, i, id);
        len += (size_t)snprintf(text + len, room - len, "\t%s %" PRIu64 " %s", id,
                                blasd_tensor_bytes(tensor), blasd_form_write(tensor, form));
    }
    return text;
}

static int make_room(struct blasd_completions *completions) {
    int room = completions->room < 64 ? 64 : completions->room * 2;
    void *rows, *of;
    if (completions->count < completions->room) return 0;
    rows = realloc(completions->rows, (size_t)room * sizeof *completions->rows);
    if (rows == NULL) return -1;
    completions->rows = rows;
    of = realloc(completions->of, (size_t)room * sizeof *completions->of);
    if (of == NULL) return -1;
    completions->of = of;
    completions->room = room;
    return 0;
}

int blasd_completions_add(struct blasd_completions *completions, const struct blasd_record *record,
                          const struct blasd_item *item, struct blasd_io *io, const void *payload,
                          struct blasd_err *err) {
    size_t start = completions->bytes.len;
    bool keeps = record->state == BLASD_SUCCEEDED && record->keeping.keep != 0;
    char *kept = keeps ? kept_text(record) : NULL;
    bool outside = record->payload_in_blob || blasd_slice_given(&record->slice);
    int code;
    if (make_room(completions) != 0 || (keeps && kept == NULL)) {
        free(kept);
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the records of a batch");
    }
    code = blasd_record_encode(record, &completions->bytes, err);
    if (code == 0 && !outside && record->payload_bytes > 0 &&
        blasd_buf_add(&completions->bytes, payload, record->payload_bytes) != 0)
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the record of the job");
    if (code != 0) {
        completions->bytes.len = start;
        free(kept);
        return code;
    }
    completions->of[completions->count] = (struct blasd_completion_of){
        .at = start, .item = item, .io = io, .kept = kept, .ended = blasd_ended_of(record)};
    completions->rows[completions->count++] =
        (struct blasd_completion){.id = item->claim->id,
                                  .record_len = completions->bytes.len - start,
                                  .out_bytes = outside ? record->payload_bytes : 0,
                                  .slice = record->slice,
                                  .kept = kept};
    return 0;
}

struct blasd_completion *blasd_completions_rows(struct blasd_completions *completions) {
    for (int i = 0; i < completions->count; i++)
        completions->rows[i].record = completions->bytes.data + completions->of[i].at;
    return completions->rows;
}
