/* The CPU's tests of regression through the CUDA backend. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/test_regression_doubts.c"
