/* The matrix of a system that fills the device: what solve_large.cu asks of it.
 * Read next: large_matrix.cu. */
#ifndef BLASD_KERNELS_LARGE_MATRIX_CUH
#define BLASD_KERNELS_LARGE_MATRIX_CUH

#include "kernels/solve/solve_large.cuh"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_code = (call);                                                                     \
        if (try_code != 0) return try_code;                                                        \
    } while (0)

static inline dim3 spread(const struct solve_large *l, int64_t blocks) {
    int64_t most = 32 * (int64_t)l->job->facts->units;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}
static inline double unit_of(const struct solve_large *l) {
    return l->single ? 0x1p-24 : 0x1p-53;
}
static inline double safe_of(const struct solve_large *l) {
    return l->single ? 0x1p40 : 0x1p200;
}
static inline double residual_unit_of(const struct solve_large *l) {
    return l->single ? 0x1p-52 : 0x1p-104;
}
static inline size_t size_of_type(const struct solve_large *l) {
    return l->single ? sizeof(float) : sizeof(double);
}
static inline const int *rows_scaled(const struct solve_large *l) {
    return l->state.scaled ? l->scales : nullptr;
}
static inline const int *columns_scaled(const struct solve_large *l) {
    return l->state.scaled ? l->scales + l->n : nullptr;
}

#define OF(T, pointer) static_cast<T *>(pointer)
/* Launches the kernel of the system's precision that takes n and the matrix first. */
#define LAUNCH_MATRIX(l, kernel, blocks, err, ...)                                                 \
    ((l)->single ? blasd_launch(kernel<float>, spread(l, blocks), dim3(256), 0, (l)->job->stream,  \
                                err, (l)->n, OF(float, (l)->matrix), __VA_ARGS__)                  \
                 : blasd_launch(kernel<double>, spread(l, blocks), dim3(256), 0, (l)->job->stream, \
                                err, (l)->n, OF(double, (l)->matrix), __VA_ARGS__))

/* ---- between host and device ---- */

/* The host waits for the stream. */
int large_wait(struct solve_large *l, struct blasd_err *err);
/* Waits. */
int large_bring_back(struct solve_large *l, void *host, const void *device, size_t bytes,
                     struct blasd_err *err);
/* Waits only for what was sent before. */
int large_send_over(struct solve_large *l, void *device, const void *host, size_t bytes,
                    struct blasd_err *err);
/* Whether the job shall go on; `share` of this system's work is done. */
int large_go_on(struct solve_large *l, double share, struct blasd_err *err);

/* ---- the matrix ---- */

/* The job's matrix, scaled, and its norms. */
int large_matrix_load(struct solve_large *l, struct blasd_err *err);
/* Factors and condition; `mix`: by float32, if that serves. */
int large_matrix_factor(struct solve_large *l, bool mix, struct blasd_err *err);
/* Householder's factors in place of those at hand. */
int large_matrix_qr(struct solve_large *l, struct blasd_err *err);
/* The conditions, from the factors at hand. */
int large_matrix_estimate(struct solve_large *l, struct blasd_err *err);
/* x := inverse(factors) x for k columns, or with the transposed inverse. */
int large_matrix_apply(struct solve_large *l, void *x, int k, bool transposed,
                       struct blasd_err *err);
/* r = b - A x, or with A', for k columns, in working precision. */
int large_matrix_residual(struct solve_large *l, int k, bool transposed, struct blasd_err *err);

#endif
