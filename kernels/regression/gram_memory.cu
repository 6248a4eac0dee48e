/* Where the arrays of a batch of regressions lie. Read next: gram_plan.cuh. */
#include "kernels/regression/gram_plan.cuh"

extern "C" {
#include "kernels/cpu/cpu.h"
}

#define ROOM_BYTES (256 << 20) /* for targets of lasso that are worked on at once */

/* Device memory for `each` elements of every problem. */
template <class T>
static int take(struct blasd_cuda_job *job, int64_t problems, int64_t each, T **ret,
                struct blasd_err *err) {
    size_t bytes;
    if (__builtin_mul_overflow((size_t)problems * sizeof(T), (size_t)each, &bytes))
        return blasd_fail(err, BLASD_E_out_of_memory, "", "the batch is too large for the device");
    return blasd_cuda_take(job, bytes, (void **)ret, err);
}

/* The same, and it comes back to the host. */
template <class T>
static int take_back(struct blasd_cuda_job *job, int64_t problems, int64_t each, T **host, T **ret,
                     struct blasd_err *err) {
    size_t bytes;
    if (__builtin_mul_overflow((size_t)problems * sizeof(T), (size_t)each, &bytes))
        return blasd_fail(err, BLASD_E_out_of_memory, "", "the batch is too large for the device");
    return blasd_cuda_return(job, bytes, (void **)host, (void **)ret, err);
}

/* ---- where the data are ---- */

/* Room for what came as float32 as float64; *spans and *wide are what is to be filled in. */
static int make_widening(struct blasd_cuda_job *job, struct gram_plan *plan,
                         struct gram_span **spans, double **wide, struct blasd_err *err) {
    struct gram_widening *w = &plan->widening;
    int64_t all = 0;
    int code;
    for (int t = 0; t < job->count; t++)
        for (int i = IN_X; i <= IN_WEIGHT; i++) {
            const struct blasd_tensor *input = &job->tasks[t].inputs[i];
            int64_t elements;
            if (input->data == nullptr || input->dtype != BLASD_float32) continue;
            elements = blasd_tensor_elements(input);
            w->count++;
            all += elements;
            w->longest = elements > w->longest ? elements : w->longest;
        }
    if (w->count == 0) return 0;
    code = blasd_cuda_table(job, (size_t)w->count * sizeof **spans, (void **)spans,
                            (void **)&w->spans, err);
    return code == 0 ? take(job, all, 1, wide, err) : code;
}

/* Where the kernels find input `i` of a task. */
static const double *place_of(struct blasd_cuda_job *job, int task, int i, struct gram_span **next,
                              double **wide) {
    const struct blasd_tensor *input = &job->tasks[task].inputs[i];
    void *in = blasd_cuda_in(job, task, i);
    struct gram_span *span = *next;
    if (input->data == nullptr || input->dtype != BLASD_float32) return (const double *)in;
    *span = {(const float *)in, *wide, blasd_tensor_elements(input)};
    *wide += span->count;
    ++*next;
    return span->to;
}

/* Each problem's data, and its residuals. */
static int make_tables(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    const struct regression_shape *shape = &plan->shape;
    int64_t problems = plan->gram.problems, rows = shape->n * shape->t;
    size_t size = blasd_dtype_size(shape->storage);
    struct gram_data *data;
    char **residuals = nullptr, **fitted = nullptr;
    const double *from[IN_WEIGHT + 1] = {};
    struct gram_span *spans = nullptr;
    double *wide = nullptr;
    struct blasd_walk walk;
    int code = blasd_cuda_table(job, (size_t)problems * sizeof *data, (void **)&data,
                                (void **)&plan->arrays.data, err);
    if (code == 0 && shape->residuals)
        code = blasd_cuda_table(job, (size_t)problems * sizeof(char *), (void **)&residuals,
                                (void **)&plan->outputs.residuals, err);
    if (code == 0 && shape->residuals)
        code = blasd_cuda_table(job, (size_t)problems * sizeof(char *), (void **)&fitted,
                                (void **)&plan->outputs.fitted, err);
    if (code == 0) code = make_widening(job, plan, &spans, &wide, err);
    for (int64_t number = 0; code == 0 && number < problems; number++) {
        int task = (int)(number / shape->problems);
        int64_t at = number % shape->problems;
        if (at == 0) blasd_regression_walk(shape, &job->tasks[task], 0, &walk);
        for (int i = IN_X; at == 0 && i <= IN_WEIGHT; i++)
            from[i] = place_of(job, task, i, &spans, &wide);
        data[number].x = from[IN_X] + walk.offset[0] * shape->n * shape->p;
        data[number].y = from[IN_Y] + walk.offset[1] * shape->n * shape->t;
        if (shape->weighted) data[number].w = from[IN_WEIGHT] + walk.offset[2] * shape->n;
        if (residuals != nullptr) {
            residuals[number] =
                (char *)blasd_cuda_out(job, task, OUT_RESIDUALS) + (size_t)(at * rows) * size;
            fitted[number] =
                (char *)blasd_cuda_out(job, task, OUT_FITTED) + (size_t)(at * rows) * size;
        }
        blasd_walk_next(&walk);
    }
    return code;
}

/* ---- what is made of them ---- */

