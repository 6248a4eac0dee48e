/* Products of integers are sums in float64: what of them may not be exact. Knows no backend.
 * Read next: matmul.h. */
#include "core/kernel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/matmul/matmul.h"

#include <math.h>

#define EXACT 0x1p53 /* float64 holds every integer up to here */

/* The largest magnitude among the elements, which were made float64: one that came out as 2^53 may
 * have been the next. */
static long double largest(const struct blasd_tensor *tensor) {
    const double *data = tensor->data;
    int64_t n = blasd_tensor_elements(tensor);
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fabs(data[i]) > most ? fabs(data[i]) : most;
    return most < EXACT ? (long double)most : (long double)most + 1;
}

/* The same, as far as the dtype tells without a look. */
static long double largest_of(enum blasd_dtype dtype) {
    if (dtype == BLASD_bool) return 1;
    return ldexpl(1, (int)(8 * blasd_dtype_size(dtype)) - (blasd_dtype_kind(dtype) == 'i'));
}

static bool is_whole(enum blasd_dtype dtype) {
    return (BLASD_DTYPES_INTEGER & BLASD_DTYPE_BIT(dtype)) != 0;
}

/* ---- exact ---- */

#define LOOKED_AT 1e9 /* multiplications up to which it is seen whether a sum wraps around */

/* An element, which may have 64 bits of either kind. */
static __int128 whole(const struct blasd_tensor *tensor, int64_t at) {
    return tensor->dtype == BLASD_uint64 ? (__int128)((const uint64_t *)tensor->data)[at]
                                         : (__int128)((const int64_t *)tensor->data)[at];
}

/* The largest magnitude of an input of 64-bit integers. */
static long double largest_whole(const struct blasd_tensor *tensor) {
    int64_t n = blasd_tensor_elements(tensor), done = 0;
    long double most = 0;
    for (int64_t i = 0; i < n && blasd_wanted_after(&done, 1); i++) {
        long double size = fabsl((long double)whole(tensor, i));
        most = size > most ? size : most;
    }
    return most;
}

/* A sum modulo 2^128, and about. */
struct sum {
    unsigned __int128 low;
    long double about;
};
static void add(struct sum *sum, __int128 x, __int128 y) {
    sum->low += (unsigned __int128)x * (unsigned __int128)y;
    sum->about += (long double)x * (long double)y;
}

/* Whether the element (i, j) of a product is beyond the result's dtype. */
static bool is_beyond(const struct blasd_task *task, const struct blasd_matmul *mm, int64_t item,
                      const struct blasd_walk *walk, int64_t i, int64_t j) {
    const struct blasd_tensor *a = &task->inputs[BLASD_MATMUL_A], *b = a + 1, *c = a + 2;
    const struct blasd_tensor *out = &task->outputs[0];
    struct blasd_matmul_steps by_a = blasd_matmul_steps(a, &mm->a);
    struct blasd_matmul_steps by_b = blasd_matmul_steps(b, &mm->b);
    int64_t from_a = walk->offset[0] * by_a.matrix + i * by_a.row;
    int64_t from_b = walk->offset[1] * by_b.matrix + j * by_b.column;
    struct sum sum = {0, 0};
    __int128 value;
    for (int64_t l = 0; l < mm->k; l++)
        add(&sum, whole(a, from_a + l * by_a.column), whole(b, from_b + l * by_b.row));
    sum.low *= (unsigned __int128)(int64_t)mm->alpha;
    sum.about *= (long double)mm->alpha;
    if (mm->add_c)
        add(&sum, (int64_t)mm->beta,
            whole(c, blasd_matmul_place_of_c(c, out, (item * mm->m + i) * mm->n + j)));
    if (fabsl(sum.about) > 0x1p120L) return true;
    value = (__int128)sum.low;
    if (out->dtype == BLASD_uint64) return value < 0 || value > (__int128)UINT64_MAX;
    return value < (__int128)INT64_MIN || value > (__int128)INT64_MAX;
}

