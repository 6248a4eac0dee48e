/* DIR/DEVICE keeps the costs as JSON. DIR/DEVICE.tries has a byte for each time that measuring
 * began and has not ended. */
#include "worker/cost_file.h"

#include "base/buf.h"
#include "base/file.h"
#include "wire/cost_text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_MOST 32
#define TRIES_MOST 3

/* All that the figures depend on. */
static void make_key(const struct blasd_device_info *info, const char *version,
                     char key[BLASD_KEPT_KEY]) {
    int len = snprintf(key, BLASD_KEPT_KEY, "blasd %s | %s | %d units | %s |", version, info->name,
                       info->units, info->libraries);
    for (int i = 0; blasd_ops[i] != NULL && len < BLASD_KEPT_KEY; i++)
        len += snprintf(key + len, BLASD_KEPT_KEY - (size_t)len, " %s", blasd_ops[i]->name);
}

/* "cpu.0" */
static void make_name(const struct blasd_device_info *info, char name[NAME_MOST]) {
    snprintf(name, NAME_MOST, "%s", info->id);
    for (char *at = name; *at != '\0'; at++)
        if (*at == ':') *at = '.';
}

bool blasd_cost_file_load(const char *dir, const struct blasd_device_info *info,
                          const char *version, struct blasd_cost *ret) {
    char name[NAME_MOST], key[BLASD_KEPT_KEY], *text;
    bool good;
    *ret = (struct blasd_cost){0};
    make_name(info, name);
    make_key(info, version, key);
    text = blasd_kept_load(dir, name, key, BLASD_COST_TEXT_MOST);
    if (text == NULL) return false;
    good = blasd_cost_read(text, strlen(text), ret, NULL) == 0 && blasd_cost_known(ret);
    free(text);
    return good;
}

int blasd_cost_file_save(const char *dir, const struct blasd_device_info *info, const char *version,
                         const struct blasd_cost *cost, struct blasd_err *err) {
    char name[NAME_MOST], key[BLASD_KEPT_KEY];
    struct blasd_buf text;
    int code = 0;
    make_name(info, name);
    make_key(info, version, key);
    blasd_buf_init(&text, BLASD_COST_TEXT_MOST + 1);
    if (blasd_cost_write(cost, &text) != 0 || blasd_buf_add(&text, "", 1) != 0)
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the measured costs");
    else if (blasd_kept_save(dir, name, key, text.data) != 0)
        code = blasd_fail(err, BLASD_E_internal_error, "measured", "cannot write %.180s/%s: %s",
                          dir, name, strerror(errno));
    blasd_buf_release(&text);
    return code;
}

static bool tries_path(const char *dir, const struct blasd_device_info *info, char path[PATH_MAX]) {
    char name[NAME_MOST];
    make_name(info, name);
    return snprintf(path, PATH_MAX, "%s/%s.tries", dir, name) < PATH_MAX;
}

bool blasd_cost_file_begin(const char *dir, const struct blasd_device_info *info) {
    char path[PATH_MAX];
    struct stat facts;
    bool good;
    int fd;
    if (!tries_path(dir, info, path)) return true;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) return true;
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) return true; /* it cannot be kept either, which saving will say */
    good = fstat(fd, &facts) != 0 || facts.st_size < TRIES_MOST;
    if (good) (void)blasd_write_all(fd, "x", 1); /* a full disk: not counted */
    close(fd);
    return good;
}

void blasd_cost_file_end(const char *dir, const struct blasd_device_info *info) {
    char path[PATH_MAX];
    if (tries_path(dir, info, path)) unlink(path);
}
