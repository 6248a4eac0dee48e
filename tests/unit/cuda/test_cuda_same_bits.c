/* The same bits on CUDA, over a library that rounds in another way for each way of calling it: by
 * the number of products of a call, and by its batched calls. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
int test_same_bits_main(void);
#define main test_same_bits_main
#include "../kernels/test_same_bits.c"
#undef main

#include "tests/standin/library_standin.h"

int main(void) {
    blasd_standin.ways_differ = true;
    return test_same_bits_main();
}
