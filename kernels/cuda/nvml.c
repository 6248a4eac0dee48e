/* NVML, where the driver brings it: how busy the card is, what it draws. Loaded at run time with
 * prototypes of our own, as toolkits come without its header. Read next: cuda_backend.c. */
#include "kernels/cuda/device.h"

#include <dlfcn.h>
#include <stdlib.h>

struct nvml_utilization {
    unsigned gpu,
        memory; /* per cent of the time in which a kernel ran; memory was read or written */
};
struct nvml_memory {
    unsigned long long total, available, used;
};
typedef struct nvml_device_opaque *nvml_device;

struct blasd_nvml {
    void *object;
    nvml_device device;
    int (*shutdown)(void);
    int (*utilization)(nvml_device, struct nvml_utilization *);
    int (*memory)(nvml_device, struct nvml_memory *);
    int (*power)(nvml_device, unsigned *milliwatts);
    int (*energy)(nvml_device, unsigned long long *millijoules);
};

/* A function's address from dlsym, without a cast that C forbids. */
static void find(void *object, const char *name, void *function) {
    void *address = dlsym(object, name);
    *(void **)function = address;
}

const char *blasd_nvml_library = "libnvidia-ml.so.1";

struct blasd_nvml *blasd_nvml_open(const char *bus_id) {
    struct blasd_nvml *nvml = calloc(1, sizeof *nvml);
    int (*init)(void) = NULL;
    int (*by_bus_id)(const char *, nvml_device *) = NULL;
    int (*mig_mode)(nvml_device, unsigned *now, unsigned *after_reset) = NULL;
    unsigned mig = 0, later;
    if (nvml == NULL) return NULL;
    nvml->object = dlopen(blasd_nvml_library, RTLD_NOW | RTLD_LOCAL);
    if (nvml->object == NULL) goto none;
    find(nvml->object, "nvmlInit_v2", &init);
    find(nvml->object, "nvmlShutdown", &nvml->shutdown);
    find(nvml->object, "nvmlDeviceGetHandleByPciBusId_v2", &by_bus_id);
    find(nvml->object, "nvmlDeviceGetMigMode", &mig_mode);
    find(nvml->object, "nvmlDeviceGetUtilizationRates", &nvml->utilization);
    find(nvml->object, "nvmlDeviceGetMemoryInfo", &nvml->memory);
    find(nvml->object, "nvmlDeviceGetPowerUsage", &nvml->power);
    find(nvml->object, "nvmlDeviceGetTotalEnergyConsumption", &nvml->energy);
    if (init == NULL || nvml->shutdown == NULL || by_bus_id == NULL || init() != 0) goto unload;
    /* the device of a process is a slice of a card that is cut up (MIG), and what the address leads
     * to is the whole card, with the load, the memory and the energy of all slices */
    if (by_bus_id(bus_id, &nvml->device) == 0 &&
        (mig_mode == NULL || mig_mode(nvml->device, &mig, &later) != 0 || mig == 0))
        return nvml;
    (void)nvml->shutdown();
unload:
    dlclose(nvml->object);
none:
    free(nvml);
    return NULL;
}

void blasd_nvml_close(struct blasd_nvml *nvml) {
    if (nvml == NULL) return;
    (void)nvml->shutdown();
    dlclose(nvml->object);
    free(nvml);
}

void blasd_nvml_read(struct blasd_nvml *nvml, struct blasd_device_info *info) {
    struct nvml_utilization utilization;
    struct nvml_memory memory;
    unsigned milliwatts;
    if (nvml == NULL) return;
    if (nvml->utilization != NULL && nvml->utilization(nvml->device, &utilization) == 0)
        info->busy_percent = (int)utilization.gpu;
    if (nvml->memory != NULL && nvml->memory(nvml->device, &memory) == 0)
        info->memory_free_bytes = memory.available;
    if (nvml->power != NULL && nvml->power(nvml->device, &milliwatts) == 0)
        info->power_watts = milliwatts / 1e3;
    (void)blasd_nvml_energy(nvml, &info->energy_joules);
}

bool blasd_nvml_energy(struct blasd_nvml *nvml, double *joules) {
    unsigned long long millijoules;
    if (nvml == NULL || nvml->energy == NULL || nvml->energy(nvml->device, &millijoules) != 0)
        return false;
    *joules = (double)millijoules / 1e3;
    return true;
}
