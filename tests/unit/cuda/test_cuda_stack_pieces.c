/* A large stack of products that comes in pieces: two of them on their way at a time, the result
 * what it is in one piece, whatever else is in the batch. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

#define N 20 /* of the matrices */
#define STEP ((size_t)N * N)
#define PART 16384 /* two products, and some */
#define WHOLE ((size_t)1 << 30)

static struct blasd_device *open_device(size_t part_bytes) {
    struct blasd_device *device;
    struct blasd_err err;
    blasd_cuda_sizes.part_bytes = part_bytes;
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    return device;
}

static void close_device(struct blasd_device *device) {
    blasd_backend.device_close(device);
    assert_int_equal(blasd_standin.device_blocks + blasd_standin.host_blocks, 0);
}

static struct trial *stack(enum blasd_dtype dtype, enum blasd_order order, int64_t length,
                           int64_t b_length) {
    struct trial *t = trial_new("matmul");
    void *a = trial_input(t, "a", dtype, order, 3, (int64_t[]){length, N, N});
    void *b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 3, (int64_t[]){b_length, N, N});
    for (int64_t i = 0; dtype != BLASD_int32 && i < length * N * N; i++)
        trial_put(a, dtype, i, trial_uniform());
    for (int64_t i = 0; dtype != BLASD_int32 && i < b_length * N * N; i++)
        trial_put(b, dtype, i, trial_uniform());
    assert_int_equal(trial_plan(t), BLASD_OK);
    return t;
}

static const struct blasd_kernel *kernel_of(const struct trial *t) {
    return blasd_backend_kernel(&blasd_backend, t->job.op);
}

static int run(struct blasd_device *device, struct trial *t) {
    struct blasd_err err = {0};
    return kernel_of(t)->run(device, &t->task, 1, &trial_watch.base, &err);
}

/* The result in one piece, to be freed. */
static void *in_one(struct trial *t) {
    struct blasd_device *device = open_device(WHOLE);
    size_t bytes;
    void *kept;
    trial_bind(t);
    assert_int_equal(run(device, t), 0);
    bytes = blasd_tensor_bytes(&t->task.outputs[0]);
    kept = malloc(bytes);
    assert_non_null(kept);
    memcpy(kept, t->task.outputs[0].data, bytes);
    close_device(device);
    return kept;
}

static void the_result_is_what_it_is_in_one_piece(void **state) {
    static const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32, BLASD_complex128,
                                              BLASD_float64};
    const uint64_t seed = blasd_standin.seed;
    (void)state;
    for (uint64_t s = 0; s < 4; s++)
        for (int64_t length = 9; length <= 64; length += 11) {
            struct trial *t = stack(dtypes[s], BLASD_ROW_MAJOR, length, length);
            void *right = in_one(t);
            struct blasd_device *device;
            long launches = blasd_standin.launches + blasd_standin.gemms;
            blasd_standin.seed = s;
            device = open_device(PART);
            trial_bind(t);
            assert_int_equal(run(device, t), 0);
            assert_int_equal(t->task.err.code, BLASD_OK);
            assert_true(t->task.method[0] != '\0');
            assert_true(blasd_standin.launches + blasd_standin.gemms > launches + 1);
            assert_memory_equal(t->task.outputs[0].data, right,
                                blasd_tensor_bytes(&t->task.outputs[0]));
            close_device(device);
            free(right);
            trial_free(t);
        }
    blasd_standin.seed = seed;
}

/* The second piece has been put on its way up before anybody waited for the first. */
static void two_pieces_are_on_their_way(void **state) {
    struct trial *t = stack(BLASD_float64, BLASD_ROW_MAJOR, 12, 12);
    struct blasd_device *device = open_device(PART);
    struct blasd_flight *flight;
    struct blasd_err err = {0};
    int64_t began_ns = blasd_clock_ns();
    (void)state;
    trial_bind(t);
    assert_int_equal(kernel_of(t)->begin(device, &t->task, 1, &trial_watch.base, &flight, &err), 0);
    assert_true(flight->count > 3);
    assert_int_equal(flight->begun, 2);
    assert_int_equal(flight->ended, 0);
    assert_int_equal(kernel_of(t)->end(flight, &err), 0);
    assert_true(t->task.upload_us + t->task.compute_us + t->task.download_us <=
                (blasd_clock_ns() - began_ns) / 1000 + 1);
    trial_free(t);
    close_device(device);
}

