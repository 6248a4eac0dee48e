/* The frame of the CUDA backend, on matmul jobs: parts and slots, memory that runs short, calls
 * that fail one by one, errors that stick, and nothing left behind. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

#define MOST 64

/* Integers, so that every result is exact whatever ran it. */
static struct trial *job(int64_t m, int64_t k, int64_t n) {
    struct trial *t = trial_new("matmul");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){m, k});
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){k, n});
    for (int64_t i = 0; i < m * k; i++) a[i] = (double)trial_between(-9, 9);
    for (int64_t i = 0; i < k * n; i++) b[i] = (double)trial_between(-9, 9);
    return t;
}

static bool right(const struct trial *t, const struct blasd_task *task) {
    const double *a = t->given[0], *b = t->given[1], *c = task->outputs[0].data;
    int64_t m = task->outputs[0].shape[0], n = task->outputs[0].shape[1];
    int64_t k = t->job.inputs[0].tensor.shape[1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) sum += a[i * k + l] * b[l * n + j];
            if (!(c[i * n + j] == sum)) return false;
        }
    return true;
}

/* A batch of trials as the worker holds it. */
struct batch {
    struct trial *trials[MOST];
    struct blasd_task tasks[MOST];
    int count;
};

static void batch_make(struct batch *batch, int count, int64_t m, int64_t k, int64_t n) {
    batch->count = count;
    for (int i = 0; i < count; i++) {
        batch->trials[i] = job(m, k, n);
        assert_int_equal(trial_plan(batch->trials[i]), BLASD_OK);
    }
}

static void batch_bind(struct batch *batch) {
    for (int i = 0; i < batch->count; i++) {
        trial_bind(batch->trials[i]);
        batch->tasks[i] = batch->trials[i]->task;
    }
}

static void batch_free(struct batch *batch) {
    for (int i = 0; i < batch->count; i++) trial_free(batch->trials[i]);
}

static int batch_right(const struct batch *batch) {
    int count = 0;
    for (int i = 0; i < batch->count; i++)
        if (batch->tasks[i].err.code == BLASD_OK && right(batch->trials[i], &batch->tasks[i]))
            count++;
    return count;
}

static const struct blasd_kernel *kernel(void) {
    return blasd_backend_kernel(&blasd_backend, blasd_op_find("matmul"));
}

static struct blasd_device *open_device(void) {
    struct blasd_device *device;
    struct blasd_err err;
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    return device;
}

static void close_device(struct blasd_device *device) {
    blasd_backend.device_close(device);
    assert_int_equal(blasd_standin.device_blocks, 0);
    assert_int_equal(blasd_standin.host_blocks, 0);
    assert_int_equal(blasd_standin.streams, 0);
    assert_int_equal(blasd_standin.events, 0);
}

/* A device with little room, so that small jobs show what large ones do elsewhere. */
static void small_sizes(void) {
    blasd_cuda_sizes =
        (struct blasd_cuda_sizes){.chunk_bytes = 4096, .part_bytes = 16384, .block_bytes = 4096};
}
static void usual_sizes(void) {
    blasd_cuda_sizes = (struct blasd_cuda_sizes){.chunk_bytes = (size_t)4 << 20,
                                                 .part_bytes = (size_t)64 << 20,
                                                 .block_bytes = (size_t)64 << 20};
}

static void what_a_device_says_of_itself(void **state) {
    struct blasd_device *device = open_device();
    struct blasd_device_info info;
    struct blasd_err err;
    (void)state;
    assert_int_equal(blasd_backend.abi, BLASD_BACKEND_ABI);
    assert_int_equal(blasd_backend.device_info(device, false, &info, &err), 0);
    assert_string_equal(info.id, "cuda:0");
    assert_int_equal(info.device_class, BLASD_DEVICE_CUDA);
    assert_true(info.memory_bytes == blasd_standin.memory_bytes);
    assert_true(info.gflops_float64 == 0);
    assert_int_equal(info.busy_percent, -1);
    assert_int_equal(blasd_backend.device_info(device, true, &info, &err), 0);
    assert_true(info.gflops_float64 > 0);
    assert_true(info.gflops_float32 > 0);
    assert_true(info.copy_gbytes_s > 0);
    close_device(device);
    assert_int_equal(blasd_backend.device_open(1, &device, &err), -(int)BLASD_E_no_such_device);
    assert_int_equal(blasd_backend.device_open(-1, &device, &err), -(int)BLASD_E_no_such_device);
}

