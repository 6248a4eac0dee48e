/* Resolves the references of a job's inputs: stored tensors, and outputs of jobs that have ended.
 * The queue is asked for all at once. Outputs that lie in a blob stay there; small ones, which lie
 * in the record or in a segment, are copied to the job's own payload, as are small tensors. */
#include "http/tensors.h"

#include "core/graph.h"
#include "wire/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct resolving;

struct lookup {
    struct resolving *all; /* borrowed: it is a part of it */
    int input;
    char field[64];
};

struct resolving {
    struct http_upload *upload; /* borrowed */
    void (*done)(void *arg, const struct blasd_err *err);
    int left; /* answers to come, and one while the questions are asked */
    struct blasd_err err;
    struct lookup lookups[BLASD_MAX_INPUTS];
};

static void answered(struct resolving *all, const struct blasd_err *err) {
    if (err != NULL && err->code != BLASD_OK && all->err.code == BLASD_OK) all->err = *err;
    if (--all->left > 0) return;
    all->done(all->upload->exchange, all->err.code == BLASD_OK ? NULL : &all->err);
    free(all);
}

static struct blasd_input *input_of(const struct lookup *lookup) {
    return &lookup->all->upload->job->inputs[lookup->input];
}

static int check_dtype(const struct lookup *lookup, enum blasd_dtype is, struct blasd_err *err) {
    const struct blasd_input *input = input_of(lookup);
    if (!input->reference->typed || input->tensor.dtype == is) return 0;
    return blasd_fail(err, BLASD_E_invalid_reference, lookup->field,
                      "the referenced tensor is %s, not %s", blasd_dtype_name(is),
                      blasd_dtype_name(input->tensor.dtype));
}

/* Describes the input: `whole` begins at `offset` of a blob of `blob_bytes`. */
static int describe(const struct lookup *lookup, const struct blasd_tensor *whole, uint64_t offset,
                    uint64_t blob_bytes, struct blasd_err *err) {
    struct blasd_input *input = input_of(lookup);
    int rc = check_dtype(lookup, whole->dtype, err);
    if (rc == 0)
        rc = blasd_reference_resolve(input->reference, whole, offset, &input->tensor,
                                     &input->source.offset, lookup->field, err);
    input->source.bytes = rc == 0 ? blasd_tensor_bytes(&input->tensor) : 0;
    input->reference->blob_bytes = blob_bytes;
    input->first_nonfinite = input->first_negative = input->first_not_positive = -1;
    return rc;
}

/* The same problem, said of an input. */
static void of_input(const struct lookup *lookup, const struct blasd_err *err,
                     struct blasd_err *own) {
    *own = *err;
    if (err->code == BLASD_E_tensor_not_found || err->code == BLASD_E_tensor_expired ||
        err->code == BLASD_E_job_not_found || err->code == BLASD_E_record_expired)
        blasd_fail(own, BLASD_E_reference_not_found, lookup->field, "%.200s", err->detail);
}

/* Puts the bytes of an input that was described into the job's payload; what is referred to begins
 * at `bytes`. Where their values are refused nothing has changed. */
static int copy(const struct lookup *lookup, const char *bytes, struct blasd_err *err) {
    struct http_body_sink *sink = &lookup->all->upload->sink;
    struct blasd_input *input = input_of(lookup);
    struct blasd_tensor to = input->tensor;
    uint64_t size = input->source.bytes, at;
    void *gathered = NULL;
    struct http_sum sum = sink->sum; /* of what was sent, which says it once already */
    int rc;
    bytes += input->source.offset;
    if (blasd_input_sliced(input) > 0) {
        if ((gathered = malloc(size)) == NULL) return blasd_no_memory(err);
        to.data = gathered;
        blasd_reference_gather(input->reference, bytes, &to);
        bytes = gathered;
    }
    to.data = (void *)(uintptr_t)bytes; /* to be read alone */
    rc = blasd_input_look(lookup->all->upload->job, lookup->input, &to, err);
    if (rc == 0) {
        sink->claim_limit += size + BLASD_ALIGN;
        sink->exact = false;
        rc = sink->base.reserve(&sink->base, size, &at, err);
    }
    if (rc == 0 && size > 0) rc = sink->base.write(&sink->base, at, bytes, (size_t)size, err);
    sink->sum = sum;
    free(gathered);
    if (rc != 0) return rc;
    input->source =
        (struct blasd_source){.kind = BLASD_SOURCE_PAYLOAD, .offset = at, .bytes = size};
    memset(input->reference, 0, sizeof *input->reference);
    return 0;
}

/* Puts an output at `bytes` there, which lies in no blob. */
static int bring(const struct lookup *lookup, const struct blasd_output *output, const char *bytes,
                 struct blasd_err *err) {
    int rc = describe(lookup, &output->tensor, 0, output->bytes, err);
    if (rc != 0) return rc;
    if (lookup->all->upload->sink.base.in_place)
        return blasd_fail(err, BLASD_E_invalid_reference, lookup->field,
                          "a reference to an output of less than 256 KiB cannot be combined with "
                          "Body-File: keep the output as a tensor");
    return copy(lookup, bytes, err);
}

/* A tensor of few bytes becomes a part of the payload, so that the job is as any other one, and may
 * be in a batch entry; it holds the tensor all the same. One whose values are refused stays where
 * it is: the job will fail, as of any tensor's values. */
