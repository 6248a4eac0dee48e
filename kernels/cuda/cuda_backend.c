/* The CUDA backend: its devices, what they say of themselves, and how fast they are.
 *
 * Knows no operation. Built into blasd_cuda.so with the real library, and into tests with the
 * stand-in. Read next: async_batch.c. */
#include "kernels/cuda/device.h"

#include "base/clock.h"
#include "kernels/cuda/cuda_status.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_COPY_THREADS 4
#define MEASURE_NS 120000000 /* spent on each measurement, about */
#define MEASURE_BYTES ((size_t)64 << 20)

extern const struct blasd_backend blasd_backend;
extern const struct blasd_kernel *const blasd_cuda_kernels[]; /* generated, with blasd_cuda_ops */

#define LEAST_CAPABILITY 80 /* the kernels use what cards have since Ampere */

static int cuda_device_count(struct blasd_err *err) {
    struct blasd_gpu_driver driver;
    blasd_gpu_calls.driver(&driver);
    if (driver.status == 0 && driver.count < 1) driver.status = BLASD_CUDA_NoDevice;
    return driver.status == 0 ? driver.count
                              : blasd_cuda_refuse(&driver, driver.status, driver.says, err);
}

static int cuda_device_check(int ordinal, struct blasd_err *err) {
    struct blasd_gpu_driver driver;
    struct blasd_gpu_facts facts;
    int code = blasd_gpu_calls.peek(ordinal, &facts, err), capability;
    if (code != 0) return code;
    capability = 10 * facts.major + facts.minor;
    if (capability < LEAST_CAPABILITY)
        return blasd_fail(err, BLASD_E_no_such_device, "device",
                          "%s has compute capability %d.%d, and blasd needs 8.0 or later (A100, "
                          "A10, L4, RTX 30 and later): use such a card, or the CPU",
                          facts.name, facts.major, facts.minor);
    blasd_gpu_calls.driver(&driver);
    if (capability < driver.least)
        return blasd_fail(err, BLASD_E_no_such_device, "device",
                          "%s has compute capability %d.%d, and blasd_cuda.so was built for %d.%d "
                          "and later: build it with that of this card in CUDA_ARCH (Makefile)",
                          facts.name, facts.major, facts.minor, driver.least / 10,
                          driver.least % 10);
    return 0;
}

static void cuda_device_close(struct blasd_device *device) {
    const struct blasd_gpu_library *calls = device->calls;
    for (int s = 0; s < BLASD_CUDA_SLOTS; s++) {
        struct blasd_cuda_slot *slot = &device->slots[s];
        if (slot->device == NULL) continue;
        calls->stream_close(slot->run);
        calls->event_close(slot->up_from);
        calls->event_close(slot->up_to);
        calls->event_close(slot->run_from);
        calls->event_close(slot->run_to);
        calls->event_close(slot->down_from);
        calls->event_close(slot->down_to);
        for (int i = 0; i < BLASD_CUDA_TICKETS; i++) calls->event_close(slot->tickets[i]);
        blasd_cuda_ring_release(device, &slot->ring);
        blasd_cuda_arena_release(device, &slot->arena);
        blasd_cuda_scrap_release(&slot->scraps);
        if (slot->pinned != NULL) calls->host_free(device->gpu, slot->pinned);
        free(slot->up.pieces);
        free(slot->down.pieces);
    }
    blasd_cuda_cache_release(device);
    calls->stream_close(device->up);
    calls->stream_close(device->down);
    blasd_cuda_pinned_close(device);
    blasd_cuda_ring_release(device, &device->ring);
    blasd_cuda_chunk_release(device, &device->home);
    blasd_nvml_close(device->nvml);
    if (device->gpu != NULL) calls->close(device->gpu);
    free(device);
}

static int copy_threads(void) {
    cpu_set_t set;
    int cores;
    CPU_ZERO(&set);
    cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return cores < 4 ? 1 : cores / 2 < MOST_COPY_THREADS ? cores / 2 : MOST_COPY_THREADS;
}

#define WARM_SIDE 8
/* A product on each slot's stream: handles, workspaces and first kernels are there before the first
 * job is. */
