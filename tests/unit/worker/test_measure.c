/* Measuring a device, and keeping what was measured. Says nothing of how fast anything is. */
#include "base/clock.h"
#include "base/memory_limit.h"
#include "wire/cost_text.h"
#include "worker/cost_file.h"
#include "worker/measure.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define STEPS_MOST 1000

static struct blasd_err err;

/* All steps; the code of the last one. */
static int measure_all(const struct blasd_backend *backend, struct blasd_device *device,
                       struct blasd_cost *cost) {
    struct blasd_measure *measure;
    int steps = 0, code;
    err = (struct blasd_err){0};
    assert_int_equal(blasd_measure_new(backend, device, &measure, &err), 0);
    while ((code = blasd_measure_step(measure, &err)) == 1) assert_true(++steps < STEPS_MOST);
    blasd_measure_cost(measure, cost);
    blasd_measure_free(measure);
    return code;
}

static void the_cpu(void **state) {
    struct blasd_device *device;
    struct blasd_device_info info = {.id = ""};
    struct blasd_cost cost;
    (void)state;
    assert_int_equal(blasd_backend_cpu.device_open(0, &device, &err), 0);
    assert_int_equal(measure_all(&blasd_backend_cpu, device, &cost), 0);
    blasd_backend_cpu.device_close(device);
    assert_true(blasd_cost_known(&cost));
    for (int op = 0; blasd_ops[op] != NULL; op++) {
        const struct blasd_cost_curve *curve = &cost.curves[op][BLASD_COST_FLOAT64];
        struct blasd_cost_work work = {.op = op, .flops = 1e6, .items = 1, .bytes = 1e4};
        struct blasd_cost_guess guess;
        if (blasd_ops[op]->sample == NULL) continue; /* chosen by no speed */
        assert_true(curve->count >= 1);
        for (int i = 0; i < curve->count; i++) {
            assert_true(curve->points[i].each_s > 0);
            assert_true(curve->points[i].each_s <= curve->points[i].alone_s);
            assert_true(i == 0 || curve->points[i].flops > curve->points[i - 1].flops);
        }
        assert_true(blasd_cost_predict(&cost, &work, &guess));
        assert_true(guess.alone_s > 0);
    }
    blasd_measure_info(&cost, &info);
    assert_true(info.gflops_float64 > 0 && info.gflops_float32 > 0 && info.copy_gbytes_s > 0);
}

/* A backend with a matmul that looks at what it is given and does nothing, or fails. */
static struct {
    int runs, code;
    enum blasd_code task;
    double upload_bytes_s, download_bytes_s; /* 0: it has no such phases */
    int slow_run; /* of the least product: others are in its way; 0: none */
} toy;

static int toy_run(struct blasd_device *device, struct blasd_task *tasks, int count,
                   struct blasd_watch *watch, struct blasd_err *ret) {
    (void)device;
    assert_int_equal(count, 1);
    assert_true(watch->go_on(watch, 0.5));
    toy.runs++;
    if (tasks->plan->flops == 2 * 8 * 8 * 8 && toy.slow_run > 0 && --toy.slow_run == 0)
        usleep(20000);
    for (int i = 0; i < 2; i++) {
        const struct blasd_tensor *input = &tasks->inputs[i];
        assert_true((uintptr_t)input->data % 64 == 0);
        assert_true(input->dtype == BLASD_float64 || input->dtype == BLASD_float32);
        assert_int_equal(
            blasd_tensor_first_nonfinite(input->dtype, input->data, blasd_tensor_elements(input)),
            -1);
    }
    assert_true((uintptr_t)tasks->outputs[0].data % 64 == 0);
    memset(tasks->outputs[0].data, 0xff, (size_t)blasd_tensor_bytes(&tasks->outputs[0]));
    if (toy.upload_bytes_s > 0) {
        tasks->upload_us = (int64_t)((double)tasks->plan->input_bytes * 1e6 / toy.upload_bytes_s);
        tasks->download_us =
            (int64_t)((double)tasks->plan->output_bytes * 1e6 / toy.download_bytes_s);
    }
    if (toy.task != BLASD_OK) blasd_fail(&tasks->err, toy.task, "", "as told");
    if (toy.code != 0) return blasd_fail(ret, (enum blasd_code) - toy.code, "", "as told");
    return 0;
}

