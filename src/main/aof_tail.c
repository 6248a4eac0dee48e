/* The file holds what clients send, and lines that begin with #, which are notes. */
#include "main/aof_tail.h"

#include "base/log.h"
#include "redis/redis_request.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST "appendonly.aof.manifest"

enum step { WHOLE, TORN, FOREIGN };

struct reader {
    const char *at, *end;
};

static enum step read_note(struct reader *r) {
    const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    if (stop == NULL) return TORN;
    r->at = stop + 1;
    return WHOLE;
}

/* One command, as a client sends it. */
static enum step read_command(struct reader *r, struct blasd_redis_request *request) {
    int rc = blasd_redis_request_read(request, r->at, (size_t)(r->end - r->at));
    if (rc <= 0) return rc == 0 ? TORN : FOREIGN;
    r->at += request->bytes;
    return WHOLE;
}

static bool begins_with(const char *from, const struct blasd_redis_request *request,
                        const char *text) {
    const struct blasd_redis_word *word = request->words;
    return request->count > 0 && word->len == strlen(text) &&
           strncasecmp(from + word->at, text, word->len) == 0;
}

/* Zero bytes between two commands: makes notes of them, which Redis passes over. One alone, which
 * is too short for a note, is foreign. */
static enum step read_gap(struct reader *r, const char *text, int fd) {
    const size_t most = 64; /* Redis reads lines of up to 127 bytes */
    const char *from = r->at, *stop = from;
    char line[66];
    while (*stop == '\0') stop++; /* before the end there is something else */
    if (stop - from < 2) return FOREIGN;
    while (r->at < stop) {
        size_t left = (size_t)(stop - r->at), len = left > sizeof line ? most : left;
        memset(line, '#', len);
        line[len - 1] = '\n';
        if (pwrite(fd, line, len, r->at - text) != (ssize_t)len) return FOREIGN; /* a full disk */
        r->at += len;
    }
    blasd_log(
        BLASD_LOG_INFO,
        "%lld bytes of Redis' file, which it never wrote for the disk was full, are passed over",
        (long long)(stop - from));
    return WHOLE;
}

/* Bytes of what is whole; all of them where something else than a command stands in between. */
static size_t whole_bytes(const char *text, size_t size, int fd) {
    struct reader r = {text, text + size};
    struct blasd_redis_request request = {0};
    enum step step = WHOLE;
    size_t whole = 0;
    bool multi = false;
    while (r.end > text && r.end[-1] == '\0') r.end--; /* with which no command ends */
    while (r.at < r.end && step == WHOLE) {
        const char *from = r.at;
        blasd_redis_request_reset(&request);
        step = *r.at == '#'    ? read_note(&r)
               : *r.at == '\0' ? read_gap(&r, text, fd)
                               : read_command(&r, &request);
        if (step != WHOLE) break;
        if (begins_with(from, &request, "MULTI")) multi = true;
        if (begins_with(from, &request, "EXEC")) multi = false;
        if (!multi) whole = (size_t)(r.at - text);
    }
    blasd_redis_request_release(&request);
    return step == FOREIGN ? size : whole;
}

bool blasd_aof_newest(const char *dir, char name[BLASD_AOF_NAME]) {
    char manifest[PATH_MAX], line[512], found[BLASD_AOF_NAME];
    name[0] = '\0';
    if (snprintf(manifest, sizeof manifest, "%s/" MANIFEST, dir) >= (int)sizeof manifest)
        return false;
    FILE *file = fopen(manifest, "re");
    if (file == NULL) return false;
    while (fgets(line, sizeof line, file) != NULL)
        if (strstr(line, " type i") != NULL && sscanf(line, "file %255s ", found) == 1)
            memcpy(name, found, sizeof found);
    fclose(file);
    return name[0] != '\0' && strchr(name, '/') == NULL;
}

static int failed(const char *what, const char *path, struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_internal_error, "data", "cannot %s %.180s: %s", what, path,
                      strerror(errno));
}

int blasd_aof_repair(const char *dir, uint64_t *cut, struct blasd_err *err) {
    char path[PATH_MAX], name[BLASD_AOF_NAME];
    struct stat info;
    int code = 0;
    *cut = 0;
    if (!blasd_aof_newest(dir, name) ||
        snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return 0;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return errno == ENOENT ? 0 : failed("open", path, err);
    if (fstat(fd, &info) != 0) code = failed("look at", path, err);
    if (code != 0 || info.st_size == 0) goto done;
    size_t size = (size_t)info.st_size;
    char *text = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED) {
        code = failed("read", path, err);
        goto done;
    }
    size_t whole = whole_bytes(text, size, fd);
    munmap(text, size);
    if (whole == size) goto done;
    *cut = size - whole;
    if (ftruncate(fd, (off_t)whole) != 0 || fdatasync(fd) != 0) code = failed("shorten", path, err);
done:
    close(fd);
    return code;
}
