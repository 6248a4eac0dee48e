/* The thread that sends spans: up to BATCH of them at a time, each batch once. If the collector is
 * away or busy, the batch is dropped, as spans are that come while the room is full. Read next:
 * spans.c. */
#include "trace/otlp.h"

#include "base/clock.h"
#include "base/limits.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 512
#define LINGER_NS (1000 * BLASD_MS) /* a span waits for others that long */
#define STOP_NS (2000 * BLASD_MS)
#define REPLY_MOST (64 * BLASD_KIB)
#define BODY_MOST (16 * BLASD_MIB)

struct blasd_otlp {
    struct blasd_otlp_options options; /* its texts are borrowed */
    char url[1024];
    struct curl_slist *headers; /* owned, as the next */
    CURL *curl;
    uint64_t sample; /* of 2^64 */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct blasd_span *ring; /* owned; so are the links of the spans in it */
    size_t size, first, count;
    bool stop;
    _Atomic int64_t stop_by; /* nothing is sent after that; 0: it goes on */
    _Atomic uint64_t sent, dropped, refused, asked;
};

/* --- building spans --- */

static struct blasd_span_attribute *new_attribute(struct blasd_span *span, const char *key) {
    struct blasd_span_attribute *attribute;
    if (span->attribute_count >= BLASD_SPAN_ATTRIBUTES) return NULL;
    attribute = &span->attributes[span->attribute_count++];
    *attribute = (struct blasd_span_attribute){.key = key};
    return attribute;
}

void blasd_span_text(struct blasd_span *span, const char *key, const char *text) {
    struct blasd_span_attribute *attribute = text[0] == '\0' ? NULL : new_attribute(span, key);
    if (attribute != NULL) snprintf(attribute->text, sizeof attribute->text, "%s", text);
}

void blasd_span_number(struct blasd_span *span, const char *key, int64_t number) {
    struct blasd_span_attribute *attribute = new_attribute(span, key);
    if (attribute != NULL) attribute->number = number;
}

/* --- the room --- */

void blasd_otlp_add(struct blasd_otlp *otlp, const struct blasd_span *span) {
    struct blasd_span copy = *span;
    struct blasd_span_link *links = NULL;
    bool full;
    if (span->link_count > 0) {
        links = malloc((size_t)span->link_count * sizeof *links);
        if (links == NULL)
            copy.link_count = 0;
        else
            memcpy(links, span->links, (size_t)span->link_count * sizeof *links);
    }
    copy.links = links;
    pthread_mutex_lock(&otlp->lock);
    full = otlp->count == otlp->size;
    if (!full) {
        otlp->ring[(otlp->first + otlp->count++) % otlp->size] = copy;
        if (otlp->count == 1 || otlp->count == BATCH) pthread_cond_signal(&otlp->wake);
    }
    pthread_mutex_unlock(&otlp->lock);
    if (!full) return;
    free(links);
    atomic_fetch_add(&otlp->dropped, 1);
}

bool blasd_otlp_samples(const struct blasd_otlp *otlp) {
    uint64_t z;
    if (otlp == NULL || otlp->sample == 0) return false;
    if (otlp->sample == UINT64_MAX) return true;
    /* splitmix64 of a counter */
    z = atomic_fetch_add_explicit((_Atomic uint64_t *)(uintptr_t)&otlp->asked, 1,
                                  memory_order_relaxed) *
        UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) < otlp->sample;
}

struct blasd_otlp_counts blasd_otlp_counts(const struct blasd_otlp *otlp) {
    return (struct blasd_otlp_counts){.sent = atomic_load(&otlp->sent),
                                      .dropped = atomic_load(&otlp->dropped),
                                      .refused = atomic_load(&otlp->refused)};
}

/* With the lock. Waits on the steady clock, and no longer than till the end. */
static void wait_until(struct blasd_otlp *otlp, int64_t ns) {
    struct timespec until = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)pthread_cond_timedwait(&otlp->wake, &otlp->lock, &until);
}

/* Takes up to BATCH spans once there are so many, or the first has waited, or it is the end; 0 at
 * the end. */
static int take(struct blasd_otlp *otlp, struct blasd_span *spans) {
    int count = 0;
    pthread_mutex_lock(&otlp->lock);
    while (!otlp->stop && otlp->count == 0) pthread_cond_wait(&otlp->wake, &otlp->lock);
    for (int64_t by = blasd_clock_ns() + LINGER_NS;
         !otlp->stop && otlp->count < BATCH && blasd_clock_ns() < by;)
        wait_until(otlp, by);
    for (; count < BATCH && otlp->count > 0; otlp->count--) {
        spans[count++] = otlp->ring[otlp->first];
        otlp->first = (otlp->first + 1) % otlp->size;
    }
    pthread_mutex_unlock(&otlp->lock);
    return count;
}

static bool is_over(const struct blasd_otlp *otlp) {
    int64_t by = atomic_load(&otlp->stop_by);
    return by != 0 && blasd_clock_ns() >= by;
}

