/* Inputs and outputs that lie in mapped files: copied to and from where they lie once a file has
 * come again, with the bits that they have otherwise; which files are given up, when, and what
 * becomes of those that cannot be registered. What the driver would not forgive breaks the
 * stand-in: memory unmapped or unregistered too early, registered twice. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define N 24 /* of matrices: multiples of 64 bytes, but not whole pages */
#define BYTES (N * N * sizeof(double))
#define MOST 8
#define PLACE ((BYTES + 63) / 64 * 64)
#define FILE_BYTES ((MOST * 2 * PLACE + 4095) / 4096 * 4096)

/* As the store has them: the inputs mapped for reading, the outputs for writing too. */
struct file {
    char *filled; /* the inputs' file, as whoever wrote it sees it */
    char *in, *out;
};

static void *map_file(int fd, int protection) {
    void *memory = mmap(NULL, FILE_BYTES, protection, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static int file_new(void) {
    int fd = memfd_create("pinned", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, FILE_BYTES) == 0);
    return fd;
}

static struct file files_open(void) {
    int in = file_new(), out = file_new();
    struct file file = {.filled = map_file(in, PROT_READ | PROT_WRITE),
                        .in = map_file(in, PROT_READ),
                        .out = map_file(out, PROT_READ | PROT_WRITE)};
    close(in);
    close(out);
    return file;
}

static void files_come(struct blasd_device *device, const struct file *file) {
    blasd_backend.memory_comes(device, file->in, FILE_BYTES - 100, false);
    blasd_backend.memory_comes(device, file->out, FILE_BYTES - 100, true);
}

static void files_go(struct blasd_device *device, const struct file *file) {
    blasd_backend.memory_goes(device, file->in);
    blasd_backend.memory_goes(device, file->out);
}

static void files_close(const struct file *file) {
    munmap(file->filled, FILE_BYTES);
    munmap(file->in, FILE_BYTES);
    munmap(file->out, FILE_BYTES);
}

static struct blasd_device *open_device(size_t most, int after) {
    struct blasd_device *device;
    struct blasd_err err;
    blasd_cuda_sizes.pinned_least = 1;
    blasd_cuda_sizes.pinned_bytes = most;
    blasd_cuda_sizes.pinned_after = after;
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    return device;
}

static void close_device(struct blasd_device *device) {
    blasd_backend.device_close(device);
    assert_false(blasd_standin.broken);
    assert_int_equal(blasd_standin.registered, 0);
    assert_int_equal(blasd_standin.registered_bytes, 0);
    assert_int_equal(blasd_standin.device_blocks + blasd_standin.host_blocks, 0);
}

static struct trial *product(uint64_t seed) {
    struct trial *t = trial_new("matmul");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){N, N});
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){N, N});
    trial_seed = seed * 977 + 1;
    for (int i = 0; i < N * N; i++) a[i] = trial_uniform();
    for (int i = 0; i < N * N; i++) b[i] = trial_uniform();
    assert_int_equal(trial_plan(t), BLASD_OK);
    return t;
}

/* Its tensors as number `at` in the files, outputs full of rubbish. */
static void put(struct trial *t, const struct file *file, int at) {
    trial_bind(t);
    for (int i = 0; i < 2; i++) {
        size_t place = (size_t)(2 * at + i) * PLACE;
        memcpy(file->filled + place, t->given[i], BYTES);
        t->task.inputs[i].data = file->in + place;
    }
    t->task.outputs[0].data = file->out + (size_t)at * PLACE;
    memset(t->task.outputs[0].data, 0xff, BYTES);
}

static const struct blasd_kernel *kernel(void) {
    return blasd_backend_kernel(&blasd_backend, blasd_op_find("matmul"));
}

/* The result where nothing is in a file, to be freed. */
static double *right_of(struct blasd_device *device, struct trial *t) {
    struct blasd_err err = {0};
    double *kept = malloc(BYTES);
    assert_non_null(kept);
    trial_bind(t);
    assert_int_equal(kernel()->run(device, &t->task, 1, &trial_watch.base, &err), 0);
    assert_int_equal(t->task.err.code, BLASD_OK);
    memcpy(kept, t->task.outputs[0].data, BYTES);
    return kept;
}