static int warm_up(struct blasd_device *device, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = device->calls;
    const size_t bytes = WARM_SIDE * WARM_SIDE * sizeof(double);
    void *memory = NULL;
    int code = calls->device_alloc(device->gpu, 3 * bytes, &memory, err);
    for (int s = 0; code == 0 && s < BLASD_CUDA_SLOTS; s++) {
        struct blasd_cuda_slot *slot = &device->slots[s];
        struct blasd_gpu_gemm gemm = {.dtype = BLASD_float64,
                                      .out = BLASD_float64,
                                      .m = WARM_SIDE,
                                      .n = WARM_SIDE,
                                      .k = WARM_SIDE,
                                      .alpha = 1,
                                      .a = memory,
                                      .b = (char *)memory + bytes,
                                      .c = (char *)memory + 2 * bytes,
                                      .lda = WARM_SIDE,
                                      .ldb = WARM_SIDE,
                                      .ldc = WARM_SIDE,
                                      .count = 1};
        code = blasd_cuda_slot_open(slot, err);
        if (code == 0) code = calls->fill(slot->run, memory, 0, 3 * bytes, err);
        if (code == 0) code = calls->gemm(slot->run, &gemm, err);
        if (code == 0) code = calls->stream_wait(slot->run, err);
    }
    if (memory != NULL) calls->device_free(device->gpu, memory);
    return code;
}

