/* Complex systems as real ones. Each element a + ib of the matrix becomes a block of four, and the
 * parts of an element of b or x lie below each other:
 *
 *     [ a  -b ] [ Re x ]   [ Re ]
 *     [ b   a ] [ Im x ] = [ Im ]
 *
 * Nothing is rounded, so that all that is promised of real systems holds here: refinement, scales,
 * bounds. What is Hermitian becomes symmetric, and positive definite stays that; of a symmetric
 * complex matrix each second row changes its sign, which makes it symmetric. A triangle's blocks
 * are full, so it is solved as a general matrix, a lower one from its end: of an upper triangle of
 * blocks, LU with pivoting turns the blocks alone, which leaves substitution and its accuracy.
 *
 * The price: 16/3 n^3 operations where complex factors take 8/3 n^3, and twice their memory.
 * Read next: cpu_solve.c and cuda_solve.cu, which run the real tasks. */
#include "kernels/solve/embedding.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/solve/solve_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the job ---- */

static enum blasd_assume assume_of(enum blasd_assume of_complex) {
    switch (of_complex) {
    case BLASD_ASSUME_HERMITIAN:
    case BLASD_ASSUME_SYMMETRIC: return BLASD_ASSUME_SYMMETRIC;
    case BLASD_ASSUME_POSITIVE_DEFINITE: return BLASD_ASSUME_POSITIVE_DEFINITE;
    default: return BLASD_ASSUME_GENERAL;
    }
}

void blasd_embedding_job(const struct blasd_job *job, struct blasd_job *ret) {
    struct blasd_tensor *a = &ret->inputs[BLASD_SOLVE_A].tensor;
    struct blasd_tensor *b = &ret->inputs[BLASD_SOLVE_B].tensor;
    struct blasd_value *params = ret->params;
    blasd_job_share(job, ret);
    a->dtype = b->dtype = blasd_dtype_part(blasd_solve_dtype(job));
    a->order = b->order = BLASD_ROW_MAJOR;
    a->shape[a->rank - 1] *= 2;
    a->shape[a->rank - 2] *= 2;
    b->shape[b->rank > 1 ? b->rank - 2 : 0] *= 2;
    params[BLASD_SOLVE_TRANSPOSED].b = false;
    params[BLASD_SOLVE_ASSUME_A].choice =
        (int)assume_of((enum blasd_assume)params[BLASD_SOLVE_ASSUME_A].choice);
}

/* ---- elements ---- */

/* Part number `at` of a tensor of floats or of complex numbers. */
static double part(const struct blasd_tensor *t, int64_t at) {
    return blasd_dtype_part(t->dtype) == BLASD_float32 ? (double)((const float *)t->data)[at]
                                                       : ((const double *)t->data)[at];
}
static void put(const struct blasd_tensor *t, int64_t at, double value) {
    if (blasd_dtype_part(t->dtype) == BLASD_float32)
        ((float *)t->data)[at] = (float)value;
    else
        ((double *)t->data)[at] = value;
}

/* The block of element (i, j) of op(a). */
static void widen_element(const struct blasd_solve *s, double re, double im, int64_t i, int64_t j,
                          const struct blasd_tensor *to, int64_t start) {
    bool hermitian =
        s->assume == BLASD_ASSUME_HERMITIAN || s->assume == BLASD_ASSUME_POSITIVE_DEFINITE;
    double sign = s->assume == BLASD_ASSUME_SYMMETRIC ? -1 : 1;
    int64_t at = start + 4 * i * s->n + 2 * j;
    if (hermitian && s->transposed) im = -im;
    put(to, at, re);
    /* on a Hermitian diagonal this is the upper triangle, which counts, and below is what differs
     */
    put(to, at + 1, hermitian && i == j ? 0 : -im);
    put(to, at + 2 * s->n, sign * im);
    put(to, at + 2 * s->n + 1, sign * re);
}

/* Where unknown i stands in the real system. */
static int64_t place(bool reversed, int64_t n, int64_t i) {
    return reversed ? n - 1 - i : i;
}