/* Runs one in the files and compares; bytes that were copied on the host. */
static uint64_t run_at(struct blasd_device *device, struct trial *t, const struct file *file,
                       int at, const double *right) {
    uint64_t before = blasd_standin.bytes_staged;
    struct blasd_err err = {0};
    put(t, file, at);
    assert_int_equal(kernel()->run(device, &t->task, 1, &trial_watch.base, &err), 0);
    assert_int_equal(t->task.err.code, BLASD_OK);
    assert_memory_equal(t->task.outputs[0].data, right, BYTES);
    return blasd_standin.bytes_staged - before;
}

static uint64_t run_one(struct blasd_device *device, struct trial *t, const struct file *file,
                        const double *right) {
    return run_at(device, t, file, 0, right);
}

static void what_comes_again_is_copied_where_it_lies(void **state) {
    const uint64_t seed = blasd_standin.seed;
    (void)state;
    for (uint64_t s = 0; s < 5; s++) {
        struct blasd_device *device;
        struct file file = files_open();
        struct trial *t = product(s);
        double *right;
        long registrations;
        uint64_t all;
        blasd_standin.seed = s;
        device = open_device(0, 2);
        registrations = blasd_standin.registrations;
        right = right_of(device, t);
        files_come(device, &file);
        all = run_one(device, t, &file, right);
        assert_true(all >= 3 * BYTES);
        assert_int_equal(blasd_standin.registrations, registrations);
        for (int i = 0; i < 4; i++)
            assert_int_equal(run_one(device, t, &file, right), all - 3 * BYTES);
        assert_int_equal(blasd_standin.registrations, registrations + 2);
        files_go(device, &file);
        assert_int_equal(blasd_standin.registered, 0);
        assert_int_equal(run_one(device, t, &file, right), all);
        files_close(&file);
        close_device(device);
        free(right);
        trial_free(t);
    }
    blasd_standin.seed = seed;
}

/* Two files in one batch, some jobs in neither, and one file that two batches use at a time. */
static void jobs_share_a_file(void **state) {
    const uint64_t seed = blasd_standin.seed;
    (void)state;
    for (uint64_t s = 0; s < 5; s++) {
        struct blasd_device *device;
        struct file file = files_open(), other = files_open();
        struct trial *trials[MOST];
        struct blasd_task tasks[MOST];
        struct blasd_async_batch *batches[2];
        struct blasd_err err = {0};
        double *right[MOST];
        long registrations;
        blasd_standin.seed = s;
        device = open_device(0, 1);
        registrations = blasd_standin.registrations;
        for (int i = 0; i < MOST; i++)
            right[i] = right_of(device, trials[i] = product((uint64_t)i));
        files_come(device, &file);
        files_come(device, &other);
        for (int round = 0; round < 3; round++) {
            uint64_t staged = blasd_standin.bytes_staged;
            for (int i = 0; i < MOST; i++) {
                if (i % 4 == 3)
                    trial_bind(trials[i]);
                else
                    put(trials[i], i % 4 == 2 ? &other : &file, i);
                tasks[i] = trials[i]->task;
            }
            for (int f = 0; f < 2; f++)
                assert_int_equal(kernel()->begin(device, tasks + f * MOST / 2, MOST / 2,
                                                 &trial_watch.base, &batches[f], &err),
                                 0);
            for (int f = 0; f < 2; f++) assert_int_equal(kernel()->end(batches[f], &err), 0);
            for (int i = 0; i < MOST; i++) {
                assert_int_equal(tasks[i].err.code, BLASD_OK);
                assert_memory_equal(tasks[i].outputs[0].data, right[i], BYTES);
            }
            staged = blasd_standin.bytes_staged - staged; /* two jobs, and tables */
            assert_true(staged >= 6 * BYTES && staged < 7 * BYTES);
        }
        assert_int_equal(blasd_standin.registrations, registrations + 4);
        files_go(device, &file);
        assert_int_equal(blasd_standin.registered, 2);
        files_close(&file);
        close_device(device); /* with the other still there */
        files_close(&other);
        for (int i = 0; i < MOST; i++) {
            free(right[i]);
            trial_free(trials[i]);
        }
    }
    blasd_standin.seed = seed;
}

