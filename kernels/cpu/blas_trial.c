/* Whether the BLAS of this process computes rightly, and how fast.
 *
 * Operands of products are whole numbers so small that every sum is exact in any order: a right
 * product is equal bit by bit. Solves are right where what remains of b is as small as elimination
 * with pivots leaves it. */
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"

#include "base/clock.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 384             /* larger than the blocks of most kernels */
#define M 357             /* and no multiple of what they take at once */
#define COLUMNS 8         /* right-hand sides of a solve */
#define TRIAL_NS 60000000 /* spent on it at least, */
#define ROUNDS_LEAST 3    /* in so many rounds at least */
#define FLOPS_PRODUCT (2.0 * N * N * N)
#define FLOPS_SOLVE (2.0 / 3.0 * N * N * N + 2.0 * N * N * COLUMNS)

/* Memory of one precision; all column-major with leading dimension N. */
struct side {
    bool single;
    void *a, *b, *c, *x;
    lapack_int pivots[N];
    double product_s, solve_s; /* the least so far */
};

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static double get(const struct side *side, const void *memory, size_t i) {
    return side->single ? (double)((const float *)memory)[i] : ((const double *)memory)[i];
}

static void put(const struct side *side, void *memory, size_t i, double value) {
    if (side->single)
        ((float *)memory)[i] = (float)value;
    else
        ((double *)memory)[i] = value;
}

/* Whole numbers of `bits` bits and a sign. */
static void fill_whole(const struct side *side, void *memory, int bits, uint64_t seed) {
    int64_t most = INT64_C(1) << bits;
    for (size_t i = 0; i < (size_t)N * N; i++)
        put(side, memory, i, (double)((int64_t)(next(&seed) % (uint64_t)(2 * most + 1)) - most));
}

static void multiply(const struct side *side, int m, bool transposed) {
    CBLAS_TRANSPOSE how = transposed ? CblasTrans : CblasNoTrans;
    if (side->single)
        cblas_sgemm(CblasColMajor, how, CblasNoTrans, m, m, m, 1, side->a, N, side->b, N, 0,
                    side->c, N);
    else
        cblas_dgemm(CblasColMajor, how, CblasNoTrans, m, m, m, 1, side->a, N, side->b, N, 0,
                    side->c, N);
}

/* c v = a (b v) in whole numbers, for a vector of odd numbers from -7 to 7: one wrong element
 * always shows, and several cancel out for one vector in eight at the most, of which there are
 * four. */
static bool product_is_right(const struct side *side, int m, bool transposed, uint64_t seed) {
    for (int vector = 0; vector < 4; vector++) {
        int64_t v[N], bv[N] = {0}, abv[N] = {0}, cv[N] = {0};
        for (int j = 0; j < m; j++) v[j] = 2 * (int64_t)(next(&seed) % 8) - 7;
        for (int j = 0; j < m; j++)
            for (int i = 0; i < m; i++) {
                size_t at = (size_t)j * N + (size_t)i;
                double c = get(side, side->c, at);
                if (!(fabs(c) <= 0x1p53)) return false;
                bv[i] += (int64_t)get(side, side->b, at) * v[j];
                cv[i] += (int64_t)c * v[j];
            }
        for (int j = 0; j < m; j++)
            for (int i = 0; i < m; i++) {
                size_t at = transposed ? (size_t)i * N + (size_t)j : (size_t)j * N + (size_t)i;
                abv[i] += (int64_t)get(side, side->a, at) * bv[j];
            }
        if (memcmp(abv, cv, (size_t)m * sizeof *cv) != 0) return false;
    }
    return true;
}

/* Factors a copy of a in c, and solves with b's first columns into x. */
static bool solve(struct side *side) {
    size_t size = side->single ? sizeof(float) : sizeof(double);
    memcpy(side->c, side->a, (size_t)N * N * size);
    memcpy(side->x, side->b, (size_t)N * COLUMNS * size);
    if (side->single)
        return LAPACKE_sgetrf_work(LAPACK_COL_MAJOR, N, N, side->c, N, side->pivots) == 0 &&
               LAPACKE_sgetrs_work(LAPACK_COL_MAJOR, 'N', N, COLUMNS, side->c, N, side->pivots,
                                   side->x, N) == 0;
    return LAPACKE_dgetrf_work(LAPACK_COL_MAJOR, N, N, side->c, N, side->pivots) == 0 &&
           LAPACKE_dgetrs_work(LAPACK_COL_MAJOR, 'N', N, COLUMNS, side->c, N, side->pivots, side->x,
                               N) == 0;
}

