/* Stacks of matrices: lengths, elements in and out, what is said of results. Read next: stack.h,
 * stack_run.c. */
#include "kernels/lapack/stack.h"

#include "core/wanted.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ALONE_FLOPS 2e9 /* above this many operations sharing a call with others gains nothing */
#define FAR 200         /* powers of two from 1: what lies between is taken as it is */
#define BLOCK 32        /* rows and columns that are turned at once */
#define PART (1 << 16)  /* elements that are copied at once */

/* ---- plans ---- */

int blasd_stack_read(const struct blasd_job *job, bool square, struct blasd_stack *ret,
                     struct blasd_err *err) {
    const struct blasd_tensor *a = &job->inputs[0].tensor;
    struct blasd_tensor batch;
    char shape[96];
    int code;
    memset(ret, 0, sizeof *ret);
    ret->m = a->shape[a->rank - 2];
    ret->n = a->shape[a->rank - 1];
    ret->rank = a->rank - 2;
    ret->single = a->dtype == BLASD_float32;
    memcpy(ret->batch, a->shape, (size_t)ret->rank * sizeof *ret->batch);
    blasd_tensor_shape_text(a, shape, sizeof shape);
    if (square && ret->m != ret->n)
        return blasd_fail(err, BLASD_E_invalid_shape, "inputs.a",
                          "the matrices of a must be square; its shape is %s", shape);
    if (ret->m > BLASD_STACK_LONG || ret->n > BLASD_STACK_LONG ||
        (ret->m > BLASD_STACK_SIDE && ret->n > BLASD_STACK_SIDE))
        return blasd_fail(err, BLASD_E_invalid_shape, "inputs.a",
                          "a matrix may have %d rows and columns, or %d of the one and %d of the "
                          "other, at most; its shape is %s",
                          BLASD_STACK_SIDE, BLASD_STACK_LONG, BLASD_STACK_SIDE, shape);
    batch = blasd_tensor_make(BLASD_float64, ret->rank, ret->batch);
    code = blasd_tensor_check(&batch, "inputs", err); /* so that no product of lengths overflows */
    if (code == 0) ret->count = blasd_tensor_elements(&batch);
    return code;
}

bool blasd_stack_sample(struct blasd_job *job, int64_t n, int64_t items, enum blasd_dtype dtype) {
    int64_t shape[3] = {items, n, n};
    if (items < 1) return false;
    blasd_job_give(job, 0, dtype, items > 1 ? 3 : 2, items > 1 ? shape : shape + 1);
    return true;
}

void blasd_stack_plan(struct blasd_plan *plan, const struct blasd_job *job,
                      const struct blasd_stack *stack, double flops, double workspace) {
    const struct blasd_tensor *input;
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        input = &job->inputs[i].tensor;
        plan->input_dtype[i] = BLASD_float64;
        plan->keep_order[i] = input->rank == 2;
        plan->device_bytes += sizeof(double) * (uint64_t)blasd_tensor_elements(input);
    }
    plan->items = (double)stack->count;
    plan->flops = plan->items * flops;
    plan->workspace_bytes = (uint64_t)(workspace < 1e17 ? workspace : 1e17) * sizeof(double);
    plan->device_bytes += plan->workspace_bytes;
    plan->device_least_bytes = plan->device_bytes; /* the matrices of a job stay together */
    plan->batchable = plan->flops < ALONE_FLOPS;
}

void blasd_stack_output(struct blasd_plan *plan, int output, const struct blasd_stack *stack,
                        int rank, int64_t rows, int64_t columns) {
    struct blasd_tensor *out = &plan->outputs[output];
    *out =
        blasd_tensor_make(stack->single ? BLASD_float32 : BLASD_float64, stack->rank, stack->batch);
    if (rank > 0) out->shape[out->rank++] = rows;
    if (rank > 1) out->shape[out->rank++] = columns;
    if (blasd_tensor_check(out, "inputs", NULL) != 0) return; /* blasd_job_plan refuses it */
    plan->device_bytes += blasd_tensor_bytes(out);
    plan->device_least_bytes += blasd_tensor_bytes(out);
}

void blasd_stack_figure(struct blasd_plan *plan, int output, const struct blasd_stack *stack,
                        enum blasd_dtype dtype) {
    plan->outputs[output] = blasd_tensor_make(dtype, stack->rank, stack->batch);
}

/* ---- elements ---- */

/* The part of `count` elements that begins at `at`. */
static int64_t part_of(int64_t count, int64_t at) {
    return count - at < PART ? count - at : PART;
}

void blasd_stack_move(int64_t count, const double *from, double *to) {
    int64_t done = 0;
    for (int64_t at = 0; at < count && blasd_wanted_after(&done, PART); at += PART)
        memcpy(to + at, from + at, (size_t)part_of(count, at) * sizeof *to);
}

