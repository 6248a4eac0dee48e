/* What goes over the wire: safetensors out, safetensors or JSON in. No I/O. */
#include "clients/c/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
    const char *name, *code;
    size_t size;
} dtypes[] = {{"float64", "F64", 8},   {"float32", "F32", 4},      {"float16", "F16", 2},
              {"bfloat16", "BF16", 2}, {"int64", "I64", 8},        {"int32", "I32", 4},
              {"int16", "I16", 2},     {"int8", "I8", 1},          {"uint64", "U64", 8},
              {"uint32", "U32", 4},    {"uint16", "U16", 2},       {"uint8", "U8", 1},
              {"bool", "BOOL", 1},     {"complex128", "C128", 16}, {"complex64", "C64", 8}};
#define DTYPES (sizeof dtypes / sizeof *dtypes)
#define MOST_BYTES ((uint64_t)INT64_MAX / 2) /* of all arrays: sums of sizes stay in range */

const char *blasd_dtype_code(const char *name, size_t *size) {
    for (size_t i = 0; name != NULL && i < DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            *size = dtypes[i].size;
            return dtypes[i].code;
        }
    return NULL;
}

const char *blasd_dtype_of_code(const char *code, size_t *size) {
    for (size_t i = 0; code != NULL && i < DTYPES; i++)
        if (strcmp(dtypes[i].code, code) == 0) {
            *size = dtypes[i].size;
            return dtypes[i].name;
        }
    return NULL;
}

/* A text that was cut to its room ends with a whole character. */
static void trim(char *text, size_t room) {
    size_t len = strlen(text), at = len;
    if (len + 1 < room) return;
    while (at > 0 && ((unsigned char)text[at - 1] & 0xc0) == 0x80) at--;
    if (at > 0 && (unsigned char)text[at - 1] >= 0xc0) text[at - 1] = '\0';
}

#define SHOWN(len) ((int)((len) < 200 ? (len) : 200)) /* of an answer that is not the service's */

int blasd_problem_set(struct blasd_problem *problem, const char *code, const char *fmt, ...) {
    va_list args;
    memset(problem, 0, sizeof *problem);
    snprintf(problem->code, sizeof problem->code, "%s", code);
    va_start(args, fmt);
    vsnprintf(problem->message, sizeof problem->message, fmt, args);
    va_end(args);
    trim(problem->message, sizeof problem->message);
    return -1;
}

static const char *text_of(const json_t *document, const char *name) {
    const char *text = json_string_value(json_object_get(document, name));
    return text == NULL ? "" : text;
}

void blasd_problem_from(struct blasd_problem *problem, const json_t *document) {
    const char *title = text_of(document, "title"), *detail = text_of(document, "detail");
    const char *advice = text_of(document, "advice");
    blasd_problem_set(problem, text_of(document, "code"), "%s%s%s%s%s", title,
                      *title != '\0' && *detail != '\0' ? ": " : "", detail,
                      *advice != '\0' ? ". " : "", advice);
    snprintf(problem->field, sizeof problem->field, "%s", text_of(document, "field"));
    snprintf(problem->advice, sizeof problem->advice, "%s", advice);
    trim(problem->field, sizeof problem->field);
    trim(problem->advice, sizeof problem->advice);
    problem->status = (int)json_integer_value(json_object_get(document, "status"));
    problem->retry = json_is_true(json_object_get(document, "retry"));
    problem->least = json_integer_value(json_object_get(document, "least"));
}

void blasd_problem_parse(struct blasd_problem *problem, long status, const void *body, size_t len) {
    json_t *document = body == NULL ? NULL : json_loadb(body, len, 0, NULL);
    if (json_is_string(json_object_get(document, "code"))) {
        blasd_problem_from(problem, document);
    } else { /* of a proxy before the service, which may be busy */
        if (body == NULL || len == 0)
            blasd_problem_set(problem, "bad_answer",
                              "HTTP %ld and nothing more, as of a proxy before the service",
                              status);
        else
            blasd_problem_set(problem, "bad_answer",
                              "HTTP %ld, and not in the service's words: %.*s", status, SHOWN(len),
                              (const char *)body);
        problem->retry = status == 429 || (status >= 502 && status <= 504);
    }
    problem->status = (int)status;
    json_decref(document);
}

