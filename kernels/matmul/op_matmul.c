/* matmul: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_matmul.c. */
#include "base/err.h"
#include "core/op.h"
#include "kernels/exact/exact.h"
#include "kernels/matmul/matmul.h"

#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Above this many operations sharing a call with others gains nothing. */
#define ALONE_FLOPS 2e9
#define NUMBERS                                                                                    \
    (BLASD_DTYPES_FLOAT | BLASD_DTYPES_HALF | BLASD_DTYPES_INTEGER | BLASD_DTYPES_COMPLEX)
#define WHOLE (BLASD_DTYPE_BIT(BLASD_int64) | BLASD_DTYPE_BIT(BLASD_uint64))

static const char *const precisions[] = {[BLASD_MATMUL_NATIVE] = "native",
                                         [BLASD_MATMUL_TF32] = "tf32",
                                         [BLASD_MATMUL_BF16] = "bf16",
                                         [BLASD_MATMUL_FP64_EMULATED] = "fp64_emulated",
                                         NULL};
static const char *const roundings[] = BLASD_ROUNDING_NAMES;

#define BLASD_DECLARED "kernels/matmul/matmul.def"
#include "core/op_tables.h"

static int read_operand(const struct blasd_tensor *tensor, bool left, bool transpose,
                        struct blasd_matmul_operand *ret, const char *field,
                        struct blasd_err *err) {
    int rank = tensor->rank;
    memset(ret, 0, sizeof *ret);
    if (rank == 1) {
        ret->rows = left ? 1 : tensor->shape[0];
        ret->columns = left ? tensor->shape[0] : 1;
    } else {
        ret->rows = tensor->shape[rank - (transpose ? 1 : 2)];
        ret->columns = tensor->shape[rank - (transpose ? 2 : 1)];
        ret->transposed = transpose;
        ret->batch_rank = rank - 2;
        for (int i = 0; i < rank - 2; i++) ret->batch[i] = tensor->shape[i];
    }
    /* BLAS counts rows and columns in 32 bits */
    if (ret->rows > INT_MAX || ret->columns > INT_MAX)
        return blasd_fail(err, BLASD_E_invalid_shape, field,
                          "a matrix may have at most %d rows and columns", INT_MAX);
    return 0;
}

static int check_c(const struct blasd_tensor *c, const struct blasd_tensor *out,
                   struct blasd_err *err) {
    int64_t both[BLASD_MAX_RANK];
    char got[96], wanted[96];
    int rank = blasd_shape_broadcast(c->shape, c->rank, out->shape, out->rank, both);
    if (rank == out->rank && memcmp(both, out->shape, (size_t)rank * sizeof *both) == 0) return 0;
    return blasd_fail(err, BLASD_E_shape_mismatch, "inputs.c",
                      "shape %s does not broadcast to the product's, %s",
                      blasd_tensor_shape_text(c, got, sizeof got),
                      blasd_tensor_shape_text(out, wanted, sizeof wanted));
}

/* The shape of the result, whose dtype is set elsewhere. */
static struct blasd_tensor result_shape(const struct blasd_job *job,
                                        const struct blasd_matmul *mm) {
    struct blasd_tensor out = blasd_tensor_make(BLASD_float64, mm->batch_rank, mm->batch);
    if (job->inputs[BLASD_MATMUL_A].tensor.rank > 1) out.shape[out.rank++] = mm->m;
    if (job->inputs[BLASD_MATMUL_B].tensor.rank > 1) out.shape[out.rank++] = mm->n;
    return out;
}

