/* A queue in memory, in place of src/queue's worker_queue.c (whose functions are defined here, so
 * that the linker takes these), and a backend whose one kernel multiplies matrices, or fails as a
 * test wants. With them the real worker runs without Redis.
 *
 * Everything is static or an override: each test file is a program of its own. */
#ifndef BLASD_TESTS_FAKE_QUEUE_H
#define BLASD_TESTS_FAKE_QUEUE_H

#include "base/clock.h"
#include "queue/worker_queue.h"
#include "wire/frame.h"
#include "worker/worker.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST_JOBS 64

struct fake_job {
    char id[BLASD_ID_LEN + 1];
    struct blasd_buf frame;
    int attempts;
    bool stored, claimed, ended, drop; /* drop: finish says it had ended otherwise */
    int begun;
    struct blasd_buf record;
    struct blasd_record result; /* decoded */
    const unsigned char *payload;
    uint64_t blob_bytes;
};

struct fake {
    pthread_mutex_t lock;
    struct fake_job jobs[MOST_JOBS];
    int count;
    int64_t epoch, started_ns;
    bool mixes; /* jobs of different shapes share a call */
    struct blasd_store *store;
    char dir[48];    /* of the store */
    int finish_away; /* this many calls of finish fail with queue_unavailable */
    int finish_lost; /* then this many find the lease lost */
    int registers, releases, finishes;
    bool unwanted;   /* progress says that nobody wants the batch */
    double progress; /* last one told */
    /* the kernel's behaviour */
    int runs, counts[MOST_JOBS];
    char order[MOST_JOBS]; /* first element of the first input of each run's first job */
    int memory_for;        /* a call of more jobs is out of memory; 0: never */
    double poison;         /* a call with this first element fails whole; 0: none */
    double singular;       /* a task with this first element fails alone; 0: none */
    bool device_fails, slow;
    int more_units; /* of the device, beside the one it has */
    bool misaligned, converted;
    char info[8192]; /* what the worker told when it registered */
};
static struct fake fake;

struct blasd_worker_queue {
    int64_t epoch;
};

int blasd_worker_queue_open(const struct blasd_queue_options *options,
                            struct blasd_worker_queue **ret, struct blasd_err *err) {
    (void)options;
    (void)err;
    *ret = calloc(1, sizeof **ret);
    return *ret == NULL ? -1 : 0;
}

void blasd_worker_queue_free(struct blasd_worker_queue *queue) {
    free(queue);
}

/* What a lease that ends gives back. */
static void fake_give_back(void) {
    for (int i = 0; i < fake.count; i++) {
        struct fake_job *job = &fake.jobs[i];
        if (!job->claimed || job->ended) continue;
        job->claimed = false;
        if (job->begun > job->attempts) job->attempts = job->begun;
    }
}