static void what_was_not_used_for_longest_makes_way(void **state) {
    enum { FILES = 5 };
    const size_t most = 5 * FILE_BYTES;
    struct blasd_device *device = open_device(most, 2);
    struct file files[FILES];
    struct trial *t = product(3);
    double *right = right_of(device, t);
    uint64_t all = 0;
    (void)state;
    for (int f = 0; f < FILES; f++) {
        files[f] = files_open();
        files_come(device, &files[f]);
    }
    for (int i = 0; i < 60; i++) {
        all = run_one(device, t, &files[trial_random() % FILES], right);
        assert_true(blasd_standin.registered_bytes <= most);
    }
    assert_true(blasd_standin.registered_bytes >= most - FILE_BYTES);
    /* one that is used again and again stays, whatever else comes by */
    run_one(device, t, &files[0], right);
    all = run_one(device, t, &files[0], right);
    for (int i = 0; i < 40; i++) {
        run_one(device, t, &files[1 + trial_random() % (FILES - 1)], right);
        assert_int_equal(run_one(device, t, &files[0], right), all);
    }
    close_device(device);
    for (int f = 0; f < FILES; f++) files_close(&files[f]);
    free(right);
    trial_free(t);
}

/* What does not fit beside it waits for nobody: it goes another way. */
static void what_is_in_use_makes_way_for_nobody(void **state) {
    struct blasd_device *device = open_device(2 * FILE_BYTES, 1);
    struct file files[2] = {files_open(), files_open()};
    struct trial *trials[2] = {product(1), product(2)};
    double *right[2];
    struct blasd_async_batch *batches[2];
    struct blasd_err err = {0};
    long registrations = blasd_standin.registrations;
    (void)state;
    for (int f = 0; f < 2; f++) right[f] = right_of(device, trials[f]);
    for (int f = 0; f < 2; f++) {
        files_come(device, &files[f]);
        put(trials[f], &files[f], 0);
        assert_int_equal(
            kernel()->begin(device, &trials[f]->task, 1, &trial_watch.base, &batches[f], &err), 0);
        assert_int_equal(blasd_standin.registered, 2);
    }
    assert_int_equal(blasd_standin.registrations, registrations + 2);
    for (int f = 0; f < 2; f++) {
        assert_int_equal(kernel()->end(batches[f], &err), 0);
        assert_memory_equal(trials[f]->task.outputs[0].data, right[f], BYTES);
    }
    run_one(device, trials[1], &files[1], right[1]);
    assert_int_equal(blasd_standin.registrations,
                     registrations + 4); /* nobody used the first ones any more */
    close_device(device);
    for (int f = 0; f < 2; f++) {
        files_close(&files[f]);
        free(right[f]);
        trial_free(trials[f]);
    }
}

static const char *remark(struct blasd_device *device) {
    static struct blasd_device_info info;
    struct blasd_err err;
    assert_int_equal(blasd_backend.device_info(device, false, &info, &err), 0);
    return info.remark;
}

/* Another file at the same address, mapped over it or a little beside it. */
static void addresses_come_again_with_other_pages(void **state) {
    struct blasd_device *device = open_device(0, 1);
    struct file file = files_open();
    (void)state;
    for (int round = 0; round < 6; round++) {
        struct trial *t = product((uint64_t)round);
        double *right = right_of(device, t);
        int in = file_new();
        files_go(device, &file);
        munmap(file.filled, FILE_BYTES);
        assert_true(mmap(file.in, FILE_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, in, 0) == file.in);
        file.filled = map_file(in, PROT_READ | PROT_WRITE);
        close(in);
        files_come(device, &file);
        if (round % 2 == 1) /* nobody has said that it went: what it overlaps is forgotten */
            blasd_backend.memory_comes(device, file.out + 4096, FILE_BYTES - 8192, true);
        for (int i = 0; i < 3; i++) run_at(device, t, &file, 2, right);
        assert_int_equal(blasd_standin.registered, 2);
        assert_string_equal(remark(device), "");
        free(right);
        trial_free(t);
    }
    blasd_backend.memory_goes(device, file.out + 4096);
    files_go(device, &file);
    files_go(device, &file); /* not there any more */
    assert_int_equal(blasd_standin.registered, 0);
    close_device(device);
    files_close(&file);
}

