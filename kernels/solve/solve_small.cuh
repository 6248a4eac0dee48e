/* General systems of up to 32 unknowns that are well scaled: a row for each lane, in registers.
 * What lanes_body.h is on the CPU, with the same decisions: one step of refinement, and whatever
 * needs more than that (scaling, a pivot of 0, more steps) is left to solve_by_blocks.
 *
 * N, the unknowns that there is room for, and W, the lanes of a team, are known when this is
 * compiled, so that no array needs an address; a system of n < N unknowns has the unit matrix
 * beyond. Rows stay where they are: the pivot of step k is in lane order(k), and a lane's own step
 * is `mine`. Elimination turns the rows by one column a step, so that one step's code serves all;
 * up to 8 columns it is unrolled, beyond that all steps together would not fit the instruction
 * cache. What goes by columns, the transposed solution, reads the factors from shared memory, where
 * they stand in the order of the pivots. Read next: solve_kernels.cuh. */
#ifndef BLASD_KERNELS_SOLVE_SMALL_CUH
#define BLASD_KERNELS_SOLVE_SMALL_CUH

#include "kernels/solve/solve_columns.cuh"

template <int W, int N, class T> struct small_system {
    team_of_lanes<W> team;
    int n, lane, mine, order;
    T f[N];       /* this lane's row of the matrix, then of its factors */
    T inverse;    /* of its pivot */
    const T *own; /* its row in memory, for the residuals */
    int own_step; /* from element to element */
    T *factors;   /* shared, N x (N + 1): row k is that of pivot k, its last number the inverse */
    double norm_1, norm_inf;

    __device__ __forceinline__ bool here() const {
        return lane < n;
    }
    /* of the job's matrix, which nobody writes; 0 beyond it */
    __device__ __forceinline__ T element(int j) const {
        return here() && j < n ? __ldg(own + j * own_step) : (T)0;
    }
    __device__ __forceinline__ double most(T value) const {
        return team.most(here() ? size_of((double)value) : 0);
    }
    __device__ __forceinline__ double sum(T value) const {
        return team.sum(here() ? size_of((double)value) : 0);
    }

    /* Sums of rows and columns decide the norms and whether the matrix needs scaling. */
    __device__ __forceinline__ bool measure() {
        const double safe_most = precision<T>::safe, none = precision<T>::beyond;
        double row = 0, least_column = none, least_row;
        norm_1 = 0;
        BLASD_UNROLL
        for (int j = 0; j < N; j++) {
            double size = here() && j < n ? size_of((double)f[j]) : 0, column = team.sum(size);
            row += size;
            norm_1 = column > norm_1 ? column : norm_1;
            least_column = j < n && column < least_column ? column : least_column;
        }
        norm_inf = team.most(row);
        least_row = -team.most(here() ? -row : -none);
        return least_row >= norm_inf * 0x1p-8 && least_column >= norm_1 * 0x1p-8 &&
               norm_inf < safe_most && norm_inf > 1 / safe_most;
    }

    /* False: a pivot is 0, or too small to be divided by. */
    __device__ __forceinline__ bool factor() {
        constexpr int steps = N <= 8 ? N : 1; /* that are unrolled */
        bool whole = true;
        mine = lane < N ? N : -1; /* beyond the system there are no rows to choose */
        order = lane;
        inverse = 1; /* every lane has its turn */
        BLASD_UNROLL_BY(steps)
        for (int k = 0; k < N; k++) {
            int at = team.largest(mine < N ? -1 : size_of((double)f[0]), lane);
            T over = 1 / team.shuffle(f[0], at), left = f[0] * over;
            bool below = mine == N && lane != at;
            whole = whole && is_finite((double)over);
            if (lane == k) order = at;
            if (lane == at) {
                mine = k;
                inverse = over;
            }
            if (!below) left = f[0];
            /* columns k + 1 ... N - 1 come first, then those that are done */
            BLASD_UNROLL
            for (int from = 1; from < N; from += 8) {
                if (from < N - k) {
                    BLASD_UNROLL
                    for (int j = from; j < N && j < from + 8; j++) {
                        T other = team.shuffle(f[j], at);
                        f[j - 1] = below && j < N - k ? f[j] - left * other : f[j];
                    }
                } else {
                    BLASD_UNROLL
                    for (int j = from; j < N && j < from + 8; j++) f[j - 1] = f[j];
                }
            }
            f[N - 1] = left;
        }
        if (mine >= 0 && mine < N) { /* of NaN some rows have had no turn */
            BLASD_UNROLL
            for (int j = 0; j < N; j++) factors[mine * (N + 1) + j] = f[j];
            factors[mine * (N + 1) + N] = inverse;
        }
        team.sync();
        return whole;
    }

    /* inverse(A) v, where lane i holds element i. */
    __device__ __forceinline__ T solve(T v) const {
        BLASD_UNROLL
        for (int k = 0; k < N; k++) {
            T y = team.shuffle(v, team.shuffle(order, k));
            if (mine > k) v -= f[k] * y;
        }
        BLASD_UNROLL
        for (int k = N - 1; k >= 0; k--) {
            if (mine == k) v *= inverse;
            T x = team.shuffle(v, team.shuffle(order, k));
            if (mine < k) v -= f[k] * x;
        }
        return team.shuffle(v, order);
    }
    /* inverse(A') v: column i of the factors is lane i's. */
    __device__ __forceinline__ T solve_transposed(T v) const {
        int column = lane < N ? lane : 0;
        BLASD_UNROLL_BY(4)
        for (int k = 0; k < N; k++) {
            if (lane == k) v *= factors[k * (N + 1) + N];
            T y = team.shuffle(v, k);
            if (lane > k) v -= factors[k * (N + 1) + column] * y;
        }
        BLASD_UNROLL_BY(4)
        for (int k = N - 1; k >= 0; k--) {
            T x = team.shuffle(v, k);
            if (lane < k) v -= factors[k * (N + 1) + column] * x;
        }
        return team.shuffle(v, lane < N ? mine : lane);
    }

    /* The estimate of solve_system.cuh as one loop, which the teams of a warp leave together: so a
     * solution's code stands there once. */
    __device__ __forceinline__ double rcond() const {
        double best = 0, ratio;
        T sign = 0;
        int at = 0;
        bool last = false, done = false;
        BLASD_UNROLL_NOT
        for (int round = 0;; round++) {
            T v = (T)(lane == at ? 1 : 0), now;
            double other;
            int before = at, changed;
            if (round == 0) v = 1 / (T)n;
            if (last) v = (T)((lane % 2 == 0 ? 1 : -1) * (1 + (double)lane / (n - 1)));
            v = solve(here() ? v : (T)0);
            other = sum(v);
            if (last) other = 2 * other / (3.0 * n);
            if (!done && (last || n == 1 || round == 0))
                best = other > best || other != other ? other : best;
            done = done || last || n == 1;
            if (!__any_sync(BLASD_WARP_ALL, !done)) break;
            last = round > SOLVE_ROUNDS || (round > 0 && !(other > best));
            best = last || done ? best : other;
            now = (T)(v < 0 ? -1 : 1);
            changed = team.any(here() && now != sign);
            sign = now;
            last = last || !changed;
            if (!__any_sync(BLASD_WARP_ALL, !done && !last)) continue;
            v = solve_transposed(here() ? sign : (T)0);
            at = team.largest(here() ? size_of((double)v) : -1, lane);
            other = size_of((double)team.shuffle(v, before));
            last = (size_of((double)team.shuffle(v, at)) == other && round > 0) || last;
        }
        ratio = 1 / best / norm_1;
        return ratio < 1 ? ratio : ratio >= 1 ? 1 : 0;
    }
    /* What the condition and the growth of the pivots make of the last digit. */
    __device__ __forceinline__ double contraction(double rcond) const {
        double own_most = 0, all;
        BLASD_UNROLL
        for (int j = 0; j < N; j++) {
            double size = j >= mine && j < n ? size_of((double)f[j]) : 0;
            own_most = size > own_most ? size : own_most;
        }
        all = team.most(own_most);
        return 4 * precision<T>::unit * (all > norm_inf ? all : norm_inf) / (norm_inf * rcond);
    }

    /* One right-hand side: solves, refines once. False: it needs more than this. */
    __device__ __forceinline__ bool solve_column(T b, bool refine, double shrinks, T *ret,
                                                 double *error, int *steps) const {
        const double u = precision<T>::unit, safe_most = precision<T>::safe;
        double size_b = most(b), size_x = 0, size_r = 0, size_d = 0, hidden = 0, below;
        T x = 0, r = b, t = 0;
        bool good = true;
        BLASD_UNROLL_NOT
        for (int step = 0; step <= (int)refine; step++) {
            T d = solve(here() ? r : (T)0), next = x + d;
            size_d = most(d);
            t = next - x; /* what was really added: exact where it is far smaller */
            x = next;
            if (step > 0) break;
            size_x = size_d;
            double hi = (double)b, lo = 0;
            BLASD_UNROLL_BY(4)
            for (int j = 0; j < N; j++) subtract_product(hi, lo, element(j), team.shuffle(x, j));
            r = (T)(hi + lo);
            size_r = most(r);
        }
        *steps = refine && size_r != 0;
        if (refine) {
            /* by which the final residual may be larger than it looks */
            hidden = u * (n + 2) * (norm_inf * size_d + size_r);
            BLASD_UNROLL_BY(4)
            for (int j = 0; j < N; j++) r -= element(j) * team.shuffle(t, j);
            size_r = most(r);
            /* a second correction would shrink as the first did, or a little less: nothing left? */
            shrinks = size_d > size_x * shrinks ? size_d : size_x * shrinks;
            good = size_d * shrinks <= size_x * size_x * (u / 4);
            size_x = most(x);
        }
        below = norm_inf * size_x + size_b;
        hidden += size_r * (1 + 4 * u * (n + 2)) + below * (n + 2) * precision<T>::residual_unit;
        *error = below > 0 ? hidden / below : 0;
        *ret = x;
        return good && (!refine || *error <= 2 * u) && size_x < safe_most * safe_most &&
               size_b < safe_most && (size_b > 1 / safe_most || size_b == 0);
    }
};

#endif
