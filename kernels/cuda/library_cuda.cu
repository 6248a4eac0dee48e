/* The CUDA runtime behind library.h, the handles, and the table. Read next: library_cublas.cu. */
#include "kernels/cuda/library_cuda.h"

extern "C" {
#include "kernels/cuda/cuda_status.h"
}

#include <new>
#include <stdio.h>
#include <string.h>

struct blasd_gpu_event {
    cudaEvent_t raw;
};

#define X(name, number)                                                                            \
    static_assert((int)cudaError##name == BLASD_CUDA_##name, "cuda_status.h is wrong");
BLASD_CUDA_STATUSES(X)
#undef X

int blasd_gpu_cuda_status(int code, const char *what, struct blasd_err *err) {
    cudaError_t status = (cudaError_t)code, later;
    if (status == cudaSuccess) return 0;
    later = cudaGetLastError(); /* forgets what does not stick */
    if (blasd_cuda_sticks((int)status) || blasd_cuda_sticks((int)later))
        return blasd_fail(err, BLASD_E_device_error, "", "%s: %s", what,
                          cudaGetErrorString(blasd_cuda_sticks((int)status) ? status : later));
    if (status == cudaErrorMemoryAllocation)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "the device is out of memory (%s)", what);
    return blasd_fail(err, BLASD_E_internal_error, "", "%s: %s", what, cudaGetErrorString(status));
}

/* A library that failed may have met an error that sticks. It has a runtime of its own, whose last
 * error ours does not know: the device is asked. */
static int after_library(const char *what, const char *says, bool memory, struct blasd_err *err) {
    cudaError_t status = cudaDeviceSynchronize();
    (void)cudaGetLastError(); /* said here, and not to be taken for that of the next launch */
    if (blasd_cuda_sticks((int)status)) return blasd_gpu_cuda_status((int)status, what, err);
    if (memory || status == cudaErrorMemoryAllocation)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "the device is out of memory (%s)", what);
    return blasd_fail(err, BLASD_E_internal_error, "", "%s: %s", what, says);
}

int blasd_gpu_blas_status(cublasStatus_t status, const char *what, struct blasd_err *err) {
    if (status == CUBLAS_STATUS_SUCCESS) return 0;
    return after_library(what, cublasGetStatusString(status), status == CUBLAS_STATUS_ALLOC_FAILED,
                         err);
}

int blasd_gpu_solver_status(cusolverStatus_t status, const char *what, struct blasd_err *err) {
    char says[48];
    if (status == CUSOLVER_STATUS_SUCCESS) return 0;
    snprintf(says, sizeof says, "cuSOLVER status %d", (int)status);
    return after_library(what, says, status == CUSOLVER_STATUS_ALLOC_FAILED, err);
}

cudaDataType_t blasd_gpu_type(enum blasd_dtype dtype) {
    switch (dtype) {
    case BLASD_float32: return CUDA_R_32F;
    case BLASD_float16: return CUDA_R_16F;
    case BLASD_bfloat16: return CUDA_R_16BF;
    case BLASD_complex128: return CUDA_C_64F;
    case BLASD_complex64: return CUDA_C_32F;
    default: return CUDA_R_64F;
    }
}

#define CUDA(call, what)                                                                           \
    do {                                                                                           \
        cudaError_t status_ = (call);                                                              \
        if (status_ != cudaSuccess) return blasd_gpu_cuda_status((int)status_, what, err);         \
    } while (0)

/* The least of the compute capabilities that nvcc was told to build for, which it says so. */
static constexpr int built_for[] = {__CUDA_ARCH_LIST__};

void blasd_gpu_driver(struct blasd_gpu_driver *ret) {
    cudaError_t status;
    memset(ret, 0, sizeof *ret);
    status = cudaGetDeviceCount(&ret->count);
    ret->status = (int)status;
    snprintf(ret->says, sizeof ret->says, "%s", cudaGetErrorString(status));
    if (cudaDriverGetVersion(&ret->version) != cudaSuccess) ret->version = 0;
    (void)cudaRuntimeGetVersion(&ret->runtime);
    (void)cudaGetLastError();
    ret->least = built_for[0] / 10;
}

int blasd_gpu_peek(int ordinal, struct blasd_gpu_facts *ret, struct blasd_err *err) {
    cudaDeviceProp properties;
    memset(ret, 0, sizeof *ret);
    CUDA(cudaGetDeviceProperties(&properties, ordinal), "asking for the device's properties");
    CUDA(cudaDeviceGetPCIBusId(ret->bus_id, (int)sizeof ret->bus_id, ordinal),
         "asking for the device's address");
    snprintf(ret->name, sizeof ret->name, "%.63s", properties.name);
    ret->units = properties.multiProcessorCount;
    ret->major = properties.major;
    ret->minor = properties.minor;
    ret->shared_bytes = properties.sharedMemPerBlockOptin;
    ret->registers_read_only = properties.hostRegisterReadOnlySupported != 0;
    return 0;
}

static __global__ void nothing() {
}

