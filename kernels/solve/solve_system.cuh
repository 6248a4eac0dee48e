/* One system on one block: factors, condition, refinement, of what is well scaled and well
 * conditioned, with the constants of the CPU's engine (engine_body.h, which gives the reasons).
 * What needs more than that is left to the engine itself, on the host.
 *
 * Read next: solve_columns.cuh. */
#ifndef BLASD_KERNELS_SOLVE_SYSTEM_CUH
#define BLASD_KERNELS_SOLVE_SYSTEM_CUH

#include "kernels/solve/solve_room.cuh"

extern "C" {
#include "kernels/solve/solve.h"
}

#define SOLVE_STEPS 10
#define SOLVE_ROUNDS 5

/* Element (i, j) of op(a), as its structure has it. */
static __device__ inline bool solve_is_symmetric(const struct solve_shape &shape) {
    return shape.assume == BLASD_ASSUME_SYMMETRIC || shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE;
}
template <class T>
static __device__ inline T solve_element(const struct solve_shape &shape, const T *a, int i,
                                         int j) {
    bool below = solve_is_symmetric(shape) && i > j;
    bool none = (shape.assume == BLASD_ASSUME_LOWER_TRIANGULAR && i < j) ||
                (shape.assume == BLASD_ASSUME_UPPER_TRIANGULAR && i > j);
    T value = a[(below ? j : i) * shape.a_row + (below ? i : j) * shape.a_column];
    return none ? (T)0 : value;
}

