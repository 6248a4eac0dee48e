/* Requests and answers over libcurl. What they say is put together in client_message.c. */
#include "clients/c/internal.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAFETENSORS "application/x-safetensors"
#define LONGEST_WAIT 20.0 /* one request of blasd_client_run holds the connection no longer */

struct blasd_client {
    CURL *curl;
    char *base; /* the service's URL without a slash at its end */
};

/* An answer as it arrives. */
struct answer {
    unsigned char *data;
    size_t len, cap;
    FILE *file; /* where a good answer is to be written to, or NULL */
    CURL *curl;
};

/* A request body on its way out: a header, then the arrays where they lie. */
struct upload {
    const struct blasd_array *arrays;
    const unsigned char *header;
    size_t header_len;
    uint64_t total, sent;
};

static void global_init(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

struct blasd_client *blasd_client_new(const char *url) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct blasd_client *client = calloc(1, sizeof *client);
    size_t len = strlen(url);
    pthread_once(&once, global_init);
    if (client == NULL) return NULL;
    client->curl = curl_easy_init();
    client->base = strdup(url);
    if (client->curl == NULL || client->base == NULL) {
        blasd_client_free(client);
        return NULL;
    }
    while (len > 0 && client->base[len - 1] == '/') client->base[--len] = '\0';
    return client;
}

void blasd_client_free(struct blasd_client *client) {
    if (client == NULL) return;
    if (client->curl != NULL) curl_easy_cleanup(client->curl);
    free(client->base);
    free(client);
}

