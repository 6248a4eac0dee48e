/* The thread that fetches. */
#include "outgoing/fetch.h"

#include "base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>

#define TRIES 5
#define PAUSE_NS (200 * BLASD_MS) /* before the second try, then twice as long each time */
#define BUFFER_BYTES (256L * 1024)
#define STALLED_S 10L
#define LOOK_MS 200

struct blasd_fetcher {
    const struct blasd_outgoing *outgoing; /* borrowed, as the next */
    const struct blasd_limits *limits;
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock;
    struct blasd_list come;  /* under the lock: in the order of their coming */
    bool stop;               /* under the lock */
    struct blasd_list under; /* the thread's own: what came, and is not done */
    int active;              /* those with a transfer */
};

/* --- the answer --- */

/* The value of a header line without spaces around it, cut where it is too long; false where the
 * line is of another header. */
static bool take_header(const char *line, size_t len, const char *name, char *to, size_t size) {
    size_t skip = strlen(name);
    if (len <= skip || line[skip] != ':' || strncasecmp(line, name, skip) != 0) return false;
    for (skip++; skip < len && (line[skip] == ' ' || line[skip] == '\t'); skip++) continue;
    while (len > skip && (unsigned char)line[len - 1] <= ' ') len--;
    snprintf(to, size, "%.*s", (int)(len - skip < size ? len - skip : size - 1), line + skip);
    return true;
}

static int refuse(struct blasd_fetch *fetch, const char *why) {
    return blasd_fail(&fetch->err, BLASD_E_url_refused, fetch->field, "%s", why);
}

/* How long the file is. The answer may be one of several, as nothing was taken of those before. */
static int note_size(struct blasd_fetch *fetch) {
    if (fetch->answer.length < 0)
        return refuse(fetch, "the server does not say how long the file is");
    if (fetch->known && fetch->all != (uint64_t)fetch->answer.length)
        return blasd_fail(&fetch->err, BLASD_E_url_unavailable, fetch->field,
                          "the content of the URL changed while it was fetched");
    if (fetch->known) return 0;
    fetch->known = true;
    fetch->all = (uint64_t)fetch->answer.length;
    return fetch->size(fetch, fetch->all, &fetch->err);
}

/* 501 and 505 will be no other next time. */
static bool worth_another(long status) {
    if (status == 501 || status == 505) return false;
    return status == 408 || status == 429 || status >= 500;
}

/* Looks at the head of an answer. 0: its bytes are those wanted; else there is an error, or the
 * request is worth another try. */
static int check_answer(struct blasd_fetch *fetch) {
    long status = 0;
    curl_easy_getinfo(fetch->curl, CURLINFO_RESPONSE_CODE, &status);
    if (worth_another(status)) return -1;
    if (status >= 300 && status < 400)
        return refuse(fetch, "the server redirects, which is not followed: give the URL itself");
    if (status != 200)
        return blasd_fail(&fetch->err, BLASD_E_url_refused, fetch->field,
                          "the server answers %ld where it should send the file (200)", status);
    if (fetch->answer.encoded)
        return refuse(fetch, "the server sends the file compressed, or without its length");
    return note_size(fetch);
}

/* Whole, or it is none: the bytes of a body. */
static int64_t read_length(const char *text) {
    char *end;
    long long value = strtoll(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' ? value : -1;
}

/* At the end of the head its bytes are wanted, or not: before one of them is taken. */
static size_t on_header(char *line, size_t size, size_t count, void *arg) {
    struct blasd_fetch *fetch = arg;
    size_t len = size * count;
    char text[32];
    long status = 0;
    if (len > 5 && memcmp(line, "HTTP/", 5) == 0) {
        fetch->answer.encoded = false;
        fetch->answer.length = -1;
    } else if (take_header(line, len, "Content-Encoding", text, sizeof text)) {
        fetch->answer.encoded = strcasecmp(text, "identity") != 0;
    } else if (take_header(line, len, "Content-Length", text, sizeof text)) {
        fetch->answer.length = read_length(text);
    } else if (take_header(line, len, "Transfer-Encoding", text, sizeof text)) {
        fetch->answer.encoded = true;
    } else if (line[0] == '\r' || line[0] == '\n') {
        curl_easy_getinfo(fetch->curl, CURLINFO_RESPONSE_CODE, &status);
        if (status >= 200 && check_answer(fetch) != 0) return 0;
        fetch->answer.checked = status >= 200;
    }
    return len;
}

/* Bytes beyond the length that was said are left. */
static size_t on_body(char *bytes, size_t size, size_t count, void *arg) {
    struct blasd_fetch *fetch = arg;
    size_t len = size * count;
    if (len > fetch->all - fetch->taken) len = (size_t)(fetch->all - fetch->taken);
    if (!fetch->answer.checked || fetch->feed(fetch, bytes, len, &fetch->err) != 0) return 0;
    fetch->taken += len;
    return len;
}

/* --- transfers --- */

static int set_up(struct blasd_fetch *fetch) {
    const struct blasd_limits *limits = fetch->fetcher->limits;
    int64_t left_ms = (fetch->until_ns - blasd_clock_ns()) / BLASD_MS;
    CURL *curl = fetch->curl;
    int code = blasd_outgoing_transfer(fetch->fetcher->outgoing, fetch->url, fetch->field, curl,
                                       &fetch->transfer, &fetch->err);
    if (code != 0) return code;
    curl_easy_setopt(curl, CURLOPT_PRIVATE, fetch);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, fetch);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, fetch);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, left_ms > 1 ? (long)left_ms : 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)limits->request_rate);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, STALLED_S);
    return 0;
}

