/* syevd by LAPACKE, for tests without a GPU: vectors of one value are orthogonal to 3e-6 alone, as
 * cuSOLVER 13.0's are of a matrix of ones on an H100. Read next: library_eigh.h;
 * tests/standin/library_lapack.cc. */
#include "tests/standin/standin_stream.h"

extern "C" {
#include "kernels/eigh/library_eigh.h"
}

#include <cmath>
#include <cstring>
#include <lapacke.h>

int blasd_gpu_syevd_size(struct blasd_gpu_stream *, int64_t n, bool, size_t *work,
                         size_t *host_work, struct blasd_err *err) {
    if (int code = blasd_standin_fault(err); code != 0) return code;
    *work = (size_t)(n + 7) * sizeof(double);
    *host_work = 24;
    return 0;
}

int blasd_gpu_syevd(struct blasd_gpu_stream *stream, int64_t n, bool vectors, double *a, double *w,
                    void *work, size_t work_bytes, void *host_work, size_t host_bytes, int *info,
                    struct blasd_err *err) {
    if (int code = blasd_standin_fault(err); code != 0) return code;
    blasd_standin_put(stream, [=] {
        memset(work, 0xff, work_bytes); /* room that is too small shows */
        memset(host_work, 0xff, host_bytes);
        *info = LAPACKE_dsyevd(LAPACK_COL_MAJOR, vectors ? 'V' : 'N', 'L', (int)n, a, (int)n, w);
        for (int64_t j = 1; vectors && *info == 0 && j < n; j++)
            if (w[j] - w[j - 1] <= 1e-14 * fmax(fabs(w[0]), fabs(w[n - 1])))
                for (int64_t i = 0; i < n; i++) a[j * n + i] += 3e-6 * a[(j - 1) * n + i];
    });
    return 0;
}
