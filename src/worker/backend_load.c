/* Finding backends: cpu is linked in, cuda is a shared object beside the executable, so that one
 * blasd serves every machine. */
#include "worker/worker.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYMBOL "blasd_backend"

/* Loaded once; a shared object that holds a device's runtime is never unloaded. */
static const struct blasd_backend *loaded_cuda;

static int beside_executable(const char *file, char *path, size_t size) {
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;
    if (len < 0) return -1;
    self[len] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL) return -1;
    slash[1] = '\0';
    return snprintf(path, size, "%s%s", self, file) < (int)size ? 0 : -1;
}

/* *here: this machine has a part of what CUDA needs, so that the rest may be missed. */
static int load_cuda(bool *here, struct blasd_err *err) {
    char path[PATH_MAX];
    const struct blasd_backend *backend;
    bool driver, ours;
    void *object;
    if (loaded_cuda != NULL) return 0;
    *here = false;
    if (beside_executable("blasd_cuda.so", path, sizeof path) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "device", "cannot tell where blasd lies");
    ours = access(path, R_OK) == 0;
    /* the libraries behind it take long to load: not where there is no driver for them */
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL;
    *here = ours || driver;
    if (!ours)
        return blasd_fail(err, BLASD_E_no_such_device, "device",
                          "blasd_cuda.so is not beside blasd%s: run `make cuda` where a CUDA "
                          "toolkit (nvcc) is installed",
                          driver ? ", though this machine has an NVIDIA driver" : "");
    if (!driver)
        return blasd_fail(err, BLASD_E_no_such_device, "device",
                          "there is no NVIDIA driver on this machine (libcuda.so.1): install it; "
                          "in a container, start it with --gpus all");
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL)
        return blasd_fail(err, BLASD_E_no_such_device, "device",
                          "cannot load blasd_cuda.so, which was built with another CUDA toolkit "
                          "or system than this: install that toolkit's libraries, or build blasd "
                          "here. %.90s",
                          dlerror());
    backend = dlsym(object, SYMBOL);
    if (backend == NULL || backend->abi != BLASD_BACKEND_ABI) {
        blasd_fail(err, BLASD_E_no_such_device, "device",
                   "blasd_cuda.so belongs to another version of blasd (%s %d, this one needs %d); "
                   "build both together",
                   SYMBOL, backend == NULL ? -1 : backend->abi, BLASD_BACKEND_ABI);
        dlclose(object);
        return -(int)BLASD_E_no_such_device;
    }
    loaded_cuda = backend;
    return 0;
}

int blasd_backends(const struct blasd_backend *ret[BLASD_BACKENDS_MAX], struct blasd_err *why) {
    bool here = false;
    int count = 0;
    if (load_cuda(&here, why) == 0) ret[count++] = loaded_cuda;
    if (count > 0 || !here) why->code = BLASD_OK;
    ret[count++] = &blasd_backend_cpu;
    return count;
}

int blasd_backend_find(const char *device, const struct blasd_backend **ret, int *ordinal,
                       struct blasd_err *err) {
    const char *colon = strchr(device, ':');
    char *end = NULL;
    long number = 0;
    bool ignored;
    int code, count;
    if (colon != NULL) number = strtol(colon + 1, &end, 10);
    if (colon == NULL || colon[1] < '0' || colon[1] > '9' || *end != '\0' || number > 1024)
        return blasd_fail(err, BLASD_E_no_such_device, "device",
                          "'%.40s' is not a device; write cpu:0 or cuda:0", device);
    if (strncmp(device, "cpu:", 4) == 0) {
        *ret = &blasd_backend_cpu;
    } else if (strncmp(device, "cuda:", 5) == 0) {
        code = load_cuda(&ignored, err);
        if (code != 0) return code;
        *ret = loaded_cuda;
    } else {
        return blasd_fail(err, BLASD_E_no_such_device, "device",
                          "'%.40s' is not a device; write cpu:0 or cuda:0", device);
    }
    count = (*ret)->device_count(err);
    if (count < 0) return count;
    if (number >= count)
        return blasd_fail(err, BLASD_E_no_such_device, "device", "there are %d %s devices here",
                          count, (*ret)->name);
    *ordinal = (int)number;
    return 0;
}
