/* Inputs that stay on the device: what goes up and what does not, that nobody gets another's, what
 * makes room for what. Faults at each call are test_cuda_faults.c's, whose inputs have names too.
 */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

#define N 24 /* of matrices */
#define BYTES (N * N * sizeof(double))
#define MOST 8

/* A name as the worker makes it: an id, and where in its blob. */
static struct blasd_key name_of(const char *id, int64_t at) {
    struct blasd_key key = {0};
    char text[BLASD_ID_LEN + 1];
    snprintf(text, sizeof text, "%041d", 0);
    memcpy(text, id, strlen(id));
    blasd_key_add(&key, text, BLASD_ID_LEN);
    blasd_key_add_int(&key, at);
    return key;
}

static struct blasd_device *open_device(size_t least, size_t most) {
    struct blasd_device *device;
    struct blasd_err err;
    blasd_cuda_sizes.cache_least = least;
    blasd_cuda_sizes.cache_bytes = most;
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    return device;
}

static void close_device(struct blasd_device *device) {
    blasd_backend.device_close(device);
    assert_int_equal(blasd_standin.device_blocks + blasd_standin.host_blocks, 0);
    assert_int_equal(blasd_standin.device_bytes, 0);
}

static struct trial *product(uint64_t seed) {
    struct trial *t = trial_new("matmul");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){N, N});
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){N, N});
    trial_seed = seed * 977 + 1;
    for (int i = 0; i < N * N; i++) a[i] = trial_uniform();
    for (int i = 0; i < N * N; i++) b[i] = (double)(i % 7);
    assert_int_equal(trial_plan(t), BLASD_OK);
    return t;
}

/* Runs them as one batch; names[i] is that of input a of trial i, or NULL. Bytes that went up. */
static uint64_t run(struct blasd_device *device, struct trial **trials,
                    const struct blasd_key *const *names, int count) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(&blasd_backend, trials[0]->job.op);
    struct blasd_task tasks[MOST];
    struct blasd_err err = {0};
    uint64_t before = blasd_standin.bytes_up;
    for (int i = 0; i < count; i++) {
        trial_bind(trials[i]);
        trials[i]->task.names[0] = names[i];
        tasks[i] = trials[i]->task;
    }
    assert_int_equal(kernel->run(device, tasks, count, &trial_watch.base, &err), 0);
    for (int i = 0; i < count; i++) {
        assert_int_equal(tasks[i].err.code, BLASD_OK);
        trials[i]->task = tasks[i];
    }
    return blasd_standin.bytes_up - before;
}

static void *output(const struct trial *t) {
    return t->task.outputs[0].data;
}

/* The result without any name, to be freed. */
static double *alone(struct blasd_device *device, struct trial *t) {
    const struct blasd_key *none = NULL;
    double *kept = malloc(BYTES);
    assert_non_null(kept);
    run(device, &t, &none, 1);
    memcpy(kept, output(t), BYTES);
    return kept;
}

static void what_is_named_goes_up_once(void **state) {
    struct blasd_device *device = open_device(1, 0);
    struct blasd_key key = name_of("t1", 0);
    const struct blasd_key *name = &key, *none = NULL;
    struct trial *t = product(1);
    double *right = alone(device, t);
    uint64_t all = run(device, &t, &none, 1);
    (void)state;
    assert_true(run(device, &t, &name, 1) >= all);
    assert_memory_equal(output(t), right, BYTES);
    memset(t->given[0], 0xff, BYTES); /* the host's is not looked at any more */
    for (int i = 0; i < 5; i++) {
        assert_true(run(device, &t, &name, 1) <= all - BYTES);
        assert_memory_equal(output(t), right, BYTES);
    }
    run(device, &t, &none, 1); /* but where nobody says what it is */
    assert_memory_not_equal(output(t), right, BYTES);
    free(right);
    trial_free(t);
    close_device(device);
}

/* Of a task alone what stays is read where it is, and goes up to there. */
static void what_stays_is_not_copied(void **state) {
    struct blasd_device *device = open_device(1, 0);
    struct blasd_key key = name_of("t8", 0);
    const struct blasd_key *name = &key;
    struct trial *t = product(8);
    double *right = alone(device, t);
    long before = blasd_standin.copies_within;
    (void)state;
    for (int i = 0; i < 3; i++) {
        run(device, &t, &name, 1);
        assert_memory_equal(output(t), right, BYTES);
    }
    assert_int_equal(blasd_standin.copies_within, before);
    assert_int_equal(device->cache.count, 1);
    assert_int_equal(device->cache.copies[0].lent, 0);
    free(right);
    trial_free(t);
    close_device(device);
}

