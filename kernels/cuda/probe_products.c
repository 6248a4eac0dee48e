/* What the library takes on this device: each kind of product tried once, when it is opened.
 *
 * Toolkits and cards differ in which dtypes their grouped and batched products know, and say so
 * only when asked. The trial also warms up: handles, workspaces and the first kernels are there
 * before the first job is. Read next: ../matmul/cuda_matmul.cu, which falls back by this. */
#include "kernels/cuda/device.h"

#include <string.h>

#define SIDE 8 /* of the matrices tried; float64 ones fill 512 bytes */
#define MATRIX_BYTES 1024
#define PRODUCTS 2

uint32_t blasd_cuda_product(enum blasd_dtype dtype, enum blasd_dtype out,
                            enum blasd_gpu_rounding rounding) {
    _Static_assert(BLASD_DTYPE_COUNT <= 15, "a bit for each");
    if (dtype == BLASD_float32 && rounding == BLASD_GPU_TF32) return UINT32_C(1) << 30;
    if (dtype == BLASD_float32 && rounding == BLASD_GPU_BF16) return UINT32_C(1) << 31;
    return UINT32_C(1) << (unsigned)(out == dtype ? dtype : dtype + 15);
}

/* On the device: matrices a, b, c of two products, then the tables of their addresses. */
struct trial {
    struct blasd_device *device;
    struct blasd_gpu_stream *stream;
    char *memory;
    struct blasd_gpu_gemm gemm;
};

static void *matrix(const struct trial *trial, int which) {
    return trial->memory + (size_t)which * PRODUCTS * MATRIX_BYTES;
}
static void *table(const struct trial *trial, int which) {
    return trial->memory + (size_t)3 * PRODUCTS * MATRIX_BYTES +
           (size_t)which * PRODUCTS * sizeof(void *);
}

static int try_gemm(const struct trial *trial, struct blasd_err *err) {
    return trial->device->calls->gemm(trial->stream, &trial->gemm, err);
}
static int try_strided(const struct trial *trial, struct blasd_err *err) {
    struct blasd_gpu_gemm gemm = trial->gemm;
    gemm.count = PRODUCTS;
    gemm.stride_a = gemm.stride_b = gemm.stride_c = SIDE * SIDE;
    return trial->device->calls->gemm(trial->stream, &gemm, err);
}
static int try_pointers(const struct trial *trial, struct blasd_err *err) {
    struct blasd_gpu_gemm gemm = trial->gemm;
    gemm.count = PRODUCTS;
    gemm.a = table(trial, 0);
    gemm.b = table(trial, 1);
    gemm.c = table(trial, 2);
    return trial->device->calls->gemm_pointers(trial->stream, &gemm, err);
}
static int try_grouped(const struct trial *trial, struct blasd_err *err) {
    struct blasd_gpu_group groups[PRODUCTS];
    for (int g = 0; g < PRODUCTS; g++)
        groups[g] = (struct blasd_gpu_group){.m = SIDE - g,
                                             .n = SIDE,
                                             .k = SIDE,
                                             .alpha = 1,
                                             .lda = SIDE,
                                             .ldb = SIDE,
                                             .ldc = SIDE,
                                             .count = 1};
    return trial->device->calls->gemm_grouped(
        trial->stream, trial->gemm.dtype, trial->gemm.rounding, groups, PRODUCTS, table(trial, 0),
        table(trial, 1), table(trial, 2), err);
}

/* 0, with the bit set where the call was taken; a negative code where the device failed. */
static int try_one(const struct trial *trial,
                   int (*call)(const struct trial *trial, struct blasd_err *err), uint32_t *set,
                   struct blasd_err *err) {
    int code = call(trial, err);
    if (code == 0)
        *set |= blasd_cuda_product(trial->gemm.dtype, trial->gemm.out, trial->gemm.rounding);
    return code == -(int)BLASD_E_device_error ? code : 0;
}

