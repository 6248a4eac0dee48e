/* LU and substitution by a block of threads, of up to as many unknowns as it has threads. Factors
 * may lie in global memory: what is read of them is read by lines, and seldom.
 *
 * LU goes in panels of 16 columns. A panel is in registers, a row for each thread, and a column of
 * it costs one barrier: each warp shows the row of its largest element, and all threads take the
 * best. Its rows' exchanges then reach the other columns at once, a column for each thread, which
 * also makes the panel's rows of U; what is below them is updated by rows, from registers, with U
 * in shared memory. Read next: solve_system.cuh. */
#ifndef BLASD_KERNELS_SOLVE_BLOCK_CUH
#define BLASD_KERNELS_SOLVE_BLOCK_CUH

#include "kernels/solve/solve_team.cuh"

#define SOLVE_BLOCK_MOST 256 /* threads */
#define SOLVE_PANEL 16
#define SOLVE_DIAGONAL BLASD_WARP /* rows that a warp solves together */

template <class T> struct vector_view {
    T *p;
    int step;
    __device__ T &operator[](int i) const {
        return p[i * step];
    }
};
template <class T> struct matrix_view {
    T *p;
    int row, column;
    __device__ T &operator()(int i, int j) const {
        return p[i * row + j * column];
    }
    __device__ matrix_view turned() const {
        return {p, column, row};
    }
};

/* Memory is far: loops here ask for several numbers before they use the first. Where there are
 * fewer, the last one is asked for again. */
static __device__ inline int least(int a, int b) {
    return a < b ? a : b;
}

/* ---- LU ---- */

/* Shared memory reads 16 bytes at a time, and a row's step spreads the rows over its banks. */
template <class T> struct alignas(16) solve_pack {
    static constexpr int count = 16 / sizeof(T);
    T v[16 / sizeof(T)];
};
template <class T> struct solve_strip {
    static constexpr int step = SOLVE_PANEL / solve_pack<T>::count + 1; /* packs a column */
};
/* Packs that rows of U take of a system of n unknowns; tiles of four columns may end beyond it. */
template <class T> static __host__ __device__ inline int64_t solve_strip_count(int64_t n) {
    return (n + 3) * solve_strip<T>::step;
}

/* What a panel did to the rows: where its first ones come from, and where those went that had
 * been there; and its own triangle of L. */
template <class T> struct solve_exchanges {
    int from[SOLVE_PANEL], to[SOLVE_PANEL];
    T lower[SOLVE_PANEL][SOLVE_PANEL]; /* column by column */
};