static void widen_matrix(const struct blasd_solve *s, const struct blasd_solve_layout *layout,
                         const struct blasd_tensor *a, int64_t item,
                         const struct blasd_tensor *to) {
    int64_t n = s->n, start = item * n * n, done = 0;
    bool reversed = layout->assume == BLASD_ASSUME_LOWER_TRIANGULAR;
    for (int64_t i = 0; i < n && blasd_wanted_after(&done, 8 * n); i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t at = 2 * (start + i * layout->a_row + j * layout->a_column);
            bool zero =
                (reversed && i < j) || (layout->assume == BLASD_ASSUME_UPPER_TRIANGULAR && i > j);
            widen_element(s, zero ? 0 : part(a, at), zero ? 0 : part(a, at + 1),
                          place(reversed, n, i), place(reversed, n, j), to, 4 * start);
        }
}

static void widen_columns(const struct blasd_solve *s, const struct blasd_solve_layout *layout,
                          const struct blasd_tensor *b, int64_t item,
                          const struct blasd_tensor *to) {
    int64_t n = s->n, k = s->columns, start = item * n * k, done = 0;
    double sign = s->assume == BLASD_ASSUME_SYMMETRIC ? -1 : 1;
    bool reversed = layout->assume == BLASD_ASSUME_LOWER_TRIANGULAR;
    for (int64_t i = 0; i < n && blasd_wanted_after(&done, 4 * k); i++)
        for (int64_t c = 0; c < k; c++) {
            int64_t row = 2 * place(reversed, n, i);
            int64_t at = 2 * (start + i * layout->b_row + c * layout->b_column);
            put(to, 2 * start + row * k + c, part(b, at));
            put(to, 2 * start + (row + 1) * k + c, sign * part(b, at + 1));
        }
}

/* ---- tasks ---- */

static int64_t items_of(const int64_t *batch, int rank) {
    int64_t items = 1;
    for (int i = 0; i < rank; i++) items *= batch[i];
    return items;
}

/* A tensor with memory of its own. */
static bool own(struct blasd_tensor *tensor) {
    tensor->data = blasd_cpu_alloc((size_t)blasd_tensor_bytes(tensor), 1);
    return tensor->data != NULL;
}

static bool widen(struct blasd_embedding *e, const struct blasd_task *from, struct blasd_task *to) {
    const struct blasd_solve *s = &e->solve;
    const struct blasd_tensor *a = &from->inputs[BLASD_SOLVE_A], *b = &from->inputs[BLASD_SOLVE_B];
    struct blasd_solve_layout layout = blasd_solve_layout(s, a, b);
    struct blasd_tensor *outputs = to->outputs;
    e->reversed = layout.assume == BLASD_ASSUME_LOWER_TRIANGULAR;
    to->inputs[BLASD_SOLVE_FACTOR] = from->inputs[BLASD_SOLVE_FACTOR];
    to->job = &e->job;
    to->plan = &e->plan;
    for (int i = BLASD_SOLVE_A; i <= BLASD_SOLVE_B; i++) {
        to->inputs[i] = e->job.inputs[i].tensor;
        if (!own(&to->inputs[i])) return false;
    }
    for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) outputs[o] = e->plan.outputs[o];
    for (int o = BLASD_SOLVE_INFO; o <= BLASD_SOLVE_ERROR_ESTIMATE; o++)
        outputs[o] = from->outputs[o];
    if (!own(&outputs[BLASD_SOLVE_X])) return false;
    if (s->certify && !own(&outputs[BLASD_SOLVE_ERROR_BOUND])) return false;
    for (int64_t i = 0; i < items_of(s->a_batch, s->a_rank); i++)
        widen_matrix(s, &layout, a, i, &to->inputs[BLASD_SOLVE_A]);
    for (int64_t i = 0; i < items_of(s->b_batch, s->b_rank); i++)
        widen_columns(s, &layout, b, i, &to->inputs[BLASD_SOLVE_B]);
    return true;
}

int blasd_embedding_new(const struct blasd_task *tasks, int count, struct blasd_embedding **ret,
                        struct blasd_err *err) {
    struct blasd_embedding *e;
    int code;
    *ret = NULL;
    if (blasd_dtype_parts(tasks[0].plan->input_dtype[BLASD_SOLVE_A]) == 1) return 0;
    e = calloc(1, sizeof *e);
    if (e == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to solve in");
    e->count = count;
    e->tasks = calloc((size_t)count, sizeof *e->tasks);
    code = e->tasks == NULL ? blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to solve in")
                            : blasd_solve_read(tasks[0].job, &e->solve, err);
    if (code == 0) {
        blasd_embedding_job(tasks[0].job, &e->job);
        code = blasd_job_plan(&e->job, &e->plan, err);
    }
    for (int t = 0; code == 0 && t < count; t++)
        if (!widen(e, &tasks[t], &e->tasks[t]))
            code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a system of %lld",
                              2 * (long long)e->solve.n);
    if (code != 0)
        blasd_embedding_free(e);
    else
        *ret = e;
    return code;
}

