/* How well the cost model tells what jobs take: every device here is measured as its worker would,
 * then a sweep of jobs of many shapes is predicted and run. Where there are two classes of devices
 * it also says how often the one that was predicted to be faster was.
 *
 * usage: bench_cost        blasd_cuda.so is found beside this program */
#include "base/clock.h"
#include "worker/measure.h"
#include "worker/worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 5
#define LONG_NS INT64_C(300000000) /* for one case on one device */
#define MEMORY ((size_t)1 << 30)
#define PASSES 2

struct shot {
    const char *op;
    int inputs;
    int rank[2];
    int64_t shape[2][3];
};

/* Shapes that the measuring does not use: not square, batches of odd numbers, many columns. */
static const struct shot shots[] = {
    {"matmul", 2, {2, 2}, {{4, 4}, {4, 4}}},
    {"matmul", 2, {2, 2}, {{50, 20}, {20, 80}}},
    {"matmul", 2, {2, 2}, {{200, 200}, {200, 200}}},
    {"matmul", 2, {2, 2}, {{1024, 64}, {64, 1024}}},
    {"matmul", 2, {2, 2}, {{64, 8192}, {8192, 64}}},
    {"matmul", 2, {2, 1}, {{1500, 1500}, {1500}}},
    {"matmul", 2, {2, 2}, {{700, 700}, {700, 700}}},
    {"matmul", 2, {2, 2}, {{1400, 1400}, {1400, 1400}}},
    {"matmul", 2, {2, 2}, {{2500, 2500}, {2500, 2500}}},
    {"matmul", 2, {3, 3}, {{1000, 6, 6}, {1000, 6, 6}}},
    {"matmul", 2, {3, 3}, {{200, 64, 64}, {200, 64, 64}}},
    {"matmul", 2, {3, 3}, {{40, 150, 150}, {40, 150, 150}}},
    {"solve", 2, {2, 1}, {{6, 6}, {6}}},
    {"solve", 2, {2, 1}, {{60, 60}, {60}}},
    {"solve", 2, {2, 2}, {{150, 150}, {150, 40}}},
    {"solve", 2, {2, 1}, {{400, 400}, {400}}},
    {"solve", 2, {2, 1}, {{900, 900}, {900}}},
    {"solve", 2, {3, 3}, {{1000, 10, 10}, {1000, 10, 1}}},
    {"solve", 2, {3, 3}, {{300, 40, 40}, {300, 40, 2}}},
    {"solve", 2, {3, 3}, {{20, 128, 128}, {20, 128, 1}}},
    {"distance", 2, {2, 2}, {{20, 3}, {20, 3}}},
    {"distance", 2, {2, 2}, {{300, 3}, {400, 3}}},
    {"distance", 2, {2, 2}, {{1000, 100}, {500, 100}}},
    {"distance", 2, {2, 2}, {{3000, 3}, {3000, 3}}},
    {"distance", 2, {3, 3}, {{100, 30, 8}, {100, 30, 8}}},
    {"regression", 2, {2, 1}, {{30, 2}, {30}}},
    {"regression", 2, {2, 1}, {{1000, 10}, {1000}}},
    {"regression", 2, {2, 1}, {{50000, 8}, {50000}}},
    {"regression", 2, {2, 1}, {{3000, 100}, {3000}}},
    {"regression", 2, {3, 2}, {{200, 50, 4}, {200, 50}}},
};
#define SHOTS ((int)(sizeof shots / sizeof *shots))

struct subject {
    const struct blasd_backend *backend;
    struct blasd_device *device;
    struct blasd_cost cost;
    double told[SHOTS][2], took[SHOTS][2]; /* microseconds; 0: not run */
};

static char *memory;

static bool go_on(struct blasd_watch *watch, double progress) {
    (void)watch, (void)progress;
    return true;
}

static void fill(char *bytes, const struct blasd_tensor *tensor) {
    int64_t n = blasd_tensor_elements(tensor);
    for (int64_t i = 0; i < n; i++) {
        double value = (double)rand() / RAND_MAX;
        if (tensor->dtype == BLASD_float32)
            ((float *)(void *)bytes)[i] = (float)value;
        else
            ((double *)(void *)bytes)[i] = value;
    }
}

static bool prepare(const struct shot *shot, enum blasd_dtype dtype, struct blasd_job *job,
                    struct blasd_plan *plan, struct blasd_task *task) {
    const struct blasd_op *op = blasd_op_find(shot->op);
    struct blasd_err err;
    size_t at = 0;
    blasd_job_init(job, op);
    for (int i = 0; i < shot->inputs; i++)
        blasd_job_give(job, i, dtype, shot->rank[i], shot->shape[i]);
    if (blasd_job_plan(job, plan, &err) != 0) return false;
    memset(task, 0, sizeof *task);
    task->job = job;
    task->plan = plan;
    for (int i = 0; i < shot->inputs; i++) {
        task->inputs[i] = job->inputs[i].tensor;
        task->inputs[i].dtype = plan->input_dtype[i];
        task->inputs[i].data = memory + at;
        fill(memory + at, &task->inputs[i]);
        at += (size_t)(blasd_tensor_bytes(&task->inputs[i]) + 63) / 64 * 64;
    }
    for (int i = 0; job->op->outputs[i].name != NULL; i++) {
        task->outputs[i] = plan->outputs[i];
        if (task->outputs[i].rank < 0) continue;
        task->outputs[i].data = memory + at;
        at += (size_t)(blasd_tensor_bytes(&task->outputs[i]) + 63) / 64 * 64;
    }
    return at <= MEMORY;
}

