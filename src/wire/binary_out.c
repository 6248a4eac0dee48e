/* The headers of safetensors (eight bytes of length, JSON padded with spaces; the format allows no
 * gaps between tensors) and of .npy, version 1.0 (magic, length, a Python dict as text). */
#include "wire/binary_out.h"
#include "wire/document.h"
#include "wire/dtype_codes.h"
#include "wire/json_out.h"

#include <string.h>

#define LENGTH "\0\0\0\0\0\0\0\0"       /* which is filled in at the end */
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

/* Describes one tensor, whose data begin at *offset, which moves behind them. */
static void write_entry(struct json_out *out, const char *name, const struct blasd_tensor *tensor,
                        uint64_t *offset) {
    uint64_t end = *offset + blasd_tensor_bytes(tensor);
    json_out_put(out, "%s:{\"dtype\":%s,\"shape\":", name, dtype_codes[tensor->dtype].safetensors);
    document_shape(out, tensor);
    json_out_put(out, ",\"data_offsets\":[%u,%u]}", *offset, end);
    *offset = end;
}

/* Ends a header that began at `before` with 8 bytes of room for its length. */
static int end_header(struct json_out *out, size_t before) {
    struct blasd_buf *buf = out->buf;
    uint64_t size;
    json_out_put(out, "}");
    while (!out->failed && (buf->len - before) % BINARY_ALIGN != 0) json_out_put(out, " ");
    if (out->failed) return -1;
    size = buf->len - before - 8;
    memcpy(buf->data + before, &size, sizeof size); /* little-endian, as tensors are */
    return 0;
}

int safetensors_header(const struct blasd_record *record, const int *outputs, int count,
                       struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    uint64_t offset = 0;
    json_out_raw(&out, LENGTH "{", sizeof LENGTH);
    write_metadata(&out, record);
    for (int i = 0; i < count; i++) {
        json_out_put(&out, ",");
        write_entry(&out, document_output(record, outputs[i])->name,
                    &record->outputs[outputs[i]].tensor, &offset);
    }
    return end_header(&out, before);
}

int safetensors_header_one(const char *name, const struct blasd_tensor *tensor,
                           struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    uint64_t offset = 0;
    json_out_raw(&out, LENGTH "{", sizeof LENGTH);
    write_entry(&out, name, tensor, &offset);
    return end_header(&out, before);
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
