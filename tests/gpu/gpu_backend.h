/* Included before each test of the CPU's kernels, so that it runs on the CUDA backend instead. */
#ifndef BLASD_TESTS_GPU_BACKEND_H
#define BLASD_TESTS_GPU_BACKEND_H

#include "core/kernel.h"

extern const struct blasd_backend blasd_backend;

#endif
