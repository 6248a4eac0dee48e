/* Products that do not fit the device: tiles of a and b go up, tiles of the result come down, each
 * behind the work that reads or writes them, so that all three overlap. Read next: tiny.cuh. */
#include "kernels/matmul/slices.cuh"

#include <math.h>

static bool stored_transposed(const struct blasd_tensor *tensor,
                              const struct blasd_matmul_operand *operand) {
    bool column_major = tensor->rank == 2 && tensor->order == BLASD_COLUMN_MAJOR;
    return operand->transposed != column_major;
}

/* Steps of an operand whose leading lengths broadcast to the batch's. */
static void walk_steps(int64_t *steps, int rank, int own_rank, const int64_t *own, int64_t step) {
    for (int d = 0; d < rank; d++) steps[d] = 0;
    for (int d = own_rank - 1; d >= 0; d--) {
        steps[d + rank - own_rank] = own[d] == 1 ? 0 : step;
        step *= own[d];
    }
}

/* c is right-aligned against the result: its last lengths are those of rows and columns, where the
 * result has these. */
static void read_c(struct stack *stack, const struct blasd_task *task) {
    const struct blasd_tensor *c = &task->inputs[BLASD_MATMUL_C];
    bool rows = task->inputs[BLASD_MATMUL_A].rank > 1;
    bool columns = task->inputs[BLASD_MATMUL_B].rank > 1;
    int rank = c->rank;
    int64_t step = 1;
    if (!stack->mm.add_c) return;
    if (columns && rank > 0) {
        rank--;
        stack->c_column = c->shape[rank] == 1 ? 0 : step;
        step *= c->shape[rank];
    }
    if (rows && rank > 0) {
        rank--;
        stack->c_row = c->shape[rank] == 1 ? 0 : step;
        step *= c->shape[rank];
    }
    walk_steps(stack->walk.c, stack->mm.batch_rank, rank, c->shape, step);
}

int read_stack(struct stack *stack, const struct blasd_task *task, struct blasd_err *err) {
    const struct blasd_tensor *a = &task->inputs[BLASD_MATMUL_A];
    const struct blasd_tensor *b = &task->inputs[BLASD_MATMUL_B];
    struct blasd_matmul *mm = &stack->mm;
    int code = blasd_matmul_read(task->job, mm, err);
    if (code != 0) return code;
    /* modulo 2^64, signed and unsigned integers are the same bits */
    stack->dtype = mm->exact ? BLASD_uint64 : a->dtype;
    stack->out = mm->exact ? BLASD_uint64 : task->outputs[0].dtype;
    stack->sum = blasd_dtype_size(stack->dtype) == 2 ? BLASD_float32 : stack->dtype;
    stack->added = mm->add_c && !mm->exact ? task->inputs[BLASD_MATMUL_C].dtype : stack->sum;
    if (blasd_dtype_size(stack->out) == 2 && stack->dtype != stack->out)
        return blasd_fail(err, BLASD_E_internal_error, "", "a half product of %s factors",
                          blasd_dtype_name(stack->dtype));
    stack->trans_a = stored_transposed(a, &mm->a);
    stack->trans_b = stored_transposed(b, &mm->b);
    stack->walk = {};
    stack->walk.rank = mm->batch_rank;
    for (int d = 0; d < mm->batch_rank; d++) stack->walk.shape[d] = mm->batch[d];
    walk_steps(stack->walk.a, mm->batch_rank, mm->a.batch_rank, mm->a.batch, 1);
    walk_steps(stack->walk.b, mm->batch_rank, mm->b.batch_rank, mm->b.batch, 1);
    stack->c_row = stack->c_column = 0;
    read_c(stack, task);
    return 0;
}

static dim3 blocks_for(int64_t elements, const struct blasd_gpu_facts *facts) {
    int64_t blocks = (elements + 255) / 256, most = (int64_t)facts->units * 64;
    return dim3((unsigned)(blocks < most ? blocks : most));
}

