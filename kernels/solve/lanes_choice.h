/* Which of the lanes' instruction sets this machine runs. BLASD_LANES=avx512, avx2 or plain in the
 * environment takes a lesser one, for tests. Read next: lanes.c. */
#ifndef BLASD_KERNELS_LANES_CHOICE_H
#define BLASD_KERNELS_LANES_CHOICE_H

enum blasd_lanes_set { BLASD_LANES_PLAIN, BLASD_LANES_AVX2, BLASD_LANES_AVX512 };

enum blasd_lanes_set blasd_lanes_set(void);

#if defined(__x86_64__)
#define LANES_RUN(...)                                                                             \
    do {                                                                                           \
        if (blasd_lanes_set() == BLASD_LANES_AVX512)                                               \
            run_avx512(__VA_ARGS__);                                                               \
        else if (blasd_lanes_set() == BLASD_LANES_AVX2)                                            \
            run_avx2(__VA_ARGS__);                                                                 \
        else                                                                                       \
            run_plain(__VA_ARGS__);                                                                \
    } while (0)
#else
#define LANES_RUN(...) run_plain(__VA_ARGS__)
#endif

#endif
