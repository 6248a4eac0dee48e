/* A library with NVML's names, for tests of what the CUDA backend asks of it. Built as a shared
 * object that the backend loads; the test finds `fake_nvml` in it. */
#include "fake_nvml.h"

#include <stdio.h>

struct fake_nvml fake_nvml;

#define NOT_SUPPORTED 3

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device);
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *after_reset);
int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);

int nvmlInit_v2(void) {
    fake_nvml.inits++;
    return fake_nvml.init_fails ? 9 : 0;
}

int nvmlShutdown(void) {
    fake_nvml.shutdowns++;
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    snprintf(fake_nvml.bus_id, sizeof fake_nvml.bus_id, "%s", bus_id);
    if (fake_nvml.unknown) return 6;
    *device = &fake_nvml;
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *after_reset) {
    if (device != &fake_nvml || fake_nvml.no_mig) return NOT_SUPPORTED;
    *now = fake_nvml.mig;
    *after_reset = !fake_nvml.mig;
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]) {
    if (device != &fake_nvml || fake_nvml.no_utilization) return NOT_SUPPORTED;
    rates[0] = fake_nvml.percent;
    rates[1] = 1;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]) {
    if (device != &fake_nvml || fake_nvml.no_memory) return NOT_SUPPORTED;
    memory[0] = 2 * fake_nvml.available;
    memory[1] = fake_nvml.available;
    memory[2] = fake_nvml.available;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    if (device != &fake_nvml || fake_nvml.no_power) return NOT_SUPPORTED;
    *milliwatts = fake_nvml.milliwatts;
    return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    if (device != &fake_nvml || fake_nvml.no_energy) return NOT_SUPPORTED;
    fake_nvml.readings++;
    fake_nvml.millijoules += fake_nvml.step;
    *millijoules = fake_nvml.millijoules;
    return 0;
}
