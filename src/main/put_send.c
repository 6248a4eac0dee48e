/* How an output is put: as GET /jobs/ID/outputs/NAME would give it, its length said first, read
 * from where it lies as it goes out. Read next: lane_rounds.h. */
#include "main/put_send.h"

#include "base/cut.h"
#include "wire/answer.h"
#include "wire/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALLED_S 10 /* slower than request_rate */

struct put {
    struct blasd_payload payload;
    struct blasd_answer *answer;
    int64_t size;
    bool cut; /* the file while it was read */
};

/* The file may be cut by who shares it: true where it was. */
static bool watched(struct put *put, bool end) {
    const struct blasd_blob *blob = &put->payload.blob;
    if (!end)
        blasd_cut_watch(blob->data, blob->data == NULL ? 0 : (size_t)blob->mapped);
    else if (blasd_cut_seen())
        put->cut = true;
    return put->cut;
}

static size_t read_body(char *out, size_t size, size_t count, void *arg) {
    struct put *put = arg;
    size_t len;
    (void)watched(put, false);
    len = blasd_answer_read(put->answer, out, size * count);
    return watched(put, true) ? CURL_READFUNC_ABORT : len;
}

static int open_body(const struct put_options *options, const struct blasd_webhook *hook,
                     struct put *put, enum blasd_format format, struct blasd_err *err) {
    struct blasd_record record;
    size_t payload_at;
    int code = blasd_record_decode(hook->record, hook->record_len, &record, &payload_at, err);
    if (code == 0)
        code = blasd_job_outputs_get(options->outputs, &record,
                                     (const char *)hook->record + payload_at, &put->payload, err);
    if (code != 0) return code;
    (void)watched(put, false);
    put->answer = blasd_answer_new(&record, put->payload.data, hook->output, format);
    if (watched(put, true) || !blasd_answer_possible(&record, hook->output, format))
        return blasd_fail(err, BLASD_E_record_expired, "", "the output is not there any more");
    if (put->answer == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    put->size = blasd_answer_size(put->answer);
    return 0;
}

static int begin(void *arg, const char *lane, const struct blasd_webhook *hook,
                 struct lane_request *request, struct blasd_err *err) {
    const struct put_options *options = arg;
    enum blasd_format format = blasd_format_of_url(hook->url);
    struct put *put = request->body = calloc(1, sizeof *put);
    CURL *curl = request->curl;
    int code;
    (void)lane;
    if (put == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    put->payload.blob.fd = -1;
    code = open_body(options, hook, put, format, err);
    if (code == 0 && !lane_request_header(request, "Content-Type", blasd_format_type(format)))
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    if (code != 0) return code;
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)put->size);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, read_body);
    curl_easy_setopt(curl, CURLOPT_READDATA, put);
    /* what was read is not read again: a connection kept open may turn out to be closed */
    curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)options->limits->request_rate);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALLED_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)options->limits->put_s);
    return 0;
}

static void set(struct lane_request *request, bool never, int why) {
    char *text = request->outcome.text;
    size_t size = sizeof request->outcome.text;
    if (never)
        snprintf(text, size, "never %d", why);
    else
        snprintf(text, size, "%d %d", request->curl == NULL ? 0 : lane_request_asked(request), why);
}

static void refuse(struct lane_request *request, const struct blasd_err *err) {
    if (err->code == BLASD_E_url_not_allowed || err->code == BLASD_E_invalid_field)
        set(request, true, BLASD_PUT_NOT_ALLOWED);
    else if (err->code == BLASD_E_record_expired)
        set(request, true, BLASD_PUT_LOST);
    else
        set(request, false, BLASD_PUT_NOT_SENT);
}

static bool may_help(long status) {
    return status == 408 || status == 425 || status == 429 || status >= 500;
}

/* Why there was no answer. */
static enum blasd_put_why why_not(const struct lane_request *request, CURLcode code) {
    const struct put *put = request->body;
    if (put->cut) return BLASD_PUT_LOST;
    if (code == CURLE_COULDNT_CONNECT && request->transfer.refused) return BLASD_PUT_NOT_ALLOWED;
    if (code == CURLE_OPERATION_TIMEDOUT) return BLASD_PUT_STALLED;
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CONNECT_ERROR)
        return BLASD_PUT_UNTRUSTED;
    if (code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT)
        return BLASD_PUT_UNREACHABLE;
    return BLASD_PUT_BROKEN;
}

/* It is there once all of it was taken and answered with 2xx. What a server says of the request
 * will be no other next time; that it has trouble may. */
static void judge(struct lane_request *request, CURLcode code, long status) {
    const struct put *put = request->body;
    curl_off_t sent = 0;
    enum blasd_put_why why;
    curl_easy_getinfo(request->curl, CURLINFO_SIZE_UPLOAD_T, &sent);
    if (status >= 200 && status < 300 && sent == put->size) {
        snprintf(request->outcome.text, sizeof request->outcome.text, "delivered");
        return;
    }
    if (status >= 300) {
        set(request, !may_help(status), (int)status);
        return;
    }
    why = status >= 200 ? BLASD_PUT_BROKEN : why_not(request, code);
    set(request, why == BLASD_PUT_NOT_ALLOWED || why == BLASD_PUT_LOST, (int)why);
}

static void release(struct lane_request *request) {
    struct put *put = request->body;
    if (put == NULL) return;
    blasd_answer_free(put->answer);
    blasd_payload_release(&put->payload);
    free(put);
}

struct lane_sender put_sender(const struct put_options *options) {
    return (struct lane_sender){.noun = "put",
                                .field = "put",
                                .arg = (void *)(uintptr_t)options,
                                .begin = begin,
                                .refuse = refuse,
                                .judge = judge,
                                .release = release};
}