static bool wraps(const struct blasd_task *task, const struct blasd_matmul *mm) {
    struct blasd_walk walk;
    int64_t done = 0;
    blasd_walk_init(&walk, mm->batch_rank, mm->batch);
    blasd_walk_operand(&walk, 0, mm->a.batch_rank, mm->a.batch);
    blasd_walk_operand(&walk, 1, mm->b.batch_rank, mm->b.batch);
    for (int64_t item = 0; item < mm->batch_count; item++) {
        for (int64_t at = 0; at < mm->m * mm->n; at++) {
            if (!blasd_wanted_after(&done, 2 * mm->k)) return false;
            if (is_beyond(task, mm, item, &walk, at / mm->n, at % mm->n)) return true;
        }
        blasd_walk_next(&walk);
    }
    return false;
}

static void warn_of_wraps(struct blasd_task *task, const struct blasd_matmul *mm) {
    const struct blasd_tensor *out = &task->outputs[0];
    const char *dtype = blasd_dtype_name(out->dtype);
    long double most, end = out->dtype == BLASD_uint64 ? 0x1p64L : 0x1p63L;
    blasd_task_make_inputs(task);
    most = fabsl((long double)mm->alpha) * (long double)mm->k *
           largest_whole(&task->inputs[BLASD_MATMUL_A]) *
           largest_whole(&task->inputs[BLASD_MATMUL_B]);
    if (mm->add_c)
        most += fabsl((long double)mm->beta) * largest_whole(&task->inputs[BLASD_MATMUL_C]);
    /* with a factor below 0 an unsigned sum is beyond 0 */
    if (most < end && (out->dtype == BLASD_int64 || (mm->alpha >= 0 && mm->beta >= 0))) return;
    if ((double)blasd_tensor_elements(out) * (double)mm->k > LOOKED_AT)
        blasd_task_warn(task, BLASD_W_integer_overflow,
                        "sums of these integers can reach %.3Lg: beyond %s they wrap around", most,
                        dtype);
    else if (wraps(task, mm))
        blasd_task_warn(task, BLASD_W_integer_overflow,
                        "elements are beyond the range of %s, and wrap around", dtype);
}

/* ---- what is to be said ---- */

void blasd_matmul_warn(struct blasd_task *task) {
    const struct blasd_input *inputs = task->job->inputs;
    long double most[2][BLASD_MATMUL_C + 1] = {{0}}, sum = 0; /* beyond 2^53 exact, too */
    struct blasd_matmul mm;
    if (!is_whole(inputs[BLASD_MATMUL_A].tensor.dtype)) return;
    if (blasd_matmul_read(task->job, &mm, &task->err) != 0) return;
    if (mm.exact) {
        warn_of_wraps(task, &mm);
        return;
    }
    if (mm.alpha != floor(mm.alpha) || mm.beta != floor(mm.beta)) return;
    for (int look = 0; look < 2; look++) {
        if (look == 1) blasd_task_make_inputs(task);
        for (int i = BLASD_MATMUL_A; i <= BLASD_MATMUL_C; i++) {
            if (i == BLASD_MATMUL_C && !mm.add_c) continue;
            if (!is_whole(inputs[i].tensor.dtype)) return;
            most[look][i] =
                look == 0 ? largest_of(inputs[i].tensor.dtype) : largest(&task->inputs[i]);
        }
        sum = fabsl((long double)mm.alpha) * (long double)mm.k * most[look][BLASD_MATMUL_A] *
                  most[look][BLASD_MATMUL_B] +
              fabsl((long double)mm.beta) * most[look][BLASD_MATMUL_C];
        if (!(sum > EXACT)) return;
    }
    blasd_task_warn(task, BLASD_W_large_integers,
                    "sums of these integers can reach %.3Lg, beyond 2^53: float64 rounds such sums "
                    "(the parameter exact does not)",
                    sum);
}
