/* Faults of every kind at every place, for every operation that runs on CUDA: no memory at each
 * allocation in turn, for a moment or from then on; each library call refused; each call breaking
 * the device. What comes of it is a right result or an error, the next batch runs where the device
 * still does, and nothing is left behind. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/sample_support.h"

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

#include <math.h>

#define MOST 6
#define TRIES 3000
/* every allocation; of library calls each has one of the three faults, in turn */
#define CALL_STEP 3

static void random_input(struct trial *t, const char *name, enum blasd_dtype dtype, int rank,
                         const int64_t *shape) {
    struct blasd_tensor to = blasd_tensor_make(dtype, rank, shape), one, from;
    char *data = trial_input(t, name, dtype, BLASD_ROW_MAJOR, rank, shape);
    one = blasd_tensor_make(dtype, 0, NULL);
    from = blasd_tensor_make(BLASD_float64, 0, NULL);
    for (int64_t i = 0; i < blasd_tensor_elements(&to); i++) {
        double value = (double)trial_between(-4, 4) / 4;
        from.data = &value;
        one.data = data + (size_t)i * blasd_dtype_size(dtype);
        blasd_tensor_convert(&from, &one);
    }
}

static struct trial *product(enum blasd_dtype dtype, int64_t m, int64_t k, int64_t n) {
    struct trial *t = trial_new("matmul");
    random_input(t, "a", dtype, 2, (int64_t[]){m, k});
    random_input(t, "b", dtype, 2, (int64_t[]){k, n});
    return t;
}

/* ---- kinds of batches: one makes the job number i, and says how many there are ---- */

static int tiny_products(int i, struct trial **ret) {
    if (ret != NULL) *ret = product(BLASD_float64, 3, 4, 5);
    (void)i;
    return MOST;
}
static int large_products(int i, struct trial **ret) {
    if (ret != NULL) *ret = product(BLASD_float32, 40, 30, 50);
    (void)i;
    return 3;
}
static int mixed_products(int i, struct trial **ret) {
    if (ret != NULL) *ret = product(BLASD_float64, 20 + i % 3, 18, 19);
    return MOST;
}
static int emulated_products(int i, struct trial **ret) {
    if (ret != NULL) {
        *ret = product(BLASD_float64, 2, 130, 3);
        trial_set_choice(*ret, "precision", "fp64_emulated");
    }
    (void)i;
    return 3;
}
static int half_products(int i, struct trial **ret) {
    if (ret != NULL) {
        *ret = product(BLASD_float16, 20 + i % 2, 18, 19);
        random_input(*ret, "c", BLASD_float16, 1, (int64_t[]){19});
        if (i % 3 == 0) trial_set_float(*ret, "alpha", 0);
    }
    return MOST;
}
static int stacks(int i, struct trial **ret) {
    if (ret != NULL) {
        *ret = trial_new("matmul");
        random_input(*ret, "a", BLASD_bfloat16, 4, (int64_t[]){2, 1, 17, 20});
        random_input(*ret, "b", BLASD_bfloat16, 4, (int64_t[]){1, 3, 20, 18});
        random_input(*ret, "c", BLASD_float32, 2, (int64_t[]){17, 18});
    }
    (void)i;
    return 2;
}
/* Large enough to come in pieces. */
static int long_stacks(int i, struct trial **ret) {
    if (ret != NULL) {
        *ret = trial_new("matmul");
        random_input(*ret, "a", BLASD_float64, 3, (int64_t[]){7, 17, 20});
        random_input(*ret, "b", BLASD_float64, 3, (int64_t[]){7, 20, 18});
    }
    (void)i;
    return 2;
}
static int systems(int i, struct trial **ret) {
    if (ret != NULL) {
        double *a;
        *ret = trial_new("solve");
        random_input(*ret, "a", BLASD_float64, 2, (int64_t[]){12, 12});
        random_input(*ret, "b", BLASD_float64, 2, (int64_t[]){12, 3});
        a = (*ret)->given[blasd_op_input((*ret)->job.op, "a")];
        for (int d = 0; d < 12; d++) a[13 * d] += 20;
    }
    (void)i;
    return 4;
}
/* Of three shapes, for one launch. */
static int mixed_systems(int i, struct trial **ret) {
    if (ret != NULL) {
        int64_t n = 9 + i % 3;
        double *a;
        *ret = trial_new("solve");
        random_input(*ret, "a", BLASD_float64, 2, (int64_t[]){n, n});
        random_input(*ret, "b", BLASD_float64, 1, (int64_t[]){n});
        a = (*ret)->given[blasd_op_input((*ret)->job.op, "a")];
        for (int64_t d = 0; d < n; d++) a[(n + 1) * d] += 20;
    }
    return MOST;
}
/* Large enough to come in pieces. */
static int stacked_systems(int i, struct trial **ret) {
    if (ret != NULL) {
        double *a;
        *ret = trial_new("solve");
        random_input(*ret, "a", BLASD_float64, 3, (int64_t[]){21, 10, 10});
        random_input(*ret, "b", BLASD_float64, 3, (int64_t[]){21, 10, 1});
        a = (*ret)->given[blasd_op_input((*ret)->job.op, "a")];
        for (int d = 0; d < 21 * 10; d++) a[d / 10 * 100 + d % 10 * 11] += 20;
    }
    (void)i;
    return 2;
}
static int large_systems(int i, struct trial **ret) {
    if (ret != NULL) {
        double *a;
        *ret = trial_new("solve");
        random_input(*ret, "a", BLASD_float64, 2, (int64_t[]){72, 72});
        random_input(*ret, "b", BLASD_float64, 1, (int64_t[]){72});
        a = (*ret)->given[blasd_op_input((*ret)->job.op, "a")];
        for (int d = 0; d < 72; d++) a[73 * d] += 100;
    }
    (void)i;
    return 1;
}
static int distances(int i, struct trial **ret) {
    if (ret != NULL) {
        *ret = trial_new("distance");
        random_input(*ret, "x", BLASD_float64, 2, (int64_t[]){15, 3});
        random_input(*ret, "y", BLASD_float64, 2, (int64_t[]){9, 3});
    }
    (void)i;
    return 3;
}
static int mixed_distances(int i, struct trial **ret) {
    if (ret != NULL) {
        *ret = trial_new("distance");
        random_input(*ret, "x", BLASD_float64, 2, (int64_t[]){15 + i % 3, 3});
        random_input(*ret, "y", BLASD_float64, 2, (int64_t[]){9, 3});
        if (i % 2 == 1) trial_set_choice(*ret, "output", "argmin");
    }
    return MOST;
}
static int stacked_distances(int i, struct trial **ret) {
    if (ret != NULL) {
        *ret = trial_new("distance");
        random_input(*ret, "x", BLASD_float64, 3, (int64_t[]){20, 15, 3});
        random_input(*ret, "y", BLASD_float64, 3, (int64_t[]){20, 9, 3});
    }
    (void)i;
    return 1;
}
static int regressions(int i, struct trial **ret) {
    if (ret != NULL) {
        *ret = trial_new("regression");
        random_input(*ret, "x", BLASD_float64, 2, (int64_t[]){60, 3});
        random_input(*ret, "y", BLASD_float64, 1, (int64_t[]){60});
    }
    (void)i;
    return 3;
}