int64_t blasd_array_bytes(const struct blasd_array *array) {
    size_t size = 0;
    int64_t bytes;
    if (blasd_dtype_code(array->dtype, &size) == NULL) return -1;
    if (array->rank < 0 || array->rank > BLASD_ARRAY_RANK) return -1;
    bytes = (int64_t)size;
    for (int i = 0; i < array->rank; i++)
        if (array->shape[i] < 0 || __builtin_mul_overflow(bytes, array->shape[i], &bytes))
            return -1;
    return bytes;
}

int blasd_array_check(const struct blasd_array *array, struct blasd_problem *problem) {
    const char *name = array->name;
    size_t size = 0;
    if (name == NULL || *name == '\0')
        return blasd_problem_set(problem, "invalid_tensor", "an input has no name");
    if (array->dtype == NULL)
        return blasd_problem_set(problem, "invalid_tensor", "the input '%s' has no dtype", name);
    if (blasd_dtype_code(array->dtype, &size) == NULL)
        return blasd_problem_set(problem, "invalid_tensor",
                                 "the input '%s' has the dtype '%s', which is not among float64, "
                                 "float32, float16, bfloat16, int64, int32, int16, int8, uint64, "
                                 "uint32, uint16, uint8, bool, complex128, complex64",
                                 name, array->dtype);
    if (array->rank < 0 || array->rank > BLASD_ARRAY_RANK)
        return blasd_problem_set(problem, "invalid_tensor",
                                 "the input '%s' has rank %d; a rank is 0 to %d", name, array->rank,
                                 BLASD_ARRAY_RANK);
    for (int i = 0; i < array->rank; i++)
        if (array->shape[i] < 0)
            return blasd_problem_set(problem, "invalid_tensor",
                                     "the input '%s' has the length %lld in dimension %d; a length "
                                     "is 0 or more",
                                     name, (long long)array->shape[i], i);
    if (blasd_array_bytes(array) < 0)
        return blasd_problem_set(problem, "invalid_tensor",
                                 "the input '%s' has a shape of more bytes than can be addressed",
                                 name);
    return 0;
}

uint64_t blasd_array_place(uint64_t at, unsigned alignment) {
    return (at + alignment - 1) / alignment * alignment;
}

int blasd_refuse_memory(struct blasd_problem *problem) {
    return blasd_problem_set(problem, "out_of_memory", "no memory for the request");
}

int blasd_refuse_text(struct blasd_problem *problem) {
    return blasd_problem_set(problem, "invalid_request", "a name or parameter is not valid UTF-8");
}

/* `at` is moved behind the array. */
static int add_input(json_t *header, const struct blasd_array *array, uint64_t *at,
                     struct blasd_problem *problem) {
    size_t size = 0;
    uint64_t begin = *at;
    json_t *shape;
    if (blasd_array_check(array, problem) != 0) return -1;
    if (__builtin_add_overflow(begin, (uint64_t)blasd_array_bytes(array), at) || *at > MOST_BYTES)
        return blasd_problem_set(problem, "invalid_tensor", "the inputs are too large together");
    shape = json_array();
    for (int i = 0; i < array->rank; i++)
        json_array_append_new(shape, json_integer(array->shape[i]));
    if (json_object_set_new(header, array->name,
                            json_pack("{s:s,s:o,s:[I,I]}", "dtype",
                                      blasd_dtype_code(array->dtype, &size), "shape", shape,
                                      "data_offsets", (json_int_t)begin, (json_int_t)*at)) != 0)
        return blasd_refuse_text(problem);
    return 0;
}

unsigned char *blasd_tensors_header(const struct blasd_array *arrays, int count, unsigned alignment,
                                    json_t *metadata, size_t *len, uint64_t *data_bytes,
                                    struct blasd_problem *problem) {
    json_t *header = json_object();
    unsigned char *out = NULL;
    char *text = NULL;
    size_t text_len, padded;
    uint64_t at = 0;
    if (metadata != NULL) json_object_set_new(header, "__metadata__", metadata);
    for (int i = 0; i < count; i++) {
        at = blasd_array_place(at, alignment);
        if (add_input(header, &arrays[i], &at, problem) != 0) goto done;
    }
    text = json_dumps(header, JSON_COMPACT);
    if (text == NULL) {
        blasd_refuse_memory(problem);
        goto done;
    }
    text_len = strlen(text);
    padded = (text_len + 8 + 63) / 64 * 64 - 8; /* data begins at a multiple of 64 */
    out = malloc(8 + padded);
    if (out == NULL) {
        blasd_refuse_memory(problem);
        goto done;
    }
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    memcpy(out + 8, text, text_len);
    memset(out + 8 + text_len, ' ', padded - text_len);
    *len = 8 + padded;
    *data_bytes = at;
done:
    free(text);
    json_decref(header);
    return out;
}

