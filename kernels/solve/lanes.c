/* How wide the lanes are on this machine. Read next: lanes_body.h. */
#include "kernels/solve/lanes_choice.h"
#include "kernels/solve/systems.h"

#include <stdlib.h>
#include <string.h>

static enum blasd_lanes_set best_set(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        return BLASD_LANES_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return BLASD_LANES_AVX2;
#endif
    return BLASD_LANES_PLAIN;
}

enum blasd_lanes_set blasd_lanes_set(void) {
    static const char *const names[] = {"plain", "avx2", "avx512"};
    static int chosen = -1; /* threads that race here find the same answer */
    int set = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    const char *wish;
    if (set >= 0) return (enum blasd_lanes_set)set;
    set = (int)best_set();
    wish = getenv("BLASD_LANES");
    for (int i = 0; wish != NULL && i < set; i++)
        if (strcmp(wish, names[i]) == 0) set = i;
    __atomic_store_n(&chosen, set, __ATOMIC_RELAXED);
    return (enum blasd_lanes_set)set;
}

int blasd_lanes_width(bool single) {
    static const int bytes[] = {16, 32, 64};
    return bytes[blasd_lanes_set()] / (single ? 4 : 8);
}

size_t blasd_lanes_bytes(int64_t n) {
    /* vectors of 64 bytes: two matrices, nine columns and an odd one, and the pivots */
    return 64 * (size_t)(2 * n * n + 10 * n) + (size_t)n * BLASD_LANES_MAX * sizeof(int32_t);
}
