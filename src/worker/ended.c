/* A line of the log about a job that has ended. */
#include "worker/ended.h"

#include "base/log.h"
#include "worker/group.h"
#include "worker/worker.h"

#include <inttypes.h>
#include <stdio.h>

struct blasd_ended blasd_ended_of(const struct blasd_record *record) {
    const struct blasd_execution *execution = &record->execution;
    return (struct blasd_ended){.state = record->state,
                                .code = record->error.code,
                                .attempts = execution->attempts,
                                .used = blasd_record_usage(record),
                                .flops = execution->flops,
                                .bytes = execution->bytes};
}

/* Numbers as text: what JSON takes, too. */
struct numbers {
    char attempts[16], device_s[32], joules[32], flops[32], bytes[24], cost[32];
};

static void write_numbers(const struct blasd_ended *ended, struct numbers *ret) {
    snprintf(ret->attempts, sizeof ret->attempts, "%d", ended->attempts);
    snprintf(ret->device_s, sizeof ret->device_s, "%.9g", ended->used.device_s);
    snprintf(ret->joules, sizeof ret->joules, "%.9g", ended->used.energy_joules);
    snprintf(ret->flops, sizeof ret->flops, "%.17g", ended->flops);
    snprintf(ret->bytes, sizeof ret->bytes, "%" PRIu64, ended->bytes);
}

void blasd_ended_log(const struct blasd_ended *ended, const struct blasd_item *item,
                     const char *device, const struct blasd_worker_options *options) {
    const struct blasd_prices *prices = options->prices;
    struct numbers numbers;
    char event[32], trace[BLASD_TRACE_TEXT];
    double cost;
    bool failed = ended->state == BLASD_FAILED;
    bool priced = prices != NULL && blasd_price_of(prices, &ended->used, &cost);
    const char *tenant = item->claim->tenant;
    const struct blasd_log_field fields[] = {
        {"id", item->claim->id, false},
        {"code", failed ? blasd_err_info(ended->code)->name : NULL, false},
        {"op", item->job.op == NULL ? "unknown" : item->job.op->name, false},
        {"tenant", tenant[0] == '\0' ? NULL : tenant, false},
        {"device", device, false},
        {"attempts", numbers.attempts, true},
        {"device_seconds", numbers.device_s, true},
        {"energy_joules", numbers.joules, true},
        {"flops", numbers.flops, true},
        {"bytes", numbers.bytes, true},
        {"cost", priced ? numbers.cost : NULL, true},
        {"currency", priced ? prices->currency : NULL, false},
        {"trace_id", blasd_trace_given(item->job.trace.id) ? trace : NULL, false}};
    if (!options->audit && !failed) return;
    write_numbers(ended, &numbers);
    if (priced) snprintf(numbers.cost, sizeof numbers.cost, "%.17g", cost);
    blasd_trace_text(item->job.trace.id, trace);
    snprintf(event, sizeof event, "job %s", blasd_state_names[ended->state]);
    (options->audit ? blasd_log_event : blasd_log_job_event)(BLASD_LOG_INFO, event, fields,
                                                             sizeof fields / sizeof *fields);
}