/* --- sending --- */

/* A reply that is too long is cut off; its status has come by then. */
static size_t on_body(char *bytes, size_t size, size_t count, void *reply) {
    return blasd_buf_add(reply, bytes, size * count) == 0 ? size * count : 0;
}

/* Ends a transfer once the service has no more time for it. */
static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    (void)a, (void)b, (void)c, (void)d;
    return is_over(arg) ? 1 : 0;
}

/* How many of `count` spans a collector that took the message says that it did not take. */
static uint64_t rejected(const struct blasd_buf *reply, int count) {
    json_t *document = json_loadb(reply->data == NULL ? "" : reply->data, reply->len, 0, NULL);
    const json_t *spans =
        json_object_get(json_object_get(document, "partialSuccess"), "rejectedSpans");
    long long number = json_is_string(spans) ? strtoll(json_string_value(spans), NULL, 10)
                                             : json_integer_value(spans);
    json_decref(document);
    return number < 0 ? 0 : number > count ? (uint64_t)count : (uint64_t)number;
}

/* Has one try: what a collector does not take then is dropped, or refused where it never will. */
static void send_spans(struct blasd_otlp *otlp, const struct blasd_span *spans, int count) {
    uint64_t all = (uint64_t)count, bad;
    struct blasd_buf body, reply;
    long status = 400; /* of what cannot be written */
    blasd_buf_init(&body, BODY_MOST);
    blasd_buf_init(&reply, REPLY_MOST);
    if (blasd_otlp_json(&otlp->options, spans, count, &body) == 0) {
        curl_easy_setopt(otlp->curl, CURLOPT_POSTFIELDS, body.data);
        curl_easy_setopt(otlp->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.len);
        curl_easy_setopt(otlp->curl, CURLOPT_WRITEDATA, &reply);
        (void)curl_easy_perform(otlp->curl);
        status = 0;
        curl_easy_getinfo(otlp->curl, CURLINFO_RESPONSE_CODE, &status);
    }
    if (status >= 200 && status < 300) {
        bad = rejected(&reply, count);
        atomic_fetch_add(&otlp->sent, all - bad);
        atomic_fetch_add(&otlp->refused, bad);
    } else {
        bool busy = status < 200 || status == 429 || (status >= 502 && status <= 504);
        atomic_fetch_add(busy ? &otlp->dropped : &otlp->refused, all);
    }
    blasd_buf_release(&reply);
    blasd_buf_release(&body);
}

static void *run(void *arg) {
    struct blasd_otlp *otlp = arg;
    struct blasd_span *spans = calloc(BATCH, sizeof *spans);
    int count;
    while (spans != NULL && (count = take(otlp, spans)) > 0) {
        send_spans(otlp, spans, count);
        for (int i = 0; i < count; i++) free((void *)(uintptr_t)spans[i].links);
    }
    free(spans);
    return NULL;
}

/* --- options --- */

static int bad(struct blasd_err *err, const char *why, const char *what) {
    return blasd_fail(err, BLASD_E_invalid_field, "", "%s%.200s", why, what);
}

/* Adds "NAME: VALUE". Neither may hold a line's end, so that no header comes in by a value. */
static int add_header(struct curl_slist **list, const char *name, size_t name_len,
                      const char *value, size_t value_len, struct blasd_err *err) {
    struct curl_slist *longer;
    char line[4096];
    int len;
    while (value_len > 0 && (*value == ' ' || *value == '\t')) value++, value_len--;
    if (name_len == 0 || memchr(name, ' ', name_len) != NULL || value_len > sizeof line / 2 ||
        name_len > 256)
        return bad(err,
                   "the headers for --otlp are lines NAME: VALUE, or NAME=VALUE,… in "
                   "BLASD_OTLP_HEADERS",
                   "");
    len = snprintf(line, sizeof line, "%.*s: %.*s", (int)name_len, name, (int)value_len, value);
    for (int i = 0; i < len; i++)
        if ((unsigned char)line[i] < ' ') line[i] = ' ';
    longer = curl_slist_append(*list, line);
    if (longer == NULL) return bad(err, "no memory for the headers for --otlp", "");
    *list = longer;
    return 0;
}

static int add_from_file(struct curl_slist **list, const char *path, struct blasd_err *err) {
    FILE *file = fopen(path, "re");
    char line[4096];
    int code = 0;
    if (file == NULL)
        return blasd_fail(err, BLASD_E_invalid_field, "", "--otlp-headers %.200s: %s", path,
                          strerror(errno));
    while (code == 0 && fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '\0' || line[0] == '#') continue;
        code =
            add_header(list, line, colon == NULL ? 0 : (size_t)(colon - line),
                       colon == NULL ? "" : colon + 1, colon == NULL ? 0 : strlen(colon + 1), err);
    }
    fclose(file);
    return code;
}