static bool solution_is_right(const struct side *side) {
    double eps = side->single ? 0x1p-23 : 0x1p-52;
    for (size_t column = 0; column < COLUMNS; column++) {
        double remains[N], size_x = 0, size_b = 0, size_a = 0, sums[N] = {0};
        for (size_t i = 0; i < N; i++) {
            remains[i] = get(side, side->b, column * N + i);
            size_b = fmax(size_b, fabs(remains[i]));
        }
        for (size_t j = 0; j < N; j++) {
            double x = get(side, side->x, column * N + j);
            if (!isfinite(x)) return false;
            size_x = fmax(size_x, fabs(x));
            for (size_t i = 0; i < N; i++) {
                double a = get(side, side->a, j * N + i);
                remains[i] -= a * x;
                sums[i] += fabs(a);
            }
        }
        for (size_t i = 0; i < N; i++) size_a = fmax(size_a, sums[i]);
        for (size_t i = 0; i < N; i++)
            if (!(fabs(remains[i]) <= 16 * eps * (size_a * size_x + size_b))) return false;
    }
    return true;
}

static double least(double before, int64_t begin_ns) {
    double s = (double)(blasd_clock_ns() - begin_ns) * 1e-9;
    return before == 0 || s < before ? s : before;
}

/* One product and one solve, timed. False where one is wrong; they are looked at in the first
 * round. */
static bool run_round(struct side *side, int round) {
    int64_t begin = blasd_clock_ns();
    multiply(side, N, false);
    side->product_s = least(side->product_s, begin);
    if (round == 0 && !product_is_right(side, N, false, 3)) return false;
    begin = blasd_clock_ns();
    if (!solve(side)) return false;
    side->solve_s = least(side->solve_s, begin);
    return round > 0 || solution_is_right(side);
}

static bool open_side(struct side *side, bool single) {
    size_t count = (size_t)N * N;
    *side = (struct side){.single = single};
    side->a = blasd_cpu_alloc(count, sizeof(double));
    side->b = blasd_cpu_alloc(count, sizeof(double));
    side->c = blasd_cpu_alloc(count, sizeof(double));
    side->x = blasd_cpu_alloc((size_t)N * COLUMNS, sizeof(double));
    if (side->a == NULL || side->b == NULL || side->c == NULL || side->x == NULL) return false;
    /* 384 products of two such numbers add up to less than 2^24, and 2^53 */
    fill_whole(side, side->a, single ? 7 : 21, 1);
    fill_whole(side, side->b, single ? 7 : 21, 2);
    return true;
}

static void close_side(struct side *side) {
    free(side->a);
    free(side->b);
    free(side->c);
    free(side->x);
}

int blasd_blas_try(double *ret_gflops, struct blasd_err *err) {
    struct side sides[2];
    double seconds = 0;
    int64_t begin = blasd_clock_ns();
    bool there = open_side(&sides[0], false), right = true;
    there = open_side(&sides[1], true) && there;
    for (int round = 0;
         there && right && (round < ROUNDS_LEAST || blasd_clock_ns() - begin < TRIAL_NS); round++)
        for (int i = 0; i < 2 && right; i++) right = run_round(&sides[i], round);
    for (int i = 0; i < 2; i++) {
        if (there && right) {
            multiply(&sides[i], M, true);
            right = product_is_right(&sides[i], M, true, 4);
        }
        seconds += sides[i].product_s + sides[i].solve_s;
    }
    close_side(&sides[0]);
    close_side(&sides[1]);
    if (!there) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to try the BLAS");
    if (!right)
        return blasd_fail(err, BLASD_E_device_error, "blas", "its products or solves are wrong");
    *ret_gflops = 2 * (FLOPS_PRODUCT + FLOPS_SOLVE) / seconds * 1e-9;
    return 0;
}
