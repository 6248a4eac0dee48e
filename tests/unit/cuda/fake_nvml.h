/* What a test may ask of the library in fake_nvml.c, and read from it. */
#ifndef BLASD_TESTS_FAKE_NVML_H
#define BLASD_TESTS_FAKE_NVML_H

#include <stdbool.h>

struct fake_nvml {
    /* to set */
    bool init_fails, unknown; /* the device is not one of NVML's */
    bool no_utilization, no_memory, no_power, no_energy, no_mig;
    bool mig; /* the card is cut into slices */
    unsigned percent, milliwatts;
    unsigned long long available, millijoules, step; /* step: added before each reading */
    /* to read */
    int inits, shutdowns, readings;
    char bus_id[32];
};
extern struct fake_nvml fake_nvml;

#endif