template <class T> struct solver {
    const team_of_block &team;
    const struct solve_shape &shape;
    struct solve_room<T> room;
    const T *a;
    struct solve_matrix state;
    bool inverted; /* apply may go by room.diagonal */

    __device__ solver(const team_of_block &its_team, const struct solve_shape &its_shape,
                      const struct solve_room<T> &its_room, const T *its_a)
        : team(its_team), shape(its_shape), room(its_room), a(its_a), inverted(false) {
    }
    static constexpr double unit = precision<T>::unit, safe = precision<T>::safe;

    __device__ int n() const {
        return shape.n;
    }
    __device__ T element(int i, int j) const {
        return solve_element(shape, a, i, j);
    }

    /* Brings the matrix to where its factors will be, by patches of whole sectors in the matrix'
     * rows and in the factors' columns, several at a time. */
    __device__ __noinline__ void load() {
        int high = shape.a_column == 1 ? 4 : BLASD_WARP, wide = BLASD_WARP / high;
        int down = (n() + high - 1) / high, all = down * ((n() + wide - 1) / wide);
        int lane = team.rank() % BLASD_WARP, warps = team.size() / BLASD_WARP;
        matrix_view<T> to = room.f;
        for (int first = team.rank() / BLASD_WARP; first < all; first += 8 * warps) {
            T v[8];
            BLASD_UNROLL
            for (int q = 0; q < 8; q++) {
                int at = least(first + q * warps, all - 1);
                int i = at % down * high + lane / wide, j = at / down * wide + lane % wide;
                v[q] = element(least(i, n() - 1), least(j, n() - 1));
            }
            BLASD_UNROLL
            for (int q = 0; q < 8; q++) {
                int at = first + q * warps;
                int i = at % down * high + lane / wide, j = at / down * wide + lane % wide;
                if (at >= all || i >= n() || j >= n()) continue;
                to(i, j) = v[q];
            }
        }
        team.sync();
    }

    __device__ bool balanced(vector_view<T> most) const {
        double least = precision<T>::beyond, greatest = 0;
        for (int i = team.rank(); i < n(); i += team.size()) {
            double size = (double)most[i];
            if (size == 0) continue;
            least = size < least ? size : least;
            greatest = size > greatest ? size : greatest;
        }
        greatest = team.most(greatest);
        least = -team.most(-least);
        return greatest == 0 || (least >= greatest * 0x1p-8 && greatest < safe && least > 1 / safe);
    }
    __device__ T raw_along(bool by_rows, int line, int at) const {
        return by_rows ? element(line, at) : element(at, line);
    }
    /* Largest elements of rows into d, of columns into r. Lines that lie in memory as such are read
     * by a crew each, the others by a thread each: side by side either way. */
    __device__ __noinline__ void measure() {
        bool by_rows = shape.a_column == 1;
        vector_view<T> along = by_rows ? room.d : room.r, across = by_rows ? room.r : room.d;
        double along_most = 0, across_most = 0;
        int width = BLASD_WARP, lane = team.rank() % width;
        for (int l = team.rank() / width; l < n(); l += team.size() / width) {
            double most = 0, sum = 0;
            for (int k = lane; k < n(); k += 8 * width) {
                T v[8];
                BLASD_UNROLL
                for (int q = 0; q < 8; q++)
                    v[q] = raw_along(by_rows, l, least(k + q * width, n() - 1));
                BLASD_UNROLL
                for (int q = 0; q < 8; q++) {
                    double size = k + q * width < n() ? size_of((double)v[q]) : 0;
                    most = size > most ? size : most;
                    sum += size;
                }
            }
            most = team.crew().most(most);
            sum = team.crew().sum(sum);
            if (lane == 0) along[l] = (T)most;
            along_most = sum > along_most ? sum : along_most;
        }
        for (int k = team.rank(); k < n(); k += team.size()) {
            double most = 0, sum = 0;
            for (int l = 0; l < n(); l += 8) {
                T v[8];
                BLASD_UNROLL
                for (int q = 0; q < 8; q++) v[q] = raw_along(by_rows, least(l + q, n() - 1), k);
                BLASD_UNROLL
                for (int q = 0; q < 8; q++) {
                    double size = l + q < n() ? size_of((double)v[q]) : 0;
                    most = size > most ? size : most;
                    sum += size;
                }
            }
            across[k] = (T)most;
            across_most = sum > across_most ? sum : across_most;
        }
        team.sync();
        along_most = team.most(along_most);
        across_most = team.most(across_most);
        state.norm_inf = by_rows ? along_most : across_most;
        state.norm_1 = by_rows ? across_most : along_most;
    }
    __device__ __noinline__ int uneven() const {
        int bad = 0;
        for (int i = team.rank(); solve_is_symmetric(shape) && i < n(); i += team.size())
            for (int j = 0; j < i; j++)
                bad |= a[i * shape.a_row + j * shape.a_column] !=
                       a[j * shape.a_row + i * shape.a_column];
        return team.any(bad);
    }
    /* Everything about the matrix before its factors, whose place then holds the matrix. */
    __device__ void prepare() {
        state = {};
        state.method = BLASD_SOLVED_NOT;
        state.unsymmetric = uneven();
        measure();
        state.left = !balanced(room.d) || !balanced(room.r);
        for (int i = team.rank(); i < n(); i += team.size())
            state.most = (double)room.d[i] > state.most ? (double)room.d[i] : state.most;
        state.most = team.most(state.most);
        load();
    }

    /* ---- factors ---- */

    __device__ __noinline__ void factor() {
        int zero = 0;
        if (shape.assume == BLASD_ASSUME_LOWER_TRIANGULAR ||
            shape.assume == BLASD_ASSUME_UPPER_TRIANGULAR) {
            state.method = BLASD_SOLVED_TRIANGULAR;
            for (int i = team.rank(); i < n(); i += team.size()) zero |= room.f(i, i) == 0;
            zero = team.any(zero);
        } else {
            state.method = BLASD_SOLVED_LU;
            zero = factor_lu_by_panels(team, room.f, n(), room.order, room.strip);
        }
        state.left = state.left || zero != 0;
    }
    /* to := x in the order of the rows of the factors, or back. */
    __device__ __noinline__ void reorder(vector_view<T> x, bool back) {
        for (int i = team.rank(); i < n(); i += team.size()) room.y[i] = x[i];
        team.sync();
        for (int i = team.rank(); i < n(); i += team.size())
            if (back)
                x[room.order[i]] = room.y[i];
            else
                x[i] = room.y[room.order[i]];
        team.sync();
    }
    /* x := inverse(T) x for a triangle of the factors, or of their transpose. */
    __device__ __noinline__ void substitute_by(bool turned, bool forward, bool unit,
                                               vector_view<T> x) {
        matrix_view<T> t = turned ? room.f.turned() : room.f;
        matrix_view<T> d = turned ? room.diagonal.turned() : room.diagonal;
        if (!inverted) d.p = nullptr;
        substitute_by_blocks(team, t, d, n(), forward, unit, x);
    }
    /* Makes the inverses on the diagonal; false where the factors are better substituted with. */
    __device__ bool invert() {
        bool lower = shape.assume == BLASD_ASSUME_LOWER_TRIANGULAR;
        matrix_view<T> up = room.f.turned(), d = room.diagonal;
        if (state.method == BLASD_SOLVED_LU)
            return invert_diagonal(team, room.f, n(), true, d) &&
                   invert_diagonal(team, up, n(), false, d.turned());
        if (state.method == BLASD_SOLVED_CHOLESKY || lower)
            return invert_diagonal(team, room.f, n(), false, d);
        return invert_diagonal(team, up, n(), false, d.turned());
    }
    __device__ void apply_lu(vector_view<T> x, bool transposed) {
        if (transposed) {
            substitute_by(true, true, false, x);
            substitute_by(true, false, true, x);
            reorder(x, true);
        } else {
            reorder(x, false);
            substitute_by(false, true, true, x);
            substitute_by(false, false, false, x);
        }
    }
    /* x := inverse(factors) x, or with the transposed inverse. */
    __device__ __noinline__ void apply(vector_view<T> x, bool transposed) {
        bool lower = shape.assume == BLASD_ASSUME_LOWER_TRIANGULAR;
        switch (state.method) {
        case BLASD_SOLVED_LU: apply_lu(x, transposed); break;
        case BLASD_SOLVED_CHOLESKY:
            substitute_by(false, true, false, x);
            substitute_by(true, false, false, x);
            break;
        default: substitute_by(transposed, lower != transposed, false, x); break;
        }
    }

    /* ---- condition: Higham's estimate, as in estimate.c, which explains it ---- */

    __device__ double sum_of(vector_view<double> v) const {
        double sum = 0;
        for (int i = team.rank(); i < n(); i += team.size()) sum += size_of(v[i]);
        return team.sum(sum);
    }
    /* v := inverse(factors) v, or with the transposed inverse. */
    __device__ __noinline__ void apply_inverse(bool transposed) {
        for (int i = team.rank(); i < n(); i += team.size()) room.d[i] = (T)room.v[i];
        team.sync();
        apply(room.d, transposed);
        for (int i = team.rank(); i < n(); i += team.size()) room.v[i] = (double)room.d[i];
        team.sync();
    }
    /* Replaces v by its signs, which r holds from last time; whether they are the same. */
    __device__ bool take_signs() {
        int other = 0;
        for (int i = team.rank(); i < n(); i += team.size()) {
            T sign = room.v[i] < 0 ? (T)-1 : (T)1;
            other |= room.r[i] != sign;
            room.r[i] = sign;
            room.v[i] = (double)sign;
        }
        other = team.any(other);
        team.sync();
        return other == 0;
    }
    __device__ int largest_of_v() const {
        double best = -1;
        int at = 0;
        for (int i = team.rank(); i < n(); i += team.size())
            if (size_of(room.v[i]) > best) {
                best = size_of(room.v[i]);
                at = i;
            }
        return team.largest(best, at);
    }
    __device__ __noinline__ double norm_of_inverse() {
        double best, other;
        int at, last;
        for (int i = team.rank(); i < n(); i += team.size()) {
            room.v[i] = 1.0 / n();
            room.r[i] = 0;
        }
        team.sync();
        apply_inverse(false);
        best = sum_of(room.v);
        if (n() == 1) return best;
        take_signs();
        apply_inverse(true);
        at = largest_of_v();
        for (int round = 0; round < SOLVE_ROUNDS; round++) {
            bool same;
            team.sync();
            for (int i = team.rank(); i < n(); i += team.size()) room.v[i] = i == at ? 1 : 0;
            team.sync();
            apply_inverse(false);
            other = sum_of(room.v);
            if (!(other > best)) break;
            best = other;
            if (take_signs()) break;
            apply_inverse(true);
            last = at;
            at = largest_of_v();
            same = size_of(room.v[last]) == size_of(room.v[at]);
            if (same) break;
        }
        team.sync();
        for (int i = team.rank(); i < n(); i += team.size())
            room.v[i] = (i % 2 == 0 ? 1 : -1) * (1 + (double)i / (double)(n() - 1));
        team.sync();
        apply_inverse(false);
        other = 2 * sum_of(room.v) / (3.0 * n());
        return other > best || other != other ? other : best;
    }
    /* How much larger than the matrix its factor U is: what partial pivoting does not bound. */
    __device__ __noinline__ double growth() const {
        double most = 0;
        if (state.method != BLASD_SOLVED_LU) return 1;
        for (int i = team.rank(); i < n(); i += team.size())
            for (int j = i - i % BLASD_WARP; j < n(); j += 8) {
                T v[8];
                BLASD_UNROLL
                for (int q = 0; q < 8; q++) v[q] = room.f(i, least(j + q, n() - 1));
                BLASD_UNROLL
                for (int q = 0; q < 8; q++) {
                    double u = i <= j + q ? size_of((double)v[q]) : 0;
                    most = u > most ? u : most;
                }
            }
        most = team.most(most);
        return most > state.most ? most / state.most : 1;
    }
    /* The condition, from the factors at hand, which says how refinement goes. */
    __device__ void estimate() {
        double rcond;
        inverted = invert();
        rcond = 1 / norm_of_inverse() / state.norm_1;
        inverted = false; /* solutions go by the factors themselves, whose errors are smaller */
        state.rcond = rcond <= 1 ? rcond : rcond > 1 ? 1 : 0;
        state.contraction = 4 * unit * growth() / state.rcond;
        state.left = state.left || blasd_solve_is_open(n(), unit, state.rcond, state.contraction);
    }
};

#endif
