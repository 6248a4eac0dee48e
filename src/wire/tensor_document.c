/* Kept tensors as documents and as files. */
#include "wire/tensor_document.h"

#include "wire/binary_out.h"
#include "wire/document.h"

#include <string.h>

int blasd_tensor_document(const struct blasd_stored_tensor *tensor, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    json_out_put(&out, "{\"id\":%s,", tensor->id);
    document_tensor(&out, &tensor->tensor);
    json_out_put(&out,
                 ",\"order\":%s,\"bytes\":%u,\"created_at\":%t,\"used_at\":%t,\"expires_at\":%t,"
                 "\"life_s\":%u,\"location\":%s",
                 tensor->tensor.order == BLASD_ROW_MAJOR ? "C" : "F", tensor->bytes,
                 tensor->created_us, tensor->used_us, tensor->expires_us, tensor->life_s,
                 tensor->device[0] != '\0' ? tensor->device : "host");
    if (tensor->sha256[0] != '\0') json_out_put(&out, ",\"sha256\":%s", tensor->sha256);
    json_out_put(&out, "}");
    return document_end(&out, before);
}

int blasd_tensor_name(const char *name, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    json_out_put(&out, "%s:", name);
    return document_end(&out, before);
}

bool blasd_tensor_answer_possible(const struct blasd_tensor *tensor, enum blasd_format format) {
    if (format == BLASD_FORMAT_NPY) return npy_possible(tensor->dtype);
    return tensor->order == BLASD_ROW_MAJOR;
}

static bool write_head(const struct blasd_tensor *tensor, const char *name,
                       enum blasd_format format, struct blasd_buf *text) {
    struct json_out out = {.buf = text};
    if (format == BLASD_FORMAT_NPY) return npy_header(tensor, text) == 0;
    if (format == BLASD_FORMAT_SAFETENSORS) return safetensors_header_one(name, tensor, text) == 0;
    json_out_put(&out, "{");
    document_tensor(&out, tensor);
    json_out_put(&out, ",\"data\":");
    return !out.failed;
}

struct blasd_answer *blasd_tensor_answer_new(const struct blasd_tensor *tensor, const char *name,
                                             const void *bytes, enum blasd_format format) {
    struct blasd_output output = {.tensor = *tensor, .bytes = blasd_tensor_bytes(tensor)};
    struct blasd_answer *answer = blasd_answer_begin(1, 65536);
    struct blasd_buf *text = answer == NULL ? NULL : blasd_answer_text(answer);
    bool json = format == BLASD_FORMAT_JSON, good = false;
    if (answer == NULL) return NULL;
    if (write_head(tensor, name, format, text)) {
        blasd_answer_add(answer, &output, bytes, text->len, json);
        good = (!json || blasd_buf_puts(text, "}") == 0) && blasd_answer_end(answer);
    }
    if (good) return answer;
    blasd_answer_free(answer);
    return NULL;
}