bool blasd_shape_read(const json_t *shape, int *rank, int64_t lengths[BLASD_ARRAY_RANK]) {
    *rank = (int)json_array_size(shape);
    if (*rank > BLASD_ARRAY_RANK) return false;
    for (int i = 0; i < *rank; i++)
        lengths[i] = json_integer_value(json_array_get(shape, (size_t)i));
    return true;
}

static int read_array(struct blasd_reply *reply, const char *name, const json_t *entry,
                      const unsigned char *data, size_t data_len) {
    struct blasd_array *array = &reply->arrays[reply->array_count];
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    json_int_t begin = json_integer_value(json_array_get(offsets, 0));
    json_int_t end = json_integer_value(json_array_get(offsets, 1));
    size_t size = 0;
    *array = (struct blasd_array){.name = name};
    array->dtype = blasd_dtype_of_code(json_string_value(json_object_get(entry, "dtype")), &size);
    if (array->dtype == NULL || !blasd_shape_read(shape, &array->rank, array->shape)) return -1;
    if (begin < 0 || end < begin || (uint64_t)end > data_len) return -1;
    if (blasd_array_bytes(array) != end - begin) return -1;
    array->data = (void *)(uintptr_t)(data + begin);
    reply->array_count++;
    return 0;
}

/* As far as that shows without reading all of it. */
static bool looks_like_job(const char *text) {
    size_t len = strlen(text);
    return len > 2 && text[0] == '{' && text[len - 1] == '}' && strstr(text, "\"id\"") != NULL &&
           strstr(text, "\"state\"") != NULL;
}

const json_t *blasd_reply_json(const struct blasd_reply *reply) {
    struct blasd_reply *own = (struct blasd_reply *)(uintptr_t)reply;
    json_t *document = atomic_load(&own->document), *none = NULL;
    if (document != NULL) return document;
    document = json_loads(reply->text, 0, NULL);
    if (!json_is_object(document)) {
        json_decref(document);
        document = json_object();
    }
    if (atomic_compare_exchange_strong(&own->document, &none, document)) return document;
    json_decref(document); /* another thread was first */
    return none;
}

static int read_safetensors(struct blasd_reply *reply) {
    uint64_t header_len = 0;
    const char *name;
    json_t *entry;
    if (reply->len < 8) return -1;
    for (int i = 0; i < 8; i++) header_len |= (uint64_t)reply->body[i] << (8 * i);
    if (header_len > reply->len - 8) return -1;
    reply->header = json_loadb((const char *)reply->body + 8, header_len, 0, NULL);
    json_object_foreach(reply->header, name, entry) {
        if (strcmp(name, "__metadata__") == 0) {
            const char *text = json_string_value(json_object_get(entry, "job"));
            if (text == NULL || !looks_like_job(text)) return -1;
            reply->text = strdup(text);
            reply->of_job = true;
        } else if (reply->array_count == BLASD_REPLY_ARRAYS ||
                   read_array(reply, name, entry, reply->body + 8 + header_len,
                              reply->len - 8 - header_len) != 0)
            return -1;
    }
    if (json_object_size(reply->header) > 0 &&
        json_object_get(reply->header, "__metadata__") == NULL) { /* a tensor: it is of no job */
        reply->document = json_object();
        reply->text = strdup("{}");
    }
    reply->complete = true;
    return 0;
}

/* In the order of the operation, which that of their bytes need not be. */
static void order_arrays(struct blasd_reply *reply) {
    const char *name;
    json_t *output;
    int at = 0;
    if (reply->array_count < 2) return;
    json_object_foreach(json_object_get(blasd_reply_json(reply), "outputs"), name, output) {
        for (int i = at; i < reply->array_count; i++) {
            struct blasd_array found = reply->arrays[i];
            if (strcmp(found.name, name) != 0) continue;
            reply->arrays[i] = reply->arrays[at];
            reply->arrays[at++] = found;
            break;
        }
    }
}