void blasd_stack_copy(const struct blasd_tensor *input, int64_t item, int64_t m, int64_t n,
                      bool trans, double *to) {
    const double *from = (const double *)input->data + item * m * n;
    int64_t rows = trans ? n : m, columns = trans ? m : n, done = 0; /* of `to` */
    if ((input->order == BLASD_COLUMN_MAJOR) != trans) {
        blasd_stack_move(m * n, from, to);
        return;
    }
    for (int64_t i = 0; i < rows && blasd_wanted_after(&done, BLOCK * columns); i += BLOCK)
        for (int64_t j = 0; j < columns; j += BLOCK)
            for (int64_t q = j; q < columns && q < j + BLOCK; q++)
                for (int64_t p = i; p < rows && p < i + BLOCK; p++)
                    to[q * rows + p] = from[p * columns + q];
}

void blasd_stack_mirror(int64_t n, double *a, bool upper) {
    int64_t done = 0;
    for (int64_t j = 0; j < n && blasd_wanted(); j += BLOCK)
        for (int64_t i = j; i < n && blasd_wanted_after(&done, 2 * BLOCK * BLOCK); i += BLOCK)
            for (int64_t q = j; q < n && q < j + BLOCK; q++)
                for (int64_t p = q < i ? i : q + 1; p < n && p < i + BLOCK; p++) {
                    double *low = &a[q * n + p], *high = &a[p * n + q];
                    *(upper ? low : high) = *(upper ? high : low);
                }
}

