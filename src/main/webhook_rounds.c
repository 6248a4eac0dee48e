/* Each request has a handle of libcurl of its own, so that nothing of one receiver is left for the
 * next; what a receiver says beside its status is dropped as it comes. */
#include "main/webhook_rounds.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "wire/answer.h"
#include "wire/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_MOST (256 * BLASD_KIB)
#define REPLY_MOST (64 * BLASD_KIB) /* that are read of one, to no end */
#define ASKED_MOST_S 3600           /* that a receiver may ask for */

struct request {
    struct blasd_webhook_outcome outcome;
    struct blasd_outgoing_visit visit;
    struct blasd_buf body;
    struct curl_slist *headers;
    CURL *curl;
    size_t replied;
};

struct round {
    char lane[BLASD_WEBHOOK_LANE]; /* "": free */
    struct request requests[WEBHOOK_EACH];
    int count, running;
};

struct webhook_rounds {
    struct webhook_rounds_options options;
    CURLM *multi;
    struct round rounds[WEBHOOK_ROUNDS];
};

struct webhook_rounds *webhook_rounds_new(const struct webhook_rounds_options *options) {
    struct webhook_rounds *rounds = calloc(1, sizeof *rounds);
    if (rounds == NULL) return NULL;
    rounds->options = *options;
    rounds->multi = curl_multi_init();
    if (rounds->multi == NULL) {
        free(rounds);
        return NULL;
    }
    curl_multi_setopt(rounds->multi, CURLMOPT_MAXCONNECTS, (long)WEBHOOK_ROUNDS); /* kept open */
    return rounds;
}

static void end_request(struct webhook_rounds *rounds, struct request *request) {
    if (request->curl != NULL) {
        curl_multi_remove_handle(rounds->multi, request->curl);
        curl_easy_cleanup(request->curl);
    }
    request->curl = NULL;
    curl_slist_free_all(request->headers);
    request->headers = NULL;
    blasd_buf_release(&request->body);
}

void webhook_rounds_free(struct webhook_rounds *rounds) {
    if (rounds == NULL) return;
    for (int i = 0; i < WEBHOOK_ROUNDS; i++)
        for (int n = 0; n < rounds->rounds[i].count; n++)
            end_request(rounds, &rounds->rounds[i].requests[n]);
    curl_multi_cleanup(rounds->multi);
    free(rounds);
}

int webhook_rounds_room(const struct webhook_rounds *rounds) {
    int room = 0;
    for (int i = 0; i < WEBHOOK_ROUNDS; i++) room += rounds->rounds[i].lane[0] == '\0';
    return room;
}

/* --- one request --- */

static void set_outcome(struct request *request, const char *text) {
    snprintf(request->outcome.text, sizeof request->outcome.text, "%s", text);
}

/* Its status has come by then. */
static size_t drop_reply(char *bytes, size_t size, size_t count, void *arg) {
    struct request *request = arg;
    (void)bytes;
    request->replied += size * count;
    return request->replied <= REPLY_MOST ? size * count : 0;
}

static size_t drop_header(char *bytes, size_t size, size_t count, void *arg) {
    return drop_reply(bytes, size, count, arg);
}

static int write_body(const struct webhook_rounds *rounds, const struct blasd_webhook *hook,
                      struct blasd_buf *body, struct blasd_err *err) {
    struct blasd_record record;
    size_t size;
    int code = blasd_record_decode_bare(hook->record, hook->record_len, &record, &size, err);
    if (code != 0) return code;
    record.prices = rounds->options.prices;
    if (blasd_job_document(&record, NULL, 0, false, body) == 0) return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the document");
}

static bool add_header(struct request *request, const char *name, const char *value) {
    char line[BLASD_SIGNATURES + 64];
    struct curl_slist *longer;
    snprintf(line, sizeof line, "%s: %s", name, value);
    longer = curl_slist_append(request->headers, line);
    if (longer != NULL) request->headers = longer;
    return longer != NULL;
}

static int write_headers(const struct webhook_rounds *rounds, const char *lane,
                         struct request *request, struct blasd_err *err) {
    char tenant[BLASD_TENANT_MAX], timestamp[24], signatures[BLASD_SIGNATURES];
    snprintf(tenant, sizeof tenant, "%.*s", (int)strcspn(lane, " "), lane);
    snprintf(timestamp, sizeof timestamp, "%" PRId64, blasd_clock_wall_us() / 1000000);
    if (!blasd_signer_sign(rounds->options.signer, tenant, request->outcome.id, timestamp,
                           request->body.data, request->body.len, signatures))
        return blasd_fail(err, BLASD_E_forbidden, "", "there is no secret for the tenant %s",
                          tenant);
    if (add_header(request, "Content-Type", "application/json") &&
        add_header(request, "webhook-id", request->outcome.id) &&
        add_header(request, "webhook-timestamp", timestamp) &&
        add_header(request, "webhook-signature", signatures) && add_header(request, "Expect", ""))
        return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the headers");
}