static int try_kinds(struct trial *trial, struct blasd_cuda_can *can, struct blasd_err *err) {
    static const struct {
        enum blasd_dtype dtype, out;
        enum blasd_gpu_rounding rounding;
    } kinds[] = {{BLASD_float64, BLASD_float64, BLASD_GPU_NATIVE},
                 {BLASD_float32, BLASD_float32, BLASD_GPU_NATIVE},
                 {BLASD_float32, BLASD_float32, BLASD_GPU_TF32},
                 {BLASD_float32, BLASD_float32, BLASD_GPU_BF16},
                 {BLASD_float16, BLASD_float16, BLASD_GPU_NATIVE},
                 {BLASD_float16, BLASD_float32, BLASD_GPU_NATIVE},
                 {BLASD_bfloat16, BLASD_bfloat16, BLASD_GPU_NATIVE},
                 {BLASD_bfloat16, BLASD_float32, BLASD_GPU_NATIVE},
                 {BLASD_complex128, BLASD_complex128, BLASD_GPU_NATIVE},
                 {BLASD_complex64, BLASD_complex64, BLASD_GPU_NATIVE}};
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof kinds / sizeof *kinds; i++) {
        trial->gemm = (struct blasd_gpu_gemm){.dtype = kinds[i].dtype,
                                              .out = kinds[i].out,
                                              .rounding = kinds[i].rounding,
                                              .m = SIDE,
                                              .n = SIDE,
                                              .k = SIDE,
                                              .alpha = 1,
                                              .a = matrix(trial, 0),
                                              .b = matrix(trial, 1),
                                              .c = matrix(trial, 2),
                                              .lda = SIDE,
                                              .ldb = SIDE,
                                              .ldc = SIDE,
                                              .count = 1};
        code = try_one(trial, try_gemm, &can->gemm, err);
        if (code == 0) code = try_one(trial, try_strided, &can->strided, err);
        if (code == 0) code = try_one(trial, try_pointers, &can->pointers, err);
        if (code == 0 && kinds[i].out == kinds[i].dtype && blasd_dtype_parts(kinds[i].dtype) == 1)
            code = try_one(trial, try_grouped, &can->grouped, err);
    }
    return code;
}

/* Zeros for matrices, and where they are. */
static int fill_memory(const struct trial *trial, void *host, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = trial->device->calls;
    void **addresses = host;
    int code =
        calls->fill(trial->stream, trial->memory, 0, (size_t)3 * PRODUCTS * MATRIX_BYTES, err);
    for (int i = 0; i < 3 * PRODUCTS; i++) addresses[i] = trial->memory + (size_t)i * MATRIX_BYTES;
    if (code == 0)
        code = calls->copy_up(trial->stream, table(trial, 0), host, 3 * PRODUCTS * sizeof(void *),
                              err);
    if (code == 0) code = calls->stream_wait(trial->stream, err);
    return code;
}

int blasd_cuda_probe(struct blasd_device *device, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = device->calls;
    struct blasd_cuda_can ignored = {0}; /* the second slot only warms up */
    void *memory = NULL, *host = NULL;
    int code = calls->device_alloc(
        device->gpu, (size_t)3 * PRODUCTS * (MATRIX_BYTES + sizeof(void *)), &memory, err);
    memset(&device->can, 0, sizeof device->can);
    if (code == 0) code = calls->host_alloc(device->gpu, 3 * PRODUCTS * sizeof(void *), &host, err);
    for (int s = 0; code == 0 && s < BLASD_CUDA_SLOTS; s++) {
        struct trial trial = {.device = device, .memory = memory};
        code = blasd_cuda_slot_open(&device->slots[s], err);
        trial.stream = device->slots[s].run;
        if (code == 0 && s == 0) code = fill_memory(&trial, host, err);
        if (code == 0) code = try_kinds(&trial, s == 0 ? &device->can : &ignored, err);
        if (code == 0) code = calls->stream_wait(trial.stream, err);
    }
    if (memory != NULL) calls->device_free(device->gpu, memory);
    if (host != NULL) calls->host_free(device->gpu, host);
    return code;
}