/* What every method needs: the matrix and its factor. */
static int take_common(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    struct gram_arrays *a = &plan->arrays;
    int64_t problems = plan->gram.problems, q = plan->shape.q, t = plan->shape.t;
    int64_t ranges = gram_range_blocks(&plan->gram) * gram_range_numbers(plan->gram);
    int code = take(job, problems, q + t, &a->columns, err);
    if (code == 0) code = take(job, problems, ranges, &plan->ranges, err);
    if (code == 0) code = take(job, problems, 1, &a->total, err);
    if (code == 0) code = take(job, problems, 1, &a->weight_scale, err);
    if (code == 0) code = take_back(job, problems, t + 1, &plan->results.unit, &a->unit, err);
    if (code == 0) code = take(job, problems, q * q, &a->gram, err);
    if (code == 0) code = take(job, problems, q * t, &a->with_y, err);
    if (code == 0) code = take(job, problems, t, &a->squares, err);
    if (code == 0) code = take(job, problems, q, &a->pivots, err);
    if (code == 0) code = take(job, problems, q * t, &a->b, err);
    if (code == 0) code = blasd_cuda_take(job, gram_scratch_bytes(&plan->gram), &a->scratch, err);
    if (code == 0) code = take_back(job, problems, t, &plan->results.tss, &a->tss, err);
    return code;
}

/* For the triangle that goes to the host. */
static int take_triangle(struct blasd_cuda_job *job, struct gram_plan *plan,
                         struct blasd_err *err) {
    struct gram_arrays *a = &plan->arrays;
    struct regression_results *back = &plan->results;
    int64_t problems = plan->gram.problems, q = plan->shape.q, t = plan->shape.t;
    int code = take_back(job, problems, q * q, &back->r, &a->r, err);
    if (code == 0) code = take_back(job, problems, q * t, &back->z, &a->z, err);
    if (code == 0) code = take_back(job, problems, t, &back->rest, &a->rest, err);
    if (code == 0) code = take_back(job, problems, q + t, &back->exponent, &a->exponent, err);
    return code;
}

/* For coefficients and their residuals. */
static int take_rows(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    struct gram_arrays *a = &plan->arrays;
    struct regression_results *back = &plan->results;
    int64_t problems = plan->gram.problems, q = plan->shape.q, t = plan->shape.t;
    int code = take_back(job, problems, q * t, &back->coef, &a->coef, err);
    if (code == 0) code = take_back(job, problems, t, &back->ssr, &a->ssr, err);
    if (code != 0 || blasd_regression_sparse(&plan->shape)) return code;
    code = take(job, problems, q * 2 * t, &a->slopes, err);
    if (code == 0) code = take(job, problems, 2 * t, &a->left_squares, err);
    if (code == 0) code = take(job, problems, plan->shape.n * 2 * t, &a->left, err);
    return code;
}

/* For the covariance of least squares. */
static int take_basis(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    struct gram_arrays *a = &plan->arrays;
    struct regression_results *back = &plan->results;
    int64_t problems = plan->gram.problems, q = plan->shape.q, t = plan->shape.t;
    int code = take(job, problems, q * q, &a->inverse, err);
    if (code == 0) code = take_back(job, problems, q * q, &back->basis, &a->basis, err);
    if (code == 0) code = take_back(job, problems, q, &back->singular, &a->singular, err);
    if (code != 0 || !plan->outputs.robust) return code;
    code = take(job, problems, t * plan->shape.n, &a->row_weight, err);
    if (code == 0) code = take(job, problems, q * q, &plan->weighted, err);
    if (code == 0) code = take_back(job, problems, t * q * q, &back->middle, &a->middle, err);
    return code;
}

/* For gd. */
static int take_descent(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    struct gram_descent *d = &plan->descent;
    int64_t problems = plan->gram.problems, q = plan->shape.q, t = plan->shape.t;
    int code = take(job, problems, q * q, &d->g, err);
    d->learning_rate = plan->shape.learning_rate;
    if (code == 0) code = take(job, problems, q * t, &d->h, err);
    if (code == 0) code = take(job, problems, q * t, &d->b, err);
    if (code == 0) code = take(job, problems, q * t, &d->other, err);
    if (code == 0)
        code = take_back(job, problems, 2 * q * t, &plan->results.slopes, &d->slopes, err);
    return code;
}

/* For lasso and elastic_net. */
static int take_sparse(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    const struct regression_shape *shape = &plan->shape;
    struct gram_sparse *s = &plan->sparse;
    struct regression_results *back = &plan->results;
    int64_t problems = plan->gram.problems, p = shape->p, t = shape->t;
    int64_t each = problems * gram_sparse_room(p) * (int64_t)sizeof *s->room, rooms;
    double ratio = shape->method == METHOD_LASSO ? 1 : shape->l1_ratio;
    int code = take(job, problems, p * p, &s->gram, err);
    if (code == 0) code = take(job, problems, p * t, &s->with_y, err);
    if (code == 0) code = take(job, problems, t, &s->squares, err);
    if (code == 0) code = take(job, problems, p * t, &s->b, err);
    if (code == 0) code = take(job, problems, t, &s->progress, err);
    if (code == 0) code = take_back(job, problems, t, &back->gap, &s->gap, err);
    if (code == 0) code = take_back(job, problems, t, &back->sweeps, &s->sweeps, err);
    rooms = each > 0 ? ROOM_BYTES / each : t;
    s->rooms = (int)(rooms < 1 ? 1 : rooms < t ? rooms : t);
    s->l1 = shape->alpha * ratio;
    s->l2 = shape->alpha * (1 - ratio);
    s->tol = shape->tol;
    if (code == 0) code = take(job, problems * s->rooms, gram_sparse_room(p), &s->room, err);
    return code;
}

int gram_take(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    int code = make_tables(job, plan, err);
    if (code == 0) code = take_common(job, plan, err);
    if (code == 0 && plan->wants.triangle) code = take_triangle(job, plan, err);
    if (code == 0) code = take_rows(job, plan, err);
    if (code == 0 && plan->wants.basis) code = take_basis(job, plan, err);
    if (code == 0 && plan->shape.method == METHOD_GD) code = take_descent(job, plan, err);
    if (code == 0 && blasd_regression_sparse(&plan->shape)) code = take_sparse(job, plan, err);
    return code;
}