int blasd_matmul_read(const struct blasd_job *job, struct blasd_matmul *ret,
                      struct blasd_err *err) {
    const struct blasd_tensor *a = &job->inputs[BLASD_MATMUL_A].tensor;
    const struct blasd_tensor *b = &job->inputs[BLASD_MATMUL_B].tensor;
    bool has_c = blasd_job_has(job, BLASD_MATMUL_C);
    struct blasd_tensor out;
    char shape_a[96], shape_b[96];
    int code;
    memset(ret, 0, sizeof *ret);
    code = read_operand(a, true, job->params[BLASD_MATMUL_TRANSPOSE_A].b, &ret->a, "inputs.a", err);
    if (code == 0)
        code = read_operand(b, false, job->params[BLASD_MATMUL_TRANSPOSE_B].b, &ret->b, "inputs.b",
                            err);
    if (code != 0) return code;
    if (ret->a.columns != ret->b.rows)
        return blasd_fail(err, BLASD_E_shape_mismatch, "inputs.b",
                          "a %s%s has rows of %lld, b %s%s has columns of %lld",
                          blasd_tensor_shape_text(a, shape_a, sizeof shape_a),
                          ret->a.transposed ? " transposed" : "", (long long)ret->a.columns,
                          blasd_tensor_shape_text(b, shape_b, sizeof shape_b),
                          ret->b.transposed ? " transposed" : "", (long long)ret->b.rows);
    ret->m = ret->a.rows;
    ret->k = ret->a.columns;
    ret->n = ret->b.columns;
    ret->batch_rank = blasd_shape_broadcast(ret->a.batch, ret->a.batch_rank, ret->b.batch,
                                            ret->b.batch_rank, ret->batch);
    if (ret->batch_rank < 0)
        return blasd_fail(err, BLASD_E_shape_mismatch, "inputs.b",
                          "the batch dimensions of a %s and b %s do not broadcast",
                          blasd_tensor_shape_text(a, shape_a, sizeof shape_a),
                          blasd_tensor_shape_text(b, shape_b, sizeof shape_b));
    out = result_shape(job, ret);
    code = blasd_tensor_check(&out, "inputs", err); /* so that no product of lengths overflows */
    if (code != 0) return code;
    ret->batch_count = 1;
    for (int i = 0; i < ret->batch_rank; i++) ret->batch_count *= ret->batch[i];
    ret->alpha = job->params[BLASD_MATMUL_ALPHA].f;
    ret->beta = job->params[BLASD_MATMUL_BETA].f;
    ret->add_c = has_c && ret->beta != 0;
    ret->exact = job->params[BLASD_MATMUL_EXACT].b;
    ret->correct = job->params[BLASD_MATMUL_ROUNDING].choice == BLASD_ROUNDING_CORRECT;
    if (!has_c && job->params[BLASD_MATMUL_BETA].given && ret->beta != 0)
        return blasd_fail(err, BLASD_E_missing_input, "inputs.c", "beta is given without c");
    return has_c ? check_c(&job->inputs[BLASD_MATMUL_C].tensor, &out, err) : 0;
}

struct blasd_matmul_steps blasd_matmul_steps(const struct blasd_tensor *tensor,
                                             const struct blasd_matmul_operand *operand) {
    bool column_major = tensor->rank == 2 && tensor->order == BLASD_COLUMN_MAJOR;
    bool swapped = operand->transposed != column_major;
    return (struct blasd_matmul_steps){.matrix = operand->rows * operand->columns,
                                       .row = swapped ? 1 : operand->columns,
                                       .column = swapped ? operand->rows : 1};
}

int64_t blasd_matmul_place_of_c(const struct blasd_tensor *c, const struct blasd_tensor *out,
                                int64_t at) {
    int64_t place = 0, step = 1;
    for (int d = 1; d <= c->rank; d++) {
        int64_t length = c->shape[c->rank - d], all = out->shape[out->rank - d];
        if (length > 1) place += at % all * step;
        at /= all;
        step *= length;
    }
    return place;
}

/* NumPy's promotion among the floating and complex dtypes; integers count as float64. */
static enum blasd_dtype promote(enum blasd_dtype a, enum blasd_dtype b) {
    bool complex = blasd_dtype_parts(a) == 2 || blasd_dtype_parts(b) == 2, wide;
    a = blasd_dtype_part(a);
    b = blasd_dtype_part(b);
    if (blasd_dtype_kind(a) != 'f') a = BLASD_float64;
    if (blasd_dtype_kind(b) != 'f') b = BLASD_float64;
    wide = a == BLASD_float64 || b == BLASD_float64;
    if (complex) return wide ? BLASD_complex128 : BLASD_complex64;
    if (a == b) return a;
    return wide ? BLASD_float64 : BLASD_float32;
}

/* Exact: what the inputs are refused for, or the dtype of the result. */
static int plan_exact(const struct blasd_job *job, enum blasd_dtype *ret, struct blasd_err *err) {
    bool has_signed = false, has_unsigned = false;
    for (int i = BLASD_MATMUL_A; i <= BLASD_MATMUL_C; i++) {
        enum blasd_dtype dtype = job->inputs[i].tensor.dtype;
        char field[16];
        snprintf(field, sizeof field, "inputs.%s", inputs[i].name);
        if (!blasd_job_has(job, i)) continue;
        if ((BLASD_DTYPES_INTEGER & BLASD_DTYPE_BIT(dtype)) == 0)
            return blasd_fail(err, BLASD_E_unsupported_dtype, field,
                              "exact is for integers and bool, and this is %s",
                              blasd_dtype_name(dtype));
        has_signed |= blasd_dtype_kind(dtype) == 'i';
        has_unsigned |= blasd_dtype_kind(dtype) == 'u';
    }
    for (int i = BLASD_MATMUL_ALPHA; i <= BLASD_MATMUL_BETA; i++) {
        double value = job->params[i].f;
        char field[16];
        snprintf(field, sizeof field, "params.%s", params[i].name);
        if (!(value >= -0x1p53 && value <= 0x1p53) || value != (double)(int64_t)value)
            return blasd_fail(err, BLASD_E_invalid_parameter, field,
                              "with exact it must be a whole number, up to 2^53");
    }
    *ret = has_unsigned && !has_signed ? BLASD_uint64 : BLASD_int64;
    return 0;
}

