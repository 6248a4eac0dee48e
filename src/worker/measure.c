/* The first step times a job that only moves bytes; then each one problem and many together, for
 * each operation and precision from small to as large as a step allows. */
#include "worker/measure.h"

#include "base/clock.h"
#include "worker/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOVE_BYTES (INT64_C(24) << 20) /* beyond the caches that a core has for itself */
#define WAY_LEAST 1e6                  /* bytes */
#define MEMORY_MOST (UINT64_C(56) << 20)
#define RUNS_LEAST 3 /* the first one warms up, another may be in the way of a second */
#define RUNS_MOST 200
#define SHORT_NS (BLASD_MS / 2) /* short jobs are run again until this is used up */
#define LONG_NS (12 * BLASD_MS) /* long ones only as often as it takes to leave a slow run out */
#define ALONE_MOST (15e-3)      /* seconds: what is expected to take longer is not begun */
#define TOGETHER_S (2.5e-3)     /* how much work many together are */
#define TOGETHER_MOST 256

static const int64_t sizes[] = {8, 32, 96, 256, 512, 1024, 2048};
#define SIZES ((int)(sizeof sizes / sizeof *sizes))

/* What was timed, before the bytes' share is taken off. */
struct raw {
    double flops, in_bytes, out_bytes, alone_s, each_s; /* of one problem; alone_s 0: not timed */
};

#define OF_OP (BLASD_COST_PRECISIONS * SIZES)
#define ALL (BLASD_OPS_MOST * OF_OP)

struct blasd_measure {
    const struct blasd_backend *backend; /* borrowed */
    struct blasd_device *device;         /* borrowed */
    struct blasd_arena arena;            /* of the tensors */
    double copy_bytes_s, upload_bytes_s, download_bytes_s;
    struct raw raw[ALL]; /* by operation, precision and size */
    int at;              /* in that: what is timed next */
    bool moved;          /* the first step was taken */
    struct blasd_watch watch;
    struct blasd_job job;
    struct blasd_plan plan;
    struct blasd_task task;
};

static bool go_on(struct blasd_watch *watch, double progress) {
    (void)watch, (void)progress;
    return true;
}

