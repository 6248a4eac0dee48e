/* The passes over the data. Where they do not fit the device, rows come in slices, each pass once
 * more: everything that is made of rows is a sum over them. Two buffers, so that one slice travels
 * while the other is worked on. Read next: gram_plan.cuh, cuda_regression.cu. */
#include "kernels/regression/gram_plan.cuh"

/* One slice, or everything: the shape and arrays that the kernels are to see. */
struct view {
    struct gram_shape shape;
    struct gram_arrays arrays;
    struct gram_outputs outputs;
    int64_t from; /* its first row */
    int turn;
};

/* Rows of input `i`, to where the kernels read them or are widened from. */
static int fetch(struct blasd_cuda_job *job, const struct gram_plan *plan, const struct view *view,
                 int i, double *to, int64_t width, struct blasd_err *err) {
    const struct blasd_tensor *tensor = &job->tasks[0].inputs[i];
    size_t each = (size_t)width * blasd_dtype_size(tensor->dtype);
    float *narrow = plan->slices.narrow[view->turn][i];
    return blasd_cuda_fetch(job, narrow != nullptr ? (void *)narrow : (void *)to,
                            (const char *)tensor->data + (size_t)view->from * each,
                            (size_t)view->shape.n * each, err);
}

/* Brings slice `i` to the device. */
static int begin(struct blasd_cuda_job *job, struct gram_plan *plan, int64_t i, struct view *view,
                 struct blasd_err *err) {
    struct gram_slices *s = &plan->slices;
    const struct gram_widening *w = &plan->widening;
    int64_t rows;
    int code = 0;
    *view = {plan->gram, plan->arrays, plan->outputs, 0, 0};
    if (!s->sliced) return 0;
    if (!blasd_cuda_go_on(job, (double)plan->passed++ / (double)plan->passes))
        return blasd_cuda_stopped(err);
    view->turn = s->turn ^= 1;
    view->from = i * s->rows;
    rows = plan->shape.n - view->from < s->rows ? plan->shape.n - view->from : s->rows;
    view->shape.n = rows;
    view->arrays.data += view->turn;
    if (view->outputs.residuals != nullptr) {
        view->outputs.residuals += view->turn;
        view->outputs.fitted += view->turn;
    }
    if (s->mark[view->turn] >= 0) code = blasd_cuda_reuse(job, s->mark[view->turn], err);
    if (code == 0) code = fetch(job, plan, view, IN_X, s->x[view->turn], plan->shape.p, err);
    if (code == 0) code = fetch(job, plan, view, IN_Y, s->y[view->turn], plan->shape.t, err);
    if (code == 0 && plan->shape.weighted)
        code = fetch(job, plan, view, IN_WEIGHT, s->w[view->turn], 1, err);
    if (code != 0) return code;
    return gram_widen(w->spans + view->turn * w->count, w->count, w->longest, plan->gram.units,
                      &plan->way, err);
}

static int end(struct blasd_cuda_job *job, struct gram_plan *plan, const struct view *view,
               struct blasd_err *err) {
    if (!plan->slices.sliced) return 0;
    return blasd_cuda_mark(job, &plan->slices.mark[view->turn], err);
}

int gram_pass_ranges(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    const struct gram_slices *s = &plan->slices;
    struct gram_shape longest = plan->gram;
    struct view view;
    int each, all, code = 0;
    longest.n = s->rows;
    each = gram_range_blocks(&longest);
    all = (int)(each * s->count);
    for (int64_t i = 0; code == 0 && i < s->count; i++) {
        code = begin(job, plan, i, &view, err);
        if (code == 0)
            code = gram_ranges(&view.shape, &view.arrays, s->ranges, each, (int)i * each, all,
                               &plan->way, err);
        if (code == 0) code = end(job, plan, &view, err);
    }
    if (code != 0) return code;
    return gram_settle(&plan->gram, &plan->arrays, s->ranges, all, &plan->settling, &plan->way,
                       err);
}

int gram_pass_products(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    struct view view;
    int code = 0;
    for (int64_t i = 0; code == 0 && i < plan->slices.count; i++) {
        code = begin(job, plan, i, &view, err);
        if (code == 0) code = gram_products(&view.shape, &view.arrays, i > 0, &plan->way, err);
        if (code == 0) code = end(job, plan, &view, err);
    }
    return code;
}

int gram_pass_slopes(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    struct view view;
    int code = 0;
    for (int64_t i = 0; code == 0 && i < plan->slices.count; i++) {
        code = begin(job, plan, i, &view, err);
        if (code == 0) code = gram_leave(&view.shape, &view.arrays, &plan->way, err);
        if (code == 0) code = gram_slopes(&view.shape, &view.arrays, i > 0, &plan->way, err);
        if (code == 0) code = end(job, plan, &view, err);
    }
    return code;
}

/* Residuals of a slice to the host. */
static int send(struct blasd_cuda_job *job, struct gram_plan *plan, const struct view *view,
                struct blasd_err *err) {
    struct gram_slices *s = &plan->slices;
    struct blasd_tensor *out = job->tasks[0].outputs;
    size_t row = (size_t)plan->shape.t * blasd_dtype_size(plan->shape.storage);
    size_t bytes = (size_t)view->shape.n * row, at = (size_t)view->from * row;
    int code = blasd_cuda_send(job, (char *)out[OUT_RESIDUALS].data + at, s->residuals[view->turn],
                               bytes, nullptr, err);
    if (code != 0) return code;
    return blasd_cuda_send(job, (char *)out[OUT_FITTED].data + at, s->fitted[view->turn], bytes,
                           &s->sent[view->turn], err);
}

/* What the rows of a view give the middles; of whole data, the middles themselves. */
static int robust(struct gram_plan *plan, const struct view *view, bool add,
                  struct blasd_err *err) {
    const struct gram_shape *g = &plan->gram;
    bool sliced = plan->slices.sliced;
    int64_t step = sliced ? (int64_t)g->q * g->q : 0;
    int code = 0;
    for (int l = 0; code == 0 && l < g->t; l++) {
        code = gram_weighted(&view->shape, &view->arrays, l, plan->weighted + l * step, add,
                             &plan->way, err);
        /* the matrix itself is not needed any more: it is room for the sandwich */
        if (code == 0 && !sliced)
            code = gram_sandwich(g, &plan->arrays, l, plan->weighted, plan->arrays.gram, &plan->way,
                                 err);
    }
    return code;
}

int gram_pass_rows(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    struct gram_slices *s = &plan->slices;
    const struct gram_shape *g = &plan->gram;
    struct view view;
    int code = 0;
    if (!plan->shape.residuals && !plan->outputs.robust) return 0;
    for (int64_t i = 0; code == 0 && i < s->count; i++) {
        code = begin(job, plan, i, &view, err);
        if (code == 0 && s->sliced && s->sent[view.turn] >= 0)
            code = blasd_cuda_sent(job, s->sent[view.turn], err);
        if (code == 0)
            code = gram_put_rows(&view.shape, &view.arrays, &view.outputs, &plan->way, err);
        if (code == 0 && plan->outputs.robust) code = robust(plan, &view, i > 0, err);
        if (code == 0) code = end(job, plan, &view, err);
        if (code == 0 && s->sliced && plan->shape.residuals) code = send(job, plan, &view, err);
    }
    for (int l = 0; code == 0 && plan->outputs.robust && s->sliced && l < g->t; l++)
        code = gram_sandwich(g, &plan->arrays, l, plan->weighted + (int64_t)l * g->q * g->q,
                             plan->arrays.gram, &plan->way, err);
    return code;
}
