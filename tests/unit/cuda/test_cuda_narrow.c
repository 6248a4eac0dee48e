/* Regressions in float32 go up as float32, half the bytes, and give the bits that they give where
 * the host makes float64 of the data first. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

#define ROWS 60
#define P 3
#define JOBS 3

struct kind {
    const char *method, *cov;
    bool weighted, residuals, dependent, shared, many, scaled;
};

static struct trial *regression(const struct kind *kind, enum blasd_dtype dtype, uint64_t seed) {
    struct trial *t = trial_new("regression");
    const int64_t x[3] = {kind->shared ? 1 : 2, ROWS, P}, w[2] = {2, ROWS}, y[3] = {2, ROWS, 2};
    int64_t x_count = (kind->shared ? 1 : 2) * ROWS * P, y_count = 2 * ROWS * (kind->many ? 2 : 1);
    void *to = trial_input(t, "x", dtype, BLASD_ROW_MAJOR, 3, x);
    trial_seed = 31 * seed + 5;
    for (int64_t i = 0; i < x_count; i++) trial_put(to, dtype, i, trial_normal());
    for (int64_t i = 0; kind->dependent && i < x_count; i += P) {
        struct blasd_tensor all = blasd_tensor_make(dtype, 1, &x_count);
        all.data = to;
        trial_put(to, dtype, i + 2, 2 * trial_value(&all, i));
    }
    to = trial_input(t, "y", dtype, BLASD_ROW_MAJOR, kind->many ? 3 : 2, y);
    for (int64_t i = 0; i < y_count; i++)
        trial_put(to, dtype, i, trial_normal() * (kind->scaled ? 1e-37 : 1));
    if (kind->weighted) {
        to = trial_input(t, "sample_weight", dtype, BLASD_ROW_MAJOR, 2, w);
        for (int64_t i = 0; i < 2 * ROWS; i++) trial_put(to, dtype, i, 1.5 + trial_uniform());
    }
    if (kind->method != NULL) trial_set_choice(t, "method", kind->method);
    if (kind->cov != NULL) trial_set_choice(t, "cov_type", kind->cov);
    if (kind->residuals) trial_set_bool(t, "residuals", true);
    assert_int_equal(trial_plan(t), BLASD_OK);
    return t;
}

/* Runs them; `wide`: with the data as float64 from the host. Bytes that went up. */
static uint64_t run(struct blasd_device *device, struct trial **trials, int count, bool wide) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(&blasd_backend, trials[0]->job.op);
    struct blasd_task tasks[JOBS];
    struct blasd_err err = {0};
    uint64_t before;
    for (int i = 0; i < count; i++) {
        assert_int_equal(trial_plan(trials[i]), BLASD_OK);
        assert_int_equal(trials[i]->plan.input_dtype[0], BLASD_float32);
        for (int n = 0; wide && n < 3; n++) trials[i]->plan.input_dtype[n] = BLASD_float64;
        trial_bind(trials[i]);
        tasks[i] = trials[i]->task;
        /* of an input that is not given the data alone are looked at */
        for (int n = 0; n < 3; n++)
            if (tasks[i].inputs[n].data == NULL)
                memset(&tasks[i].inputs[n], 0x7f, offsetof(struct blasd_tensor, data));
    }
    before = blasd_standin.bytes_up;
    assert_int_equal(kernel->run(device, tasks, count, &trial_watch.base, &err), 0);
    for (int i = 0; i < count; i++) {
        assert_int_equal(tasks[i].err.code, BLASD_OK);
        trials[i]->task = tasks[i];
    }
    return blasd_standin.bytes_up - before;
}

static void the_bits_are_those_of_float64(void **state) {
    static const struct kind kinds[] = {
        {.method = "ols"},
        {.method = "ols", .residuals = true, .many = true},
        {.method = "ols", .cov = "HC3", .weighted = true},
        {.method = "ols", .dependent = true, .residuals = true},
        {.method = "ols", .dependent = true, .cov = "HC1", .weighted = true, .many = true},
        {.method = "ols", .dependent = true, .scaled = true, .residuals = true, .shared = true},
        {.method = "ridge", .weighted = true, .residuals = true},
        {.method = "lasso", .residuals = true},
        {.method = "elastic_net", .many = true},
        {.method = "gd", .shared = true},
    };
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct trial *narrow[JOBS], *wide[JOBS];
        struct blasd_device *device;
        struct blasd_err err;
        uint64_t up, saved;
        assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
        for (int i = 0; i < JOBS; i++) {
            narrow[i] = regression(&kinds[k], BLASD_float32, k * JOBS + (uint64_t)i);
            wide[i] = regression(&kinds[k], BLASD_float32, k * JOBS + (uint64_t)i);
        }
        up = run(device, narrow, JOBS, false);
        /* the arguments of launches go up in either case */
        saved = JOBS * blasd_tensor_bytes(&narrow[0]->task.inputs[0]);
        assert_true(up + saved <= run(device, wide, JOBS, true));
        for (int i = 0; i < JOBS; i++)
            for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) {
                const struct blasd_tensor *out = &narrow[i]->task.outputs[o];
                if (out->rank < 0) continue;
                assert_memory_equal(out->data, wide[i]->task.outputs[o].data,
                                    blasd_tensor_bytes(out));
            }
        for (int i = 0; i < JOBS; i++) {
            assert_string_equal(narrow[i]->task.method, wide[i]->task.method);
            assert_int_equal(narrow[i]->task.warning_count, wide[i]->task.warning_count);
            trial_free(narrow[i]);
            trial_free(wide[i]);
        }
        blasd_backend.device_close(device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