/* Columns from j on, `width` of them. Returns the first zero pivot, from 1, or 0. */
template <class T>
static __device__ __noinline__ int lu_panel(const team_of_block &team, matrix_view<T> f, int n,
                                            int j, int width, vector_view<int> order,
                                            solve_exchanges<T> &exchanges) {
    constexpr int warps_most = SOLVE_BLOCK_MOST / BLASD_WARP;
    /* of each warp's best row, and of the one that makes way; by turns, so that one barrier does */
    BLASD_STATIC_SHARED(T, rows, [2][warps_most + 1][SOLVE_PANEL]);
    BLASD_STATIC_SHARED(double, sizes, [2][warps_most]);
    BLASD_STATIC_SHARED(int, places, [2][warps_most + 1]);
    BLASD_STATIC_SHARED(int, origins, [2][warps_most + 1]);
    int rank = team.rank(), warp = rank / BLASD_WARP, warps = team.size() / BLASD_WARP;
    int i = j + rank, origin = i, info = 0, own;
    bool here = i < n;
    T row[SOLVE_PANEL];
    BLASD_UNROLL
    for (int c = 0; c < SOLVE_PANEL; c++) row[c] = here && c < width ? f(i, j + c) : (T)0;
    /* rows turn by one column a step, so that one step's code serves all */
    BLASD_UNROLL_NOT
    for (int k = 0; k < SOLVE_PANEL; k++) {
        constexpr int makes_way = warps_most;
        int set = k % 2, winner = makes_way, at;
        bool below = k < width && rank > k;
        T first = row[0];
        const T *up = rows[set][makes_way];
        if (k < width) {
            double size = here && rank >= k ? size_of((double)row[0]) : -1, best;
            T pivot, inverse;
            size = size >= 0 ? size : -1; /* not NaN */
            best = team.crew().most(size);
            if (rank % BLASD_WARP == __ffs((int)__ballot_sync(BLASD_WARP_ALL, size == best)) - 1) {
                sizes[set][warp] = best;
                places[set][warp] = rank;
                origins[set][warp] = origin;
                BLASD_UNROLL
                for (int c = 0; c < SOLVE_PANEL; c++) rows[set][warp][c] = row[c];
            }
            if (rank == k) {
                places[set][makes_way] = k;
                origins[set][makes_way] = origin;
                BLASD_UNROLL
                for (int c = 0; c < SOLVE_PANEL; c++) rows[set][makes_way][c] = row[c];
            }
            team.sync();
            best = -1;
            BLASD_UNROLL
            for (int w = 0; w < warps_most; w++) {
                double its = w < warps ? sizes[set][w] : -1;
                winner = its > best ? w : winner;
                best = its > best ? its : best;
            }
            up = rows[set][winner];
            at = places[set][winner];
            if (rank == at || rank == k) {
                int other = rank != k ? makes_way : winner;
                origin = origins[set][other];
                BLASD_UNROLL
                for (int c = 0; c < SOLVE_PANEL; c++) row[c] = rows[set][other][c];
                first = row[0];
            }
            pivot = up[0];
            if (pivot == 0 && info == 0) info = j + k + 1;
            inverse = 1 / pivot;
            below = below && pivot != 0;
            if (below) first = is_finite((double)inverse) ? first * inverse : first / pivot;
        }
        BLASD_UNROLL
        for (int c = 1; c < SOLVE_PANEL; c++)
            row[c - 1] = below && c < SOLVE_PANEL - k ? row[c] - first * up[c] : row[c];
        row[SOLVE_PANEL - 1] = first;
    }
    own = here ? order[origin] : 0;
    BLASD_UNROLL
    for (int c = 0; c < SOLVE_PANEL; c++) {
        if (here && c < width) f(i, j + c) = row[c];
        if (rank < width) exchanges.lower[c][rank] = row[c];
    }
    if (rank < width) exchanges.from[rank] = origin;
    if (here && origin < j + width) exchanges.to[origin - j] = i;
    team.sync();
    if (here) order[i] = own;
    return info;
}

/* The panel's exchanges in the other columns, and its rows of U, which also go to `strip`. */
template <class T>
static __device__ __noinline__ void lu_across(const team_of_block &team, matrix_view<T> f, int n,
                                              int j, int width, const solve_exchanges<T> &exchanges,
                                              solve_pack<T> *strip) {
    constexpr int each = solve_pack<T>::count;
    int end = j + width;
    for (int c = team.rank(); c < n; c += team.size()) {
        T old[SOLVE_PANEL], u[SOLVE_PANEL];
        if (c >= j && c < end) continue;
        BLASD_UNROLL
        for (int k = 0; k < SOLVE_PANEL; k++) {
            old[k] = k < width ? f(j + k, c) : (T)0;
            u[k] = k < width ? f(exchanges.from[k], c) : (T)0;
        }
        BLASD_UNROLL
        for (int k = 0; k < SOLVE_PANEL; k++)
            if (k < width && exchanges.to[k] >= end) f(exchanges.to[k], c) = old[k];
        if (c >= end) { /* then the panel has all its columns */
            BLASD_UNROLL
            for (int k = 0; k < SOLVE_PANEL; k++) {
                BLASD_UNROLL
                for (int i = k + 1; i < SOLVE_PANEL; i++) u[i] -= exchanges.lower[k][i] * u[k];
            }
            BLASD_UNROLL
            for (int k = 0; k < SOLVE_PANEL; k += each) {
                solve_pack<T> pack;
                BLASD_UNROLL
                for (int e = 0; e < each; e++) pack.v[e] = u[k + e];
                strip[(c - end) * solve_strip<T>::step + k / each] = pack;
            }
        }
        BLASD_UNROLL
        for (int k = 0; k < SOLVE_PANEL; k++)
            if (k < width) f(j + k, c) = u[k];
    }
}

