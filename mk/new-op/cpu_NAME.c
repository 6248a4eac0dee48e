/* NAME on the CPU. Read next: README.md; ../README.md for what a kernel owes. */
#include "core/wanted.h"
#include "kernels/NAME/NAME.h"
#include "kernels/cpu/cpu.h"

#include <stdio.h>

static void compute(struct blasd_task *task) {
    const struct blasd_tensor *x = &task->inputs[BLASD_NAME_X], *y = &task->outputs[BLASD_NAME_Y];
    int64_t count = blasd_tensor_elements(y), done = 0;
    double scale = task->job->params[BLASD_NAME_SCALE].f;
    for (int64_t i = 0; i < count && blasd_wanted_after(&done, 1); i++) {
        if (y->dtype == BLASD_float32)
            ((float *)y->data)[i] = (float)(scale * (double)((const float *)x->data)[i]);
        else
            ((double *)y->data)[i] = scale * ((const double *)x->data)[i];
    }
    snprintf(task->method, sizeof task->method, "direct");
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    (void)device;
    blasd_wanted_begin(watch);
    for (int t = 0; t < count && blasd_wanted_tell((double)t / count); t++) compute(&tasks[t]);
    return blasd_wanted_end(0, err);
}

const struct blasd_kernel blasd_cpu_NAME = {.op = "NAME", .run = run};