/* Of a good answer; `reply` has it. */
static void say_unread(struct blasd_problem *problem, const struct blasd_reply *reply,
                       bool safetensors) {
    if (reply->len == 0)
        blasd_problem_set(problem, "bad_answer",
                          "the answer is empty, as of a proxy before the service");
    else if (safetensors)
        blasd_problem_set(problem, "bad_answer", "the service's answer could not be read");
    else
        blasd_refuse_document(problem, (const char *)reply->body, reply->len);
}

int blasd_refuse_document(struct blasd_problem *problem, const char *text, size_t len) {
    return blasd_problem_set(problem, "bad_answer",
                             "the answer is not the service's, but begins with: %.*s", SHOWN(len),
                             text);
}

int blasd_reply_check_job(const struct blasd_reply *reply, struct blasd_problem *problem) {
    if (reply->of_job) return 0;
    if (*blasd_reply_id(reply) != '\0' && *blasd_reply_state(reply) != '\0') return 0;
    return blasd_refuse_document(problem, reply->text, strlen(reply->text));
}

struct blasd_reply *blasd_reply_parse(unsigned char *body, size_t len, bool safetensors,
                                      struct blasd_problem *problem) {
    struct blasd_reply *reply = calloc(1, sizeof *reply);
    if (reply == NULL) {
        free(body);
        blasd_problem_set(problem, "out_of_memory", "no memory for the reply");
        return NULL;
    }
    reply->body = body;
    reply->len = len;
    if (!safetensors) {
        reply->document = body == NULL ? NULL : json_loadb((const char *)body, len, 0, NULL);
        reply->text = body == NULL ? NULL : strndup((const char *)body, len);
    } else if (read_safetensors(reply) != 0)
        goto bad;
    if (reply->text == NULL || (!reply->of_job && !json_is_object(reply->document))) goto bad;
    order_arrays(reply);
    return reply;
bad:
    say_unread(problem, reply, safetensors);
    blasd_reply_free(reply);
    return NULL;
}

void blasd_reply_free(struct blasd_reply *reply) {
    if (reply == NULL) return;
    json_decref(reply->document);
    json_decref(reply->header);
    free(reply->text);
    free(reply->body);
    if (reply->map != NULL) munmap(reply->map, reply->map_len);
    free(reply);
}

const char *blasd_reply_id(const struct blasd_reply *reply) {
    return text_of(blasd_reply_json(reply), "id");
}

const char *blasd_reply_state(const struct blasd_reply *reply) {
    return text_of(blasd_reply_json(reply), "state");
}

bool blasd_reply_ended(const struct blasd_reply *reply) {
    const char *state = blasd_reply_state(reply);
    return strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
}

double blasd_reply_progress(const struct blasd_reply *reply) {
    return json_number_value(json_object_get(blasd_reply_json(reply), "progress"));
}

double blasd_reply_remaining(const struct blasd_reply *reply) {
    const json_t *ms = json_object_get(blasd_reply_json(reply), "remaining_ms");
    return json_is_number(ms) ? json_number_value(ms) / 1000 : -1;
}

const char *blasd_reply_document(const struct blasd_reply *reply) {
    return reply->text;
}

bool blasd_reply_failed(const struct blasd_reply *reply, struct blasd_problem *problem) {
    if (!blasd_reply_ended(reply) || strcmp(blasd_reply_state(reply), "succeeded") == 0)
        return false;
    blasd_problem_from(problem, json_object_get(blasd_reply_json(reply), "error"));
    if (problem->code[0] == '\0')
        blasd_problem_set(problem, blasd_reply_state(reply), "the job is %s",
                          blasd_reply_state(reply));
    return true;
}

bool blasd_reply_mapped(const struct blasd_reply *reply) {
    return reply->map != NULL;
}

int blasd_reply_array_count(const struct blasd_reply *reply) {
    return reply->array_count;
}

const struct blasd_array *blasd_reply_array_at(const struct blasd_reply *reply, int i) {
    return i >= 0 && i < reply->array_count ? &reply->arrays[i] : NULL;
}

const struct blasd_array *blasd_reply_array(const struct blasd_reply *reply, const char *name) {
    for (int i = 0; name != NULL && i < reply->array_count; i++)
        if (strcmp(reply->arrays[i].name, name) == 0) return &reply->arrays[i];
    return NULL;
}

void *blasd_reply_data(struct blasd_reply *reply, const char *name) {
    const struct blasd_array *array = blasd_reply_array(reply, name);
    return array == NULL ? NULL : (void *)(uintptr_t)array->data;
}
