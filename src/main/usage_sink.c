/* A file is appended to and synced for each step; what a process left of a line when it died is cut
 * off. A receiver gets a step as one batch. */
#include "main/usage_sink.h"

#include "base/buf.h"
#include "base/file.h"
#include "queue/usage_stream.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL 65536 /* bytes of a file in which a line begins */
#define BATCH_MOST ((size_t)256 << 20)
#define POST_S 8L

struct usage_sink {
    int fd; /* -1: a receiver */
    struct blasd_queue_options options;
    char last[BLASD_QUEUES_MOST][BLASD_USAGE_SEQUENCE]; /* of each queue */
    CURL *curl;
    struct curl_slist *headers;
    struct blasd_buf text;
};

/* What stands behind the mark in the line: `len` characters of it. NULL: it does not. */
static const char *find(const char *line, const char *mark, const char *of, size_t *len) {
    const char *at = strstr(line, mark);
    if (at == NULL) return NULL;
    at += strlen(mark);
    *len = strspn(at, of);
    return at;
}

/* Notes the sequence of the line, if it is one of ours, as the last of its queue, unless a later
 * line was seen; whether it was the first of its queue. */
static bool note_line(struct usage_sink *sink, const char *line, bool later_seen) {
    size_t len, id_len;
    const char *id = find(line, "\"id\":\"", "0123456789abcdefst", &id_len);
    const char *sequence = find(line, "\"sequence\":\"", "0123456789", &len);
    char *last;
    if (id == NULL || sequence == NULL || len >= BLASD_USAGE_SEQUENCE) return false;
    last = sink->last[blasd_queue_of(&sink->options, id)];
    if (later_seen && last[0] != '\0') return false;
    snprintf(last, BLASD_USAGE_SEQUENCE, "%.*s", (int)len, sequence);
    return true;
}

static int cannot_read(const char *path, struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_internal_error, "to", "cannot read %.120s: %s", path,
                      strerror(errno));
}

/* Goes back from `end`, which is behind a whole line, until the last line of each queue is found.
 */
static int find_last(struct usage_sink *sink, const char *path, off_t end, struct blasd_err *err) {
    int left = blasd_queue_count(&sink->options);
    char text[TAIL + 1];
    while (end > 0 && left > 0) {
        off_t from = end > TAIL ? end - TAIL : 0;
        ssize_t len = pread(sink->fd, text, (size_t)(end - from), from);
        char *stop;
        if (len < end - from) return cannot_read(path, err);
        stop = text + len - 1; /* the end of a line */
        for (char *line; stop > text && left > 0; stop = line - 1) {
            *stop = '\0';
            line = memrchr(text, '\n', (size_t)(stop - text));
            if (line == NULL && from > 0) break;
            line = line == NULL ? text : line + 1;
            left -= note_line(sink, line, true);
            if (line == text) break;
        }
        if (from == 0) return 0;
        if (from + (stop - text) + 1 == end)
            return blasd_fail(err, BLASD_E_internal_error, "to", "%.150s is not a file of events",
                              path);
        end = from + (stop - text) + 1;
    }
    return 0;
}

/* Finds the last whole lines, and cuts off what is behind: half an event, and nothing else. */
static int take_up(struct usage_sink *sink, const char *path, struct blasd_err *err) {
    char tail[TAIL + 1], *end, *line;
    struct stat info;
    off_t from, whole;
    ssize_t len;
    if (flock(sink->fd, LOCK_EX | LOCK_NB) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "to", "another process writes %.150s", path);
    if (fstat(sink->fd, &info) != 0) return cannot_read(path, err);
    from = info.st_size > TAIL ? info.st_size - TAIL : 0;
    len = pread(sink->fd, tail, (size_t)(info.st_size - from), from);
    if (len < 0) return cannot_read(path, err);
    tail[len] = '\0';
    end = memrchr(tail, '\n', (size_t)len);
    line = end == NULL ? tail : end + 1;
    if ((end == NULL && from > 0) || (line < tail + len && *line != '{'))
        return blasd_fail(err, BLASD_E_internal_error, "to", "%.150s is not a file of events",
                          path);
    whole = end == NULL ? 0 : from + (end + 1 - tail);
    if (ftruncate(sink->fd, whole) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "to", "cannot write %.120s: %s", path,
                          strerror(errno));
    return find_last(sink, path, whole, err);
}

static int open_file(struct usage_sink *sink, const char *path, struct blasd_err *err) {
    sink->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (sink->fd < 0)
        return blasd_fail(err, BLASD_E_internal_error, "to", "cannot open %.120s: %s", path,
                          strerror(errno));
    return take_up(sink, path, err);
}

/* What the receiver says beside its status is not wanted. */
static size_t drop(char *bytes, size_t size, size_t count, void *arg) {
    (void)bytes;
    (void)arg;
    return size * count;
}

