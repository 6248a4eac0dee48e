/* Factors of one matrix by one team, in shared memory or in global, and what substitutes with them.
 * Element (i, j) is t(i, j); a factor stands where the matrix was.
 *
 * Cholesky of a block, and LU of more unknowns than it has threads, go in panels of 8 columns: the
 * crew makes a panel, the block updates what is right of it in tiles of registers. Smaller teams
 * take the whole matrix as one panel. Read next: solve_system.cuh. */
#ifndef BLASD_KERNELS_SOLVE_FACTOR_CUH
#define BLASD_KERNELS_SOLVE_FACTOR_CUH

#include "kernels/solve/solve_block.cuh"

#define SOLVE_CREW_PANEL 8

/* x := T^-1 x for a triangle T; forward: the lower one. Of a team that has a lane for each row. */
template <int W, class T>
static __device__ __noinline__ void substitute(const team_of_lanes<W> &team, matrix_view<T> t,
                                               int n, bool forward, bool unit, vector_view<T> x) {
    int p = team.rank(), i = forward ? p : n - 1 - p;
    bool here = p < n;
    T v = here ? x[i] : (T)0, own = here && !unit ? t(i, i) : (T)1;
    T inverse = 1 / own;
    bool safe = is_finite((double)inverse); /* a pivot may be denormal */
    for (int k = 0; k < n; k++) {
        if (p == k && !unit) v = safe ? v * inverse : v / own;
        T other = team.shuffle(v, k);
        if (here && p > k) v -= t(i, forward ? k : n - 1 - k) * other;
    }
    if (here) x[i] = v;
    team.sync();
}

/* f(i, c) -= f(i, k) g(k, c) for rows and columns from `from` on and k in the panel; in tiles of 4
 * by 4 for each thread. `lower`: only tiles that reach below the diagonal. */
template <class T>
static __device__ __noinline__ void update_trailing(const team_of_block &team, matrix_view<T> f,
                                                    matrix_view<T> g, int n, int panel, int from,
                                                    bool lower) {
    int across = 16, down = team.size() / across;
    int tx = team.rank() % across, ty = team.rank() / across;
    for (int c0 = from; c0 < n; c0 += 4 * down)
        for (int i0 = from; i0 < n; i0 += 4 * across) {
            T sum[4][4], left[4], right[4];
            if (lower && i0 + 4 * across <= c0) continue;
            for (int a = 0; a < 4; a++)
                for (int b = 0; b < 4; b++) sum[a][b] = 0;
            for (int k = panel; k < from; k++) {
                for (int a = 0; a < 4; a++) {
                    int i = i0 + tx + across * a;
                    left[a] = i < n ? f(i, k) : (T)0;
                }
                for (int b = 0; b < 4; b++) {
                    int c = c0 + ty + down * b;
                    right[b] = c < n ? g(k, c) : (T)0;
                }
                for (int a = 0; a < 4; a++)
                    for (int b = 0; b < 4; b++) sum[a][b] += left[a] * right[b];
            }
            for (int a = 0; a < 4; a++)
                for (int b = 0; b < 4; b++) {
                    int i = i0 + tx + across * a, c = c0 + ty + down * b;
                    if (i < n && c < n) f(i, c) -= sum[a][b];
                }
        }
}

template <class T> static __device__ inline void exchange(T &a, T &b) {
    T keep = a;
    a = b;
    b = keep;
}

/* Column k of a panel of LU: finds the pivot, brings it up, and updates the panel's columns. */
template <class Crew, class T>
static __device__ __noinline__ void lu_column(const Crew &crew, matrix_view<T> f, int n, int k,
                                              int panel, int end, vector_view<int> order,
                                              vector_view<int> swaps, int *info) {
    double best = -1;
    int at = k;
    T pivot, inverse;
    bool safe;
    for (int i = k + crew.rank(); i < n; i += crew.size()) {
        double size = size_of((double)f(i, k));
        if (size > best) {
            best = size;
            at = i;
        }
    }
    at = crew.largest(best, at);
    crew.sync();
    if (crew.rank() == 0) {
        swaps[k] = at;
        if (at != k) exchange(order[k], order[at]);
    }
    for (int c = panel + crew.rank(); at != k && c < end; c += crew.size())
        exchange(f(k, c), f(at, c));
    crew.sync();
    pivot = f(k, k);
    if (pivot == 0) {
        if (*info == 0) *info = k + 1;
        return;
    }
    inverse = 1 / pivot;
    safe = is_finite((double)inverse);
    for (int i = k + 1 + crew.rank(); i < n; i += crew.size()) {
        T left = safe ? f(i, k) * inverse : f(i, k) / pivot;
        f(i, k) = left;
        for (int c = k + 1; c < end; c++) f(i, c) -= left * f(k, c);
    }
    crew.sync();
}

/* Partial pivoting. order[i]: which row of the matrix stands in row i; swaps: room for n. Returns
 * the first zero pivot, from 1, or 0. */
