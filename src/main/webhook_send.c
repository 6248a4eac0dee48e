/* How a webhook is sent: the job's document, signed. Read next: lane_rounds.h. */
#include "main/webhook_send.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "wire/answer.h"
#include "wire/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_MOST (256 * BLASD_KIB)

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

static int write_headers(const struct webhook_options *options, const char *lane,
                         const struct blasd_buf *body, struct lane_request *request,
                         struct blasd_err *err) {
    char tenant[BLASD_TENANT_MAX], timestamp[24], signatures[BLASD_SIGNATURES];
    snprintf(tenant, sizeof tenant, "%.*s", (int)strcspn(lane, " "), lane);
    snprintf(timestamp, sizeof timestamp, "%" PRId64, blasd_clock_wall_us() / 1000000);
    if (!blasd_signer_sign(options->signer, tenant, request->outcome.id, timestamp, body->data,
                           body->len, signatures))
        return blasd_fail(err, BLASD_E_forbidden, "", "there is no secret for the tenant %s",
                          tenant);
    if (lane_request_header(request, "Content-Type", "application/json") &&
        lane_request_header(request, "webhook-id", request->outcome.id) &&
        lane_request_header(request, "webhook-timestamp", timestamp) &&
        lane_request_header(request, "webhook-signature", signatures) &&
        lane_request_header(request, "Expect", ""))
        return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the headers");
}

static int begin(void *arg, const char *lane, const struct blasd_webhook *hook,
                 struct lane_request *request, struct blasd_err *err) {
    const struct webhook_options *options = arg;
    struct blasd_buf *body = request->body = malloc(sizeof *body);
    int code;
    if (body == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    blasd_buf_init(body, BODY_MOST);
    code = write_body(options, hook, body, err);
    if (code == 0) code = write_headers(options, lane, body, request, err);
    if (code != 0) return code;
    curl_easy_setopt(request->curl, CURLOPT_POSTFIELDS, body->data);
    curl_easy_setopt(request->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->len);
    curl_easy_setopt(request->curl, CURLOPT_TIMEOUT, (long)WEBHOOK_MOST_S);
    return 0;
}

static void refuse(struct lane_request *request, const struct blasd_err *err) {
    (void)err;
    snprintf(request->outcome.text, sizeof request->outcome.text, "0");
}

/* Delivered is what is answered with 2xx. 410 says that it is not wanted, now or later. */
static void judge(struct lane_request *request, CURLcode code, long status) {
    char *text = request->outcome.text;
    size_t size = sizeof request->outcome.text;
    (void)code;
    if (status >= 200 && status < 300)
        snprintf(text, size, "delivered");
    else if (status == 410)
        snprintf(text, size, "never");
    else
        snprintf(text, size, "%d", lane_request_asked(request));
}

static void release(struct lane_request *request) {
    if (request->body != NULL) blasd_buf_release(request->body);
    free(request->body);
}

struct lane_sender webhook_sender(const struct webhook_options *options) {
    return (struct lane_sender){.noun = "webhook",
                                .field = "notify",
                                .arg = (void *)(uintptr_t)options,
                                .begin = begin,
                                .refuse = refuse,
                                .judge = judge,
                                .release = release};
}
