/* The numbers themselves. */
#include "kernels/cuda/habits.h"

struct blasd_cuda_sizes blasd_cuda_sizes = {.chunk_bytes = (size_t)4 << 20,
                                            .part_bytes = (size_t)64 << 20,
                                            .block_bytes = (size_t)64 << 20};

/* A tenth of a millisecond at 10^12 operations a second; three batches of the same kind are hardly
 * the last. */
struct blasd_cuda_habits blasd_cuda_habits = {
    .tune_flops = 1e8, .tune_seen = 3, .graph_seen = 4, .graph_nodes = 4, .energy_ns = 20000000};