static void tear_down(struct blasd_fetch *fetch) {
    if (fetch->curl == NULL) return;
    curl_multi_remove_handle(fetch->fetcher->multi, fetch->curl);
    curl_easy_cleanup(fetch->curl);
    fetch->curl = NULL;
    fetch->fetcher->active--;
}

/* Begins a transfer, or sets the error. */
static void begin(struct blasd_fetch *fetch) {
    struct blasd_fetcher *fetcher = fetch->fetcher;
    fetch->curl = curl_easy_init();
    fetch->answer.checked = false;
    if (fetch->curl == NULL) {
        blasd_no_memory(&fetch->err);
        return;
    }
    fetcher->active++;
    if (set_up(fetch) == 0 && curl_multi_add_handle(fetcher->multi, fetch->curl) != CURLM_OK)
        blasd_no_memory(&fetch->err);
}

/* What a failed transfer means: a later try, or an error. */
static void try_again(struct blasd_fetch *fetch, const char *why) {
    int64_t now = blasd_clock_ns();
    if (fetch->taken > 0)
        blasd_fail(&fetch->err, BLASD_E_url_unavailable, fetch->field,
                   "%.100s: %" PRIu64 " of %" PRIu64 " bytes came", why, fetch->taken, fetch->all);
    else if (++fetch->tries == TRIES || now >= fetch->until_ns)
        blasd_fail(&fetch->err, BLASD_E_url_unavailable, fetch->field, "%.100s, %d times", why,
                   fetch->tries);
    else
        fetch->again_ns = now + (PAUSE_NS << (fetch->tries - 1));
}

static bool is_whole(const struct blasd_fetch *fetch) {
    return fetch->known && fetch->taken == fetch->all && fetch->err.code == BLASD_OK;
}

/* A transfer has ended. */
static void ended(struct blasd_fetch *fetch, CURLcode code) {
    char why[120];
    long status = 0;
    curl_easy_getinfo(fetch->curl, CURLINFO_RESPONSE_CODE, &status);
    if (fetch->err.code != BLASD_OK || is_whole(fetch)) {
        tear_down(fetch);
        return;
    }
    if (status >= 400)
        snprintf(why, sizeof why, "the server answers %ld", status);
    else
        snprintf(why, sizeof why, "%s", blasd_outgoing_why(&fetch->transfer, code));
    tear_down(fetch);
    if (fetch->transfer.refused && code == CURLE_COULDNT_CONNECT)
        blasd_fail(&fetch->err, BLASD_E_url_not_allowed, fetch->field, "%s", why);
    else
        try_again(fetch, code == CURLE_OK ? "the file ends early" : why);
}

/* --- the thread --- */

/* Whether it may have a transfer beside those that there are: one tenant has a quarter of them. */
static bool has_room(const struct blasd_fetcher *fetcher, const struct blasd_fetch *fetch) {
    int most = (int)fetcher->limits->url_transfers, own = 0;
    if (fetcher->active >= most) return false;
    if (fetch->tenant[0] == '\0') return true;
    BLASD_LIST_EACH(node, &fetcher->under) {
        const struct blasd_fetch *one = blasd_container_of(node, struct blasd_fetch, node);
        own += one->curl != NULL && strcmp(one->tenant, fetch->tenant) == 0;
    }
    return own < (most + 3) / 4;
}

static void give_up(struct blasd_fetch *fetch, int64_t now, bool stop) {
    if (is_whole(fetch)) return;
    if (stop || atomic_load(&fetch->unwanted))
        blasd_fail(&fetch->err, BLASD_E_url_unavailable, fetch->field, "it is not wanted any more");
    else if (now >= fetch->until_ns)
        blasd_fail(&fetch->err, BLASD_E_url_unavailable, fetch->field,
                   "it has not come within %" PRIu64 " seconds (limit url_s)",
                   fetch->fetcher->limits->url_s);
}

