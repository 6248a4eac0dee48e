/* Its `id` is the job's, which ends once: whoever has seen it twice was sent it twice. */
#include "wire/cloud_event.h"

#include "wire/document.h"
#include "wire/json_out.h"

int blasd_cloud_event(const struct blasd_record *record, const struct blasd_job_use *use,
                      struct blasd_buf *buf) {
    const struct blasd_execution *execution = &record->execution;
    struct blasd_usage used = blasd_record_usage(record);
    struct json_out out = {.buf = buf};
    json_out_put(&out,
                 "{\"specversion\":\"1.0\",\"id\":%s,\"source\":\"/blasd/%r\","
                 "\"type\":\"blasd.job.ended.v1\",\"subject\":%s,\"time\":%t,\"sequence\":%s,"
                 "\"datacontenttype\":\"application/json\",\"data\":{",
                 record->id, use->queue, use->tenant, record->finished_us, use->sequence);
    json_out_put(&out,
                 "\"tenant\":%s,\"op\":%s,\"state\":%s,\"created_at\":%t,\"finished_at\":%t,"
                 "\"device\":%n,\"device_seconds\":%f,\"energy_joules\":%f,",
                 use->tenant, record->op, blasd_state_names[record->state], record->created_us,
                 record->finished_us, execution->device, used.device_s, used.energy_joules);
    json_out_put(&out, "\"bytes\":%u,\"flops\":%f,\"batch_size\":%i,\"attempts\":%i",
                 execution->bytes, execution->flops, (int64_t)execution->batch_size,
                 (int64_t)execution->attempts);
    if (record->prices != NULL) {
        json_out_put(&out, ",");
        document_cost(&out, record->prices, &used);
    }
    json_out_put(&out, "}}");
    return out.failed ? -1 : 0;
}
