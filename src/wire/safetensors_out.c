/* safetensors: eight bytes of length, a JSON header padded with spaces, then the tensors. The
 * format allows no gaps between tensors. Read next: npy_out.c. */
#include "wire/binary_out.h"
#include "wire/document.h"

#include <string.h>

#define LITERAL JSON_OUT_LITERAL
#define DOCUMENT_MOST ((size_t)1 << 20)

static const char *const codes[BLASD_DTYPE_COUNT] = {
    [BLASD_float64] = "F64",     [BLASD_float32] = "F32",
    [BLASD_float16] = "F16",     [BLASD_bfloat16] = "BF16",
    [BLASD_int64] = "I64",       [BLASD_int32] = "I32",
    [BLASD_int16] = "I16",       [BLASD_int8] = "I8",
    [BLASD_uint64] = "U64",      [BLASD_uint32] = "U32",
    [BLASD_uint16] = "U16",      [BLASD_uint8] = "U8",
    [BLASD_bool] = "BOOL",       [BLASD_complex64] = "C64",
    [BLASD_complex128] = "C128", /* ours: the format has no name for it */
};

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
    LITERAL(out, "\"__metadata__\":{\"job\":\"");
    json_out_escaped(out, document.data, document.len);
    LITERAL(out, "\"}");
    if (inner.failed) out->failed = true;
    blasd_buf_release(&document);
}

static void write_entry(struct json_out *out, const struct blasd_record *record, int output,
                        uint64_t *offset) {
    const struct blasd_tensor *tensor = &record->outputs[output].tensor;
    const struct blasd_port *port = document_output(record, output);
    LITERAL(out, ",");
    json_out_string(out, port->name);
    LITERAL(out, ":{\"dtype\":");
    json_out_string(out, codes[tensor->dtype]);
    LITERAL(out, ",\"shape\":[");
    for (int i = 0; i < tensor->rank; i++) {
        if (i > 0) LITERAL(out, ",");
        json_out_int(out, tensor->shape[i]);
    }
    LITERAL(out, "],\"data_offsets\":[");
    json_out_uint(out, *offset);
    LITERAL(out, ",");
    *offset += blasd_tensor_bytes(tensor);
    json_out_uint(out, *offset);
    LITERAL(out, "]}");
}

int safetensors_header(const struct blasd_record *record, const int *outputs, int count,
                       struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len, size;
    uint64_t offset = 0;
    LITERAL(&out, "\0\0\0\0\0\0\0\0{"); /* the length comes below */
    write_metadata(&out, record);
    for (int i = 0; i < count; i++) write_entry(&out, record, outputs[i], &offset);
    LITERAL(&out, "}");
    while (!out.failed && (buf->len - before) % BINARY_ALIGN != 0) LITERAL(&out, " ");
    if (out.failed) return -1;
    size = buf->len - before - 8;
    for (size_t i = 0; i < 8; i++) buf->data[before + i] = (char)(unsigned char)(size >> (8 * i));
    return 0;
}
