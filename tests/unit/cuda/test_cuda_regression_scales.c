/* The CPU's tests of regression through the CUDA backend. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#define SCALES_EVERY 7 /* over the shim all of them take minutes; 7 and 24 have no common factor   \
                        */
#include "../kernels/test_regression_scales.c"
