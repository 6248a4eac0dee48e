/* Parts of tensors, and tensors as texts. */
#include "core/reference.h"

#include "base/err.h"
#include "core/wanted.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements from one index to the next of a dense tensor. */
static void dense_strides(const struct blasd_tensor *tensor, int64_t strides[BLASD_MAX_RANK]) {
    int64_t step = 1;
    for (int n = 0; n < tensor->rank; n++) {
        int i = tensor->order == BLASD_COLUMN_MAJOR ? n : tensor->rank - 1 - n;
        strides[i] = step;
        step *= tensor->shape[i];
    }
}

static bool is_dense(const struct blasd_tensor *part, const int64_t *strides) {
    int64_t dense[BLASD_MAX_RANK] = {0};
    dense_strides(part, dense);
    for (int i = 0; i < part->rank; i++)
        if (part->shape[i] > 1 && strides[i] != dense[i]) return false;
    return true;
}

static int bound(const struct blasd_reference *reference, const struct blasd_tensor *whole, int i,
                 int64_t *from, int64_t *to, const char *field, struct blasd_err *err) {
    *from = reference->from[i] == BLASD_SLICE_OPEN ? 0 : reference->from[i];
    *to = reference->to[i] == BLASD_SLICE_OPEN ? whole->shape[i] : reference->to[i];
    if (*from >= 0 && *from <= *to && *to <= whole->shape[i]) return 0;
    return blasd_fail(err, BLASD_E_invalid_reference, field,
                      "its slice asks for %" PRId64 " to %" PRId64
                      " of length %d, which is %" PRId64,
                      *from, *to, i, whole->shape[i]);
}

int blasd_reference_resolve(struct blasd_reference *reference, const struct blasd_tensor *whole,
                            uint64_t offset, struct blasd_tensor *part, uint64_t *at,
                            const char *field, struct blasd_err *err) {
    int64_t strides[BLASD_MAX_RANK] = {0}, first = 0;
    *part = *whole;
    *at = offset;
    if (reference->sliced > whole->rank)
        return blasd_fail(err, BLASD_E_invalid_reference, field,
                          "its slice bounds %d lengths, and there are %d", reference->sliced,
                          whole->rank);
    dense_strides(whole, strides);
    for (int i = 0; i < reference->sliced; i++) {
        int64_t from, to;
        int rc = bound(reference, whole, i, &from, &to, field, err);
        if (rc != 0) return rc;
        part->shape[i] = to - from;
        first += from * strides[i];
    }
    reference->sliced = 0;
    if (blasd_tensor_elements(part) == 0) return 0;
    *at += (uint64_t)first * blasd_dtype_size(part->dtype);
    if (is_dense(part, strides)) return 0;
    part->order = part->order == BLASD_ROW_MAJOR ? BLASD_COLUMN_MAJOR : BLASD_ROW_MAJOR;
    if (is_dense(part, strides)) return 0;
    part->order = BLASD_ROW_MAJOR;
    reference->sliced = part->rank;
    memcpy(reference->to, strides, (size_t)part->rank * sizeof *strides);
    return 0;
}

uint64_t blasd_reference_extent(const struct blasd_reference *reference,
                                const struct blasd_tensor *part) {
    uint64_t last = 0;
    if (reference->sliced == 0 || blasd_tensor_elements(part) == 0) return blasd_tensor_bytes(part);
    for (int i = 0; i < part->rank; i++)
        last += (uint64_t)(part->shape[i] - 1) * (uint64_t)reference->to[i];
    return (last + 1) * blasd_dtype_size(part->dtype);
}

#define GATHER_MOST INT64_C(65536) /* elements between two questions whether it is wanted */

/* One run of the last length, for as long as it is wanted: false where it is not. `*done` is the
 * caller's count. */
static bool gather_run(const unsigned char *from, int64_t stride, size_t size, int64_t count,
                       unsigned char *to, int64_t *done) {
    for (int64_t at = 0; at < count; at += GATHER_MOST) {
        int64_t end = count - at < GATHER_MOST ? count : at + GATHER_MOST;
        if (!blasd_wanted_after(done, end - at)) return false;
        if (stride == 1) {
            memcpy(to + (size_t)at * size, from + (size_t)at * size, (size_t)(end - at) * size);
            continue;
        }
        for (int64_t i = at; i < end; i++)
            memcpy(to + (size_t)i * size, from + (size_t)(i * stride) * size, size);
    }
    return true;
}

void blasd_reference_copy(const void *from, uint64_t bytes, void *to) {
    int64_t done = 0;
    (void)gather_run(from, 1, 1, (int64_t)bytes, to, &done);
}

void blasd_reference_gather(const struct blasd_reference *reference, const void *from,
                            struct blasd_tensor *to) {
    size_t size = blasd_dtype_size(to->dtype);
    int last = to->rank - 1;
    int64_t index[BLASD_MAX_RANK] = {0}, at = 0, done = 0;
    unsigned char *out = to->data;
    if (blasd_tensor_elements(to) == 0) return;
    while (gather_run((const unsigned char *)from + (size_t)at * size, reference->to[last], size,
                      to->shape[last], out, &done)) {
        int i = last - 1;
        out += (size_t)to->shape[last] * size;
        while (i >= 0 && ++index[i] == to->shape[i]) {
            at -= (to->shape[i] - 1) * reference->to[i];
            index[i--] = 0;
        }
        if (i < 0) return;
        at += reference->to[i];
    }
}

void blasd_keeping_id(const struct blasd_keeping *keeping, const char *job, int output,
                      char id[BLASD_ID_LEN + 1]) {
    id[0] = BLASD_ID_TENSOR;
    memcpy(id + 1, job + 1, BLASD_ID_ENTRY - 1);
    memcpy(id + BLASD_ID_ENTRY, keeping->ids[output], sizeof keeping->ids[output]);
}

const char *blasd_form_write(const struct blasd_tensor *tensor, char form[BLASD_FORM_MAX]) {
    int len = snprintf(form, BLASD_FORM_MAX, "%s %d", blasd_dtype_name(tensor->dtype),
                       (int)tensor->order);
    for (int i = 0; i < tensor->rank; i++)
        len += snprintf(form + len, BLASD_FORM_MAX - (size_t)len, " %" PRId64, tensor->shape[i]);
    return form;
}

bool blasd_form_read(const char *form, struct blasd_tensor *tensor) {
    size_t len = strcspn(form, " ");
    char *end;
    memset(tensor, 0, sizeof *tensor);
    if (!blasd_dtype_find(form, len, &tensor->dtype) || form[len] == '\0') return false;
    form += len + 1;
    if (form[0] != '0' && form[0] != '1') return false;
    tensor->order = form[0] == '0' ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR;
    for (form++; *form == ' '; form = end) {
        if (tensor->rank == BLASD_MAX_RANK) return false;
        tensor->shape[tensor->rank++] = strtoll(form + 1, &end, 10);
        if (end == form + 1) return false;
    }
    return *form == '\0' && blasd_tensor_check(tensor, "", NULL) == 0;
}
