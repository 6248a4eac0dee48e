/* The generator of answers: text, tensor, text, tensor, …, text.
 *
 * The text (a document or a header) is made at once, for it is small; the tensors are written as
 * the caller asks for bytes. Each part is some text and then one tensor. */
#include "wire/answer.h"

#include "wire/binary_out.h"
#include "wire/document.h"
#include "wire/json_elements.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_MOST ((size_t)4 << 20)

struct part {
    size_t text_end;            /* the text up to here comes first */
    const unsigned char *bytes; /* borrowed */
    struct blasd_tensor tensor;
    bool json; /* written as text */
};

struct blasd_answer {
    struct blasd_buf text;
    size_t text_at;
    int part_count;
    int part;                  /* the one being written; part_count: the text behind the last */
    bool in_tensor;            /* its text is written */
    struct json_elements json; /* the tensor being written, as text */
    uint64_t raw_at;           /* or as it is */
    int64_t size;
    uint64_t left;       /* bytes that may still be read */
    struct part parts[]; /* as many as the record has outputs, at the most */
};

bool blasd_answer_possible(const struct blasd_record *record, int output,
                           enum blasd_format format) {
    if (output == -1) return format != BLASD_FORMAT_NPY;
    if (document_output(record, output) == NULL) return false;
    return format != BLASD_FORMAT_NPY || npy_possible(record->outputs[output].tensor.dtype);
}

struct blasd_answer *blasd_answer_begin(int parts_most, size_t text_most) {
    struct blasd_answer *answer;
    answer = calloc(1, sizeof *answer + (size_t)parts_most * sizeof *answer->parts);
    if (answer == NULL) return NULL;
    blasd_buf_init(&answer->text, text_most);
    answer->left = UINT64_MAX;
    return answer;
}

struct blasd_buf *blasd_answer_text(struct blasd_answer *answer) {
    return &answer->text;
}

void blasd_answer_add(struct blasd_answer *answer, const struct blasd_output *output,
                      const void *payload, size_t text_end, bool json) {
    struct part *part = &answer->parts[answer->part_count++];
    part->text_end = text_end;
    part->tensor = output->tensor;
    part->bytes = payload == NULL ? NULL : (const unsigned char *)payload + output->offset;
    part->json = json;
}

/* Appends the tensor of output `i` behind the text as far as `text_end`. */
static void add_part(struct blasd_answer *answer, const struct blasd_record *record,
                     const void *payload, int i, size_t text_end, bool json) {
    blasd_answer_add(answer, &record->outputs[i], payload, text_end, json);
}

static bool make_json_all(struct blasd_answer *answer, const struct blasd_record *record,
                          const void *payload) {
    struct document_cut cuts[BLASD_MAX_OUTPUTS];
    struct json_out out = {.buf = &answer->text};
    struct document_data data = {.cuts = cuts};
    document_job(&out, record, &data);
    for (int i = 0; i < data.cut_count; i++)
        add_part(answer, record, payload, cuts[i].output, cuts[i].at, true);
    return !out.failed;
}

static bool make_json_one(struct blasd_answer *answer, const struct blasd_record *record,
                          const void *payload, int output) {
    struct json_out out = {.buf = &answer->text};
    json_out_put(&out, "{\"name\":%s,", document_output(record, output)->name);
    document_tensor(&out, &record->outputs[output].tensor);
    json_out_put(&out, ",\"data\":");
    add_part(answer, record, payload, output, answer->text.len, true);
    json_out_put(&out, "}");
    return !out.failed;
}

static bool make_safetensors(struct blasd_answer *answer, const struct blasd_record *record,
                             const void *payload, int output) {
    int outputs[BLASD_MAX_OUTPUTS], count = 0;
    for (int i = 0; i < record->output_count; i++)
        if ((output == -1 || output == i) && document_output(record, i) != NULL)
            outputs[count++] = i;
    safetensors_order(record, outputs, count);
    if (safetensors_header(record, outputs, count, &answer->text) != 0) return false;
    for (int i = 0; i < count; i++)
        add_part(answer, record, payload, outputs[i], answer->text.len, false);
    return true;
}

static bool make(struct blasd_answer *answer, const struct blasd_record *record,
                 const void *payload, int output, enum blasd_format format) {
    switch (format) {
    case BLASD_FORMAT_JSON:
        return output == -1 ? make_json_all(answer, record, payload)
                            : make_json_one(answer, record, payload, output);
    case BLASD_FORMAT_SAFETENSORS: return make_safetensors(answer, record, payload, output);
    case BLASD_FORMAT_NPY:
        if (npy_header(&record->outputs[output].tensor, &answer->text) != 0) return false;
        add_part(answer, record, payload, output, answer->text.len, false);
        return true;
    }
    return false;
}

