/* Products of integers are sums in float64: what of them may not be exact. Knows no backend.
 * Read next: matmul.h. */
#include "core/kernel.h"
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

void blasd_matmul_warn(struct blasd_task *task) {
    const struct blasd_input *inputs = task->job->inputs;
    long double most[2][BLASD_MATMUL_C + 1] = {{0}}, sum = 0; /* beyond 2^53 exact, too */
    struct blasd_matmul mm;
    if (!is_whole(inputs[BLASD_MATMUL_A].tensor.dtype)) return;
    if (blasd_matmul_read(task->job, &mm, &task->err) != 0 || mm.exact) return;
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
