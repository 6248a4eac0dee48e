/* A queue in memory, in place of src/queue's worker_queue.c, whose functions are defined here, so
 * that the linker takes these: the real worker runs without Redis.
 *
 * Everything is static or an override: each test file is a program of its own.
 * Read next: fake_jobs.h, which tests include. */
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
    const char *tenant; /* NULL: as none */
    struct blasd_buf frame;
    int attempts;
    bool stored, claimed, ended, drop; /* drop: finish says it had ended otherwise */
    int begun, claimed_in;             /* the number of the claim */
    bool held;
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
    char dir[48];           /* of the store */
    const char *kept_in;    /* costs that the worker knows, and adds to; NULL: none */
    int finish_unavailable; /* this many calls of finish fail with queue_unavailable */
    int finish_lost;        /* then this many find the lease lost */
    int registers, releases, finishes, claims, told, asked;
    uint64_t lanes[BLASD_LANES]; /* as last asked for */
    bool away;       /* blobs cannot be had until the worker, whose lease is lost, has another */
    bool moved;      /* until it is told what the worker holds */
    bool unwanted;   /* progress says that nobody wants the batch */
    double progress; /* last one told, and what it said */
    int64_t remaining_us;
    /* what the kernel of fake_backend.h does */
    int runs, counts[MOST_JOBS];
    char order[MOST_JOBS]; /* first element of the first input of each run's first job */
    int memory_for;        /* a call of more jobs is out of memory; 0: never */
    double poison;         /* a call with this first element fails whole; 0: none */
    double endless;        /* a call with this first element goes on until it is told to stop */
    double singular;       /* a task with this first element fails alone; 0: none */
    bool device_fails, slow;
    bool tells_phases; /* what moving and computing took; it waited for the rest of 2 ms */
    int more_units;    /* of the device, beside the one it has */
    bool misaligned, converted;
    char info[8192];        /* what the worker told when it registered */
    void (*renewing)(void); /* called while a renewal is on its way; NULL: nothing */
    void (*sweeping)(void); /* the same for a sweep */
    void (*telling)(void);  /* the same for the figures that follow a renewal */
    void (*running)(void);  /* the same for a kernel */
    void (*waiting)(void);  /* the same for a wait for jobs */
    void (*asking)(void);   /* the same for progress, before it is answered */
};
static struct fake fake;