template <class Team, class T>
static __device__ __noinline__ int factor_lu(const Team &team, matrix_view<T> f, int n,
                                             vector_view<int> order, vector_view<int> swaps) {
    int width = Team::block ? SOLVE_CREW_PANEL : n, info = 0;
    for (int i = team.rank(); i < n; i += team.size()) order[i] = i;
    team.sync();
    for (int j = 0; j < n; j += width) {
        int end = j + width < n ? j + width : n;
        if (team.rank() < Team::width) {
            auto crew = team.crew();
            for (int k = j; k < end; k++) lu_column(crew, f, n, k, j, end, order, swaps, &info);
        }
        team.sync();
        if constexpr (Team::block) {
            for (int c = team.rank(); c < n; c += team.size()) {
                if (c >= j && c < end) continue;
                for (int k = j; k < end; k++)
                    if (swaps[k] != k) exchange(f(k, c), f(swaps[k], c));
                if (c < end) continue;
                for (int k = j; k < end; k++) /* and its part of U */
                    for (int i = k + 1; i < end; i++) f(i, c) -= f(i, k) * f(k, c);
            }
            team.sync();
            update_trailing(team, f, f, n, j, end, false);
            team.sync();
        }
    }
    /* the crew alone knows */
    return Team::block ? (int)team.most(team.rank() < Team::width ? info : 0) : info;
}

static __device__ inline double root_of(double x) {
    return sqrt(x);
}
static __device__ inline float root_of(float x) {
    return sqrtf(x);
}

/* Returns the order of the first minor that is not positive, or 0. */
template <class Team, class T>
static __device__ __noinline__ int factor_cholesky(const Team &team, matrix_view<T> f, int n) {
    int width = Team::block ? SOLVE_CREW_PANEL : n, info = 0;
    for (int j = 0; j < n; j += width) {
        int end = j + width < n ? j + width : n;
        if (team.rank() < Team::width) {
            auto crew = team.crew();
            for (int k = j; k < end && info == 0; k++) {
                T below = f(k, k), root = root_of(below), inverse = 1 / root;
                crew.sync();
                if (!(below > 0)) {
                    info = k + 1;
                    break;
                }
                if (crew.rank() == 0) f(k, k) = root;
                for (int i = k + 1 + crew.rank(); i < n; i += crew.size()) f(i, k) *= inverse;
                crew.sync();
                for (int i = k + 1 + crew.rank(); i < n; i += crew.size())
                    for (int c = k + 1; c < end && c <= i; c++) f(i, c) -= f(i, k) * f(c, k);
                crew.sync();
            }
        }
        if constexpr (Team::block)
            info = (int)team.most(team.rank() < Team::width ? info : 0);
        else
            team.sync();
        if (info != 0) return info;
        if constexpr (Team::block) {
            update_trailing(team, f, f.turned(), n, j, end, true);
            team.sync();
        }
    }
    return 0;
}

/* The largest element of row or column `at` of the rest from k on, without the diagonal's. */
template <class Team, class T>
static __device__ __noinline__ double largest_beside(const Team &team, matrix_view<T> f, int n,
                                                     int k, int at, int *where) {
    double best = -1;
    int place = n;
    for (int i = k + team.rank(); i < n; i += team.size()) {
        double size = size_of((double)f(i, at));
        if (i != at && size > best) {
            best = size;
            place = i;
        }
    }
    *where = team.largest(best, place);
    return team.most(best);
}

/* Bunch and Kaufman's choice: 1 or 2, and in *at the row to bring up. */
template <class Team, class T>
static __device__ __noinline__ int choose_pivot(const Team &team, matrix_view<T> f, int n, int k,
                                                int *at) {
    const double alpha = 0.6403882032022076; /* (1 + sqrt(17)) / 8 */
    double own = size_of((double)f(k, k)), most, beside, diagonal;
    int ignored;
    most = largest_beside(team, f, n, k, k, at);
    if (!(most > 0) || own >= alpha * most) {
        *at = k;
        return 1;
    }
    beside = largest_beside(team, f, n, k, *at, &ignored);
    diagonal = size_of((double)f(*at, *at));
    if (own >= alpha * most * (most / beside)) {
        *at = k;
        return 1;
    }
    return diagonal >= alpha * beside ? 1 : 2;
}

/* P A P' = L D L' of a full symmetric matrix: L below the diagonal, D on it, and in `beside` what
 * couples k and k + 1 where D has a block of two, else 0. */