static void shoot(struct subject *subject, int number, int precision) {
    const struct shot *shot = &shots[number];
    enum blasd_dtype dtype = precision == 0 ? BLASD_float64 : BLASD_float32;
    const struct blasd_kernel *kernel =
        blasd_backend_kernel(subject->backend, blasd_op_find(shot->op));
    static struct blasd_job job;
    static struct blasd_plan plan;
    static struct blasd_task task;
    struct blasd_watch watch = {.go_on = go_on};
    struct blasd_cost_work work;
    struct blasd_cost_guess guess;
    struct blasd_err err;
    int64_t used = 0, best = INT64_MAX;
    if (kernel == NULL || !prepare(shot, dtype, &job, &plan, &task)) return;
    blasd_cost_work(&plan, blasd_op_position(job.op), &work);
    if (!blasd_cost_predict(&subject->cost, &work, &guess)) return;
    for (int run = 0; run <= RUNS && used < LONG_NS; run++) {
        int64_t start = blasd_clock_ns(), took;
        task.err = (struct blasd_err){0};
        if (kernel->run(subject->device, &task, 1, &watch, &err) != 0 || task.err.code != BLASD_OK)
            return;
        took = blasd_clock_ns() - start;
        used += took;
        if ((run > 0 || took > LONG_NS / 2) && took < best) best = took;
    }
    if (best == INT64_MAX) return;
    subject->told[number][precision] = (guess.alone_s - BLASD_COST_JOB_S) * 1e6;
    subject->took[number][precision] = (double)best * 1e-3;
}

static int open_subject(struct subject *subject, const struct blasd_backend *backend) {
    struct blasd_measure *measure;
    struct blasd_err err;
    int64_t start = blasd_clock_ns();
    subject->backend = backend;
    if (backend->device_count(&err) < 1 || backend->device_open(0, &subject->device, &err) != 0 ||
        blasd_measure_new(backend, subject->device, &measure, &err) != 0)
        return -1;
    for (int pass = 0; pass < PASSES; pass++) {
        if (pass > 0) blasd_measure_again(measure);
        while (blasd_measure_step(measure, &err) == 1) {
        }
        printf("%s: pass %d of measuring ends after %.2f s\n", backend->name, pass,
               (double)(blasd_clock_ns() - start) * 1e-9);
    }
    blasd_measure_cost(measure, &subject->cost);
    blasd_measure_free(measure);
    return 0;
}

static void print_shape(const struct shot *shot) {
    char text[2][64] = {"", ""};
    for (int i = 0; i < shot->inputs; i++) {
        struct blasd_tensor tensor =
            blasd_tensor_make(BLASD_float64, shot->rank[i], shot->shape[i]);
        blasd_tensor_shape_text(&tensor, text[i], sizeof text[i]);
    }
    printf("%-10s %-16s %-14s ", shot->op, text[0], text[1]);
}

static void report(const struct subject *subjects, int count) {
    int near[4] = {0}, all[4] = {0}, right = 0, choices = 0;
    double lost = 0;
    for (int n = 0; n < SHOTS; n++)
        for (int p = 0; p < 2; p++) {
            bool both = count > 1;
            print_shape(&shots[n]);
            printf("%s", blasd_cost_precision_names[p]);
            for (int s = 0; s < count; s++) {
                double told = subjects[s].told[n][p], took = subjects[s].took[n][p];
                if (!(took > 0)) {
                    both = false;
                    continue;
                }
                printf("  %s told %.4g us, took %.4g, %.2f", subjects[s].backend->name, told, took,
                       told / took);
                all[s]++;
                near[s] += told / took > 0.5 && told / took < 2;
            }
            if (both) {
                const struct subject *a = &subjects[0], *b = &subjects[1];
                bool first = a->told[n][p] < b->told[n][p], faster = a->took[n][p] < b->took[n][p];
                choices++;
                right += first == faster;
                if (first != faster)
                    lost = fmax(lost, faster ? b->took[n][p] / a->took[n][p]
                                             : a->took[n][p] / b->took[n][p]);
                printf("  %s", first == faster ? "right" : "WRONG");
            }
            putchar('\n');
        }
    for (int s = 0; s < count; s++)
        printf("%s: %d of %d within a factor of 2\n", subjects[s].backend->name, near[s], all[s]);
    if (choices > 0)
        printf("the faster device was chosen for %d of %d; the worst of the others took %.2f times "
               "as long\n",
               right, choices, lost);
}

int main(void) {
    static struct subject subjects[BLASD_BACKENDS_MAX];
    const struct blasd_backend *backends[BLASD_BACKENDS_MAX];
    struct blasd_err ignored;
    int found = blasd_backends(backends, &ignored), count = 0;
    memory = aligned_alloc(64, MEMORY);
    if (memory == NULL) return 1;
    for (int b = 0; b < found; b++)
        if (open_subject(&subjects[count], backends[b]) == 0) count++;
    for (int s = 0; s < count; s++)
        for (int n = 0; n < SHOTS; n++)
            for (int p = 0; p < 2; p++) shoot(&subjects[s], n, p);
    report(subjects, count);
    for (int s = 0; s < count; s++) subjects[s].backend->device_close(subjects[s].device);
    free(memory);
    return 0;
}