template <class Target, class C>
static int blend_of(struct blasd_cuda_job *job, const struct blend *blend, struct blasd_err *err) {
    return blasd_launch(blend_elements<Target, C>, blocks_for(blend->elements, job->facts),
                        dim3(256), 0, job->stream, err, *blend);
}

int launch_blend(struct blasd_cuda_job *job, enum blasd_dtype target, enum blasd_dtype added,
                 const struct blend *blend, struct blasd_err *err) {
    if (target == BLASD_float64) return blend_of<double, double>(job, blend, err);
    if (target == BLASD_complex128) return blend_of<complex128, complex128>(job, blend, err);
    if (target == BLASD_complex64) return blend_of<complex64, complex64>(job, blend, err);
    if (target == BLASD_float16) return blend_of<float16_bits, float16_bits>(job, blend, err);
    if (target == BLASD_bfloat16) return blend_of<bfloat16_bits, bfloat16_bits>(job, blend, err);
    if (added == BLASD_float16) return blend_of<float, float16_bits>(job, blend, err);
    if (added == BLASD_bfloat16) return blend_of<float, bfloat16_bits>(job, blend, err);
    return blend_of<float, float>(job, blend, err);
}

int launch_round(struct blasd_cuda_job *job, enum blasd_dtype out, const struct across_tasks *from,
                 const struct across_tasks *to, int64_t each, int64_t elements,
                 struct blasd_err *err) {
    dim3 blocks = blocks_for(elements, job->facts);
    if (out == BLASD_float16)
        return blasd_launch(round_elements<float16_bits>, blocks, dim3(256), 0, job->stream, err,
                            *from, *to, each, elements);
    return blasd_launch(round_elements<bfloat16_bits>, blocks, dim3(256), 0, job->stream, err,
                        *from, *to, each, elements);
}

/* Two buffers of each kind, used in turn. */
struct tiles {
    struct stack stack;
    int64_t m, n, k;                               /* of a tile, at most */
    char *a[2], *b[2], *c[2], *target[2], *out[2]; /* out is target unless it is rounded */
    int factors_mark[2], c_mark[2], sent[2];       /* -1: not used yet */
    int factors_turn, turn;
    const char *host_a, *host_b, *host_c; /* of the item */
    char *host_out;
    enum blasd_gpu_rounding rounding;
};

/* Square tiles, or flatter ones where the matrices are: ten of them at most are on the device. */
static int take_tiles(struct blasd_cuda_job *job, struct tiles *tiles, struct blasd_err *err) {
    const struct blasd_matmul *mm = &tiles->stack.mm;
    size_t size = blasd_dtype_size(tiles->stack.dtype);
    size_t wide = blasd_dtype_size(tiles->stack.sum);
    size_t narrow = blasd_dtype_size(tiles->stack.out);
    double elements = (double)job->facts->memory_bytes / 4 / (double)wide;
    int64_t side = (int64_t)sqrt(elements / 10);
    int code = 0;
    if (side < 1) side = 1;
    tiles->k = mm->k < side ? mm->k : side;
    tiles->n = mm->n < side ? mm->n : side;
    tiles->m = mm->m < side ? mm->m : side;
    for (int i = 0; code == 0 && i < 2; i++) {
        size_t mn = (size_t)(tiles->m * tiles->n);
        code =
            blasd_cuda_take(job, (size_t)(tiles->m * tiles->k) * size, (void **)&tiles->a[i], err);
        if (code == 0)
            code = blasd_cuda_take(job, (size_t)(tiles->k * tiles->n) * size, (void **)&tiles->b[i],
                                   err);
        if (code == 0 && mm->add_c)
            code = blasd_cuda_take(job, mn * blasd_dtype_size(tiles->stack.added),
                                   (void **)&tiles->c[i], err);
        if (code == 0) code = blasd_cuda_take(job, mn * wide, (void **)&tiles->target[i], err);
        tiles->out[i] = tiles->target[i];
        if (code == 0 && narrow != wide)
            code = blasd_cuda_take(job, mn * narrow, (void **)&tiles->out[i], err);
        tiles->factors_mark[i] = tiles->c_mark[i] = tiles->sent[i] = -1;
    }
    return code;
}