template <class Team, class T>
static __device__ __noinline__ int factor_ldlt(const Team &team, matrix_view<T> f, int n,
                                               vector_view<int> order, vector_view<T> beside) {
    int info = 0, count;
    for (int i = team.rank(); i < n; i += team.size()) {
        order[i] = i;
        beside[i] = 0;
    }
    team.sync();
    for (int k = 0; k < n; k += count) {
        int at = k, up;
        T d, e, d2, det;
        count = choose_pivot(team, f, n, k, &at);
        up = k + count - 1;
        team.sync();
        if (at != up) {
            for (int c = team.rank(); c < n; c += team.size()) exchange(f(up, c), f(at, c));
            if (team.rank() == 0) exchange(order[up], order[at]);
            team.sync();
            for (int i = k + team.rank(); i < n; i += team.size()) exchange(f(i, up), f(i, at));
            team.sync();
        }
        d = f(k, k);
        if (count == 1) {
            if (d == 0) {
                if (info == 0) info = k + 1;
                team.sync(); /* f may be something else next */
                continue;
            }
            for (int i = k + 1 + team.rank(); i < n; i += team.size()) {
                T left = f(i, k) / d;
                for (int c = k + 1; c < n; c++) f(i, c) -= left * f(k, c);
                f(i, k) = left;
            }
            team.sync();
            continue;
        }
        e = f(k + 1, k);
        d2 = f(k + 1, k + 1);
        /* the block by its larger part, so that nothing overflows */
        det = (d / e) * (d2 / e) - 1;
        for (int i = k + 2 + team.rank(); i < n; i += team.size()) {
            T x = f(i, k) / e, y = f(i, k + 1) / e;
            T l1 = (x * (d2 / e) - y) / det, l2 = (y * (d / e) - x) / det;
            for (int c = k + 2; c < n; c++) f(i, c) -= l1 * f(k, c) + l2 * f(k + 1, c);
            f(i, k) = l1;
            f(i, k + 1) = l2;
        }
        team.sync();
        if (team.rank() == 0) {
            beside[k] = e;
            f(k + 1, k) = 0;
        }
        team.sync();
    }
    return info;
}

/* x := D^-1 x. */
template <class Team, class T>
static __device__ __noinline__ void solve_blocks(const Team &team, matrix_view<T> f, int n,
                                                 vector_view<T> beside, vector_view<T> x) {
    for (int k = team.rank(); k < n; k += team.size()) {
        if (beside[k] != 0) {
            T e = beside[k], d = f(k, k) / e, d2 = f(k + 1, k + 1) / e, det = d * d2 - 1;
            T a = x[k] / e, b = x[k + 1] / e;
            x[k] = (d2 * a - b) / det;
            x[k + 1] = (d * b - a) / det;
        } else if (k == 0 || beside[k - 1] == 0) {
            x[k] = x[k] / f(k, k);
        }
    }
    team.sync();
}

/* x := (1 - tau v v') x, where v is 1 at k and stands below it in column k of f. */
template <class Team, class T>
static __device__ __noinline__ void reflect(const Team &team, matrix_view<T> f, int n, int k, T tau,
                                            vector_view<T> x) {
    double sum = 0;
    T share;
    for (int i = k + 1 + team.rank(); i < n; i += team.size())
        sum += (double)f(i, k) * (double)x[i];
    share = tau * (T)(team.sum(sum) + (double)x[k]);
    team.sync();
    for (int i = k + team.rank(); i < n; i += team.size()) x[i] -= i == k ? share : share * f(i, k);
    team.sync();
}

/* Householder's: R on and above the diagonal, reflectors below. False: R has a zero. */
template <class Team, class T>
static __device__ __noinline__ bool factor_qr(const Team &team, matrix_view<T> f, int n,
                                              vector_view<T> tau) {
    bool good = true;
    for (int k = 0; k < n; k++) {
        double sum = 0, alpha, beta;
        for (int i = k + 1 + team.rank(); i < n; i += team.size())
            sum += (double)f(i, k) * (double)f(i, k);
        sum = team.sum(sum);
        alpha = (double)f(k, k);
        beta = sqrt(alpha * alpha + sum);
        beta = alpha > 0 ? -beta : beta;
        team.sync();
        if (sum == 0) {
            if (team.rank() == 0) tau[k] = 0;
            good = good && alpha != 0;
            team.sync();
            continue;
        }
        for (int i = k + 1 + team.rank(); i < n; i += team.size())
            f(i, k) = (T)((double)f(i, k) / (alpha - beta));
        if (team.rank() == 0) {
            tau[k] = (T)((beta - alpha) / beta);
            f(k, k) = (T)beta;
        }
        team.sync();
        if constexpr (Team::block) { /* a warp a column */
            auto crew = team.crew();
            for (int c = k + 1 + team.rank() / BLASD_WARP; c < n; c += team.size() / BLASD_WARP)
                reflect(crew, f, n, k, tau[k], vector_view<T>{&f(0, c), f.row});
        } else {
            for (int c = k + 1 + team.rank(); c < n; c += team.size()) {
                T share = f(k, c);
                for (int i = k + 1; i < n; i++) share += f(i, k) * f(i, c);
                share *= tau[k];
                f(k, c) -= share;
                for (int i = k + 1; i < n; i++) f(i, c) -= share * f(i, k);
            }
        }
        team.sync();
    }
    return good;
}

#endif
