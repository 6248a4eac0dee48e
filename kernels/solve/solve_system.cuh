/* One system on one team: scaling, factors, condition, refinement, the fall-back: what the CPU's
 * engine does (engine_body.h, which gives the reasons), with the same constants.
 *
 * Read next: solve_kernels.cuh. */
#ifndef BLASD_KERNELS_SOLVE_SYSTEM_CUH
#define BLASD_KERNELS_SOLVE_SYSTEM_CUH

#include "kernels/solve/solve_room.cuh"

extern "C" {
#include "kernels/solve/solve.h"
}

#define SOLVE_STEPS 10
#define SOLVE_ROUNDS 5

template <class Team, class T> struct solver {
    const Team &team;
    const struct solve_shape &shape;
    struct solve_room<T> room;
    const T *a;
    struct solve_matrix state;
    enum solve_inverse inverse;
    bool inverted; /* apply may go by room.diagonal */

    __device__ solver(const Team &its_team, const struct solve_shape &its_shape,
                      const struct solve_room<T> &its_room, const T *its_a)
        : team(its_team), shape(its_shape), room(its_room), a(its_a), inverse(SOLVE_INVERSE),
          inverted(false) {
    }
    static constexpr double unit = precision<T>::unit, safe = precision<T>::safe;
    static constexpr bool keeps = !Team::block;

    __device__ int n() const {
        return shape.n;
    }
    __device__ bool symmetric() const {
        return shape.assume == BLASD_ASSUME_SYMMETRIC ||
               shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE;
    }

    /* ---- elements ---- */

    /* of op(a), as its structure has it */
    __device__ T element(int i, int j) const {
        bool below = symmetric() && i > j;
        bool none = (shape.assume == BLASD_ASSUME_LOWER_TRIANGULAR && i < j) ||
                    (shape.assume == BLASD_ASSUME_UPPER_TRIANGULAR && i > j);
        T value = a[(below ? j : i) * shape.a_row + (below ? i : j) * shape.a_column];
        return none ? (T)0 : value;
    }
    /* of the scaled matrix */
    __device__ T scaled_element(int i, int j) const {
        T value = element(i, j);
        return state.scaled ? scaled_by(value, i, j) : value;
    }
    __device__ T scaled_by(T value, int i, int j) const {
        return (T)ldexp((double)value, room.row_scale[i] + room.column_scale[j]);
    }
    /* of the scaled matrix, from where it is nearest */
    __device__ T matrix(int i, int j) const {
        if constexpr (keeps)
            return room.m(i, j);
        else
            return scaled_element(i, j);
    }
    /* the same before it is scaled */
    __device__ T raw(int i, int j) const {
        if constexpr (keeps)
            return room.m(i, j);
        else
            return element(i, j);
    }
    template <class Give> __device__ void fill(matrix_view<T> to, Give give) {
        bool by_rows = shape.a_column == 1;
        for (int at = team.rank(); at < n() * n(); at += team.size()) {
            int slow = at / n(), fast = at - slow * n();
            int i = by_rows ? slow : fast, j = by_rows ? fast : slow;
            to(i, j) = give(i, j);
        }
        team.sync();
    }
    /* The same for a block, which takes patches of whole sectors in the matrix' rows and in the
     * factors' columns, several at a time. */
    __device__ void bring() {
        int high = shape.a_column == 1 ? 4 : BLASD_WARP, wide = BLASD_WARP / high;
        int down = (n() + high - 1) / high, all = down * ((n() + wide - 1) / wide);
        int lane = team.rank() % BLASD_WARP, warps = team.size() / BLASD_WARP;
        matrix_view<T> to = room.f;
        bool scaled = state.scaled;
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
                to(i, j) = scaled ? scaled_by(v[q], i, j) : v[q];
            }
        }
        team.sync();
    }

    /* ---- scaling ---- */

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
        return by_rows ? raw(line, at) : raw(at, line);
    }
    /* Largest elements of rows into d, of columns into r; norms in units of 2^e, which keeps sums
     * of scaled matrices from overflowing. Lines that lie in memory as such are read by a crew
     * each where there is one, the others by a thread each: side by side either way. */
    __device__ __noinline__ void measure(int e) {
        bool by_rows = shape.a_column == 1;
        vector_view<T> along = by_rows ? room.d : room.r, across = by_rows ? room.r : room.d;
        double along_most = 0, across_most = 0;
        int width = Team::block ? BLASD_WARP : 1, lane = team.rank() % width;
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
                    sum += e != 0 ? ldexp(size, -e) : size;
                }
            }
            if constexpr (Team::block) {
                most = team.crew().most(most);
                sum = team.crew().sum(sum);
            }
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
                    sum += e != 0 ? ldexp(size, -e) : size;
                }
            }
            across[k] = (T)most;
            across_most = sum > across_most ? sum : across_most;
        }
        team.sync();
        along_most = team.most(along_most);
        across_most = team.most(across_most);
        state.norm_inf = {by_rows ? along_most : across_most, e};
        state.norm_1 = {by_rows ? across_most : along_most, e};
    }
    __device__ __noinline__ int uneven() const {
        int bad = 0;
        for (int i = team.rank(); symmetric() && i < n(); i += team.size())
            for (int j = 0; j < i; j++)
                bad |= a[i * shape.a_row + j * shape.a_column] !=
                       a[j * shape.a_row + i * shape.a_column];
        return team.any(bad);
    }
    __device__ __noinline__ void choose_scales() {
        bool definite = shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE;
        for (int i = team.rank(); i < n(); i += team.size()) {
            double most = (double)room.d[i], diagonal = (double)raw(i, i);
            int e;
            if (definite && diagonal > 0) most = diagonal;
            e = most == 0 ? 0 : exponent_of(most);
            room.row_scale[i] = symmetric() ? -(e / 2) : -e;
            room.column_scale[i] = symmetric() ? -(e / 2) : 0;
        }
        team.sync();
        if (shape.assume == BLASD_ASSUME_SYMMETRIC) balance_symmetric();
        for (int j = team.rank(); !symmetric() && j < n(); j += team.size()) {
            int most = most_of_column(j);
            room.column_scale[j] = most == -100000 ? 0 : -most;
        }
        team.sync();
    }
    /* The largest exponent once rows are scaled; -100000: of zeros. */
    __device__ int most_of_column(int j) const {
        int most = -100000;
        for (int i = 0; i < n(); i++) {
            double value = (double)raw(i, j);
            int e = value == 0 ? -100000 : exponent_of(value) + room.row_scale[i];
            most = e > most ? e : most;
        }
        return most;
    }
    /* As scale_body.h does it: what is left of the largest elements is halved, again and again. */
    __device__ __noinline__ void balance_symmetric() {
        int again = 1;
        for (int pass = 0; again != 0 && pass < 16; pass++) {
            again = 0;
            for (int j = team.rank(); j < n(); j += team.size()) {
                int most = most_of_column(j);
                int over = most == -100000 ? 0 : (most + room.row_scale[j]) / 2;
                room.column_scale[j] = room.row_scale[j] - over;
                again |= over != 0;
            }
            again = team.any(again);
            team.sync();
            for (int j = team.rank(); j < n(); j += team.size())
                room.row_scale[j] = room.column_scale[j];
            team.sync();
        }
    }
    /* Everything about the matrix before its factors; their place then holds the scaled matrix. */
    __device__ void prepare() {
        bool rows, columns;
        state.rcond = state.contraction = 0;
        state.info = 0;
        state.scaled = false;
        state.singular = true;
        state.method = BLASD_SOLVED_NOT;
        if constexpr (keeps) fill(room.m, [&](int i, int j) { return element(i, j); });
        state.unsymmetric = uneven();
        measure(0);
        rows = balanced(room.d);
        columns = balanced(room.r);
        state.most = 0;
        for (int i = team.rank(); i < n(); i += team.size())
            state.most = (double)room.d[i] > state.most ? (double)room.d[i] : state.most;
        state.most = team.most(state.most);
        if (!rows || !columns) {
            int e = exponent_of(state.most);
            state.most = 0;
            choose_scales();
            measure(e);
            state.scaled = true;
            if constexpr (keeps) fill(room.m, [&](int i, int j) { return scaled_element(i, j); });
        }
        load();
    }
    __device__ __noinline__ void load() {
        if constexpr (Team::block)
            bring();
        else
            fill(room.f, [&](int i, int j) { return matrix(i, j); });
    }

    /* ---- factors ---- */

    __device__ int factor_general() {
        state.method = BLASD_SOLVED_LU;
        if constexpr (Team::block)
            if (room.strip != nullptr)
                return factor_lu_by_panels(team, room.f, n(), room.order, room.strip);
        return factor_lu(team, room.f, n(), room.order, room.swaps);
    }
    /* Where Cholesky fails the matrix is singular only if LU says so too. */
    __device__ void refuse(int minor) {
        load();
        state.info = factor_general();
        state.singular = state.info != 0;
        state.info = minor;
    }
    __device__ __noinline__ void factor() {
        int minor, zero = n();
        switch (shape.assume) {
        case BLASD_ASSUME_GENERAL: state.info = factor_general(); break;
        case BLASD_ASSUME_SYMMETRIC:
            state.method = BLASD_SOLVED_LDLT;
            state.info = factor_ldlt(team, room.f, n(), room.order, room.beside);
            if (state.info == 0) break;
            load(); /* LU has all rows to choose from */
            state.info = factor_general();
            break;
        case BLASD_ASSUME_POSITIVE_DEFINITE:
            minor = factor_cholesky(team, room.f, n());
            if (minor != 0) refuse(minor);
            state.method = BLASD_SOLVED_CHOLESKY;
            break;
        default:
            state.method = BLASD_SOLVED_TRIANGULAR;
            for (int i = team.rank(); i < n(); i += team.size())
                if (room.f(i, i) == 0 && i < zero) zero = i;
            zero = (int)-team.most(-(double)zero);
            state.info = zero < n() ? zero + 1 : 0;
            break;
        }
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
        if constexpr (Team::block) {
            matrix_view<T> d = turned ? room.diagonal.turned() : room.diagonal;
            if (!inverted) d.p = nullptr;
            substitute_by_blocks(team, t, d, n(), forward, unit, x);
        } else {
            substitute(team, t, n(), forward, unit, x);
        }
    }
    /* Makes the inverses on the diagonal; false where the factors are better substituted with. */
    __device__ bool invert() {
        bool lower = shape.assume == BLASD_ASSUME_LOWER_TRIANGULAR;
        matrix_view<T> up = room.f.turned(), d = room.diagonal;
        if constexpr (!Team::block)
            return false;
        else
            switch (state.method) {
            case BLASD_SOLVED_LU:
                return invert_diagonal(team, room.f, n(), true, d) &&
                       invert_diagonal(team, up, n(), false, d.turned());
            case BLASD_SOLVED_LDLT: return invert_diagonal(team, room.f, n(), true, d);
            case BLASD_SOLVED_CHOLESKY: return invert_diagonal(team, room.f, n(), false, d);
            case BLASD_SOLVED_TRIANGULAR:
                return lower ? invert_diagonal(team, room.f, n(), false, d)
                             : invert_diagonal(team, up, n(), false, d.turned());
            default: return invert_diagonal(team, up, n(), false, d.turned());
            }
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
    __device__ void apply_qr(vector_view<T> x, bool transposed) {
        if (transposed) substitute_by(true, true, false, x);
        for (int k = 0; k < n(); k++) {
            int at = transposed ? n() - 1 - k : k;
            reflect(team, room.f, n(), at, room.y[at], x);
        }
        if (!transposed) substitute_by(false, false, false, x);
    }
    /* x := inverse(factors) x, or with the transposed inverse. */
    __device__ __noinline__ void apply(vector_view<T> x, bool transposed) {
        bool lower = shape.assume == BLASD_ASSUME_LOWER_TRIANGULAR;
        switch (state.method) {
        case BLASD_SOLVED_LU: apply_lu(x, transposed); break;
        case BLASD_SOLVED_LDLT:
            reorder(x, false);
            substitute_by(false, true, true, x);
            solve_blocks(team, room.f, n(), room.beside, x);
            substitute_by(true, false, true, x);
            reorder(x, true);
            break;
        case BLASD_SOLVED_CHOLESKY:
            substitute_by(false, true, false, x);
            substitute_by(true, false, false, x);
            break;
        case BLASD_SOLVED_TRIANGULAR:
            substitute_by(transposed, lower != transposed, false, x);
            break;
        default: apply_qr(x, transposed); break;
        }
    }

    /* ---- condition: Higham's estimate, as in estimate.c, which explains it ---- */

    __device__ double sum_of(vector_view<double> v) const {
        double sum = 0;
        for (int i = team.rank(); i < n(); i += team.size()) sum += size_of(v[i]);
        return team.sum(sum);
    }
    /* v := 2^after inverse(factors) 2^before v, times 2^shift, or with the transposed inverse,
     * brought near 1 on the way; null: no exponents. */
    __device__ __noinline__ void apply_between(bool transposed, const vector_view<int> *before,
                                               const vector_view<int> *after, int shift) {
        double most = -100000;
        int by;
        for (int i = team.rank(); i < n(); i += team.size()) {
            double e = exponent_of(room.v[i]) + (before != nullptr ? (*before)[i] : 0);
            most = room.v[i] != 0 && e > most ? e : most;
        }
        most = team.most(most);
        by = most == -100000 ? 0 : (int)most;
        for (int i = team.rank(); i < n(); i += team.size())
            room.d[i] = (T)ldexp(room.v[i], (before != nullptr ? (*before)[i] : 0) - by);
        team.sync();
        apply(room.d, transposed);
        for (int i = team.rank(); i < n(); i += team.size())
            room.v[i] = ldexp((double)room.d[i], (after != nullptr ? (*after)[i] : 0) + by + shift);
        team.sync();
    }
    /* v := what `inverse` says, times v: of the job's matrix, as inverse(A 2^-shift). */
    __device__ __noinline__ void apply_inverse(bool transposed) {
        const vector_view<int> *rows = state.scaled ? &room.row_scale : nullptr;
        const vector_view<int> *columns = state.scaled ? &room.column_scale : nullptr;
        if (inverse == SOLVE_INVERSE && state.scaled) {
            apply_between(transposed, transposed ? columns : rows, transposed ? rows : columns,
                          state.norm_1.e + exponent_of(state.norm_1.m));
            return;
        }
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
        double most = 0, size = 0;
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
        size = state.most;
        for (int i = team.rank(); !(state.most > 0) && i < n(); i += team.size())
            for (int j = 0; j < n(); j++) {
                double own = size_of((double)matrix(i, j));
                size = own > size ? own : size;
            }
        most = team.most(most);
        size = team.most(size);
        return most > size ? most / size : 1;
    }
    __device__ bool is_open() const {
        return blasd_solve_is_open(n(), unit, state.rcond, state.contraction);
    }
    __device__ void factor_again() {
        load();
        factor();
    }
    static __device__ double reciprocal(double norm_inverse, double norm) {
        double rcond = 1 / norm_inverse / norm;
        return rcond <= 1 ? rcond : rcond > 1 ? 1 : 0;
    }
    /* The 1-norm of the matrix that is solved. */
    __device__ __noinline__ double own_norm() const {
        double most = 0;
        for (int j = team.rank(); j < n(); j += team.size()) {
            double sum = 0;
            for (int i = 0; i < n(); i++) sum += size_of((double)matrix(i, j));
            most = sum > most ? sum : most;
        }
        return team.most(most);
    }
    /* The conditions, from the factors at hand: the job's matrix's, which the user is told, and
     * that of the one that is solved, which says how refinement goes. */
    __device__ void estimate() {
        double norm = state.norm_1.m;
        inverted = invert();
        inverse = SOLVE_INVERSE;
        if (state.scaled) norm = ldexp(norm, -exponent_of(norm));
        state.own_rcond = state.rcond = reciprocal(norm_of_inverse(), norm);
        if (state.scaled) {
            inverse = SOLVE_OWN_INVERSE;
            state.own_rcond = reciprocal(norm_of_inverse(), own_norm());
        }
        inverted = false; /* solutions go by the factors themselves, whose errors are smaller */
        state.contraction = 4 * unit * growth() / state.own_rcond;
    }
};

#endif
