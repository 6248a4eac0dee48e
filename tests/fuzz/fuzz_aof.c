/* The end of an append-only file, and the manifest that names it (up to the first zero byte), as a
 * killed Redis may leave them: what is cut is at the end, and nothing is left to be cut. */
#include "main/aof_tail.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEWEST "appendonly.aof.1.incr.aof"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static char dir[] = "/dev/shm/blasd-fuzz-XXXXXX";
static char manifest[96], newest[96];

static void require(bool holds) {
    if (!holds) abort();
}

static void clear(void) {
    unlink(manifest);
    unlink(newest);
    rmdir(dir);
}

static void put(const char *path, const void *bytes, size_t len) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    require(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
}

static uint64_t size_of(const char *path) {
    struct stat info;
    require(stat(path, &info) == 0);
    return (uint64_t)info.st_size;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
    static const char named[] = "file " NEWEST " seq 1 type i\n";
    const uint8_t *zero = len == 0 ? NULL : memchr(bytes, 0, len);
    size_t head = zero == NULL ? 0 : (size_t)(zero - bytes) + 1;
    struct blasd_err err = {0};
    uint64_t cut = 0, again = 0, before;
    if (newest[0] == '\0') {
        require(mkdtemp(dir) != NULL);
        snprintf(manifest, sizeof manifest, "%s/appendonly.aof.manifest", dir);
        snprintf(newest, sizeof newest, "%s/" NEWEST, dir);
        atexit(clear);
    }
    if (head > 1)
        put(manifest, bytes, head - 1);
    else
        put(manifest, named, strlen(named));
    put(newest, bytes + head, len - head);
    before = size_of(newest);
    if (blasd_aof_repair(dir, &cut, &err) != 0) {
        require(size_of(newest) == before);
        return 0;
    }
    require(size_of(newest) == before - cut);
    require(blasd_aof_repair(dir, &again, &err) == 0 && again == 0);
    return 0;
}
