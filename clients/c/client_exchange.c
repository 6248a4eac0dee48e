/* One request and its answer, put on a handle of libcurl and read from it; who performs it, and
 * waits, is not known here. What is said is put together in client_message.c. */
#include "clients/c/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAFETENSORS "application/x-safetensors"
#define CONNECT_S 60L
#define IDLE_S                                                                                     \
    45L /* a connection that idled longer is not used again: the service is about to end it */
#define SMALL_BODY 60000               /* bytes: what libcurl joins with the head is below 64 KiB */
#define LARGE_BODY (UINT64_C(1) << 20) /* from so many bytes on buffers are large, too */

static void add_header(struct blasd_exchange *exchange, const char *line) {
    struct curl_slist *longer = curl_slist_append(exchange->headers, line);
    if (longer == NULL)
        exchange->failed = true;
    else
        exchange->headers = longer;
}

static void add_headers(struct blasd_exchange *exchange, const struct curl_slist *lines) {
    for (; lines != NULL; lines = lines->next) add_header(exchange, lines->data);
}

/* libcurl sends a request again where a kept connection breaks before an answer has come. By then
 * the service may have taken the job: without a key it would run twice. */
static int before_sending(void *arg, char *to, char *from, int to_port, int from_port) {
    struct blasd_exchange *exchange = arg;
    bool again = exchange->once && exchange->sent;
    (void)to, (void)from, (void)to_port, (void)from_port;
    exchange->sent = true;
    return again ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/* Into the file, which is made with the first bytes: what is there stays where the service refuses.
 */
static size_t write_file(struct blasd_exchange *exchange, const char *data, size_t len) {
    errno = 0;
    if (exchange->file == NULL) exchange->file = fopen(exchange->path, "wb");
    if (exchange->file != NULL && fwrite(data, 1, len, exchange->file) == len) return len;
    exchange->file_error = errno != 0 ? errno : EIO;
    return 0;
}

static bool make_room(struct blasd_exchange *exchange, size_t more) {
    size_t cap = exchange->cap < 4096 ? 8192 : exchange->cap * 2;
    unsigned char *grown;
    curl_off_t length = 0;
    if (exchange->len + more <= exchange->cap) return true;
    /* one allocation where the length is known */
    curl_easy_getinfo(exchange->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length > 0 && exchange->cap == 0) cap = (size_t)length;
    if (cap < exchange->len + more) cap = exchange->len + more;
    grown = realloc(exchange->data, cap);
    if (grown == NULL) return false;
    exchange->data = grown;
    exchange->cap = cap;
    return true;
}

static size_t on_answer(char *data, size_t size, size_t count, void *arg) {
    struct blasd_exchange *exchange = arg;
    size_t more = size * count;
    long status = 0;
    curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &status);
    if (exchange->path != NULL && status == 200) return write_file(exchange, data, more);
    if (!make_room(exchange, more)) {
        exchange->failed = true;
        return 0;
    }
    memcpy(exchange->data + exchange->len, data, more);
    exchange->len += more;
    return more;
}

/* A text that libcurl copies; without it the request must not go out. */
static void set_text(struct blasd_exchange *exchange, CURLoption option, const char *text) {
    if (text != NULL && curl_easy_setopt(exchange->curl, option, text) != CURLE_OK)
        exchange->failed = true;
}

static void set_security(struct blasd_exchange *exchange) {
    const struct blasd_client *client = exchange->client;
    const char *key = client->key_file != NULL ? client->key_file : client->cert_file;
    set_text(exchange, CURLOPT_PROTOCOLS_STR, "http,https");
    set_text(exchange, CURLOPT_UNIX_SOCKET_PATH, client->socket_path);
    if (client->is_loopback) set_text(exchange, CURLOPT_PROXY, ""); /* none, whatever is set */
    set_text(exchange, CURLOPT_CAINFO, client->ca_file);
    set_text(exchange, CURLOPT_SSLCERT, client->cert_file);
    set_text(exchange, CURLOPT_SSLKEY, key);
    curl_easy_setopt(exchange->curl, CURLOPT_SSL_VERIFYPEER, client->verify ? 1L : 0L);
    curl_easy_setopt(exchange->curl, CURLOPT_SSL_VERIFYHOST, client->verify ? 2L : 0L);
}

