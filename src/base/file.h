/* Small things that are done with files in many places. */
#ifndef BLASD_BASE_FILE_H
#define BLASD_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Writes all of it, whatever a single call takes. 0, or -1 with errno. */
int blasd_write_all(int fd, const void *bytes, size_t len);
/* The value after "KEY : " in a file of such lines, as /proc/cpuinfo is, or "" where there is none.
 * A key may end in the tab behind it. */
void blasd_file_value(const char *path, const char *key, char *value, size_t size);
/* What /proc/meminfo says of `key` ("MemTotal", "MemAvailable"), in bytes; 0 where it does not. */
uint64_t blasd_memory_bytes(const char *key);

#endif
