/* What test_solve_edges.c and test_solve_quality.c share: a system of one matrix, of any of these
 * sizes, and what to look at in its answer. */
#ifndef BLASD_TESTS_SOLVE_SUPPORT_H
#define BLASD_TESTS_SOLVE_SUPPORT_H

#include "kernel_support.h"

static TRIAL_UNUSED double unit(enum blasd_dtype dtype) {
    return dtype == BLASD_float32 ? 0x1p-24 : 0x1p-53;
}

static const int64_t sizes[] = {1, 2, 3, 4, 5, 8, 17, 32, 33, 40, 41, 60, 130, 170, 240};
#define SIZES (int)(sizeof sizes / sizeof *sizes)

static struct trial *system_of(int64_t n, int64_t columns, enum blasd_dtype dtype, void **a,
                               void **b) {
    struct trial *t = trial_new("solve");
    *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
    *b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, columns});
    return t;
}
static double x_at(const struct trial *t, int64_t i) {
    return trial_value(trial_output(t, "x"), i);
}
static double scalar(const struct trial *t, const char *name) {
    return trial_value(trial_output(t, name), 0);
}
static bool warned(const struct trial *t, const char *text) {
    for (int i = 0; i < t->task.warning_count; i++)
        if (strstr(t->task.warnings[i].text, text) != NULL) return true;
    return false;
}

static const char *const diagonal_kinds[] = {"general", "symmetric", "positive_definite",
                                             "lower_triangular", "upper_triangular"};

#endif
