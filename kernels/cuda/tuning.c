/* The numbers themselves. */
#include "kernels/cuda/tuning.h"

struct blasd_cuda_sizes blasd_cuda_sizes = {.chunk_bytes = (size_t)4 << 20,
                                            .part_bytes = (size_t)64 << 20,
                                            .block_bytes = (size_t)64 << 20,
                                            .cache_least = (size_t)64 << 10,
                                            .pinned_least = (size_t)64 << 10,
                                            .pinned_after = 2};

struct blasd_cuda_tuning blasd_cuda_tuning = {
    .energy_ns = 20000000, .spread_from = 200, .panel_elements = 1 << 22, .panel_rows = 1024};
