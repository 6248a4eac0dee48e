/* Tensor bytes on their way to the sink. */
#include "wire/tensor_writer.h"

#include "base/text.h"

#include "wire/sanitize.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are little-endian in memory");

#define SLICE_BYTES ((size_t)256 * 1024)  /* that are looked at and written at once */
#define SWAPPED_BYTES ((size_t)16 * 1024) /* where they are turned round first */

static const char *field_of(char field[64], const char *name, size_t len) {
    char shown[BLASD_SANITIZED_MAX];
    return blasd_input_field(field, blasd_sanitize(shown, name, len));
}

int blasd_named_inputs_add(struct blasd_named_inputs *inputs, const char *name, size_t len,
                           struct blasd_named_input **ret, struct blasd_err *err) {
    struct blasd_named_input *item;
    char field[64];
    bool plain = len > 0 && len < BLASD_NAME_MAX;
    for (size_t i = 0; plain && i < len; i++) plain = name[i] > ' ' && name[i] < 0x7f;
    if (!plain)
        return blasd_fail(err, BLASD_E_unknown_input, field_of(field, name, len),
                          "no operation has an input of this name: names are 1 to %d letters, "
                          "digits and _",
                          BLASD_NAME_MAX - 1);
    for (int i = 0; i < inputs->count; i++)
        if (strlen(inputs->items[i].name) == len && memcmp(inputs->items[i].name, name, len) == 0)
            return blasd_fail(err, BLASD_E_invalid_field, field_of(field, name, len),
                              "the tensor is given twice");
    if (inputs->any && inputs->count == BLASD_GRAPH_INPUTS_MAX)
        return blasd_fail(err, BLASD_E_graph_too_large, field_of(field, name, len),
                          "a graph may have at most %d inputs", BLASD_GRAPH_INPUTS_MAX);
    if (!inputs->any && inputs->count == BLASD_NAMED_INPUTS_MAX)
        return blasd_fail(err, BLASD_E_unknown_input, field_of(field, name, len),
                          "this is tensor number %d; at most %d come in one request, and no "
                          "operation takes more than %d",
                          BLASD_NAMED_INPUTS_MAX + 1, BLASD_NAMED_INPUTS_MAX, BLASD_MAX_INPUTS);
    item = &inputs->items[inputs->count++];
    memset(item, 0, sizeof *item);
    memcpy(item->name, name, len);
    item->any = inputs->any;
    blasd_input_init(&item->input);
    *ret = item;
    return 0;
}

int blasd_tensor_writer_begin(struct blasd_tensor_writer *writer, struct blasd_sink *sink,
                              struct blasd_named_input *to, uint64_t bytes, bool look, bool swap,
                              struct blasd_err *err) {
    enum blasd_dtype dtype = to->input.tensor.dtype;
    int rc;
    *writer = (struct blasd_tensor_writer){.sink = sink, .to = to, .left = bytes};
    writer->size = (unsigned)blasd_dtype_size(blasd_dtype_part(dtype));
    writer->parts = blasd_dtype_parts(dtype);
    writer->look = look;
    writer->values = blasd_named_input_values(to);
    to->input.all_zero = (writer->values & BLASD_VALUES_NOT_ALL_ZERO) != 0 && bytes > 0;
    writer->swap = swap && writer->size > 1;
    if ((rc = sink->reserve(sink, bytes, &writer->offset, err)) != 0) return rc;
    to->input.source = (struct blasd_source){
        .kind = BLASD_SOURCE_PAYLOAD, .offset = writer->offset, .bytes = bytes};
    return 0;
}

/* Looks for what some port of the tensor's name refuses. */
static void look_at_values(struct blasd_tensor_writer *writer, const unsigned char *p, int64_t n) {
    struct blasd_input *input = &writer->to->input;
    enum blasd_dtype dtype = blasd_dtype_part(input->tensor.dtype);
    bool signs = writer->parts == 1 &&
                 (writer->values & (BLASD_VALUES_NOT_NEGATIVE | BLASD_VALUES_POSITIVE)) != 0;
    int64_t at;
    if (signs && input->first_negative < 0 &&
        (at = blasd_tensor_first_negative(dtype, p, n, false)) >= 0)
        input->first_negative = writer->index + at;
    if (signs && (writer->values & BLASD_VALUES_POSITIVE) != 0 && input->first_not_positive < 0 &&
        (at = blasd_tensor_first_negative(dtype, p, n, true)) >= 0)
        input->first_not_positive = writer->index + at;
    if ((writer->values & BLASD_VALUES_SPLITS) != 0)
        blasd_input_look_at_splits(input, writer->index, p, n);
    if (input->all_zero) input->all_zero = blasd_tensor_all_zero(dtype, p, n);
}

static int look(struct blasd_tensor_writer *writer, const unsigned char *p, size_t n,
                struct blasd_err *err) {
    struct blasd_input *input = &writer->to->input;
    int64_t at = -1;
    if (writer->look && input->first_nonfinite < 0)
        at = blasd_tensor_first_nonfinite(blasd_dtype_part(input->tensor.dtype), p, (int64_t)n);
    if (at >= 0 && input->tensor.dtype == BLASD_bool) {
        char field[64];
        return blasd_fail(err, BLASD_E_invalid_tensor, blasd_input_field(field, writer->to->name),
                          "element %lld is the byte %u, and a bool is 0 or 1",
                          (long long)(writer->index + at), p[at]);
    }
    if (at >= 0) input->first_nonfinite = (writer->index + at) / writer->parts;
    if (writer->values != 0) look_at_values(writer, p, (int64_t)n);
    writer->index += (int64_t)n;
    return 0;
}

static void swap_elements(unsigned char *p, size_t n, unsigned size) {
    for (; n > 0; n--, p += size)
        for (unsigned i = 0; i < size / 2; i++) {
            unsigned char one = p[i];
            p[i] = p[size - 1 - i];
            p[size - 1 - i] = one;
        }
}

/* Looks at whole elements, turned round where they come big-endian, and writes them. */
static int take(struct blasd_tensor_writer *writer, const unsigned char *p, size_t n,
                struct blasd_err *err) {
    unsigned char room[SWAPPED_BYTES];
    size_t bytes = n * writer->size;
    int rc;
    if (writer->swap) {
        memcpy(room, p, bytes);
        swap_elements(room, n, writer->size);
        p = room;
    }
    if ((writer->look || writer->values != 0) && (rc = look(writer, p, n, err)) != 0) return rc;
    rc = writer->sink->write(writer->sink, writer->offset, p, bytes, err);
    writer->offset += bytes;
    return rc;
}

int blasd_tensor_writer_feed(struct blasd_tensor_writer *writer, const void *bytes, size_t len,
                             struct blasd_err *err) {
    const unsigned char *p = bytes;
    /* a slice is still in the cache when it is copied after it was looked at */
    size_t most = writer->swap ? SWAPPED_BYTES : SLICE_BYTES;
    int rc = 0;
    if (len > writer->left)
        return blasd_fail(err, BLASD_E_internal_error, "", "more tensor bytes came than were due");
    writer->left -= len;
    while (rc == 0 && len > 0) {
        size_t n = len < most ? len : most;
        if (writer->part_len == 0 && n >= writer->size) {
            n -= n % writer->size;
            rc = take(writer, p, n / writer->size, err);
        } else { /* an element that is split between two pieces */
            n = 1;
            writer->part[writer->part_len++] = *p;
            if (writer->part_len == writer->size) {
                writer->part_len = 0;
                rc = take(writer, writer->part, 1, err);
            }
        }
        p += n;
        len -= n;
    }
    return rc;
}
