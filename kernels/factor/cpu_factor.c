/* factor on the CPU: solve's engine, up to where right-hand sides begin.
 * Read next: README.md, then ../solve/kept.h. */
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/factor/factor_job.h"
#include "kernels/solve/embedding.h"
#include "kernels/solve/kept.h"
#include "kernels/solve/solve_report.h"

#include <stdio.h>
#include <stdlib.h>

/* What came of the matrix. */
static void answer(struct blasd_task *task, const struct blasd_system *system) {
    const struct blasd_tensor *a = &task->inputs[BLASD_FACTOR_A];
    bool hermitian = blasd_dtype_parts(a->dtype) > 1 &&
                     task->job->params[BLASD_FACTOR_ASSUME_A].choice != BLASD_FACTOR_SYMMETRIC;
    *(double *)task->outputs[BLASD_FACTOR_RCOND].data = system->rcond;
    snprintf(task->method, sizeof task->method, "%s", blasd_solve_method_name(system->method));
    if (system->info > 0) {
        int64_t parts = blasd_dtype_parts(a->dtype);
        blasd_solve_refuse(task, (system->info + parts - 1) / parts, system->singular);
        return;
    }
    if (system->unsymmetric)
        blasd_task_warn(task, BLASD_W_not_symmetric, "a is not %s: the upper triangle was used",
                        hermitian ? "Hermitian" : "symmetric");
    if (system->doubtful)
        blasd_task_warn(task, BLASD_W_near_singular,
                        "a is nearly singular (rcond %.2g): solutions may have no correct digit",
                        system->rcond);
}

/* The matrix of `real`, a task of solve; `s` and `a` are the job's own. */
static int factor(struct blasd_device *device, struct blasd_task *task, struct blasd_task *real,
                  const struct blasd_solve *s, struct blasd_watch *watch, struct blasd_err *err) {
    struct blasd_solve own;
    struct blasd_systems shape;
    struct blasd_system system = {.a = real->inputs[BLASD_SOLVE_A].data};
    struct blasd_engine *engine;
    int code = blasd_solve_read(real->job, &own, err);
    double n = (double)own.n;
    if (code != 0) return code;
    shape = blasd_systems_of(real, &own);
    if (n * n * n >= BLASD_CPU_THREADS_FLOPS) shape.threads = device->threads;
    engine = blasd_engine_new(&shape, real->inputs[BLASD_SOLVE_A].dtype == BLASD_float32);
    if (engine == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to factor in");
    blasd_cpu_blas_alone();
    if (!blasd_engine_factor(engine, &system, watch)) {
        code = blasd_cpu_stopped(err);
    } else {
        answer(task, &system);
        if (system.info == 0)
            blasd_kept_write(engine, s, &task->inputs[BLASD_FACTOR_A],
                             task->outputs[BLASD_FACTOR_FACTOR].data);
    }
    blasd_engine_free(engine);
    return code;
}

static int run_one(struct blasd_device *device, struct blasd_task *task, struct blasd_watch *watch,
                   struct blasd_err *err) {
    struct blasd_task solve = {0};
    struct blasd_embedding *real = NULL;
    struct blasd_solve s;
    struct blasd_plan plan;
    struct blasd_job job;
    double *b;
    int code;
    blasd_factor_solve_job(task->job, &job);
    solve.job = &job;
    solve.plan = &plan;
    solve.inputs[BLASD_SOLVE_A] = task->inputs[BLASD_FACTOR_A];
    job.inputs[BLASD_SOLVE_A].tensor.order = solve.inputs[BLASD_SOLVE_A].order;
    code = blasd_job_plan(&job, &plan, err);
    if (code == 0) code = blasd_solve_read(&job, &s, err);
    s.assume = (enum blasd_assume)job.params[BLASD_SOLVE_ASSUME_A].choice; /* as was sent */
    if (code == 0 && s.n == 0) {
        *(double *)task->outputs[BLASD_FACTOR_RCOND].data = 1;
        snprintf(task->method, sizeof task->method, "none");
    }
    if (code != 0 || s.n == 0) return code;
    b = calloc((size_t)s.n, 2 * sizeof *b);
    if (b == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to factor in");
    solve.inputs[BLASD_SOLVE_B] = blasd_tensor_make(plan.input_dtype[BLASD_SOLVE_B], 1, &s.n);
    solve.inputs[BLASD_SOLVE_B].data = b;
    code = blasd_embedding_new(&solve, 1, &real, err);
    if (code == 0) code = factor(device, task, real != NULL ? real->tasks : &solve, &s, watch, err);
    blasd_embedding_free(real);
    free(b);
    return code;
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    int code = 0;
    blasd_wanted_begin(watch);
    for (int t = 0; t < count && code == 0; t++) code = run_one(device, &tasks[t], watch, err);
    return blasd_wanted_end(code, err);
}

const struct blasd_kernel blasd_cpu_factor = {.op = "factor", .run = run};