static int open_receiver(struct usage_sink *sink, const char *url, struct blasd_err *err) {
    const char *token = getenv("BLASD_METER_TOKEN");
    char header[8192];
    if (token != NULL && strlen(token) > sizeof header - 32)
        return blasd_fail(err, BLASD_E_invalid_field, "to",
                          "BLASD_METER_TOKEN has more than %zu bytes", sizeof header - 32);
    sink->curl = curl_easy_init();
    sink->headers =
        curl_slist_append(NULL, "Content-Type: application/cloudevents-batch+json; charset=utf-8");
    if (token != NULL && sink->headers != NULL) {
        snprintf(header, sizeof header, "Authorization: Bearer %s", token);
        curl_slist_append(sink->headers, header);
    }
    if (sink->curl == NULL || sink->headers == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    curl_easy_setopt(sink->curl, CURLOPT_URL, url);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(sink->curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(sink->curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(sink->curl, CURLOPT_HTTPHEADER, sink->headers);
    curl_easy_setopt(sink->curl, CURLOPT_TIMEOUT, POST_S);
    curl_easy_setopt(sink->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(sink->curl, CURLOPT_WRITEFUNCTION, drop);
    return 0;
}

int usage_sink_open(const char *to, const struct blasd_queue_options *options,
                    struct usage_sink **ret, struct blasd_err *err) {
    struct usage_sink *sink = calloc(1, sizeof *sink);
    int code;
    *ret = NULL;
    if (sink == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    sink->fd = -1;
    sink->options = *options;
    blasd_buf_init(&sink->text, BATCH_MOST);
    if (strncmp(to, "file:", 5) == 0 && to[5] != '\0')
        code = open_file(sink, to + 5, err);
    else if (strncmp(to, "http://", 7) == 0 || strncmp(to, "https://", 8) == 0)
        code = open_receiver(sink, to, err);
    else
        code =
            blasd_fail(err, BLASD_E_invalid_field, "to",
                       "--to is file:PATH, redis, or a URL of http or https, and not '%.100s'", to);
    if (code == 0)
        *ret = sink;
    else
        usage_sink_free(sink);
    return code;
}

void usage_sink_free(struct usage_sink *sink) {
    if (sink == NULL) return;
    if (sink->fd >= 0) close(sink->fd);
    curl_slist_free_all(sink->headers);
    if (sink->curl != NULL) curl_easy_cleanup(sink->curl);
    blasd_buf_release(&sink->text);
    free(sink);
}

const char *usage_sink_last(const struct usage_sink *sink, int number) {
    return sink->last[number];
}

/* What is between the events, and around them. */
static int join(struct usage_sink *sink, char *const *events, int count, const char *before,
                const char *between, const char *after, struct blasd_err *err) {
    int failed;
    sink->text.len = 0;
    failed = blasd_buf_puts(&sink->text, before);
    for (int i = 0; i < count; i++) {
        failed |= blasd_buf_puts(&sink->text, events[i]);
        failed |= blasd_buf_puts(&sink->text, i + 1 < count ? between : after);
    }
    return failed == 0 ? 0 : blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the events");
}

static int append(struct usage_sink *sink, struct blasd_err *err) {
    struct stat info;
    if (fstat(sink->fd, &info) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "to", "cannot look at the file: %s",
                          strerror(errno));
    if (blasd_write_all(sink->fd, sink->text.data, sink->text.len) == 0 && fdatasync(sink->fd) == 0)
        return 0;
    blasd_fail(err, BLASD_E_queue_unavailable, "to", "cannot write the file: %s", strerror(errno));
    /* a line that is there in part would be taken for the last one */
    if (ftruncate(sink->fd, info.st_size) != 0) err->code = BLASD_E_internal_error;
    return -(int)err->code;
}

static int post(struct usage_sink *sink, struct blasd_err *err) {
    long status = 0;
    CURLcode code;
    curl_easy_setopt(sink->curl, CURLOPT_POSTFIELDS, sink->text.data);
    curl_easy_setopt(sink->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)sink->text.len);
    code = curl_easy_perform(sink->curl);
    curl_easy_getinfo(sink->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        return blasd_fail(err, BLASD_E_queue_unavailable, "to", "the receiver: %s",
                          curl_easy_strerror(code));
    if (status >= 200 && status < 300) return 0;
    return blasd_fail(err, BLASD_E_queue_unavailable, "to", "the receiver answers %ld", status);
}

int usage_sink_write(struct usage_sink *sink, char *const *events, int count,
                     struct blasd_err *err) {
    bool file = sink->fd >= 0;
    int code;
    if (count == 0) return 0;
    code = file ? join(sink, events, count, "", "\n", "\n", err)
                : join(sink, events, count, "[", ",", "]", err);
    if (code == 0) code = file ? append(sink, err) : post(sink, err);
    if (code == 0) (void)note_line(sink, events[count - 1], false);
    return code;
}
