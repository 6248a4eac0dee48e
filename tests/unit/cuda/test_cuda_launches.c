/* Every launch stays within what a block and a grid may be: shared memory, static and dynamic, on
 * cards that have more and less of it, as a process that has launched nothing yet asks for it; and
 * grids' second dimension, which ends at 65,535. The shim refuses what a card would. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

/* As a process that has launched nothing. */
static int run(struct trial *t, struct blasd_err *err, long *launches) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(&blasd_backend, t->job.op);
    struct blasd_device *device;
    int code;
    blasd_standin_repair();
    assert_int_equal(blasd_backend.device_open(0, &device, err), 0);
    assert_int_equal(trial_plan(t), BLASD_OK);
    trial_bind(t);
    *launches = blasd_standin.launches;
    code = kernel->run(device, &t->task, 1, &trial_watch.base, err);
    *launches = blasd_standin.launches - *launches;
    blasd_backend.device_close(device);
    if (code == 0 && t->task.err.code != BLASD_OK) *err = t->task.err;
    return code == 0 && t->task.err.code != BLASD_OK ? -(int)t->task.err.code : code;
}

/* One system; 1 where it failed, or did not run as one launch where it was to. */
static int solve(const char *assume, int64_t n, enum blasd_dtype dtype, bool one_launch) {
    struct trial *t = trial_new("solve");
    void *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
    void *b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
    struct blasd_err err;
    long launches;
    bool ok;
    int code;
    for (int64_t i = 0; i < n * n; i++) trial_put(a, dtype, i, trial_normal());
    for (int64_t i = 0; i < n; i++) trial_put(b, dtype, i, trial_normal());
    trial_set_choice(t, "assume_a", assume);
    code = run(t, &err, &launches);
    ok = code == 0 && (launches == 1) == one_launch;
    if (code != 0)
        print_error("solve, %s n = %lld: %s\n", blasd_dtype_name(dtype), (long long)n, err.detail);
    else if (!ok)
        print_error("solve, %s n = %lld: %ld launches\n", blasd_dtype_name(dtype), (long long)n,
                    launches);
    else
        ASSERT_CLOSE(trial_value(trial_output(t, "info"), 0), 0, 0);
    trial_free(t);
    return ok ? 0 : 1;
}

/* 896 bytes of static shared memory beside a dynamic part of 48 KiB or a little less. */
static void systems_whose_shared_memory_is_48_kib(void **state) {
    static const int64_t singles[] = {87, 88, 89, 90, 91, 1005, 1006, 1015, 1024};
    static const int64_t doubles[] = {57, 58, 59, 60, 61, 670, 671, 676, 682, 683};
    int failed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof singles / sizeof *singles; i++)
        failed += solve("general", singles[i], BLASD_float32, singles[i] < 200);
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        failed += solve("general", doubles[i], BLASD_float64, doubles[i] < 200);
    assert_int_equal(failed, 0);
}

/* The largest systems that one block factors, on each kind of card. */
static void systems_that_just_fit_each_card(void **state) {
    static const int cards[][2] = {{8, 0}, {8, 6}, {9, 0}};
    static const char *const kinds[] = {"symmetric", "general"};
    int failed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        blasd_standin_card(cards[i][0], cards[i][1]);
        for (int64_t more = -1; more <= 1; more++)
            for (int k = 0; k < 2; k++) {
                failed += solve(kinds[k], 256 + more, BLASD_float32, more <= 0);
                failed += solve(kinds[k], 256 + more, BLASD_float64, more <= 0);
            }
    }
    blasd_standin_card(9, 0);
    assert_int_equal(failed, 0);
}

/* Lists of neighbours of every length that a block may keep. */
static void neighbours_on_each_card(void **state) {
    static const int cards[][2] = {{8, 0}, {8, 6}, {9, 0}};
    static const int counts[] = {1, 2, 33, 63, 64, 65};
    (void)state;
    for (size_t i = 0; i < sizeof cards / sizeof *cards * 12; i++) {
        enum blasd_dtype dtype = i % 2 == 0 ? BLASD_float64 : BLASD_float32;
        struct trial *t = trial_new("distance");
        struct blasd_err err;
        long launches;
        void *x = trial_input(t, "x", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){90, 3});
        for (int e = 0; e < 90 * 3; e++) trial_put(x, dtype, e, trial_normal());
        trial_set_choice(t, "output", "topk");
        trial_set_int(t, "k", counts[i / 2 % 6]);
        blasd_standin_card(cards[i / 12][0], cards[i / 12][1]);
        assert_int_equal(run(t, &err, &launches), 0);
        trial_free(t);
    }
    blasd_standin_card(9, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(systems_whose_shared_memory_is_48_kib),
        cmocka_unit_test(systems_that_just_fit_each_card),
        cmocka_unit_test(neighbours_on_each_card),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
