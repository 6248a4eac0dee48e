/* What one system is solved with and what is known of it; the numbers that depend on its precision.
 * Read next: solve_system.cuh. */
#ifndef BLASD_KERNELS_SOLVE_ROOM_CUH
#define BLASD_KERNELS_SOLVE_ROOM_CUH

#include "kernels/numeric/dd.h"
#include "kernels/solve/solve_block.cuh"

struct precision_of_all {
    static constexpr double beyond = 0x1p1023;
    static __device__ double infinity() {
        return __longlong_as_double(0x7ff0000000000000ll);
    }
    static __device__ double nan() {
        return __longlong_as_double(0x7ff8000000000000ll);
    }
};
template <class T> struct precision;
template <> struct precision<double> : precision_of_all {
    static constexpr double unit = 0x1p-53, safe = 0x1p200, residual_unit = 0x1p-104;
};
template <> struct precision<float> : precision_of_all {
    static constexpr double unit = 0x1p-24, safe = 0x1p40, residual_unit = 0x1p-52;
};

/* What all systems of a launch share. Strides are in elements; op(a) at (i, j) is
 * a[i * a_row + j * a_column]. */
struct solve_shape {
    int n, columns;
    int64_t a_row, a_column, b_row, b_column;
    int assume;     /* of op(a) */
    int refinement; /* enum blasd_refinement */
};

/* What is known of a matrix once it is factored. */
struct solve_matrix {
    double norm_1, norm_inf; /* of op(a) */
    double most;             /* its largest element */
    double rcond, contraction;
    int method, unsymmetric;
    bool left; /* to the host: badly scaled, a pivot of 0, or the condition leaves it open */
};

/* What came of the right-hand sides, at worst. */
struct solve_outcome {
    double error;
    int steps;
    bool left;    /* to the host, for one of them */
    bool settled; /* refinement came to rest for each right-hand side */
};

/* The numbers a team works with: where each of them lies. */
template <class T> struct solve_room {
    matrix_view<T> f;             /* the factors */
    matrix_view<T> diagonal;      /* inverses on the diagonal, for the estimate */
    solve_pack<T> *strip;         /* rows of U, for LU by panels; or NULL */
    vector_view<T> x, b, r, d, y; /* y: for reorder */
    vector_view<double> v;
    vector_view<int> order, swaps;
};

#endif