static void what_cannot_be_registered_goes_another_way(void **state) {
    static const struct {
        bool registers, read_only;
        uint64_t most;
        int staged; /* matrices of a job; the output is registered first */
        const char *why;
    } cases[] = {{true, true, UINT64_MAX, 0, ""},
                 {true, false, UINT64_MAX, 2, "mapped for reading"},
                 {false, false, UINT64_MAX, 3, "not supported"},
                 {false, true, UINT64_MAX, 3, "not supported"},
                 {true, true, FILE_BYTES, 2, "no more memory can be locked"},
                 {true, true, 0, 3, "no more memory can be locked"}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct blasd_device *device;
        struct file files[4];
        struct trial *t = product(c);
        double *right;
        uint64_t all, last = 0;
        blasd_standin.registers = cases[c].registers;
        blasd_standin.registers_read_only = cases[c].read_only;
        blasd_standin.register_most = cases[c].most;
        device = open_device(0, 2);
        right = right_of(device, t);
        for (int f = 0; f < 4; f++) {
            files[f] = files_open();
            files_come(device, &files[f]);
        }
        all = run_one(device, t, &files[0], right);
        assert_string_equal(remark(device), "");
        for (int i = 0; i < 3; i++) last = run_one(device, t, &files[0], right);
        assert_int_equal(last, all - (uint64_t)(3 - cases[c].staged) * BYTES);
        assert_non_null(strstr(remark(device), cases[c].why));
        for (int i = 0; i < 12; i++) run_one(device, t, &files[i % 4], right);
        blasd_standin.registers = blasd_standin.registers_read_only = true;
        blasd_standin.register_most = UINT64_MAX;
        close_device(device);
        for (int f = 0; f < 4; f++) files_close(&files[f]);
        free(right);
        trial_free(t);
    }
}

/* The driver is not asked for ever by a machine that never lets it. */
static void who_is_refused_asks_no_more(void **state) {
    struct blasd_device *device = open_device(0, 1);
    struct file file = files_open();
    struct trial *t = product(1);
    double *right = right_of(device, t);
    long calls, before;
    (void)state;
    for (int i = 0; i < 2 * BLASD_CUDA_CHUNKS; i++) run_one(device, t, &file, right);
    before = blasd_standin.calls;
    run_one(device, t, &file, right);
    calls = blasd_standin.calls - before;
    blasd_standin.registers = false;
    for (int i = 0; i < 10; i++) { /* ten mappings, two refusals each */
        files_come(device, &file);
        before = blasd_standin.calls;
        run_one(device, t, &file, right);
        if (i > 1) assert_int_equal(blasd_standin.calls - before, calls);
        files_go(device, &file);
    }
    blasd_standin.registers = true;
    close_device(device);
    files_close(&file);
    free(right);
    trial_free(t);
}

/* A fault at each call: a right result or an error, and nothing is left behind. */
static void faults_at_each_call(void **state) {
    static const enum blasd_code codes[] = {BLASD_E_out_of_memory, BLASD_E_internal_error,
                                            BLASD_E_device_error};
    struct trial *t = product(5);
    struct file file = files_open();
    struct blasd_device *device = open_device(0, 1);
    double *right = right_of(device, t);
    (void)state;
    close_device(device);
    for (size_t c = 0; c < 3; c++)
        for (int n = 1, met = 1; met; n++) {
            struct blasd_err err = {0};
            int code;
            assert_true(n < 300);
            device = open_device(0, 1);
            files_come(device, &file);
            put(t, &file, 0);
            blasd_standin.fail_code = codes[c];
            blasd_standin.fail_at = n;
            code = kernel()->run(device, &t->task, 1, &trial_watch.base, &err);
            met = blasd_standin.fail_at == 0;
            if (code == 0 && t->task.err.code == BLASD_OK)
                assert_memory_equal(t->task.outputs[0].data, right, BYTES);
            else
                assert_int_equal(code != 0 ? -code : (int)t->task.err.code, codes[c]);
            if (codes[c] != BLASD_E_device_error) {
                blasd_standin_repair();
                for (int i = 0; i < 3; i++) run_one(device, t, &file, right);
            }
            blasd_backend.device_close(device);
            blasd_standin_repair();
            assert_int_equal(blasd_standin.registered, 0);
            assert_int_equal(blasd_standin.host_blocks + blasd_standin.streams, 0);
        }
    files_close(&file);
    free(right);
    trial_free(t);
}

