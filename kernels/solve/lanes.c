/* How wide the lanes are on this machine. Read next: lanes_body.h. */
#include "kernels/numeric/instructions.h"
#include "kernels/solve/systems.h"

int blasd_lanes_width(bool single) {
    static const int bytes[] = {[BLASD_PLAIN] = 16, [BLASD_AVX2] = 32, [BLASD_AVX512] = 64};
    return bytes[blasd_instructions()] / (single ? 4 : 8);
}

size_t blasd_lanes_bytes(int64_t n) {
    /* vectors of 64 bytes: two matrices, nine columns and an odd one, and the pivots */
    return 64 * (size_t)(2 * n * n + 10 * n) + (size_t)n * BLASD_LANES_MAX * sizeof(int32_t);
}
