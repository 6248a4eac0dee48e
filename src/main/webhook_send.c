/* Each request has a handle of libcurl of its own, so that nothing of one receiver is left for the
 * next; what a receiver says beside its status is dropped as it comes. */
#include "main/webhook_send.h"

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
#define HEADER_MOST 512
#define CONNECTIONS 64 /* that are kept open */

struct request {
    void *of; /* borrowed */
    char id[BLASD_ID_LEN + 1];
    struct blasd_outgoing_transfer transfer;
    struct curl_slist *headers; /* owned, as all below */
    CURL *curl;                 /* NULL: this one is free */
    struct blasd_buf body;
    size_t replied;
};

struct webhook_sender {
    struct webhook_options options;
    CURLM *multi;
    int count;
    struct request requests[];
};

struct webhook_sender *webhook_sender_new(const struct webhook_options *options, int most) {
    struct webhook_sender *sender =
        calloc(1, sizeof *sender + (size_t)most * sizeof *sender->requests);
    if (sender == NULL) return NULL;
    sender->options = *options;
    sender->count = most;
    sender->multi = curl_multi_init();
    if (sender->multi == NULL) {
        free(sender);
        return NULL;
    }
    curl_multi_setopt(sender->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS);
    return sender;
}

static void end_request(struct webhook_sender *sender, struct request *request) {
    if (request->curl != NULL) {
        curl_multi_remove_handle(sender->multi, request->curl);
        curl_easy_cleanup(request->curl);
    }
    curl_slist_free_all(request->headers);
    blasd_buf_release(&request->body);
    request->curl = NULL;
    request->headers = NULL;
}

void webhook_sender_free(struct webhook_sender *sender) {
    if (sender == NULL) return;
    for (int i = 0; i < sender->count; i++)
        if (sender->requests[i].curl != NULL) end_request(sender, &sender->requests[i]);
    curl_multi_cleanup(sender->multi);
    free(sender);
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

static int write_body(const struct webhook_options *options, const struct blasd_webhook *hook,
                      struct blasd_buf *body, struct blasd_err *err) {
    struct blasd_record record;
    size_t size;
    int code = blasd_record_decode_bare(hook->record, hook->record_len, &record, &size, err);
    if (code != 0) return code;
    record.prices = options->prices;
    if (blasd_job_document(&record, NULL, 0, false, body) == 0) return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the document");
}

/* Appends one; false where memory has run out. */
static bool add_header(struct request *request, const char *name, const char *value) {
    char line[HEADER_MOST];
    struct curl_slist *longer;
    snprintf(line, sizeof line, "%s: %s", name, value);
    longer = curl_slist_append(request->headers, line);
    if (longer != NULL) request->headers = longer;
    return longer != NULL;
}

static int write_headers(const struct webhook_options *options, const char *tenant,
                         struct request *request, struct blasd_err *err) {
    char timestamp[24], signatures[BLASD_SIGNATURES];
    snprintf(timestamp, sizeof timestamp, "%" PRId64, blasd_clock_wall_us() / 1000000);
    if (!blasd_signer_sign(options->signer, tenant, request->id, timestamp, request->body.data,
                           request->body.len, signatures))
        return blasd_fail(err, BLASD_E_forbidden, "", "there is no secret for the tenant %s",
                          tenant);
    if (add_header(request, "Content-Type", "application/json") &&
        add_header(request, "webhook-id", request->id) &&
        add_header(request, "webhook-timestamp", timestamp) &&
        add_header(request, "webhook-signature", signatures) && add_header(request, "Expect", ""))
        return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the headers");
}

static void set_options(struct request *request) {
    CURL *curl = request->curl;
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body.data);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)WEBHOOK_MOST_S);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, request->headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_reply);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, drop_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, request);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, request);
}

static int start_request(struct webhook_sender *sender, const struct blasd_webhook *hook,
                         struct request *request, struct blasd_err *err) {
    int code;
    request->curl = curl_easy_init();
    if (request->curl == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    code = blasd_outgoing_transfer(sender->options.outgoing, hook->url, "notify", request->curl,
                                   &request->transfer, err);
    if (code == 0) code = write_body(&sender->options, hook, &request->body, err);
    if (code == 0) code = write_headers(&sender->options, hook->tenant, request, err);
    if (code != 0) return code;
    set_options(request);
    if (curl_multi_add_handle(sender->multi, request->curl) == CURLM_OK) return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the request");
}

void webhook_sender_begin(struct webhook_sender *sender, const struct blasd_webhook *hook,
                          void *of) {
    struct request *request = sender->requests;
    struct blasd_err err = {0};
    while (request->curl != NULL) request++; /* there are as many as the caller begins */
    *request = (struct request){.of = of};
    blasd_buf_init(&request->body, BODY_MOST);
    snprintf(request->id, sizeof request->id, "%s", hook->id);
    if (start_request(sender, hook, request, &err) == 0) return;
    blasd_log(BLASD_LOG_WARN, "the webhook of job %s cannot be sent: %s", hook->id, err.detail);
    end_request(sender, request);
    sender->options.over(sender->options.arg, of, BLASD_WEBHOOK_FAILED, 0);
}

/* A time that has passed comes as a negative number from some of libcurl. */
static int asked_s(CURL *curl) {
    curl_off_t asked = 0;
    curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &asked);
    return asked < 0 ? 0 : asked > WEBHOOK_ASKED_S ? WEBHOOK_ASKED_S : (int)asked;
}

/* Takes the result: what is answered with 2xx is delivered, and 410 says that it is not wanted, now
 * or later. What a receiver says counts, also where it says it badly: a body that is too long, cut
 * off, or never ends. That an answer will come (1xx) is none. */
static void take_result(struct webhook_sender *sender, struct request *request, CURLcode code) {
    enum blasd_webhook_outcome outcome = BLASD_WEBHOOK_FAILED;
    int later = asked_s(request->curl);
    long status = 0;
    curl_easy_getinfo(request->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || code == CURLE_ABORTED_BY_CALLBACK) status = 0;
    if (code == CURLE_SEND_ERROR && status < 300) status = 0; /* else it would not have the rest */
    if (status >= 200 && status < 300)
        outcome = BLASD_WEBHOOK_DELIVERED;
    else if (status == 0)
        blasd_log(BLASD_LOG_INFO, "the webhook of job %s did not get through: %s", request->id,
                  blasd_outgoing_why(&request->transfer, code));
    else
        blasd_log(BLASD_LOG_INFO, "the webhook of job %s was answered with %ld", request->id,
                  status);
    if (status == 410) outcome = BLASD_WEBHOOK_GIVEN_UP;
    end_request(sender, request);
    sender->options.over(sender->options.arg, request->of, outcome, later);
}

void webhook_sender_turn(struct webhook_sender *sender, int wait_ms) {
    CURLMsg *message;
    int left;
    curl_multi_poll(sender->multi, NULL, 0, wait_ms, NULL);
    curl_multi_perform(sender->multi, &left);
    while ((message = curl_multi_info_read(sender->multi, &left)) != NULL) {
        struct request *request = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&request);
        take_result(sender, request, message->data.result);
    }
}