static void small_tasks_travel_as_one_copy(void **state) {
    struct blasd_device *device = open_device();
    struct batch batch;
    struct blasd_err err;
    long up, down, launches;
    (void)state;
    batch_make(&batch, MOST, 5, 7, 3);
    batch_bind(&batch);
    up = blasd_standin.copies_up;
    down = blasd_standin.copies_down;
    launches = blasd_standin.launches;
    assert_int_equal(kernel()->run(device, batch.tasks, MOST, &trial_watch.base, &err), 0);
    assert_int_equal(blasd_standin.copies_up - up, 1);
    assert_int_equal(blasd_standin.copies_down - down, 1);
    assert_int_equal(blasd_standin.launches - launches, 1);
    assert_int_equal(batch_right(&batch), MOST);
    assert_string_equal(batch.tasks[0].method, "tiny");
    batch_free(&batch);
    close_device(device);
}

static void parts_go_through_two_slots_in_any_order_of_streams(void **state) {
    (void)state;
    small_sizes();
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct blasd_device *device;
        struct batch first, second;
        struct blasd_async_batch *one, *two;
        struct blasd_err err = {0};
        int64_t n = trial_between(1, 40);
        blasd_standin.seed = seed;
        device = open_device();
        batch_make(&first, (int)trial_between(1, MOST), n, trial_between(1, 40), n);
        batch_make(&second, (int)trial_between(1, 12), 30, 20, trial_between(1, 50));
        batch_bind(&first);
        batch_bind(&second);
        assert_int_equal(kernel()->begin(device, first.tasks, first.count, NULL, &one, &err), 0);
        assert_int_equal(kernel()->begin(device, second.tasks, second.count, NULL, &two, &err), 0);
        assert_int_equal(kernel()->end(one, &err), 0);
        assert_int_equal(batch_right(&first), first.count);
        assert_int_equal(kernel()->end(two, &err), 0);
        assert_int_equal(batch_right(&second), second.count);
        for (int i = 0; i < first.count; i++) {
            assert_true(first.tasks[i].upload_us >= 0);
            assert_true(first.tasks[i].download_us >= 0);
        }
        batch_free(&first);
        batch_free(&second);
        close_device(device);
    }
    usual_sizes();
    blasd_standin.seed = 1;
}

/* One product whose factors and result are many chunks long. */
static void large_tasks_go_chunk_by_chunk(void **state) {
    struct blasd_device *device;
    struct batch batch;
    struct blasd_err err;
    (void)state;
    small_sizes();
    device = open_device();
    batch_make(&batch, 1, 150, 90, 170);
    batch_bind(&batch);
    assert_int_equal(kernel()->run(device, batch.tasks, 1, &trial_watch.base, &err), 0);
    assert_int_equal(batch_right(&batch), 1);
    assert_string_equal(batch.tasks[0].method, "dgemm");
    batch_free(&batch);
    usual_sizes();
    close_device(device);
}

static void a_batch_too_large_for_the_device_runs_in_parts(void **state) {
    struct batch batch;
    struct blasd_err err;
    struct blasd_device *device;
    long launches = blasd_standin.launches;
    (void)state;
    blasd_cuda_sizes.block_bytes = 4096;
    blasd_standin.memory_bytes = 400 << 10; /* one job takes 96 KiB, twenty do not fit */
    device = open_device();
    batch_make(&batch, 20, 64, 64, 64);
    batch_bind(&batch);
    assert_int_equal(kernel()->run(device, batch.tasks, batch.count, &trial_watch.base, &err), 0);
    assert_int_equal(batch_right(&batch), batch.count);
    assert_true(blasd_standin.launches - launches >= 5);
    batch_free(&batch);
    /* where others have taken the memory a job fails alone; the device goes on */
    blasd_standin.memory_bytes = 60 << 10;
    batch_make(&batch, 3, 85, 85, 85);
    batch_bind(&batch);
    assert_int_equal(kernel()->run(device, batch.tasks, batch.count, &trial_watch.base, &err), 0);
    blasd_standin.memory_bytes = 400 << 10;
    for (int i = 0; i < 3; i++) assert_int_equal(batch.tasks[i].err.code, BLASD_E_out_of_memory);
    batch_free(&batch);
    batch_make(&batch, 2, 64, 64, 64);
    batch_bind(&batch);
    assert_int_equal(kernel()->run(device, batch.tasks, batch.count, &trial_watch.base, &err), 0);
    assert_int_equal(batch_right(&batch), batch.count);
    batch_free(&batch);
    close_device(device);
    usual_sizes();
    blasd_standin.memory_bytes = (uint64_t)1 << 30;
}

