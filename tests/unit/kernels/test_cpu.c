/* The CPU backend: its device, and the walk over broadcast batches. */
#include "kernel_support.h"

static void the_device_says_what_it_is(void **state) {
    struct blasd_device_info info;
    struct blasd_device *second;
    struct blasd_err err = {0};
    (void)state;
    assert_int_equal(blasd_backend_cpu.abi, BLASD_BACKEND_ABI);
    assert_int_equal(blasd_backend_cpu.device_count(&err), 1);
    assert_int_equal(blasd_backend_cpu.device_open(1, &second, &err), -(int)BLASD_E_no_such_device);
    assert_int_equal(blasd_backend_cpu.device_info(trial_device(), false, &info, &err), 0);
    assert_string_equal(info.id, "cpu:0");
    assert_true(info.name[0] != '\0');
    assert_true(info.units >= 1);
    assert_true(info.memory_bytes >= info.memory_free_bytes && info.memory_free_bytes > 0);
    assert_true(info.gflops_float64 == 0);
    assert_int_equal(blasd_backend_cpu.device_info(trial_device(), true, &info, &err), 0);
    if (!(info.gflops_float64 > 0.01 && info.gflops_float32 > 0.01 && info.copy_gbytes_s > 0.01))
        fail_msg("measured %g, %g, %g", info.gflops_float64, info.gflops_float32,
                 info.copy_gbytes_s);
}

static void every_operation_with_a_kernel_is_found(void **state) {
    (void)state;
    for (int i = 0; blasd_backend_cpu.kernels[i] != NULL; i++) {
        const struct blasd_op *op = blasd_op_find(blasd_backend_cpu.kernels[i]->op);
        assert_non_null(op);
        assert_ptr_equal(blasd_backend_kernel(&blasd_backend_cpu, op),
                         blasd_backend_cpu.kernels[i]);
    }
}

/* Against index arithmetic written out; by steps and by jumps. */
static void a_walk_visits_what_broadcasting_says(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct blasd_walk walk, jump;
        int rank = (int)trial_between(0, 4), own = (int)trial_between(0, rank);
        int64_t shape[4], part[4], count = 1;
        for (int i = 0; i < rank; i++) count *= shape[i] = trial_between(1, 4);
        for (int i = 0; i < own; i++) part[i] = trial_between(0, 1) ? shape[rank - own + i] : 1;
        blasd_walk_init(&walk, rank, shape);
        blasd_walk_operand(&walk, 1, own, part);
        jump = walk;
        for (int64_t item = 0; item < count; item++) {
            int64_t rest = item, offset = 0, step = 1;
            for (int i = rank - 1; i >= 0; i--) {
                int64_t at = rest % shape[i], length = i >= rank - own ? part[i - rank + own] : 1;
                rest /= shape[i];
                offset += (length == 1 ? 0 : at) * step;
                step *= length;
            }
            assert_int_equal(walk.offset[1], offset);
            assert_int_equal(walk.offset[0], 0);
            blasd_walk_seek(&jump, item);
            assert_int_equal(jump.offset[1], offset);
            blasd_walk_next(&walk);
        }
        assert_int_equal(walk.offset[1], 0);
    }
}

static void memory_is_aligned_and_bounded(void **state) {
    void *memory = blasd_cpu_alloc(3, 5);
    (void)state;
    assert_int_equal((uintptr_t)memory % 64, 0);
    free(memory);
    memory = blasd_cpu_alloc(0, 8);
    assert_non_null(memory);
    free(memory);
    assert_null(blasd_cpu_alloc(SIZE_MAX / 2, 8));
    assert_null(blasd_cpu_alloc(SIZE_MAX - 10, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_says_what_it_is),
        cmocka_unit_test(every_operation_with_a_kernel_is_found),
        cmocka_unit_test(a_walk_visits_what_broadcasting_says),
        cmocka_unit_test(memory_is_aligned_and_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