/* Least squares, robust and not, and ridge, whose launches are shared. */
static int mixed_regressions(int i, struct trial **ret) {
    if (ret != NULL) {
        *ret = trial_new("regression");
        random_input(*ret, "x", BLASD_float64, 2, (int64_t[]){12 + i, 1 + i});
        random_input(*ret, "y", BLASD_float64, 1, (int64_t[]){12 + i});
        if (i == 1) trial_set_choice(*ret, "method", "ridge");
        if (i == 2) trial_set_choice(*ret, "cov_type", "HC3");
    }
    return 3;
}

static const struct kind {
    const char *op;
    int (*make)(int i, struct trial **ret);
} kinds[] = {
    {"matmul", tiny_products},     {"matmul", large_products},
    {"matmul", mixed_products},    {"matmul", emulated_products},
    {"matmul", half_products},     {"matmul", stacks},
    {"matmul", long_stacks},       {"solve", systems},
    {"solve", mixed_systems},      {"solve", stacked_systems},
    {"solve", large_systems},      {"distance", distances},
    {"distance", mixed_distances}, {"distance", stacked_distances},
    {"regression", regressions},   {"regression", mixed_regressions},
};
#define KINDS (int)(sizeof kinds / sizeof *kinds)

struct batch {
    const struct kind *kind;
    const struct blasd_kernel *kernel;
    struct trial *trials[MOST];
    struct blasd_task tasks[MOST];
    int count;
    void *right[MOST][BLASD_MAX_OUTPUTS]; /* what came without faults; owned */
};

/* Two jobs of the sample that an operation gives of itself: every operation is a kind. */
static struct trial *sampled(const struct kind *kind) {
    return sample_trial(blasd_op_find(kind->op), 5, 1, BLASD_float64);
}

