/* The library's call that eigh needs beside those of kernels/cuda/library.h, in the same terms:
 * with nvcc library_eigh.cu, cuSOLVER's; for tests without a GPU library_eigh.cc, LAPACKE's. */
#ifndef BLASD_KERNELS_LIBRARY_EIGH_H
#define BLASD_KERNELS_LIBRARY_EIGH_H

#include "kernels/cuda/library.h"

/* The lower triangle of a (n x n, float64, column-major): eigenvalues w, rising, and with vectors a
 * becomes the eigenvectors, else it is destroyed. info > 0: did not converge. */
int blasd_gpu_syevd_size(struct blasd_gpu_stream *stream, int64_t n, bool vectors, size_t *work,
                         size_t *host_work, struct blasd_err *err);
int blasd_gpu_syevd(struct blasd_gpu_stream *stream, int64_t n, bool vectors, double *a, double *w,
                    void *work, size_t work_bytes, void *host_work, size_t host_bytes, int *info,
                    struct blasd_err *err);

#endif