void blasd_exchange_open(struct blasd_exchange *exchange, struct blasd_client *client, CURL *curl,
                         double wait, double limit) {
    static const char agent[] = "blasd-c";
    char text[64];
    *exchange = (struct blasd_exchange){.client = client, .curl = curl};
    set_security(exchange);
    snprintf(text, sizeof text, "%s/%s libcurl/%s", agent, blasd_library_version(),
             curl_version_info(CURLVERSION_NOW)->version);
    set_text(exchange, CURLOPT_USERAGENT, text);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME,
                     (long)(client->silence_s + (wait < 1e6 ? wait : 1e6) + 0.999));
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(curl, CURLOPT_MAXAGE_CONN, IDLE_S);
    if (limit > 0) curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(limit * 1000) + 1);
    curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, before_sending);
    curl_easy_setopt(curl, CURLOPT_PREREQDATA, exchange);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, exchange->error);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 131072L);
    add_headers(exchange, client->headers);
    if (!client->has_user) add_headers(exchange, client->key_header);
}

void blasd_exchange_close(struct blasd_exchange *exchange) {
    if (exchange->curl != NULL) curl_easy_reset(exchange->curl); /* keeps the connection */
    if (exchange->file != NULL) fclose(exchange->file);
    curl_mime_free(exchange->form);
    curl_slist_free_all(exchange->headers);
    free(exchange->header);
    free(exchange->data);
    *exchange = (struct blasd_exchange){0};
}

static void set_path(struct blasd_exchange *exchange, const char *path) {
    char *url = NULL;
    if (asprintf(&url, "%s%s", exchange->client->base, path) < 0 ||
        curl_easy_setopt(exchange->curl, CURLOPT_URL, url) != CURLE_OK)
        exchange->failed = true;
    free(url);
}

void blasd_wait_text(char text[32], double seconds) {
    double bounded = seconds > 0 ? (seconds < 1e9 ? seconds : 1e9) : 0;
    long long ms = (long long)(bounded * 1000 + 0.5);
    snprintf(text, 32, "%lld.%03lld", ms / 1000, ms % 1000);
}

int blasd_id_path(char path[BLASD_PATH], const char *of, const char *id, const char *rest,
                  struct blasd_problem *problem) {
    size_t len = id == NULL ? 0 : strlen(id);
    bool good = len > 0 && len <= 64;
    for (size_t i = 0; good && i < len; i++)
        good = isalnum((unsigned char)id[i]) || id[i] == '-' || id[i] == '_';
    if (good && snprintf(path, BLASD_PATH, "/%ss/%s%s", of, id, rest) < BLASD_PATH) return 0;
    return blasd_problem_set(problem, "invalid_request", "'%.80s' is not the id of a %s",
                             id == NULL ? "" : id, of);
}