bool blasd_answer_end(struct blasd_answer *answer) {
    uint64_t size = answer->text.len;
    bool json = false;
    for (int i = 0; i < answer->part_count; i++) {
        uint64_t bytes = blasd_tensor_bytes(&answer->parts[i].tensor);
        if (bytes != 0 && answer->parts[i].bytes == NULL) return false;
        size += bytes;
        json = json || answer->parts[i].json;
    }
    answer->size = json ? -1 : (int64_t)size;
    return true;
}

struct blasd_answer *blasd_answer_new(const struct blasd_record *record, const void *payload,
                                      int output, enum blasd_format format) {
    struct blasd_answer *answer;
    int outputs = 0;
    if (!blasd_answer_possible(record, output, format)) return NULL;
    for (int i = 0; i < record->output_count; i++)
        if (blasd_record_sends(record, i)) outputs++;
    answer = blasd_answer_begin(outputs, TEXT_MOST);
    if (answer == NULL) return NULL;
    if (!make(answer, record, payload, output, format) || !blasd_answer_end(answer)) {
        blasd_answer_free(answer);
        return NULL;
    }
    return answer;
}

int64_t blasd_answer_size(const struct blasd_answer *answer) {
    return answer->size;
}

/* Copies from `from` what fits: returns the bytes copied. */
static size_t copy(char *out, size_t room, const void *from, uint64_t left) {
    size_t n = left < room ? (size_t)left : room;
    if (n > 0) memcpy(out, from, n);
    return n;
}

/* Where the text ends before the next part, or at all. */
static size_t text_end(const struct blasd_answer *answer) {
    bool last = answer->part == answer->part_count;
    return last ? answer->text.len : answer->parts[answer->part].text_end;
}

static size_t read_text(struct blasd_answer *answer, char *out, size_t max) {
    bool last = answer->part == answer->part_count;
    size_t end = text_end(answer);
    size_t n = copy(out, max, answer->text.data + answer->text_at, end - answer->text_at);
    answer->text_at += n;
    if (answer->text_at == end && !last) {
        answer->in_tensor = true;
        answer->raw_at = 0;
        json_elements_init(&answer->json, &answer->parts[answer->part].tensor,
                           answer->parts[answer->part].bytes);
    }
    return n;
}

static size_t read_tensor(struct blasd_answer *answer, char *out, size_t max) {
    const struct part *part = &answer->parts[answer->part];
    size_t n;
    if (part->json) {
        n = json_elements_read(&answer->json, out, max);
    } else if (part->bytes == NULL) {
        n = 0; /* an empty tensor */
    } else {
        n = copy(out, max, part->bytes + answer->raw_at,
                 blasd_tensor_bytes(&part->tensor) - answer->raw_at);
        answer->raw_at += n;
    }
    if (n < max) {
        answer->in_tensor = false;
        answer->part++;
    }
    return n;
}

size_t blasd_answer_read(struct blasd_answer *answer, char *out, size_t max) {
    size_t done = 0;
    if (max > answer->left) max = (size_t)answer->left;
    while (done < max) {
        bool last = !answer->in_tensor && answer->part == answer->part_count;
        size_t n = answer->in_tensor ? read_tensor(answer, out + done, max - done)
                                     : read_text(answer, out + done, max - done);
        if (last && n == 0) break;
        done += n;
    }
    answer->left -= done;
    return done;
}

/* Passes bytes, none of which is touched: of an answer whose size is known, so without numbers as
 * text. */
void blasd_answer_cut(struct blasd_answer *answer, uint64_t from, uint64_t len) {
    while (from > 0) {
        char room[1];
        uint64_t ahead;
        if (answer->in_tensor) {
            ahead = blasd_tensor_bytes(&answer->parts[answer->part].tensor) - answer->raw_at;
            ahead = ahead < from ? ahead : from;
            answer->raw_at += ahead;
        } else {
            ahead = text_end(answer) - answer->text_at;
            ahead = ahead < from ? ahead : from;
            answer->text_at += ahead;
        }
        from -= ahead;
        if (from > 0) from -= blasd_answer_read(answer, room, sizeof room); /* to the next part */
    }
    answer->size = (int64_t)len;
    answer->left = len;
}

void blasd_answer_free(struct blasd_answer *answer) {
    if (answer == NULL) return;
    blasd_buf_release(&answer->text);
    free(answer);
}
