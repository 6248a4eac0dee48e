/* Whether what a request asks of its job's outputs can be had: which are kept, which are sent;
 * and what room they will take.
 * Read next: jobs_post.c, which asks. */
#include "http/exchange.h"
#include "http/jobs.h"
#include "http/upload.h"

#include <stdio.h>

int http_upload_check_kept(const struct blasd_job *job, const struct blasd_plan *plan,
                           struct blasd_err *err) {
    const struct blasd_keeping *keeping = blasd_job_keeping(job);
    for (int i = 0; job->op->outputs[i].name != NULL; i++) {
        const char *name = job->op->outputs[i].name;
        char field[BLASD_NAME_MAX + 8];
        if (!blasd_keeps(keeping, i) || plan->outputs[i].rank >= 0) continue;
        snprintf(field, sizeof field, "keep.%s", name);
        return blasd_fail(err, BLASD_E_invalid_field, field,
                          "this job does not make the output '%s'", name);
    }
    return 0;
}

int http_upload_check_array(const struct http_upload *upload, const struct blasd_job *job,
                            const struct blasd_plan *plan, struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    const struct blasd_keeping *keeping = blasd_job_keeping(job);
    int output = 0;
    bool sends;
    if (exchange->wanted.format != BLASD_FORMAT_NPY) return 0;
    while (job->op->outputs[output + 1].name != NULL &&
           (plan->outputs[output].rank < 0 || blasd_withholds(keeping, output)))
        output++;
    sends = plan->outputs[output].rank >= 0 && !blasd_withholds(keeping, output);
    if (sends && plan->outputs[output].dtype != BLASD_bfloat16) return 0;
    if (http_other_format(exchange)) return 0;
    return blasd_fail(err, BLASD_E_not_acceptable, "Accept",
                      sends ? "the output is bfloat16, which a .npy file cannot hold"
                            : "no output is sent that a .npy file could hold: name one in "
                              "results, or accept application/json");
}

#define RECORD_BYTES 1024 /* of a record, with what Redis spends on it */

void http_upload_predict(struct http_upload *upload, const struct blasd_job *job,
                         const struct blasd_plan *plan) {
    const struct blasd_keeping *keeping = blasd_job_keeping(job);
    upload->result = RECORD_BYTES;
    upload->made_bytes = upload->made = 0;
    for (int i = 0; job->op->outputs[i].name != NULL; i++) {
        uint64_t bytes;
        if (plan->outputs[i].rank < 0) continue;
        bytes = blasd_tensor_bytes(&plan->outputs[i]);
        if (!blasd_withholds(keeping, i)) upload->result += bytes;
        if (!blasd_keeps(keeping, i)) continue;
        upload->made_bytes += bytes;
        upload->made++;
    }
}
