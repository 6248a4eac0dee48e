/* The file DIR/DEVICE has three lines: what it was measured on, when (seconds since 1970), and the
 * costs as JSON. DIR/DEVICE.tries has a byte for each time that measuring began and has not ended.
 */
#include "worker/cost_file.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "wire/cost_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_MOST 1024
#define FILE_MOST (KEY_MOST + 32 + BLASD_COST_TEXT_MOST)
#define PATH_MOST 4096
#define TRIES_MOST 3
#define OLD_S (30 * INT64_C(86400)) /* clocks, cooling and neighbours change without a version */

/* One line that says all the figures depend on. */
static void make_key(const struct blasd_device_info *info, const char *version,
                     char key[KEY_MOST]) {
    int len = snprintf(key, KEY_MOST, "blasd %s | %s | %d units | %s |", version, info->name,
                       info->units, info->libraries);
    for (int i = 0; blasd_ops[i] != NULL && len < KEY_MOST; i++)
        len += snprintf(key + len, KEY_MOST - (size_t)len, " %s", blasd_ops[i]->name);
    for (char *at = key; *at != '\0'; at++)
        if ((unsigned char)*at < ' ') *at = ' ';
}

/* "DIR/cpu.0"; false where it is too long. */
static bool make_path(const char *dir, const struct blasd_device_info *info, const char *tail,
                      char path[PATH_MOST]) {
    int len = snprintf(path, PATH_MOST, "%s/%s%s", dir, info->id, tail);
    if (len < 0 || len >= PATH_MOST) return false;
    for (char *at = path + strlen(dir) + 1; *at != '\0'; at++)
        if (*at == ':') *at = '.';
    return true;
}

/* The whole file, ended by a zero; NULL where there is none or it is too long. New: freed by the
 * caller. */
static char *read_file(const char *path, size_t *len) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char *text = NULL;
    struct stat facts;
    ssize_t got = -1;
    if (fd < 0) return NULL;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size <= FILE_MOST) {
        text = malloc(FILE_MOST + 1);
        if (text != NULL) got = read(fd, text, FILE_MOST);
    }
    close(fd);
    if (got < 0) {
        free(text);
        return NULL;
    }
    text[got] = '\0';
    *len = (size_t)got;
    return text;
}

bool blasd_cost_file_load(const char *dir, const struct blasd_device_info *info,
                          const char *version, struct blasd_cost *ret) {
    char path[PATH_MOST], key[KEY_MOST], *text, *when, *costs;
    int64_t age;
    size_t len = 0;
    bool good = false;
    *ret = (struct blasd_cost){0};
    if (!make_path(dir, info, "", path) || (text = read_file(path, &len)) == NULL) return false;
    make_key(info, version, key);
    when = strchr(text, '\n');
    costs = when == NULL ? NULL : strchr(when + 1, '\n');
    if (costs == NULL) goto done;
    *when++ = '\0';
    *costs++ = '\0';
    age = blasd_clock_wall_us() / 1000000 - (int64_t)strtoll(when, NULL, 10);
    if (strcmp(text, key) != 0 || age < 0 || age > OLD_S) goto done;
    good = blasd_cost_read(costs, len - (size_t)(costs - text), ret, NULL) == 0 &&
           blasd_cost_known(ret);
done:
    free(text);
    return good;
}

int blasd_cost_file_save(const char *dir, const struct blasd_device_info *info, const char *version,
                         const struct blasd_cost *cost, struct blasd_err *err) {
    char path[PATH_MOST], part[PATH_MOST], tail[32], key[KEY_MOST];
    struct blasd_buf text;
    int fd = -1, failed = 0;
    snprintf(tail, sizeof tail, ".%d", (int)getpid());
    if (!make_path(dir, info, "", path) || !make_path(dir, info, tail, part))
        return blasd_fail(err, BLASD_E_invalid_field, "measured", "the path is too long");
    blasd_buf_init(&text, FILE_MOST);
    make_key(info, version, key);
    failed |=
        blasd_buf_printf(&text, "%s\n%lld\n", key, (long long)(blasd_clock_wall_us() / 1000000));
    failed |= blasd_cost_write(cost, &text);
    failed |= blasd_buf_puts(&text, "\n");
    if (failed != 0) {
        blasd_buf_release(&text);
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the measured costs");
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) goto fail;
    unlink(part); /* of a process that had our number and died */
    fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) goto fail;
    if (blasd_write_all(fd, text.data, text.len) != 0 || rename(part, path) != 0) goto fail;
    close(fd);
    blasd_buf_release(&text);
    return 0;
fail:
    blasd_fail(err, BLASD_E_internal_error, "measured", "cannot write %.180s: %s", path,
               strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(part);
    }
    blasd_buf_release(&text);
    return -(int)BLASD_E_internal_error;
}

bool blasd_cost_file_begin(const char *dir, const struct blasd_device_info *info) {
    char path[PATH_MOST];
    struct stat facts;
    bool good;
    int fd;
    if (!make_path(dir, info, ".tries", path)) return true;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) return true;
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) return true; /* it cannot be kept either, which saving will say */
    good = fstat(fd, &facts) != 0 || facts.st_size < TRIES_MOST;
    if (good) (void)blasd_write_all(fd, "x", 1); /* a full disk: not counted */
    close(fd);
    return good;
}

void blasd_cost_file_end(const char *dir, const struct blasd_device_info *info) {
    char path[PATH_MOST];
    if (make_path(dir, info, ".tries", path)) unlink(path);
}