void blasd_exchange_ask(struct blasd_exchange *exchange, const char *method, const char *path,
                        const char *accept) {
    char line[128];
    set_path(exchange, path);
    snprintf(line, sizeof line, "Accept: %s", accept);
    add_header(exchange, line);
    if (blasd_client_directory(exchange->client) != NULL) add_header(exchange, "Prefer: share");
    curl_easy_setopt(exchange->curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(exchange->curl, CURLOPT_HTTPHEADER, exchange->headers);
}

void blasd_exchange_json(struct blasd_exchange *exchange, const char *text) {
    add_header(exchange, "Content-Type: application/json");
    curl_easy_setopt(exchange->curl, CURLOPT_HTTPHEADER, exchange->headers);
    curl_easy_setopt(exchange->curl, CURLOPT_POSTFIELDS, text);
}

/* --- jobs */

/* A small body behind its header in one piece: libcurl sends it with the request's head, in one
 * call of the system's in place of one for each array. False where memory has run out. */
static bool join_arrays(struct blasd_exchange *exchange) {
    struct blasd_upload *upload = &exchange->upload;
    unsigned char *whole = realloc(exchange->header, upload->total);
    uint64_t at = upload->header_len;
    if (whole == NULL) return false;
    exchange->header = whole;
    for (int i = 0; i < upload->count; i++) {
        uint64_t len = (uint64_t)blasd_array_bytes(&upload->arrays[i]);
        if (len > 0) memcpy(whole + at, upload->arrays[i].data, len);
        at += len;
    }
    return true;
}

static void post_arrays(struct blasd_exchange *exchange) {
    struct blasd_upload *upload = &exchange->upload;
    CURL *curl = exchange->curl;
    add_header(exchange, "Content-Type: " SAFETENSORS);
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    if (upload->total <= SMALL_BODY && join_arrays(exchange)) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)upload->total);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, exchange->header);
        return;
    }
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, blasd_upload_read);
    curl_easy_setopt(curl, CURLOPT_READDATA, upload);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, blasd_upload_seek);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, upload);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)upload->total);
    if (upload->total < LARGE_BODY) return;
    curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 2097152L);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 524288L);
}

static int post_files(struct blasd_exchange *exchange, const struct blasd_request *request,
                      const json_t *words, struct blasd_problem *problem) {
    const char *name;
    json_t *word;
    exchange->form = curl_mime_init(exchange->curl);
    if (exchange->form == NULL) return blasd_refuse_memory(problem);
    json_object_foreach((json_t *)(uintptr_t)words, name, word) {
        curl_mimepart *part = curl_mime_addpart(exchange->form);
        if (curl_mime_name(part, name) != CURLE_OK ||
            curl_mime_data(part, json_string_value(word), CURL_ZERO_TERMINATED) != CURLE_OK)
            return blasd_refuse_memory(problem);
    }
    for (int i = 0; i < request->file_count; i++) {
        curl_mimepart *part = curl_mime_addpart(exchange->form);
        if (curl_mime_name(part, request->files[i].name) != CURLE_OK)
            return blasd_refuse_memory(problem);
        if (curl_mime_filedata(part, request->files[i].path) != CURLE_OK)
            return blasd_problem_set(problem, "file_not_readable", "the file %s cannot be read",
                                     request->files[i].path);
    }
    curl_easy_setopt(exchange->curl, CURLOPT_MIMEPOST, exchange->form);
    curl_easy_setopt(exchange->curl, CURLOPT_UPLOAD_BUFFERSIZE, 2097152L);
    return 0;
}

static int post_body(struct blasd_exchange *exchange, const struct blasd_request *request,
                     json_t *words, struct blasd_problem *problem) {
    const struct blasd_shared *shared = request->shared; /* that the service did not take */
    struct blasd_upload *upload = &exchange->upload;
    int count = shared == NULL ? request->input_count : shared->array_count;
    if (shared == NULL && request->file_count > 0)
        return post_files(exchange, request, words, problem);
    upload->arrays = shared == NULL ? request->inputs : shared->arrays;
    upload->count = count;
    exchange->header = blasd_tensors_header(upload->arrays, count, 1, json_incref(words),
                                            &upload->header_len, &upload->total, problem);
    if (exchange->header == NULL) return -1;
    upload->header = exchange->header;
    upload->total += upload->header_len;
    post_arrays(exchange);
    return 0;
}

/* Of a job whose inputs lie in a file: that has tensors alone, the query says the rest. New; NULL
 * where memory has run out. */
