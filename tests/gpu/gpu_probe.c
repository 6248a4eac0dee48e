/* Says what GPU is here, as lines KEY=VALUE for run.sh; exit 3 where there is none. */
#include "gpu_backend.h"

#include <stdio.h>

int main(void) {
    struct blasd_device *device;
    struct blasd_device_info info;
    struct blasd_err err = {0};
    if (blasd_backend.device_count(&err) < 1) {
        fprintf(stderr, "test-gpu: nothing was run: %s\n", err.detail);
        return 3;
    }
    if (blasd_backend.device_open(0, &device, &err) != 0 ||
        blasd_backend.device_info(device, true, &info, &err) != 0) {
        fprintf(stderr, "test-gpu: the GPU does not open: %s\n", err.detail);
        return 1;
    }
    printf("name=%s\n", info.name);
    printf("units=%d\n", info.units);
    printf("memory_gb=%.1f\n", (double)info.memory_bytes / 1e9);
    printf("copy_gbytes_s=%.1f\n", info.copy_gbytes_s);
    printf("gflops_float64=%.0f\n", info.gflops_float64);
    printf("gflops_float32=%.0f\n", info.gflops_float32);
    blasd_backend.device_close(device);
    return 0;
}
