/* What solve promises, on CUDA, over the stand-in library and the shim. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/test_solve_promises.c"
