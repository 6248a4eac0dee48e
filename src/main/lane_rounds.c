/* Each request has a handle of libcurl of its own, so that nothing of one receiver is left for the
 * next; what a receiver says beside its status is dropped as it comes. */
#include "main/lane_rounds.h"

#include "base/limits.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_MOST (64 * BLASD_KIB) /* that are read of one, to no end */
#define HEADER_MOST 512
#define ASKED_MOST_S 3600 /* that a receiver may ask for */

struct round {
    const struct lane_sender *sender; /* NULL: free */
    char lane[BLASD_WEBHOOK_LANE];
    struct lane_request requests[LANE_EACH];
    int count, running;
};

struct lane_rounds {
    const struct blasd_outgoing *outgoing;
    CURLM *multi;
    struct round rounds[LANE_ROUNDS];
};

struct lane_rounds *lane_rounds_new(const struct blasd_outgoing *outgoing) {
    struct lane_rounds *rounds = calloc(1, sizeof *rounds);
    if (rounds == NULL) return NULL;
    rounds->outgoing = outgoing;
    rounds->multi = curl_multi_init();
    if (rounds->multi == NULL) {
        free(rounds);
        return NULL;
    }
    curl_multi_setopt(rounds->multi, CURLMOPT_MAXCONNECTS, (long)LANE_ROUNDS); /* kept open */
    return rounds;
}

static void end_request(struct lane_rounds *rounds, const struct lane_sender *sender,
                        struct lane_request *request) {
    if (request->curl != NULL) {
        curl_multi_remove_handle(rounds->multi, request->curl);
        curl_easy_cleanup(request->curl);
    }
    request->curl = NULL;
    curl_slist_free_all(request->headers);
    request->headers = NULL;
    sender->release(request);
    request->body = NULL;
}

static void end_round(struct lane_rounds *rounds, struct round *round) {
    for (int n = 0; round->sender != NULL && n < round->count; n++)
        end_request(rounds, round->sender, &round->requests[n]);
    round->running = 0;
}

void lane_rounds_free(struct lane_rounds *rounds) {
    if (rounds == NULL) return;
    for (int i = 0; i < LANE_ROUNDS; i++) end_round(rounds, &rounds->rounds[i]);
    curl_multi_cleanup(rounds->multi);
    free(rounds);
}

int lane_rounds_room(const struct lane_rounds *rounds) {
    int room = LANE_ROUNDS;
    for (int i = 0; i < LANE_ROUNDS; i++) room -= rounds->rounds[i].sender != NULL;
    return room;
}

/* --- one request --- */

/* Its status has come by then. */
static size_t drop_reply(char *bytes, size_t size, size_t count, void *arg) {
    struct lane_request *request = arg;
    (void)bytes;
    request->replied += size * count;
    return request->replied <= REPLY_MOST ? size * count : 0;
}

static size_t drop_header(char *bytes, size_t size, size_t count, void *arg) {
    return drop_reply(bytes, size, count, arg);
}

static int start_request(struct lane_rounds *rounds, const struct round *round,
                         const struct blasd_webhook *hook, struct lane_request *request,
                         struct blasd_err *err) {
    CURL *curl = curl_easy_init();
    int code;
    request->curl = curl;
    if (curl == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    code = blasd_outgoing_transfer(rounds->outgoing, hook->url, round->sender->field, curl,
                                   &request->transfer, err);
    if (code == 0) code = round->sender->begin(round->sender->arg, round->lane, hook, request, err);
    if (code != 0) return code;
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, request->headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_reply);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, drop_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, request);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, request);
    if (curl_multi_add_handle(rounds->multi, curl) == CURLM_OK) return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the request");
}

