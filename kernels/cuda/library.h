/* The library calls of the CUDA backend, behind one table of our own: the CUDA runtime, cuBLAS and
 * cuSOLVER on a machine with a GPU (library_cuda.cu, library_cusolver.cu), and on any other, for
 * tests, a stand-in that does the same with OpenBLAS and LAPACKE (tests/standin).
 *
 * Everything that takes a stream is only put on it: pointers into host memory must be pinned
 * (host_alloc, host_register) and stay as they are until the stream has come past. The stand-in
 * really runs things later, in a shuffled order that only events and streams constrain, and it
 * keeps device memory unreadable for host code. Functions return 0 or a negative code with `err`
 * filled: out_of_memory; device_error where the device is gone for this process; internal_error for
 * a call that was refused (then only that call has failed). Knows nothing of jobs. Read next:
 * device.h. */
#ifndef BLASD_KERNELS_CUDA_LIBRARY_H
#define BLASD_KERNELS_CUDA_LIBRARY_H

#include "base/err.h"
#include "core/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct blasd_gpu;        /* an open device */
struct blasd_gpu_stream; /* a stream, with its cuBLAS and cuSOLVER handles once they are needed */
struct blasd_gpu_event;

/* What the runtime says before a device is open. */
struct blasd_gpu_driver {
    int status;           /* of counting the devices: 0, or one of cuda_status.h */
    char says[96];        /* the runtime's words for it */
    int version, runtime; /* of CUDA, 13000 for 13.0; version 0: no driver answers */
    int count;
    int least; /* compute capability that the kernels were built for, 80 for 8.0 */
};

struct blasd_gpu_facts {
    char name[64];
    char bus_id[32];   /* for NVML */
    char versions[64]; /* of driver and runtime */
    int units;         /* multiprocessors */
    int major, minor;
    uint64_t memory_bytes, memory_free_bytes;
    uint64_t shared_bytes;    /* most shared memory of one block */
    bool registers_read_only; /* host memory may be registered that is mapped for reading alone */
};

/* What a product may do to its factors first: TF32 and BF16 to float32 ones, FIXED to float64 ones,
 * which become integers beside a power of two for each row of a and each column of b. Others are
 * never changed. */
enum blasd_gpu_rounding { BLASD_GPU_NATIVE, BLASD_GPU_TF32, BLASD_GPU_BF16, BLASD_GPU_FIXED };

/* c = alpha * op(a) * op(b) + beta * c, ROW-MAJOR, `count` times. With beta 0, c is not read. */
struct blasd_gpu_gemm {
    enum blasd_dtype dtype; /* of a and b: any floating or complex one */
    enum blasd_dtype out;   /* of c: that of a and b, or float32 for half factors. Sums of float32
                               and half products are float32 */
    enum blasd_gpu_rounding rounding;
    bool trans_a, trans_b;
    int64_t m, n, k; /* c is m x n; none is 0 */
    double alpha, beta;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc; /* elements from one row to the next, as stored */
    /* between the products of a batch, in elements; 0 for a or b: the same one for all */
    int64_t stride_a, stride_b, stride_c, count;
    /* FIXED alone, with count 1; in device memory: gemm_room's bytes, and where the bits that the
     * factors were given are put. Where the library chose to multiply natively, nothing is. */
    void *room;
    int *bits;
};
/* Of integers that a library may choose; with more it does not say what is as good as float64. */
#define BLASD_GPU_FIXED_MOST 79

/* Triangles and sides as in BLAS, COLUMN-MAJOR, for factorisations: */
struct blasd_gpu_triangle {
    enum blasd_dtype dtype; /* float64 or float32 */
    bool right, upper, trans, unit;
    int64_t m, n; /* of b */
    double alpha;
    int64_t lda, ldb;
};

struct blasd_gpu_library {
    const char *name; /* "cuda" or "stand-in" */

    /* ---- the runtime ---- */
    void (*driver)(struct blasd_gpu_driver *ret);
    /* Of a device that is not open: all but memory and versions. */
    int (*peek)(int ordinal, struct blasd_gpu_facts *ret, struct blasd_err *err);
    int (*open)(int ordinal, struct blasd_gpu **ret, struct blasd_err *err);
    void (*close)(struct blasd_gpu *gpu); /* after its streams, events and memory; takes NULL */
    int (*facts)(struct blasd_gpu *gpu, struct blasd_gpu_facts *ret, struct blasd_err *err);

    int (*device_alloc)(struct blasd_gpu *gpu, size_t bytes, void **ret, struct blasd_err *err);
    void (*device_free)(struct blasd_gpu *gpu, void *memory); /* waits for all streams */
    int (*host_alloc)(struct blasd_gpu *gpu, size_t bytes, void **ret, struct blasd_err *err);
    void (*host_free)(struct blasd_gpu *gpu, void *memory);
    /* Pins memory of ours, whole pages, where it lies. It stays mapped, to the same pages, until
     * host_unregister, and no copy may be under way then. Any thread may call these two. */
    int (*host_register)(struct blasd_gpu *gpu, void *memory, size_t bytes, bool read_only,
                         struct blasd_err *err);
    void (*host_unregister)(struct blasd_gpu *gpu, void *memory);

