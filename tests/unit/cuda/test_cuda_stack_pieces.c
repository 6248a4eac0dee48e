/* A large stack or product that comes in pieces: two of them on their way at a time, the result
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
    struct blasd_async_batch *batch;
    struct blasd_err err = {0};
    int64_t began_ns = blasd_clock_ns();
    (void)state;
    trial_bind(t);
    assert_int_equal(kernel_of(t)->begin(device, &t->task, 1, &trial_watch.base, &batch, &err), 0);
    assert_true(batch->count > 3);
    assert_int_equal(batch->begun, 2);
    assert_int_equal(batch->ended, 0);
    assert_int_equal(kernel_of(t)->end(batch, &err), 0);
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
        struct blasd_async_batch *batch;
        struct blasd_err err = {0};
        trial_bind(t);
        assert_int_equal(kernel_of(t)->begin(device, &t->task, 1, &trial_watch.base, &batch, &err),
                         0);
        assert_int_equal(batch->count, 1);
        assert_int_equal(kernel_of(t)->end(batch, &err), 0);
        assert_int_equal(t->task.err.code, BLASD_OK);
        trial_free(t);
        close_device(device);
    }
}

/* Small ones before and behind, twice, with a name: the second time nothing of it goes up. */
static void batches_and_names(void **state) {
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

/* ---- stacks of other operations ---- */

static void fill(void *to, enum blasd_dtype dtype, int64_t count) {
    for (int64_t i = 0; i < count; i++) trial_put(to, dtype, i, trial_uniform());
}

/* Some of its systems are singular, others nearly so or not symmetric where they should be. */
static struct trial *systems(int64_t length, bool symmetric) {
    struct trial *t = trial_new("solve");
    int64_t square[] = {length, 6, 6}, columns[] = {length, 6, 2};
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 3, square);
    fill(trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 3, columns), BLASD_float64,
         12 * length);
    fill(a, BLASD_float64, 36 * length);
    for (int64_t i = 0; i < length; i++) {
        double *own = a + 36 * i;
        if (i % 7 == 5) memset(own, 0, 36 * sizeof *own);
        for (int r = 0; i % 7 == 3 && r < 6; r++) own[6 * r + 1] = own[6 * r] * (1 + r * 1e-16);
    }
    if (symmetric) trial_set_choice(t, "assume_a", "symmetric");
    return t;
}

static struct trial *distances(int64_t length, const char *metric, const char *output) {
    struct trial *t = trial_new("distance");
    int64_t x[] = {length, 3, 11, 4}, y[] = {length, 3, 9, 4};
    fill(trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 4, x), BLASD_float64, 132 * length);
    fill(trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 4, y), BLASD_float64, 108 * length);
    if (strcmp(metric, "cityblock") == 0)
        memcpy(trial_input(t, "w", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){4}),
               (double[]){1, 2, 0, 3}, 4 * sizeof(double));
    trial_set_choice(t, "metric", metric);
    trial_set_choice(t, "output", output);
    return t;
}

/* Of the operations that take one matrix each; every fifth is not positive definite, or symmetric.
 */
static struct trial *matrices(const char *op, int64_t length) {
    struct trial *t = trial_new(op);
    double *a =
        trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 4, (int64_t[]){length, 2, 7, 7});
    fill(a, BLASD_float64, 98 * length);
    for (int64_t i = 0; i < 2 * length; i++) {
        double *own = a + 49 * i;
        for (int r = 0; r < 7; r++) {
            own[8 * r] = i % 5 == 4 ? -1 : 8;
            for (int c = 0; i % 10 < 9 && c < r; c++) own[7 * r + c] = own[7 * c + r];
        }
    }
    return t;
}

/* Every output and all that is said of it is what it is in one piece. */
static void check_in_pieces(struct trial *t) {
    struct blasd_device *device = open_device(WHOLE);
    struct blasd_task whole;
    void *right[BLASD_MAX_OUTPUTS] = {0};
    const struct blasd_op *op = t->job.op;
    struct blasd_async_batch *batch;
    struct blasd_err err = {0};
    assert_int_equal(trial_plan(t), BLASD_OK);
    trial_bind(t);
    assert_int_equal(run(device, t), 0);
    whole = t->task;
    assert_int_equal(whole.err.code, BLASD_OK);
    for (int o = 0; op->outputs[o].name != NULL; o++) {
        if (whole.outputs[o].rank < 0) continue;
        right[o] = trial_alloc(blasd_tensor_bytes(&whole.outputs[o]));
        memcpy(right[o], whole.outputs[o].data, blasd_tensor_bytes(&whole.outputs[o]));
    }
    close_device(device);
    device = open_device(4096);
    trial_bind(t);
    assert_int_equal(kernel_of(t)->begin(device, &t->task, 1, &trial_watch.base, &batch, &err), 0);
    assert_true(device->open_batches->count > 3);
    assert_int_equal(kernel_of(t)->end(batch, &err), 0);
    assert_int_equal(t->task.err.code, BLASD_OK);
    assert_string_equal(t->task.method, whole.method);
    assert_int_equal(t->task.warning_count, whole.warning_count);
    for (int w = 0; w < whole.warning_count; w++)
        assert_string_equal(t->task.warnings[w].text, whole.warnings[w].text);
    for (int o = 0; op->outputs[o].name != NULL; o++) {
        if (right[o] == NULL) continue;
        assert_memory_equal(t->task.outputs[o].data, right[o],
                            blasd_tensor_bytes(&t->task.outputs[o]));
        free(right[o]);
    }
    close_device(device);
    trial_free(t);
}

