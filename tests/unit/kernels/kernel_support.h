/* What the tests of all operations share: a job built in memory, run through the CPU backend the
 * way a worker runs it (plan, conversion, alignment, outputs full of rubbish), and random numbers.
 *
 * A trial is one job with its data:
 *     struct trial *t = trial_new("matmul");
 *     double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){3, 4});
 *     ... fill a ...
 *     trial_set_bool(t, "transpose_a", true);
 *     assert_int_equal(trial_run(t), 0);             or trial_run_batch(list, count)
 *     const double *c = trial_output(t, "c")->data;
 *     trial_free(t);
 * Everything is static but a clock: each test file is a program of its own. */
#ifndef BLASD_TESTS_KERNEL_SUPPORT_H
#define BLASD_TESTS_KERNEL_SUPPORT_H

#include "base/clock.h"
#include "core/kernel.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/quick.h"

#define TRIAL_UNUSED __attribute__((unused))
#ifndef TRIAL_BACKEND /* tests/unit/cuda and tests/gpu run the same trials on theirs */
#define TRIAL_BACKEND blasd_backend_cpu
#define TRIAL_ON_THE_CPU
#include "kernels/cpu/cpu.h"
#endif
#ifdef TRIAL_ON_THE_CPU
#define TRIAL_FULL_ON_DEVICE() (void)0
#else /* over the shim it takes seconds */
#define TRIAL_FULL_ON_DEVICE() TRIAL_FULL()
#endif
#define TRIAL_GUARD 64 /* bytes behind every output that must stay as they were */

struct trial {
    struct blasd_job job;
    struct blasd_plan plan;
    struct blasd_task task;
    void *given[BLASD_MAX_INPUTS];    /* owned: as sent */
    void *bound[BLASD_MAX_INPUTS];    /* owned: converted for the kernel; NULL: `given` is used */
    void *results[BLASD_MAX_OUTPUTS]; /* owned */
    struct blasd_err err;             /* of planning, or of the whole batch */
};

/* ---- random numbers: a fixed seed gives a fixed test; BLASD_TEST_SEED=n gives another ---- */

static uint64_t trial_seed;

