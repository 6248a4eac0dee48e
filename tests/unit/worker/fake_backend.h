/* A backend whose one kernel multiplies matrices, or fails as a test wants (`fake` says how).
 * FAKE_OVERLAP: a device that works by itself. FAKE_BACKEND: the tests run on that one instead.
 * Read next: fake_jobs.h. */
#ifndef BLASD_TESTS_FAKE_BACKEND_H
#define BLASD_TESTS_FAKE_BACKEND_H

#include "fake_queue.h"

struct blasd_device {
    int unused;
};
static struct blasd_device fake_device;

static int fake_device_count(struct blasd_err *err) {
    (void)err;
    return 1;
}
static int fake_device_open(int ordinal, struct blasd_device **ret, struct blasd_err *err) {
    (void)ordinal;
    (void)err;
    *ret = &fake_device;
    return 0;
}
static void fake_device_close(struct blasd_device *device) {
    (void)device;
}
static int fake_device_info(struct blasd_device *device, bool measure,
                            struct blasd_device_info *info, struct blasd_err *err) {
    (void)device;
    (void)measure;
    (void)err;
    *info =
        (struct blasd_device_info){.id = "cpu:7", .name = "a test", .units = 1 + fake.more_units};
    info->device_class = BLASD_DEVICE_CPU;
    return 0;
}

static double fake_element(const struct blasd_tensor *tensor, int64_t row, int64_t column) {
    int64_t at = tensor->order == BLASD_ROW_MAJOR ? row * tensor->shape[1] + column
                                                  : column * tensor->shape[0] + row;
    return tensor->dtype == BLASD_float64 ? ((const double *)tensor->data)[at]
                                          : (double)((const float *)tensor->data)[at];
}

static bool fake_is_diagonal(const struct blasd_tensor *tensor) {
    for (int64_t i = 0; i < tensor->shape[0]; i++)
        for (int64_t j = 0; j < tensor->shape[1]; j++)
            if (i != j && fake_element(tensor, i, j) != 0) return false;
    return true;
}

/* Sums only one product where b is diagonal, or large jobs would take a loaded machine seconds. */
static void fake_multiply(struct blasd_task *task) {
    const struct blasd_tensor *a = &task->inputs[0], *b = &task->inputs[1];
    struct blasd_tensor *c = &task->outputs[0];
    bool diagonal = fake_is_diagonal(b);
    if (a->dtype != task->plan->input_dtype[0]) fake.converted = false;
    for (int i = 0; i < 2; i++)
        if ((uintptr_t)task->inputs[i].data % 64 != 0) fake.misaligned = true;
    if ((uintptr_t)c->data % 64 != 0) fake.misaligned = true;
    for (int64_t i = 0; i < c->shape[0]; i++)
        for (int64_t j = 0; j < c->shape[1]; j++) {
            double sum = 0;
            for (int64_t k = diagonal ? j : 0; k < (diagonal ? j + 1 : a->shape[1]); k++)
                sum += fake_element(a, i, k) * fake_element(b, k, j);
            if (c->dtype == BLASD_float64)
                ((double *)c->data)[i * c->shape[1] + j] = sum;
            else
                ((float *)c->data)[i * c->shape[1] + j] = (float)sum;
        }
    snprintf(task->method, sizeof task->method, "by hand");
    if (!fake.tells_phases) return;
    usleep(2000);
    task->upload_us = 300;
    task->compute_us = 100;
    task->download_us = 200;
}