static char *path_of_words(CURL *curl, const json_t *words, const char *wait) {
    char *path = NULL;
    const char *name;
    bool good = true; /* without one of its words it would be another job */
    size_t len = 0;
    json_t *word;
    FILE *out = open_memstream(&path, &len);
    if (out == NULL) return NULL;
    fprintf(out, "/jobs?wait=%s", wait);
    json_object_foreach((json_t *)(uintptr_t)words, name, word) {
        char *escaped = curl_easy_escape(curl, json_string_value(word), 0);
        good = good && escaped != NULL && fprintf(out, "&%s=%s", name, escaped) > 0;
        curl_free(escaped);
    }
    if (fclose(out) == 0 && good) return path;
    free(path);
    return NULL;
}

static void finish_headers(struct blasd_exchange *exchange) {
    add_header(exchange, "Expect:");
    curl_easy_setopt(exchange->curl, CURLOPT_HTTPHEADER, exchange->headers);
}

static int post_name(struct blasd_exchange *exchange, const struct blasd_shared *file,
                     const struct blasd_request *request, const char *wait,
                     struct blasd_problem *problem) {
    char line[16 + sizeof file->name];
    json_t *words = blasd_request_words(request, problem);
    char *path;
    if (words == NULL) return -1;
    path = path_of_words(exchange->curl, words, wait);
    json_decref(words);
    if (path == NULL) return blasd_refuse_memory(problem);
    set_path(exchange, path);
    free(path);
    snprintf(line, sizeof line, "Body-File: %s", file->name);
    add_header(exchange, "Accept: application/json");
    add_header(exchange, "Content-Type: " SAFETENSORS);
    add_header(exchange, "Prefer: share");
    add_header(exchange, line);
    curl_easy_setopt(exchange->curl, CURLOPT_POST, 1L);
    curl_easy_setopt(exchange->curl, CURLOPT_POSTFIELDS, "");
    finish_headers(exchange);
    return 0;
}

int blasd_exchange_send(struct blasd_exchange *exchange, const char *path, const char *accept,
                        const struct blasd_request *request, struct blasd_problem *problem) {
    char line[128];
    json_t *words = blasd_request_words(request, problem);
    int code;
    if (words == NULL) return -1;
    set_path(exchange, path);
    snprintf(line, sizeof line, "Accept: %s", accept);
    add_header(exchange, line);
    code = post_body(exchange, request, words, problem);
    json_decref(words);
    finish_headers(exchange);
    return code;
}

int blasd_exchange_post(struct blasd_exchange *exchange, const struct blasd_request *request,
                        const struct blasd_shared *file, double wait,
                        struct blasd_problem *problem) {
    const char *route = request->steps == NULL ? "/jobs" : "/graphs";
    char seconds[32], path[64], line[192];
    exchange->once = request->idempotency_key == NULL;
    exchange->otherwise = " the job: under an idempotency_key it is safe to send it again";
    if (!exchange->once) {
        snprintf(line, sizeof line, "Idempotency-Key: %s", request->idempotency_key);
        add_header(exchange, line);
    }
    blasd_wait_text(seconds, wait);
    if (file != NULL && blasd_request_fits_file(request))
        return post_name(exchange, file, request, seconds, problem);
    snprintf(path, sizeof path, "%s%s%s", route, wait > 0 ? "?wait=" : "", wait > 0 ? seconds : "");
    return blasd_exchange_send(exchange, path, SAFETENSORS ", application/json;q=0.5", request,
                               problem);
}

/* --- what came of it */

/* What is as wrong the next time. */
static bool is_lasting(CURLcode code) {
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_UNSUPPORTED_PROTOCOL: return true;
    default: return false;
    }
}

