/* How much memory a process here may have: the machine's, and that of each control group it is in
 * (a container, MemoryMax= of a systemd unit, a Slurm job), of both versions. Knows nothing of who
 * asks. */
#ifndef BLASD_BASE_MEMORY_LIMIT_H
#define BLASD_BASE_MEMORY_LIMIT_H

#include <stdint.h>

struct blasd_memory {
    uint64_t all;  /* bytes; 0 where nothing tells */
    uint64_t left; /* of these, without swapping, and with what files have in caches */
};

/* Of this process. Reads a dozen small files. */
struct blasd_memory blasd_memory_here(void);
/* The same from other files, for tests: `meminfo` in place of /proc/meminfo, `self` of
 * /proc/self/cgroup, and `mount` of /sys/fs/cgroup. */
struct blasd_memory blasd_memory_read(const char *meminfo, const char *self, const char *mount);

#endif