void blasd_embedding_free(struct blasd_embedding *e) {
    if (e == NULL) return;
    for (int t = 0; e->tasks != NULL && t < e->count; t++) {
        free(e->tasks[t].inputs[BLASD_SOLVE_A].data);
        free(e->tasks[t].inputs[BLASD_SOLVE_B].data);
        free(e->tasks[t].outputs[BLASD_SOLVE_X].data);
        free(e->tasks[t].outputs[BLASD_SOLVE_ERROR_BOUND].data);
    }
    free(e->tasks);
    free(e);
}

/* ---- results ---- */

/* At least the distance whose parts are at most these. */
static double distance(double re, double im) {
    double size = hypot(re, im);
    return size > 0 ? nextafter(size * (1 + 0x1p-50), INFINITY) : size;
}

static void narrow(const struct blasd_embedding *e, const struct blasd_task *from,
                   const struct blasd_task *to) {
    const struct blasd_solve *s = &e->solve;
    const struct blasd_tensor *x = &from->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *bound = &from->outputs[BLASD_SOLVE_ERROR_BOUND];
    int64_t k = s->columns, elements = s->batch_count * s->n * k, done = 0;
    for (int64_t at = 0; at < elements && blasd_wanted_after(&done, 8); at++) {
        int64_t row = at / k / s->n * s->n + place(e->reversed, s->n, at / k % s->n);
        int64_t re = 2 * row * k + at % k, im = re + k;
        put(&to->outputs[BLASD_SOLVE_X], 2 * at, part(x, re));
        put(&to->outputs[BLASD_SOLVE_X], 2 * at + 1, part(x, im));
        if (s->certify)
            put(&to->outputs[BLASD_SOLVE_ERROR_BOUND], at,
                distance(part(bound, re), part(bound, im)));
    }
}

/* Of the real matrix it was said that it is not symmetric: a Hermitian one would be, and the
 * complex one may be. */
static void name_hermitian(const struct blasd_solve *s, struct blasd_task *task) {
    static const char symmetric[] = "not symmetric", hermitian[] = "not Hermitian";
    if (s->assume == BLASD_ASSUME_SYMMETRIC) return;
    for (int i = 0; i < task->warning_count; i++) {
        char *at = strstr(task->warnings[i].text, symmetric);
        if (at != NULL) memcpy(at, hermitian, sizeof hermitian - 1);
    }
}

void blasd_embedding_take(const struct blasd_embedding *e, struct blasd_task *tasks) {
    for (int t = 0; t < e->count; t++) {
        const struct blasd_task *from = &e->tasks[t];
        struct blasd_task *to = &tasks[t];
        int64_t *info = to->outputs[BLASD_SOLVE_INFO].data;
        double *error = to->outputs[BLASD_SOLVE_BACKWARD_ERROR].data;
        /* of vectors of parts, whose largest is at least 1/sqrt(2) of the numbers' (1/2 of the sum
         * of their parts), as it is of the residual: a bound in either size */
        for (int64_t i = 0; i < e->solve.batch_count; i++) error[i] *= 2;
        /* pivots 2 k - 1 and 2 k are those of unknown k */
        for (int64_t i = 0; i < e->solve.batch_count; i++)
            if (info[i] > 0) info[i] = 1 + place(e->reversed, e->solve.n, (info[i] - 1) / 2);
        memcpy(to->method, from->method, sizeof to->method);
        memcpy(to->warnings, from->warnings, sizeof to->warnings);
        to->warning_count = from->warning_count;
        name_hermitian(&e->solve, to);
        to->upload_us = from->upload_us;
        to->download_us = from->download_us;
        to->compute_us = from->compute_us;
        to->upload_bytes = from->upload_bytes;
        to->download_bytes = from->download_bytes;
        to->energy_joules = from->energy_joules;
        if (from->err.code == BLASD_E_singular_matrix ||
            from->err.code == BLASD_E_not_positive_definite)
            blasd_solve_refuse(to, info[0], from->err.code == BLASD_E_singular_matrix);
        else
            to->err = from->err;
        if (to->err.code == BLASD_OK) narrow(e, from, to);
    }
}
