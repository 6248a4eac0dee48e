/* cholesky on CUDA: every trial of the CPU's tests, through the whole backend over the stand-in
 * library and the shim. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/test_cholesky.c"
