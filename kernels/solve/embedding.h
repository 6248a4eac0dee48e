/* Complex systems as real ones of twice the size, for every backend. Read next: embedding.c. */
#ifndef BLASD_KERNELS_EMBEDDING_H
#define BLASD_KERNELS_EMBEDDING_H

#include "core/kernel.h"
#include "kernels/solve/solve.h"

/* The real job that stands for a complex one: its shapes and parameters. */
void blasd_embedding_job(const struct blasd_job *job, struct blasd_job *ret);

/* The real tasks that stand for complex ones. */
struct blasd_embedding {
    struct blasd_job job; /* all of them share it, and the plan: tasks of a batch are alike */
    struct blasd_plan plan;
    struct blasd_solve solve; /* of the complex job */
    bool reversed;            /* unknowns and equations stand from last to first */
    struct blasd_task *tasks; /* owned */
    int count;
};

/* New: free with blasd_embedding_free. NULL in *ret, with 0, where the tasks are real. The tasks
 * stay where they are until then. */
int blasd_embedding_new(const struct blasd_task *tasks, int count, struct blasd_embedding **ret,
                        struct blasd_err *err);
/* What came of the real tasks becomes the results of the complex ones. */
void blasd_embedding_take(const struct blasd_embedding *embedding, struct blasd_task *tasks);
void blasd_embedding_free(struct blasd_embedding *embedding); /* takes NULL */

#endif
