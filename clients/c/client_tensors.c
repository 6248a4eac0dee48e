/* Tensors that stay at the service: kept, looked at, fetched, forgotten. docs/tensors.md tells what
 * they are for; a request's `references` name them. */
#include "clients/c/internal.h"

#include <stdio.h>
#include <string.h>

#define NAME "tensor" /* of the one that is sent: the service keeps no names */

/* --- documents */

static void copy_text(char *out, size_t room, const json_t *document, const char *name) {
    const char *text = json_string_value(json_object_get(document, name));
    snprintf(out, room, "%s", text == NULL ? "" : text);
}

static int64_t number_of(const json_t *document, const char *name) {
    return json_integer_value(json_object_get(document, name));
}

/* False where it describes no tensor. */
static bool read_tensor(const json_t *document, struct blasd_tensor_info *ret) {
    const json_t *shape = json_object_get(document, "shape");
    memset(ret, 0, sizeof *ret);
    copy_text(ret->id, sizeof ret->id, document, "id");
    copy_text(ret->dtype, sizeof ret->dtype, document, "dtype");
    copy_text(ret->expires_at, sizeof ret->expires_at, document, "expires_at");
    copy_text(ret->location, sizeof ret->location, document, "location");
    copy_text(ret->sha256, sizeof ret->sha256, document, "sha256");
    ret->bytes = number_of(document, "bytes");
    ret->life_s = number_of(document, "life_s");
    return ret->id[0] != '\0' && blasd_shape_read(shape, &ret->rank, ret->shape);
}

bool blasd_reply_tensor(const struct blasd_reply *reply, const char *output,
                        struct blasd_tensor_info *ret) {
    const json_t *outputs = json_object_get(blasd_reply_json(reply), "outputs");
    return read_tensor(json_object_get(json_object_get(outputs, output), "tensor"), ret);
}

/* Sends what is asked and reads the tensor of the answer, which is it or has it by name. */
static int ask_tensor(struct blasd_client *client, const struct blasd_question *question,
                      struct blasd_tensor_info *ret, struct blasd_problem *problem) {
    struct blasd_reply *reply = NULL;
    const json_t *document;
    int code = blasd_client_ask(client, question, &reply, problem);
    memset(ret, 0, sizeof *ret);
    if (code != 0) return code;
    document = json_object_get(json_object_get(blasd_reply_json(reply), "tensors"), NAME);
    if (!read_tensor(document != NULL ? document : blasd_reply_json(reply), ret))
        code = blasd_refuse_document(problem, reply->text, strlen(reply->text));
    blasd_reply_free(reply);
    return code;
}

/* --- keeping */

static int check_put(const struct blasd_put *put, struct blasd_problem *problem) {
    for (size_t i = 0; i < sizeof put->reserved / sizeof *put->reserved; i++)
        if (put->reserved[i] != 0) return blasd_refuse_reserved("the tensor to keep", problem);
    if ((put->array == NULL) == (put->path == NULL))
        return blasd_problem_set(problem, "invalid_request",
                                 "an array or the path of a .npy file is to be kept, one of them");
    if (put->life_s < 0)
        return blasd_problem_set(problem, "invalid_request", "a life of %lld seconds",
                                 (long long)put->life_s);
    return 0;
}

int blasd_tensor_put(struct blasd_client *client, const struct blasd_put *put,
                     struct blasd_tensor_info *ret, struct blasd_problem *problem) {
    struct blasd_file file = {.name = NAME, .path = put->path};
    struct blasd_array array = {0};
    struct blasd_request body = {.files = &file, .file_count = 1};
    struct blasd_question question = {.body = &body, .once = true};
    char path[BLASD_PATH], life[48] = "";
    memset(ret, 0, sizeof *ret);
    if (check_put(put, problem) != 0) return -1;
    if (put->array != NULL) {
        array = *put->array;
        array.name = NAME;
        body = (struct blasd_request){.inputs = &array, .input_count = 1};
        if (blasd_input_check(&array, problem) != 0) return -1;
    }
    if (put->life_s > 0)
        snprintf(life, sizeof life, "%clife_s=%lld", put->sha256 ? '&' : '?',
                 (long long)put->life_s);
    snprintf(path, sizeof path, "/tensors%s%s", put->sha256 ? "?sha256=1" : "", life);
    question.path = path;
    return ask_tensor(client, &question, ret, problem);
}

/* --- what becomes of one */

static int ask_of(struct blasd_client *client, const char *method, const char *id, const char *json,
                  struct blasd_tensor_info *ret, struct blasd_problem *problem) {
    char path[BLASD_PATH];
    struct blasd_question question = {.method = method, .path = path, .json = json};
    int code = blasd_id_path(path, BLASD_OF_TENSOR, id, "", problem);
    memset(ret, 0, sizeof *ret); /* now that the id, which may lie there, is in the path */
    if (code != 0) return code;
    return ask_tensor(client, &question, ret, problem);
}

int blasd_tensor_look(struct blasd_client *client, const char *id, struct blasd_tensor_info *ret,
                      struct blasd_problem *problem) {
    return ask_of(client, "GET", id, NULL, ret, problem);
}

int blasd_tensor_prolong(struct blasd_client *client, const char *id, int64_t life_s,
                         struct blasd_tensor_info *ret, struct blasd_problem *problem) {
    char json[48];
    snprintf(json, sizeof json, "{\"life_s\":%lld}", (long long)life_s);
    return ask_of(client, "PATCH", id, json, ret, problem);
}

int blasd_tensor_delete(struct blasd_client *client, const char *id,
                        struct blasd_problem *problem) {
    struct blasd_tensor_info last;
    return ask_of(client, "DELETE", id, NULL, &last, problem);
}

int blasd_tensor_get(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                     struct blasd_problem *problem) {
    char path[BLASD_PATH];
    struct blasd_question question = {
        .method = "GET", .path = path, .accept = "application/x-safetensors"};
    *ret = NULL;
    if (blasd_id_path(path, BLASD_OF_TENSOR, id, "", problem) != 0) return -1;
    return blasd_client_ask(client, &question, ret, problem);
}

int blasd_tensor_save(struct blasd_client *client, const char *id, const char *path,
                      struct blasd_problem *problem) {
    char url_path[BLASD_PATH];
    struct blasd_question question = {
        .method = "GET", .path = url_path, .accept = "application/x-npy", .to = path};
    if (path == NULL) return blasd_refuse_no_path(problem);
    if (blasd_id_path(url_path, BLASD_OF_TENSOR, id, "", problem) != 0) return -1;
    return blasd_client_ask(client, &question, NULL, problem);
}

int blasd_client_tensors(struct blasd_client *client, const char *query, struct blasd_reply **ret,
                         struct blasd_problem *problem) {
    return blasd_client_list(client, "GET", "/tensors", query, ret, problem);
}
