/* The file holds what clients send: "*WORDS\r\n", and "$BYTES\r\n...\r\n" for each word; a line
 * that begins with # is a note. */
#include "main/aof_tail.h"

#include "base/log.h"

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
#define NUMBER_LINE 24 /* bytes of the longest line that holds a number */

enum step { WHOLE, TORN, FOREIGN };

struct reader {
    const char *at, *end;
};

/* A line that is `mark` and a number. */
static enum step read_number(struct reader *r, char mark, uint64_t *value) {
    size_t left = (size_t)(r->end - r->at);
    const char *stop = memchr(r->at, '\n', left < NUMBER_LINE ? left : NUMBER_LINE);
    const char *digit = r->at + 1;
    if (left > 0 && *r->at != mark) return FOREIGN;
    if (stop == NULL) return left < NUMBER_LINE ? TORN : FOREIGN;
    *value = 0;
    for (; *digit >= '0' && *digit <= '9'; digit++) *value = *value * 10 + (uint64_t)(*digit - '0');
    if (digit == r->at + 1 || *digit != '\r' || digit + 1 != stop) return FOREIGN;
    r->at = stop + 1;
    return WHOLE;
}

static enum step read_note(struct reader *r) {
    const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    if (stop == NULL) return TORN;
    r->at = stop + 1;
    return WHOLE;
}

/* One command; *name is its first word, of `len` bytes. */
static enum step read_command(struct reader *r, const char **name, uint64_t *len) {
    uint64_t words, bytes;
    enum step step = read_number(r, '*', &words);
    *len = 0;
    for (uint64_t i = 0; step == WHOLE && i < words; i++) {
        step = read_number(r, '$', &bytes);
        if (step != WHOLE) return step;
        uint64_t left = (uint64_t)(r->end - r->at);
        if (left < 2 || bytes > left - 2) return TORN;
        if (memcmp(r->at + bytes, "\r\n", 2) != 0) return FOREIGN;
        if (i == 0) {
            *name = r->at;
            *len = bytes;
        }
        r->at += bytes + 2;
    }
    return step;
}

static bool is_word(const char *word, uint64_t len, const char *text) {
    return len == strlen(text) && strncasecmp(word, text, len) == 0;
}

/* Zero bytes between two commands: makes notes of them, which Redis passes over. One alone, which
 * is too short for a note, is foreign. */
static enum step read_gap(struct reader *r, const char *text, int fd) {
    const size_t most = 64; /* Redis reads lines of up to 127 bytes */
    const char *from = r->at, *stop = from;
    char line[66];
    while (stop < r->end && *stop == '\0') stop++;
    if (stop == r->end) return TORN;
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
    enum step step = WHOLE;
    size_t whole = 0;
    bool multi = false;
    while (r.at < r.end && step == WHOLE) {
        const char *name = NULL;
        uint64_t len = 0;
        step = *r.at == '#'    ? read_note(&r)
               : *r.at == '\0' ? read_gap(&r, text, fd)
                               : read_command(&r, &name, &len);
        if (step != WHOLE) break;
        if (is_word(name, len, "MULTI")) multi = true;
        if (is_word(name, len, "EXEC")) multi = false;
        if (!multi) whole = (size_t)(r.at - text);
    }
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
