/* matmul on CUDA where it differs from the CPU's: batches of mixed shapes in one call, the library
 * calls that are chosen, precision as asked and not otherwise, and what it is called. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
int test_matmul_main(void);
#define main test_matmul_main
#include "../kernels/test_matmul.c"
#undef main

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

#define MOST 80

/* Runs trials of any shapes as one call, as a worker does where the kernel takes mixed batches. */
static void run_mixed(struct trial **trials, int count) {
    static struct blasd_task tasks[MOST];
    const struct blasd_kernel *kernel =
        blasd_backend_kernel(&blasd_backend, blasd_op_find("matmul"));
    struct blasd_err err = {0};
    for (int i = 0; i < count; i++) {
        assert_int_equal(trial_plan(trials[i]), BLASD_OK);
        trial_bind(trials[i]);
        tasks[i] = trials[i]->task;
    }
    if (kernel->run(trial_device(), tasks, count, NULL, &err) != 0) fail_msg("%s", err.detail);
    for (int i = 0; i < count; i++) {
        assert_int_equal(tasks[i].err.code, BLASD_OK);
        trials[i]->task = tasks[i];
    }
}

static struct trial *product(enum blasd_dtype dtype, int64_t m, int64_t k, int64_t n,
                             enum filling filling) {
    struct trial *t = trial_new("matmul");
    give(t, "a", dtype, trial_between(0, 1) ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR, 2,
         (int64_t[]){m, k}, filling);
    give(t, "b", dtype, trial_between(0, 1) ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR, 2,
         (int64_t[]){k, n}, filling);
    return t;
}

static void mixed(enum blasd_dtype dtype, int least, int most) {
    struct trial *trials[MOST];
    long gemms = blasd_standin.gemms, launches = blasd_standin.launches;
    for (int i = 0; i < MOST; i++)
        trials[i] = product(dtype, trial_between(least, most), trial_between(least, most),
                            trial_between(least, most), FILL_NORMAL);
    run_mixed(trials, MOST);
    for (int i = 0; i < MOST; i++) {
        check(trials[i], false);
        trial_free(trials[i]);
    }
    /* small ones are one launch for each part of the batch, however many shapes there are */
    assert_int_equal(blasd_standin.gemms, gemms);
    if (least > 16) assert_true(blasd_standin.launches - launches <= MOST / 8);
}

static void small_shapes_run_as_one_launch(void **state) {
    (void)state;
    for (int d = 0; d < 4; d++) {
        mixed(floats[d], 17, 18);
        mixed(floats[d], 17, 60);
        mixed(floats[d], 1, 60);
        mixed(floats[d], 1, 3);
    }
}

/* Anything at all in one batch, as long as it is computed in one dtype. */
static void mixed_jobs_of_every_kind(void **state) {
    (void)state;
    for (int round = 0; round < 12; round++) {
        struct trial *trials[MOST];
        enum blasd_dtype compute = floats[round % 4];
        for (int i = 0; i < MOST;) {
            trials[i] = random_job(FILL_NORMAL);
            assert_int_equal(trial_plan(trials[i]), BLASD_OK);
            if (trials[i]->plan.input_dtype[0] == compute)
                i++;
            else
                trial_free(trials[i]);
        }
        run_mixed(trials, MOST);
        for (int i = 0; i < MOST; i++) {
            check(trials[i], false);
            trial_free(trials[i]);
        }
    }
}

static const char *method_of(struct trial *t) {
    assert_int_equal(trial_run(t), BLASD_OK);
    return t->task.method;
}

/* Stacks whose walk is even are one strided call, others one call for each product; b that serves
 * all items makes one tall product. What is small is ours. */
