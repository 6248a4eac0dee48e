/* General systems of up to 32 unknowns, which some lanes of a warp solve: a launch that jobs of any
 * shape share. A file of its own, for these kernels take long to compile.
 *
 * Read next: solve_kernels.cuh. */
#include "kernels/solve/solve_kernels.cuh"

static int64_t blocks_of(const struct solve_batch *batch, int teams) {
    int64_t blocks = (batch->total + teams - 1) / teams;
    return blocks < SOLVE_GRID_MOST ? blocks : SOLVE_GRID_MOST;
}

template <int W, int N, class T>
static int share_small(struct blasd_cuda_job *job, const struct solve_batch *batch,
                       struct blasd_err *err) {
    return blasd_cuda_share(job, 0, solve_small<W, N, T>, blocks_of(batch, SMALL_THREADS / W),
                            SMALL_THREADS, 0, *batch, err);
}

template <class T>
static int share_all(struct blasd_cuda_job *job, const struct solve_batch *batch,
                     struct blasd_err *err) {
    int n = batch->shape.n;
    return n <= 4    ? share_small<4, 4, T>(job, batch, err)
           : n <= 8  ? share_small<8, 8, T>(job, batch, err)
           : n <= 16 ? share_small<16, 16, T>(job, batch, err)
           : n <= 24 ? share_small<32, 24, T>(job, batch, err)
                     : share_small<32, 32, T>(job, batch, err);
}

int solve_share_small(struct blasd_cuda_job *job, const struct solve_batch *batch, bool single,
                      struct blasd_err *err) {
    return single ? share_all<float>(job, batch, err) : share_all<double>(job, batch, err);
}
