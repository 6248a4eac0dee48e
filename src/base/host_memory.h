/* How much memory this machine, or the container we run in, has for a process. */
#ifndef BLASD_BASE_HOST_MEMORY_H
#define BLASD_BASE_HOST_MEMORY_H

#include <stdint.h>

/* Bytes; 0 where nothing tells. */
uint64_t blasd_host_memory(void);

#endif