static double largest(int64_t count, const double *x) {
    double most = 0;
    int64_t done = 0;
    for (int64_t at = 0; at < count && blasd_wanted_after(&done, PART); at += PART)
        for (int64_t i = at; i < at + part_of(count, at); i++)
            most = fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

int blasd_stack_scale(int64_t count, double *x) {
    double most = largest(count, x);
    int64_t done = 0;
    int e;
    if (most == 0 || (most >= ldexp(1, -FAR) && most <= ldexp(1, FAR))) return 0;
    frexp(most, &e);
    e = most < 1 ? -e : FAR - e;
    for (int64_t at = 0; at < count && blasd_wanted_after(&done, PART); at += PART)
        for (int64_t i = at; i < at + part_of(count, at); i++) x[i] = ldexp(x[i], e);
    return e;
}

/* Elements side by side, from those `step` apart. */
static bool store_single(int64_t count, const double *from, int64_t step, float *to, int e) {
    bool finite = true;
    for (int64_t i = 0; i < count; i++) {
        double x = e != 0 ? ldexp(from[i * step], e) : from[i * step];
        to[i] = (float)x;
        finite &= fabs(x) < (double)FLT_MAX * (1 + 0x1p-25);
    }
    return finite;
}

static bool store_double(int64_t count, const double *from, int64_t step, double *to, int e) {
    bool finite = true;
    for (int64_t i = 0; i < count; i++) {
        double x = e != 0 ? ldexp(from[i * step], e) : from[i * step];
        to[i] = x;
        finite &= fabs(x) <= DBL_MAX;
    }
    return finite;
}

bool blasd_stack_store(const struct blasd_tensor *output, int64_t item, int64_t m, int64_t n,
                       const double *from, int64_t ld, bool trans, int e) {
    int64_t rows = trans ? n : m, columns = trans ? m : n; /* of the output */
    int64_t down = trans ? ld : 1, across = trans ? 1 : ld;
    int64_t done = 0;
    bool finite = true;
    if (columns == 1) { /* as one row: longer */
        across = down;
        columns = rows;
        rows = 1;
    }
    for (int64_t i = 0; i < rows && blasd_wanted_after(&done, columns); i++) {
        int64_t at = (item * rows + i) * columns;
        if (output->dtype == BLASD_float32)
            finite &= store_single(columns, from + i * down, across, (float *)output->data + at, e);
        else
            finite &=
                store_double(columns, from + i * down, across, (double *)output->data + at, e);
    }
    return finite;
}

void blasd_stack_store_nan(const struct blasd_tensor *output, int64_t item, int64_t each) {
    int64_t done = 0;
    if (output->rank < 0) return;
    for (int64_t i = item * each; i < (item + 1) * each && blasd_wanted_after(&done, 1); i++) {
        if (output->dtype == BLASD_float32)
            ((float *)output->data)[i] = NAN;
        else
            ((double *)output->data)[i] = NAN;
    }
}

void blasd_stack_put(const struct blasd_tensor *output, int64_t item, double value) {
    if (output->rank >= 0) ((double *)output->data)[item] = value;
}

void blasd_stack_round(const struct blasd_stack *stack, double *x, int64_t count) {
    int64_t done = 0;
    if (!stack->single) return;
    for (int64_t at = 0; at < count && blasd_wanted_after(&done, PART); at += PART)
        for (int64_t i = at; i < at + part_of(count, at); i++) x[i] = (double)(float)x[i];
}

/* ---- how good ---- */

double blasd_stack_slack(int64_t k) {
    return 2 * DBL_EPSILON * sqrt((double)k);
}

double blasd_stack_lost(const struct blasd_stack *stack, int64_t values, int e) {
    return ldexp(sqrt((double)values),
                 e + (stack->single ? BLASD_STACK_LEAST_SINGLE : BLASD_STACK_LEAST));
}

double blasd_stack_norm(int64_t count, const double *x) {
    double sum = 0;
    int64_t done = 0;
    for (int64_t i = 0;
         i < count &&
         blasd_wanted_after(&done, 256);) { /* in parts, whose sums are rounded less often */
        double part = 0;
        for (int64_t end = i + 256 < count ? i + 256 : count; i < end; i++) part += x[i] * x[i];
        sum += part;
    }
    return sqrt(sum);
}

static double element(const struct blasd_tensor *tensor, int64_t i) {
    return tensor->dtype == BLASD_float32 ? (double)((const float *)tensor->data)[i]
                                          : ((const double *)tensor->data)[i];
}

static int64_t *info_of(const struct blasd_task *task) {
    int output = blasd_op_output(task->job->op, "info");
    return output < 0 || task->outputs[output].rank < 0 ? NULL : task->outputs[output].data;
}

void blasd_stack_clear_info(struct blasd_task *task, const struct blasd_stack *stack) {
    int64_t *info = info_of(task), done = 0;
    for (int64_t i = 0; info != NULL && i < stack->count && blasd_wanted_after(&done, 1); i++)
        info[i] = 0;
}

void blasd_stack_note(struct blasd_task *task, const struct blasd_stack *stack, int64_t item,
                      enum blasd_warning_code code) {
    int64_t *info = info_of(task);
    if (info != NULL && info[item] == 0) info[item] = stack->minus ? -(int64_t)code : (int64_t)code;
}

void blasd_stack_judge(struct blasd_task *task, const struct blasd_stack *stack,
                       const int *figures) {
    double u = stack->single ? FLT_EPSILON / 2.0 : DBL_EPSILON / 2;
    double most = 16 * (double)(stack->m > stack->n ? stack->m : stack->n) * u + 16 * u;
    int64_t bad = 0, done = 0;
    for (int64_t i = 0; i < stack->count && blasd_wanted_after(&done, 10); i++) {
        bool poor = false;
        for (int f = 0; figures[f] >= 0; f++)
            poor = poor || element(&task->outputs[figures[f]], i) > most;
        bad += poor;
        if (poor) blasd_stack_note(task, stack, i, BLASD_W_inexact);
    }
    if (bad > 0)
        blasd_task_warn(task, BLASD_W_inexact,
                        "%lld results are less exact than they should be: see residual",
                        (long long)bad);
}

int64_t blasd_stack_judge_lost(struct blasd_task *task, const struct blasd_stack *stack, int output,
                               int64_t each, const char *what) {
    int64_t lost = 0, done = 0;
    for (int64_t i = 0; each > 0 && i < stack->count && blasd_wanted_after(&done, 10); i++)
        if (isnan(element(&task->outputs[output], i * each))) {
            lost++;
            blasd_stack_note(task, stack, i, BLASD_W_not_converged);
        }
    if (lost > 0 && stack->rank == 0)
        blasd_fail(&task->err, BLASD_E_not_converged, "inputs.a", "the %s did not converge", what);
    else if (lost > 0)
        blasd_task_warn(task, BLASD_W_not_converged,
                        "%lld of %lld matrices have no result: the %s did not converge",
                        (long long)lost, (long long)stack->count, what);
    return lost;
}

static bool is_symmetric(const double *a, int64_t n) {
    for (int64_t i = 0; i < n && blasd_wanted(); i += BLOCK)
        for (int64_t j = 0; j <= i; j += BLOCK)
            for (int64_t p = i; p < n && p < i + BLOCK; p++)
                for (int64_t q = j; q < p && q < j + BLOCK; q++)
                    if (a[p * n + q] != a[q * n + p]) return false;
    return true;
}

int64_t blasd_stack_uneven(const struct blasd_task *task, const struct blasd_stack *stack) {
    const double *a = task->inputs[0].data;
    int64_t n = stack->n, uneven = 0;
    for (int64_t i = 0; i < stack->count && blasd_wanted(); i++)
        uneven += !is_symmetric(a + i * n * n, n);
    return uneven;
}

void blasd_stack_judge_symmetry(struct blasd_task *task, const struct blasd_stack *stack,
                                int64_t uneven, bool upper) {
    if (uneven > 0)
        blasd_task_warn(task, BLASD_W_not_symmetric, "%s not symmetric: the %s triangle was used",
                        stack->rank == 0 ? "a is" : "some of the matrices are",
                        upper ? "upper" : "lower");
}

void blasd_stack_judge_range(struct blasd_task *task, const struct blasd_stack *stack, int output,
                             const char *name, int64_t lost) {
    const struct blasd_tensor *out = &task->outputs[output];
    int64_t count = out->rank < 0 ? 0 : blasd_tensor_elements(out), done = 0, beyond = -lost;
    for (int64_t i = 0; i < count && blasd_wanted_after(&done, 1); i++) {
        if (fabs(element(out, i)) <= DBL_MAX) continue;
        beyond++;
        blasd_stack_note(task, stack, i / (count / stack->count), BLASD_W_overflow);
    }
    if (beyond > 0)
        blasd_task_warn(task, BLASD_W_overflow, "%lld elements of %s are beyond the range of %s",
                        (long long)beyond, name, blasd_dtype_name(out->dtype));
}