static void systems_in_pieces(void **state) {
    (void)state;
    for (int64_t length = 40; length < 100; length += 13)
        for (int symmetric = 0; symmetric < 2; symmetric++)
            check_in_pieces(systems(length, symmetric));
}

/* Of no systems, or rows, there are no pieces, however large what they would share is. */
static void stacks_of_nothing(void **state) {
    struct blasd_device *device = open_device(4096);
    struct trial *t[3] = {trial_new("solve"), trial_new("matmul"), trial_new("distance")};
    (void)state;
    trial_input(t[0], "a", BLASD_float64, BLASD_ROW_MAJOR, 3, (int64_t[]){0, 6, 6});
    fill(trial_input(t[0], "b", BLASD_float64, BLASD_ROW_MAJOR, 3, (int64_t[]){1, 6, 5000}),
         BLASD_float64, 30000);
    trial_input(t[1], "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){0, 200});
    fill(trial_input(t[1], "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){200, 300}),
         BLASD_float64, 60000);
    trial_input(t[2], "x", BLASD_float64, BLASD_ROW_MAJOR, 3, (int64_t[]){0, 5, 4});
    fill(trial_input(t[2], "y", BLASD_float64, BLASD_ROW_MAJOR, 3, (int64_t[]){1, 5000, 4}),
         BLASD_float64, 20000);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(trial_plan(t[i]), BLASD_OK);
        trial_bind(t[i]);
        assert_int_equal(run(device, t[i]), 0);
        assert_int_equal(t[i]->task.err.code, BLASD_OK);
        trial_free(t[i]);
    }
    close_device(device);
}

static void decompositions_in_pieces(void **state) {
    static const char *const ops[] = {"cholesky", "qr", "eigh", "svd"};
    (void)state;
    TRIAL_FULL();
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (int64_t length = 17; length < 40; length += 11)
            check_in_pieces(matrices(ops[i], length));
}

#define PANEL 300
#define WIDTH 40
#define DEPTH 30

/* A product of one matrix by another, and perhaps another to be added. */
static struct trial *product(enum blasd_dtype dtype, int64_t rows, bool trans_b, bool add) {
    struct trial *t = trial_new("matmul");
    int64_t shape_b[2] = {trans_b ? WIDTH : DEPTH, trans_b ? DEPTH : WIDTH};
    void *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){rows, DEPTH});
    void *b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 2, shape_b);
    fill(a, dtype, rows * DEPTH);
    fill(b, dtype, DEPTH * WIDTH);
    if (add)
        fill(trial_input(t, "c", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){rows, WIDTH}), dtype,
             rows * WIDTH);
    trial_set_bool(t, "transpose_b", trans_b);
    return t;
}

static void rows_in_pieces(void **state) {
    static const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32, BLASD_complex128};
    const struct blasd_cuda_tuning tuning = blasd_cuda_tuning;
    (void)state;
    blasd_cuda_tuning.panel_elements = 1;
    blasd_cuda_tuning.panel_rows = PANEL;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int64_t rows = 4 * PANEL; rows < 6 * PANEL; rows += 149)
            check_in_pieces(product(dtypes[d], rows, d % 2 == 1, rows % 2 == 1));
    blasd_cuda_tuning = tuning;
}

/* What all pieces share goes up once. */
static void the_right_factor_goes_up_once(void **state) {
    const struct blasd_cuda_tuning tuning = blasd_cuda_tuning;
    struct trial *t = product(BLASD_float64, 5 * PANEL, false, false);
    struct blasd_device *device;
    size_t cache_least = blasd_cuda_sizes.cache_least;
    (void)state;
    blasd_cuda_tuning.panel_elements = 1;
    blasd_cuda_tuning.panel_rows = PANEL;
    blasd_cuda_sizes.cache_least = 1024;
    assert_int_equal(trial_plan(t), BLASD_OK);
    for (int in_pieces = 0; in_pieces < 2; in_pieces++) {
        device = open_device(in_pieces ? 4096 : WHOLE);
        trial_bind(t);
        assert_int_equal(run(device, t), 0);
        assert_int_equal(t->task.upload_bytes, (5 * PANEL + WIDTH) * DEPTH * 8);
        /* and is nobody's when the batch has ended */
        for (int i = 0; i < device->cache.count; i++)
            assert_int_equal(device->cache.copies[i].key.len, 0);
        close_device(device);
    }
    blasd_cuda_sizes.cache_least = cache_least;
    blasd_cuda_tuning = tuning;
    trial_free(t);
}

static void distances_in_pieces(void **state) {
    (void)state;
    check_in_pieces(distances(20, "euclidean", "full"));
    check_in_pieces(distances(23, "cityblock", "full"));
    check_in_pieces(distances(23, "seuclidean", "full"));
    check_in_pieces(distances(21, "cosine", "argmin"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_result_is_what_it_is_in_one_piece),
        cmocka_unit_test(two_pieces_are_on_their_way),
        cmocka_unit_test(what_cannot_be_cut_is_not),
        cmocka_unit_test(batches_and_names),
        cmocka_unit_test(one_that_is_unwanted_stops_between_pieces),
        cmocka_unit_test(systems_in_pieces),
        cmocka_unit_test(distances_in_pieces),
        cmocka_unit_test(decompositions_in_pieces),
        cmocka_unit_test(stacks_of_nothing),
        cmocka_unit_test(rows_in_pieces),
        cmocka_unit_test(the_right_factor_goes_up_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
