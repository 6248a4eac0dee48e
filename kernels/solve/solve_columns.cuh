/* Right-hand sides of a system whose matrix is factored: solving, refining, and Householder QR
 * where refinement leaves the bound. One column at a time, by the whole team.
 *
 * Read next: solve_kernels.cuh. */
#ifndef BLASD_KERNELS_SOLVE_COLUMNS_CUH
#define BLASD_KERNELS_SOLVE_COLUMNS_CUH

#include "kernels/solve/solve_system.cuh"

/* One column, or a band of it, while it is worked on. */
struct solve_column {
    int exponent;              /* b is in units of 2^exponent */
    struct wide norm_b, below; /* of the job's b, and what errors are relative to, in those units */
    double error, first_error, last;
    double lost; /* of an element of x, where this was added to what was there */
    int steps;
    bool done, converged;
};

#define SOLVE_TOP 100000 /* above all exponents */

/* ---- residuals ---- */

/* hi + lo -= a x, with no error but in the last digit of lo. */
static __device__ inline void subtract_product(double &hi, double &lo, double a, double x) {
    double p = __dmul_rn(-a, x), e = __fma_rn(-a, x, -p);
    double s = __dadd_rn(hi, p), back = __dsub_rn(s, hi);
    double rest = __dadd_rn(__dsub_rn(hi, __dsub_rn(s, back)), __dsub_rn(p, back));
    lo = __dadd_rn(lo, __dadd_rn(rest, e));
    hi = s;
}
static __device__ inline void subtract_product(double &hi, double &lo, float a, float x) {
    (void)lo;
    hi = __dsub_rn(hi, __dmul_rn((double)a, (double)x)); /* the product is exact */
}
/* hi + lo += other_hi + other_lo, the same in whatever order */
static __device__ inline void add_pair(double &hi, double &lo, double other_hi, double other_lo) {
    double s = __dadd_rn(hi, other_hi), back = __dsub_rn(s, hi);
    double rest = __dadd_rn(__dsub_rn(hi, __dsub_rn(s, back)), __dsub_rn(other_hi, back));
    lo = __dadd_rn(__dadd_rn(lo, other_lo), rest);
    hi = s;
}

/* r := b - A x in twice the precision (float32: in double), rounded once. In a block 8 lanes share
 * a row, so that rows that lie in memory as such are read in whole sectors. */
