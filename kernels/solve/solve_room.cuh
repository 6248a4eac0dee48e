/* What one system is solved with and what is known of it; the numbers that depend on its precision.
 * Read next: solve_system.cuh. */
#ifndef BLASD_KERNELS_SOLVE_ROOM_CUH
#define BLASD_KERNELS_SOLVE_ROOM_CUH

#include "kernels/solve/solve_factor.cuh"

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
    static constexpr int band = 400; /* exponents of a right-hand side that are solved at once */
};
template <> struct precision<float> : precision_of_all {
    static constexpr double unit = 0x1p-24, safe = 0x1p40, residual_unit = 0x1p-52;
    static constexpr int band = 40;
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
    struct wide norm_1, norm_inf; /* of op(a) itself */
    double most; /* the largest element of the matrix that is solved with; 0: not known */
    double rcond, own_rcond; /* of the job's matrix; of the one that is solved */
    double contraction;
    int info, method, scaled, singular, unsymmetric;
};

/* What came of the right-hand sides, at worst. */
struct solve_outcome {
    double error, rcond;
    int steps, method;
    bool doubtful; /* the factors may know nothing of the inverse */
    bool settled;  /* refinement came to rest for each right-hand side */
};

/* Whose inverse the condition is estimated of: the job's matrix, or the one that is solved. */
enum solve_inverse { SOLVE_INVERSE, SOLVE_OWN_INVERSE };

/* The numbers a team works with: where each of them lies. */
template <class T> struct solve_room {
    matrix_view<T> f, m;          /* the factors; the scaled matrix, where the team keeps it */
    matrix_view<T> diagonal;      /* of a block: inverses on the diagonal, for the estimate */
    solve_pack<T> *strip;         /* of a block: rows of U, for LU by panels; or NULL */
    vector_view<T> x, b, r, d, y; /* y also holds QR's scalars */
    vector_view<T> beside;        /* of LDL' */
    vector_view<double> v;
    vector_view<int> order, swaps, row_scale, column_scale;
};

#endif
