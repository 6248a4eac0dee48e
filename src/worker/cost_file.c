/* DIR/DEVICE keeps the costs as JSON, DIR/DEVICE.learnt what jobs have added to them, which goes
 * when the device is measured anew. DIR/DEVICE.tries says how often measuring began and has not
 * ended.
 */
#include "worker/cost_file.h"

#include "base/file.h"
#include "wire/cost_text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_MOST 64
#define TRIES ".tries"
#define LEARNT ".learnt"
#define TRIES_MOST '3'

/* All that the figures depend on. */
static void make_key(const struct blasd_device_info *info, const char *version,
                     char key[BLASD_KEPT_KEY]) {
    int len = snprintf(key, BLASD_KEPT_KEY, "blasd %s | %s | %d units | %s |", version, info->name,
                       info->units, info->libraries);
    for (int i = 0; blasd_ops[i] != NULL && len < BLASD_KEPT_KEY; i++)
        len += snprintf(key + len, BLASD_KEPT_KEY - (size_t)len, " %s", blasd_ops[i]->name);
}

/* "cpu.0" */
static void make_name(const struct blasd_device_info *info, const char *what,
                      char name[NAME_MOST]) {
    snprintf(name, NAME_MOST, "%s%s", info->id, what);
    for (char *at = name; *at != '\0'; at++)
        if (*at == ':') *at = '.';
}

static bool load(const char *dir, const struct blasd_device_info *info, const char *what,
                 const char *version, struct blasd_cost *ret) {
    char name[NAME_MOST], key[BLASD_KEPT_KEY], *text;
    bool good;
    make_name(info, what, name);
    make_key(info, version, key);
    text = blasd_kept_load(dir, name, key, BLASD_COST_TEXT_MOST);
    if (text == NULL) return false;
    good = blasd_cost_read(text, strlen(text), ret, NULL) == 0;
    free(text);
    return good;
}

static int save(const char *dir, const struct blasd_device_info *info, const char *what,
                const char *version, const struct blasd_cost *cost, struct blasd_err *err) {
    char name[NAME_MOST], key[BLASD_KEPT_KEY], *text;
    int code = 0;
    text = blasd_cost_write(cost);
    make_name(info, what, name);
    make_key(info, version, key);
    if (text == NULL)
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the measured costs");
    else if (blasd_kept_save(dir, name, key, text, false) != 0)
        code = blasd_fail(err, BLASD_E_internal_error, "measured", "cannot write %.180s/%s: %s",
                          dir, name, strerror(errno));
    free(text);
    return code;
}

static void remove_file(const char *dir, const struct blasd_device_info *info, const char *what) {
    char path[PATH_MAX], name[NAME_MOST];
    make_name(info, what, name);
    if (snprintf(path, sizeof path, "%s/%s", dir, name) < PATH_MAX) unlink(path);
}

bool blasd_cost_file_load(const char *dir, const struct blasd_device_info *info,
                          const char *version, struct blasd_cost *ret) {
    struct blasd_cost learnt;
    *ret = (struct blasd_cost){0};
    if (dir == NULL || !load(dir, info, "", version, ret) || !blasd_cost_known(ret)) return false;
    if (load(dir, info, LEARNT, version, &learnt)) blasd_cost_adopt(ret, &learnt);
    return true;
}

int blasd_cost_file_save(const char *dir, const struct blasd_device_info *info, const char *version,
                         const struct blasd_cost *cost, struct blasd_err *err) {
    if (dir == NULL) return 0;
    remove_file(dir, info, LEARNT);
    return save(dir, info, "", version, cost, err);
}

int blasd_cost_file_learnt(const char *dir, const struct blasd_device_info *info,
                           const char *version, const struct blasd_cost *cost,
                           struct blasd_err *err) {
    struct blasd_cost learnt = *cost;
    if (dir == NULL) return 0;
    for (int op = 0; op < BLASD_OPS_MOST; op++)
        for (int p = 0; p < BLASD_COST_PRECISIONS; p++) {
            struct blasd_cost_curve *curve = &learnt.curves[op][p];
            curve->count -= curve->measured;
            memmove(curve->points, curve->points + curve->measured,
                    (size_t)curve->count * sizeof *curve->points);
        }
    return save(dir, info, LEARNT, version, &learnt, err);
}

bool blasd_cost_file_begin(const char *dir, const struct blasd_device_info *info) {
    char name[NAME_MOST], count[2] = "1", *text;
    if (dir == NULL) return true;
    make_name(info, TRIES, name);
    text = blasd_kept_load(dir, name, TRIES, sizeof count);
    if (text != NULL && text[0] >= '1') count[0] = (char)(text[0] + 1);
    free(text);
    /* where it cannot be kept, measuring is not counted, and saving will say so */
    if (count[0] <= TRIES_MOST) (void)blasd_kept_save(dir, name, TRIES, count, true);
    return count[0] <= TRIES_MOST;
}

void blasd_cost_file_end(const char *dir, const struct blasd_device_info *info) {
    if (dir != NULL) remove_file(dir, info, TRIES);
}