int blasd_gpu_open(int ordinal, struct blasd_gpu **ret, struct blasd_err *err) {
    cudaFuncAttributes attributes;
    cudaError_t status = cudaSetDevice(ordinal);
    struct blasd_gpu *gpu;
    /* waiting threads sleep or spin as the runtime finds best; the context is made here, and the
     * driver looks for code that this card runs */
    if (status == cudaSuccess) status = cudaFree(nullptr);
    if (status == cudaSuccess) status = cudaFuncGetAttributes(&attributes, nothing);
    if (status == cudaErrorMemoryAllocation)
        return blasd_gpu_cuda_status((int)status, "making the device's context", err);
    if (status != cudaSuccess) {
        struct blasd_gpu_driver driver;
        (void)cudaGetLastError();
        blasd_gpu_driver(&driver);
        return blasd_cuda_refuse(&driver, (int)status, cudaGetErrorString(status), err);
    }
    gpu = new (std::nothrow) blasd_gpu{ordinal};
    if (gpu == nullptr)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the device");
    *ret = gpu;
    return 0;
}

void blasd_gpu_close(struct blasd_gpu *gpu) {
    delete gpu;
}

int blasd_gpu_facts(struct blasd_gpu *gpu, struct blasd_gpu_facts *ret, struct blasd_err *err) {
    size_t available = 0, total = 0;
    int driver = 0, runtime = 0, code = blasd_gpu_peek(gpu->ordinal, ret, err);
    if (code != 0) return code;
    CUDA(cudaMemGetInfo(&available, &total), "asking for the device's memory");
    CUDA(cudaDriverGetVersion(&driver), "asking for the driver's version");
    CUDA(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
    snprintf(ret->versions, sizeof ret->versions, "CUDA driver %d, runtime %d", driver, runtime);
    ret->memory_bytes = total;
    ret->memory_free_bytes = available;
    return 0;
}

int blasd_gpu_device_alloc(struct blasd_gpu *, size_t bytes, void **ret, struct blasd_err *err) {
    CUDA(cudaMalloc(ret, bytes), "device memory");
    return 0;
}

void blasd_gpu_device_free(struct blasd_gpu *, void *memory) {
    (void)cudaFree(memory);
}

int blasd_gpu_host_alloc(struct blasd_gpu *, size_t bytes, void **ret, struct blasd_err *err) {
    cudaError_t status = cudaHostAlloc(ret, bytes, cudaHostAllocDefault);
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return blasd_fail(err, BLASD_E_out_of_memory, "",
                          "no %zu bytes of host memory can be pinned", bytes);
    }
    CUDA(status, "pinned memory");
    return 0;
}

void blasd_gpu_host_free(struct blasd_gpu *, void *memory) {
    (void)cudaFreeHost(memory);
}

/* Each thread has a device of its own that it speaks to. */
int blasd_gpu_host_register(struct blasd_gpu *gpu, void *memory, size_t bytes, bool read_only,
                            struct blasd_err *err) {
    CUDA(cudaSetDevice(gpu->ordinal), "choosing the device");
    CUDA(cudaHostRegister(memory, bytes,
                          read_only ? cudaHostRegisterReadOnly : cudaHostRegisterDefault),
         "registering memory");
    return 0;
}

void blasd_gpu_host_unregister(struct blasd_gpu *gpu, void *memory) {
    if (cudaSetDevice(gpu->ordinal) == cudaSuccess) (void)cudaHostUnregister(memory);
    (void)cudaGetLastError();
}

int blasd_gpu_stream_open(struct blasd_gpu *gpu, struct blasd_gpu_stream **ret,
                          struct blasd_err *err) {
    struct blasd_gpu_stream *stream = new (std::nothrow) blasd_gpu_stream{};
    cudaError_t status;
    if (stream == nullptr)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a stream");
    stream->gpu = gpu;
    status = cudaStreamCreateWithFlags(&stream->raw, cudaStreamNonBlocking);
    if (status != cudaSuccess) {
        delete stream;
        return blasd_gpu_cuda_status((int)status, "making a stream", err);
    }
    *ret = stream;
    return 0;
}

void blasd_gpu_stream_close(struct blasd_gpu_stream *stream) {
    if (stream == nullptr) return;
    (void)cudaStreamSynchronize(stream->raw);
    if (stream->solver_params != nullptr) (void)cusolverDnDestroyParams(stream->solver_params);
    if (stream->solver != nullptr) (void)cusolverDnDestroy(stream->solver);
    if (stream->blas != nullptr) (void)cublasDestroy(stream->blas);
    if (stream->blas_room != nullptr) (void)cudaFree(stream->blas_room);
    (void)cudaStreamDestroy(stream->raw);
    delete stream;
}

void *blasd_gpu_stream_raw(struct blasd_gpu_stream *stream) {
    return stream == nullptr ? nullptr : stream->raw;
}

int blasd_gpu_stream_wait(struct blasd_gpu_stream *stream, struct blasd_err *err) {
    CUDA(cudaStreamSynchronize(stream->raw), "running on the device");
    return 0;
}