void lane_rounds_begin(void *arg, const char *lane, const struct blasd_webhook *hooks, int count) {
    const struct lane_rounds_order *order = arg;
    struct round *round = order->rounds->rounds;
    while (round->sender != NULL) round++; /* the caller asked for no more than there is room for */
    snprintf(round->lane, sizeof round->lane, "%s", lane);
    round->sender = order->sender;
    round->count = count < LANE_EACH ? count : LANE_EACH;
    round->running = 0;
    for (int i = 0; i < round->count; i++) {
        struct lane_request *request = &round->requests[i];
        struct blasd_err err = {0};
        *request = (struct lane_request){.replied = 0};
        snprintf(request->outcome.id, sizeof request->outcome.id, "%s", hooks[i].id);
        if (start_request(order->rounds, round, &hooks[i], request, &err) == 0) {
            round->running++;
            continue;
        }
        blasd_log(BLASD_LOG_WARN, "the %s of job %s cannot be sent: %s", order->sender->noun,
                  hooks[i].id, err.detail);
        order->sender->refuse(request, &err);
        end_request(order->rounds, order->sender, request);
    }
}

bool lane_request_header(struct lane_request *request, const char *name, const char *value) {
    char line[HEADER_MOST];
    struct curl_slist *longer;
    snprintf(line, sizeof line, "%s: %s", name, value);
    longer = curl_slist_append(request->headers, line);
    if (longer != NULL) request->headers = longer;
    return longer != NULL;
}

/* A time that has passed comes as a negative number from some of libcurl. */
int lane_request_asked(const struct lane_request *request) {
    curl_off_t asked = 0;
    curl_easy_getinfo(request->curl, CURLINFO_RETRY_AFTER, &asked);
    if (asked < 0) return 0;
    return asked > ASKED_MOST_S ? ASKED_MOST_S : (int)asked;
}

/* What it says counts, also where it says it badly: a body that is too long, cut off, or never
 * ends. That an answer will come (1xx) is none. */
static void take_result(const struct lane_sender *sender, struct lane_request *request,
                        CURLcode code) {
    long status = 0;
    curl_easy_getinfo(request->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || code == CURLE_ABORTED_BY_CALLBACK) status = 0;
    if (code == CURLE_SEND_ERROR && status < 300) status = 0; /* else it would not have the rest */
    sender->judge(request, code, status);
    if (status >= 200 && status < 300) return;
    if (status != 0)
        blasd_log(BLASD_LOG_INFO, "the %s of job %s was answered with %ld", sender->noun,
                  request->outcome.id, status);
    else
        blasd_log(BLASD_LOG_INFO, "the %s of job %s did not get through: %s", sender->noun,
                  request->outcome.id, blasd_outgoing_why(&request->transfer, code));
}

static struct round *round_of(struct lane_rounds *rounds, const struct lane_request *request) {
    struct round *round = rounds->rounds;
    while (request < round->requests || request >= round->requests + LANE_EACH) round++;
    return round;
}

void lane_rounds_turn(struct lane_rounds *rounds, int wait_ms) {
    CURLMsg *message;
    int left;
    curl_multi_poll(rounds->multi, NULL, 0, wait_ms, NULL);
    curl_multi_perform(rounds->multi, &left);
    while ((message = curl_multi_info_read(rounds->multi, &left)) != NULL) {
        struct lane_request *request = NULL;
        struct round *round;
        if (message->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&request);
        round = round_of(rounds, request);
        take_result(round->sender, request, message->data.result);
        round->running--;
        end_request(rounds, round->sender, request);
    }
}

int lane_rounds_over(struct lane_rounds *rounds, const struct lane_sender *sender,
                     int (*tell)(void *arg, const char *lane,
                                 const struct blasd_webhook_outcome *outcomes, int count),
                     void *arg) {
    int last = 0;
    for (int i = 0; i < LANE_ROUNDS; i++) {
        struct round *round = &rounds->rounds[i];
        struct blasd_webhook_outcome outcomes[LANE_EACH];
        int code;
        if (round->sender != sender || round->running > 0) continue;
        for (int n = 0; n < round->count; n++) outcomes[n] = round->requests[n].outcome;
        code = tell(arg, round->lane, outcomes, round->count);
        if (code == 0) round->sender = NULL;
        if (code != 0) last = code;
    }
    return last;
}
