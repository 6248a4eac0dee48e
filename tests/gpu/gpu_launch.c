/* One system of one size in a process of its own, as a worker's first job is: what a launch may
 * take of shared memory is asked for only by what has run before. gpu_launch float32|float64 N */
#include "gpu_backend.h"
#define TRIAL_BACKEND blasd_backend
#include "kernel_support.h"

static const char *dtype_name;
static int64_t n;

static void one_system(void **state) {
    enum blasd_dtype dtype = strcmp(dtype_name, "float32") == 0 ? BLASD_float32 : BLASD_float64;
    struct trial *t = trial_new("solve");
    void *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
    void *b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
    double unit = dtype == BLASD_float32 ? 0x1p-24 : 0x1p-53, error;
    (void)state;
    for (int64_t i = 0; i < n * n; i++) trial_put(a, dtype, i, trial_normal());
    for (int64_t i = 0; i < n; i++) trial_put(b, dtype, i, trial_normal());
    if (trial_run(t) != BLASD_OK) fail_msg("%s", t->task.err.detail);
    assert_true(trial_value(trial_output(t, "info"), 0) == 0);
    error = trial_value(trial_output(t, "backward_error"), 0);
    printf("{\"op\":\"solve\",\"case\":\"first in its process, n=%lld %s\",\"method\":\"%s\","
           "\"backward_error_u\":%.2f}\n",
           (long long)n, dtype_name, t->task.method, error / unit);
    assert_true(error <= 16 * (double)n * unit);
    trial_free(t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_system)};
    if (argc != 3) return 2;
    dtype_name = argv[1];
    n = strtol(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