int blasd_gpu_event_open(struct blasd_gpu *, struct blasd_gpu_event **ret, struct blasd_err *err) {
    struct blasd_gpu_event *event = new (std::nothrow) blasd_gpu_event{};
    cudaError_t status;
    if (event == nullptr)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for an event");
    status = cudaEventCreateWithFlags(&event->raw, cudaEventDefault);
    if (status != cudaSuccess) {
        delete event;
        return blasd_gpu_cuda_status((int)status, "making an event", err);
    }
    *ret = event;
    return 0;
}

void blasd_gpu_event_close(struct blasd_gpu_event *event) {
    if (event == nullptr) return;
    (void)cudaEventDestroy(event->raw);
    delete event;
}

int blasd_gpu_event_record(struct blasd_gpu_event *event, struct blasd_gpu_stream *stream,
                           struct blasd_err *err) {
    CUDA(cudaEventRecord(event->raw, stream->raw), "recording an event");
    return 0;
}

int blasd_gpu_stream_after(struct blasd_gpu_stream *stream, struct blasd_gpu_event *event,
                           struct blasd_err *err) {
    CUDA(cudaStreamWaitEvent(stream->raw, event->raw, 0), "ordering streams");
    return 0;
}

int blasd_gpu_event_wait(struct blasd_gpu_event *event, struct blasd_err *err) {
    CUDA(cudaEventSynchronize(event->raw), "running on the device");
    return 0;
}

int blasd_gpu_event_us(struct blasd_gpu_event *from, struct blasd_gpu_event *to, double *ret,
                       struct blasd_err *err) {
    float ms = 0;
    CUDA(cudaEventElapsedTime(&ms, from->raw, to->raw), "reading events");
    *ret = (double)ms * 1000;
    return 0;
}

static int copy(struct blasd_gpu_stream *stream, void *to, const void *from, size_t bytes,
                cudaMemcpyKind kind, const char *what, struct blasd_err *err) {
    if (bytes == 0) return 0;
    CUDA(cudaMemcpyAsync(to, from, bytes, kind, stream->raw), what);
    return 0;
}

int blasd_gpu_copy_up(struct blasd_gpu_stream *stream, void *device, const void *host, size_t bytes,
                      struct blasd_err *err) {
    return copy(stream, device, host, bytes, cudaMemcpyHostToDevice, "upload", err);
}
int blasd_gpu_copy_down(struct blasd_gpu_stream *stream, void *host, const void *device,
                        size_t bytes, struct blasd_err *err) {
    return copy(stream, host, device, bytes, cudaMemcpyDeviceToHost, "download", err);
}
int blasd_gpu_copy_within(struct blasd_gpu_stream *stream, void *to, const void *from, size_t bytes,
                          struct blasd_err *err) {
    return copy(stream, to, from, bytes, cudaMemcpyDeviceToDevice, "copy on the device", err);
}

int blasd_gpu_fill(struct blasd_gpu_stream *stream, void *device, int byte, size_t bytes,
                   struct blasd_err *err) {
    if (bytes == 0) return 0;
    CUDA(cudaMemsetAsync(device, byte, bytes, stream->raw), "filling memory");
    return 0;
}

int blasd_gpu_blas(struct blasd_gpu_stream *stream, struct blasd_err *err) {
    cublasHandle_t handle;
    int code;
    if (stream->blas != nullptr) return 0;
    code = blasd_gpu_blas_status(cublasCreate(&handle), "starting cuBLAS", err);
    if (code != 0) return code;
    code = blasd_gpu_blas_status(cublasSetStream(handle, stream->raw), "cuBLAS", err);
    /* float32 stays float32, sums of halves stay float32, unless a job says otherwise */
    if (code == 0)
        code = blasd_gpu_blas_status(
            cublasSetMathMode(handle,
                              (cublasMath_t)(CUBLAS_DEFAULT_MATH |
                                             CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
            "cuBLAS", err);
    if (code == 0 && (stream->blas_room != nullptr ||
                      cudaMalloc(&stream->blas_room, blasd_gpu_blas_room) == cudaSuccess))
        code = blasd_gpu_blas_status(
            cublasSetWorkspace(handle, stream->blas_room, blasd_gpu_blas_room), "cuBLAS", err);
    (void)cudaGetLastError(); /* without room of ours cuBLAS makes its own */
    if (code == 0)
        stream->blas = handle;
    else /* one that knows its stream only in part is never used */
        (void)cublasDestroy(handle);
    return code;
}

int blasd_gpu_solver(struct blasd_gpu_stream *stream, struct blasd_err *err) {
    int code = 0;
    if (stream->solver == nullptr) {
        code = blasd_gpu_solver_status(cusolverDnCreate(&stream->solver), "starting cuSOLVER", err);
        if (code != 0) {
            stream->solver = nullptr;
            return code;
        }
    }
    if (stream->solver_params != nullptr) return 0;
    code =
        blasd_gpu_solver_status(cusolverDnSetStream(stream->solver, stream->raw), "cuSOLVER", err);
    if (code != 0) return code;
    code = blasd_gpu_solver_status(cusolverDnCreateParams(&stream->solver_params), "cuSOLVER", err);
    if (code != 0) stream->solver_params = nullptr;
    return code;
}

extern "C" const struct blasd_gpu_library blasd_gpu_calls = BLASD_GPU_TABLE("cuda");