/* Inputs that fill their pages: memory of their own begins where another's ends. */
static void no_copy_runs_on_into_others_memory(void **state) {
    enum { FULL = 64 };
    struct blasd_device *device = open_device(1, 0);
    struct trial *t = trial_new("matmul");
    const int64_t shape[2] = {FULL, FULL};
    struct blasd_key keys[2] = {name_of("tB", 0), name_of("tC", 0)};
    (void)state;
    for (int i = 0; i < 2; i++) {
        double *x = trial_input(t, i == 0 ? "a" : "b", BLASD_float64, BLASD_ROW_MAJOR, 2, shape);
        for (int e = 0; e < FULL * FULL; e++) x[e] = trial_uniform();
    }
    for (int named = 0; named < 4; named++) {
        struct blasd_err err = {0};
        assert_int_equal(trial_plan(t), BLASD_OK);
        trial_bind(t);
        for (int i = 0; i < 2; i++) t->task.names[i] = (named >> i & 1) != 0 ? &keys[i] : NULL;
        assert_int_equal(blasd_backend_kernel(&blasd_backend, t->job.op)
                             ->run(device, &t->task, 1, &trial_watch.base, &err),
                         0);
        assert_int_equal(t->task.err.code, BLASD_OK);
        blasd_backend.resident_forget(device, NULL);
        blasd_cuda_cache_clear(device);
    }
    trial_free(t);
    close_device(device);
}

/* There is room for one copy only, and what a batch on its way reads stays for as long. */
static void what_is_read_stays(void **state) {
    const uint64_t seed = blasd_standin.seed;
    (void)state;
    for (uint64_t s = 0; s < 32; s++) {
        struct blasd_device *device = open_device(1, BYTES + BYTES / 2);
        struct trial *t[2] = {product(20), product(21)};
        double *right[2] = {alone(device, t[0]), alone(device, t[1])};
        struct blasd_key keys[2] = {name_of("t9", 0), name_of("tA", 0)};
        const struct blasd_kernel *kernel = blasd_backend_kernel(&blasd_backend, t[0]->job.op);
        blasd_standin.seed = s;
        for (int round = 0; round < 3; round++) {
            struct blasd_async_batch *batch[2];
            struct blasd_err err = {0};
            for (int i = 0; i < 2; i++) {
                trial_bind(t[i]);
                t[i]->task.names[0] = &keys[i];
                assert_int_equal(
                    kernel->begin(device, &t[i]->task, 1, &trial_watch.base, &batch[i], &err), 0);
            }
            assert_int_equal(device->cache.count, 1);
            for (int i = 0; i < 2; i++) {
                assert_int_equal(kernel->end(batch[i], &err), 0);
                assert_memory_equal(output(t[i]), right[i], BYTES);
            }
        }
        for (int i = 0; i < 2; i++) {
            free(right[i]);
            trial_free(t[i]);
        }
        close_device(device);
    }
    blasd_standin.seed = seed;
}

static void of_one_batch_one_goes_up(void **state) {
    struct blasd_device *device = open_device(1, 0);
    struct blasd_key key = name_of("t2", 64);
    const struct blasd_key *names[MOST], *none[MOST] = {NULL};
    struct trial *trials[MOST];
    double *right;
    uint64_t all;
    (void)state;
    for (int i = 0; i < MOST; i++) {
        trials[i] = product(2);
        names[i] = &key;
    }
    right = alone(device, trials[0]);
    all = run(device, trials, none, MOST);
    assert_true(run(device, trials, names, MOST) <= all - (MOST - 1) * BYTES);
    for (int i = 0; i < MOST; i++) assert_memory_equal(output(trials[i]), right, BYTES);
    assert_true(run(device, trials, names, MOST) <= all - MOST * BYTES);
    for (int i = 0; i < MOST; i++) assert_memory_equal(output(trials[i]), right, BYTES);
    for (int i = 0; i < MOST; i++) trial_free(trials[i]);
    free(right);
    close_device(device);
}

static void what_is_small_goes_up_with_others(void **state) {
    struct blasd_device *device = open_device(BYTES + 1, 0);
    struct blasd_key key = name_of("t3", 0);
    const struct blasd_key *name = &key;
    struct trial *t = product(3);
    uint64_t first = run(device, &t, &name, 1);
    (void)state;
    assert_int_equal(run(device, &t, &name, 1), first);
    assert_int_equal(device->cache.count, 0);
    trial_free(t);
    close_device(device);
}

/* Many matrices of two tenants, room for three, batches drawn at random: whoever is dropped, each
 * job has its own. */
