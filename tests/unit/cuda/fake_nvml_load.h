/* Finds the library of fake_nvml.c, which lies beside the test program, and lets the backend open
 * it from then on. Included by a test after cmocka. */
#ifndef BLASD_TESTS_FAKE_NVML_LOAD_H
#define BLASD_TESTS_FAKE_NVML_LOAD_H

#include "fake_nvml.h"
#include "kernels/cuda/tuning.h"

#include <dlfcn.h>
#include <unistd.h>

static char fake_nvml_path[4096];

static struct fake_nvml *fake_nvml_load(void) {
    ssize_t len = readlink("/proc/self/exe", fake_nvml_path, sizeof fake_nvml_path - 64);
    void *object;
    assert_true(len > 0);
    fake_nvml_path[len] = '\0';
    snprintf(strrchr(fake_nvml_path, '/') + 1, 64, "fake_nvml.so");
    object = dlopen(fake_nvml_path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) fail_msg("%s", dlerror());
    blasd_nvml_library = fake_nvml_path;
    return dlsym(object, "fake_nvml");
}

#endif