/* What rounding correct is refused for. */
static int check_correct(const struct blasd_job *job, struct blasd_err *err) {
    if (job->params[BLASD_MATMUL_EXACT].b)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.rounding",
                          "correct cannot be combined with exact, which is modulo 2^64");
    return blasd_exact_check(job, err);
}

static int plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    struct blasd_matmul mm;
    struct blasd_tensor *out = &plan->outputs[0];
    enum blasd_dtype dtype, compute;
    double elements;
    int code = blasd_matmul_read(job, &mm, err);
    if (code != 0) return code;
    *out = result_shape(job, &mm);
    dtype =
        promote(job->inputs[BLASD_MATMUL_A].tensor.dtype, job->inputs[BLASD_MATMUL_B].tensor.dtype);
    if (blasd_job_has(job, BLASD_MATMUL_C))
        dtype = promote(dtype, job->inputs[BLASD_MATMUL_C].tensor.dtype);
    if (mm.exact && (code = plan_exact(job, &dtype, err)) != 0) return code;
    if (mm.correct && (code = check_correct(job, err)) != 0) return code;
    out->dtype = dtype;
    code = blasd_tensor_check(out, "inputs", err);
    if (code != 0) return code;
    compute = blasd_dtype_size(dtype) == 2 ? BLASD_float32 : dtype;
    if (mm.correct) compute = BLASD_float64;
    for (int i = 0; i < 3; i++) {
        const struct blasd_tensor *input = &job->inputs[i].tensor;
        /* the bits of int64 and uint64 are multiplied alike */
        bool as_it_is = mm.exact && blasd_dtype_size(input->dtype) == 8;
        plan->input_dtype[i] = as_it_is ? input->dtype : compute;
        plan->keep_order[i] = i < 2 && input->rank == 2;
        if (blasd_job_has(job, i))
            plan->device_bytes +=
                (uint64_t)blasd_tensor_elements(input) * blasd_dtype_size(compute);
    }
    elements = (double)mm.batch_count * (double)mm.m * (double)mm.n;
    plan->items = (double)mm.batch_count;
    plan->flops = elements * (2.0 * (double)mm.k + (mm.add_c ? 2 : 0));
    if (blasd_dtype_parts(dtype) == 2 || mm.exact) plan->flops *= 4; /* as integers take */
    if (mm.correct) {
        plan->flops *= dtype == BLASD_float64 ? 12 : 3;
        plan->host_only = BLASD_ROUNDING_HOST_ONLY;
    } else if (compute != dtype) {
        plan->workspace_bytes = 4 * (uint64_t)blasd_tensor_elements(out);
    }
    plan->device_bytes += blasd_tensor_bytes(out) + plan->workspace_bytes;
    plan->device_least_bytes = plan->device_bytes;
    plan->batchable = plan->flops < ALONE_FLOPS;
    return 0;
}

/* Square factors; or a matrix of 1024 columns times a vector. */
static bool sample(struct blasd_job *job, int64_t n, int64_t items, enum blasd_dtype dtype) {
    int64_t shape[3] = {items, n, n};
    int rank = items > 1 ? 3 : 2;
    if (items < 1) return false;
    blasd_job_give(job, BLASD_MATMUL_A, dtype, rank, shape + 3 - rank);
    blasd_job_give(job, BLASD_MATMUL_B, dtype, rank, shape + 3 - rank);
    return true;
}

const struct blasd_op blasd_op_matmul = {
    .name = "matmul",
    .summary = "Matrix product: alpha * a @ b + beta * c",
    .doc =
        "The product of matrices, of stacks of matrices and of vectors, as numpy.matmul defines "
        "it: leading dimensions broadcast, a vector on the left is a row, one on the right a "
        "column. NaN and infinities pass through, also where alpha is 0; with beta 0, c is not "
        "read. float16 and bfloat16 are multiplied and added up in float32 and rounded once. "
        "Warnings say where elements of finite factors are infinite, where products vanish before "
        "alpha makes them large, and where integers wrap around.",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = plan,
    .sample = sample};
