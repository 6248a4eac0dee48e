/* What solve says of its answers on CUDA, over the stand-in library and the shim. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/test_solve_quality.c"
