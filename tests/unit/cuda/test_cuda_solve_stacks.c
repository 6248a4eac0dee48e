/* solve on CUDA: what it says and what stacks come to (test_solve_stacks.c), through the whole
 * backend over the stand-in library and the shim. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/test_solve_stacks.c"
