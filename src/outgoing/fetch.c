/* The thread that fetches. A transfer is a GET, of a range once one is cut off or another place of
 * the file is wanted; If-Match and the ETag see to it that bytes of two files are never mixed. */
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
#define PROGRESS (16 * BLASD_MIB) /* so much brings all tries back */
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

/* Whether it names the very bytes, and may stand in a header. */
static bool is_strong(const char *tag) {
    size_t len = strlen(tag);
    if (len < 2 || len > BLASD_FETCH_ETAG - 2 || tag[0] != '"' || tag[len - 1] != '"') return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)tag[i] < ' ') return false;
    return true;
}

static int refuse(struct blasd_fetch *fetch, const char *why) {
    return blasd_fail(&fetch->err, BLASD_E_url_refused, fetch->field, "%s", why);
}

static int changed(struct blasd_fetch *fetch) {
    return blasd_fail(&fetch->err, BLASD_E_url_unavailable, fetch->field,
                      "what lies at the URL has changed while it was fetched");
}

/* Of an answer from the first byte on: how long the file is, and which. It may come again, as long
 * as nothing was taken of it. */
static int note_file(struct blasd_fetch *fetch) {
    bool again = fetch->file.known;
    if (fetch->answer.length < 0)
        return refuse(fetch, "the server does not say how long the file is");
    if (again && fetch->file.all != (uint64_t)fetch->answer.length) return changed(fetch);
    fetch->file.known = true;
    fetch->file.all = (uint64_t)fetch->answer.length;
    snprintf(fetch->file.etag, sizeof fetch->file.etag, "%s",
             is_strong(fetch->answer.tag) ? fetch->answer.tag : "");
    if (!again && fetch->size(fetch, fetch->file.all, &fetch->err) != 0) return -1;
    if (fetch->end > fetch->file.all) return refuse(fetch, "the file ends early");
    return 0;
}

/* Of an answer to a later one: whether it is the range asked for, of the same file. */
static int check_range(struct blasd_fetch *fetch) {
    char want[96];
    snprintf(want, sizeof want, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, fetch->began_at,
             fetch->file.all - 1, fetch->file.all);
    if (fetch->answer.tag[0] != '\0' && strcmp(fetch->answer.tag, fetch->file.etag) != 0)
        return changed(fetch);
    if (strcmp(fetch->answer.range, want) != 0)
        return refuse(fetch, "the server does not send the range that it is asked for");
    if (fetch->answer.tag[0] != '\0') return 0;
    /* it may not have looked at If-Match either */
    return refuse(fetch, "the server sends no ETag with a part, which may be of another version");
}

/* 501 and 505 will be no other next time. */
static bool worth_another(long status) {
    if (status == 501 || status == 505) return false;
    return status == 408 || status == 429 || status >= 500;
}

/* Looks at the head of an answer. 0: its bytes are those wanted; else there is an error, or the
 * request is worth another try. */
static int check_answer(struct blasd_fetch *fetch) {
    bool part = fetch->began_at > 0;
    long status = 0;
    curl_easy_getinfo(fetch->curl, CURLINFO_RESPONSE_CODE, &status);
    if (worth_another(status)) return -1;
    if (status == 412 && part) return changed(fetch);
    if (status >= 300 && status < 400)
        return refuse(fetch, "the server redirects, which is not followed: give the URL itself");
    if (status != (part ? 206 : 200))
        return blasd_fail(&fetch->err, BLASD_E_url_refused, fetch->field,
                          "the server answers %ld where it should send %s", status,
                          part ? "a part of the file (206)" : "the file (200)");
    if (fetch->answer.encoded)
        return refuse(fetch, "the server sends the file compressed, or without its length");
    return part ? check_range(fetch) : note_file(fetch);
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
        fetch->answer.tag[0] = fetch->answer.range[0] = '\0';
        fetch->answer.encoded = false;
        fetch->answer.length = -1;
    } else if (take_header(line, len, "Content-Encoding", text, sizeof text)) {
        fetch->answer.encoded = strcasecmp(text, "identity") != 0;
    } else if (take_header(line, len, "Content-Length", text, sizeof text)) {
        fetch->answer.length = read_length(text);
    } else if (take_header(line, len, "Transfer-Encoding", text, sizeof text)) {
        fetch->answer.encoded = true;
    } else if (!take_header(line, len, "ETag", fetch->answer.tag, sizeof fetch->answer.tag) &&
               !take_header(line, len, "Content-Range", fetch->answer.range,
                            sizeof fetch->answer.range) &&
               (line[0] == '\r' || line[0] == '\n')) {
        curl_easy_getinfo(fetch->curl, CURLINFO_RESPONSE_CODE, &status);
        if (status >= 200 && check_answer(fetch) != 0) return 0;
        fetch->answer.checked = status >= 200;
    }
    return len;
}