    int (*stream_open)(struct blasd_gpu *gpu, struct blasd_gpu_stream **ret, struct blasd_err *err);
    void (*stream_close)(struct blasd_gpu_stream *stream); /* waits for it; takes NULL */
    int (*stream_wait)(struct blasd_gpu_stream *stream, struct blasd_err *err); /* the host waits */
    int (*event_open)(struct blasd_gpu *gpu, struct blasd_gpu_event **ret, struct blasd_err *err);
    void (*event_close)(struct blasd_gpu_event *event); /* takes NULL */
    int (*event_record)(struct blasd_gpu_event *event, struct blasd_gpu_stream *stream,
                        struct blasd_err *err);
    /* the stream waits, the host goes on; an event never recorded is not waited for */
    int (*stream_after)(struct blasd_gpu_stream *stream, struct blasd_gpu_event *event,
                        struct blasd_err *err);
    int (*event_wait)(struct blasd_gpu_event *event, struct blasd_err *err); /* the host waits */
    /* between two events that have come to pass */
    int (*event_us)(struct blasd_gpu_event *from, struct blasd_gpu_event *to, double *ret,
                    struct blasd_err *err);

    int (*copy_up)(struct blasd_gpu_stream *stream, void *device, const void *host, size_t bytes,
                   struct blasd_err *err);
    int (*copy_down)(struct blasd_gpu_stream *stream, void *host, const void *device, size_t bytes,
                     struct blasd_err *err);
    int (*copy_within)(struct blasd_gpu_stream *stream, void *to, const void *from, size_t bytes,
                       struct blasd_err *err);
    int (*fill)(struct blasd_gpu_stream *stream, void *device, int byte, size_t bytes,
                struct blasd_err *err);

    /* ---- cuBLAS: products are row-major ---- */
    /* Device memory that this product takes if it is FIXED; 0: the library has no such thing. */
    size_t (*gemm_room)(const struct blasd_gpu_gemm *gemm);
    int (*gemm)(struct blasd_gpu_stream *stream, const struct blasd_gpu_gemm *gemm,
                struct blasd_err *err);
    /* ---- cuBLAS: column-major, as LAPACK has it ---- */
    int (*trsm)(struct blasd_gpu_stream *stream, const struct blasd_gpu_triangle *t, const void *a,
                void *b, struct blasd_err *err);
    /* n x n each, factorised in place; pivots: n ints each, one after the other; info: one int
     * each; all in device memory */
    int (*getrf_pointers)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int n,
                          void *const *a, int lda, int *pivots, int *info, int count,
                          struct blasd_err *err);

    /* ---- cuSOLVER: column-major; work and info in device memory, host_work on the host ---- */
    /* Each *_size gives the bytes of work its function needs on the device and on the host. */
    int (*getrf_size)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                      int64_t lda, size_t *work, size_t *host_work, struct blasd_err *err);
    int (*getrf)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                 void *a, int64_t lda, int64_t *pivots, void *work, size_t work_bytes,
                 void *host_work, size_t host_bytes, int *info, struct blasd_err *err);
    int (*getrs)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool trans, int64_t n,
                 int64_t columns, const void *a, int64_t lda, const int64_t *pivots, void *b,
                 int64_t ldb, int *info, struct blasd_err *err);
    int (*potrf_size)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper,
                      int64_t n, int64_t lda, size_t *work, size_t *host_work,
                      struct blasd_err *err);
    int (*potrf)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper, int64_t n,
                 void *a, int64_t lda, void *work, size_t work_bytes, void *host_work,
                 size_t host_bytes, int *info, struct blasd_err *err);
    int (*potrs)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper, int64_t n,
                 int64_t columns, const void *a, int64_t lda, void *b, int64_t ldb, int *info,
                 struct blasd_err *err);
    int (*potrf_pointers)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper,
                          int n, void *const *a, int lda, int *info, int count,
                          struct blasd_err *err);
    int (*geqrf_size)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                      int64_t lda, size_t *work, size_t *host_work, struct blasd_err *err);
    int (*geqrf)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                 void *a, int64_t lda, void *tau, void *work, size_t work_bytes, void *host_work,
                 size_t host_bytes, int *info, struct blasd_err *err);
    /* c (m x n) = q c or q' c with trans; q as geqrf left it in a (m x k) and tau */
    int (*ormqr_size)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool trans, int m,
                      int n, int k, int lda, int ldc, size_t *work, struct blasd_err *err);
    int (*ormqr)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool trans, int m, int n,
                 int k, const void *a, int lda, const void *tau, void *c, int ldc, void *work,
                 size_t work_bytes, int *info, struct blasd_err *err);
    /* a (m x n, m >= n) = u s v': u is m x n or NULL, vt is n x n or NULL (both or neither);
     * a is destroyed */
    int (*gesvd_size)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                      int64_t lda, bool vectors, size_t *work, size_t *host_work,
                      struct blasd_err *err);
    int (*gesvd)(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                 void *a, int64_t lda, void *s, void *u, int64_t ldu, void *vt, int64_t ldvt,
                 void *work, size_t work_bytes, void *host_work, size_t host_bytes, int *info,
                 struct blasd_err *err);
};

/* The library that is linked in: the real one in blasd_cuda.so, the stand-in in tests. */
extern const struct blasd_gpu_library blasd_gpu_calls;

#endif