static void nobody_gets_anothers(void **state) {
    enum { KINDS = 12 };
    const uint64_t seed = blasd_standin.seed;
    (void)state;
    for (uint64_t round = 0; round < 6; round++) {
        struct blasd_device *device;
        struct blasd_key keys[KINDS];
        struct trial *trials[KINDS][MOST];
        double *right[KINDS];
        blasd_standin.seed = round;
        device = open_device(1, 3 * BYTES + BYTES / 2);
        for (int k = 0; k < KINDS; k++) {
            keys[k] = name_of(k % 2 ? "tother" : "tone", 64 * (k / 2));
            for (int i = 0; i < MOST; i++) trials[k][i] = product(100 + (uint64_t)k);
            right[k] = alone(device, trials[k][0]);
        }
        for (int turn = 0; turn < 40; turn++) {
            struct trial *batch[MOST];
            const struct blasd_key *names[MOST];
            int which[MOST], count = (int)trial_between(1, MOST);
            for (int i = 0; i < count; i++) {
                which[i] = (int)trial_between(0, turn % 2 ? KINDS - 1 : 3);
                batch[i] = trials[which[i]][i];
                names[i] = &keys[which[i]];
            }
            run(device, batch, names, count);
            for (int i = 0; i < count; i++)
                assert_memory_equal(output(batch[i]), right[which[i]], BYTES);
            assert_true(device->cache.count <= 3 && device->cache.bytes <= 3 * BYTES + BYTES / 2);
            for (int c = 0; c < device->cache.count; c++) {
                assert_false(device->cache.copies[c].in_use);
                assert_null(device->cache.copies[c].from);
            }
        }
        for (int k = 0; k < KINDS; k++) {
            for (int i = 0; i < MOST; i++) trial_free(trials[k][i]);
            free(right[k]);
        }
        close_device(device);
    }
    blasd_standin.seed = seed;
}

/* Room for three: the one not used for longest goes, whenever it came. */
static void the_one_not_used_for_longest_goes(void **state) {
    enum { A, B, C, D, KINDS };
    static const struct {
        int which;
        bool there;
    } uses[] = {{A, false}, {B, false}, {C, false}, {A, true}, {D, false}, {A, true}, {C, true},
                {D, true},  {B, false}, {C, true},  {D, true}, {A, false}, {B, false}};
    struct blasd_device *device = open_device(1, 3 * BYTES + BYTES / 2);
    struct blasd_key keys[KINDS];
    struct trial *trials[KINDS];
    const struct blasd_key *none = NULL;
    uint64_t all;
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        keys[k] = name_of("t7", k);
        trials[k] = product((uint64_t)k);
    }
    all = run(device, &trials[A], &none, 1);
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const struct blasd_key *name = &keys[uses[i].which];
        uint64_t up = run(device, &trials[uses[i].which], &name, 1);
        if ((up <= all - BYTES) != uses[i].there) fail_msg("use %zu: %d", i, (int)up);
    }
    for (int k = 0; k < KINDS; k++) trial_free(trials[k]);
    close_device(device);
}