static void what_cannot_be_cut_is_not(void **state) {
    static const struct {
        enum blasd_dtype dtype;
        enum blasd_order order;
        int64_t length, b_length;
    } kinds[] = {{BLASD_float64, BLASD_ROW_MAJOR, 12, 1},
                 {BLASD_float64, BLASD_ROW_MAJOR, 1, 12},
                 {BLASD_float64, BLASD_COLUMN_MAJOR, 12, 12},
                 {BLASD_int32, BLASD_ROW_MAJOR, 12, 12},
                 {BLASD_float64, BLASD_ROW_MAJOR, 1, 1}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct trial *t = stack(kinds[k].dtype, kinds[k].order, kinds[k].length, kinds[k].b_length);
        struct blasd_device *device = open_device(PART / 4);
        struct blasd_flight *flight;
        struct blasd_err err = {0};
        trial_bind(t);
        assert_int_equal(kernel_of(t)->begin(device, &t->task, 1, &trial_watch.base, &flight, &err),
                         0);
        assert_int_equal(flight->count, 1);
        assert_int_equal(kernel_of(t)->end(flight, &err), 0);
        assert_int_equal(t->task.err.code, BLASD_OK);
        trial_free(t);
        close_device(device);
    }
}

/* Small ones before and behind, twice, with a name: the second time nothing of it goes up. */
static void company_and_names(void **state) {
    struct trial *large = stack(BLASD_float64, BLASD_ROW_MAJOR, 14, 14), *small[2];
    struct blasd_key key = {0};
    struct blasd_device *device;
    void *right[3];
    uint64_t up[2];
    (void)state;
    blasd_key_add(&key, "t0123", 5);
    right[1] = in_one(large);
    for (int i = 0; i < 2; i++) {
        small[i] = stack(BLASD_float64, BLASD_ROW_MAJOR, 1, 1);
        right[2 * i] = in_one(small[i]);
    }
    blasd_cuda_sizes.cache_least = 1;
    device = open_device(PART);
    for (int round = 0; round < 2; round++) {
        struct trial *trials[] = {small[0], large, small[1]};
        struct blasd_task tasks[3];
        struct blasd_err err = {0};
        uint64_t before = blasd_standin.bytes_up;
        for (int i = 0; i < 3; i++) {
            trial_bind(trials[i]);
            tasks[i] = trials[i]->task;
        }
        tasks[1].names[0] = &key;
        assert_int_equal(kernel_of(large)->run(device, tasks, 3, &trial_watch.base, &err), 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(tasks[i].err.code, BLASD_OK);
            assert_ptr_equal(tasks[i].job, &trials[i]->job);
            assert_int_equal(tasks[i].outputs[0].shape[0], i == 1 ? 14 : 1);
            assert_memory_equal(tasks[i].outputs[0].data, right[i],
                                blasd_tensor_bytes(&tasks[i].outputs[0]));
        }
        up[round] = blasd_standin.bytes_up - before;
    }
    assert_true(up[1] + 14 * STEP * sizeof(double) <= up[0]);
    close_device(device);
    trial_free(large);
    for (int i = 0; i < 2; i++) trial_free(small[i]);
    for (int i = 0; i < 3; i++) free(right[i]);
}

static void one_that_is_unwanted_stops_between_pieces(void **state) {
    struct trial *t = stack(BLASD_float64, BLASD_ROW_MAJOR, 40, 40);
    struct blasd_device *device = open_device(PART);
    long launches = blasd_standin.launches + blasd_standin.gemms;
    (void)state;
    trial_bind(t);
    trial_watch.calls = 0;
    trial_watch.stop_after = 3;
    assert_int_equal(run(device, t), -(int)BLASD_E_cancelled);
    trial_watch.stop_after = 0;
    assert_true(blasd_standin.launches + blasd_standin.gemms < launches + 40);
    trial_bind(t);
    assert_int_equal(run(device, t), 0);
    trial_free(t);
    close_device(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_result_is_what_it_is_in_one_piece),
        cmocka_unit_test(two_pieces_are_on_their_way),
        cmocka_unit_test(what_cannot_be_cut_is_not),
        cmocka_unit_test(company_and_names),
        cmocka_unit_test(one_that_is_unwanted_stops_between_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
