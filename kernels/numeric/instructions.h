/* Which instruction set kernels that are written for several use on this machine.
 * BLASD_LANES=avx512, avx2 or plain in the environment takes a lesser one, for tests. Read next:
 * target_avx512.h. */
#ifndef BLASD_KERNELS_INSTRUCTIONS_H
#define BLASD_KERNELS_INSTRUCTIONS_H

enum blasd_instructions { BLASD_PLAIN, BLASD_AVX2, BLASD_AVX512 };

enum blasd_instructions blasd_instructions(void);

#endif
