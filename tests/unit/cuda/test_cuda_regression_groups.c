/* The CPU's tests of row_splits through the CUDA backend, beside jobs on the CPU. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/test_regression_groups.c"