static const struct blasd_kernel toy_kernel = {.op = "matmul", .run = toy_run};
static const struct blasd_kernel *const toy_kernels[] = {&toy_kernel, NULL};
static const struct blasd_backend toy_backend = {.abi = BLASD_BACKEND_ABI,
                                                 .name = "toy",
                                                 .device_class = BLASD_DEVICE_CPU,
                                                 .kernels = toy_kernels};

static int setup(void **state) {
    (void)state;
    memset(&toy, 0, sizeof toy);
    err = (struct blasd_err){0};
    return 0;
}

static void a_backend_with_one_operation(void **state) {
    struct blasd_cost cost;
    int matmul = blasd_op_position(blasd_op_find("matmul"));
    (void)state;
    assert_int_equal(measure_all(&toy_backend, NULL, &cost), 0);
    assert_true(toy.runs > 0);
    for (int op = 0; blasd_ops[op] != NULL; op++)
        for (int p = 0; p < BLASD_COST_PRECISIONS; p++)
            assert_int_equal(cost.curves[op][p].count > 0, op == matmul);
    assert_true(cost.upload_bytes_s == 0 && cost.download_bytes_s == 0);
}

static void a_device_that_tells_its_phases(void **state) {
    struct blasd_cost cost;
    (void)state;
    toy.upload_bytes_s = 2e9;
    toy.download_bytes_s = 5e9;
    assert_int_equal(measure_all(&toy_backend, NULL, &cost), 0);
    assert_true(fabs(cost.upload_bytes_s - 2e9) < 2e7);
    assert_true(fabs(cost.download_bytes_s - 5e9) < 5e7);
}

/* A moment in which the machine was busy with other things is not what the device takes: at such a
 * rate larger products, which are then not measured any more, would take hours. */
static void one_slow_run(void **state) {
    struct blasd_cost cost;
    int matmul = blasd_op_position(blasd_op_find("matmul"));
    (void)state;
    for (int run = 1; run <= 4; run++) {
        toy.slow_run = run;
        assert_int_equal(measure_all(&toy_backend, NULL, &cost), 0);
        assert_int_equal(toy.slow_run, 0);
        assert_true(cost.curves[matmul][BLASD_COST_FLOAT64].count > 1);
    }
}

static void a_kernel_that_fails(void **state) {
    struct blasd_cost cost;
    (void)state;
    toy.task = BLASD_E_internal_error; /* the job does */
    assert_int_equal(measure_all(&toy_backend, NULL, &cost), 0);
    assert_false(blasd_cost_known(&cost));
    toy.task = BLASD_OK;
    toy.code = -(int)BLASD_E_out_of_memory; /* the call does */
    assert_int_equal(measure_all(&toy_backend, NULL, &cost), 0);
    assert_false(blasd_cost_known(&cost));
    toy.code = -(int)BLASD_E_device_error; /* the device is gone */
    assert_int_equal(measure_all(&toy_backend, NULL, &cost), -(int)BLASD_E_device_error);
    assert_false(blasd_cost_known(&cost));
}

/* Files. */

static char folder[64], dir[80];
static const struct blasd_device_info known = {
    .id = "cuda:1", .name = "a card", .libraries = "v1", .units = 7};

static int setup_folder(void **state) {
    snprintf(folder, sizeof folder, "/tmp/blasd-measure-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(dir, sizeof dir, "%s/kept", folder);
    return setup(state);
}

static int teardown_folder(void **state) {
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/cuda.1", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/cuda.1.learnt", dir);
    unlink(path);
    rmdir(dir);
    return rmdir(folder); /* nothing else may be left */
}

