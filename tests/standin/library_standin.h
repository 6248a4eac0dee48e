/* What tests may ask of the stand-in library: a device size, an order of streams, faults, and what
 * is still held. Read next: library_standin.cc. */
#ifndef BLASD_TESTS_STANDIN_H
#define BLASD_TESTS_STANDIN_H

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct blasd_standin {
    /* to set */
    uint64_t seed;         /* of the order in which streams go on; 0: round and round */
    uint64_t memory_bytes; /* of the device */
    int device_count;
    int driver_status, open_status; /* as CUDA counts devices and opens one: cuda_status.h */
    int driver_version;
    bool registers, registers_read_only; /* host memory, and such as is mapped for reading alone */
    uint64_t register_most;              /* bytes that may be registered */
    bool emulates;                       /* float64 by integers */
    bool ways_differ; /* each call, and each count in it, rounds in a way of its own */
    int least;        /* compute capability that the kernels were built for */
    int major, minor; /* of the device; blasd_standin_card sets them */
    int fail_at;      /* the call with this number from now on fails (1: the next); 0: none */
    enum blasd_code fail_code; /* how; device_error sticks: all later calls fail too */
    int no_memory_at;     /* the allocation with this number from now on finds none (1: the next) */
    bool no_memory_after; /* and so do all later ones */
    /* to read */
    long calls;                                                  /* that can fail, so far */
    long device_blocks, host_blocks;                             /* allocations that are held */
    long registered, registrations;                              /* mappings: held, ever */
    long waits;                                                  /* of the host, ever */
    uint64_t registered_bytes, bytes_staged;                     /* held; copied by host_alloc's */
    long streams, events;                                        /* that are open */
    long device_allocs, gemms, launches, copies_up, copies_down; /* ever */
    long copies_within;                                          /* the device, ever */
    uint64_t bytes_up, bytes_down;                               /* copied, ever */
    uint64_t device_bytes;                                       /* held */
    bool broken;                                                 /* an error that sticks has come */
};
extern struct blasd_standin blasd_standin;

/* The device is of this compute capability, with the shared memory that such cards have. */
void blasd_standin_card(int major, int minor);
/* Forgets faults and an error that stuck, as a new process would. */
void blasd_standin_repair(void);

#ifdef __cplusplus
}
#endif

#endif