template <class Team, class T> static __device__ __noinline__ void residual(solver<Team, T> &s) {
    constexpr int share = Team::block ? 8 : 1;
    int part = s.team.rank() % share, rows = s.team.size() / share;
    for (int base = 0; base < s.n(); base += rows) {
        int i = base + s.team.rank() / share;
        bool here = i < s.n();
        double hi = here && part == 0 ? (double)s.room.b[i] : 0, lo = 0;
        for (int first = part; here && first < s.n(); first += 8 * share) {
            T v[8];
            BLASD_UNROLL
            for (int q = 0; q < 8; q++) v[q] = s.raw(i, least(first + q * share, s.n() - 1));
            BLASD_UNROLL
            for (int q = 0; q < 8; q++) {
                int j = first + q * share;
                if (j >= s.n()) continue;
                if (!s.keeps && s.state.scaled) v[q] = s.scaled_by(v[q], i, j);
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
/* A bound on ||b - A x|| / (||A|| ||x|| + ||b||) before scaling, from the scaled residual and what
 * rounding may have hidden from it; what is below the line stays in c. */
template <class Team, class T>
static __device__ __noinline__ double backward_error(solver<Team, T> &s, struct solve_column &c) {
    const struct solve_matrix &a = s.state;
    struct wide x = wide_make(0, 0, a.scaled), r = x, below;
    int bad = 0;
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) {
        double sx = size_of((double)s.room.x[i]), sr = size_of((double)s.room.r[i]);
        struct wide own_x, own_r;
        bad |= !is_finite(sx) || !is_finite(sr);
        if (!is_finite(sx) || !is_finite(sr)) continue;
        own_x = wide_make(sx, a.scaled ? s.room.column_scale[i] : 0, a.scaled);
        own_r = wide_make(sr, a.scaled ? -s.room.row_scale[i] : 0, a.scaled);
        if (own_x.e > x.e || (own_x.e == x.e && own_x.m > x.m)) x = own_x;
        if (own_r.e > r.e || (own_r.e == r.e && own_r.m > r.m)) r = own_r;
    }
    bad = s.team.any(bad);
    x = wide_most(s.team, x, a.scaled);
    r = wide_most(s.team, r, a.scaled);
    if (bad) return precision<T>::infinity();
    c.below = below = wide_sum({a.norm_inf.m * x.m, a.norm_inf.e + x.e}, c.norm_b);
    if (!(below.m > 0)) return 0;
    return wide_ratio(r, below) * (1 + 4 * precision<T>::unit * (s.n() + 2)) +
           precision<T>::residual_unit * (s.n() + 2);
}

template <class Team, class T>
static __device__ __noinline__ double largest_of(solver<Team, T> &s, vector_view<T> v) {
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

/* ---- one column ---- */

/* Brings the job's column into b, scaled as the matrix is and near 1 where it is far from it. What
 * is more than a band below its largest element is left for the next one, which begins at *top, as
 * in engine_body.h. Returns whether there is one. */
template <class Team, class T>
static __device__ __noinline__ bool load_column(solver<Team, T> &s, const T *from,
                                                struct solve_column &c, int *top) {
    int64_t step = s.shape.b_row;
    double greatest = 0, most = -100000;
    int more = 0, floor;
    bool plain;
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) {
        double size = size_of((double)from[i * step]);
        double e = exponent_of(size) + (s.state.scaled ? s.room.row_scale[i] : 0);
        greatest = size > greatest ? size : greatest;
        most = size != 0 && e <= *top && e > most ? e : most;
    }
    greatest = s.team.most(greatest);
    most = s.team.most(most);
    plain = *top == SOLVE_TOP && !s.state.scaled && greatest < s.safe &&
            (greatest > 1 / s.safe || greatest == 0);
    c.exponent = plain || most == -100000 ? 0 : (int)most;
    floor = plain ? -100000 : c.exponent - precision<T>::band;
    c.norm_b = wide_make(0, 0, !plain);
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) {
        int scale = s.state.scaled ? s.room.row_scale[i] : 0;
        T value = from[i * step];
        int e = exponent_of((double)value) + scale;
        bool here = value != 0 && e <= *top && e > floor;
        struct wide own = wide_make(here ? size_of((double)value) : 0, -c.exponent, !plain);
        if (own.e > c.norm_b.e || (own.e == c.norm_b.e && own.m > c.norm_b.m)) c.norm_b = own;
        more |= value != 0 && e <= floor;
        s.room.b[i] = plain ? value : here ? (T)ldexp((double)value, scale - c.exponent) : (T)0;
    }
    c.norm_b = wide_most(s.team, c.norm_b, !plain);
    more = s.team.any(more);
    *top = floor;
    s.team.sync();
    return more != 0;
}

/* x, or what this band adds to it: what that sum loses is an error of its own. What leaves the
 * range on the way is an error without bound. */
template <class Team, class T>
static __device__ __noinline__ void store_column(solver<Team, T> &s, T *to, bool add,
                                                 struct solve_column &c) {
    int64_t step = s.shape.columns;
    bool plain = !s.state.scaled && c.exponent == 0;
    int beyond = 0;
    double lost = 0;
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) {
        int scale = s.state.scaled ? s.room.column_scale[i] : 0;
        T value = s.room.x[i];
        value = plain ? value : (T)ldexp((double)value, scale + c.exponent);
        if (add) {
            T old = to[i * step], sum = old + value, added = sum - old;
            double off = size_of((double)((old - (sum - added)) + (value - added)));
            lost = off > lost ? off : lost;
            value = sum;
        }
        to[i * step] = value;
        beyond |= !is_finite((double)value);
    }
    c.lost = s.team.most(lost);
    if (s.team.any(beyond)) c.error = precision<T>::infinity();
    s.team.sync();
}

/* Adds the correction d to x, and keeps the old x in d. */
template <class Team, class T> static __device__ void step_forward(solver<Team, T> &s) {
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) {
        T old = s.room.x[i];
        s.room.x[i] = old + s.room.d[i];
        s.room.d[i] = old;
    }
    s.team.sync();
}
template <class Team, class T>
static __device__ void copy(solver<Team, T> &s, vector_view<T> to, vector_view<T> from) {
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) to[i] = from[i];
    s.team.sync();
}