static int fake_run(struct blasd_device *device, struct blasd_task *tasks, int count,
                    struct blasd_watch *watch, struct blasd_err *err) {
    (void)device;
    assert_true(fake.runs < MOST_JOBS);
    fake.order[fake.runs] = (char)fake_element(&tasks[0].inputs[0], 0, 0);
    fake.counts[fake.runs++] = count;
    if (fake.running != NULL) fake.running();
    if (fake.device_fails) return blasd_fail(err, BLASD_E_device_error, "", "it fell off the bus");
    if (fake.memory_for > 0 && count > fake.memory_for)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "%d are too many", count);
    for (int i = 0; fake.poison > 0 && i < count; i++)
        if (fake_element(&tasks[i].inputs[0], 0, 0) == fake.poison)
            return blasd_fail(err, BLASD_E_not_converged, "", "the whole call failed");
    for (int i = 0; fake.endless > 0 && i < count; i++) {
        if (fake_element(&tasks[i].inputs[0], 0, 0) != fake.endless) continue;
        for (int ms = 0; ms < 60000 && watch->go_on(watch, 0.5); ms++) usleep(1000);
        return blasd_fail(err, BLASD_E_cancelled, "", "stopped");
    }
    for (int i = 0; i < 3000 && fake.slow; i++) {
        usleep(1000);
        if (!watch->go_on(watch, (double)i / 3000))
            return blasd_fail(err, BLASD_E_cancelled, "", "stopped");
    }
    for (int i = 0; i < count; i++) {
        if (fake.singular > 0 && fake_element(&tasks[i].inputs[0], 0, 0) == fake.singular)
            blasd_fail(&tasks[i].err, BLASD_E_singular_matrix, "inputs.a", "alone");
        else
            fake_multiply(&tasks[i]);
    }
    return 0;
}

#ifdef FAKE_OVERLAP
/* A device that works by itself: what begins runs when it is ended, in the order it began. */
struct blasd_async_batch {
    struct blasd_device *device;
    struct blasd_task *tasks;
    int count, number;
    struct blasd_watch *watch;
};
static int fake_begun, fake_ended, fake_overlaps;

static int fake_begin(struct blasd_device *device, struct blasd_task *tasks, int count,
                      struct blasd_watch *watch, struct blasd_async_batch **ret,
                      struct blasd_err *err) {
    if (fake_begun - fake_ended > 1)
        return blasd_fail(err, BLASD_E_internal_error, "", "three batches at a time");
    if (fake_begun > fake_ended) fake_overlaps++;
    *ret = calloc(1, sizeof **ret);
    assert_non_null(*ret);
    **ret = (struct blasd_async_batch){device, tasks, count, fake_begun++, watch};
    return 0;
}
static int fake_end_batch(struct blasd_async_batch *batch, struct blasd_err *err) {
    int code;
    assert_int_equal(batch->number, fake_ended);
    code = fake_run(batch->device, batch->tasks, batch->count, batch->watch, err);
    fake_ended++;
    free(batch);
    return code;
}
static void fake_batch_key(const struct blasd_job *job, const struct blasd_plan *plan,
                           struct blasd_key *ret) {
    if (!fake.mixes) return;
    ret->len = 0;
    blasd_key_add_int(ret, plan->input_dtype[0]);
    blasd_key_add_int(ret, (int64_t)job->inputs[0].tensor.rank);
}
static const struct blasd_kernel fake_kernel = {.op = "matmul",
                                                .run = fake_run,
                                                .begin = fake_begin,
                                                .end = fake_end_batch,
                                                .batch_key = fake_batch_key};
#else
static const struct blasd_kernel fake_kernel = {.op = "matmul", .run = fake_run};
#endif
static const struct blasd_kernel *const fake_kernels[] = {&fake_kernel, NULL};
static const struct blasd_backend fake_backend
    __attribute__((unused)) = {.abi = BLASD_BACKEND_ABI,
                               .name = "cpu",
                               .device_class = BLASD_DEVICE_CPU,
                               .device_count = fake_device_count,
                               .device_open = fake_device_open,
                               .device_close = fake_device_close,
                               .device_info = fake_device_info,
                               .kernels = fake_kernels};

#ifndef FAKE_BACKEND /* another test may run the worker on a real one */
#define FAKE_BACKEND fake_backend
#endif

#endif
