/* The JSON of a body while it comes. */
#include "wire/body_reader.h"

#include "wire/json_text.h"

void blasd_body_json(const struct blasd_body *body, struct blasd_buf *buf) {
    blasd_body_buf(body, buf, (size_t)body->limits->json_bytes + BLASD_JSON_SLACK);
}

int blasd_body_json_add(const struct blasd_body *body, struct blasd_buf *buf, const char *bytes,
                        size_t len, struct blasd_err *err) {
    uint64_t most = body->limits->json_bytes;
    if (len > most - buf->len)
        return blasd_fail(err, BLASD_E_body_too_large, "",
                          "the JSON is larger than %llu bytes, the limit json_bytes; larger "
                          "tensors travel in binary: as safetensors or .npy, and of an inference "
                          "behind its JSON",
                          (unsigned long long)most);
    /* room for what ends the text, which must not make a large buffer grow again */
    if (blasd_buf_reserve(buf, len + BLASD_JSON_SLACK) == 0 && blasd_buf_add(buf, bytes, len) == 0)
        return 0;
    return blasd_no_memory(err);
}

int blasd_body_json_end(const struct blasd_body *body, struct blasd_buf *buf,
                        struct blasd_json_text *text, struct blasd_err *err) {
    if (blasd_buf_add(buf, (const char[BLASD_JSON_SLACK]){0}, BLASD_JSON_SLACK) != 0)
        return blasd_no_memory(err);
    *text = (struct blasd_json_text){.start = buf->data,
                                     .end = buf->data + buf->len - BLASD_JSON_SLACK,
                                     .depth_max = (int)body->limits->json_depth};
    return 0;
}