/* A product that does not fit the device, moved tile by tile; and a stack that is cut. */
static void what_comes_in_pieces_is_copied_where_it_lies(void **state) {
    const uint64_t seed = blasd_standin.seed;
    const struct blasd_cuda_sizes sizes = blasd_cuda_sizes;
    (void)state;
    for (uint64_t s = 0; s < 8; s++) {
        struct blasd_device *device;
        struct file file = files_open();
        struct trial *t = product(s), *stack = trial_new("matmul");
        const int64_t shape[3] = {MOST / 2, N, N};
        double *right, *both[2];
        struct blasd_err err = {0};
        uint64_t before;
        blasd_standin.seed = s / 2;
        for (int i = 0; i < 2; i++)
            both[i] =
                trial_input(stack, i == 0 ? "a" : "b", BLASD_float64, BLASD_ROW_MAJOR, 3, shape);
        for (int i = 0; i < MOST / 2 * N * N; i++)
            both[0][i] = trial_uniform(), both[1][i] = trial_uniform();
        assert_int_equal(trial_plan(stack), BLASD_OK);
        device = open_device(0, 1);
        right = malloc(MOST / 2 * BYTES);
        assert_non_null(right);
        trial_bind(stack);
        assert_int_equal(kernel()->run(device, &stack->task, 1, &trial_watch.base, &err), 0);
        memcpy(right, stack->task.outputs[0].data, MOST / 2 * BYTES);
        files_come(device, &file);
        device->sizes.part_bytes = 4 * BYTES;
        for (int i = 0; i < 2; i++) {
            memcpy(file.filled + (size_t)(i * MOST) * PLACE, both[i], MOST / 2 * BYTES);
            stack->task.inputs[i].data = file.in + (size_t)(i * MOST) * PLACE;
        }
        stack->task.outputs[0].data = file.out;
        before = blasd_standin.bytes_staged;
        assert_int_equal(kernel()->run(device, &stack->task, 1, &trial_watch.base, &err), 0);
        assert_int_equal(stack->task.err.code, BLASD_OK);
        assert_memory_equal(file.out, right, MOST / 2 * BYTES);
        assert_true(blasd_standin.bytes_staged - before < BYTES);
        free(right);
        close_device(device);
        files_close(&file);
        trial_free(t);
        trial_free(stack);
    }
    blasd_cuda_sizes = sizes;
    blasd_standin.seed = seed;
}

/* Of two batches on their way the first one's end does not wait for the second: under some order of
 * streams nothing of that has come yet. */
static void the_first_waits_for_no_other(void **state) {
    const uint64_t seed = blasd_standin.seed;
    int early = 0;
    (void)state;
    for (uint64_t s = 1; s <= 32; s++) {
        struct blasd_device *device = open_device(0, 1);
        struct file file = files_open();
        struct trial *t[2] = {product(2 * s), product(2 * s + 1)};
        double *right[2] = {right_of(device, t[0]), right_of(device, t[1])}, untouched[N * N];
        struct blasd_async_batch *batch[2];
        struct blasd_err err = {0};
        blasd_standin.seed = s;
        files_come(device, &file);
        memset(untouched, 0xff, sizeof untouched);
        for (int i = 0; i < 2; i++) {
            put(t[i], &file, i);
            assert_int_equal(
                kernel()->begin(device, &t[i]->task, 1, &trial_watch.base, &batch[i], &err), 0);
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(kernel()->end(batch[i], &err), 0);
            assert_memory_equal(t[i]->task.outputs[0].data, right[i], BYTES);
            early += i == 0 && memcmp(t[1]->task.outputs[0].data, untouched, BYTES) == 0;
        }
        close_device(device);
        files_close(&file);
        for (int i = 0; i < 2; i++) {
            free(right[i]);
            trial_free(t[i]);
        }
    }
    assert_true(early > 4);
    blasd_standin.seed = seed;
}

/* ---- a thread that unmaps what nobody uses ---- */