static int say_lost(struct blasd_exchange *exchange, CURLcode code, struct blasd_problem *problem) {
    const char *shown = exchange->client->shown;
    bool taken = exchange->once && exchange->sent;
    if (exchange->failed)
        return blasd_problem_set(problem, "out_of_memory", "no memory for the answer");
    if (exchange->file_error != 0)
        return blasd_problem_set(problem, "file_not_writable", "the file %s cannot be written: %s",
                                 exchange->path, strerror(exchange->file_error));
    /* of an answer that is not HTTP libcurl says the same as of a URL that is none */
    if (code == CURLE_URL_MALFORMAT || (code == CURLE_UNSUPPORTED_PROTOCOL && !exchange->sent))
        return blasd_problem_set(
            problem, "invalid_url",
            "%s is not a URL like http://HOST:PORT, https://HOST or unix:/PATH", shown);
    blasd_problem_set(problem, "connection_failed", "%s: %s%s%s", shown,
                      code == CURLE_ABORTED_BY_CALLBACK ? "the connection broke"
                      : exchange->error[0] != '\0'      ? exchange->error
                                                        : curl_easy_strerror(code),
                      taken ? ". The service may have taken" : "",
                      !taken                        ? ""
                      : exchange->otherwise == NULL ? " it"
                                                    : exchange->otherwise);
    problem->retry = !is_lasting(code);
    return -1;
}

static int close_file(struct blasd_exchange *exchange, bool good, struct blasd_problem *problem) {
    FILE *file = exchange->file;
    exchange->file = NULL;
    if (file == NULL) return 0;
    errno = 0;
    if (fclose(file) == 0 && good) return 0;
    if (good)
        blasd_problem_set(problem, "file_not_writable", "the file %s cannot be written: %s",
                          exchange->path, strerror(errno));
    blasd_remove_partial(exchange->path);
    return -1;
}

/* Whether it sends the client elsewhere, where no key is to go. */
static bool say_redirected(const struct blasd_exchange *exchange, long status,
                           struct blasd_problem *problem) {
    char *to = NULL, *shown;
    curl_easy_getinfo(exchange->curl, CURLINFO_REDIRECT_URL, &to);
    if (status < 300 || status > 399 || to == NULL || (shown = strdup(to)) == NULL) return false;
    shown[strcspn(shown, "?#")] = '\0';
    blasd_hide_user(shown);
    blasd_problem_set(problem, "bad_answer",
                      "HTTP %ld: %s leads to %.300s, and redirections are not followed. If the "
                      "service is there, give the client its URL",
                      status, exchange->client->shown, shown);
    problem->status = (int)status;
    free(shown);
    return true;
}

int blasd_exchange_end(struct blasd_exchange *exchange, CURLcode code,
                       struct blasd_problem *problem) {
    long status = 0;
    curl_off_t seconds = 0;
    bool wrote = exchange->file != NULL;
    if (close_file(exchange, code == CURLE_OK, problem) != 0 && code == CURLE_OK) return -1;
    if (code != CURLE_OK) return say_lost(exchange, code, problem);
    curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &status);
    if (exchange->path != NULL && status == 200 && !wrote)
        return blasd_problem_set(problem, "bad_answer",
                                 "the answer is empty, as of a proxy before the service");
    if (status == 200 || status == 201 || status == 202) return 0;
    if (say_redirected(exchange, status, problem)) return -1;
    blasd_problem_parse(problem, status, exchange->data, exchange->len);
    if (curl_easy_getinfo(exchange->curl, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK)
        problem->retry_after = (double)seconds;
    return -1;
}

int blasd_exchange_reply(struct blasd_exchange *exchange, CURLcode code, struct blasd_reply **ret,
                         struct blasd_problem *problem) {
    const char *type = NULL;
    unsigned char *data;
    if (blasd_exchange_end(exchange, code, problem) != 0) return -1;
    curl_easy_getinfo(exchange->curl, CURLINFO_CONTENT_TYPE, &type);
    data = exchange->data;
    exchange->data = NULL;
    *ret = blasd_reply_parse(data, exchange->len,
                             type != NULL && strncmp(type, SAFETENSORS, strlen(SAFETENSORS)) == 0,
                             problem);
    return *ret == NULL ? -1 : 0;
}
