/* The little that all backends share. */
#include "core/kernel.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void blasd_task_reset(struct blasd_task *task) {
    task->err = (struct blasd_err){0};
    task->method[0] = '\0';
    task->warning_count = 0;
    task->upload_us = task->download_us = task->compute_us = 0;
    task->upload_bytes = task->download_bytes = 0;
    task->energy_joules = 0;
    task->device_only = 0;
    task->residents = NULL;
    task->told = NULL;
    task->told_bytes = 0;
}

void blasd_task_make_inputs(struct blasd_task *task) {
    struct blasd_err err;
    if (task->device_only != 0 && task->to_host(task, &err) != 0 && task->err.code == BLASD_OK)
        task->err = err;
    for (int i = 0; task->unmade != 0; i++) {
        if ((task->unmade >> i & 1) == 0) continue;
        blasd_rule_fill(&task->job->inputs[i].source.rule, &task->inputs[i]);
        task->unmade &= ~(1u << i);
    }
}

void blasd_task_warn(struct blasd_task *task, enum blasd_warning_code code, const char *fmt, ...) {
    struct blasd_warning *last = &task->warnings[BLASD_MAX_WARNINGS - 1], *next;
    va_list args;
    if (task->warning_count >= BLASD_MAX_WARNINGS) {
        last->code = BLASD_W_others_left_out;
        snprintf(last->text, sizeof last->text,
                 "others are left out: a job has at most %d warnings", BLASD_MAX_WARNINGS);
        return;
    }
    next = &task->warnings[task->warning_count++];
    next->code = code;
    va_start(args, fmt);
    vsnprintf(next->text, sizeof next->text, fmt, args);
    va_end(args);
}

const struct blasd_kernel *blasd_backend_kernel(const struct blasd_backend *backend,
                                                const struct blasd_op *op) {
    for (int i = 0; backend->kernels[i] != NULL; i++)
        if (strcmp(backend->kernels[i]->op, op->name) == 0) return backend->kernels[i];
    return NULL;
}
