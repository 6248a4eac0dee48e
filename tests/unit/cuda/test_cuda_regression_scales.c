/* The CPU's tests of regression through the CUDA backend. Over the shim all combinations take
 * minutes; 13 and their 24 kinds have no common factor. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#define SCALES_EVERY 13
#include "../kernels/test_regression_scales.c"