/* What is below and right of the panel: rows are shared out, and columns where there are threads
 * left; four columns at a time. */
template <class T>
static __device__ __noinline__ void lu_update(const team_of_block &team, matrix_view<T> f, int n,
                                              int j, const solve_pack<T> *strip) {
    constexpr int each = solve_pack<T>::count, step = solve_strip<T>::step;
    int end = j + SOLVE_PANEL, rest = n - end;
    int wide = (rest + BLASD_WARP - 1) / BLASD_WARP * BLASD_WARP;
    int groups = rest > 0 ? team.size() / wide : 0, group = rest > 0 ? team.rank() / wide : 0;
    int i = end + team.rank() - group * wide;
    T left[SOLVE_PANEL];
    if (group >= groups || i >= n) return;
    BLASD_UNROLL
    for (int k = 0; k < SOLVE_PANEL; k++) left[k] = f(i, j + k);
    T next[4];
    BLASD_UNROLL
    for (int q = 0; q < 4; q++) next[q] = f(i, least(end + 4 * group + q, n - 1));
    for (int c = 4 * group; c < rest; c += 4 * groups) {
        T v[4];
        BLASD_UNROLL
        for (int q = 0; q < 4; q++) {
            v[q] = next[q];
            next[q] = f(i, least(end + c + 4 * groups + q, n - 1));
        }
        BLASD_UNROLL
        for (int k = 0; k < SOLVE_PANEL; k += each) {
            BLASD_UNROLL
            for (int q = 0; q < 4; q++) {
                solve_pack<T> up = strip[(c + q) * step + k / each];
                BLASD_UNROLL
                for (int e = 0; e < each; e++) v[q] -= left[k + e] * up.v[e];
            }
        }
        BLASD_UNROLL
        for (int q = 0; q < 4; q++)
            if (c + q < rest) f(i, end + c + q) = v[q];
    }
}

/* Partial pivoting, of no more unknowns than threads. order[i]: which row of the matrix stands in
 * row i. Returns the first zero pivot, from 1, or 0. */
template <class T>
static __device__ __noinline__ int factor_lu_by_panels(const team_of_block &team, matrix_view<T> f,
                                                       int n, vector_view<int> order,
                                                       solve_pack<T> *strip) {
    BLASD_STATIC_SHARED(solve_exchanges<T>, exchanges, );
    int info = 0;
    for (int i = team.rank(); i < n; i += team.size()) order[i] = i;
    team.sync();
    for (int j = 0; j < n; j += SOLVE_PANEL) {
        int width = n - j < SOLVE_PANEL ? n - j : SOLVE_PANEL;
        int zero = lu_panel(team, f, n, j, width, order, exchanges);
        info = info == 0 ? zero : info;
        lu_across(team, f, n, j, width, exchanges, strip);
        team.sync();
        lu_update(team, f, n, j, strip);
        team.sync();
    }
    return info;
}

/* ---- substitution ---- */

/* Numbers that the inverses of a triangle's blocks on the diagonal take. */
static __host__ __device__ inline int64_t solve_diagonal_count(int64_t n) {
    return (n + SOLVE_DIAGONAL - 1) / SOLVE_DIAGONAL * SOLVE_DIAGONAL * SOLVE_DIAGONAL;
}
template <class T> static __device__ inline matrix_view<T> diagonal_block(matrix_view<T> d, int b) {
    return {d.p + b * SOLVE_DIAGONAL * SOLVE_DIAGONAL, d.row, d.column};
}

