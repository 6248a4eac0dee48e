/* The CPU backend: one device, which is the machine, and a table of kernels.
 *
 * Knows no operation; OpenBLAS is used here only to be measured and told its threads.
 * Read next: ../matmul/README.md. */
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory_limit.h"

#include <cblas.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEASURE_N 768                 /* of the matrix product that is timed */
#define MEASURE_NS 120000000          /* spent on each measurement, about */
#define MEASURE_COPY_BYTES (64 << 20) /* larger than the caches of most machines */

void blasd_cpu_blas_alone(void) {
    openblas_set_num_threads(1);
}

static int cpu_device_count(struct blasd_err *err) {
    (void)err;
    return 1;
}

/* Memory given back to the kernel after each job is faulted in, and zeroed, for the next: up to
 * half the time of a solve. So some of it is kept: what glibc itself comes to after a large job. */
static void keep_memory(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* it takes no more */
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

static int cpu_device_open(int ordinal, struct blasd_device **ret, struct blasd_err *err) {
    cpu_set_t set;
    struct blasd_device *device;
    if (ordinal != 0)
        return blasd_fail(err, BLASD_E_no_such_device, "device", "there is only one CPU, cpu:0");
    device = calloc(1, sizeof *device);
    if (device == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the device");
    CPU_ZERO(&set);
    device->threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    if (device->threads < 1) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        device->threads = online > 0 && online < 4096 ? (int)online : 1;
    }
    keep_memory();
    *ret = device;
    return 0;
}

static void cpu_device_close(struct blasd_device *device) {
    free(device);
}

/* GFLOP/s of a product of two square matrices, at all threads. 0 where memory has run out. */
static double measure_gemm(const struct blasd_device *device, bool single) {
    const size_t elements = (size_t)MEASURE_N * MEASURE_N;
    const double flops = 2.0 * MEASURE_N * MEASURE_N * MEASURE_N;
    double *memory = blasd_cpu_alloc(3 * elements, sizeof(double)), best = 0;
    int64_t start = blasd_clock_ns(), now = start;
    if (memory == NULL) return 0;
    for (size_t i = 0; i < 3 * elements; i++) {
        if (single)
            ((float *)memory)[i] = (float)(i % 17) / 16;
        else
            memory[i] = (double)(i % 17) / 16;
    }
    openblas_set_num_threads(device->threads); /* no job runs meanwhile */
    for (int round = 0; round < 2 || now - start < MEASURE_NS; round++) {
        int64_t begin = blasd_clock_ns();
        if (single) {
            float *f = (float *)memory;
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, MEASURE_N, MEASURE_N, MEASURE_N,
                        1, f, MEASURE_N, f + elements, MEASURE_N, 0, f + 2 * elements, MEASURE_N);
        } else {
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, MEASURE_N, MEASURE_N, MEASURE_N,
                        1, memory, MEASURE_N, memory + elements, MEASURE_N, 0,
                        memory + 2 * elements, MEASURE_N);
        }
        now = blasd_clock_ns();
        if (now > begin && flops / (double)(now - begin) > best)
            best = flops / (double)(now - begin);
    }
    blasd_cpu_blas_alone();
    free(memory);
    return best;
}

/* Bytes copied from memory to memory, in 10^9 a second. 0 where memory has run out. */
static double measure_copy(void) {
    char *memory = blasd_cpu_alloc(2, MEASURE_COPY_BYTES);
    double best = 0;
    if (memory == NULL) return 0;
    memset(memory, 1, 2 * (size_t)MEASURE_COPY_BYTES);
    for (int round = 0; round < 5; round++) {
        int64_t begin = blasd_clock_ns(), took;
        memory[round] = (char)round;
        memcpy(memory + MEASURE_COPY_BYTES, memory, MEASURE_COPY_BYTES);
        took = blasd_clock_ns() - begin;
        if (took > 0 && (double)MEASURE_COPY_BYTES / (double)took > best)
            best = (double)MEASURE_COPY_BYTES / (double)took;
    }
    free(memory);
    return best;
}

static int cpu_device_info(struct blasd_device *device, bool measure,
                           struct blasd_device_info *info, struct blasd_err *err) {
    struct blasd_memory memory = blasd_memory_here();
    struct blasd_blas blas;
    (void)err;
    blasd_blas_describe(&blas);
    memset(info, 0, sizeof *info);
    snprintf(info->id, sizeof info->id, "cpu:0");
    blasd_file_value("/proc/cpuinfo", "model name", info->name, sizeof info->name);
    if (info->name[0] == '\0') snprintf(info->name, sizeof info->name, "CPU");
    info->device_class = BLASD_DEVICE_CPU;
    snprintf(info->libraries, sizeof info->libraries, "%.79s", blas.config);
    memcpy(info->blas_library, blas.library, sizeof info->blas_library);
    memcpy(info->blas_core, blas.core, sizeof info->blas_core);
    memcpy(info->blas_chosen_by, blas.chosen_by, sizeof info->blas_chosen_by);
    info->units = device->threads;
    info->busy_percent = -1;
    info->memory_bytes = memory.all;
    info->memory_free_bytes = memory.left;
    if (measure) {
        info->gflops_float64 = measure_gemm(device, false);
        info->gflops_float32 = measure_gemm(device, true);
        info->copy_gbytes_s = measure_copy();
    }
    return 0;
}

const struct blasd_backend blasd_backend_cpu = {
    .abi = BLASD_BACKEND_ABI,
    .name = "cpu",
    .device_class = BLASD_DEVICE_CPU,
    .device_count = cpu_device_count,
    .device_open = cpu_device_open,
    .device_close = cpu_device_close,
    .device_info = cpu_device_info,
    .kernels = blasd_cpu_kernels,
    .side_by_side = true,
};
