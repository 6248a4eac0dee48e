/* Small things that are done with files in many places. */
#include "base/file.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

char *blasd_file_read(const char *path, size_t most, size_t *len) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char *text = NULL;
    struct stat facts = {.st_mode = 0};
    ssize_t got = -1;
    if (fd < 0) return NULL;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && (uint64_t)facts.st_size <= most) {
        text = malloc(most + 1);
        if (text != NULL) got = read(fd, text, most);
    } else {
        errno = S_ISDIR(facts.st_mode) ? EISDIR : EFBIG;
    }
    if (got < 0) {
        int reason = errno;
        close(fd);
        free(text);
        errno = reason;
        return NULL;
    }
    close(fd);
    text[got] = '\0';
    *len = (size_t)got;
    return text;
}

/* `sync`: it is on the disk before it has its name. */
static int replace(const char *path, const void *bytes, size_t len, bool sync) {
    char part[PATH_MAX];
    int fd, reason;
    if (snprintf(part, sizeof part, "%s.%d", path, (int)getpid()) >= (int)sizeof part) {
        errno = ENAMETOOLONG;
        return -1;
    }
    unlink(part); /* of a process that had our number and died */
    fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return -1;
    if (blasd_write_all(fd, bytes, len) == 0 && (!sync || fsync(fd) == 0) &&
        rename(part, path) == 0) {
        close(fd);
        return 0;
    }
    reason = errno;
    close(fd);
    unlink(part);
    errno = reason;
    return -1;
}

int blasd_file_replace(const char *path, const void *bytes, size_t len) {
    return replace(path, bytes, len, true);
}

#define KEPT_S (30 * INT64_C(86400))

static void as_line(const char *key, char line[BLASD_KEPT_KEY]) {
    snprintf(line, BLASD_KEPT_KEY, "%s", key);
    for (char *at = line; *at != '\0'; at++)
        if ((unsigned char)*at < ' ') *at = ' ';
}

char *blasd_kept_load(const char *dir, const char *name, const char *key, size_t most) {
    char path[PATH_MAX], line[BLASD_KEPT_KEY], *text, *when, *what = NULL;
    int64_t age;
    size_t len;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return NULL;
    text = blasd_file_read(path, most + BLASD_KEPT_KEY + 32, &len);
    if (text == NULL) return NULL;
    as_line(key, line);
    /* saved whole, or the machine went down with it */
    when = len > 0 && text[len - 1] == '\n' ? strchr(text, '\n') : NULL;
    if (when != NULL) what = strchr(when + 1, '\n');
    if (what != NULL) {
        *when++ = *what++ = '\0';
        age = blasd_clock_wall_us() / 1000000 - (int64_t)strtoll(when, NULL, 10);
        if (*what != '\0' && strcmp(text, line) == 0 && age >= 0 && age <= KEPT_S) {
            memmove(text, what, strlen(what) + 1);
            return text;
        }
    }
    free(text);
    return NULL;
}

int blasd_kept_save(const char *dir, const char *name, const char *key, const char *text,
                    bool sync) {
    char path[PATH_MAX], line[BLASD_KEPT_KEY], *all;
    int len, failed;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) return -1;
    as_line(key, line);
    len = asprintf(&all, "%s\n%" PRId64 "\n%s\n", line, blasd_clock_wall_us() / 1000000, text);
    if (len < 0) return -1;
    failed = replace(path, all, (size_t)len, sync);
    free(all);
    return failed;
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
