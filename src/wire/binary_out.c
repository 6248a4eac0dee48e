/* The headers of safetensors (eight bytes of length, JSON padded with spaces; the format allows no
 * gaps between tensors) and of .npy, version 1.0 (magic, length, a Python dict as text). */
#include "wire/binary_out.h"
#include "wire/document.h"
#include "wire/dtype_codes.h"
#include "wire/json_out.h"

#include <string.h>

#define DOCUMENT_MOST ((size_t)4 << 20) /* room for a graph of as many steps as there may be */

void safetensors_order(const struct blasd_record *record, int *outputs, int count) {
    for (int i = 1; i < count; i++) {
        int moved = outputs[i], at = i;
        size_t size = blasd_dtype_size(record->outputs[moved].tensor.dtype);
        while (at > 0 && blasd_dtype_size(record->outputs[outputs[at - 1]].tensor.dtype) < size) {
            outputs[at] = outputs[at - 1];
            at--;
        }
        outputs[at] = moved;
    }
}

/* Metadata are strings, so the job document is a JSON text in one. */
static void write_metadata(struct json_out *out, const struct blasd_record *record) {
    struct blasd_buf document;
    struct json_out inner = {.buf = &document};
    struct document_data none = {.payload = NULL};
    blasd_buf_init(&document, DOCUMENT_MOST);
    document_job(&inner, record, &none);
    json_out_put(out, "\"__metadata__\":{\"job\":\"");
    json_out_escaped(out, document.data, document.len);
    json_out_put(out, "\"}");
    if (inner.failed) out->failed = true;
    blasd_buf_release(&document);
}

static void write_entry(struct json_out *out, const struct blasd_record *record, int output,
                        uint64_t *offset) {
    const struct blasd_tensor *tensor = &record->outputs[output].tensor;
    const struct blasd_port *port = document_output(record, output);
    json_out_put(out, ",%s:{\"dtype\":%s,\"shape\":", port->name,
                 dtype_codes[tensor->dtype].safetensors);
    document_shape(out, tensor);
    json_out_put(out, ",\"data_offsets\":[%u,%u]}", *offset, *offset + blasd_tensor_bytes(tensor));
    *offset += blasd_tensor_bytes(tensor);
}

int safetensors_header(const struct blasd_record *record, const int *outputs, int count,
                       struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len, size;
    uint64_t offset = 0;
    json_out_raw(&out, "\0\0\0\0\0\0\0\0{", 9); /* the length comes below */
    write_metadata(&out, record);
    for (int i = 0; i < count; i++) write_entry(&out, record, outputs[i], &offset);
    json_out_put(&out, "}");
    while (!out.failed && (buf->len - before) % BINARY_ALIGN != 0) json_out_put(&out, " ");
    if (out.failed) return -1;
    size = buf->len - before - 8;
    for (size_t i = 0; i < 8; i++) buf->data[before + i] = (char)(unsigned char)(size >> (8 * i));
    return 0;
}

bool npy_possible(enum blasd_dtype dtype) {
    return dtype_codes[dtype].npy != NULL;
}

int npy_header(const struct blasd_tensor *tensor, struct blasd_buf *out) {
    static const char spaces[BINARY_ALIGN + 1] =
        "                                                                ";
    size_t before = out->len, used;
    struct json_out text = {.buf = out};
    json_out_raw(&text, "\x93NUMPY\x01\0\0\0", 10);
    json_out_put(&text, "{'descr': '%r', 'fortran_order': %r, 'shape': (",
                 dtype_codes[tensor->dtype].npy,
                 tensor->order == BLASD_COLUMN_MAJOR ? "True" : "False");
    for (int i = 0; i < tensor->rank; i++)
        json_out_put(&text, i == 0 ? "%i" : ", %i", tensor->shape[i]);
    json_out_put(&text, tensor->rank == 1 ? ",), }" : "), }"); /* Python's tuple of one */
    used = (out->len - before + 1) % BINARY_ALIGN;
    json_out_raw(&text, spaces, used == 0 ? 0 : BINARY_ALIGN - used);
    json_out_put(&text, "\n");
    if (text.failed) return -1;
    used = out->len - before - 10;
    out->data[before + 8] = (char)(unsigned char)used;
    out->data[before + 9] = (char)(unsigned char)(used >> 8);
    return 0;
}