/* Ends and begins what is due; how long nothing else is. */
static int look(struct blasd_fetcher *fetcher, bool stop) {
    int64_t now = blasd_clock_ns();
    BLASD_LIST_EACH(node, &fetcher->under) {
        struct blasd_fetch *fetch = blasd_container_of(node, struct blasd_fetch, node);
        give_up(fetch, now, stop);
        if (fetch->err.code == BLASD_OK && !is_whole(fetch) && fetch->curl == NULL &&
            now >= fetch->again_ns && has_room(fetcher, fetch))
            begin(fetch);
        if (fetch->err.code == BLASD_OK && !is_whole(fetch)) continue;
        tear_down(fetch);
        blasd_list_remove(node);
        fetch->done(fetch, fetch->err.code == BLASD_OK ? NULL : &fetch->err);
    }
    return blasd_list_empty(&fetcher->under) ? 60000 : LOOK_MS;
}

/* Takes what came, behind what there is; true at the end. */
static bool take(struct blasd_fetcher *fetcher) {
    bool stop;
    pthread_mutex_lock(&fetcher->lock);
    BLASD_LIST_EACH(node, &fetcher->come) {
        blasd_list_remove(node);
        blasd_list_append(&fetcher->under, node);
    }
    stop = fetcher->stop;
    pthread_mutex_unlock(&fetcher->lock);
    return stop;
}

static void *run(void *arg) {
    struct blasd_fetcher *fetcher = arg;
    CURLMsg *message;
    bool stop = false;
    int count;
    prctl(PR_SET_NAME, "fetch");
    while (!stop) {
        int wait_ms;
        stop = take(fetcher);
        wait_ms = look(fetcher, stop);
        curl_multi_perform(fetcher->multi, &count);
        while ((message = curl_multi_info_read(fetcher->multi, &count)) != NULL) {
            char *owner = NULL;
            CURLcode result = message->data.result;
            if (message->msg != CURLMSG_DONE) continue;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &owner);
            ended((struct blasd_fetch *)(void *)owner, result);
            wait_ms = 0;
        }
        if (!stop) curl_multi_poll(fetcher->multi, NULL, 0, wait_ms, NULL);
    }
    return NULL;
}

void blasd_fetch_begin(struct blasd_fetcher *fetcher, struct blasd_fetch *fetch) {
    fetch->fetcher = fetcher;
    fetch->until_ns = blasd_clock_ns() + (int64_t)fetcher->limits->url_s * 1000 * BLASD_MS;
    pthread_mutex_lock(&fetcher->lock);
    blasd_list_append(&fetcher->come, &fetch->node);
    pthread_mutex_unlock(&fetcher->lock);
    curl_multi_wakeup(fetcher->multi);
}

void blasd_fetch_cancel(struct blasd_fetch *fetch) {
    atomic_store(&fetch->unwanted, true);
    curl_multi_wakeup(fetch->fetcher->multi);
}

int blasd_fetcher_start(const struct blasd_outgoing *outgoing, const struct blasd_limits *limits,
                        struct blasd_fetcher **ret, struct blasd_err *err) {
    struct blasd_fetcher *fetcher = calloc(1, sizeof *fetcher);
    *ret = NULL;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (fetcher != NULL) fetcher->multi = curl_multi_init();
    if (fetcher == NULL || fetcher->multi == NULL) {
        free(fetcher);
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for fetching");
    }
    fetcher->outgoing = outgoing;
    fetcher->limits = limits;
    blasd_list_init(&fetcher->come);
    blasd_list_init(&fetcher->under);
    pthread_mutex_init(&fetcher->lock, NULL);
    if (pthread_create(&fetcher->thread, NULL, run, fetcher) != 0) {
        curl_multi_cleanup(fetcher->multi);
        free(fetcher);
        return blasd_fail(err, BLASD_E_internal_error, "", "a thread could not be started");
    }
    *ret = fetcher;
    return 0;
}

void blasd_fetcher_stop(struct blasd_fetcher *fetcher) {
    if (fetcher == NULL) return;
    pthread_mutex_lock(&fetcher->lock);
    fetcher->stop = true;
    pthread_mutex_unlock(&fetcher->lock);
    curl_multi_wakeup(fetcher->multi);
    pthread_join(fetcher->thread, NULL);
    curl_multi_cleanup(fetcher->multi);
    pthread_mutex_destroy(&fetcher->lock);
    free(fetcher);
}