/* A job of each operation, whose first input has a name. */
static struct trial *job_of(const char *op, int n, const char *param, const char *choice) {
    struct trial *t = trial_new(op);
    bool rows = strcmp(op, "distance") == 0 || strcmp(op, "regression") == 0;
    int m = rows || strcmp(op, "lstsq") == 0 ? 4 * n : n;
    double *a =
        trial_input(t, rows ? "x" : "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){m, n});
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) a[i * n + j] = trial_uniform() + (i == j ? 2 * n : 0);
    for (int i = 0; m == n && i < n; i++)
        for (int j = 0; j < i; j++) a[i * n + j] = a[j * n + i];
    if (strcmp(op, "regression") == 0 || strcmp(op, "lstsq") == 0 || strcmp(op, "solve") == 0) {
        double *b =
            trial_input(t, rows ? "y" : "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){m});
        for (int i = 0; i < m; i++) b[i] = trial_uniform();
    }
    if (param != NULL) trial_set_choice(t, param, choice);
    assert_int_equal(trial_plan(t), BLASD_OK);
    return t;
}

/* What one job reads where it stays, the next one reads, too. */
static void no_operation_writes_to_its_inputs(void **state) {
    static const struct {
        const char *op;
        int n;
        const char *param, *choice;
    } jobs[] = {{"solve", 12, NULL, NULL},
                {"solve", 60, "assume_a", "positive_definite"},
                {"solve", 150, "assume_a", "symmetric"},
                {"solve", 300, NULL, NULL},
                {"solve", 1030, NULL, NULL},
                {"cholesky", 40, NULL, NULL},
                {"eigh", 40, NULL, NULL},
                {"qr", 40, NULL, NULL},
                {"svd", 40, NULL, NULL},
                {"lstsq", 30, NULL, NULL},
                {"distance", 12, "metric", "seuclidean"},
                {"distance", 100, "metric", "euclidean"},
                {"distance", 100, "metric", "cosine"},
                {"regression", 12, "method", "ols"},
                {"regression", 12, "method", "lasso"},
                {"regression", 12, "method", "gd"}};
    struct blasd_device *device = open_device(1, 0);
    (void)state;
    for (size_t s = 0; s < sizeof jobs / sizeof *jobs; s++) {
        struct trial *t = job_of(jobs[s].op, jobs[s].n, jobs[s].param, jobs[s].choice);
        struct blasd_key key = name_of("t4", (int64_t)s);
        const struct blasd_key *name = &key;
        size_t bytes;
        void *right;
        run(device, &t, &name, 1);
        bytes = blasd_tensor_bytes(&t->task.outputs[0]);
        right = trial_alloc(bytes);
        memcpy(right, output(t), bytes);
        memset(t->given[0], 0xff, blasd_tensor_bytes(&t->task.inputs[0]));
        run(device, &t, &name, 1);
        assert_memory_equal(output(t), right, bytes);
        free(right);
        trial_free(t);
    }
    close_device(device);
}

/* Whether a device of so much memory runs the job, with this many copies on it when it comes. */
static bool fits(struct trial *large, uint64_t memory, int copies) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(&blasd_backend, large->job.op);
    const uint64_t was = blasd_standin.memory_bytes;
    struct blasd_device *device = open_device(1, (size_t)1 << 20);
    struct blasd_err err = {0};
    bool good;
    for (int i = 0; i < copies; i++) {
        struct blasd_key key = name_of("t5", i);
        const struct blasd_key *name = &key;
        struct trial *t = product((uint64_t)i);
        run(device, &t, &name, 1);
        trial_free(t);
    }
    assert_int_equal(device->cache.count, copies);
    trial_bind(large);
    blasd_standin.memory_bytes = memory;
    assert_int_equal(kernel->run(device, &large->task, 1, &trial_watch.base, &err), 0);
    good = large->task.err.code == BLASD_OK;
    if (!good) assert_int_equal(large->task.err.code, BLASD_E_out_of_memory);
    blasd_standin.memory_bytes = was;
    close_device(device);
    return good;
}

/* Jobs come first: what stays goes where they lack memory. */
static void jobs_come_before_copies(void **state) {
    struct blasd_cuda_sizes sizes = blasd_cuda_sizes;
    struct trial *large = trial_new("matmul");
    const int64_t shape[] = {600, 600};
    uint64_t least = 0, enough = (uint64_t)1 << 26;
    (void)state;
    blasd_cuda_sizes.block_bytes = 4096;
    for (int i = 0; i < 2; i++)
        trial_input(large, i ? "b" : "a", BLASD_float64, BLASD_ROW_MAJOR, 2, shape);
    assert_int_equal(trial_plan(large), BLASD_OK);
    while (enough - least > 8192) {
        uint64_t middle = (least + enough) / 2;
        if (fits(large, middle, 0))
            enough = middle;
        else
            least = middle;
    }
    assert_true(least > 3 * 600 * 600 * sizeof(double));
    assert_true(fits(large, enough, 40));
    trial_free(large);
    blasd_cuda_sizes = sizes;
}

static void the_ids_are_told(void **state) {
    static const char *const ids[] = {"t1", "t2", "t1", "s3"};
    struct blasd_device *device = open_device(1, 0);
    char told[4][BLASD_ID_LEN + 1];
    (void)state;
    assert_int_equal(blasd_backend.device_kept(device, told, 4), 0);
    for (int i = 0; i < 4; i++) {
        struct blasd_key key = name_of(ids[i], i);
        const struct blasd_key *name = &key;
        struct trial *t = product((uint64_t)i);
        run(device, &t, &name, 1);
        trial_free(t);
    }
    assert_int_equal(blasd_backend.device_kept(device, told, 4), 3);
    assert_memory_equal(told[0], "s30", 3);
    assert_memory_equal(told[1], "t10", 3);
    assert_memory_equal(told[2], "t20", 3);
    assert_int_equal(strlen(told[2]), BLASD_ID_LEN);
    assert_int_equal(blasd_backend.device_kept(device, told, 2), 2);
    close_device(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_named_goes_up_once),
        cmocka_unit_test(what_stays_is_not_copied),
        cmocka_unit_test(what_is_read_stays),
        cmocka_unit_test(no_copy_runs_on_into_others_memory),
        cmocka_unit_test(of_one_batch_one_goes_up),
        cmocka_unit_test(what_is_small_goes_up_with_others),
        cmocka_unit_test(nobody_gets_anothers),
        cmocka_unit_test(the_one_not_used_for_longest_goes),
        cmocka_unit_test(no_operation_writes_to_its_inputs),
        cmocka_unit_test(jobs_come_before_copies),
        cmocka_unit_test(the_ids_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
