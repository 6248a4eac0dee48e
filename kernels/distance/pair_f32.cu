/* distance's kernels for float32. Read next: pair_sinks.cuh. */
#include "kernels/distance/pair_sinks.cuh"

const struct pair_kernels pair_kernels_f32 = pair_kernels_of<float>;