/* Those of the lower triangle t; of a unit one, what is below the diagonal. A warp a block, a lane
 * a column, in registers. False: one is not finite, for a pivot was too small. */
template <class T>
static __device__ __noinline__ bool invert_diagonal(const team_of_block &team, matrix_view<T> t,
                                                    int n, bool unit, matrix_view<T> inverse) {
    int lane = team.rank() % BLASD_WARP, good = 1;
    for (int b = team.rank() / BLASD_WARP; b * SOLVE_DIAGONAL < n; b += team.size() / BLASD_WARP) {
        int base = b * SOLVE_DIAGONAL, m = n - base < SOLVE_DIAGONAL ? n - base : SOLVE_DIAGONAL;
        matrix_view<T> to = diagonal_block(inverse, b);
        T v[SOLVE_DIAGONAL];
        BLASD_UNROLL
        for (int c = 0; c < SOLVE_DIAGONAL; c++) v[c] = (T)(c == lane ? 1 : 0);
        BLASD_UNROLL_NOT
        for (int k = 0; k < m; k++) { /* v begins with row k */
            T first = unit ? v[0] : v[0] * (1 / t(base + k, base + k));
            if (lane < k || (lane == k && !unit)) {
                to(k, lane) = first;
                good &= is_finite((double)first);
            }
            BLASD_UNROLL
            for (int c = 1; c < SOLVE_DIAGONAL; c++)
                v[c - 1] = v[c] - t(base + least(k + c, m - 1), base + k) * first;
        }
    }
    return !team.any(!good);
}

template <class T> struct solve_tile { T at[SOLVE_DIAGONAL][SOLVE_DIAGONAL + 1]; };

/* What the rows of a block owe to the unknowns `from` to `to`, where rows lie in memory as such:
 * four rows for each warp, their products shared out among lanes. */
template <class T>
static __device__ __forceinline__ void subtract_known(const team_of_block &team, matrix_view<T> t,
                                                      int base, int m, int from, int to,
                                                      vector_view<T> x) {
    int lane = team.rank() % BLASD_WARP, step = team.size() / BLASD_WARP * 4;
    for (int r = team.rank() / BLASD_WARP * 4; r < m; r += step) {
        T sum[4] = {0, 0, 0, 0};
        for (int k = from + lane; k < to; k += 4 * BLASD_WARP) {
            T v[4][4];
            BLASD_UNROLL
            for (int p = 0; p < 4; p++) {
                BLASD_UNROLL
                for (int q = 0; q < 4; q++)
                    v[p][q] = t(base + least(r + q, m - 1), least(k + p * BLASD_WARP, to - 1));
            }
            BLASD_UNROLL
            for (int p = 0; p < 4; p++) {
                if (k + p * BLASD_WARP >= to) continue;
                BLASD_UNROLL
                for (int q = 0; q < 4; q++) sum[q] += v[p][q] * x[k + p * BLASD_WARP];
            }
        }
        BLASD_UNROLL
        for (int q = 0; q < 4; q++) {
            BLASD_UNROLL
            for (int by = BLASD_WARP / 2; by > 0; by /= 2)
                sum[q] += __shfl_xor_sync(BLASD_WARP_ALL, sum[q], by);
            if (lane == q && r + q < m) x[base + r + q] -= sum[q];
        }
    }
}