/* How large d is against x, as they stand and before scaling: an element that is small here may not
 * be small there. */
template <class Team, class T>
static __device__ __noinline__ double size_of_step(solver<Team, T> &s) {
    double size = largest_of(s, s.room.d) / largest_of(s, s.room.x), own;
    struct wide x = wide_make(0, 0, true), d = x;
    if (!s.state.scaled) return size;
    for (int i = s.team.rank(); i < s.n(); i += s.team.size()) {
        struct wide own_x = wide_make(size_of((double)s.room.x[i]), s.room.column_scale[i], true);
        struct wide own_d = wide_make(size_of((double)s.room.d[i]), s.room.column_scale[i], true);
        if (own_x.e > x.e || (own_x.e == x.e && own_x.m > x.m)) x = own_x;
        if (own_d.e > d.e || (own_d.e == d.e && own_d.m > d.m)) d = own_d;
    }
    x = wide_most(s.team, x, true);
    d = wide_most(s.team, d, true);
    own = x.m > 0 ? wide_ratio(d, x) : 0;
    return own > size ? own : size;
}
/* Tries x + d in place of x; keeps the better, and decides whether that was enough. */
template <class Team, class T>
static __device__ void try_step(solver<Team, T> &s, struct solve_column &c, int step) {
    const double u = precision<T>::unit;
    double size = size_of_step(s), ratio = size / c.last, least = s.state.contraction, error;
    step_forward(s);
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
    if (step == 1 && s.state.scaled && s.state.rcond < s.state.own_rcond)
        least *= s.state.own_rcond / s.state.rcond;
    if (step == 1 || ratio < least) {
        double q = least < 0.5 ? least : 0.5;
        ratio = ratio > q ? ratio : q;
    }
    c.converged = error <= 2 * u && size * ratio <= u / 4;
    c.done = c.converged || !(ratio <= 0.5);
}

/* Whether the corrections may be noise, as in engine_body.h. */
template <class Team, class T>
static __device__ bool harmed(const solver<Team, T> &s, const struct solve_column &c) {
    const double u = precision<T>::unit;
    double noise = (u * c.error + precision<T>::residual_unit * s.n()) / s.state.own_rcond;
    bool shrunk = c.converged || !c.done || c.last <= 4 * u;
    return s.state.contraction >= 0.5 && c.steps > 0 && !(shrunk && noise <= 0x1p-20) &&
           c.first_error <= 3 * u;
}

/* Solves with the factors at hand, and refines. */
template <class Team, class T>
static __device__ __noinline__ void refine(solver<Team, T> &s, struct solve_column &c) {
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
    if (!harmed(s, c)) return;
    copy(s, s.room.x, s.room.b);
    s.apply(s.room.x, false);
    c.error = c.first_error;
    c.steps = 0;
    c.last = 1;
    c.converged = false;
}

/* Whether what was reached is what refinement reaches, unless the factors are bad. */
template <class Team, class T>
static __device__ bool good_enough(const solver<Team, T> &s, const struct solve_column &c) {
    const double u = precision<T>::unit;
    if (s.shape.refinement == BLASD_REFINE_NONE || s.state.method == BLASD_SOLVED_QR) return true;
    if (!(c.error <= 3 * u)) return false;
    return !(s.state.method == BLASD_SOLVED_LU && c.steps > 0 &&
             (!c.converged || s.state.contraction > 0.1) &&
             blasd_solve_may_help(s.n(), u, s.state.own_rcond, s.state.contraction));
}

/* Tries again with QR, in `room` (where the factors may stay as they are); keeps what is better,
 * for this column and those that follow. Returns whether QR stays. */
