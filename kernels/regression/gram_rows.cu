/* What goes over the observations once more: residuals in double-double, in the units of the
 * columns for the correction and in the user's for the answer, and what each observation weighs in
 * robust errors. A few lanes of a warp share an observation. Read next: gram.cuh. */
#include "kernels/regression/gram_share.cuh"

#define THREADS 256

/* Lanes that share a row: about eight columns each. */
static int lanes_for(int q) {
    int lanes = 1;
    while (lanes < BLASD_WARP && lanes * 8 < q) lanes *= 2;
    return lanes;
}

static int64_t blocks_for(const struct gram_shape *s, int64_t rows, int lanes) {
    int64_t blocks = (rows * lanes + THREADS - 1) / THREADS, most = (int64_t)s->units * 32;
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

/* y - [1 X] b of a row, in the units of the columns: the shifts are out of it, so what is far from
 * 0 costs no digit. All lanes of the row get it. */
static __device__ struct dd left_of(const struct gram_shape &s, const struct gram_column *own,
                                    const struct gram_data &d, const struct dd *b, int64_t row,
                                    int l, int lane, int lanes) {
    struct dd sum = {0, 0};
    if (lane == 0) sum.hi = gram_value(own[s.q + l], d.y[row * s.t + l]);
    for (int j = lane; j < s.q; j += lanes) {
        double x = j < s.first ? -1 : -gram_value(own[j], d.x[row * s.p + j - s.first]);
        sum = dd_add(sum, dd_scale(b[j * s.t + l], x));
    }
    return dd_lanes_sum(sum, lanes);
}

struct leave_in {
    struct gram_shape s;
    const struct gram_data *data;
    const struct gram_column *columns;
    const struct dd *b;
    double *left;
    int lanes;
};

/* left = y - [1 X] b for each row and target. */
template <class... In> static __global__ void __launch_bounds__(THREADS) leave_rows(In... in) {
    const auto &share = gram_share(in...);
    const struct leave_in args = share.args;
    const struct gram_shape &s = args.s;
    int lanes = args.lanes;
    int64_t all = s.problems * s.n * s.t, step = share.blocks() * THREADS / lanes;
    int lane = (int)threadIdx.x % lanes, in_warp = (int)threadIdx.x % BLASD_WARP / lanes;
    int64_t at = (share.block() * THREADS + threadIdx.x) / lanes;
    /* all lanes of a warp go on as long as one has a row */
    for (; at - in_warp < all; at += step) {
        int64_t unit = at < all ? at : all - 1, row = unit / s.t % s.n, problem = unit / s.t / s.n;
        struct dd sum = left_of(s, args.columns + problem * (s.q + s.t), args.data[problem],
                                args.b + problem * s.q * s.t, row, (int)(unit % s.t), lane, lanes);
        if (lane != 0 || at >= all) continue;
        args.left[2 * at] = sum.hi;
        args.left[2 * at + 1] = sum.lo;
    }
}

int gram_leave(const struct gram_shape *s, const struct gram_arrays *arrays,
               const struct gram_way *way, struct blasd_err *err) {
    int lanes = lanes_for(s->q);
    int64_t all = s->problems * s->n * s->t;
    if (all == 0) return 0;
    return gram_launch<struct leave_in>(
        way, STAGE_LEAVE, leave_rows, leave_rows, blocks_for(s, all, lanes), THREADS, 0,
        {*s, arrays->data, arrays->columns, arrays->b, arrays->left, lanes}, err);
}

/* What multiplies x x' of an observation in the middle of the sandwich; rest: 1 less its leverage.
 */
static __device__ double middle_weight(const struct gram_outputs &out, double weight, double r,
                                       double rest) {
    double square = weight * r * r; /* of the weighted residual */
    if (out.cov == 2) square *= out.factor;
    if (out.cov == 3) square /= rest;
    if (out.cov == 4) square /= rest * rest;
    return weight * square;
}

static __device__ void store(void *to, bool single, int64_t at, double value) {
    if (single)
        static_cast<float *>(to)[at] = (float)value;
    else
        static_cast<double *>(to)[at] = value;
}

/* 1 less the leverage of a row, its weight times the square of x'U^-1 D^-1/2 in the units of the
 * columns; in dd, for U^-1 is as large as the condition is, and its sums are not. NaN where
 * that is but rounding. */
static __device__ double left_of_leverage(const struct gram_shape &s, const struct gram_column *own,
                                          const struct gram_data &d, double weight,
                                          const struct dd *inverse, const struct dd *pivots,
                                          int64_t row, int lane, int lanes) {
    struct dd sum = {0, 0};
    double left, most;
    for (int c = lane; c < s.q; c += lanes) {
        struct dd h = {0, 0};
        if (!(pivots[c].hi > 0)) continue;
        for (int j = 0; j <= c; j++) {
            double x = j < s.first ? 1 : gram_value(own[j], d.x[row * s.p + j - s.first]);
            h = dd_add(h, dd_scale(inverse[j * s.q + c], x));
        }
        sum = dd_add(sum, dd_divide(dd_multiply(h, h), pivots[c]));
    }
    sum = dd_scale(dd_lanes_sum(sum, lanes), weight);
    most = dd_round(sum);
    left = dd_round(dd_subtract(dd_from(1), sum));
    return left > 2 * most * blasd_regression_leverage_unit(s.n, s.q) ? left : NAN;
}

struct put_in {
    struct gram_shape s;
    struct gram_arrays a;
    struct gram_outputs out;
    int lanes;
};

template <class... In> static __global__ void __launch_bounds__(THREADS) put_rows(In... in) {
    const auto &share = gram_share(in...);
    const struct gram_shape s = share.args.s;
    const struct gram_arrays &arrays = share.args.a;
    const struct gram_outputs out = share.args.out;
    int lanes = share.args.lanes;
    int64_t all = s.problems * s.n * s.t, step = share.blocks() * THREADS / lanes;
    int lane = (int)threadIdx.x % lanes, in_warp = (int)threadIdx.x % BLASD_WARP / lanes;
    int64_t at = (share.block() * THREADS + threadIdx.x) / lanes;
    for (; at - in_warp < all; at += step) {
        int64_t item = at < all ? at : all - 1, row = item / s.t % s.n, problem = item / s.t / s.n;
        int l = (int)(item % s.t);
        const struct gram_column *own = arrays.columns + problem * (s.q + s.t);
        const struct gram_data &d = arrays.data[problem];
        int unit = own[s.q + l].unit;
        double y = ldexp(d.y[row * s.t + l], -unit), r, rest = 1;
        bool near;
        double weight = d.w != nullptr ? d.w[row] * arrays.weight_scale[problem] : 1;
        struct dd left = left_of(s, own, d, arrays.b + problem * s.q * s.t, row, l, lane, lanes);
        r = ldexp(dd_round(left), gram_exponent(own[s.q + l]));
        /* at leverage 1 there is no residual: looked at where one lane of the warp has little */
        near = weight * r * r <= BLASD_REGRESSION_MET * arrays.ssr[problem * s.t + l] / (double)s.n;
        if (out.robust && (out.cov >= 3 || __any_sync(BLASD_WARP_ALL, near)))
            rest = left_of_leverage(s, own, d, weight, arrays.inverse + problem * s.q * s.q,
                                    arrays.pivots + problem * s.q, row, lane, lanes);
        if (lane != 0 || at >= all) continue;
        if (out.residuals != nullptr) {
            store(out.residuals[problem], out.single, row * s.t + l, ldexp(r, unit));
            store(out.fitted[problem], out.single, row * s.t + l, ldexp(y - r, unit));
        }
        if (out.robust && isnan(rest)) arrays.rest[problem * s.t + l] = NAN;
        if (out.robust)
            arrays.row_weight[(problem * s.t + l) * s.n + row] =
                middle_weight(out, weight, r, rest);
    }
}

int gram_put_rows(const struct gram_shape *s, const struct gram_arrays *arrays,
                  const struct gram_outputs *out, const struct gram_way *way,
                  struct blasd_err *err) {
    int lanes = lanes_for(s->q);
    int64_t all = s->problems * s->n * s->t;
    if (all == 0) return 0;
    return gram_launch<struct put_in>(way, STAGE_ROWS, put_rows, put_rows,
                                      blocks_for(s, all, lanes), THREADS, 0,
                                      {*s, *arrays, *out, lanes}, err);
}