static int start_request(struct webhook_rounds *rounds, const char *lane,
                         const struct blasd_webhook *hook, struct request *request,
                         struct blasd_err *err) {
    CURL *curl = curl_easy_init();
    int code = write_body(rounds, hook, &request->body, err);
    request->curl = curl;
    if (code == 0) code = write_headers(rounds, lane, request, err);
    if (code == 0 && curl == NULL) code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    if (code == 0)
        code = blasd_outgoing_visit(rounds->options.outgoing, hook->url, "notify", curl,
                                    &request->visit, err);
    if (code != 0) return code;
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body.data);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, request->headers);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)WEBHOOK_MOST_S);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_reply);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, drop_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, request);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, request);
    if (curl_multi_add_handle(rounds->multi, curl) == CURLM_OK) return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the request");
}

void webhook_rounds_begin(void *arg, const char *lane, const struct blasd_webhook *hooks,
                          int count) {
    struct webhook_rounds *rounds = arg;
    struct round *round = rounds->rounds;
    while (round->lane[0] != '\0')
        round++; /* the caller asked for no more than there is room for */
    snprintf(round->lane, sizeof round->lane, "%s", lane);
    round->count = count < WEBHOOK_EACH ? count : WEBHOOK_EACH;
    round->running = 0;
    for (int i = 0; i < round->count; i++) {
        struct request *request = &round->requests[i];
        struct blasd_err err = {0};
        *request = (struct request){.replied = 0};
        blasd_buf_init(&request->body, BODY_MOST);
        snprintf(request->outcome.id, sizeof request->outcome.id, "%s", hooks[i].id);
        if (start_request(rounds, round->lane, &hooks[i], request, &err) == 0) {
            round->running++;
            continue;
        }
        blasd_log(BLASD_LOG_WARN, "the webhook of job %s cannot be sent: %s", hooks[i].id,
                  err.detail);
        set_outcome(request, "0");
        end_request(rounds, request);
    }
}

/* How many seconds the receiver asks to be left alone. A time that has passed comes as a negative
 * number from some of libcurl. */
static int asked_of(const struct request *request) {
    curl_off_t asked = 0;
    curl_easy_getinfo(request->curl, CURLINFO_RETRY_AFTER, &asked);
    if (asked < 0) return 0;
    return asked > ASKED_MOST_S ? ASKED_MOST_S : (int)asked;
}

/* Delivered is what is answered with 2xx. 410 says that it is not wanted, now or later. */
static void take_result(struct request *request, CURLcode code) {
    char text[BLASD_WEBHOOK_OUTCOME];
    long status = 0;
    curl_easy_getinfo(request->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK && code != CURLE_WRITE_ERROR) status = 0;
    if (status >= 200 && status < 300) {
        set_outcome(request, "delivered");
        return;
    }
    if (status == 410)
        snprintf(text, sizeof text, "never");
    else
        snprintf(text, sizeof text, "%d", asked_of(request));
    set_outcome(request, text);
    if (status != 0)
        blasd_log(BLASD_LOG_INFO, "the webhook of job %s was answered with %ld",
                  request->outcome.id, status);
    else
        blasd_log(BLASD_LOG_INFO, "the webhook of job %s did not get through: %s",
                  request->outcome.id, blasd_outgoing_why(&request->visit, code));
}

static void note_running(struct webhook_rounds *rounds, const struct request *request) {
    for (int i = 0; i < WEBHOOK_ROUNDS; i++) {
        struct round *round = &rounds->rounds[i];
        if (request >= round->requests && request < round->requests + WEBHOOK_EACH)
            round->running--;
    }
}

void webhook_rounds_turn(struct webhook_rounds *rounds, int wait_ms) {
    CURLMsg *message;
    int left;
    curl_multi_poll(rounds->multi, NULL, 0, wait_ms, NULL);
    curl_multi_perform(rounds->multi, &left);
    while ((message = curl_multi_info_read(rounds->multi, &left)) != NULL) {
        struct request *request = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&request);
        take_result(request, message->data.result);
        note_running(rounds, request);
        end_request(rounds, request);
    }
}

int webhook_rounds_over(struct webhook_rounds *rounds,
                        int (*tell)(void *arg, const char *lane,
                                    const struct blasd_webhook_outcome *outcomes, int count),
                        void *arg) {
    int last = 0;
    for (int i = 0; i < WEBHOOK_ROUNDS; i++) {
        struct round *round = &rounds->rounds[i];
        struct blasd_webhook_outcome outcomes[WEBHOOK_EACH];
        int code;
        if (round->lane[0] == '\0' || round->running > 0) continue;
        for (int n = 0; n < round->count; n++) outcomes[n] = round->requests[n].outcome;
        code = tell(arg, round->lane, outcomes, round->count);
        if (code == 0) round->lane[0] = '\0';
        if (code != 0) last = code;
    }
    return last;
}