/* Hands on what is wanted of the bytes; false where the rest of this answer is not. */
static bool hand_on(struct blasd_fetch *fetch, const char *bytes, size_t len) {
    while (len > 0 && fetch->at < fetch->end) {
        uint64_t skip = fetch->at - fetch->position;
        size_t take = skip > len ? len : (size_t)skip;
        if (skip > len) {
            fetch->answer.jump = true;
            return false;
        }
        if (skip == 0) {
            take = fetch->end - fetch->at < len ? (size_t)(fetch->end - fetch->at) : len;
            if (fetch->feed(fetch, bytes, take, &fetch->err) != 0) return false;
            if (fetch->end > fetch->file.all || fetch->at < fetch->position + take) {
                (void)refuse(fetch, "the file ends early");
                return false;
            }
        }
        fetch->position += take;
        bytes += take;
        len -= take;
    }
    return fetch->at < fetch->end || len == 0;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg) {
    struct blasd_fetch *fetch = arg;
    return fetch->answer.checked && hand_on(fetch, bytes, size * count) ? size * count : 0;
}

/* --- transfers --- */

static int set_up(struct blasd_fetch *fetch) {
    const struct blasd_limits *limits = fetch->fetcher->limits;
    int64_t left_ms = (fetch->until_ns - blasd_clock_ns()) / BLASD_MS;
    char range[32], match[BLASD_FETCH_ETAG + 16];
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
    if (fetch->at == 0) return 0;
    snprintf(range, sizeof range, "%" PRIu64 "-", fetch->at);
    snprintf(match, sizeof match, "If-Match: %s", fetch->file.etag);
    curl_easy_setopt(curl, CURLOPT_RANGE, range);
    fetch->headers = curl_slist_append(NULL, match);
    if (fetch->headers == NULL)
        return blasd_fail(&fetch->err, BLASD_E_no_space, "", "memory has run out");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fetch->headers);
    return 0;
}

static void tear_down(struct blasd_fetch *fetch) {
    if (fetch->curl == NULL) return;
    curl_multi_remove_handle(fetch->fetcher->multi, fetch->curl);
    curl_easy_cleanup(fetch->curl);
    curl_slist_free_all(fetch->headers);
    fetch->curl = NULL;
    fetch->headers = NULL;
    fetch->fetcher->active--;
}

/* Begins a transfer, or sets the error. */
static void begin(struct blasd_fetch *fetch) {
    struct blasd_fetcher *fetcher = fetch->fetcher;
    fetch->curl = curl_easy_init();
    fetch->answer.checked = fetch->answer.jump = false;
    fetch->position = fetch->began_at = fetch->at;
    if (fetch->curl == NULL) {
        blasd_fail(&fetch->err, BLASD_E_no_space, "", "memory has run out");
        return;
    }
    fetcher->active++;
    if (set_up(fetch) == 0 && curl_multi_add_handle(fetcher->multi, fetch->curl) != CURLM_OK)
        blasd_fail(&fetch->err, BLASD_E_no_space, "", "memory has run out");
}

/* What a failed transfer means: a later try, or an error. */
static void try_again(struct blasd_fetch *fetch, const char *why) {
    int64_t now = blasd_clock_ns();
    if (fetch->position - fetch->began_at >= PROGRESS) fetch->tries = 0;
    if (fetch->at > 0 && fetch->file.etag[0] == '\0')
        blasd_fail(&fetch->err, BLASD_E_url_unavailable, fetch->field,
                   "%.100s; it cannot be gone on with, for the server gives no strong ETag", why);
    else if (++fetch->tries == TRIES || now >= fetch->until_ns)
        blasd_fail(&fetch->err, BLASD_E_url_unavailable, fetch->field, "%.100s, %d times", why,
                   fetch->tries);
    else
        fetch->again_ns = now + (PAUSE_NS << (fetch->tries - 1));
}

static bool is_whole(const struct blasd_fetch *fetch) {
    return fetch->file.known && fetch->at == fetch->end && fetch->err.code == BLASD_OK;
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
    else if (fetch->answer.jump && fetch->file.etag[0] == '\0')
        (void)refuse(fetch, "the server gives no strong ETag, without which a part of a file "
                            "cannot be fetched");
    else if (fetch->answer.jump)
        fetch->again_ns = 0;
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