static void the_call_fits_the_shape(void **state) {
    const struct {
        int ra, rb;
        int64_t a[4], b[4];
        const char *method;
        long gemms;
    } cases[] = {
        {2, 2, {70, 130}, {130, 90}, "dgemm", 1},
        {2, 2, {2, 129}, {129, 3}, "dgemm", 1},
        {3, 3, {5, 20, 130}, {5, 130, 30}, "dgemm batched", 1},
        {3, 3, {1, 20, 130}, {5, 130, 30}, "dgemm batched", 1},
        {3, 2, {5, 20, 130}, {130, 30}, "dgemm", 1},
        {4, 3, {2, 3, 20, 130}, {3, 130, 30}, "dgemm one by one", 6},
        {4, 4, {2, 1, 20, 130}, {1, 3, 130, 30}, "dgemm one by one", 6},
        {3, 3, {5, 3, 4}, {5, 4, 2}, "tiny", 0},
        {2, 2, {64, 64}, {64, 64}, "small", 0},
        {3, 3, {8, 64, 64}, {8, 64, 64}, "small", 0},
        {3, 3, {9, 64, 64}, {9, 64, 64}, "dgemm batched", 1},
        {4, 4, {2, 1, 20, 30}, {1, 3, 30, 40}, "small", 0},
        {2, 1, {20, 30}, {30}, "small", 0},
        {1, 1, {130}, {130}, "dgemm", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial *t = trial_new("matmul");
        long gemms = blasd_standin.gemms;
        give(t, "a", BLASD_float64, BLASD_ROW_MAJOR, cases[i].ra, cases[i].a, FILL_INTEGER);
        give(t, "b", BLASD_float64, BLASD_ROW_MAJOR, cases[i].rb, cases[i].b, FILL_INTEGER);
        assert_string_equal(method_of(t), cases[i].method);
        assert_int_equal(blasd_standin.gemms - gemms, cases[i].gemms);
        check(t, true);
        trial_free(t);
    }
}

/* The largest error of a product of factors in [1, 2), against its size. */
static double error_of(enum blasd_dtype dtype, const char *precision, const char *method) {
    struct trial *t = product(dtype, 40, 150, 30, FILL_NORMAL);
    const struct blasd_tensor *c;
    struct blasd_tensor sent[3] = {0};
    double worst = 0;
    trial_set_choice(t, "precision", precision);
    assert_string_equal(method_of(t), method);
    c = trial_output(t, "c");
    for (int i = 0; i < 2; i++) {
        sent[i] = t->job.inputs[i].tensor;
        sent[i].data = t->given[i];
    }
    for (int64_t i = 0; i < 40 * 30; i++) {
        long double value, size;
        int64_t at[2] = {i / 30, i % 30};
        double error;
        blasd_ref_matmul(&t->job, sent, at, 2, &value, &size);
        error = fabs(trial_value(c, i) - (double)value) / (double)size;
        if (!(error <= worst)) worst = error;
    }
    trial_free(t);
    return worst;
}

static void precision_only_as_asked(void **state) {
    double native, tf32, bf16;
    (void)state;
    native = error_of(BLASD_float32, "native", "sgemm");
    tf32 = error_of(BLASD_float32, "tf32", "sgemm, tf32");
    bf16 = error_of(BLASD_float32, "bf16", "sgemm, bf16");
    assert_true(native < 0x1p-22);
    assert_true(tf32 > 4 * native && tf32 < 0x1p-10);
    assert_true(bf16 > 2 * tf32 && bf16 < 0x1p-7);
    assert_true(error_of(BLASD_float64, "tf32", "dgemm") < 0x1p-50);
}

static const struct emulated {
    enum blasd_dtype dtype;
    int rank;
    int64_t n;
    enum filling filling;
    bool has, room; /* the library it, the device memory for it */
    const char *method;
} emulated[] = {
    {BLASD_float64, 2, 130, FILL_INTEGER, true, true, "dgemm, fixed point of 63 bits"},
    {BLASD_float64, 2, 130, FILL_INTEGER, false, true, "dgemm"},
    {BLASD_float64, 2, 130, FILL_INTEGER, true, false, "dgemm"},
    {BLASD_float64, 2, 130, FILL_NORMAL, true, true, "dgemm, fixed point of "},
    {BLASD_float64, 2, 130, FILL_WIDE, true, true, "dgemm"},
    {BLASD_float64, 2, 130, FILL_SPECIAL, true, true, "dgemm"},
    {BLASD_float64, 3, 130, FILL_NORMAL, true, true, "dgemm batched"},
    {BLASD_float64, 2, 40, FILL_NORMAL, true, true, "small"},
    {BLASD_float64, 2, 4, FILL_NORMAL, true, true, "tiny"},
    {BLASD_float32, 2, 130, FILL_NORMAL, true, true, "sgemm"},
    {BLASD_complex128, 2, 130, FILL_INTEGER, true, true, "zgemm"},
};

/* float64 by integers where it is asked for, the library has it, takes it to pay, and there is
 * room: one product of a job. The error is native float64's at most, or it is native. */
static void float64_by_integers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof emulated / sizeof *emulated; i += (size_t)trial_step(3)) {
        const struct emulated *e = &emulated[i];
        bool begins = e->method[strlen(e->method) - 1] == ' ';
        uint64_t memory = trial_device()->facts.memory_bytes;
        for (int c = 0; c < 3; c++) {
            struct trial *t = trial_new("matmul");
            int64_t shape[3] = {2, e->n, e->n}, *own = shape + 3 - e->rank;
            enum blasd_order order = c == 1 ? BLASD_COLUMN_MAJOR : BLASD_ROW_MAJOR;
            give(t, "a", e->dtype, order, e->rank, own, e->filling);
            give(t, "b", e->dtype, order, e->rank, own, e->filling);
            if (c == 2) {
                give(t, "c", e->dtype, BLASD_ROW_MAJOR, e->rank, own, e->filling);
                trial_set_float(t, "alpha", -2);
                trial_set_float(t, "beta", 0.5);
            }
            trial_set_choice(t, "precision", "fp64_emulated");
            blasd_standin.emulates = e->has;
            if (!e->room) trial_device()->facts.memory_bytes = 1000;
            assert_int_equal(trial_run(t), BLASD_OK);
            trial_device()->facts.memory_bytes = memory;
            if (begins ? strncmp(t->task.method, e->method, strlen(e->method)) != 0
                       : strcmp(t->task.method, e->method) != 0)
                fail_msg("case %zu, %d: by %s, not %s", i, c, t->task.method, e->method);
            if (e->dtype != BLASD_complex128) check(t, e->filling == FILL_INTEGER);
            trial_free(t);
        }
    }
    blasd_standin.emulates = true;
}

