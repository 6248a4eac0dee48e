/* The backend's own numbers, all in one place; tests change them before a device is opened or while
 * it is idle. Read next: device.h. */
#ifndef BLASD_KERNELS_CUDA_TUNING_H
#define BLASD_KERNELS_CUDA_TUNING_H

#include <stddef.h>
#include <stdint.h>

/* How large things are: what a device takes when it is opened. Tests make them small. */
struct blasd_cuda_sizes {
    size_t chunk_bytes; /* of a pinned chunk */
    size_t part_bytes;  /* inputs and outputs of a part of a batch, about */
    size_t block_bytes; /* least device allocation */
    size_t cache_least; /* of an input that stays on the device: less goes up with others */
    size_t cache_bytes; /* of all that do; 0: a quarter of what was free at first */
    /* host memory that copies go to and from where it lies (pinned.c) */
    size_t pinned_least; /* bytes of such a copy: less goes with others */
    size_t pinned_bytes; /* that are registered, at most; 0: a quarter of the machine's memory */
    int pinned_after;    /* registered for the batch with this number that uses the mapping */
};
extern struct blasd_cuda_sizes blasd_cuda_sizes;

struct blasd_cuda_tuning {
    int64_t energy_ns; /* between two readings of the card's energy counter, at least */
    int spread_from;   /* coefficients from which a regression's factor has the whole grid */
    /* of a large product's result, that one call of the library makes; rows, at least */
    int64_t panel_elements, panel_rows;
};
extern struct blasd_cuda_tuning blasd_cuda_tuning;

extern const char *blasd_nvml_library; /* what is loaded as NVML */

#endif