static struct blasd_cost some_cost(void) {
    struct blasd_cost cost = {.copy_bytes_s = 2e9};
    assert_true(blasd_cost_add(&cost.curves[0][0], 100, 1e-6, 1e-7));
    return cost;
}

static void write_file(const char *text, size_t len) {
    char path[128];
    FILE *file;
    snprintf(path, sizeof path, "%s/cuda.1", dir);
    mkdir(dir, 0700);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static void kept_and_found(void **state) {
    struct blasd_cost cost = some_cost(), read;
    struct blasd_device_info other = known;
    (void)state;
    assert_false(blasd_cost_file_load(dir, &known, "1.0", &read));
    assert_int_equal(blasd_cost_file_save(dir, &known, "1.0", &cost, &err), 0);
    assert_int_equal(blasd_cost_file_save(dir, &known, "1.0", &cost, &err), 0); /* over the first */
    assert_true(blasd_cost_file_load(dir, &known, "1.0", &read));
    assert_true(read.copy_bytes_s == 2e9 && read.curves[0][0].count == 1);
    assert_false(blasd_cost_file_load(dir, &known, "1.1", &read));
    assert_false(blasd_cost_known(&read));
    snprintf(other.name, sizeof other.name, "another card");
    assert_false(blasd_cost_file_load(dir, &other, "1.0", &read));
    other = known;
    snprintf(other.libraries, sizeof other.libraries, "v2");
    assert_false(blasd_cost_file_load(dir, &other, "1.0", &read));
    other = known;
    other.units = 8;
    assert_false(blasd_cost_file_load(dir, &other, "1.0", &read));
    other = known;
    snprintf(other.id, sizeof other.id, "cuda:2");
    assert_false(blasd_cost_file_load(dir, &other, "1.0", &read));
}

/* What jobs have taught stays with the measurement that it came to, and goes with it. */
static void what_was_learnt(void **state) {
    const struct blasd_cost_work large = {.flops = 1e9, .items = 1},
                                 short_of = {.flops = 1e9, .items = 1, .ends_early = true};
    struct blasd_cost cost = some_cost(), read;
    struct blasd_device_info other = known;
    (void)state;
    blasd_cost_learn(&cost, &large, 2);
    blasd_cost_learn(&cost, &short_of, 0.5);
    assert_int_equal(blasd_cost_file_learnt(dir, &known, "1.0", &cost, &err), 0);
    assert_false(blasd_cost_file_load(dir, &known, "1.0", &read)); /* it is nothing by itself */
    assert_int_equal(blasd_cost_file_save(dir, &known, "1.0", &cost, &err), 0);
    cost = some_cost();
    assert_int_equal(blasd_cost_file_save(dir, &known, "1.0", &cost, &err), 0);
    assert_true(blasd_cost_file_load(dir, &known, "1.0", &read));
    assert_int_equal(read.curves[0][0].count, 1);
    blasd_cost_learn(&cost, &large, 2);
    blasd_cost_learn(&cost, &short_of, 0.5);
    assert_int_equal(blasd_cost_file_learnt(dir, &known, "1.0", &cost, &err), 0);
    assert_true(blasd_cost_file_load(dir, &known, "1.0", &read));
    assert_int_equal(read.curves[0][0].count, 2);
    assert_int_equal(read.curves[0][0].measured, 1); /* so that it may still become less */
    assert_true(read.curves[0][0].points[1].flops == 1e9);
    assert_true(fabs(read.curves[0][0].points[1].alone_s - 2) < 1e-5);
    assert_true(fabs(read.early[0] - 0.25) < 1e-3);
    snprintf(other.libraries, sizeof other.libraries, "v2");
    assert_false(blasd_cost_file_load(dir, &other, "1.0", &read));
    cost = some_cost();
    assert_int_equal(blasd_cost_file_save(dir, &known, "1.0", &cost, &err), 0);
    assert_true(blasd_cost_file_load(dir, &known, "1.0", &read));
    assert_int_equal(read.curves[0][0].count, 1); /* measured anew: nothing is left of it */
    assert_int_equal(blasd_cost_file_learnt(NULL, &known, "1.0", &cost, &err), 0);
}

static void files_that_are_not_right(void **state) {
    char key[512],
        fewer[512]; /* all operations but one: it was added since, and is to be measured */
    static const char costs[] =
        "{\"copy_gbytes_s\":1,\"curves\":{\"matmul\":{\"float64\":[[1,1,1]]}}}";
    long long now = blasd_clock_wall_us() / 1000000;
    const long long times[] = {now, now + 100000, now - 31 * 86400, 0};
    struct blasd_cost read;
    char text[1024], *large;
    int len;
    (void)state;
    len = snprintf(key, sizeof key, "blasd 1.0 | a card | 7 units | v1 |");
    for (int i = 0; blasd_ops[i] != NULL; i++) {
        memcpy(fewer, key, sizeof key);
        len += snprintf(key + len, sizeof key - (size_t)len, " %s", blasd_ops[i]->name);
    }
    strcat(key, "\n");
    strcat(fewer, "\n");
    for (int i = 0; i < 4; i++) { /* of now; of the future; old */
        len = snprintf(text, sizeof text, "%s%lld\n%s\n", key, times[i], costs);
        write_file(text, (size_t)len);
        assert_int_equal(blasd_cost_file_load(dir, &known, "1.0", &read), i == 0);
    }
    len = snprintf(text, sizeof text, "%s%lld\n%s\n", fewer, now, costs);
    write_file(text, (size_t)len);
    assert_false(blasd_cost_file_load(dir, &known, "1.0", &read));
    len = snprintf(text, sizeof text, "%s%lld\n%s\n", key, now, costs);
    for (int cut = 0; cut < len - 2; cut++) {
        write_file(text, (size_t)cut);
        assert_false(blasd_cost_file_load(dir, &known, "1.0", &read));
    }
    large = malloc(1 << 20);
    assert_non_null(large);
    memset(large, '\n', 1 << 20);
    memcpy(large, text, (size_t)len);
    write_file(large, 1 << 20);
    assert_false(blasd_cost_file_load(dir, &known, "1.0", &read));
    free(large);
}

static void places_that_are_not_right(void **state) {
    struct blasd_cost cost = some_cost(), read;
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/no/such", folder);
    assert_true(blasd_cost_file_save(path, &known, "1.0", &cost, &err) < 0);
    assert_non_null(strstr(err.detail, path));
    /* the file is a folder */
    snprintf(path, sizeof path, "%s/cuda.1", dir);
    mkdir(dir, 0700);
    mkdir(path, 0700);
    assert_false(blasd_cost_file_load(dir, &known, "1.0", &read));
    assert_true(blasd_cost_file_save(dir, &known, "1.0", &cost, &err) < 0);
    rmdir(path);
}

static void measuring_that_ends_the_worker(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) assert_true(blasd_cost_file_begin(dir, &known));
    assert_false(blasd_cost_file_begin(dir, &known)); /* three times it began and did not end */
    assert_false(blasd_cost_file_begin(dir, &known));
    blasd_cost_file_end(dir, &known);
    assert_true(blasd_cost_file_begin(dir, &known));
    blasd_cost_file_end(dir, &known);
    blasd_cost_file_end(dir, &known);
}

static void memory_of_the_host(void **state) {
    (void)state;
    assert_true(blasd_memory_here().all >= 1 << 20);
}

int main(void) {
#define FILES(name) cmocka_unit_test_setup_teardown(name, setup_folder, teardown_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_cpu, setup),
        cmocka_unit_test_setup(a_backend_with_one_operation, setup),
        cmocka_unit_test_setup(a_device_that_tells_its_phases, setup),
        cmocka_unit_test_setup(one_slow_run, setup),
        cmocka_unit_test_setup(a_kernel_that_fails, setup),
        FILES(kept_and_found),
        FILES(what_was_learnt),
        FILES(files_that_are_not_right),
        FILES(places_that_are_not_right),
        FILES(measuring_that_ends_the_worker),
        cmocka_unit_test_setup(memory_of_the_host, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