static void copy_small(const struct lookup *lookup, const struct blasd_stored_tensor *tensor) {
    struct http_upload *upload = lookup->all->upload;
    struct http_loop *loop = upload->exchange->home;
    struct blasd_err err;
    const void *bytes;
    if (upload->sink.base.in_place || upload->job->op->composed) return;
    bytes = http_small_tensor(&loop->small_tensors, loop->server->store, tensor);
    if (bytes != NULL && copy(lookup, bytes, &err) == 0)
        memcpy(input_of(lookup)->reference->id, tensor->id, sizeof tensor->id);
}

static void on_tensor(void *arg, const struct blasd_err *err,
                      const struct blasd_stored_tensor *tensors, int count, const char *cursor) {
    struct lookup *lookup = arg;
    struct blasd_err own = {0};
    (void)count, (void)cursor;
    if (err != NULL)
        of_input(lookup, err, &own);
    else if (describe(lookup, &tensors->tensor, 0, blasd_stored_bytes(tensors->bytes), &own) == 0)
        copy_small(lookup, tensors);
    answered(lookup->all, &own);
}

static void ask_tensor(struct lookup *lookup) {
    struct http_exchange *exchange = lookup->all->upload->exchange;
    lookup->all->left++;
    const char *id = input_of(lookup)->reference->id;
    blasd_front_queue_tensor_get(http_queue(exchange), &exchange->caller.principal, id, false,
                                 on_tensor, lookup);
}

/* The output `i` of a job that succeeded; `beside` is what came with its record. */
static int take_output(struct lookup *lookup, const struct blasd_record *record, int i,
                       const char *beside, struct blasd_err *err) {
    const struct blasd_output *output = &record->outputs[i];
    struct http_exchange *exchange = lookup->all->upload->exchange;
    struct blasd_input *input = input_of(lookup);
    struct blasd_buf bytes;
    int rc;
    if (blasd_withholds(&record->keeping, i)) { /* it is a tensor */
        input->source.kind = BLASD_SOURCE_TENSOR;
        blasd_keeping_id(&record->keeping, record->id, i, input->reference->id);
        ask_tensor(lookup);
        return 0;
    }
    if (record->payload_in_blob)
        return describe(lookup, &output->tensor, output->offset, record->payload_bytes, err);
    if (!blasd_slice_given(&record->slice))
        return bring(lookup, output, beside + output->offset, err);
    blasd_buf_init(&bytes, record->payload_bytes + 1);
    rc = blasd_front_queue_slice_read(http_queue(exchange), &record->slice, record->payload_bytes,
                                      &bytes, err);
    if (rc == 0) rc = bring(lookup, output, bytes.data + output->offset, err);
    blasd_buf_release(&bytes);
    return rc;
}

static int take_record(struct lookup *lookup, const void *bytes, size_t len,
                       struct blasd_err *err) {
    struct blasd_record record;
    size_t payload_at;
    int i, rc = blasd_record_decode(bytes, len, &record, &payload_at, err);
    if (rc != 0) return rc;
    if (strcmp(record.op, blasd_op_graph.name) == 0 && record.state == BLASD_SUCCEEDED)
        return blasd_fail(err, BLASD_E_invalid_reference, lookup->field,
                          "%s is a graph, whose results cannot be referred to: make this a step of "
                          "it, or store the result with POST /tensors",
                          record.id);
    i = blasd_record_output(&record, input_of(lookup)->reference, lookup->field, err);
    return i < 0 ? i : take_output(lookup, &record, i, (const char *)bytes + payload_at, err);
}

static void on_job(void *arg, const struct blasd_err *err, const void *bytes, size_t len) {
    struct lookup *lookup = arg;
    struct blasd_err own = {0};
    if (err != NULL)
        of_input(lookup, err, &own);
    else
        take_record(lookup, bytes, len, &own);
    answered(lookup->all, &own);
}

static void ask_job(struct lookup *lookup) {
    struct http_exchange *exchange = lookup->all->upload->exchange;
    lookup->all->left++;
    const char *id = input_of(lookup)->reference->id;
    blasd_front_queue_get(http_queue(exchange), &exchange->caller.principal, id, on_job, lookup);
}

int http_references_resolve(struct http_upload *upload,
                            void (*done)(void *arg, const struct blasd_err *err),
                            struct blasd_err *err) {
    struct resolving *all = calloc(1, sizeof *all);
    if (all == NULL) return blasd_no_memory(err);
    *all = (struct resolving){.upload = upload, .done = done, .left = 1};
    http_exchange_hold(upload->exchange);
    for (int i = 0; upload->job->op->inputs[i].name != NULL; i++) {
        struct lookup *lookup = &all->lookups[i];
        struct blasd_input *input = &upload->job->inputs[i];
        const struct blasd_source *source = &input->source;
        if (!blasd_source_refers(source)) continue;
        lookup->all = all;
        lookup->input = i;
        if (input->reference->field[0] == '\0')
            snprintf(input->reference->field, sizeof input->reference->field, "inputs.%s",
                     upload->job->op->inputs[i].name);
        memcpy(lookup->field, input->reference->field, sizeof lookup->field);
        if (source->kind == BLASD_SOURCE_TENSOR)
            ask_tensor(lookup);
        else
            ask_job(lookup);
    }
    answered(all, NULL);
    return 0;
}