/* The block of an operand from (row, column) on, as it is stored, becomes dense on the device. */
static int fetch_block(struct blasd_cuda_job *job, const struct tiles *tiles, char *device,
                       const char *host, bool trans, int64_t rows_all, int64_t columns_all,
                       int64_t row, int64_t column, int64_t rows, int64_t columns,
                       struct blasd_err *err) {
    size_t size = blasd_dtype_size(tiles->stack.dtype);
    int64_t ld = trans ? rows_all : columns_all;
    const char *from = host + (size_t)(trans ? column * ld + row : row * ld + column) * size;
    return blasd_cuda_fetch_rows(job, device, from, (size_t)(trans ? rows : columns) * size,
                                 (size_t)ld * size, trans ? columns : rows, err);
}

/* target = a b over the whole depth, tile after tile. */
static int multiply_tile(struct blasd_cuda_job *job, struct tiles *tiles, char *target, int64_t i,
                         int64_t j, int64_t m, int64_t n, struct blasd_err *err) {
    const struct stack *stack = &tiles->stack;
    const struct blasd_matmul *mm = &stack->mm;
    int code = 0;
    for (int64_t l = 0; code == 0 && l < mm->k; l += tiles->k) {
        int64_t k = mm->k - l < tiles->k ? mm->k - l : tiles->k;
        int turn = tiles->factors_turn ^= 1;
        struct blasd_gpu_gemm g = {};
        if (tiles->factors_mark[turn] >= 0)
            code = blasd_cuda_reuse(job, tiles->factors_mark[turn], err);
        if (code == 0)
            code = fetch_block(job, tiles, tiles->a[turn], tiles->host_a, stack->trans_a, mm->m,
                               mm->k, i, l, m, k, err);
        if (code == 0)
            code = fetch_block(job, tiles, tiles->b[turn], tiles->host_b, stack->trans_b, mm->k,
                               mm->n, l, j, k, n, err);
        g.dtype = stack->dtype;
        g.out = stack->sum; /* from one slice of k to the next, and rounded once at the end */
        g.rounding = tiles->rounding;
        g.trans_a = stack->trans_a;
        g.trans_b = stack->trans_b;
        g.m = m;
        g.n = n;
        g.k = k;
        g.alpha = 1;
        g.beta = l > 0 ? 1 : 0;
        g.a = tiles->a[turn];
        g.b = tiles->b[turn];
        g.c = target;
        g.lda = stack->trans_a ? m : k;
        g.ldb = stack->trans_b ? k : n;
        g.ldc = n;
        g.count = 1;
        if (code == 0) code = job->calls->gemm(job->stream, &g, err);
        if (code == 0) code = blasd_cuda_mark(job, &tiles->factors_mark[turn], err);
    }
    return code;
}

/* target = alpha * target + beta * c. */
static int blend_tile(struct blasd_cuda_job *job, struct tiles *tiles, int turn, int64_t i,
                      int64_t j, int64_t m, int64_t n, struct blasd_err *err) {
    const struct stack *stack = &tiles->stack;
    size_t size = blasd_dtype_size(stack->added);
    struct blend blend = {};
    int code = 0;
    if (!stack->mm.add_c && stack->mm.alpha == 1 && stack->mm.k > 0) return 0;
    blend.target.base = tiles->target[turn];
    blend.keep = stack->mm.k > 0;
    blend.factor = stack->mm.alpha;
    blend.m = m;
    blend.n = n;
    blend.items = 1;
    blend.elements = m * n;
    if (stack->mm.add_c) {
        int64_t rows = stack->c_row != 0 ? m : 1, columns = stack->c_column != 0 ? n : 1;
        const char *from = tiles->host_c + (size_t)(i * stack->c_row + j * stack->c_column) * size;
        blend.c.base = tiles->c[turn];
        blend.add_c = true;
        blend.beta = stack->mm.beta;
        blend.c_row = stack->c_row != 0 ? columns : 0;
        blend.c_column = stack->c_column != 0 ? 1 : 0;
        if (tiles->c_mark[turn] >= 0) code = blasd_cuda_reuse(job, tiles->c_mark[turn], err);
        if (code == 0)
            code = blasd_cuda_fetch_rows(
                job, tiles->c[turn], from, (size_t)columns * size,
                (size_t)(stack->c_row != 0 ? stack->c_row : columns) * size, rows, err);
    }
    if (code == 0) code = launch_blend(job, stack->sum, stack->added, &blend, err);
    if (code == 0) code = blasd_cuda_mark(job, &tiles->c_mark[turn], err);
    return code;
}