/* False where the operation does not run on CUDA. */
static bool batch_make(struct batch *batch, const struct kind *kind) {
    memset(batch, 0, sizeof *batch);
    batch->kind = kind;
    batch->kernel = blasd_backend_kernel(&blasd_backend, blasd_op_find(kind->op));
    if (batch->kernel == NULL) return false;
    batch->count = kind->make != NULL ? kind->make(0, NULL) : 2;
    for (int i = 0; i < batch->count; i++) {
        if (kind->make != NULL)
            kind->make(i, &batch->trials[i]);
        else
            batch->trials[i] = sampled(kind);
        assert_int_equal(trial_plan(batch->trials[i]), BLASD_OK);
    }
    return true;
}

/* Inputs of every other job have names, so that they stay on the device. */
static void name_inputs(struct blasd_task *task, int job) {
    static struct blasd_key names[MOST][BLASD_MAX_INPUTS];
    for (int i = 0; job % 2 == 0 && i < BLASD_MAX_INPUTS; i++) {
        names[job][i] = (struct blasd_key){0};
        blasd_key_add_int(&names[job][i], job);
        blasd_key_add_int(&names[job][i], i);
        task->names[i] = &names[job][i];
    }
}

static int batch_run(struct batch *batch, struct blasd_device *device) {
    struct blasd_err err = {0};
    int code;
    for (int i = 0; i < batch->count; i++) {
        trial_bind(batch->trials[i]);
        batch->tasks[i] = batch->trials[i]->task;
        name_inputs(&batch->tasks[i], i);
    }
    code = batch->kernel->run(device, batch->tasks, batch->count, &trial_watch.base, &err);
    if (code != 0) {
        assert_int_equal(err.code, -code);
        assert_true(err.detail[0] != '\0');
    }
    return code;
}

static void batch_keep(struct batch *batch) {
    for (int i = 0; i < batch->count; i++) {
        assert_int_equal(batch->tasks[i].err.code, BLASD_OK);
        for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) {
            const struct blasd_tensor *out = &batch->tasks[i].outputs[o];
            if (out->rank < 0) continue;
            batch->right[i][o] = trial_alloc(blasd_tensor_bytes(out));
            memcpy(batch->right[i][o], out->data, blasd_tensor_bytes(out));
        }
    }
}

/* Every task ended in the way it should, or with this error; tells how many were right. */
static int batch_check(const struct batch *batch, enum blasd_code allowed) {
    int rights = 0;
    for (int i = 0; i < batch->count; i++) {
        const struct blasd_task *task = &batch->tasks[i];
        if (task->err.code != BLASD_OK) {
            assert_int_equal(task->err.code, allowed);
            continue;
        }
        rights++;
        for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) {
            struct blasd_tensor was = task->outputs[o];
            if (was.rank < 0) continue;
            was.data = batch->right[i][o];
            for (int64_t e = 0; e < blasd_tensor_elements(&was); e++) {
                double got = trial_value(&task->outputs[o], e), right = trial_value(&was, e);
                double room =
                    was.dtype == BLASD_float16 || was.dtype == BLASD_bfloat16 ? 1e-2 : 1e-9;
                if (was.dtype == BLASD_float32) room = 1e-4;
                if (isnan(right)) {
                    assert_true(isnan(got));
                } else if (!(fabs(got - right) <= room * (1 + fabs(right)))) {
                    fail_msg("%s, job %d, output %d: %g, not %g", batch->kind->op, i, o, got,
                             right);
                }
            }
        }
    }
    return rights;
}

static void batch_free(struct batch *batch) {
    for (int i = 0; i < batch->count; i++) {
        trial_free(batch->trials[i]);
        for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) free(batch->right[i][o]);
    }
}

static void nothing_is_left(void) {
    assert_int_equal(blasd_standin.device_blocks, 0);
    assert_int_equal(blasd_standin.host_blocks, 0);
    assert_int_equal(blasd_standin.streams, 0);
    assert_int_equal(blasd_standin.events, 0);
}

static struct blasd_device *open_device(void) {
    struct blasd_device *device;
    struct blasd_err err;
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    return device;
}

/* What is asked of the stand-in; blasd_standin_repair takes it back. */
struct fault {
    enum blasd_code code;
    bool allocations, from_then_on;
};

static void arm(const struct fault *fault, int n) {
    if (fault->allocations) {
        blasd_standin.no_memory_after = fault->from_then_on;
        blasd_standin.no_memory_at = n;
    } else {
        blasd_standin.fail_code = fault->code;
        blasd_standin.fail_at = n;
    }
}

static bool armed_still(const struct fault *fault) {
    return fault->allocations ? blasd_standin.no_memory_at > 0 : blasd_standin.fail_at > 0;
}