/* Jobs of one batch, of which some are not fit for it. */
static void each_job_says_whether_it_was(void **state) {
    struct trial *trials[8];
    (void)state;
    for (int i = 0; i < 8; i++) {
        trials[i] = product(BLASD_float64, 70, 130, 90, i % 3 == 0 ? FILL_WIDE : FILL_INTEGER);
        trial_set_choice(trials[i], "precision", "fp64_emulated");
    }
    run_mixed(trials, 8);
    for (int i = 0; i < 8; i++) {
        assert_string_equal(trials[i]->task.method,
                            i % 3 == 0 ? "dgemm" : "dgemm, fixed point of 63 bits");
        check(trials[i], i % 3 != 0);
        trial_free(trials[i]);
    }
}

/* Half factors go up and come down as they are, and are multiplied as such. */
static void halves_travel_as_they_are(void **state) {
    const struct {
        enum blasd_dtype a, b, c; /* c float64: none is given */
        double alpha;
        uint64_t in;
        const char *method;
    } cases[] = {
        {BLASD_float16, BLASD_float16, BLASD_float64, 1, 2, "hgemm, float32 sums, rounded once"},
        {BLASD_bfloat16, BLASD_bfloat16, BLASD_float64, 1, 2, "bgemm, float32 sums, rounded once"},
        {BLASD_float16, BLASD_float16, BLASD_float64, 0, 2, "hgemm, float32 sums, rounded once"},
        {BLASD_float16, BLASD_float16, BLASD_float32, 1, 2, "hgemm, float32 sums"},
        {BLASD_float16, BLASD_float16, BLASD_bfloat16, 1, 2, "hgemm, float32 sums"},
        {BLASD_float16, BLASD_float16, BLASD_float16, 2, 2, "hgemm, float32 sums, rounded once"},
        {BLASD_bfloat16, BLASD_bfloat16, BLASD_bfloat16, 0, 2, "bgemm, float32 sums, rounded once"},
        {BLASD_float16, BLASD_bfloat16, BLASD_float64, 1, 4, "sgemm"},
        {BLASD_float16, BLASD_float32, BLASD_float64, 1, 4, "sgemm"},
        {BLASD_float16, BLASD_int32, BLASD_float64, 1, 8, "dgemm"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial *t = trial_new("matmul");
        uint64_t up, down, out, added = 0;
        give(t, "a", cases[i].a, BLASD_ROW_MAJOR, 2, (int64_t[]){32, 192}, FILL_NORMAL);
        give(t, "b", cases[i].b, BLASD_COLUMN_MAJOR, 2, (int64_t[]){192, 32}, FILL_NORMAL);
        if (cases[i].c != BLASD_float64)
            give(t, "c", cases[i].c, BLASD_ROW_MAJOR, 2, (int64_t[]){32, 32}, FILL_NORMAL);
        trial_set_float(t, "alpha", cases[i].alpha);
        up = blasd_standin.bytes_up;
        down = blasd_standin.bytes_down;
        assert_string_equal(method_of(t), cases[i].method);
        out = blasd_dtype_size(t->plan.outputs[0].dtype);
        if (cases[i].c != BLASD_float64) added = 32 * 32 * out;
        assert_true(blasd_standin.bytes_up - up == 2 * 32 * 192 * cases[i].in + added);
        assert_true(blasd_standin.bytes_down - down == 32 * 32 * out);
        check(t, false);
        trial_free(t);
    }
}

/* What is multiplied by 0 afterwards must not overflow before, and a sum that is finite in float32
 * is what beta * c is added to. */
static void halves_are_rounded_once(void **state) {
    (void)state;
    for (int tiny = 0; tiny < 2; tiny++) {
        int64_t n = tiny ? 4 : 66;
        struct trial *t = trial_new("matmul");
        uint16_t *a = trial_input(t, "a", BLASD_float16, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
        uint16_t *b = trial_input(t, "b", BLASD_float16, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
        uint16_t *c = trial_input(t, "c", BLASD_float16, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
        for (int64_t i = 0; i < n * n; i++) {
            a[i] = b[i] = 0x7bff; /* 65504 */
            c[i] = 0x3c00;
        }
        trial_set_float(t, "alpha", 0);
        trial_set_float(t, "beta", 3);
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int64_t i = 0; i < n * n; i++) assert_true(trial_value(trial_output(t, "c"), i) == 3);
        trial_set_float(t, "alpha", -1.0 / 65504 / 65504);
        trial_set_float(t, "beta", (double)n);
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int64_t i = 0; i < n * n; i++)
            assert_true(fabs(trial_value(trial_output(t, "c"), i)) < 1e-3);
        trial_free(t);
    }
}

/* A result of some hundred thousand elements is looked at where it is made: a row of sums that
 * overflow on the way is warned of. */
static void overflow_is_seen_in_large_results(void **state) {
    enum { M = 520, DEPTH = 3 };
    (void)state;
    for (int overflows = 0; overflows < 2; overflows++) {
        struct trial *t = trial_new("matmul");
        float *a = trial_input(t, "a", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){M, DEPTH});
        float *b = trial_input(t, "b", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){DEPTH, M});
        long launches = blasd_standin.launches;
        const float *c;
        for (int i = 0; i < M * DEPTH; i++) a[i] = b[i] = 1;
        if (overflows)
            for (int k = 0; k < DEPTH; k++) a[(M - 1) * DEPTH + k] = k < 2 ? 3e38f : -3e38f;
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal(blasd_standin.launches - launches, 1);
        c = trial_output(t, "c")->data;
        for (int i = 0; i < M * M; i++)
            assert_true(overflows && i / M == M - 1 ? !isfinite(c[i]) : c[i] == 3.0f);
        assert_int_equal(t->task.warning_count, overflows);
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflow_is_seen_in_large_results),
        cmocka_unit_test(small_shapes_run_as_one_launch),
        cmocka_unit_test(mixed_jobs_of_every_kind),
        cmocka_unit_test(the_call_fits_the_shape),
        cmocka_unit_test(precision_only_as_asked),
        cmocka_unit_test(float64_by_integers),
        cmocka_unit_test(each_job_says_whether_it_was),
        cmocka_unit_test(halves_travel_as_they_are),
        cmocka_unit_test(halves_are_rounded_once),
    };
    blasd_cuda_sizes = (struct blasd_cuda_sizes){
        .chunk_bytes = 1024, .part_bytes = (size_t)1 << 21, .block_bytes = 4096};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
