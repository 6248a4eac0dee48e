/* Records behind a frame. */
#include "worker/awaited.h"

#include "base/text.h"
#include "queue/record_frame.h"
#include "wire/frame.h"

#include <string.h>

/* Where the records begin: behind the frame and what travels with it. */
static size_t records_at(const struct blasd_item *item) {
    size_t size = blasd_job_frame_size(item->claim->frame, item->claim->frame_len);
    return item->payload == NULL ? size : size + (size_t)item->job.payload_bytes;
}

/* The record of the job that input `i` is an output of, and the bytes that came with it. */
static int find_record(const struct blasd_item *item, int i, struct blasd_record *record,
                       const char **beside, struct blasd_err *err) {
    const char *id = item->job.inputs[i].reference.id;
    const char *at = item->claim->frame, *end = at + item->claim->frame_len;
    for (at += records_at(item); end - at >= (ptrdiff_t)BLASD_RECORD_FRAME_HEAD;) {
        size_t len = blasd_record_frame_len(at), payload_at;
        const char *bytes = at + BLASD_RECORD_FRAME_HEAD;
        if (len > (size_t)(end - bytes)) break;
        if (memcmp(at + 4, id, BLASD_ID_LEN) == 0) {
            int code = blasd_record_decode(bytes, len, record, &payload_at, err);
            *beside = bytes + payload_at;
            return code;
        }
        at = bytes + len;
    }
    return blasd_fail(err, BLASD_E_inputs_lost, "", "the record of job %s, an input, is not there",
                      id);
}

static int resolve(struct blasd_item *item, int i, struct blasd_err *err) {
    struct blasd_input *input = &item->job.inputs[i];
    struct blasd_reference *reference = &input->reference;
    struct blasd_record record;
    const char *beside;
    char field[64];
    uint64_t offset;
    int output, code = find_record(item, i, &record, &beside, err);
    if (code != 0) return code;
    blasd_text_join(field, sizeof field, "inputs.", item->job.op->inputs[i].name, NULL);
    output = blasd_record_output(&record, reference, field, err);
    if (output < 0) return output;
    bool kept = blasd_withholds(&record.keeping, output);
    offset = kept ? 0 : record.outputs[output].offset;
    code = blasd_reference_resolve(reference, &record.outputs[output].tensor, offset,
                                   &input->tensor, &input->source.offset, field, err);
    if (code != 0) return code;
    input->source.bytes = blasd_tensor_bytes(&input->tensor);
    reference->blob_bytes = record.payload_bytes;
    if (kept) {
        input->source.kind = BLASD_SOURCE_TENSOR;
        blasd_keeping_id(&record.keeping, record.id, output, reference->id);
        reference->blob_bytes = blasd_stored_bytes(record.outputs[output].bytes);
    } else if (record.payload_in_blob) {
        input->source.kind = BLASD_SOURCE_JOB;
    }
    return 0;
}

int blasd_awaited_resolve(struct blasd_item *item) {
    for (int i = 0; item->job.op->inputs[i].name != NULL; i++) {
        int code = item->job.inputs[i].source.kind == BLASD_SOURCE_AWAITED
                       ? resolve(item, i, &item->err)
                       : 0;
        if (code != 0) return code;
    }
    return 0;
}

int blasd_awaited_find(struct blasd_worker_queue *queue, const struct blasd_item *item, int i,
                       const void **at, struct blasd_view **hold, struct blasd_err *err) {
    const struct blasd_source *source = &item->job.inputs[i].source;
    struct blasd_record record;
    const char *bytes;
    int code = find_record(item, i, &record, &bytes, err);
    if (code == 0 && blasd_slice_given(&record.slice)) {
        const void *data = NULL;
        code = blasd_worker_queue_slice_get(queue, &record.slice, record.payload_bytes, &data, hold,
                                            err);
        bytes = data;
    }
    if (code == 0) *at = bytes + source->offset;
    return code;
}