static int add_from_text(struct curl_slist **list, const char *text, struct blasd_err *err) {
    int code = 0;
    while (code == 0 && *text != '\0') {
        size_t len = strcspn(text, ","), name = strcspn(text, "=");
        if (name >= len) name = 0;
        code = add_header(list, text, name, text + name + (name > 0), name > 0 ? len - name - 1 : 0,
                          err);
        text += len + (text[len] == ',');
    }
    return code;
}

static int make_headers(const struct blasd_otlp_options *options, struct curl_slist **list,
                        struct blasd_err *err) {
    int code = add_header(list, "Content-Type", 12, "application/json", 16, err);
    if (code == 0) code = add_header(list, "Expect", 6, "", 0, err);
    if (code == 0 && options->headers_file != NULL)
        code = add_from_file(list, options->headers_file, err);
    if (code == 0 && options->headers != NULL) code = add_from_text(list, options->headers, err);
    if (code != 0) {
        curl_slist_free_all(*list);
        *list = NULL;
    }
    return code;
}

static int make_url(const char *given, char *url, size_t size, struct blasd_err *err) {
    const char *host = strstr(given, "://");
    size_t slash;
    if (host == NULL || (strncmp(given, "http://", 7) != 0 && strncmp(given, "https://", 8) != 0) ||
        strlen(given) + 16 > size)
        return bad(err, "--otlp is not an address such as http://127.0.0.1:4318", "");
    host += 3;
    slash = strcspn(host, "/?#");
    if (slash == 0 || memchr(host, '@', slash) != NULL)
        return bad(err,
                   "--otlp is an address without a user and a password: keys are headers, "
                   "from --otlp-headers FILE or BLASD_OTLP_HEADERS",
                   "");
    snprintf(url, size, "%s%s", given,
             host[slash] == '\0'              ? "/v1/traces"
             : strcmp(host + slash, "/") == 0 ? "v1/traces"
                                              : "");
    return 0;
}

int blasd_otlp_check(const struct blasd_otlp_options *options, struct blasd_err *err) {
    struct curl_slist *headers = NULL;
    char url[sizeof((struct blasd_otlp *)NULL)->url];
    int code = make_url(options->url, url, sizeof url, err);
    if (code == 0) code = make_headers(options, &headers, err);
    curl_slist_free_all(headers);
    return code;
}

static void set_up(struct blasd_otlp *otlp) {
    CURL *curl = otlp->curl;
    curl_easy_setopt(curl, CURLOPT_URL, otlp->url);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, otlp->headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "blasd");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, 3000L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 10000L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, otlp);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

static void otlp_free(struct blasd_otlp *otlp) {
    for (; otlp->count > 0; otlp->count--) {
        free((void *)(uintptr_t)otlp->ring[otlp->first].links);
        otlp->first = (otlp->first + 1) % otlp->size;
    }
    if (otlp->curl != NULL) curl_easy_cleanup(otlp->curl);
    curl_slist_free_all(otlp->headers);
    pthread_cond_destroy(&otlp->wake);
    pthread_mutex_destroy(&otlp->lock);
    free(otlp->ring);
    free(otlp);
}

int blasd_otlp_new(const struct blasd_otlp_options *options, struct blasd_otlp **ret,
                   struct blasd_err *err) {
    struct blasd_otlp *otlp = calloc(1, sizeof *otlp);
    pthread_condattr_t steady;
    int code;
    if (otlp == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for spans");
    otlp->options = *options;
    otlp->size = (size_t)options->spans_most;
    otlp->sample = options->sample >= 1  ? UINT64_MAX
                   : options->sample > 0 ? (uint64_t)(options->sample * 0x1p64)
                                         : 0;
    pthread_mutex_init(&otlp->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&otlp->wake, &steady);
    pthread_condattr_destroy(&steady);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    otlp->ring = calloc(otlp->size, sizeof *otlp->ring);
    otlp->curl = curl_easy_init();
    code = make_url(options->url, otlp->url, sizeof otlp->url, err);
    if (code == 0) code = make_headers(options, &otlp->headers, err);
    if (code == 0 && (otlp->ring == NULL || otlp->curl == NULL))
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for spans");
    if (code != 0) {
        otlp_free(otlp);
        return code;
    }
    set_up(otlp);
    *ret = otlp;
    return 0;
}

int blasd_otlp_start(struct blasd_otlp *otlp, struct blasd_err *err) {
    if (otlp == NULL) return 0;
    if (pthread_create(&otlp->thread, NULL, run, otlp) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "cannot start the thread for spans");
    otlp->started = true;
    return 0;
}

void blasd_otlp_stop(struct blasd_otlp *otlp) {
    if (otlp == NULL) return;
    atomic_store(&otlp->stop_by, blasd_clock_ns() + STOP_NS);
    pthread_mutex_lock(&otlp->lock);
    otlp->stop = true;
    pthread_cond_broadcast(&otlp->wake);
    pthread_mutex_unlock(&otlp->lock);
    if (otlp->started) pthread_join(otlp->thread, NULL);
    otlp_free(otlp);
}
