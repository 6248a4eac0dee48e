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
#define OF(T, pointer) static_cast<T *>(pointer)
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

/* The job's matrix and its norms. */
int large_matrix_load(struct solve_large *l, struct blasd_err *err);
/* Factors and condition. */
int large_matrix_factor(struct solve_large *l, struct blasd_err *err);
/* x := inverse(factors) x for k columns, or with the transposed inverse. */
int large_matrix_apply(struct solve_large *l, void *x, int k, bool transposed,
                       struct blasd_err *err);

#endif