/* The fault at place n of a device's first batch. False: there are fewer places. */
static bool try_at(struct batch *batch, const struct fault *fault, int n) {
    struct blasd_device *device = open_device();
    bool met;
    int code;
    arm(fault, n);
    code = batch_run(batch, device);
    met = !armed_still(fault);
    if (code != 0) {
        assert_int_equal(code, -(int)fault->code);
    } else if (fault->code == BLASD_E_out_of_memory) {
        /* short for a moment is no job's fault; short for good is, of those that did not fit */
        int rights = batch_check(batch, fault->code);
        if (!met || (fault->allocations && !fault->from_then_on))
            assert_int_equal(rights, batch->count);
    } else {
        assert_int_equal(batch_check(batch, fault->code), batch->count);
    }
    if (fault->code == BLASD_E_device_error && met) {
        /* it sticks: this process gets nothing from the device any more */
        assert_int_equal(batch_run(batch, device), -(int)BLASD_E_device_error);
    } else {
        blasd_standin_repair();
        assert_int_equal(batch_run(batch, device), 0);
        assert_int_equal(batch_check(batch, BLASD_OK), batch->count);
    }
    blasd_backend.device_close(device);
    blasd_standin_repair();
    nothing_is_left();
    return met;
}

static void every_place(const struct fault *fault, int first, int least) {
    int ops = 0;
    while (blasd_ops[ops] != NULL) ops++;
    for (int k = 0; k < KINDS + ops; k++) {
        const struct kind own = {k < KINDS ? "" : blasd_ops[k - KINDS]->name, NULL};
        struct batch batch;
        struct blasd_device *device;
        int n = first;
        if (!batch_make(&batch, k < KINDS ? &kinds[k] : &own)) continue;
        device = open_device();
        assert_int_equal(batch_run(&batch, device), 0);
        batch_keep(&batch);
        blasd_backend.device_close(device);
        while (n < TRIES && try_at(&batch, fault, n))
            n += (fault->allocations ? 1 : CALL_STEP) * trial_step(7);
        assert_true(n > least && n < TRIES);
        batch_free(&batch);
    }
}

static void no_memory_for_a_moment(void **state) {
    (void)state;
    every_place(&(struct fault){BLASD_E_out_of_memory, true, false}, 1, 2);
}
static void no_memory_from_then_on(void **state) {
    (void)state;
    every_place(&(struct fault){BLASD_E_out_of_memory, true, true}, 1, 2);
}
static void calls_that_run_out_of_memory(void **state) {
    (void)state;
    every_place(&(struct fault){BLASD_E_out_of_memory, false, false}, 1, 8);
}
static void calls_that_are_refused(void **state) {
    (void)state;
    every_place(&(struct fault){BLASD_E_internal_error, false, false}, 2, 8);
}
static void calls_that_break_the_device(void **state) {
    (void)state;
    every_place(&(struct fault){BLASD_E_device_error, false, false}, 3, 8);
}

/* Whatever fails while a device is opened, it opens or leaves nothing. */
static void a_device_opens_or_not(void **state) {
    static const struct fault faults[] = {{BLASD_E_out_of_memory, true, false},
                                          {BLASD_E_out_of_memory, true, true},
                                          {BLASD_E_out_of_memory, false, false},
                                          {BLASD_E_internal_error, false, false},
                                          {BLASD_E_device_error, false, false}};
    struct batch batch;
    struct blasd_device *first = open_device();
    (void)state;
    assert_true(batch_make(&batch, &kinds[3]));
    assert_int_equal(batch_run(&batch, first), 0);
    batch_keep(&batch);
    blasd_backend.device_close(first);
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        bool met = true;
        int n = 1;
        for (; met && n < TRIES; n += faults[f].allocations ? 1 : CALL_STEP) {
            struct blasd_device *device = NULL;
            struct blasd_err err = {0};
            int code;
            arm(&faults[f], n);
            code = blasd_backend.device_open(0, &device, &err);
            met = !armed_still(&faults[f]);
            blasd_standin_repair();
            if (code != 0) {
                assert_int_equal(code, -(int)faults[f].code);
                nothing_is_left();
                continue;
            }
            if (met) assert_int_not_equal(faults[f].code, BLASD_E_device_error);
            assert_int_equal(batch_run(&batch, device), 0);
            assert_int_equal(batch_check(&batch, BLASD_OK), batch.count);
            blasd_backend.device_close(device);
            nothing_is_left();
        }
        assert_true(n < TRIES);
    }
    batch_free(&batch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_for_a_moment),       cmocka_unit_test(no_memory_from_then_on),
        cmocka_unit_test(calls_that_run_out_of_memory), cmocka_unit_test(calls_that_are_refused),
        cmocka_unit_test(calls_that_break_the_device),  cmocka_unit_test(a_device_opens_or_not),
    };
    /* parts of a few jobs, in many chunks */
    blasd_cuda_sizes = (struct blasd_cuda_sizes){
        .chunk_bytes = 4096, .part_bytes = 8192, .block_bytes = 4096, .cache_least = 1};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