static void *come_and_go(void *arg) {
    struct blasd_device *device = arg;
    for (int i = 0; i < 200; i++) {
        struct file file = files_open();
        files_come(device, &file);
        files_go(device, &file);
        files_close(&file);
    }
    return NULL;
}

static void memory_comes_and_goes_meanwhile(void **state) {
    struct blasd_device *device = open_device(3 * FILE_BYTES, 1);
    struct file files[2] = {files_open(), files_open()};
    struct trial *t = product(9);
    double *right = right_of(device, t);
    pthread_t thread;
    (void)state;
    for (int f = 0; f < 2; f++) files_come(device, &files[f]);
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, device), 0);
    for (int i = 0; i < 60; i++) {
        run_one(device, t, &files[i % 2], right);
        if (i % 7 != 0) continue;
        files_go(device, &files[0]);
        files_come(device, &files[0]);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(device->pinned.count, 4);
    close_device(device);
    for (int f = 0; f < 2; f++) files_close(&files[f]);
    free(right);
    trial_free(t);
}

/* ---- what the tests above rest on ---- */

static void the_standin_is_as_strict_as_the_driver(void **state) {
    const struct blasd_gpu_library *calls = &blasd_gpu_calls;
    struct file file = files_open();
    struct blasd_gpu *gpu;
    struct blasd_gpu_stream *stream;
    struct blasd_err err;
    void *memory;
    (void)state;
    assert_int_equal(calls->open(0, &gpu, &err), 0);
    assert_int_equal(calls->stream_open(gpu, &stream, &err), 0);
    assert_int_equal(calls->device_alloc(gpu, FILE_BYTES, &memory, &err), 0);
    assert_true(calls->host_register(gpu, file.out + 64, 4096, false, &err) < 0);
    assert_true(calls->host_register(gpu, file.out, 100, false, &err) < 0);
    assert_true(calls->host_register(gpu, file.in, 4096, false, &err) < 0); /* not writable */
    assert_true(calls->host_register(gpu, file.in, (size_t)1 << 46, true, &err) < 0);
    assert_int_equal(calls->host_register(gpu, file.in, FILE_BYTES, true, &err), 0);
    assert_true(calls->host_register(gpu, file.in, FILE_BYTES, true, &err) < 0);
    assert_true(calls->host_register(gpu, file.in + 4096, 4096, true, &err) < 0);
    assert_true(calls->copy_up(stream, memory, file.out, 64, &err) < 0);
    assert_true(calls->copy_down(stream, file.in, memory, 64, &err) < 0);
    assert_int_equal(calls->copy_up(stream, memory, file.in, 64, &err), 0);
    assert_false(blasd_standin.broken);
    calls->host_unregister(gpu, file.in); /* the copy has not been made yet */
    assert_true(blasd_standin.broken);
    assert_int_equal(calls->stream_wait(stream, &err), -(int)BLASD_E_device_error);
    blasd_standin_repair();
    calls->host_unregister(gpu, file.in);
    assert_true(blasd_standin.broken);
    blasd_standin_repair();
    assert_int_equal(calls->host_register(gpu, file.out, FILE_BYTES, false, &err), 0);
    assert_true(mmap(file.out, FILE_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == file.out);
    calls->host_unregister(gpu, file.out); /* its pages are others */
    assert_true(blasd_standin.broken);
    blasd_standin_repair();
    calls->device_free(gpu, memory);
    calls->stream_close(stream);
    calls->close(gpu);
    files_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_again_is_copied_where_it_lies),
        cmocka_unit_test(jobs_share_a_file),
        cmocka_unit_test(what_was_not_used_for_longest_makes_way),
        cmocka_unit_test(what_is_in_use_makes_way_for_nobody),
        cmocka_unit_test(addresses_come_again_with_other_pages),
        cmocka_unit_test(what_cannot_be_registered_goes_another_way),
        cmocka_unit_test(who_is_refused_asks_no_more),
        cmocka_unit_test(faults_at_each_call),
        cmocka_unit_test(what_comes_in_pieces_is_copied_where_it_lies),
        cmocka_unit_test(the_first_waits_for_no_other),
        cmocka_unit_test(memory_comes_and_goes_meanwhile),
        cmocka_unit_test(the_standin_is_as_strict_as_the_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
