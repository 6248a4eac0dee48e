/* What is left of right-hand sides that x nearly meets, in twice the precision: of b - a x in
 * float64 little but rounding is left there. Read next: cpu_lstsq.c. */
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/lstsq/lstsq.h"
#include "kernels/numeric/dd.h"

#define NEAR 0x1p-10 /* of what is subtracted: of larger residuals float64 has 40 bits at least */
#define STRIP 512    /* rows whose sums stay in the cache */

struct left {
    int64_t m, n, strips;
    const double *a, *x, *b, *size; /* size: what is subtracted of each column, in norms */
    double *r;
};

/* r -= a x for some rows, by four columns of a at a time: sums are read and written for each. */
DD_CLONES
static void subtract(const struct left *left, const double *x, int64_t from, int64_t rows,
                     double *r) {
    double hi[STRIP], lo[STRIP] = {0};
    const int64_t m = left->m;
    const double *a = left->a + from;
    int64_t j = 0;
    for (int64_t i = 0; i < rows; i++) hi[i] = r[i];
    for (; j + 4 <= left->n; j += 4, a += 4 * m)
        for (int64_t i = 0; i < rows; i++) {
            struct dd sum = dd_subtract_product((struct dd){hi[i], lo[i]}, a[i], x[j]);
            sum = dd_subtract_product(sum, a[m + i], x[j + 1]);
            sum = dd_subtract_product(sum, a[2 * m + i], x[j + 2]);
            sum = dd_subtract_product(sum, a[3 * m + i], x[j + 3]);
            hi[i] = sum.hi;
            lo[i] = sum.lo;
        }
    for (; j < left->n; j++, a += m)
        for (int64_t i = 0; i < rows; i++) {
            struct dd sum = dd_subtract_product((struct dd){hi[i], lo[i]}, a[i], x[j]);
            hi[i] = sum.hi;
            lo[i] = sum.lo;
        }
    for (int64_t i = 0; i < rows; i++) r[i] = hi[i] + lo[i];
}

static bool piece(void *arg, int64_t at, int slot) {
    const struct left *left = arg;
    int64_t c = at / left->strips, from = at % left->strips * STRIP;
    int64_t rows = left->m - from < STRIP ? left->m - from : STRIP;
    double *r = left->r + c * left->m + from;
    (void)slot;
    if (left->size[c] < 0) return true;
    for (int64_t i = 0; i < rows; i++) r[i] = left->b[c * left->m + from + i];
    subtract(left, left->x + c * left->n, from, rows, r);
    return blasd_wanted();
}

void blasd_lstsq_near(const struct blasd_lstsq *l, int threads, const double *a, const double *x,
                      const double *b, double *size, double *r) {
    struct left left = {.m = l->stack.m, .n = l->stack.n, .a = a, .x = x, .b = b, .r = r};
    struct blasd_parallel loop = {.piece = piece, .arg = &left, .threads = threads};
    int64_t near = 0;
    for (int64_t c = 0; c < l->columns; c++) {
        if (blasd_stack_norm(left.m, r + c * left.m) <= NEAR * size[c])
            near++;
        else
            size[c] = -1;
    }
    left.size = size;
    left.strips = (left.m + STRIP - 1) / STRIP;
    loop.count = left.strips * l->columns;
    if (near > 0) blasd_parallel_run(&loop);
}
