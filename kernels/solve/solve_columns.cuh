/* Right-hand sides of a system whose matrix is factored: solving and refining, one column at a
 * time, by the whole block. Where refinement leaves the bound the host has the system again.
 *
 * Read next: solve_kernels.cuh. */
#ifndef BLASD_KERNELS_SOLVE_COLUMNS_CUH
#define BLASD_KERNELS_SOLVE_COLUMNS_CUH

#include "kernels/solve/solve_system.cuh"

/* One column while it is worked on. */
struct solve_column {
    double norm_b, error, first_error, last;
    int steps;
    bool done, converged;
};

/* ---- residuals ---- */

/* hi + lo -= a x, with no error but in the last digit of lo. */
static __device__ inline void subtract_product(double &hi, double &lo, double a, double x) {
    struct dd sum = dd_subtract_product(dd_make(hi, lo), a, x);
    hi = sum.hi;
    lo = sum.lo;
}
static __device__ inline void subtract_product(double &hi, double &lo, float a, float x) {
    (void)lo;
    hi = __dsub_rn(hi, __dmul_rn((double)a, (double)x)); /* the product is exact */
}
/* hi + lo += other_hi + other_lo, the same in whatever order */
static __device__ inline void add_pair(double &hi, double &lo, double other_hi, double other_lo) {
    struct dd sum = dd_two_sum(hi, other_hi);
    lo = __dadd_rn(__dadd_rn(lo, other_lo), sum.lo);
    hi = sum.hi;
}

/* r := b - A x in twice the precision (float32: in double), rounded once. 8 lanes share a row, so
 * that rows that lie in memory as such are read in whole sectors. */
template <class T> static __device__ __noinline__ void residual(solver<T> &s) {
    constexpr int share = 8;
    int part = s.team.rank() % share, rows = s.team.size() / share;
    for (int base = 0; base < s.n(); base += rows) {
        int i = base + s.team.rank() / share;
        bool here = i < s.n();
        double hi = here && part == 0 ? (double)s.room.b[i] : 0, lo = 0;
        for (int first = part; here && first < s.n(); first += 8 * share) {
            T v[8];
            BLASD_UNROLL
            for (int q = 0; q < 8; q++) v[q] = s.element(i, least(first + q * share, s.n() - 1));
            BLASD_UNROLL
            for (int q = 0; q < 8; q++) {
                int j = first + q * share;
                if (j >= s.n()) continue;
                subtract_product(hi, lo, v[q], s.room.x[j]);
            }
        }
        for (int by = share / 2; by > 0; by /= 2) {
            double other_hi = __shfl_xor_sync(BLASD_WARP_ALL, hi, by);
            double other_lo = __shfl_xor_sync(BLASD_WARP_ALL, lo, by);
            add_pair(hi, lo, other_hi, other_lo);
        }
        if (here && part == 0) s.room.r[i] = (T)(hi + lo);
    }
    s.team.sync();
}
template <class T>
static __device__ __noinline__ double largest_of(solver<T> &s, vector_view<T> v) {
    double most = 0;
    int bad = 0;
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) {
        double size = size_of((double)v[i]);
        bad |= !is_finite(size);
        most = size > most ? size : most;
    }
    bad = s.team.any(bad);
    most = s.team.most(most);
    return bad ? precision<T>::infinity() : most;
}
/* A bound on ||b - A x|| / (||A|| ||x|| + ||b||), from the residual and what rounding may have
 * hidden from it. */
template <class T>
static __device__ __noinline__ double backward_error(solver<T> &s, const struct solve_column &c) {
    double r = largest_of(s, s.room.r);
    double below = s.state.norm_inf * largest_of(s, s.room.x) + c.norm_b;
    if (!is_finite(below) || !is_finite(r)) return precision<T>::infinity();
    if (!(below > 0)) return 0;
    return r / below * (1 + 4 * precision<T>::unit * (s.n() + 2)) +
           precision<T>::residual_unit * (s.n() + 2);
}

/* ---- one column ---- */

template <class T>
static __device__ void copy(solver<T> &s, vector_view<T> to, vector_view<T> from) {
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) to[i] = from[i];
    s.team.sync();
}
/* Tries x + d in place of x; keeps the better, and decides whether that was enough. */
template <class T> static __device__ void try_step(solver<T> &s, struct solve_column &c, int step) {
    const double u = precision<T>::unit;
    double size = largest_of(s, s.room.d) / largest_of(s, s.room.x), ratio = size / c.last, error;
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) {
        T old = s.room.x[i];
        s.room.x[i] = old + s.room.d[i];
        s.room.d[i] = old;
    }
    s.team.sync();
    residual(s);
    error = backward_error(s, c);
    if (!(error < c.error || error <= 2 * u)) {
        copy(s, s.room.x, s.room.d);
        c.done = true;
        return;
    }
    c.error = error;
    c.steps = step;
    c.last = size;
    /* the corrections shrink by `ratio` each time (the first may have been small by luck): is what
     * is left below the last digit? */
    if (step == 1 || ratio < s.state.contraction) {
        double q = s.state.contraction < 0.5 ? s.state.contraction : 0.5;
        ratio = ratio > q ? ratio : q;
    }
    c.converged = error <= 2 * u && size * ratio <= u / 4;
    c.done = c.converged || !(ratio <= 0.5);
}

/* Solves with the factors at hand, and refines. */
template <class T>
static __device__ __noinline__ void refine(solver<T> &s, struct solve_column &c) {
    int most = s.shape.refinement == BLASD_REFINE_NONE ? 0 : SOLVE_STEPS;
    copy(s, s.room.x, s.room.b);
    s.apply(s.room.x, false);
    residual(s);
    c.first_error = c.error = backward_error(s, c);
    c.steps = 0;
    c.last = 1;
    c.converged = largest_of(s, s.room.r) == 0;
    c.done = c.converged || !is_finite(c.error);
    for (int step = 1; step <= most && !c.done; step++) {
        copy(s, s.room.d, s.room.r);
        s.apply(s.room.d, false);
        try_step(s, c, step);
    }
}

/* One column. False: it is the host's, for b is far from 1, x has left the range, refinement does
 * not reach what it should, or its corrections may be noise. */
template <class T>
static __device__ bool solve_one_column(solver<T> &s, const T *b, T *x, struct solve_outcome *ret) {
    const double u = precision<T>::unit;
    struct solve_column c = {};
    bool good;
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) s.room.b[i] = b[i * s.shape.b_row];
    s.team.sync();
    c.norm_b = largest_of(s, s.room.b);
    good = c.norm_b < s.safe && (c.norm_b > 1 / s.safe || c.norm_b == 0);
    refine(s, c);
    good = good && is_finite(c.error);
    if (s.shape.refinement != BLASD_REFINE_NONE)
        good = good && c.error <= 3 * u && (c.steps == 0 || c.converged);
    for (int i = s.team.rank(); i < s.n(); i += s.team.size())
        x[(int64_t)i * s.shape.columns] = s.room.x[i];
    s.team.sync();
    if (!(c.error <= ret->error)) ret->error = c.error;
    if (c.steps > ret->steps) ret->steps = c.steps;
    ret->settled = ret->settled && (c.converged || c.last <= 4 * u);
    return good;
}

/* All columns from `first` to `end` of a system. */
template <class T>
static __device__ void solve_all_columns(solver<T> &s, const T *b, T *x, int first, int end,
                                         struct solve_outcome *ret) {
    *ret = {0, 0, s.state.left, true};
    for (int k = first; k < end && !ret->left; k++)
        ret->left = !solve_one_column(s, b + k * s.shape.b_column, x + k, ret);
}

#endif
