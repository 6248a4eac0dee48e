/* The machine's memory, or the limit of the control group where that is less. */
#include "base/host_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The number in a file; UINT64_MAX where there is none ("max"). */
static uint64_t number_in(const char *path) {
    char text[32], *end;
    unsigned long long number;
    FILE *file = fopen(path, "re");
    if (file == NULL) return UINT64_MAX;
    if (fgets(text, sizeof text, file) == NULL) text[0] = '\0';
    fclose(file);
    number = strtoull(text, &end, 10);
    return end == text || number == 0 ? UINT64_MAX : number;
}

uint64_t blasd_host_memory(void) {
    /* as a container sees its own group: version 2, then version 1 */
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
    for (int i = 0; i < 2; i++) {
        uint64_t limit = number_in(limits[i]);
        if (limit < bytes) bytes = limit;
    }
    return bytes;
}
