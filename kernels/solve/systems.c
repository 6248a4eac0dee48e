/* From tasks to systems and back, and the systems that a device leaves to the engine.
 * Read next: systems.h. */
#include "kernels/solve/systems.h"

#include "kernels/solve/leftovers.h"
#include "kernels/solve/solve_report.h"

struct blasd_systems blasd_systems_of(const struct blasd_task *task, const struct blasd_solve *s) {
    struct blasd_solve_layout layout =
        blasd_solve_layout(s, &task->inputs[BLASD_SOLVE_A], &task->inputs[BLASD_SOLVE_B]);
    return (struct blasd_systems){.n = s->n,
                                  .columns = s->columns,
                                  .a_row = layout.a_row,
                                  .a_column = layout.a_column,
                                  .b_row = layout.b_row,
                                  .b_column = layout.b_column,
                                  .assume = layout.assume,
                                  .refinement = s->refinement};
}

struct blasd_system blasd_system_of(const struct blasd_task *task, const struct blasd_solve *s,
                                    const struct blasd_walk *walk, int64_t item) {
    size_t size = blasd_dtype_size(task->inputs[BLASD_SOLVE_A].dtype);
    size_t column = (size_t)(s->n * s->columns) * size;
    return (struct blasd_system){
        .kept = task->inputs[BLASD_SOLVE_FACTOR].data == NULL ? NULL
                                                              : &task->inputs[BLASD_SOLVE_FACTOR],
        .a = (const char *)task->inputs[BLASD_SOLVE_A].data +
             (size_t)(walk->offset[0] * s->n * s->n) * size,
        .b = (const char *)task->inputs[BLASD_SOLVE_B].data + (size_t)walk->offset[1] * column,
        .x = (char *)task->outputs[BLASD_SOLVE_X].data + (size_t)item * column};
}

int blasd_system_publish(struct blasd_task *task, int64_t item, const struct blasd_system *system) {
    blasd_solve_put(task, BLASD_SOLVE_INFO, item, 0, system->info);
    blasd_solve_put(task, BLASD_SOLVE_RCOND, item, system->rcond, 0);
    blasd_solve_put(task, BLASD_SOLVE_BACKWARD_ERROR, item, system->error, 0);
    blasd_solve_put(task, BLASD_SOLVE_STEPS, item, 0, system->steps);
    blasd_solve_put(task, BLASD_SOLVE_METHOD, item, 0, (int64_t)system->method);
    return (system->singular ? BLASD_SOLVE_SINGULAR : 0) |
           (system->unsymmetric ? BLASD_SOLVE_UNSYMMETRIC : 0) |
           (system->doubtful ? BLASD_SOLVE_DOUBTFUL : 0) |
           (system->settled ? BLASD_SOLVE_SETTLED : 0);
}

int blasd_solve_leftovers(struct blasd_task *task, const struct blasd_solve *s, int *flags,
                          struct blasd_err *err) {
    struct blasd_engine *engine = NULL;
    struct blasd_systems shape;
    struct blasd_walk walk;
    int code = 0;
    blasd_walk_init(&walk, s->batch_rank, s->batch);
    blasd_walk_operand(&walk, 0, s->a_rank, s->a_batch);
    blasd_walk_operand(&walk, 1, s->b_rank, s->b_batch);
    for (int64_t at = 0; at < s->batch_count && code == 0; at++, blasd_walk_next(&walk)) {
        struct blasd_system system;
        if ((flags[at] & BLASD_SOLVE_LEFT) == 0) continue;
        if (engine == NULL) {
            blasd_task_make_inputs(task);
            blasd_cpu_blas_alone();
            shape = blasd_systems_of(task, s);
            engine = blasd_engine_new(&shape, task->inputs[BLASD_SOLVE_A].dtype == BLASD_float32);
        }
        if (engine == NULL)
            return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to solve in");
        system = blasd_system_of(task, s, &walk, at);
        if (!blasd_engine_run(engine, &system, NULL, 0, 1)) code = blasd_cpu_stopped(err);
        if (code == 0) flags[at] = blasd_system_publish(task, at, &system);
    }
    blasd_engine_free(engine);
    return code;
}
