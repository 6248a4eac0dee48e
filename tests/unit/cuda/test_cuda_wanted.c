/* Jobs that nobody wants any more, through the CUDA backend: the CPU's tests. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/test_wanted.c"
