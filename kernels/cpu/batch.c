/* Memory, progress through a batch, and the walk over broadcast items: what needs no BLAS, so that
 * the host's part of other backends can use it too. Read next: backend.c. */
#include "kernels/cpu/cpu.h"

#include "core/wanted.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STEP 100 /* operations that a step is taken for beside its work */
#define HUGE_PAGE ((size_t)2 << 20)

/* What lies in whole huge pages gets them: they are faulted in at once and found faster. Memory
 * that is aligned to them would leave gaps, which the next jobs cannot use. */
static void ask_for_huge_pages(void *memory, size_t bytes) {
    uintptr_t from = ((uintptr_t)memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t to = ((uintptr_t)memory + bytes) / HUGE_PAGE * HUGE_PAGE;
    if (from < to) (void)madvise((void *)from, to - from, MADV_HUGEPAGE); /* none: no failure */
}

void *blasd_cpu_alloc(size_t count, size_t size) {
    size_t bytes;
    void *memory;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - 64) return NULL;
    bytes = bytes == 0 ? 64 : (bytes + 63) / 64 * 64;
    memory = aligned_alloc(64, bytes);
    if (memory != NULL && bytes >= 2 * HUGE_PAGE) ask_for_huge_pages(memory, bytes);
    return memory;
}

bool blasd_cpu_step(struct blasd_cpu_progress *progress, double work) {
    progress->done += work;
    if (!blasd_wanted_due(&progress->unseen,
                          work < BLASD_WANTED_WORK ? (int64_t)work + STEP : BLASD_WANTED_WORK))
        return true;
    return blasd_wanted_at(progress->total > 0 ? progress->done / progress->total : 0);
}

int blasd_cpu_stopped(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_cancelled, "", "stopped while it ran");
}

void blasd_walk_init(struct blasd_walk *walk, int rank, const int64_t *shape) {
    memset(walk, 0, sizeof *walk);
    walk->rank = rank;
    for (int i = 0; i < rank; i++) walk->shape[i] = shape[i];
}

void blasd_walk_operand(struct blasd_walk *walk, int o, int rank, const int64_t *shape) {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        walk->stride[o][i + walk->rank - rank] = shape[i] == 1 ? 0 : step;
        step *= shape[i];
    }
}

void blasd_walk_next(struct blasd_walk *walk) {
    for (int i = walk->rank - 1; i >= 0; i--) {
        bool wraps = ++walk->index[i] == walk->shape[i];
        for (int o = 0; o < BLASD_WALK_OPERANDS; o++)
            walk->offset[o] +=
                wraps ? (1 - walk->shape[i]) * walk->stride[o][i] : walk->stride[o][i];
        if (!wraps) return;
        walk->index[i] = 0;
    }
}

void blasd_walk_seek(struct blasd_walk *walk, int64_t at) {
    for (int o = 0; o < BLASD_WALK_OPERANDS; o++) walk->offset[o] = 0;
    for (int i = walk->rank - 1; i >= 0; i--) {
        walk->index[i] = at % walk->shape[i];
        at /= walk->shape[i];
        for (int o = 0; o < BLASD_WALK_OPERANDS; o++)
            walk->offset[o] += walk->index[i] * walk->stride[o][i];
    }
}
