/* Which of the library's algorithms a product runs by: timed once for a shape that is large and
 * keeps coming, then remembered. The table is bounded; the shape that was not used for longest
 * makes room. Read next: replay.c. */
#include "kernels/cuda/device.h"

#include "base/clock.h"

#include <string.h>

#define CANDIDATES 8     /* beside the library's own */
#define ROUNDS 5         /* each of them is timed at most so often */
#define TUNE_NS 50000000 /* after this no further round begins */
#define WORTH_WHILE 0.97 /* of the library's own time: less gain may be noise */

static struct blasd_cuda_shape shape_of(const struct blasd_gpu_gemm *g) {
    struct blasd_cuda_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.m = g->m;
    shape.n = g->n;
    shape.k = g->k;
    shape.lda = g->lda;
    shape.ldb = g->ldb;
    shape.ldc = g->ldc;
    shape.count = g->count;
    if (g->count > 1) {
        shape.stride_a = g->stride_a;
        shape.stride_b = g->stride_b;
        shape.stride_c = g->stride_c;
    }
    shape.dtype = (int32_t)g->dtype;
    shape.out = (int32_t)g->out;
    shape.rounding = (int32_t)g->rounding;
    shape.trans_a = g->trans_a;
    shape.trans_b = g->trans_b;
    shape.align_a = blasd_gpu_alignment(g->a);
    shape.align_b = blasd_gpu_alignment(g->b);
    shape.align_c = blasd_gpu_alignment(g->c);
    return shape;
}

/* The entry of a shape, which may be new. */
static struct blasd_cuda_tuned *find(struct blasd_cuda_tuner *tuner,
                                     const struct blasd_cuda_shape *shape) {
    struct blasd_cuda_tuned *oldest = &tuner->tuned[0];
    tuner->time++;
    for (int i = 0; i < tuner->count; i++) {
        struct blasd_cuda_tuned *tuned = &tuner->tuned[i];
        if (memcmp(&tuned->shape, shape, sizeof *shape) == 0) {
            tuned->used = tuner->time;
            return tuned;
        }
        if (tuned->used < oldest->used) oldest = tuned;
    }
    if (tuner->count < BLASD_CUDA_TUNED) oldest = &tuner->tuned[tuner->count++];
    if (oldest->chosen) tuner->changes++;
    *oldest = (struct blasd_cuda_tuned){.shape = *shape, .used = tuner->time};
    return oldest;
}

/* What is timed: candidate 0 is the library's own way. */
struct contest {
    struct blasd_cuda_job *job;
    struct blasd_gpu_gemm gemm; /* into scratch memory */
    struct blasd_gpu_choice choices[CANDIDATES + 1];
    double best_us[CANDIDATES + 1]; /* 0: not timed yet; negative: it cannot do it */
    int count;
};

static int run_candidate(struct contest *contest, int i, bool count, struct blasd_err *err) {
    struct blasd_cuda_job *job = contest->job;
    const struct blasd_gpu_library *calls = job->calls;
    struct blasd_cuda_tuner *tuner = &job->slot->device->tuner;
    double us = 0;
    int code = calls->event_record(tuner->from, job->stream, err), called = 0;
    contest->gemm.choice = i > 0 ? &contest->choices[i] : NULL;
    if (code == 0) code = called = calls->gemm(job->stream, &contest->gemm, err);
    if (called == -(int)BLASD_E_internal_error && i > 0) {
        contest->best_us[i] = -1;
        return 0;
    }
    if (code == 0) code = calls->event_record(tuner->to, job->stream, err);
    if (code == 0) code = calls->event_wait(tuner->to, err);
    if (code == 0) code = calls->event_us(tuner->from, tuner->to, &us, err);
    if (code == 0 && count && us > 0 && (contest->best_us[i] == 0 || us < contest->best_us[i]))
        contest->best_us[i] = us;
    return code;
}

/* All of them in turn, so that whatever else the device does meets all alike. The first round only
 * loads what they need. */
static int run_contest(struct contest *contest, struct blasd_err *err) {
    int64_t start = blasd_clock_ns();
    int code = 0;
    for (int round = 0; code == 0 && round <= ROUNDS; round++) {
        if (round > 1 && blasd_clock_ns() - start > TUNE_NS) break;
        for (int i = 0; code == 0 && i < contest->count; i++)
            if (contest->best_us[i] >= 0) code = run_candidate(contest, i, round > 0, err);
    }
    return code;
}