static TRIAL_UNUSED uint64_t trial_random(void) {
    uint64_t z;
    if (trial_seed == 0) {
        const char *wish = getenv("BLASD_TEST_SEED");
        trial_seed = 88172645463325252u + (wish != NULL ? strtoull(wish, NULL, 10) << 20 : 0);
    }
    z = (trial_seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
/* in [-1, 1) */
static TRIAL_UNUSED double trial_uniform(void) {
    return (double)(int64_t)trial_random() * 0x1p-63;
}
/* about normal, mean 0, variance 1 */
static TRIAL_UNUSED double trial_normal(void) {
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += trial_uniform();
    return sum / 2;
}
/* least <= n <= most */
static TRIAL_UNUSED int64_t trial_between(int64_t least, int64_t most) {
    return least + (int64_t)(trial_random() % (uint64_t)(most - least + 1));
}

/* ---- the machine ---- */

struct trial_watch {
    struct blasd_watch base;
    int calls;
    int stop_after; /* calls after which the answer is "do not go on"; 0: never */
    double last;
    bool went_back; /* progress that fell or left [0, 1] */
};

static TRIAL_UNUSED bool trial_go_on(struct blasd_watch *base, double progress) {
    struct trial_watch *watch = (struct trial_watch *)(void *)base;
    watch->calls++;
    if (!(progress >= watch->last && progress <= 1)) watch->went_back = true;
    watch->last = progress;
    return watch->stop_after == 0 || watch->calls < watch->stop_after;
}

/* The cheap clock of these programs moves whenever it is looked at, so that each look is a question
 * to the watch (core/wanted.h): tests count how often a kernel looks, not how fast it is. */
int64_t blasd_clock_coarse_ns(void) {
    static _Thread_local int64_t now;
    return ++now;
}

static struct trial_watch trial_watch = {.base = {.go_on = trial_go_on}};

static TRIAL_UNUSED struct blasd_device *trial_device(void) {
    static struct blasd_device *device;
    struct blasd_err err;
    if (device == NULL) assert_int_equal(TRIAL_BACKEND.device_open(0, &device, &err), 0);
    return device;
}

/* ---- trials ---- */

static TRIAL_UNUSED void *trial_alloc(size_t bytes) {
    void *memory = aligned_alloc(64, bytes == 0 ? 64 : (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    return memory;
}

static TRIAL_UNUSED struct trial *trial_new(const char *name) {
    struct trial *trial = calloc(1, sizeof *trial);
    const struct blasd_op *op = blasd_op_find(name);
    assert_non_null(trial);
    assert_non_null(op);
    blasd_job_init(&trial->job, op);
    return trial;
}

static TRIAL_UNUSED void trial_free(struct trial *trial) {
    if (trial == NULL) return;
    for (int i = 0; i < BLASD_MAX_INPUTS; i++) free(trial->given[i]);
    for (int i = 0; i < BLASD_MAX_INPUTS; i++) free(trial->bound[i]);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) free(trial->results[i]);
    free(trial);
}

/* Gives an input and returns where its elements go, zeroed, in the order named. */
static TRIAL_UNUSED void *trial_input(struct trial *trial, const char *name, enum blasd_dtype dtype,
                                      enum blasd_order order, int rank, const int64_t *shape) {
    int i = blasd_op_input(trial->job.op, name);
    struct blasd_input *input;
    uint64_t bytes;
    assert_true(i >= 0);
    input = &trial->job.inputs[i];
    input->tensor = blasd_tensor_make(dtype, rank, shape);
    input->tensor.order = order;
    bytes = blasd_tensor_bytes(&input->tensor);
    input->source = (struct blasd_source){.kind = BLASD_SOURCE_PAYLOAD, .bytes = bytes};
    input->first_nonfinite = -1;
    free(trial->given[i]);
    trial->given[i] = trial_alloc(bytes);
    memset(trial->given[i], 0, bytes);
    return trial->given[i];
}

static TRIAL_UNUSED struct blasd_value *trial_param(struct trial *trial, const char *name,
                                                    enum blasd_param_kind kind) {
    int i = blasd_op_param(trial->job.op, name);
    assert_true(i >= 0);
    assert_int_equal(trial->job.op->params[i].kind, kind);
    trial->job.params[i].given = true;
    return &trial->job.params[i];
}
static TRIAL_UNUSED void trial_set_bool(struct trial *trial, const char *name, bool value) {
    trial_param(trial, name, BLASD_PARAM_BOOL)->b = value;
}
static TRIAL_UNUSED void trial_set_int(struct trial *trial, const char *name, int64_t value) {
    trial_param(trial, name, BLASD_PARAM_INT)->i = value;
}
static TRIAL_UNUSED void trial_set_float(struct trial *trial, const char *name, double value) {
    trial_param(trial, name, BLASD_PARAM_FLOAT)->f = value;
}
static TRIAL_UNUSED void trial_set_choice(struct trial *trial, const char *name,
                                          const char *choice) {
    const char *const *choices = trial->job.op->params[blasd_op_param(trial->job.op, name)].choices;
    struct blasd_value *value = trial_param(trial, name, BLASD_PARAM_CHOICE);
    for (value->choice = 0; choices[value->choice] != NULL; value->choice++)
        if (strcmp(choices[value->choice], choice) == 0) return;
    fail_msg("%s has no choice %s", name, choice);
}

/* The checks and the plan. 0, or the code of the error (positive), which trial->err holds. */
static TRIAL_UNUSED enum blasd_code trial_plan(struct trial *trial) {
    const struct blasd_op *op = trial->job.op;
    for (int i = 0; op->inputs[i].name != NULL; i++) {
        struct blasd_input *input = &trial->job.inputs[i];
        if (!blasd_job_has(&trial->job, i)) continue;
        input->first_nonfinite = -1;
        if (blasd_dtype_kind(input->tensor.dtype) == 'f')
            input->first_nonfinite = blasd_tensor_first_nonfinite(
                input->tensor.dtype, trial->given[i], blasd_tensor_elements(&input->tensor));
    }
    memset(&trial->err, 0, sizeof trial->err);
    if (blasd_job_plan(&trial->job, &trial->plan, &trial->err) == 0) {
        const struct blasd_kernel *kernel = blasd_backend_kernel(&TRIAL_BACKEND, op);
        if (kernel != NULL && kernel->adapt != NULL) kernel->adapt(&trial->job, &trial->plan);
        for (int i = 0; op->outputs[i].name != NULL; i++) /* what GET /ops says of them */
            if (trial->plan.outputs[i].rank >= 0)
                assert_true(trial->plan.outputs[i].rank >= op->outputs[i].min_rank &&
                            trial->plan.outputs[i].rank <= op->outputs[i].max_rank);
        return BLASD_OK;
    }
    assert_true(trial->err.code != BLASD_OK);
    assert_true(trial->err.detail[0] != '\0');
    return trial->err.code;
}

/* Makes the task from the plan: inputs as the kernel wants them, outputs full of 0xff (NaN). */
static TRIAL_UNUSED void trial_bind(struct trial *trial) {
    const struct blasd_op *op = trial->job.op;
    struct blasd_task *task = &trial->task;
    memset(task, 0, sizeof *task);
    task->job = &trial->job;
    task->plan = &trial->plan;
    for (int i = 0; op->inputs[i].name != NULL; i++) {
        struct blasd_tensor from = trial->job.inputs[i].tensor;
        if (!blasd_job_has(&trial->job, i)) continue;
        from.data = trial->given[i];
        task->inputs[i] = from;
        if (from.dtype == trial->plan.input_dtype[i] &&
            (from.order == BLASD_ROW_MAJOR || trial->plan.keep_order[i]))
            continue;
        task->inputs[i] = blasd_tensor_make(trial->plan.input_dtype[i], from.rank, from.shape);
        free(trial->bound[i]);
        trial->bound[i] = trial_alloc(blasd_tensor_bytes(&task->inputs[i]));
        task->inputs[i].data = trial->bound[i];
        blasd_tensor_convert(&from, &task->inputs[i]);
    }
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) task->outputs[i].rank = -1;
    for (int i = 0; trial->job.op->outputs[i].name != NULL; i++) {
        size_t bytes;
        task->outputs[i] = trial->plan.outputs[i];
        if (task->outputs[i].rank < 0) continue;
        bytes = blasd_tensor_bytes(&task->outputs[i]) + TRIAL_GUARD;
        free(trial->results[i]);
        trial->results[i] = trial_alloc(bytes);
        memset(trial->results[i], 0xff, bytes);
        task->outputs[i].data = trial->results[i];
    }
}

/* Plans and runs `count` jobs as one call; asserts that their keys are equal. Returns 0 or the
 * code by which the whole batch failed; single tasks may have failed: see trial->task.err. */
static TRIAL_UNUSED enum blasd_code trial_run_batch(struct trial *const *trials, int count) {
    struct blasd_task *tasks = calloc((size_t)count, sizeof *tasks);
    const struct blasd_kernel *kernel = blasd_backend_kernel(&TRIAL_BACKEND, trials[0]->job.op);
    struct blasd_err err = {0};
    int code;
    assert_non_null(tasks);
    assert_non_null(kernel);
    for (int i = 0; i < count; i++) {
        assert_int_equal(trial_plan(trials[i]), BLASD_OK);
        assert_true(count == 1 || trials[i]->plan.batchable);
        assert_true(count == 1 || blasd_key_equal(&trials[0]->plan.key, &trials[i]->plan.key));
        trial_bind(trials[i]);
        tasks[i] = trials[i]->task;
    }
    trial_watch.calls = 0;
    trial_watch.last = 0;
    trial_watch.went_back = false;
    code = kernel->run(trial_device(), tasks, count, &trial_watch.base, &err);
    assert_true(code <= 0);
    assert_false(trial_watch.went_back);
    for (int i = 0; i < count; i++) {
        trials[i]->task = tasks[i];
        trials[i]->err = err;
        for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) {
            const unsigned char *end = trials[i]->results[o];
            if (tasks[i].outputs[o].rank < 0) continue;
            end += blasd_tensor_bytes(&tasks[i].outputs[o]);
            for (int g = 0; g < TRIAL_GUARD; g++) assert_int_equal(end[g], 0xff);
        }
    }
    free(tasks);
    return (enum blasd_code) - code;
}

/* Runs one job alone: 0, or the code with which it failed. */
static TRIAL_UNUSED enum blasd_code trial_run(struct trial *trial) {
    enum blasd_code code = trial_run_batch(&trial, 1);
    return code != BLASD_OK ? code : trial->task.err.code;
}

/* The output called `name`, which must be there. */
static TRIAL_UNUSED const struct blasd_tensor *trial_output(const struct trial *trial,
                                                            const char *name) {
    int i = blasd_op_output(trial->job.op, name);
    assert_true(i >= 0);
    assert_true(trial->task.outputs[i].rank >= 0);
    return &trial->task.outputs[i];
}
/* Whether the job has it. */
static TRIAL_UNUSED bool trial_has_output(const struct trial *trial, const char *name) {
    int i = blasd_op_output(trial->job.op, name);
    assert_true(i >= 0);
    return trial->task.outputs[i].rank >= 0;
}

/* Element `i`, in the order stored, of any tensor with data. */
static TRIAL_UNUSED double trial_value(const struct blasd_tensor *tensor, int64_t i) {
    struct blasd_tensor from = blasd_tensor_make(tensor->dtype, 0, NULL), to;
    double value = 0;
    from.data = (char *)tensor->data + (size_t)i * blasd_dtype_size(tensor->dtype);
    to = blasd_tensor_make(BLASD_float64, 0, NULL);
    to.data = &value;
    blasd_tensor_convert(&from, &to);
    return value;
}

/* Sets element `i`, in the order stored, of float32 or float64 data. */
static TRIAL_UNUSED void trial_put(void *data, enum blasd_dtype dtype, int64_t i, double value) {
    if (dtype == BLASD_float32)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

/* Fails with a message unless |got - expected| <= tolerance; NaN never passes. */
#define ASSERT_CLOSE(got, expected, tolerance)                                                     \
    do {                                                                                           \
        double got_ = (double)(got), expected_ = (double)(expected), tol_ = (double)(tolerance);   \
        if (!(fabs(got_ - expected_) <= tol_))                                                     \
            fail_msg("%s is %.17g, expected %.17g within %.3g", #got, got_, expected_, tol_);      \
    } while (0)

#endif
