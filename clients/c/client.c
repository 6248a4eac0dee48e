/* Requests and answers over libcurl. What they say is put together in client_message.c; files that
 * are shared with the service are made and mapped in client_share.c. */
#include "clients/c/internal.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAFETENSORS "application/x-safetensors"
#define DEFAULT_URL "http://127.0.0.1:8080"
#define SILENCE_S 60L /* a service that says nothing for so long beyond the wait is given up */

struct blasd_client {
    CURL *curl;
    pid_t owner;                        /* the process whose connections `curl` holds */
    char *base;                         /* the service's URL without a slash at its end */
    char *shown;                        /* the same without user and password, for messages */
    char *directory;                    /* where files are shared with the service; NULL: nowhere */
    char prefix[BLASD_SHARED_NAME + 1]; /* of their names */
};

/* An answer as it arrives. */
struct answer {
    unsigned char *data;
    size_t len, cap;
    FILE *file; /* where a good answer is to be written to, or NULL */
    CURL *curl;
    bool once; /* what is sent must not be sent again */
    bool sent;
};

/* libcurl sends a request again where a kept connection breaks before an answer has come. By then
 * the service may have taken the job: without a key it would run twice. */
static int before_sending(void *arg, char *to, char *from, int to_port, int from_port) {
    struct answer *answer = arg;
    bool again = answer->once && answer->sent;
    (void)to, (void)from, (void)to_port, (void)from_port;
    answer->sent = true;
    return again ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

static void global_init(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void hide_user(char *url) {
    char *scheme = strstr(url, "://"), *host = scheme == NULL ? url : scheme + 3, *at = NULL;
    size_t len = strcspn(host, "/?#");
    for (size_t i = 0; i < len; i++)
        if (host[i] == '@') at = host + i;
    if (at != NULL) memmove(host, at + 1, strlen(at + 1) + 1);
}

struct blasd_client *blasd_client_new(const char *url) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct blasd_client *client = calloc(1, sizeof *client);
    size_t len;
    if (url == NULL) url = getenv("BLASD_URL");
    if (url == NULL || *url == '\0') url = DEFAULT_URL;
    len = strlen(url);
    pthread_once(&once, global_init);
    if (client == NULL) return NULL;
    client->curl = curl_easy_init();
    client->owner = getpid();
    client->base = strdup(url);
    client->shown = strdup(url);
    if (client->curl == NULL || client->base == NULL || client->shown == NULL) {
        blasd_client_free(client);
        return NULL;
    }
    while (len > 0 && client->base[len - 1] == '/') client->base[--len] = '\0';
    hide_user(client->shown);
    return client;
}

void blasd_client_free(struct blasd_client *client) {
    if (client == NULL) return;
    if (client->curl != NULL && client->owner == getpid()) curl_easy_cleanup(client->curl);
    free(client->base);
    free(client->shown);
    free(client->directory);
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

/* After a fork the connections are the parent's: this process makes its own. The parent's are left
 * as they are, for to close one of TLS would say so to the service. */
static void own_connections(struct blasd_client *client) {
    CURL *fresh = client->owner == getpid() ? NULL : curl_easy_init();
    if (fresh == NULL) return;
    client->curl = fresh;
    client->owner = getpid();
}

/* `wait`: seconds for which the service may be silent on purpose. */
static void prepare(struct blasd_client *client, const char *path, double wait,
                    struct answer *answer, struct curl_slist *headers) {
    char *url = NULL;
    own_connections(client);
    curl_easy_reset(client->curl); /* keeps the connection */
    curl_easy_setopt(client->curl, CURLOPT_FRESH_CONNECT, client->owner == getpid() ? 0L : 1L);
    if (asprintf(&url, "%s%s", client->base, path) >= 0) {
        curl_easy_setopt(client->curl, CURLOPT_URL, url); /* copies it */
        free(url);
    }
    curl_easy_setopt(client->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(client->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(client->curl, CURLOPT_LOW_SPEED_TIME, SILENCE_S + (long)wait);
    curl_easy_setopt(client->curl, CURLOPT_CONNECTTIMEOUT, SILENCE_S);
    curl_easy_setopt(client->curl, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(client->curl, CURLOPT_PREREQFUNCTION, before_sending);
    curl_easy_setopt(client->curl, CURLOPT_PREREQDATA, answer);
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
    curl_off_t seconds = 0;
    if (code != CURLE_OK) {
        bool taken = answer->once && answer->sent;
        blasd_problem_set(problem, "connection_failed", "%s: %s%s", client->shown,
                          code == CURLE_ABORTED_BY_CALLBACK ? "the connection broke"
                                                            : curl_easy_strerror(code),
                          taken ? ". The service may have taken the job: under an idempotency_key "
                                  "it is safe to send it again"
                                : "");
        problem->retry = true;
        return -1;
    }
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200 || status == 202) return 0;
    blasd_problem_parse(problem, status, answer->data == NULL ? (unsigned char *)"" : answer->data,
                        answer->len);
    if (curl_easy_getinfo(client->curl, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK)
        problem->retry_after = (double)seconds;
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

static void post_arrays(struct blasd_client *client, struct blasd_upload *upload) {
    curl_easy_setopt(client->curl, CURLOPT_POST, 1L);
    curl_easy_setopt(client->curl, CURLOPT_READFUNCTION, blasd_upload_read);
    curl_easy_setopt(client->curl, CURLOPT_READDATA, upload);
    curl_easy_setopt(client->curl, CURLOPT_SEEKFUNCTION, blasd_upload_seek);
    curl_easy_setopt(client->curl, CURLOPT_SEEKDATA, upload);
    curl_easy_setopt(client->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)upload->total);
}

static curl_mime *post_files(struct blasd_client *client, const struct blasd_request *request,
                             struct blasd_problem *problem) {
    json_t *words = blasd_request_words(request, problem), *word;
    curl_mime *form;
    const char *name;
    if (words == NULL) return NULL;
    form = curl_mime_init(client->curl);
    json_object_foreach(words, name, word) {
        curl_mimepart *part = curl_mime_addpart(form);
        curl_mime_name(part, name);
        curl_mime_data(part, json_string_value(word), CURL_ZERO_TERMINATED); /* copies it */
    }
    json_decref(words);
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

static int ask(struct blasd_client *client, const char *method, const char *path,
               const char *accept, double wait, struct blasd_reply **ret,
               struct blasd_problem *problem) {
    struct curl_slist *headers = curl_slist_append(NULL, accept);
    struct answer answer = {0};
    int code;
    *ret = NULL;
    if (client->directory != NULL) headers = curl_slist_append(headers, "Prefer: share");
    prepare(client, path, wait, &answer, headers);
    curl_easy_setopt(client->curl, CURLOPT_CUSTOMREQUEST, method);
    code = receive(client, &answer, ret, problem);
    curl_slist_free_all(headers);
    return code;
}

/* The whole result, as bytes. */
static int fetch(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                 struct blasd_problem *problem) {
    char path[128];
    snprintf(path, sizeof path, "/jobs/%.64s/result", id);
    return ask(client, "GET", path, "Accept: " SAFETENSORS, 0, ret, problem);
}

/* Headers of every job that is sent; takes `headers` over. */
static struct curl_slist *job_headers(struct curl_slist *headers,
                                      const struct blasd_request *request) {
    char key[192];
    headers = curl_slist_append(headers, "Expect:");
    if (request->idempotency_key == NULL) return headers;
    snprintf(key, sizeof key, "Idempotency-Key: %s", request->idempotency_key);
    return curl_slist_append(headers, key);
}

static int submit_body(struct blasd_client *client, const struct blasd_request *request,
                       double wait_seconds, struct blasd_reply **ret,
                       struct blasd_problem *problem) {
    struct curl_slist *headers = NULL;
    struct answer answer = {.once = request->idempotency_key == NULL};
    const struct blasd_shared *shared = request->shared; /* that the service did not take */
    int count = shared == NULL ? request->input_count : shared->array_count;
    struct blasd_upload upload = {.arrays = shared == NULL ? request->inputs : shared->arrays};
    unsigned char *header = NULL;
    json_t *words;
    curl_mime *form = NULL;
    char path[64] = "/jobs";
    int code = -1;
    if (wait_seconds > 0) snprintf(path, sizeof path, "/jobs?wait=%.3f", wait_seconds);
    headers = curl_slist_append(NULL, "Accept: " SAFETENSORS ", application/json;q=0.5");
    headers = job_headers(headers, request);
    prepare(client, path, wait_seconds, &answer, NULL);
    if (shared == NULL && request->file_count > 0) {
        form = post_files(client, request, problem);
        if (form == NULL) goto done;
    } else {
        words = blasd_request_words(request, problem);
        if (words == NULL) goto done;
        header = blasd_tensors_header(upload.arrays, count, 1, words, &upload.header_len,
                                      &upload.total, problem);
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

/* The path of a job whose inputs lie in a file: that has tensors alone, the query says the rest.
 * New; NULL and `problem` where there is none. */
static char *path_of_job(CURL *curl, const struct blasd_request *request, double wait_seconds,
                         struct blasd_problem *problem) {
    json_t *words = blasd_request_words(request, problem), *word;
    char *path = NULL;
    const char *name;
    size_t len = 0;
    FILE *out;
    if (words == NULL) return NULL;
    out = open_memstream(&path, &len);
    if (out != NULL) {
        fprintf(out, "/jobs?wait=%.3f", wait_seconds > 0 ? wait_seconds : 0.0);
        json_object_foreach(words, name, word) {
            char *escaped = curl_easy_escape(curl, json_string_value(word), 0);
            if (escaped != NULL) fprintf(out, "&%s=%s", name, escaped);
            curl_free(escaped);
        }
        fclose(out);
    }
    json_decref(words);
    if (path == NULL) blasd_problem_set(problem, "out_of_memory", "no memory for the request");
    return path;
}

static int submit_file(struct blasd_client *client, const struct blasd_request *request,
                       const struct blasd_shared *shared, double wait_seconds,
                       struct blasd_reply **ret, struct blasd_problem *problem) {
    struct curl_slist *headers = NULL;
    struct answer answer = {.once = request->idempotency_key == NULL};
    char name[16 + sizeof shared->name];
    char *path = path_of_job(client->curl, request, wait_seconds, problem);
    int code;
    if (path == NULL) return -1;
    snprintf(name, sizeof name, "Body-File: %s", shared->name);
    headers = curl_slist_append(NULL, "Accept: application/json");
    headers = curl_slist_append(headers, "Content-Type: " SAFETENSORS);
    headers = curl_slist_append(headers, "Prefer: share");
    headers = job_headers(curl_slist_append(headers, name), request);
    prepare(client, path, wait_seconds, &answer, headers);
    curl_easy_setopt(client->curl, CURLOPT_POST, 1L);
    curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, "");
    code = receive(client, &answer, ret, problem);
    curl_slist_free_all(headers);
    free(path);
    return code;
}

int blasd_client_complete(struct blasd_client *client, struct blasd_reply **reply,
                          struct blasd_problem *problem) {
    struct blasd_reply *fetched = NULL;
    if ((*reply)->complete || strcmp(blasd_reply_state(*reply), "succeeded") != 0) return 0;
    if (client->directory != NULL && blasd_reply_map(*reply, client->directory)) return 0;
    if (fetch(client, blasd_reply_id(*reply), &fetched, problem) != 0) return -1;
    blasd_reply_free(*reply);
    *reply = fetched;
    return 0;
}

/* The service shares nothing (any more), or has another directory. */
static bool takes_no_file(const struct blasd_problem *problem) {
    return strcmp(problem->code, "sharing_off") == 0 ||
           strcmp(problem->code, "body_file_refused") == 0;
}

static void stop_sharing(struct blasd_client *client) {
    free(client->directory);
    client->directory = NULL;
}

/* What would be followed or sent blindly. */
static int check_request(const struct blasd_request *request, struct blasd_problem *problem) {
    if (request->op == NULL)
        return blasd_problem_set(problem, "invalid_request", "the request has no op");
    if ((request->input_count > 0 && request->inputs == NULL) ||
        (request->file_count > 0 && request->files == NULL))
        return blasd_problem_set(problem, "invalid_request",
                                 "the request counts inputs, but has none");
    for (int i = 0; i < request->file_count; i++)
        if (request->files[i].name == NULL || request->files[i].path == NULL)
            return blasd_problem_set(problem, "invalid_request", "a file has no name or no path");
    for (int i = 0; i < request->input_count; i++) {
        const struct blasd_array *array = &request->inputs[i];
        if (blasd_array_check(array, problem) != 0) return -1;
        if (array->data == NULL && blasd_array_bytes(array) > 0)
            return blasd_problem_set(problem, "invalid_tensor", "the input '%s' has no data",
                                     array->name);
    }
    return 0;
}

int blasd_client_submit(struct blasd_client *client, const struct blasd_request *request,
                        double wait_seconds, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    const struct blasd_shared *shared = request->shared;
    struct blasd_shared *copy = NULL;
    int code;
    *ret = NULL;
    if (check_request(request, problem) != 0) return -1;
    if (shared == NULL && client->directory != NULL)
        shared = copy = blasd_shared_copy(client->directory, client->prefix, request);
    if (shared == NULL)
        code = submit_body(client, request, wait_seconds, ret, problem);
    else
        code = submit_file(client, request, shared, wait_seconds, ret, problem);
    blasd_shared_free(copy); /* a job that was taken has a name of its own for it */
    if (code != 0 && shared != NULL && takes_no_file(problem)) {
        if (copy != NULL) stop_sharing(client);
        code = submit_body(client, request, wait_seconds, ret, problem);
    }
    if (code != 0 || blasd_client_complete(client, ret, problem) == 0) return code;
    blasd_reply_free(*ret);
    *ret = NULL;
    return -1;
}

int blasd_client_get(struct blasd_client *client, const char *id, double wait_seconds,
                     struct blasd_reply **ret, struct blasd_problem *problem) {
    char path[128];
    snprintf(path, sizeof path, wait_seconds > 0 ? "/jobs/%.64s?wait=%.3f" : "/jobs/%.64s", id,
             wait_seconds);
    return ask(client, "GET", path, "Accept: application/json", wait_seconds, ret, problem);
}

int blasd_client_result(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    if (client->directory != NULL && blasd_client_get(client, id, 0, ret, problem) == 0) {
        if (blasd_reply_map(*ret, client->directory)) return 0;
        blasd_reply_free(*ret);
    }
    return fetch(client, id, ret, problem);
}

int blasd_client_cancel(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    char path[128];
    snprintf(path, sizeof path, "/jobs/%.64s", id);
    return ask(client, "DELETE", path, "Accept: application/json", 0, ret, problem);
}

int blasd_client_forget(struct blasd_client *client, const char *id, struct blasd_reply **ret,
                        struct blasd_problem *problem) {
    char path[128];
    snprintf(path, sizeof path, "/jobs/%.64s?forget=1", id);
    return ask(client, "DELETE", path, "Accept: application/json", 0, ret, problem);
}

int blasd_client_ops(struct blasd_client *client, struct blasd_reply **ret,
                     struct blasd_problem *problem) {
    return ask(client, "GET", "/ops", "Accept: application/json", 0, ret, problem);
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
    prepare(client, url_path, 0, &answer, headers);
    code = perform(client, &answer, problem);
    if (fclose(answer.file) != 0 && code == 0)
        code =
            blasd_problem_set(problem, "file_not_writable", "the file %s cannot be written", path);
    if (code != 0) blasd_remove_partial(path);
done:
    free(answer.data);
    curl_slist_free_all(headers);
    return code;
}

/* Whether we may use the directory and it holds a blob store's mark: the service's word alone would
 * let it choose any directory of ours. */
static bool is_blob_directory(const char *directory) {
    char *mark;
    struct stat info;
    if (asprintf(&mark, "%s/.store", directory) < 0) return false;
    bool is = access(directory, R_OK | W_OK | X_OK) == 0 && lstat(mark, &info) == 0 &&
              S_ISREG(info.st_mode);
    free(mark);
    return is;
}

static int refuse_directory(struct blasd_problem *problem, const char *directory) {
    return blasd_problem_set(problem, "sharing_off",
                             "the service's directory %s cannot be used from here: it is another "
                             "machine's, or another user's",
                             directory);
}

int blasd_client_share(struct blasd_client *client, struct blasd_problem *problem) {
    struct blasd_reply *reply = NULL;
    const char *directory, *prefix;
    int code = -1;
    stop_sharing(client);
    if (ask(client, "GET", "/share", "Accept: application/json", 0, &reply, problem) != 0)
        return -1;
    directory = json_string_value(json_object_get(reply->document, "directory"));
    prefix = json_string_value(json_object_get(reply->document, "prefix"));
    snprintf(client->prefix, sizeof client->prefix, "%s", prefix == NULL ? "" : prefix);
    if (directory == NULL)
        blasd_problem_set(problem, "bad_answer", "the service's answer could not be read");
    else if (!is_blob_directory(directory))
        refuse_directory(problem, directory);
    else if ((client->directory = strdup(directory)) == NULL)
        blasd_problem_set(problem, "out_of_memory", "no memory for the directory's name");
    else
        code = 0;
    blasd_reply_free(reply);
    return code;
}

int blasd_shared_new(struct blasd_client *client, const struct blasd_array *specs, int count,
                     struct blasd_shared **ret, struct blasd_problem *problem) {
    *ret = NULL;
    if (client->directory == NULL)
        return blasd_problem_set(problem, "sharing_off",
                                 "the client shares nothing: call blasd_client_share first");
    if (blasd_shared_open(client->directory, client->prefix, ret, problem) != 0) return -1;
    if (blasd_shared_lay_out(*ret, specs, count, problem) == 0) return 0;
    blasd_shared_free(*ret);
    *ret = NULL;
    return -1;
}