struct blasd_worker_queue {
    int64_t epoch;
    int thread; /* 0: it claims */
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
    if (fake.registers > 1) fake.away = false;
    *epoch = queue->epoch = ++fake.epoch;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

void blasd_worker_queue_join(struct blasd_worker_queue *queue, const char *worker, int64_t epoch,
                             int thread) {
    (void)worker;
    queue->epoch = epoch;
    queue->thread = thread;
}

void blasd_worker_queue_let_go(struct blasd_worker_queue *queue, int count) {
    assert_int_equal(queue->thread, 0);
    assert_true(count > 0);
}

void blasd_worker_queue_demand(struct blasd_worker_queue *queue, int max, uint64_t max_bytes) {
    (void)queue;
    (void)max;
    (void)max_bytes;
}

int blasd_worker_queue_renew(struct blasd_worker_queue *queue, const char *info, bool *lost,
                             struct blasd_err *err) {
    (void)info;
    (void)err;
    if (fake.renewing != NULL) fake.renewing();
    pthread_mutex_lock(&fake.lock);
    *lost = queue->epoch != fake.epoch;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

int blasd_worker_queue_copies(struct blasd_worker_queue *queue, const char *device,
                              const char (*ids)[BLASD_ID_LEN + 1], int count,
                              struct blasd_err *err) {
    (void)queue, (void)device, (void)ids, (void)count, (void)err;
    return 0;
}

int blasd_worker_queue_figures(struct blasd_worker_queue *queue, const char *text,
                               struct blasd_err *err) {
    (void)queue, (void)text, (void)err;
    if (fake.telling != NULL) fake.telling();
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
    fake.claims++;
    for (int i = 0; !*lost && i < fake.count && *count < max; i++) {
        struct fake_job *job = &fake.jobs[i];
        if (job->claimed || job->ended) continue;
        job->claimed = job->held = true;
        job->claimed_in = fake.claims;
        claims[*count] = (struct blasd_claim){.frame = job->frame.data,
                                              .frame_len = job->frame.len,
                                              .attempts = job->attempts,
                                              .submitted_us = 1000000,
                                              .claimed_us = 1002000,
                                              .stored = job->stored};
        if (job->tenant != NULL)
            snprintf(claims[*count].tenant, sizeof claims->tenant, "%s", job->tenant);
        memcpy(claims[(*count)++].id, job->id, sizeof job->id);
    }
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

bool blasd_worker_queue_moved(const struct blasd_worker_queue *queue) {
    (void)queue;
    pthread_mutex_lock(&fake.lock);
    bool moved = fake.moved;
    pthread_mutex_unlock(&fake.lock);
    return moved;
}

int blasd_worker_queue_holds(struct blasd_worker_queue *queue, const char (*ids)[BLASD_ID_LEN + 1],
                             int count, bool *lost, struct blasd_err *err) {
    (void)err;
    assert_int_equal(queue->thread, 0);
    pthread_mutex_lock(&fake.lock);
    *lost = false;
    fake.moved = false;
    fake.told++;
    for (int i = 0; i < fake.count; i++) {
        struct fake_job *job = &fake.jobs[i];
        bool held = job->claimed_in == fake.claims;
        for (int k = 0; k < count; k++) held = held || strcmp(ids[k], job->id) == 0;
        if (!held) job->claimed = false;
    }
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

void blasd_worker_queue_lanes(struct blasd_worker_queue *queue, const uint64_t us[BLASD_LANES]) {
    (void)queue;
    memcpy(fake.lanes, us, sizeof fake.lanes);
}

bool blasd_worker_queue_is_idle(const struct blasd_worker_queue *queue) {
    (void)queue;
    return false;
}

int blasd_worker_queue_wait(struct blasd_worker_queue *queue, int timeout_ms,
                            struct blasd_err *err) {
    (void)queue;
    (void)timeout_ms;
    (void)err;
    if (fake.waiting != NULL) fake.waiting();
    usleep(1000);
    return 0;
}

void blasd_worker_queue_wake(struct blasd_worker_queue *queue) {
    (void)queue;
}

void blasd_worker_queue_tidy(struct blasd_worker_queue *queue) {
    (void)queue;
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

static void fake_end(struct fake_job *job, const struct blasd_completion *completion) {
    struct blasd_err err = {0};
    size_t payload_at = 0;
    blasd_buf_init(&job->record, 1 << 24);
    assert_int_equal(blasd_buf_add(&job->record, completion->record, completion->record_len), 0);
    assert_int_equal(
        blasd_record_decode(job->record.data, job->record.len, &job->result, &payload_at, &err), 0);
    job->payload = (const unsigned char *)job->record.data + payload_at;
    job->blob_bytes = completion->out_bytes;
    job->ended = true;
}

int blasd_worker_queue_finish(struct blasd_worker_queue *queue,
                              struct blasd_completion *completions, int count, bool *lost,
                              struct blasd_err *err) {
    int code = 0;
    pthread_mutex_lock(&fake.lock);
    fake.finishes++;
    if (fake.finish_unavailable > 0) {
        fake.finish_unavailable--;
        code = blasd_fail(err, BLASD_E_queue_unavailable, "", "the test says so");
    } else if (fake.finish_lost > 0) {
        fake.finish_lost--;
        fake.epoch++;
    }
    *lost = code == 0 && queue->epoch != fake.epoch;
    for (int i = 0; code == 0 && !*lost && i < count; i++) {
        struct fake_job *job = fake_find(completions[i].id);
        assert_false(job->ended && !job->drop);
        assert_true(job->held);
        job->held = false;
        completions[i].accepted = !job->drop;
        fake_end(job, &completions[i]);
    }
    pthread_mutex_unlock(&fake.lock);
    return code;
}

int blasd_worker_queue_progress(struct blasd_worker_queue *queue, const char *const *ids, int count,
                                double progress, int64_t remaining_us, bool *wanted,
                                struct blasd_err *err) {
    (void)queue;
    (void)ids;
    (void)count;
    (void)err;
    if (fake.asking != NULL) fake.asking();
    pthread_mutex_lock(&fake.lock);
    fake.progress = progress;
    fake.remaining_us = remaining_us;
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
    int code;
    pthread_mutex_lock(&fake.lock);
    if (fake.away && fake.epoch == queue->epoch) fake.epoch++;
    code = fake.away ? blasd_fail(err, BLASD_E_queue_unavailable, "", "the test says so") : 0;
    pthread_mutex_unlock(&fake.lock);
    if (code == 0) code = blasd_blob_open(fake.store, name, bytes, blob, err);
    return code != 0 ? code : blasd_blob_map(blob, err);
}

void blasd_worker_queue_blob_remove(struct blasd_worker_queue *queue, const char *name) {
    (void)queue;
    blasd_store_remove(fake.store, name);
}

void blasd_worker_queue_blob_discard(struct blasd_worker_queue *queue, struct blasd_blob *blob) {
    (void)queue;
    blasd_blob_remove(blob);
}

int blasd_worker_queue_sweep(struct blasd_worker_queue *queue, struct blasd_err *err) {
    (void)queue;
    (void)err;
    if (fake.sweeping != NULL) fake.sweeping();
    return 0;
}

int blasd_worker_queue_sweep_at_work(struct blasd_worker_queue *queue, struct blasd_err *err) {
    (void)queue;
    (void)err;
    return 0;
}

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

#endif