template <class Team, class T>
static __device__ __noinline__ bool try_qr(solver<Team, T> &s, struct solve_column &c,
                                           matrix_view<T> room) {
    struct solve_matrix before = s.state;
    matrix_view<T> factors = s.room.f;
    struct solve_column second = c;
    double limit = 2 * precision<T>::unit;
    bool whole;
    s.room.f = room;
    s.state.method = BLASD_SOLVED_QR;
    s.load();
    whole = factor_qr(s.team, s.room.f, s.n(), s.room.y);
    if (whole) {
        s.estimate();
        refine(s, second);
    }
    limit = c.error > limit ? c.error : limit;
    if (whole && second.error <= limit) {
        c = second;
        return true;
    }
    s.room.f = factors;
    s.state = before;
    return false;
}

/* One column, band by band; its errors are relative to all of it. */
template <class Team, class T>
static __device__ void solve_one_column(solver<Team, T> &s, const T *b, T *x, matrix_view<T> spare,
                                        struct solve_outcome *ret, bool *open) {
    struct wide all_r = {0, -100000}, all_below = all_r;
    int top = SOLVE_TOP;
    double error;
    bool beyond = false, more = true;
    for (bool add = false; more; add = true) {
        struct solve_column c = {};
        int from = top;
        more = load_column(s, b, c, &top);
        refine(s, c);
        bool is_open = s.is_open(), good = good_enough(s, c);
        if (!good && try_qr(s, c, spare)) {
            is_open = s.is_open();
        } else if (!good) {
            int again = from;
            if (spare.p == s.room.f.p) s.factor_again();
            load_column(s, b, c, &again);
            refine(s, c);
        }
        *open = *open || is_open;
        store_column(s, x, add, c);
        if (is_finite(c.error)) {
            struct wide below = wide_make(c.below.m, c.below.e + c.exponent, true);
            struct wide own = wide_make(c.error * below.m, below.e, true);
            all_r = own.m > 0 ? wide_sum(all_r, own) : all_r;
            own = wide_make(c.lost * s.state.norm_inf.m, s.state.norm_inf.e, true);
            all_r = own.m > 0 ? wide_sum(all_r, own) : all_r;
            if (below.e > all_below.e || (below.e == all_below.e && below.m > all_below.m))
                all_below = below;
        } else {
            beyond = true;
        }
        if (c.steps > ret->steps) ret->steps = c.steps;
        ret->settled = ret->settled && (c.converged || c.last <= 4 * precision<T>::unit);
    }
    error = beyond ? precision<T>::infinity() : wide_ratio(all_r, all_below);
    if (!(error <= ret->error)) ret->error = error;
}

/* Whether the factors may know nothing of the inverse, as in condition_body.h. Of x and b nothing
 * is left. */
template <class Team, class T> static __device__ __noinline__ bool unproven(solver<Team, T> &s) {
    for (int p = 0; p < BLASD_SOLVE_PROBES; p++) {
        double left = 0;
        for (int i = s.team.rank(); i < s.n(); i += s.team.size())
            s.room.x[i] = s.room.b[i] = (T)blasd_solve_probe(i, p);
        s.team.sync();
        s.apply(s.room.x, false);
        residual(s);
        for (int i = s.team.rank(); i < s.n(); i += s.team.size())
            left += (double)s.room.r[i] * (double)s.room.r[i];
        if (!(sqrt(s.team.sum(left)) <= BLASD_SOLVE_PROBE_LEFT)) return true;
    }
    return false;
}

/* All columns from `first` to `end` of a system. `spare`: room for QR's factors. */
template <class Team, class T>
static __device__ void solve_all_columns(solver<Team, T> &s, const T *b, T *x, int first, int end,
                                         matrix_view<T> spare, struct solve_outcome *ret) {
    bool open = false;
    *ret = {0, s.state.rcond, 0, s.state.method, false, true};
    for (int k = first; k < end; k++)
        solve_one_column(s, b + k * s.shape.b_column, x + k, spare, ret, &open);
    if (open) ret->doubtful = unproven(s);
    ret->rcond = s.state.rcond;
    ret->method = s.state.method;
}

/* What a system without a solution gets. */
template <class Team, class T>
static __device__ void refuse_columns(solver<Team, T> &s, T *x, int first, int end) {
    for (int i = s.team.rank(); i < s.n(); i += s.team.size())
        for (int k = first; k < end; k++)
            x[(int64_t)i * s.shape.columns + k] = (T)precision<T>::nan();
}

#endif
