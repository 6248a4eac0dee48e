/* Products of integers, modulo 2^64: loops over the host's memory. Read next: matmul_integers.c. */
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/matmul/matmul.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROWS 16    /* of a patch of the result */
#define COLUMNS 32 /* beside each other */
#define DEPTH 128  /* of b, copied at once */

struct whole {
    const struct blasd_task *task; /* borrowed */
    const struct blasd_matmul *mm; /* borrowed */
    struct blasd_matmul_steps a, b;
    int64_t down, across; /* patches of one item */
};

/* sums += a row of a, times the copied rows of b. */
BLASD_CLONES
static void add(const uint64_t *row, int64_t step, int64_t depth, uint64_t b[DEPTH][COLUMNS],
                uint64_t *restrict sums) {
    for (int64_t l = 0; l < depth; l++) {
        const uint64_t *restrict from = b[l], x = row[l * step];
        for (int c = 0; c < COLUMNS; c++) sums[c] += x * from[c];
    }
}

/* alpha times the sum, plus beta times c: element `at` of the result. */
static void finish(const struct whole *whole, int64_t at, uint64_t sum) {
    const struct blasd_tensor *c = &whole->task->inputs[BLASD_MATMUL_C];
    const struct blasd_tensor *out = &whole->task->outputs[0];
    uint64_t value = (uint64_t)(int64_t)whole->mm->alpha * sum;
    if (whole->mm->add_c)
        value += (uint64_t)(int64_t)whole->mm->beta *
                 ((const uint64_t *)c->data)[blasd_matmul_place_of_c(c, out, at)];
    ((uint64_t *)out->data)[at] = value;
}

static bool patch(void *arg, int64_t piece, int slot) {
    const struct whole *whole = arg;
    const struct blasd_matmul *mm = whole->mm;
    int64_t each = whole->down * whole->across, item = piece / each, done = 0;
    int64_t i = piece % each / whole->across * ROWS, j = piece % each % whole->across * COLUMNS;
    int64_t rows = mm->m - i < ROWS ? mm->m - i : ROWS;
    int64_t columns = mm->n - j < COLUMNS ? mm->n - j : COLUMNS;
    uint64_t sums[ROWS][COLUMNS] = {{0}}, copy[DEPTH][COLUMNS] = {{0}};
    const uint64_t *a = whole->task->inputs[BLASD_MATMUL_A].data;
    const uint64_t *b = whole->task->inputs[BLASD_MATMUL_B].data;
    struct blasd_walk walk;
    (void)slot;
    blasd_walk_init(&walk, mm->batch_rank, mm->batch);
    blasd_walk_operand(&walk, 0, mm->a.batch_rank, mm->a.batch);
    blasd_walk_operand(&walk, 1, mm->b.batch_rank, mm->b.batch);
    blasd_walk_seek(&walk, item);
    a += walk.offset[0] * whole->a.matrix + i * whole->a.row;
    b += walk.offset[1] * whole->b.matrix + j * whole->b.column;
    for (int64_t l = 0; l < mm->k; l += DEPTH) {
        int64_t depth = mm->k - l < DEPTH ? mm->k - l : DEPTH;
        if (!blasd_wanted_after(&done, rows * COLUMNS * depth)) return false;
        for (int64_t d = 0; d < depth; d++)
            for (int64_t c = 0; c < columns; c++)
                copy[d][c] = b[(l + d) * whole->b.row + c * whole->b.column];
        for (int64_t r = 0; r < rows; r++)
            add(a + r * whole->a.row + l * whole->a.column, whole->a.column, depth, copy, sums[r]);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            finish(whole, (item * mm->m + i + r) * mm->n + j + c, sums[r][c]);
    return true;
}

bool blasd_matmul_exact(struct blasd_task *task, const struct blasd_matmul *mm, int threads,
                        struct blasd_cpu_progress *progress) {
    struct whole whole = {.task = task, .mm = mm};
    struct blasd_parallel loop = {.piece = patch, .arg = &whole, .threads = threads};
    blasd_task_make_inputs(task);
    whole.a = blasd_matmul_steps(&task->inputs[BLASD_MATMUL_A], &mm->a);
    whole.b = blasd_matmul_steps(&task->inputs[BLASD_MATMUL_B], &mm->b);
    whole.down = (mm->m + ROWS - 1) / ROWS;
    whole.across = (mm->n + COLUMNS - 1) / COLUMNS;
    loop.watch = progress->watch;
    loop.count = mm->batch_count * whole.down * whole.across;
    loop.from = fmin(1, progress->done / progress->total);
    progress->done += task->plan->flops;
    loop.to = fmin(1, progress->done / progress->total);
    snprintf(task->method, sizeof task->method, "integers modulo 2^64");
    return loop.count == 0 || blasd_parallel_run(&loop);
}