int blasd_worker_queue_register(struct blasd_worker_queue *queue, const char *worker,
                                enum blasd_device_class device, const char *info, int64_t *epoch,
                                struct blasd_err *err) {
    (void)worker;
    (void)device;
    (void)err;
    pthread_mutex_lock(&fake.lock);
    snprintf(fake.info, sizeof fake.info, "%s", info);
    fake_give_back();
    fake.registers++;
    *epoch = queue->epoch = ++fake.epoch;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

void blasd_worker_queue_join(struct blasd_worker_queue *queue, const char *worker, int64_t epoch) {
    (void)worker;
    queue->epoch = epoch;
}

int blasd_worker_queue_renew(struct blasd_worker_queue *queue, const char *info, bool *lost,
                             struct blasd_err *err) {
    (void)info;
    (void)err;
    pthread_mutex_lock(&fake.lock);
    *lost = queue->epoch != fake.epoch;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

int blasd_worker_queue_release(struct blasd_worker_queue *queue, struct blasd_err *err) {
    (void)queue;
    (void)err;
    pthread_mutex_lock(&fake.lock);
    fake_give_back();
    fake.releases++;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

int blasd_worker_queue_claim(struct blasd_worker_queue *queue, int max, uint64_t max_bytes,
                             struct blasd_claim *claims, int *count, bool *lost,
                             struct blasd_err *err) {
    (void)max_bytes;
    (void)err;
    pthread_mutex_lock(&fake.lock);
    *count = 0;
    *lost = queue->epoch != fake.epoch;
    for (int i = 0; !*lost && i < fake.count && *count < max; i++) {
        struct fake_job *job = &fake.jobs[i];
        if (job->claimed || job->ended) continue;
        job->claimed = true;
        claims[*count] = (struct blasd_claim){.frame = job->frame.data,
                                              .frame_len = job->frame.len,
                                              .attempts = job->attempts,
                                              .submitted_us = 1000000,
                                              .claimed_us = 1002000,
                                              .stored = job->stored};
        memcpy(claims[(*count)++].id, job->id, sizeof job->id);
    }
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

bool blasd_worker_queue_rests(const struct blasd_worker_queue *queue) {
    (void)queue;
    return false;
}

int blasd_worker_queue_wait(struct blasd_worker_queue *queue, int timeout_ms,
                            struct blasd_err *err) {
    (void)queue;
    (void)timeout_ms;
    (void)err;
    usleep(1000);
    return 0;
}

void blasd_worker_queue_tidy(struct blasd_worker_queue *queue) {
    (void)queue;
}

int blasd_worker_queue_nudge(struct blasd_worker_queue *queue, struct blasd_err *err) {
    (void)queue;
    (void)err;
    return 0; /* a wait is a millisecond */
}

static struct fake_job *fake_find(const char *id) {
    for (int i = 0; i < fake.count; i++)
        if (strcmp(fake.jobs[i].id, id) == 0) return &fake.jobs[i];
    fail_msg("no job %s", id);
    return NULL;
}

int blasd_worker_queue_begin(struct blasd_worker_queue *queue, const char *const *ids, int count,
                             struct blasd_err *err) {
    (void)queue;
    (void)err;
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < count; i++) fake_find(ids[i])->begun++;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

/* Slices travel as blobs here: there are none. */
int blasd_worker_queue_slice_get(struct blasd_worker_queue *queue, const struct blasd_slice *slice,
                                 uint64_t bytes, const void **ret, struct blasd_view **hold,
                                 struct blasd_err *err) {
    (void)queue;
    (void)slice;
    (void)bytes;
    *ret = NULL;
    *hold = NULL;
    return blasd_fail(err, BLASD_E_inputs_lost, "", "the fake queue has no slices");
}

void *blasd_worker_queue_slice_take(struct blasd_worker_queue *queue, const char *id,
                                    uint64_t bytes, struct blasd_slice *slice) {
    (void)queue;
    (void)id;
    (void)bytes;
    (void)slice;
    return NULL;
}

void blasd_worker_queue_slice_done(struct blasd_worker_queue *queue,
                                   const struct blasd_slice *slice, bool sure) {
    (void)queue;
    (void)slice;
    (void)sure;
}

static void fake_end(struct fake_job *job, const struct blasd_ending *ending) {
    struct blasd_err err = {0};
    size_t payload_at = 0;
    blasd_buf_init(&job->record, 1 << 24);
    assert_int_equal(blasd_buf_add(&job->record, ending->record, ending->record_len), 0);
    assert_int_equal(
        blasd_record_decode(job->record.data, job->record.len, &job->result, &payload_at, &err), 0);
    job->payload = (const unsigned char *)job->record.data + payload_at;
    job->blob_bytes = ending->out_bytes;
    job->ended = true;
}

int blasd_worker_queue_finish(struct blasd_worker_queue *queue, struct blasd_ending *endings,
                              int count, bool *lost, struct blasd_err *err) {
    int code = 0;
    pthread_mutex_lock(&fake.lock);
    fake.finishes++;
    if (fake.finish_away > 0) {
        fake.finish_away--;
        code = blasd_fail(err, BLASD_E_queue_unavailable, "", "the test says so");
    } else if (fake.finish_lost > 0) {
        fake.finish_lost--;
        fake.epoch++;
    }
    *lost = code == 0 && queue->epoch != fake.epoch;
    for (int i = 0; code == 0 && !*lost && i < count; i++) {
        struct fake_job *job = fake_find(endings[i].id);
        assert_false(job->ended && !job->drop);
        endings[i].accepted = !job->drop;
        fake_end(job, &endings[i]);
    }
    pthread_mutex_unlock(&fake.lock);
    return code;
}

int blasd_worker_queue_progress(struct blasd_worker_queue *queue, const char *const *ids, int count,
                                double progress, bool *wanted, struct blasd_err *err) {
    (void)queue;
    (void)ids;
    (void)count;
    (void)err;
    pthread_mutex_lock(&fake.lock);
    fake.progress = progress;
    *wanted = !fake.unwanted;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

int blasd_worker_queue_blob_put(struct blasd_worker_queue *queue, struct blasd_blob *blob,
                                struct blasd_err *err) {
    (void)queue;
    (void)blob;
    (void)err;
    return 0;
}

int blasd_worker_queue_blob_get(struct blasd_worker_queue *queue, const char *name, uint64_t bytes,
                                struct blasd_blob *blob, struct blasd_err *err) {
    int code = blasd_blob_open(fake.store, name, bytes, blob, err);
    (void)queue;
    return code != 0 ? code : blasd_blob_map(blob, err);
}

void blasd_worker_queue_blob_remove(struct blasd_worker_queue *queue, const char *name) {
    (void)queue;
    blasd_store_remove(fake.store, name);
}

int blasd_worker_queue_sweep(struct blasd_worker_queue *queue, struct blasd_err *err) {
    (void)queue;
    (void)err;
    return 0;
}

/* ---- a backend ---- */

struct blasd_device {
    int unused;
};
static struct blasd_device fake_device;

static int fake_device_count(void) {
    return 1;
}
static int fake_device_open(int ordinal, struct blasd_device **ret, struct blasd_err *err) {
    (void)ordinal;
    (void)err;
    *ret = &fake_device;
    return 0;
}
static void fake_device_close(struct blasd_device *device) {
    (void)device;
}
static int fake_device_info(struct blasd_device *device, bool measure,
                            struct blasd_device_info *info, struct blasd_err *err) {
    (void)device;
    (void)measure;
    (void)err;
    *info =
        (struct blasd_device_info){.id = "cpu:7", .name = "a test", .units = 1 + fake.more_units};
    info->device_class = BLASD_DEVICE_CPU;
    return 0;
}

static double fake_element(const struct blasd_tensor *tensor, int64_t row, int64_t column) {
    int64_t at = tensor->order == BLASD_ROW_MAJOR ? row * tensor->shape[1] + column
                                                  : column * tensor->shape[0] + row;
    return tensor->dtype == BLASD_float64 ? ((const double *)tensor->data)[at]
                                          : (double)((const float *)tensor->data)[at];
}

static void fake_multiply(struct blasd_task *task) {
    const struct blasd_tensor *a = &task->inputs[0], *b = &task->inputs[1];
    struct blasd_tensor *c = &task->outputs[0];
    if (a->dtype != task->plan->input_dtype[0]) fake.converted = false;
    for (int i = 0; i < 2; i++)
        if ((uintptr_t)task->inputs[i].data % 64 != 0) fake.misaligned = true;
    if ((uintptr_t)c->data % 64 != 0) fake.misaligned = true;
    for (int64_t i = 0; i < c->shape[0]; i++)
        for (int64_t j = 0; j < c->shape[1]; j++) {
            double sum = 0;
            for (int64_t k = 0; k < a->shape[1]; k++)
                sum += fake_element(a, i, k) * fake_element(b, k, j);
            if (c->dtype == BLASD_float64)
                ((double *)c->data)[i * c->shape[1] + j] = sum;
            else
                ((float *)c->data)[i * c->shape[1] + j] = (float)sum;
        }
    snprintf(task->method, sizeof task->method, "by hand");
}

static int fake_run(struct blasd_device *device, struct blasd_task *tasks, int count,
                    struct blasd_watch *watch, struct blasd_err *err) {
    (void)device;
    assert_true(fake.runs < MOST_JOBS);
    fake.order[fake.runs] = (char)fake_element(&tasks[0].inputs[0], 0, 0);
    fake.counts[fake.runs++] = count;
    if (fake.device_fails) return blasd_fail(err, BLASD_E_device_error, "", "it fell off the bus");
    if (fake.memory_for > 0 && count > fake.memory_for)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "%d are too many", count);
    for (int i = 0; fake.poison > 0 && i < count; i++)
        if (fake_element(&tasks[i].inputs[0], 0, 0) == fake.poison)
            return blasd_fail(err, BLASD_E_not_converged, "", "the whole call failed");
    for (int i = 0; i < 3000 && fake.slow; i++) {
        usleep(1000);
        if (!watch->go_on(watch, (double)i / 3000))
            return blasd_fail(err, BLASD_E_cancelled, "", "stopped");
    }
    for (int i = 0; i < count; i++) {
        if (fake.singular > 0 && fake_element(&tasks[i].inputs[0], 0, 0) == fake.singular)
            blasd_fail(&tasks[i].err, BLASD_E_singular_matrix, "inputs.a", "alone");
        else
            fake_multiply(&tasks[i]);
    }
    return 0;
}

#ifdef FAKE_OVERLAP
/* A device that works by itself: what begins runs when it is ended, in the order it began. */
struct blasd_flight {
    struct blasd_device *device;
    struct blasd_task *tasks;
    int count, number;
    struct blasd_watch *watch;
};
static int fake_begun, fake_ended, fake_overlaps;

static int fake_begin(struct blasd_device *device, struct blasd_task *tasks, int count,
                      struct blasd_watch *watch, struct blasd_flight **ret, struct blasd_err *err) {
    if (fake_begun - fake_ended > 1)
        return blasd_fail(err, BLASD_E_internal_error, "", "three batches at a time");
    if (fake_begun > fake_ended) fake_overlaps++;
    *ret = calloc(1, sizeof **ret);
    assert_non_null(*ret);
    **ret = (struct blasd_flight){device, tasks, count, fake_begun++, watch};
    return 0;
}
static int fake_end_flight(struct blasd_flight *flight, struct blasd_err *err) {
    int code;
    assert_int_equal(flight->number, fake_ended);
    code = fake_run(flight->device, flight->tasks, flight->count, flight->watch, err);
    fake_ended++;
    free(flight);
    return code;
}
static void fake_company(const struct blasd_job *job, const struct blasd_plan *plan,
                         struct blasd_key *ret) {
    if (!fake.mixes) return;
    ret->len = 0;
    blasd_key_add_int(ret, plan->input_dtype[0]);
    blasd_key_add_int(ret, (int64_t)job->inputs[0].tensor.rank);
}
static const struct blasd_kernel fake_kernel = {.op = "matmul",
                                                .run = fake_run,
                                                .begin = fake_begin,
                                                .end = fake_end_flight,
                                                .company = fake_company};
#else
static const struct blasd_kernel fake_kernel = {.op = "matmul", .run = fake_run};
#endif
static const struct blasd_kernel *const fake_kernels[] = {&fake_kernel, NULL};
static const struct blasd_backend fake_backend
    __attribute__((unused)) = {.abi = BLASD_BACKEND_ABI,
                               .name = "cpu",
                               .device_class = BLASD_DEVICE_CPU,
                               .device_count = fake_device_count,
                               .device_open = fake_device_open,
                               .device_close = fake_device_close,
                               .device_info = fake_device_info,
                               .kernels = fake_kernels};

#ifndef FAKE_BACKEND /* another test may run the worker on a real one */
#define FAKE_BACKEND fake_backend
#endif

/* ---- jobs ---- */

static int fake_setup(void **state) {
    char spec[64];
    (void)state;
    memset(&fake, 0, sizeof fake);
    pthread_mutex_init(&fake.lock, NULL);
    fake.converted = true;
    snprintf(fake.dir, sizeof fake.dir, "/tmp/blasd-fake-%d", (int)getpid());
    snprintf(spec, sizeof spec, "dir:%s", fake.dir);
    return blasd_store_open(spec, &fake.store, NULL);
}

static int fake_teardown(void **state) {
    char token[96];
    (void)state;
    for (int i = 0; i < fake.count; i++) {
        blasd_buf_release(&fake.jobs[i].frame);
        blasd_buf_release(&fake.jobs[i].record);
    }
    blasd_store_free(fake.store);
    snprintf(token, sizeof token, "%s/.store", fake.dir);
    unlink(token);
    return rmdir(fake.dir); /* fails where a test left blobs */
}

static __attribute__((unused)) bool fake_blob_is_there(const struct fake_job *job,
                                                       const char *kind) {
    struct stat info;
    char path[160];
    snprintf(path, sizeof path, "%s/%s.%s", fake.dir, job->id, kind);
    return stat(path, &info) == 0;
}

/* What travels: n by n matrices a (all `value` in its first row, else 1) and b (the identity times
 * 2), in the dtype and order given. */
struct fake_spec {
    int n;
    enum blasd_dtype dtype;
    enum blasd_order order;
    double value;
    enum blasd_priority priority;
    int attempts;
    bool in_blob;
};

static void fake_fill(const struct fake_spec *spec, unsigned char *bytes, bool second) {
    for (int i = 0; i < spec->n; i++)
        for (int j = 0; j < spec->n; j++) {
            int at = spec->order == BLASD_ROW_MAJOR ? i * spec->n + j : j * spec->n + i;
            double value = second ? (i == j ? 2 : 0) : i == 0 ? spec->value : 1;
            if (spec->dtype == BLASD_float64) ((double *)(void *)bytes)[at] = value;
            if (spec->dtype == BLASD_float32) ((float *)(void *)bytes)[at] = (float)value;
            if (spec->dtype == BLASD_int32) ((int32_t *)(void *)bytes)[at] = (int32_t)value;
        }
}

static struct fake_job *fake_add(struct fake_spec spec) {
    struct fake_job *added = &fake.jobs[fake.count++];
    const struct blasd_op *op = blasd_op_find("matmul");
    uint64_t one = (uint64_t)spec.n * (uint64_t)spec.n * blasd_dtype_size(spec.dtype);
    uint64_t step = (one + 63) / 64 * 64;
    unsigned char *payload = aligned_alloc(64, 2 * step);
    struct blasd_blob blob = {.fd = -1};
    struct blasd_err err = {0};
    struct blasd_job job;
    char name[BLASD_BLOB_NAME];
    assert_non_null(payload);
    memset(payload, 0, 2 * step);
    blasd_job_init(&job, op);
    blasd_id_new(BLASD_ID_SYNC, blasd_clock_wall_us(), added->id);
    memcpy(job.id, added->id, sizeof job.id);
    job.priority = spec.priority;
    job.receive_us = 7;
    job.created_us = 5000000;
    job.payload_bytes = 2 * step;
    job.payload_in_blob = spec.in_blob;
    for (int i = 0; i < 2; i++) {
        int64_t shape[2] = {spec.n, spec.n};
        job.inputs[i].tensor = blasd_tensor_make(spec.dtype, 2, shape);
        job.inputs[i].tensor.order = spec.order;
        job.inputs[i].source = (struct blasd_source){BLASD_SOURCE_PAYLOAD, (uint64_t)i * step, one};
        fake_fill(&spec, payload + (uint64_t)i * step, i == 1);
    }
    blasd_buf_init(&added->frame, 1 << 24);
    assert_int_equal(blasd_job_encode(&job, &added->frame, &err), 0);
    if (spec.in_blob) {
        snprintf(name, sizeof name, "%s.in", added->id);
        assert_int_equal(blasd_blob_create(fake.store, name, &blob, &err), 0);
        assert_int_equal(blasd_blob_grow(&blob, 2 * step, &err), 0);
        assert_int_equal(blasd_blob_write(&blob, 0, payload, 2 * step, &err), 0);
        blasd_blob_close(&blob);
    } else {
        assert_int_equal(blasd_buf_add(&added->frame, payload, 2 * step), 0);
    }
    added->attempts = added->begun = spec.attempts;
    added->stored = spec.in_blob;
    free(payload);
    return added;
}

/* Whether the record says success and its output is the product. */
static void fake_check(struct fake_job *job, struct fake_spec spec) {
    const struct blasd_output *output = &job->result.outputs[0];
    struct blasd_blob blob = {.fd = -1};
    struct blasd_err err = {0};
    const unsigned char *base = job->payload;
    char name[BLASD_BLOB_NAME];
    assert_true(job->ended);
    assert_int_equal(job->result.state, BLASD_SUCCEEDED);
    assert_int_equal(output->tensor.rank, 2);
    if (job->result.payload_in_blob) {
        snprintf(name, sizeof name, "%s.out", job->id);
        assert_int_equal(blasd_blob_open(fake.store, name, job->blob_bytes, &blob, &err), 0);
        assert_int_equal(blasd_blob_map(&blob, &err), 0);
        base = blob.data;
    }
    for (int i = 0; i < spec.n; i++)
        for (int j = 0; j < spec.n; j++) {
            const unsigned char *at =
                base + output->offset +
                (uint64_t)(i * spec.n + j) * blasd_dtype_size(output->tensor.dtype);
            double want = i == 0 ? 2 * spec.value : 2, got;
            float single;
            if (output->tensor.dtype == BLASD_float64) {
                memcpy(&got, at, sizeof got);
            } else {
                memcpy(&single, at, sizeof single);
                got = (double)single;
            }
            if (!(got == want)) fail_msg("element %d, %d is %g, not %g", i, j, got, want);
        }
    if (job->result.payload_in_blob) {
        blasd_blob_close(&blob);
        blasd_store_remove(fake.store, name);
    }
}

static bool fake_stopping(void *arg) {
    bool all = true;
    (void)arg;
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < fake.count; i++)
        if (!fake.jobs[i].ended) all = false;
    if (blasd_clock_ns() - fake.started_ns > INT64_C(60000000000)) all = true;
    pthread_mutex_unlock(&fake.lock);
    return all;
}

static void fake_ready(void *arg) {
    (void)arg;
}

/* Runs the worker until every job has ended (or 20 s have passed). */
static int fake_work(struct blasd_limits *limits, struct blasd_err *err) {
    struct blasd_worker_options options = {.queue = {.limits = limits, .store = fake.store},
                                           .backend = &FAKE_BACKEND,
                                           .name = "tester",
                                           .stopping = fake_stopping,
                                           .ready = fake_ready};
    fake.started_ns = blasd_clock_ns();
    return blasd_worker_run(&options, err);
}

#endif
