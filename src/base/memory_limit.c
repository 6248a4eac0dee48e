/* The least of what the machine and the groups say. Where a container has no view of its own of the
 * groups, the path of its group is the host's and not there; its limit then stands at the mount's
 * root, so what is missing on the way up is passed over. */
#include "base/memory_limit.h"

#include "base/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The files of one version. */
struct version {
    const char *mount; /* below that of all groups */
    const char *limit, *used;
    const char *inactive, *active; /* lines of memory.stat: caches of files, which can be dropped */
};

static const struct version unified = {"", "memory.max", "memory.current", "inactive_file",
                                       "active_file"};
/* version 2 beside version 1 */
static const struct version hybrid = {"/unified", "memory.max", "memory.current", "inactive_file",
                                      "active_file"};
static const struct version first = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                     "total_inactive_file", "total_active_file"};

/* The number in a file; UINT64_MAX where there is none ("max"). */
static uint64_t number_in(const char *folder, const char *name) {
    char path[2 * PATH_MAX], text[32], *end;
    unsigned long long number;
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "re");
    if (file == NULL) return UINT64_MAX;
    if (fgets(text, sizeof text, file) == NULL) text[0] = '\0';
    fclose(file);
    number = strtoull(text, &end, 10);
    return end == text ? UINT64_MAX : number;
}

static uint64_t bytes_named(const char *path, const char *key) {
    char text[64];
    blasd_file_value(path, key, text, sizeof text);
    return strtoull(text, NULL, 10);
}

static void apply_group(const struct version *version, const char *folder,
                        struct blasd_memory *memory) {
    uint64_t limit = number_in(folder, version->limit), used, caches;
    char stat[2 * PATH_MAX];
    if (limit == UINT64_MAX) return;
    if (limit < memory->all) memory->all = limit;
    used = number_in(folder, version->used);
    snprintf(stat, sizeof stat, "%s/memory.stat", folder);
    caches = bytes_named(stat, version->inactive) + bytes_named(stat, version->active);
    if (used == UINT64_MAX) used = 0;
    used -= caches < used ? caches : used;
    if (used >= limit)
        memory->left = 0;
    else if (limit - used < memory->left)
        memory->left = limit - used;
}

/* The group and all above it. */
static void apply_groups(const struct version *version, const char *mount, const char *group,
                         struct blasd_memory *memory) {
    char folder[PATH_MAX];
    size_t root = strlen(mount) + strlen(version->mount);
    if (snprintf(folder, sizeof folder, "%s%s%s", mount, version->mount, group) >=
        (int)sizeof folder)
        return;
    for (;;) {
        char *slash;
        apply_group(version, folder, memory);
        slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < root) return;
        *slash = '\0';
    }
}

/* Whether `controllers`, as in "cpu,memory", has memory among them. */
static int names_memory(const char *controllers) {
    static const char name[] = "memory";
    for (const char *at = controllers; *at != '\0'; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == strlen(name) && strncmp(at, name, strlen(name)) == 0) return 1;
    return 0;
}

struct blasd_memory blasd_memory_read(const char *meminfo, const char *self, const char *mount) {
    struct blasd_memory memory = {.all = bytes_named(meminfo, "MemTotal") * 1024,
                                  .left = bytes_named(meminfo, "MemAvailable") * 1024};
    char line[PATH_MAX + 64];
    FILE *file = fopen(self, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL) continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (strcmp(group, "/") == 0) group[0] = '\0';
        if (controllers[1] == '\0') {
            apply_groups(&unified, mount, group, &memory);
            apply_groups(&hybrid, mount, group, &memory);
        } else if (names_memory(controllers + 1)) {
            apply_groups(&first, mount, group, &memory);
        }
    }
    if (file != NULL) fclose(file);
    return memory;
}

struct blasd_memory blasd_memory_here(void) {
    return blasd_memory_read("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup");
}
