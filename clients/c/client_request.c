/* What is asked for: whether it can be sent as it is, a copy that outlives the caller's, and its
 * words. */
#include "clients/c/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_KEY 128 /* bytes of an idempotency key */

static bool is_zero(const uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (words[i] != 0) return false;
    return true;
}
#define HAS_RESERVED(object)                                                                       \
    (!is_zero((object)->reserved, sizeof(object)->reserved / sizeof *(object)->reserved))

int blasd_refuse_reserved(const char *what, struct blasd_problem *problem) {
    return blasd_problem_set(
        problem, "invalid_request",
        "%s has `reserved` that is not zero: it was not initialized, or is meant "
        "for a library newer than %s",
        what, blasd_library_version());
}

int blasd_input_check(const struct blasd_array *array, struct blasd_problem *problem) {
    if (blasd_array_check(array, problem) != 0) return -1;
    if (HAS_RESERVED(array)) return blasd_refuse_reserved("an input", problem);
    if (array->data == NULL && blasd_array_bytes(array) > 0)
        return blasd_problem_set(problem, "invalid_tensor", "the input '%s' has no data",
                                 array->name);
    return 0;
}

static int check_inputs(const struct blasd_request *request, struct blasd_problem *problem) {
    for (int i = 0; i < request->file_count; i++) {
        const struct blasd_file *file = &request->files[i];
        if (file->name == NULL || file->path == NULL)
            return blasd_problem_set(problem, "invalid_request", "a file has no name or no path");
        if (HAS_RESERVED(file)) return blasd_refuse_reserved("a file", problem);
    }
    for (int i = 0; i < request->input_count; i++) {
        const struct blasd_array *array = &request->inputs[i];
        if (blasd_input_check(array, problem) != 0) return -1;
        for (int j = 0; j < i; j++)
            if (strcmp(array->name, request->inputs[j].name) == 0)
                return blasd_problem_set(problem, "invalid_request",
                                         "the input '%s' is given twice", array->name);
    }
    return 0;
}

/* A key goes into a header as it is. */
static int check_key(const char *key, struct blasd_problem *problem) {
    size_t len = key == NULL ? 1 : strlen(key);
    bool good = len >= 1 && len <= MOST_KEY;
    for (size_t i = 0; good && key != NULL && i < len; i++) good = !iscntrl((unsigned char)key[i]);
    if (good) return 0;
    return blasd_problem_set(problem, "invalid_request",
                             "an idempotency key is 1 to %d bytes without control characters",
                             MOST_KEY);
}

/* What would be followed or sent blindly. */
int blasd_request_check(const struct blasd_request *request, struct blasd_problem *problem) {
    if (request == NULL)
        return blasd_problem_set(problem, "invalid_request", "the request is NULL");
    if (HAS_RESERVED(request)) return blasd_refuse_reserved("the request", problem);
    if (request->op == NULL && request->steps == NULL)
        return blasd_problem_set(problem, "invalid_request", "the request has no op");
    if (request->steps != NULL && (request->op != NULL || request->params != NULL))
        return blasd_problem_set(problem, "invalid_request",
                                 "a job has op and params, a graph steps, and neither both");
    if (request->input_count < 0 || request->file_count < 0 ||
        (request->input_count > 0 && request->inputs == NULL) ||
        (request->file_count > 0 && request->files == NULL))
        return blasd_problem_set(problem, "invalid_request",
                                 "the request counts inputs, but has none");
    if ((request->input_count > 0) + (request->file_count > 0) + (request->shared != NULL) > 1)
        return blasd_problem_set(problem, "invalid_request",
                                 "the inputs come in one way: arrays, files or `shared`");
    if (request->deadline_ms < 0)
        return blasd_problem_set(problem, "invalid_request", "a deadline of %lld milliseconds",
                                 (long long)request->deadline_ms);
    if (check_key(request->idempotency_key, problem) != 0) return -1;
    return check_inputs(request, problem);
}

/* --- copies */

/* `*text` becomes a copy of what it points to; false where memory has run out. */
static bool own(const char **text) {
    if (*text == NULL) return true;
    *text = strdup(*text);
    return *text != NULL;
}

