/* Read next: ../store/segment.h, blob_fetch.h. */
#include "queue/job_outputs.h"

#include "queue/blob_fetch.h"
#include "queue/queue_link.h"
#include "store/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 1000

struct blasd_job_outputs {
    struct blasd_caller caller;
    struct blasd_store *store; /* borrowed */
    struct blasd_views *views;
    char name[BLASD_LINK_NAME_MAX];
};

int blasd_job_outputs_open(const struct blasd_queue_options *options,
                           struct blasd_job_outputs **ret, struct blasd_err *err) {
    struct blasd_job_outputs *outputs;
    int code;
    *ret = NULL;
    outputs = calloc(1, sizeof *outputs);
    if (outputs != NULL) outputs->views = blasd_views_new(options->store);
    if (outputs == NULL || outputs->views == NULL) {
        free(outputs);
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    }
    outputs->store = options->store;
    outputs->caller.library = &blasd_queue_library;
    outputs->caller.timeout_ms = TIMEOUT_MS;
    snprintf(outputs->name, sizeof outputs->name, "%s", options->name);
    code = blasd_link_parse(options->url, options->name, &outputs->caller.address, err);
    if (code == 0)
        *ret = outputs;
    else
        blasd_job_outputs_free(outputs);
    return code;
}

void blasd_job_outputs_free(struct blasd_job_outputs *outputs) {
    if (outputs == NULL) return;
    blasd_caller_release(&outputs->caller);
    blasd_views_free(outputs->views);
    free(outputs);
}

void blasd_job_outputs_trim(struct blasd_job_outputs *outputs) {
    blasd_views_trim(outputs->views);
}

static int gone(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_record_expired, "",
                      "the outputs of the job are not kept any more");
}

static int copy(struct blasd_payload *payload, const void *bytes, uint64_t len,
                struct blasd_err *err) {
    payload->data = payload->copy = malloc(len > 0 ? (size_t)len : 1);
    if (payload->copy == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the outputs");
    if (len > 0) memcpy(payload->copy, bytes, (size_t)len);
    return 0;
}

/* A slice stays what it is only while Redis counts it, so it is copied and then looked at again. */
static int copy_slice(struct blasd_job_outputs *outputs, const struct blasd_record *record,
                      struct blasd_payload *payload, struct blasd_err *err) {
    struct blasd_view *hold;
    const void *bytes =
        blasd_views_get(outputs->views, &record->slice, record->payload_bytes, &hold);
    bool valid;
    int code;
    if (bytes == NULL) return gone(err);
    code = copy(payload, bytes, record->payload_bytes, err);
    valid = blasd_views_valid(hold, &record->slice);
    blasd_views_let_go(hold);
    return code == 0 && !valid ? gone(err) : code;
}

int blasd_job_outputs_get(struct blasd_job_outputs *outputs, const struct blasd_record *record,
                          const void *inlined, struct blasd_payload *ret, struct blasd_err *err) {
    char name[BLASD_BLOB_NAME];
    int code;
    if (blasd_slice_given(&record->slice)) return copy_slice(outputs, record, ret, err);
    if (!record->payload_in_blob) return copy(ret, inlined, record->payload_bytes, err);
    snprintf(name, sizeof name, "%s.out", record->id);
    code = blasd_blob_fetch(&outputs->caller, outputs->name, outputs->store, name,
                            record->payload_bytes, &ret->blob, err);
    ret->data = ret->blob.data;
    return code == -(int)BLASD_E_inputs_lost ? gone(err) : code;
}

void blasd_payload_release(struct blasd_payload *payload) {
    blasd_blob_close(&payload->blob);
    free(payload->copy);
    *payload = (struct blasd_payload){.blob.fd = -1};
}
