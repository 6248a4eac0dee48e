/* distance's kernels for float32. Read next: pair_sinks.cuh. */
#include "kernels/distance/pair_sinks.cuh"

#define SHARED struct blasd_cuda_job *, enum distance_loop, const struct pair_args &
#define ARGS struct blasd_gpu_stream *, enum distance_loop, const struct pair_args &

template int pair_share_matrix<float>(SHARED, const struct pair_matrix &, int64_t,
                                      struct blasd_err *);
template int pair_share_nearest<float>(SHARED, const struct pair_lists &, int64_t,
                                       struct blasd_err *);
template int pair_launch_matrix<float>(ARGS, const struct pair_matrix &, int64_t, int64_t,
                                       struct blasd_err *);
template int pair_launch_nearest<float>(ARGS, const struct pair_lists &, int64_t, int64_t,
                                        struct blasd_err *);
template int pair_launch_near<float>(ARGS, const struct pair_near &, int64_t, int64_t,
                                     struct blasd_err *);
