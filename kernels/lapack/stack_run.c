/* The CPU's walk over the matrices of all jobs in a batch: small ones are shared out among threads,
 * of large ones each has all threads to itself. Read next: stack.h, lapack.h. */
#include "kernels/lapack/stack.h"

#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#define PIECE_WORK 3e5   /* operations of a piece: a tenth of a millisecond */
#define THREADS_WORK 2e6 /* below this a second thread costs more than it brings */

struct run {
    const struct blasd_stack_work *work;
    struct blasd_task *tasks;
    int64_t total, in_piece;
};

void blasd_stack_no_memory(struct blasd_task *task) {
    blasd_fail(&task->err, BLASD_E_out_of_memory, "", "no memory to compute in");
}

static bool piece(void *arg, int64_t i, int slot) {
    const struct run *run = arg;
    int64_t at = i * run->in_piece, end = at + run->in_piece, each = run->work->stack.count;
    (void)slot;
    for (; at < run->total && at < end && blasd_wanted(); at++)
        run->work->item(run->work, &run->tasks[at / each], at % each, 1);
    return blasd_wanted();
}

/* One after the other, each with all threads. */
static bool run_large(const struct run *run, int threads) {
    int64_t each = run->work->stack.count;
    for (int64_t at = 0; at < run->total && blasd_wanted(); at++) {
        run->work->item(run->work, &run->tasks[at / each], at % each, threads);
        if (!blasd_wanted_tell((double)(at + 1) / (double)run->total)) return false;
    }
    return blasd_wanted();
}

static int run_all(const struct blasd_stack_work *work, struct blasd_device *device,
                   struct blasd_task *tasks, int count, struct blasd_watch *watch,
                   struct blasd_err *err) {
    struct run run = {.work = work, .tasks = tasks, .total = work->stack.count * count};
    double flops = work->flops + 1000;
    struct blasd_parallel loop = {.piece = piece, .arg = &run, .watch = watch, .to = 1};
    bool done = true;
    blasd_cpu_blas_alone();
    run.in_piece = flops < PIECE_WORK ? (int64_t)(PIECE_WORK / flops) : 1;
    loop.count = (run.total + run.in_piece - 1) / run.in_piece;
    loop.threads = flops * (double)run.total < THREADS_WORK ? 1 : device->threads;
    if (work->flops >= BLASD_CPU_THREADS_FLOPS)
        done = run_large(&run, device->threads);
    else if (run.total > 0)
        done = blasd_parallel_run(&loop);
    if (!done) return blasd_cpu_stopped(err);
    for (int t = 0; t < count && blasd_wanted(); t++)
        if (tasks[t].err.code == BLASD_OK) work->finish(work, &tasks[t]);
    return 0;
}

int blasd_stack_run(const struct blasd_stack_work *work, struct blasd_device *device,
                    struct blasd_task *tasks, int count, struct blasd_watch *watch,
                    struct blasd_err *err) {
    blasd_wanted_begin(watch);
    return blasd_wanted_end(run_all(work, device, tasks, count, watch, err), err);
}

double blasd_stack_orthogonality(int threads, int64_t m, int64_t k, int64_t columns,
                                 const double *v, double *room) {
    const struct blasd_lapack_product product = {.trans_a = true,
                                                 .m = (int)k,
                                                 .n = (int)columns,
                                                 .k = (int)m,
                                                 .alpha = 1,
                                                 .a = v,
                                                 .b = v,
                                                 .c = room,
                                                 .lda = (int)m,
                                                 .ldb = (int)m,
                                                 .ldc = (int)k};
    if (k == 0 || columns == 0) return 0;
    blasd_lapack_multiply(threads, &product);
    for (int64_t i = 0; i < k; i++) room[i * k + i] -= 1;
    return blasd_stack_norm(k * columns, room) + blasd_stack_slack(m);
}