int blasd_measure_new(const struct blasd_backend *backend, struct blasd_device *device,
                      struct blasd_measure **ret, struct blasd_err *err) {
    struct blasd_measure *measure = calloc(1, sizeof *measure);
    *ret = measure;
    if (measure == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to measure the device");
    measure->backend = backend;
    measure->device = device;
    measure->watch.go_on = go_on;
    blasd_arena_init(&measure->arena, MEMORY_MOST, MEMORY_MOST);
    return 0;
}

void blasd_measure_free(struct blasd_measure *measure) {
    if (measure == NULL) return;
    blasd_arena_release(&measure->arena);
    free(measure);
}

void blasd_measure_again(struct blasd_measure *measure) {
    measure->at = 0;
    measure->moved = false;
    blasd_arena_release(&measure->arena); /* it may be a while */
}

/* Numbers from 0 to 1 in no order: a matrix of them can be solved with, and its columns are
 * independent. */
static void fill(const struct blasd_tensor *tensor) {
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    int64_t count = blasd_tensor_elements(tensor);
    for (int64_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (tensor->dtype == BLASD_float32)
            ((float *)tensor->data)[i] = (float)(state >> 40) * 0x1p-24f;
        else
            ((double *)tensor->data)[i] = (double)(state >> 11) * 0x1p-53;
    }
}

static bool at_end(const struct blasd_measure *measure) {
    return blasd_ops[measure->at / OF_OP] == NULL;
}

/* The kernel of the operation at hand, where it can be measured. */
static const struct blasd_kernel *kernel_at(const struct blasd_measure *measure) {
    const struct blasd_op *op = blasd_ops[measure->at / OF_OP];
    return op->sample == NULL ? NULL : blasd_backend_kernel(measure->backend, op);
}

/* Makes the sample job and its tensors. False where there is none, or it is too large. */
static bool prepare(struct blasd_measure *measure, int64_t n, int64_t items,
                    enum blasd_dtype dtype) {
    const struct blasd_op *op = blasd_ops[measure->at / OF_OP];
    struct blasd_plan *plan = &measure->plan;
    struct blasd_task *task = &measure->task;
    struct blasd_err ignored;
    blasd_job_init(&measure->job, op);
    if (!op->sample(&measure->job, n, items, dtype)) return false;
    if (blasd_job_plan(&measure->job, plan, &ignored) != 0) return false;
    blasd_arena_reset(&measure->arena);
    memset(task, 0, sizeof *task);
    task->job = &measure->job;
    task->plan = plan;
    for (int i = 0; op->inputs[i].name != NULL; i++) {
        struct blasd_tensor *input = &task->inputs[i];
        if (!blasd_job_has(&measure->job, i)) continue;
        *input = measure->job.inputs[i].tensor;
        input->dtype = plan->input_dtype[i];
        input->data = blasd_arena_take(&measure->arena, blasd_tensor_bytes(input));
        if (input->data == NULL) return false;
        fill(input);
        if (op->sample_values != NULL) op->sample_values(i, input);
    }
    for (int i = 0; op->outputs[i].name != NULL; i++) {
        struct blasd_tensor *output = &task->outputs[i];
        *output = plan->outputs[i];
        if (output->rank < 0) continue;
        output->data = blasd_arena_take(&measure->arena, blasd_tensor_bytes(output));
        if (output->data == NULL) return false;
    }
    return true;
}

static void keep_rate(double *most, double bytes, double seconds) {
    if (seconds > 0) *most = fmax(*most, bytes / seconds);
}

/* What a device says of each way by itself; of fewer bytes most would be the launch. */
static void keep_phases(struct blasd_measure *measure) {
    double in = (double)measure->plan.input_bytes, out = (double)measure->plan.output_bytes;
    if (in >= WAY_LEAST)
        keep_rate(&measure->upload_bytes_s, in, (double)measure->task.upload_us * 1e-6);
    if (out >= WAY_LEAST)
        keep_rate(&measure->download_bytes_s, out, (double)measure->task.download_us * 1e-6);
}

/* Seconds of the prepared job, the best of some runs; 0 where it fails. */
static double time_task(struct blasd_measure *measure, const struct blasd_kernel *kernel, int *code,
                        struct blasd_err *err) {
    int64_t used = 0, best = INT64_MAX;
    for (int run = 0; run < RUNS_MOST; run++) {
        struct blasd_task *task = &measure->task;
        int64_t began = blasd_clock_ns(), took;
        blasd_task_reset(task);
        /* a kernel may make an output smaller */
        for (int i = 0; measure->job.op->outputs[i].name != NULL; i++)
            memcpy(task->outputs[i].shape, measure->plan.outputs[i].shape,
                   sizeof task->outputs[i].shape);
        *code = kernel->run(measure->device, task, 1, &measure->watch, err);
        took = blasd_clock_ns() - began;
        if (*code != 0 || task->err.code != BLASD_OK) return 0;
        keep_phases(measure);
        if (took < best) best = took;
        used += run > 0 ? took : 0;
        if (best > 4 * LONG_NS && run > 0) break;
        if (run + 1 >= RUNS_LEAST && used > LONG_NS) break;
        if (run >= RUNS_LEAST && run * best > SHORT_NS) break;
    }
    return best == INT64_MAX ? 0 : (double)(best < 1 ? 1 : best) * 1e-9;
}

static double least(double a, double b) {
    return a > 0 && a < b ? a : b;
}

/* One problem of the size at hand, then many: what each of the others adds. The curve ends where
 * the first fails or would take too long. */
static int step_size(struct blasd_measure *measure, const struct blasd_kernel *kernel,
                     struct blasd_err *err) {
    struct raw *raw = &measure->raw[measure->at];
    int size = measure->at % SIZES, code = 0;
    enum blasd_dtype dtype = measure->at / SIZES % BLASD_COST_PRECISIONS == BLASD_COST_FLOAT64
                                 ? BLASD_float64
                                 : BLASD_float32;
    double seconds = 0, many;
    int64_t items;
    if (prepare(measure, sizes[size], 1, dtype) &&
        measure->plan.input_dtype[0] == dtype && /* else it is computed in the other one */
        (size == 0 || raw[-1].alone_s * (measure->plan.flops / raw[-1].flops) <= ALONE_MOST))
        seconds = time_task(measure, kernel, &code, err);
    measure->at += seconds > 0 ? 1 : SIZES - size;
    if (!(seconds > 0)) return code;
    *raw = (struct raw){measure->plan.flops, (double)measure->plan.input_bytes,
                        (double)measure->plan.output_bytes, least(raw->alone_s, seconds),
                        least(raw->each_s, seconds)};
    many = TOGETHER_S / raw->alone_s;
    items = many < TOGETHER_MOST ? (int64_t)many : TOGETHER_MOST;
    if (items < 2 || !prepare(measure, sizes[size], items, dtype)) return 0;
    seconds = time_task(measure, kernel, &code, err);
    if (seconds > 0) {
        /* that the others come free is more than such a small number of them can show */
        double each = (seconds - raw->alone_s) / (double)(items - 1);
        raw->each_s = least(raw->each_s, fmax(each, 0.1 * seconds / (double)items));
    }
    return code;
}

/* The first operation that has a job for it tells what moving costs. */
static int step_move(struct blasd_measure *measure, struct blasd_err *err) {
    int code = 0;
    measure->moved = true;
    for (measure->at = 0; !at_end(measure); measure->at += OF_OP) {
        const struct blasd_kernel *kernel = kernel_at(measure);
        double seconds;
        if (kernel == NULL || !prepare(measure, MOVE_BYTES, 0, BLASD_float64)) continue;
        seconds = time_task(measure, kernel, &code, err);
        keep_rate(&measure->copy_bytes_s,
                  (double)measure->plan.input_bytes + (double)measure->plan.output_bytes, seconds);
        break;
    }
    measure->at = 0;
    return code;
}

int blasd_measure_step(struct blasd_measure *measure, struct blasd_err *err) {
    int code;
    if (measure->moved && !(measure->copy_bytes_s > 0)) return 0;
    while (measure->moved && !at_end(measure) && kernel_at(measure) == NULL) measure->at += OF_OP;
    if (at_end(measure)) return 0;
    code = measure->moved ? step_size(measure, kernel_at(measure), err) : step_move(measure, err);
    return code == -(int)BLASD_E_device_error ? code : 1;
}

void blasd_measure_cost(const struct blasd_measure *measure, struct blasd_cost *ret) {
    double up, down;
    *ret = (struct blasd_cost){.copy_bytes_s = measure->copy_bytes_s,
                               .upload_bytes_s = measure->upload_bytes_s,
                               .download_bytes_s = measure->download_bytes_s};
    if (!(measure->copy_bytes_s > 0)) return;
    for (int at = 0; at < ALL; at++) {
        const struct raw *raw = &measure->raw[at];
        double move = blasd_cost_move_s(ret, raw->in_bytes, raw->out_bytes, &up, &down);
        /* small tensors lie in caches: moving them costs less than its share */
        if (raw->alone_s > 0)
            blasd_cost_add(&ret->curves[at / OF_OP][at / SIZES % BLASD_COST_PRECISIONS], raw->flops,
                           fmax(raw->alone_s - move, raw->alone_s / 20),
                           fmax(raw->each_s - move, raw->each_s / 20));
    }
}

void blasd_measure_info(const struct blasd_cost *cost, struct blasd_device_info *info) {
    info->gflops_float64 = blasd_cost_best_rate(cost, BLASD_COST_FLOAT64) / 1e9;
    info->gflops_float32 = blasd_cost_best_rate(cost, BLASD_COST_FLOAT32) / 1e9;
    info->copy_gbytes_s = cost->copy_bytes_s / 1e9;
}
