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
#define SEND_S 10L   /* that a request may take */
#define ASKED_S 3600 /* after which, at the most, a receiver may ask to be tried again */

struct webhook_request {
    struct webhook_hook *hook; /* borrowed */
    char id[BLASD_ID_LEN + 1];
    struct blasd_outgoing_transfer transfer;
    struct curl_slist *headers; /* owned, as the next two */
    CURL *curl;
    struct blasd_buf body;
    size_t replied;
};

void webhook_cut(struct webhook_sender *sender, struct webhook_hook *hook) {
    struct webhook_request *request = hook->request;
    hook->request = NULL;
    if (request == NULL) return;
    if (request->curl != NULL) {
        curl_multi_remove_handle(sender->multi, request->curl);
        curl_easy_cleanup(request->curl);
    }
    curl_slist_free_all(request->headers);
    blasd_buf_release(&request->body);
    free(request);
}

/* Its status has come by then. */
static size_t drop_reply(char *bytes, size_t size, size_t count, void *arg) {
    struct webhook_request *request = arg;
    (void)bytes;
    request->replied += size * count;
    return request->replied <= REPLY_MOST ? size * count : 0;
}

static size_t drop_header(char *bytes, size_t size, size_t count, void *arg) {
    return drop_reply(bytes, size, count, arg);
}

static int write_body(const struct webhook_sender *sender, const struct blasd_webhook *webhook,
                      struct blasd_buf *body, struct blasd_err *err) {
    struct blasd_record record;
    size_t size;
    int code = blasd_record_decode_bare(webhook->record, webhook->record_len, &record, &size, err);
    if (code != 0) return code;
    record.prices = sender->prices;
    if (blasd_job_document(&record, NULL, 0, false, body) == 0) return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the document");
}

/* Appends one; false where memory has run out. */
static bool add_header(struct webhook_request *request, const char *name, const char *value) {
    char line[HEADER_MOST];
    struct curl_slist *longer;
    snprintf(line, sizeof line, "%s: %s", name, value);
    longer = curl_slist_append(request->headers, line);
    if (longer != NULL) request->headers = longer;
    return longer != NULL;
}

static int write_headers(const struct webhook_sender *sender, const char *tenant,
                         struct webhook_request *request, struct blasd_err *err) {
    char timestamp[24], signatures[BLASD_SIGNATURES];
    snprintf(timestamp, sizeof timestamp, "%" PRId64, blasd_clock_wall_us() / 1000000);
    if (!blasd_signer_sign(sender->signer, tenant, request->id, timestamp, request->body.data,
                           request->body.len, signatures))
        return blasd_fail(err, BLASD_E_forbidden, "", "the tenant %s has no secret", tenant);
    if (add_header(request, "Content-Type", "application/json") &&
        add_header(request, "webhook-id", request->id) &&
        add_header(request, "webhook-timestamp", timestamp) &&
        add_header(request, "webhook-signature", signatures) && add_header(request, "Expect", ""))
        return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the headers");
}

static void set_options(struct webhook_request *request) {
    CURL *curl = request->curl;
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body.data);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, SEND_S);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, request->headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_reply);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, drop_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, request);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, request);
}

static int start_request(struct webhook_sender *sender, const struct blasd_webhook *webhook,
                         struct webhook_request *request, struct blasd_err *err) {
    int code;
    request->curl = curl_easy_init();
    if (request->curl == NULL) return blasd_no_memory(err);
    code = blasd_outgoing_transfer(sender->outgoing, webhook->url, "notify", request->curl,
                                   &request->transfer, err);
    if (code == 0) code = write_body(sender, webhook, &request->body, err);
    if (code == 0) code = write_headers(sender, webhook->tenant, request, err);
    if (code != 0) return code;
    set_options(request);
    if (curl_multi_add_handle(sender->multi, request->curl) == CURLM_OK) return 0;
    return blasd_no_memory(err);
}

int webhook_send(struct webhook_sender *sender, const struct blasd_webhook *webhook,
                 struct webhook_hook *hook, struct blasd_err *err) {
    struct webhook_request *request = calloc(1, sizeof *request);
    int code;
    if (request == NULL) return blasd_no_memory(err);
    hook->request = request;
    request->hook = hook;
    blasd_buf_init(&request->body, BODY_MOST);
    snprintf(request->id, sizeof request->id, "%s", webhook->id);
    code = start_request(sender, webhook, request, err);
    if (code != 0) webhook_cut(sender, hook);
    return code;
}

/* A time that has passed comes as a negative number from some of libcurl. */
static int read_asked_s(CURL *curl) {
    curl_off_t asked = 0;
    curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &asked);
    return asked < 0 ? 0 : asked > ASKED_S ? ASKED_S : (int)asked;
}

/* Says what the result means: what is answered with 2xx is delivered, and 410 says that it is not
 * wanted, now or later. What a receiver says counts, also where it says it badly: a body that is
 * too long, cut off, or never ends. That an answer will come (1xx) is none. */
static enum blasd_webhook_outcome read_result(const struct webhook_request *request,
                                              CURLcode code) {
    long status = 0;
    curl_easy_getinfo(request->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || code == CURLE_ABORTED_BY_CALLBACK) status = 0;
    if (code == CURLE_SEND_ERROR && status < 300) status = 0; /* else it would not have the rest */
    if (status >= 200 && status < 300) return BLASD_WEBHOOK_DELIVERED;
    if (status == 0)
        blasd_log(BLASD_LOG_INFO, "the webhook of job %s did not get through: %s", request->id,
                  blasd_outgoing_why(&request->transfer, code));
    else
        blasd_log(BLASD_LOG_INFO, "the webhook of job %s was answered with %ld", request->id,
                  status);
    return status == 410 ? BLASD_WEBHOOK_GIVEN_UP : BLASD_WEBHOOK_FAILED;
}

struct webhook_hook *webhook_sent(struct webhook_sender *sender,
                                  enum blasd_webhook_outcome *outcome, int *asked_s) {
    struct webhook_request *request = NULL;
    struct webhook_hook *hook;
    CURLMsg *message;
    int left;
    do {
        message = curl_multi_info_read(sender->multi, &left);
    } while (message != NULL && message->msg != CURLMSG_DONE);
    if (message == NULL) return NULL;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&request);
    *outcome = read_result(request, message->data.result);
    *asked_s = read_asked_s(request->curl);
    hook = request->hook;
    webhook_cut(sender, hook);
    return hook;
}