/* Each call of a batch fails in turn. */
static void fail_each_call(enum blasd_code code) {
    int failed = 0, n = 1;
    small_sizes();
    for (; n < 2000; n++) {
        struct blasd_device *device = open_device();
        struct batch batch;
        struct blasd_err err = {0};
        int got, left;
        batch_make(&batch, 6, 20, 10, 33);
        batch_bind(&batch);
        blasd_standin.fail_at = n;
        blasd_standin.fail_code = code;
        got = kernel()->run(device, batch.tasks, batch.count, &trial_watch.base, &err);
        left = blasd_standin.fail_at;
        blasd_standin.fail_at = 0;
        if (got != 0) {
            failed++;
            assert_int_equal(got, -(int)code);
            assert_int_equal(err.code, code);
            assert_true(err.detail[0] != '\0');
        } else {
            assert_int_equal(batch_right(&batch), batch.count);
        }
        if (code == BLASD_E_device_error && left == 0) {
            /* it sticks, also where this batch did not need the call: the next one fails */
            batch_bind(&batch);
            assert_int_equal(
                kernel()->run(device, batch.tasks, batch.count, &trial_watch.base, &err),
                -(int)BLASD_E_device_error);
        } else {
            batch_bind(&batch);
            assert_int_equal(
                kernel()->run(device, batch.tasks, batch.count, &trial_watch.base, &err), 0);
            assert_int_equal(batch_right(&batch), batch.count);
        }
        blasd_standin_repair();
        batch_free(&batch);
        close_device(device);
        if (left > 0) break; /* the batch makes fewer calls than n */
    }
    assert_true(n > 30 && n < 2000);
    /* memory that is short for a moment while a part begins costs nothing */
    if (code == BLASD_E_out_of_memory)
        assert_true(failed < n / 2);
    else
        assert_true(failed > n / 2);
    usual_sizes();
}

static void short_memory_at_any_call(void **state) {
    (void)state;
    fail_each_call(BLASD_E_out_of_memory);
}
static void a_refused_call_at_any_place(void **state) {
    (void)state;
    fail_each_call(BLASD_E_internal_error);
}
static void an_error_that_sticks_at_any_call(void **state) {
    (void)state;
    fail_each_call(BLASD_E_device_error);
}

/* Opening a device can fail at each of its calls, and leaves nothing. */
static void opening_fails_cleanly(void **state) {
    (void)state;
    for (int n = 1; n < 50; n++) {
        struct blasd_device *device;
        struct blasd_err err;
        int code;
        blasd_standin.fail_at = n;
        blasd_standin.fail_code = BLASD_E_internal_error;
        code = blasd_backend.device_open(0, &device, &err);
        if (code == 0) {
            blasd_standin.fail_at = 0;
            assert_true(n > 3);
            close_device(device);
            return;
        }
        assert_int_equal(code, -(int)BLASD_E_internal_error);
        assert_int_equal(blasd_standin.streams, 0);
    }
    fail_msg("the device never opened");
}

/* In its stride the backend asks for no memory, and after thousands of batches holds no more. */
static void memory_stays_the_same(void **state) {
    struct blasd_device *device = open_device();
    struct batch small, large;
    struct blasd_err err;
    long allocs = 0;
    uint64_t held = 0;
    (void)state;
    batch_make(&small, 30, 6, 6, 6);
    batch_make(&large, 3, 40, 40, 40);
    for (int round = 0; round < 2000; round++) {
        struct batch *batch = round % 5 == 0 ? &large : &small;
        batch_bind(batch);
        assert_int_equal(kernel()->run(device, batch->tasks, batch->count, &trial_watch.base, &err),
                         0);
        if (round == 20) allocs = blasd_standin.device_allocs;
        if (round == 20) held = blasd_standin.device_bytes;
    }
    assert_int_equal(batch_right(&small), small.count);
    assert_true(allocs == blasd_standin.device_allocs);
    assert_true(held == blasd_standin.device_bytes);
    batch_free(&small);
    batch_free(&large);
    close_device(device);
}

static void unwanted_batches_stop(void **state) {
    struct blasd_device *device;
    struct batch batch;
    struct blasd_err err;
    (void)state;
    small_sizes();
    device = open_device();
    batch_make(&batch, 40, 40, 40, 40);
    batch_bind(&batch);
    trial_watch.calls = 0;
    trial_watch.last = 0;
    trial_watch.stop_after = 3;
    assert_int_equal(kernel()->run(device, batch.tasks, batch.count, &trial_watch.base, &err),
                     -(int)BLASD_E_cancelled);
    trial_watch.stop_after = 0;
    batch_bind(&batch);
    assert_int_equal(kernel()->run(device, batch.tasks, batch.count, NULL, &err), 0);
    assert_int_equal(batch_right(&batch), batch.count);
    batch_free(&batch);
    usual_sizes();
    close_device(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_device_says_of_itself),
        cmocka_unit_test(small_tasks_travel_as_one_copy),
        cmocka_unit_test(parts_go_through_two_slots_in_any_order_of_streams),
        cmocka_unit_test(large_tasks_go_chunk_by_chunk),
        cmocka_unit_test(a_batch_too_large_for_the_device_runs_in_parts),
        cmocka_unit_test(short_memory_at_any_call),
        cmocka_unit_test(a_refused_call_at_any_place),
        cmocka_unit_test(an_error_that_sticks_at_any_call),
        cmocka_unit_test(opening_fails_cleanly),
        cmocka_unit_test(memory_stays_the_same),
        cmocka_unit_test(unwanted_batches_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
