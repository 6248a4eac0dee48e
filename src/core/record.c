/* Names of states, and what a record says between its lines. */
#include "core/record.h"

#include <stddef.h>
#include <string.h>

const char *const blasd_state_names[BLASD_STATE_COUNT] = {"queued", "running",   "succeeded",
                                                          "failed", "cancelled", "expired"};

bool blasd_state_final(enum blasd_state state) {
    return state >= BLASD_SUCCEEDED;
}

bool blasd_state_find(const char *name, enum blasd_state *ret) {
    for (int state = 0; state < BLASD_STATE_COUNT; state++) {
        if (strcmp(blasd_state_names[state], name) != 0) continue;
        *ret = (enum blasd_state)state;
        return true;
    }
    return false;
}

void blasd_record_init(struct blasd_record *record) {
    memset(record, 0, offsetof(struct blasd_record, execution));
    memset(&record->execution, 0, offsetof(struct blasd_execution, warnings));
    record->error.code = BLASD_OK;
    record->error.field[0] = record->error.detail[0] = record->labels[0] = '\0';
    record->error.least = 0;
    record->digested = false;
    record->keeping.keep = record->keeping.withhold = record->keeping.life_s = 0;
}

enum blasd_device_class blasd_record_class(const struct blasd_record *record) {
    const char *ran = record->execution.device;
    size_t len = strcspn(ran, ":");
    for (int c = BLASD_DEVICE_CPU; c < BLASD_DEVICE_CLASS_COUNT; c++)
        if (strncmp(ran, blasd_device_class_names[c], len) == 0 &&
            blasd_device_class_names[c][len] == '\0')
            return (enum blasd_device_class)c;
    return record->device;
}

double blasd_told(double value, double most) {
    return !(value > 0) ? 0 : value < most ? value : most;
}

struct blasd_usage blasd_record_usage(const struct blasd_record *record) {
    const struct blasd_execution *e = &record->execution;
    const struct blasd_timing *t = &record->timing;
    double share = 1.0 / (e->batch_size > 1 ? e->batch_size : 1);
    struct blasd_usage usage = {.device = blasd_record_class(record)};
    double us = (double)t->upload_us + (double)t->compute_us + (double)t->download_us;
    usage.device_s = blasd_told(us * share, BLASD_TOLD_MOST) * 1e-6;
    usage.energy_joules = blasd_told(e->energy_joules * share * 1e3, BLASD_TOLD_MOST) * 1e-3;
    return usage;
}

int blasd_record_output(const struct blasd_record *record, const struct blasd_reference *reference,
                        const char *field, struct blasd_err *err) {
    const struct blasd_op *op = blasd_op_find(record->op);
    int i = op == NULL ? -1 : blasd_op_output(op, reference->output);
    if (!blasd_state_final(record->state))
        return blasd_fail(err, BLASD_E_job_not_ended, field, "job %s is %s", reference->id,
                          blasd_state_names[record->state]);
    if (record->state != BLASD_SUCCEEDED)
        return blasd_fail(err, BLASD_E_input_failed, field, "job %s is %s: %.120s", reference->id,
                          blasd_state_names[record->state], record->error.detail);
    if (i < 0 || !blasd_record_has(record, i))
        return blasd_fail(err, BLASD_E_unknown_output, field, "job %s has no output '%s'",
                          reference->id, reference->output);
    if (blasd_withholds(&record->keeping, i) && !blasd_keeps(&record->keeping, i))
        return blasd_fail(err, BLASD_E_reference_not_found, field,
                          "the output '%s' of job %s was neither among its results nor kept",
                          reference->output, reference->id);
    return i;
}