static int cuda_device_open(int ordinal, struct blasd_device **ret, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = &blasd_gpu_calls;
    int count = cuda_device_count(err), code = count < 0 ? count : 0;
    struct blasd_device *device;
    if (code == 0 && (ordinal < 0 || ordinal >= count))
        code = blasd_fail(err, BLASD_E_no_such_device, "device", "there are %d CUDA devices here",
                          count);
    if (code == 0) code = cuda_device_check(ordinal, err);
    if (code != 0) return code;
    device = calloc(1, sizeof *device);
    if (device == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the device");
    device->calls = calls;
    device->ordinal = ordinal;
    device->sizes = blasd_cuda_sizes;
    device->copy_threads = copy_threads();
    blasd_cuda_pinned_open(device);
    code = calls->open(ordinal, &device->gpu, err);
    if (code == 0) code = calls->facts(device->gpu, &device->facts, err);
    if (code == 0) code = calls->stream_open(device->gpu, &device->up, err);
    if (code == 0) code = calls->stream_open(device->gpu, &device->down, err);
    for (int s = 0; code == 0 && s < BLASD_CUDA_SLOTS; s++) device->slots[s].device = device;
    if (code == 0) code = warm_up(device, err);
    if (code != 0) {
        cuda_device_close(device);
        return code;
    }
    device->nvml = blasd_nvml_open(device->facts.bus_id);
    *ret = device;
    return 0;
}

/* The microseconds that `enqueue` takes on the device, the best of several. */
static int best_us(struct blasd_device *device, int (*enqueue)(void *, struct blasd_err *),
                   void *arg, double *best, struct blasd_err *err) {
    struct blasd_cuda_slot *slot = &device->slots[0];
    const struct blasd_gpu_library *calls = device->calls;
    int64_t start = blasd_clock_ns();
    int code = 0;
    for (int round = 0; code == 0 && (round < 3 || blasd_clock_ns() - start < MEASURE_NS);
         round++) {
        double us = 0;
        code = calls->event_record(slot->up_from, slot->run, err);
        if (code == 0) code = enqueue(arg, err);
        if (code == 0) code = calls->event_record(slot->up_to, slot->run, err);
        if (code == 0) code = calls->event_wait(slot->up_to, err);
        if (code == 0) code = calls->event_us(slot->up_from, slot->up_to, &us, err);
        if (round > 0 && us > 0 && (*best == 0 || us < *best)) *best = us;
    }
    return code;
}

struct measured {
    struct blasd_device *device;
    struct blasd_gpu_gemm gemm;
    void *host, *memory;
};

static int enqueue_gemm(void *arg, struct blasd_err *err) {
    struct measured *m = arg;
    return m->device->calls->gemm(m->device->slots[0].run, &m->gemm, err);
}
static int enqueue_copy(void *arg, struct blasd_err *err) {
    struct measured *m = arg;
    return m->device->calls->copy_up(m->device->slots[0].run, m->memory, m->host, MEASURE_BYTES,
                                     err);
}

static int measure_gemm(struct measured *m, enum blasd_dtype dtype, double *gflops,
                        struct blasd_err *err) {
    /* three matrices of `n` in the measured memory; the stand-in is not worth much work */
    int64_t n = strcmp(m->device->calls->name, "cuda") == 0 ? 1536 : 64;
    char *memory = m->memory;
    size_t bytes = (size_t)(n * n) * blasd_dtype_size(dtype);
    double us = 0;
    int code;
    m->gemm = (struct blasd_gpu_gemm){.dtype = dtype, .out = dtype, .m = n, .n = n, .k = n};
    m->gemm.alpha = 1;
    m->gemm.a = memory;
    m->gemm.b = memory + bytes;
    m->gemm.c = memory + 2 * bytes;
    m->gemm.lda = m->gemm.ldb = m->gemm.ldc = n;
    m->gemm.count = 1;
    code = best_us(m->device, enqueue_gemm, m, &us, err);
    *gflops = us > 0 ? 2.0 * (double)n * (double)n * (double)n / us / 1e3 : 0;
    return code;
}

static int measure_all(struct blasd_device *device, struct blasd_device_info *info,
                       struct blasd_err *err) {
    const struct blasd_gpu_library *calls = device->calls;
    struct measured m = {.device = device};
    struct blasd_cuda_slot *slot = &device->slots[0];
    double us = 0;
    int code = 0;
    code = blasd_cuda_slot_open(slot, err);
    if (code == 0) code = calls->host_alloc(device->gpu, MEASURE_BYTES, &m.host, err);
    if (code == 0) code = calls->device_alloc(device->gpu, MEASURE_BYTES, &m.memory, err);
    if (code != 0) goto done;
    /* 0x3f3f… is a number near 1 in every dtype: zeros could run faster than real data */
    memset(m.host, 0x3f, MEASURE_BYTES);
    code = best_us(device, enqueue_copy, &m, &us, err);
    if (us > 0) info->copy_gbytes_s = (double)MEASURE_BYTES / us / 1e3;
    if (code == 0) code = measure_gemm(&m, BLASD_float64, &info->gflops_float64, err);
    if (code == 0) code = measure_gemm(&m, BLASD_float32, &info->gflops_float32, err);
done:
    if (m.memory != NULL) calls->device_free(device->gpu, m.memory);
    if (m.host != NULL) calls->host_free(device->gpu, m.host);
    return code;
}

static int cuda_device_info(struct blasd_device *device, bool measure,
                            struct blasd_device_info *info, struct blasd_err *err) {
    struct blasd_gpu_facts facts;
    int code = device->calls->facts(device->gpu, &facts, err);
    if (code != 0) return code;
    memset(info, 0, sizeof *info);
    snprintf(info->id, sizeof info->id, "cuda:%d", device->ordinal);
    snprintf(info->name, sizeof info->name, "%s", facts.name);
    snprintf(info->libraries, sizeof info->libraries, "%s", facts.versions);
    info->device_class = BLASD_DEVICE_CUDA;
    info->units = facts.units;
    info->memory_bytes = facts.memory_bytes;
    info->memory_free_bytes = facts.memory_free_bytes;
    info->busy_percent = -1;
    blasd_nvml_read(device->nvml, info);
    blasd_cuda_pinned_remark(device, info->remark, sizeof info->remark);
    return measure ? measure_all(device, info, err) : 0;
}

const struct blasd_backend blasd_backend = {
    .abi = BLASD_BACKEND_ABI,
    .name = "cuda",
    .device_class = BLASD_DEVICE_CUDA,
    .device_count = cuda_device_count,
    .device_check = cuda_device_check,
    .device_open = cuda_device_open,
    .device_close = cuda_device_close,
    .device_info = cuda_device_info,
    .device_kept = blasd_cuda_cache_ids,
    .resident_to_host = blasd_cuda_cache_to_host,
    .resident_forget = blasd_cuda_cache_forget,
    .memory_comes = blasd_cuda_memory_comes,
    .memory_goes = blasd_cuda_memory_goes,
    .kernels = blasd_cuda_kernels,
};
