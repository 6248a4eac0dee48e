/* DIR/DEVICE keeps the costs as JSON. */
#include "worker/cost_file.h"

#include "base/file.h"
#include "wire/cost_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MOST 64

/* `key`: all that the figures depend on; `name`: "cpu.0". */
static void describe(const struct blasd_device_info *info, const char *version,
                     char key[BLASD_KEPT_KEY], char name[NAME_MOST]) {
    int len = snprintf(key, BLASD_KEPT_KEY, "blasd %s | %s | %d units | %s |", version, info->name,
                       info->units, info->libraries);
    for (int i = 0; blasd_ops[i] != NULL && len < BLASD_KEPT_KEY; i++)
        len += snprintf(key + len, BLASD_KEPT_KEY - (size_t)len, " %s", blasd_ops[i]->name);
    snprintf(name, NAME_MOST, "%s", info->id);
    for (char *at = name; *at != '\0'; at++)
        if (*at == ':') *at = '.';
}

bool blasd_cost_file_load(const char *dir, const struct blasd_device_info *info,
                          const char *version, struct blasd_cost *ret) {
    char name[NAME_MOST], key[BLASD_KEPT_KEY], *text = NULL;
    bool found;
    describe(info, version, key, name);
    if (dir != NULL) text = blasd_kept_load(dir, name, key, BLASD_COST_TEXT_MOST);
    found = text != NULL && blasd_cost_read(text, strlen(text), ret, NULL) == 0;
    if (!found) blasd_cost_usual(info->device_class, info->units, ret);
    free(text);
    return found;
}

int blasd_cost_file_save(const char *dir, const struct blasd_device_info *info, const char *version,
                         const struct blasd_cost *cost, struct blasd_err *err) {
    char name[NAME_MOST], key[BLASD_KEPT_KEY], *text;
    int code = 0;
    if (dir == NULL) return 0;
    text = blasd_cost_write(cost);
    describe(info, version, key, name);
    if (text == NULL)
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for what jobs cost");
    else if (blasd_kept_save(dir, name, key, text, false) != 0)
        code = blasd_fail(err, BLASD_E_internal_error, "measured", "cannot write %.180s/%s: %s",
                          dir, name, strerror(errno));
    free(text);
    return code;
}
