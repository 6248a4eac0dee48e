/* The CPU's tests of regression at the edges through the CUDA backend; the shim is slow. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#define EDGES_ROWS 2000
#define EDGES_EVERY 4
#include "../kernels/test_regression_edges.c"