static size_t on_answer(char *data, size_t size, size_t count, void *arg) {
    struct answer *answer = arg;
    size_t more = size * count;
    long status = 0;
    curl_easy_getinfo(answer->curl, CURLINFO_RESPONSE_CODE, &status);
    if (answer->file != NULL && status == 200) return fwrite(data, 1, more, answer->file);
    if (answer->len + more > answer->cap) {
        size_t cap = answer->cap < 4096 ? 8192 : answer->cap * 2;
        unsigned char *grown;
        curl_off_t length = 0;
        /* one allocation where the length is known */
        curl_easy_getinfo(answer->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
        if (length > 0 && answer->cap == 0) cap = (size_t)length;
        if (cap < answer->len + more) cap = answer->len + more;
        grown = realloc(answer->data, cap);
        if (grown == NULL) return 0;
        answer->data = grown;
        answer->cap = cap;
    }
    memcpy(answer->data + answer->len, data, more);
    answer->len += more;
    return more;
}

static uint64_t bytes_of(const struct blasd_array *array) {
    size_t size = 0;
    uint64_t bytes;
    blasd_dtype_code(array->dtype, &size);
    bytes = size;
    for (int i = 0; i < array->rank; i++) bytes *= (uint64_t)array->shape[i];
    return bytes;
}

/* Copies what lies at `sent` of a region that starts at `from`; 0 where it lies elsewhere. */
static size_t copy_region(const struct upload *upload, uint64_t from, const void *bytes,
                          uint64_t len, char *out, size_t room) {
    uint64_t at = upload->sent - from;
    if (upload->sent < from || at >= len) return 0;
    if (room > len - at) room = (size_t)(len - at);
    memcpy(out, (const char *)bytes + at, room);
    return room;
}

static size_t on_upload(char *out, size_t size, size_t count, void *arg) {
    struct upload *upload = arg;
    size_t room = size * count, n;
    uint64_t from = upload->header_len;
    if (upload->sent >= upload->total) return 0;
    n = copy_region(upload, 0, upload->header, upload->header_len, out, room);
    for (const struct blasd_array *array = upload->arrays; n == 0; array++) {
        n = copy_region(upload, from, array->data, bytes_of(array), out, room);
        from += bytes_of(array);
    }
    upload->sent += n;
    return n;
}

/* libcurl rewinds when it sends a body again on a fresh connection. */
static int on_seek(void *arg, curl_off_t offset, int origin) {
    struct upload *upload = arg;
    if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
    upload->sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

static void prepare(struct blasd_client *client, const char *path, struct answer *answer,
                    struct curl_slist *headers) {
    char url[1024];
    snprintf(url, sizeof url, "%s%s", client->base, path);
    curl_easy_reset(client->curl); /* keeps the connection */
    curl_easy_setopt(client->curl, CURLOPT_URL, url);
    curl_easy_setopt(client->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(client->curl, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(client->curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(client->curl, CURLOPT_BUFFERSIZE, 524288L);
    curl_easy_setopt(client->curl, CURLOPT_UPLOAD_BUFFERSIZE, 2097152L);
    answer->curl = client->curl;
}

/* Sends what was prepared; fills `problem` unless the status is 200 or 202. */
static int perform(struct blasd_client *client, struct answer *answer,
                   struct blasd_problem *problem) {
    CURLcode code = curl_easy_perform(client->curl);
    long status = 0;
    if (code != CURLE_OK) {
        blasd_problem_set(problem, "connection_failed", "%s: %s", client->base,
                          curl_easy_strerror(code));
        problem->retry = true;
        return -1;
    }
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200 || status == 202) return 0;
    blasd_problem_parse(problem, status, answer->data == NULL ? (unsigned char *)"" : answer->data,
                        answer->len);
    return -1;
}

static int receive(struct blasd_client *client, struct answer *answer, struct blasd_reply **ret,
                   struct blasd_problem *problem) {
    const char *type = NULL;
    if (perform(client, answer, problem) != 0) {
        free(answer->data);
        return -1;
    }
    curl_easy_getinfo(client->curl, CURLINFO_CONTENT_TYPE, &type);
    *ret = blasd_reply_parse(answer->data, answer->len,
                             type != NULL && strncmp(type, SAFETENSORS, strlen(SAFETENSORS)) == 0,
                             problem);
    return *ret == NULL ? -1 : 0;
}

static void post_arrays(struct blasd_client *client, struct upload *upload) {
    curl_easy_setopt(client->curl, CURLOPT_POST, 1L);
    curl_easy_setopt(client->curl, CURLOPT_READFUNCTION, on_upload);
    curl_easy_setopt(client->curl, CURLOPT_READDATA, upload);
    curl_easy_setopt(client->curl, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(client->curl, CURLOPT_SEEKDATA, upload);
    curl_easy_setopt(client->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)upload->total);
}

static void add_field(curl_mime *form, const char *name, const char *value) {
    curl_mimepart *part;
    if (value == NULL) return;
    part = curl_mime_addpart(form);
    curl_mime_name(part, name);
    curl_mime_data(part, value, CURL_ZERO_TERMINATED);
}

static curl_mime *post_files(struct blasd_client *client, const struct blasd_request *request,
                             struct blasd_problem *problem) {
    curl_mime *form = curl_mime_init(client->curl);
    char deadline[32];
    snprintf(deadline, sizeof deadline, "%lld", (long long)request->deadline_ms);
    add_field(form, "op", request->op);
    add_field(form, "params", request->params);
    add_field(form, "priority", request->priority);
    add_field(form, "device", request->device);
    if (request->deadline_ms != 0) add_field(form, "deadline_ms", deadline);
    for (int i = 0; i < request->file_count; i++) {
        curl_mimepart *part = curl_mime_addpart(form);
        curl_mime_name(part, request->files[i].name);
        if (curl_mime_filedata(part, request->files[i].path) != CURLE_OK) {
            blasd_problem_set(problem, "file_not_readable", "the file %s cannot be read",
                              request->files[i].path);
            curl_mime_free(form);
            return NULL;
        }
    }
    curl_easy_setopt(client->curl, CURLOPT_MIMEPOST, form);
    return form;
}

int blasd_client_submit(struct blasd_client *client, const struct blasd_request *request,
                        double wait_seconds, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    struct curl_slist *headers = NULL;
    struct answer answer = {0};
    struct upload upload = {.arrays = request->inputs};
    unsigned char *header = NULL;
    curl_mime *form = NULL;
    char path[64] = "/jobs", key[192];
    int code = -1;
    *ret = NULL;
    if (wait_seconds > 0) snprintf(path, sizeof path, "/jobs?wait=%.3f", wait_seconds);
    headers = curl_slist_append(headers, "Accept: " SAFETENSORS ", application/json;q=0.5");
    headers = curl_slist_append(headers, "Expect:");
    if (request->idempotency_key != NULL) {
        snprintf(key, sizeof key, "Idempotency-Key: %s", request->idempotency_key);
        headers = curl_slist_append(headers, key);
    }
    prepare(client, path, &answer, NULL);
    if (request->file_count > 0) {
        form = post_files(client, request, problem);
        if (form == NULL) goto done;
    } else {
        header = blasd_request_header(request, &upload.header_len, &upload.total, problem);
        if (header == NULL) goto done;
        upload.header = header;
        upload.total += upload.header_len;
        headers = curl_slist_append(headers, "Content-Type: " SAFETENSORS);
        post_arrays(client, &upload);
    }
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, headers);
    code = receive(client, &answer, ret, problem);
done:
    curl_mime_free(form);
    free(header);
    curl_slist_free_all(headers);
    return code;
}

static int ask(struct blasd_client *client, const char *method, const char *path,
               const char *accept, struct blasd_reply **ret, struct blasd_problem *problem) {
    struct curl_slist *headers = curl_slist_append(NULL, accept);
    struct answer answer = {0};
    int code;
    *ret = NULL;
    prepare(client, path, &answer, headers);
    curl_easy_setopt(client->curl, CURLOPT_CUSTOMREQUEST, method);
    code = receive(client, &answer, ret, problem);
    curl_slist_free_all(headers);
    return code;
}

int blasd_client_get(struct blasd_client *client, const char *id, double wait_seconds,
                     struct blasd_reply **ret, struct blasd_problem *problem) {
    char path[128];
    snprintf(path, sizeof path, wait_seconds > 0 ? "/jobs/%.64s?wait=%.3f" : "/jobs/%.64s", id,
             wait_seconds);
    return ask(client, "GET", path, "Accept: application/json", ret, problem);
}

int blasd_client_result(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    char path[128];
    snprintf(path, sizeof path, "/jobs/%.64s/result", id);
    return ask(client, "GET", path, "Accept: " SAFETENSORS, ret, problem);
}

int blasd_client_cancel(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    char path[128];
    snprintf(path, sizeof path, "/jobs/%.64s", id);
    return ask(client, "DELETE", path, "Accept: application/json", ret, problem);
}

int blasd_client_save(struct blasd_client *client, const char *id, const char *output,
                      const char *path, struct blasd_problem *problem) {
    struct curl_slist *headers = curl_slist_append(NULL, "Accept: application/x-npy");
    struct answer answer = {0};
    char url_path[192];
    int code = -1;
    snprintf(url_path, sizeof url_path, "/jobs/%.64s/outputs/%.64s", id, output);
    answer.file = fopen(path, "wb");
    if (answer.file == NULL) {
        blasd_problem_set(problem, "file_not_writable", "the file %s cannot be written", path);
        goto done;
    }
    prepare(client, url_path, &answer, headers);
    code = perform(client, &answer, problem);
    if (fclose(answer.file) != 0 && code == 0)
        code =
            blasd_problem_set(problem, "file_not_writable", "the file %s cannot be written", path);
    if (code != 0) remove(path);
done:
    free(answer.data);
    curl_slist_free_all(headers);
    return code;
}

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Cancels a job that nobody waits for any more, whatever comes of it. */
static void abandon(struct blasd_client *client, const char *id) {
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    if (blasd_client_cancel(client, id, &reply, &problem) == 0) blasd_reply_free(reply);
}

/* Asks again until the job has ended; `*reply` is replaced by newer ones. */
static int wait_for_end(struct blasd_client *client, double end, double step,
                        blasd_progress_fn progress, void *arg, struct blasd_reply **reply,
                        struct blasd_problem *problem) {
    while (!blasd_reply_ended(*reply)) {
        struct blasd_reply *next = NULL;
        double left = end - now_seconds();
        if (progress != NULL &&
            !progress(arg, blasd_reply_state(*reply), blasd_reply_progress(*reply))) {
            abandon(client, blasd_reply_id(*reply));
            return blasd_problem_set(problem, "cancelled", "the job was cancelled");
        }
        if (left <= 0) {
            abandon(client, blasd_reply_id(*reply));
            blasd_problem_set(problem, "timeout", "the job did not end in time and was cancelled");
            problem->retry = true;
            return -1;
        }
        if (blasd_client_get(client, blasd_reply_id(*reply), left < step ? left : step, &next,
                             problem) != 0)
            return -1;
        blasd_reply_free(*reply);
        *reply = next;
    }
    return 0;
}

int blasd_client_run(struct blasd_client *client, const struct blasd_request *request,
                     double timeout_seconds, blasd_progress_fn progress, void *arg,
                     struct blasd_reply **ret, struct blasd_problem *problem) {
    double end = now_seconds() + timeout_seconds, step = progress != NULL ? 0.5 : LONGEST_WAIT;
    struct blasd_reply *reply = NULL, *result = NULL;
    *ret = NULL;
    if (blasd_client_submit(client, request, timeout_seconds < step ? timeout_seconds : step,
                            &reply, problem) != 0)
        return -1;
    if (wait_for_end(client, end, step, progress, arg, &reply, problem) != 0) goto fail;
    if (blasd_reply_failed(reply, problem)) goto fail;
    if (reply->header == NULL) { /* it ended while we asked for its state */
        if (blasd_client_result(client, blasd_reply_id(reply), &result, problem) != 0) goto fail;
        blasd_reply_free(reply);
        reply = result;
    }
    *ret = reply;
    return 0;
fail:
    blasd_reply_free(reply);
    return -1;
}