/* The rows of a block, by a warp, a row for each lane. */
template <class T>
static __device__ __forceinline__ T solve_tile_rows(const solve_tile<T> &tile, int m, bool forward,
                                                    bool unit, T v) {
    int lane = (int)threadIdx.x;
    T own = unit || lane >= m ? (T)1 : tile.at[lane][lane], inverse = 1 / own, back = 1;
    if (!is_finite((double)inverse)) { /* a pivot may be denormal */
        back = (T)0x1p64;
        inverse = 1 / (own * back);
    }
    BLASD_UNROLL_BY(8)
    for (int s = 0; s < SOLVE_DIAGONAL; s++) {
        int k = forward ? s : SOLVE_DIAGONAL - 1 - s;
        T ready = v * inverse * back, other;
        if (lane == k) v = ready;
        other = __shfl_sync(BLASD_WARP_ALL, ready, k);
        if (forward ? lane > k : lane < k) v -= tile.at[lane][k] * other;
    }
    return v;
}
/* The same by the block's inverse. */
template <class T>
static __device__ __forceinline__ T multiply_tile_rows(const solve_tile<T> &tile, vector_view<T> x,
                                                       int base, int m) {
    int lane = (int)threadIdx.x;
    T sum[4] = {0, 0, 0, 0};
    BLASD_UNROLL_BY(2)
    for (int k = 0; k < SOLVE_DIAGONAL; k += 4) {
        BLASD_UNROLL
        for (int q = 0; q < 4; q++)
            sum[q] += tile.at[lane][k + q] * (k + q < m ? x[base + k + q] : (T)0);
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* x := T^-1 x for a triangle T, block by block; forward: the lower one. `inverse`: those of its
 * blocks, or its p is NULL. */
template <class T>
static __device__ __noinline__ void substitute_by_blocks(const team_of_block &team,
                                                         matrix_view<T> t, matrix_view<T> inverse,
                                                         int n, bool forward, bool unit,
                                                         vector_view<T> x) {
    BLASD_STATIC_SHARED(solve_tile<T>, tile, );
    bool by_rows = t.column == 1, inverted = inverse.p != nullptr;
    int blocks = (n + SOLVE_DIAGONAL - 1) / SOLVE_DIAGONAL;
    for (int step = 0; step < blocks; step++) {
        int b = forward ? step : blocks - 1 - step, base = b * SOLVE_DIAGONAL;
        int m = n - base < SOLVE_DIAGONAL ? n - base : SOLVE_DIAGONAL;
        matrix_view<T> from = {&t(base, base), t.row, t.column};
        if (inverted) from = diagonal_block(inverse, b);
        for (int e = team.rank(); e < SOLVE_DIAGONAL * SOLVE_DIAGONAL; e += 4 * team.size()) {
            T v[4];
            BLASD_UNROLL
            for (int q = 0; q < 4; q++) {
                int slow = (e + q * team.size()) / SOLVE_DIAGONAL, fast = e % SOLVE_DIAGONAL;
                int i = from.column == 1 ? slow : fast, k = from.column == 1 ? fast : slow;
                v[q] = from(least(i, m - 1), least(k, m - 1));
            }
            BLASD_UNROLL
            for (int q = 0; q < 4; q++) {
                int slow = (e + q * team.size()) / SOLVE_DIAGONAL, fast = e % SOLVE_DIAGONAL;
                int i = from.column == 1 ? slow : fast, k = from.column == 1 ? fast : slow;
                bool of_it = i < m && k < m && (i == k || (k < i) == forward);
                tile.at[i][k] = i == k && unit ? (T)1 : of_it ? v[q] : (T)0;
            }
        }
        if (by_rows)
            subtract_known(team, t, base, m, forward ? 0 : base + m, forward ? base : n, x);
        team.sync();
        if (team.rank() < BLASD_WARP) {
            int i = base + team.rank();
            bool here = team.rank() < m;
            T v = inverted ? multiply_tile_rows(tile, x, base, m)
                           : solve_tile_rows(tile, m, forward, unit, here ? x[i] : (T)0);
            __syncwarp();
            if (here) x[i] = v;
        }
        team.sync();
        int first = forward ? base + m : 0, end = forward ? n : base;
        for (int i = first + team.rank(); !by_rows && i < end; i += team.size()) {
            T sum = 0;
            for (int k = 0; k < m; k += 16) {
                T v[16];
                BLASD_UNROLL
                for (int q = 0; q < 16; q++) v[q] = t(i, base + least(k + q, m - 1));
                BLASD_UNROLL
                for (int q = 0; q < 16; q++)
                    if (k + q < m) sum += v[q] * x[base + k + q];
            }
            x[i] -= sum;
        }
    }
}

#endif
