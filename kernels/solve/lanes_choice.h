/* Runs the lanes of the instruction set that this machine has. Read next: lanes.c. */
#ifndef BLASD_KERNELS_LANES_CHOICE_H
#define BLASD_KERNELS_LANES_CHOICE_H

#include "kernels/numeric/instructions.h"

#if defined(__x86_64__)
#define LANES_RUN(...)                                                                             \
    do {                                                                                           \
        if (blasd_instructions() == BLASD_AVX512)                                                  \
            run_avx512(__VA_ARGS__);                                                               \
        else if (blasd_instructions() == BLASD_AVX2)                                               \
            run_avx2(__VA_ARGS__);                                                                 \
        else                                                                                       \
            run_plain(__VA_ARGS__);                                                                \
    } while (0)
#else
#define LANES_RUN(...) run_plain(__VA_ARGS__)
#endif

#endif
