/* Asks the processor once. Read next: instructions.h. */
#include "kernels/numeric/instructions.h"

#include <stdlib.h>
#include <string.h>

static enum blasd_instructions best_set(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        return BLASD_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return BLASD_AVX2;
#endif
    return BLASD_PLAIN;
}

enum blasd_instructions blasd_instructions(void) {
    static const char *const names[] = {"plain", "avx2", "avx512"};
    static int chosen = -1; /* threads that race here find the same answer */
    int set = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    const char *asked;
    if (set >= 0) return (enum blasd_instructions)set;
    set = (int)best_set();
    asked = getenv("BLASD_LANES");
    for (int i = 0; asked != NULL && i < set; i++)
        if (strcmp(asked, names[i]) == 0) set = i;
    __atomic_store_n(&chosen, set, __ATOMIC_RELAXED);
    return (enum blasd_instructions)set;
}