static int open_events(struct blasd_device *device, struct blasd_err *err) {
    struct blasd_cuda_tuner *tuner = &device->tuner;
    int code = 0;
    if (tuner->from == NULL) code = device->calls->event_open(device->gpu, &tuner->from, err);
    if (code == 0 && tuner->to == NULL)
        code = device->calls->event_open(device->gpu, &tuner->to, err);
    return code;
}

/* The product's own result must not be touched: timing writes to memory of its own. */
static int take_scratch(struct contest *contest, struct blasd_err *err) {
    const struct blasd_gpu_gemm *g = &contest->gemm;
    uint64_t elements = (uint64_t)(g->count - 1) * (uint64_t)g->stride_c +
                        (uint64_t)(g->m - 1) * (uint64_t)g->ldc + (uint64_t)g->n;
    uint64_t bytes = elements * blasd_dtype_size(g->out);
    void *scratch;
    int skew = blasd_gpu_alignment(g->c), code;
    if (skew == 64) skew = 0;
    code = blasd_cuda_take(contest->job, bytes + 64, &scratch, err);
    if (code != 0) return code;
    contest->gemm.c = (char *)scratch + skew; /* as well aligned as the result, and not better */
    return contest->job->calls->fill(contest->job->stream, scratch, 0, bytes + 64, err);
}

/* Times the algorithms and notes the best. Short memory or a refusal only means that there is no
 * choice; other errors are the batch's. */
static int tune(struct blasd_cuda_job *job, struct blasd_cuda_tuned *tuned,
                const struct blasd_gpu_gemm *gemm, struct blasd_err *err) {
    struct blasd_device *device = job->slot->device;
    struct contest contest = {.job = job, .gemm = *gemm};
    int best = 0, found = 0;
    int code =
        job->calls->gemm_choices(job->stream, gemm, CANDIDATES, contest.choices + 1, &found, err);
    contest.count = found + 1;
    if (code == 0 && found == 0) return 0;
    if (code == 0) code = open_events(device, err);
    if (code == 0) code = take_scratch(&contest, err);
    if (code == 0) code = run_contest(&contest, err);
    if (code == -(int)BLASD_E_out_of_memory || code == -(int)BLASD_E_internal_error) return 0;
    if (code != 0) return code;
    for (int i = 1; i < contest.count; i++)
        if (contest.best_us[i] > 0 && contest.best_us[i] < contest.best_us[best] &&
            contest.best_us[i] < WORTH_WHILE * contest.best_us[0])
            best = i;
    tuned->chosen = best > 0;
    if (tuned->chosen) tuned->choice = contest.choices[best];
    if (tuned->chosen) device->tuner.changes++;
    return 0;
}

int blasd_cuda_gemm(struct blasd_cuda_job *job, const struct blasd_gpu_gemm *gemm,
                    struct blasd_err *err) {
    struct blasd_device *device = job->slot->device;
    double flops = 2.0 * (double)gemm->m * (double)gemm->n * (double)gemm->k * (double)gemm->count;
    struct blasd_gpu_gemm g = *gemm;
    struct blasd_cuda_shape shape;
    struct blasd_cuda_tuned *tuned;
    int code;
    g.choice = NULL;
    if (blasd_cuda_habits.tune_seen == 0 || !(flops >= blasd_cuda_habits.tune_flops) ||
        blasd_dtype_parts(g.dtype) == 2)
        return job->calls->gemm(job->stream, &g, err);
    shape = shape_of(&g);
    tuned = find(&device->tuner, &shape);
    if (tuned->seen < blasd_cuda_habits.tune_seen && !job->slot->replay.recording) {
        if (++tuned->seen == blasd_cuda_habits.tune_seen) {
            code = tune(job, tuned, &g, err);
            if (code != 0) return code;
        }
    }
    if (tuned->chosen) {
        g.choice = &tuned->choice;
        code = job->calls->gemm(job->stream, &g, err);
        if (code != -(int)BLASD_E_internal_error) return code;
        tuned->chosen = false; /* and not tried again while it is remembered */
        device->tuner.changes++;
        g.choice = NULL;
    }
    return job->calls->gemm(job->stream, &g, err);
}

void blasd_cuda_tuner_release(struct blasd_device *device) {
    device->calls->event_close(device->tuner.from);
    device->calls->event_close(device->tuner.to);
}