static int run_tile(struct blasd_cuda_job *job, struct tiles *tiles, int64_t i, int64_t j,
                    struct blasd_err *err) {
    const struct blasd_matmul *mm = &tiles->stack.mm;
    int64_t m = mm->m - i < tiles->m ? mm->m - i : tiles->m;
    int64_t n = mm->n - j < tiles->n ? mm->n - j : tiles->n;
    size_t size = blasd_dtype_size(tiles->stack.out);
    int turn = tiles->turn ^= 1, code = 0;
    struct across_tasks from = {}, to = {};
    if (tiles->sent[turn] >= 0) code = blasd_cuda_sent(job, tiles->sent[turn], err);
    if (code == 0) code = multiply_tile(job, tiles, tiles->target[turn], i, j, m, n, err);
    if (code == 0) code = blend_tile(job, tiles, turn, i, j, m, n, err);
    if (code == 0 && tiles->out[turn] != tiles->target[turn]) {
        from.base = tiles->target[turn];
        to.base = tiles->out[turn];
        code = launch_round(job, tiles->stack.out, &from, &to, m * n, m * n, err);
    }
    if (code != 0) return code;
    return blasd_cuda_send_rows(job, tiles->host_out + (size_t)(i * mm->n + j) * size,
                                tiles->out[turn], (size_t)n * size, (size_t)mm->n * size, m,
                                &tiles->sent[turn], err);
}

int run_slices(struct blasd_cuda_job *job, struct blasd_task *task,
               enum blasd_gpu_rounding rounding, struct blasd_err *err) {
    struct tiles tiles = {};
    const struct blasd_matmul *mm = &tiles.stack.mm;
    int code = read_stack(&tiles.stack, task, err);
    size_t size, narrow;
    if (code != 0 || blasd_tensor_elements(&task->outputs[0]) == 0) return code;
    tiles.rounding = rounding;
    size = blasd_dtype_size(tiles.stack.dtype);
    narrow = blasd_dtype_size(tiles.stack.out);
    code = take_tiles(job, &tiles, err);
    for (int64_t item = 0; code == 0 && item < mm->batch_count; item++) {
        const struct item_walk *walk = &tiles.stack.walk;
        tiles.host_a = (const char *)task->inputs[BLASD_MATMUL_A].data +
                       (size_t)(walk_to(*walk, walk->a, item) * mm->m * mm->k) * size;
        tiles.host_b = (const char *)task->inputs[BLASD_MATMUL_B].data +
                       (size_t)(walk_to(*walk, walk->b, item) * mm->k * mm->n) * size;
        tiles.host_out = (char *)task->outputs[0].data + (size_t)(item * mm->m * mm->n) * narrow;
        if (mm->add_c)
            tiles.host_c =
                (const char *)task->inputs[BLASD_MATMUL_C].data +
                (size_t)walk_to(*walk, walk->c, item) * blasd_dtype_size(tiles.stack.added);
        for (int64_t j = 0; code == 0 && j < mm->n; j += tiles.n)
            for (int64_t i = 0; code == 0 && i < mm->m; i += tiles.m) {
                double done =
                    ((double)j + (double)i / (double)mm->m * (double)tiles.n) / (double)mm->n;
                if (!blasd_cuda_go_on(job, ((double)item + (done < 1 ? done : 1)) /
                                               (double)mm->batch_count))
                    return blasd_cuda_stopped(err);
                code = run_tile(job, &tiles, i, j, err);
            }
    }
    return code;
}
