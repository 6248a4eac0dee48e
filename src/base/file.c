/* Small things that are done with files in many places. */
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int blasd_write_all(int fd, const void *bytes, size_t len) {
    const char *at = bytes;
    while (len > 0) {
        ssize_t put = write(fd, at, len);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return -1;
        at += put;
        len -= (size_t)put;
    }
    return 0;
}

void blasd_file_value(const char *path, const char *key, char *value, size_t size) {
    char line[512];
    size_t len = strlen(key);
    FILE *file = fopen(path, "re");
    value[0] = '\0';
    if (file == NULL) return;
    while (fgets(line, sizeof line, file) != NULL) {
        const char *at = line + len;
        if (strncmp(line, key, len) != 0) continue;
        at += strspn(at, " \t:");
        snprintf(value, size, "%.*s", (int)strcspn(at, "\n"), at);
        break;
    }
    fclose(file);
}

uint64_t blasd_memory_bytes(const char *key) {
    char text[64];
    blasd_file_value("/proc/meminfo", key, text, sizeof text);
    return (uint64_t)strtoull(text, NULL, 10) * 1024;
}