/* A copy of `count` things, at least one; NULL where memory has run out. */
static void *copy_of(const void *things, int count, size_t size) {
    void *copy = calloc((size_t)count + 1, size);
    if (copy != NULL && count > 0) memcpy(copy, things, (size_t)count * size);
    return copy;
}

/* The texts of the copied tables; what cannot be copied is left NULL. */
static bool own_inputs(struct blasd_array *inputs, int input_count, struct blasd_file *files,
                       int file_count) {
    bool good = true;
    size_t size;
    for (int i = 0; i < input_count; i++) {
        good = own(&inputs[i].name) && good;
        /* the table's own word for it, which stays */
        inputs[i].dtype = blasd_dtype_of_code(blasd_dtype_code(inputs[i].dtype, &size), &size);
    }
    for (int i = 0; i < file_count; i++) {
        good = own(&files[i].name) && good;
        good = own(&files[i].path) && good;
    }
    return good;
}

int blasd_request_copy(struct blasd_request *to, const struct blasd_request *from,
                       struct blasd_problem *problem) {
    struct blasd_array *inputs;
    struct blasd_file *files;
    bool good;
    *to = (struct blasd_request){0};
    if (blasd_request_check(from, problem) != 0) return -1;
    *to = *from;
    good = own(&to->op);
    good = own(&to->params) && good;
    good = own(&to->priority) && good;
    good = own(&to->device) && good;
    good = own(&to->idempotency_key) && good;
    good = own(&to->steps) && good;
    good = own(&to->results) && good;
    good = own(&to->labels) && good;
    good = own(&to->references) && good;
    good = own(&to->keep) && good;
    good = own(&to->notify) && good;
    to->inputs = inputs = copy_of(from->inputs, from->input_count, sizeof *inputs);
    to->files = files = copy_of(from->files, from->file_count, sizeof *files);
    if (inputs == NULL) to->input_count = 0;
    if (files == NULL) to->file_count = 0;
    good = own_inputs(inputs, to->input_count, files, to->file_count) && good;
    if (good && inputs != NULL && files != NULL) return 0;
    blasd_request_release(to);
    return blasd_refuse_memory(problem);
}

static void drop(const void *owned) {
    free((void *)(uintptr_t)owned);
}

void blasd_request_release(struct blasd_request *request) {
    for (int i = 0; i < request->input_count; i++) drop(request->inputs[i].name);
    for (int i = 0; i < request->file_count; i++) {
        drop(request->files[i].name);
        drop(request->files[i].path);
    }
    drop(request->inputs);
    drop(request->files);
    drop(request->op);
    drop(request->params);
    drop(request->priority);
    drop(request->device);
    drop(request->idempotency_key);
    drop(request->steps);
    drop(request->results);
    drop(request->labels);
    drop(request->references);
    drop(request->keep);
    drop(request->notify);
    *request = (struct blasd_request){0};
}

/* --- words */

static int add_text(json_t *words, const char *name, const char *value) {
    return value == NULL ? 0 : json_object_set_new(words, name, json_string(value));
}

json_t *blasd_request_words(const struct blasd_request *request, struct blasd_problem *problem) {
    json_t *words = json_object();
    char deadline[32];
    snprintf(deadline, sizeof deadline, "%lld", (long long)request->deadline_ms);
    if (add_text(words, "op", request->op) == 0 &&
        add_text(words, "params", request->params) == 0 &&
        add_text(words, "steps", request->steps) == 0 &&
        add_text(words, "results", request->results) == 0 &&
        add_text(words, "inputs", request->references) == 0 &&
        add_text(words, "keep", request->keep) == 0 &&
        add_text(words, "priority", request->priority) == 0 &&
        add_text(words, "device", request->device) == 0 &&
        add_text(words, "labels", request->labels) == 0 &&
        add_text(words, "notify", request->notify) == 0 &&
        add_text(words, "digest", request->digest ? "true" : NULL) == 0 &&
        add_text(words, "deadline_ms", request->deadline_ms != 0 ? deadline : NULL) == 0)
        return words;
    blasd_refuse_text(problem);
    json_decref(words);
    return NULL;
}
