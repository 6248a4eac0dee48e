/* Chooses, makes and removes the directory; keeps a copy of its token. */
#include "main/blob_dir.h"

#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED "/dev/shm"
#define PREFIX "blasd-"
#define STORE ".store"
#define POOL ".pool" /* files that wait for their next use: store/store_pool.h */

/* Whether it is a directory of this user, and no link to one: others may write where it lies. */
static bool is_ours(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

void blob_dir_choose(const struct data_dir *dir, char spec[BLOB_SPEC_MAX]) {
    const char *path = spec + strlen("dir:");
    struct stat info;
    snprintf(spec, BLOB_SPEC_MAX, "dir:" SHARED "/" PREFIX "%s", dir->instance);
    if (access(SHARED, W_OK | X_OK) == 0 && (lstat(path, &info) != 0 || is_ours(path))) return;
    if (access(SHARED, W_OK | X_OK) == 0)
        blasd_log(BLASD_LOG_WARN,
                  "%s belongs to another user (%u): large tensors go to %s/blobs, which is slower. "
                  "Remove that directory, or choose a place with --blobs",
                  path, (unsigned)info.st_uid, dir->path);
    snprintf(spec, BLOB_SPEC_MAX, "dir:%s/blobs", dir->path);
}

/* Copies a file of at most a few bytes. */
static int copy_small(const char *from, const char *to) {
    size_t len = 0;
    char *bytes = blasd_file_read(from, 256, &len);
    int failed = bytes == NULL || len == 0 || blasd_file_replace(to, bytes, len) != 0;
    free(bytes);
    return failed ? -1 : 0;
}

static bool same_small(const char *a, const char *b) {
    size_t lens[2] = {0};
    char *bytes[2] = {blasd_file_read(a, 256, &lens[0]), blasd_file_read(b, 256, &lens[1])};
    bool same = bytes[0] != NULL && bytes[1] != NULL && lens[0] == lens[1] &&
                memcmp(bytes[0], bytes[1], lens[0]) == 0;
    free(bytes[0]);
    free(bytes[1]);
    return same;
}

bool blob_dir_restore(const char *spec, const struct data_dir *dir) {
    char kept[PATH_MAX + 16], token[BLOB_SPEC_MAX + 16];
    const char *path = spec + strlen("dir:");
    snprintf(kept, sizeof kept, "%s/store", dir->path);
    snprintf(token, sizeof token, "%s/" STORE, path);
    if (access(kept, R_OK) != 0) return access(token, F_OK) == 0;
    if (is_ours(path) && same_small(kept, token)) return true;
    if ((mkdir(path, 0700) == 0 || errno == EEXIST) && is_ours(path) &&
        copy_small(kept, token) == 0)
        return true;
    blasd_log(BLASD_LOG_WARN, "cannot make %s again: %s", path,
              errno == EEXIST ? "another user has created it" : strerror(errno));
    return false;
}

ino_t blob_dir_inode(const char *spec) {
    struct stat info;
    return lstat(spec + strlen("dir:"), &info) == 0 ? info.st_ino : 0;
}

void blob_dir_keep_token(const char *spec, const struct data_dir *dir) {
    char token[BLOB_SPEC_MAX + 16], kept[PATH_MAX + 16];
    snprintf(token, sizeof token, "%s/" STORE, spec + strlen("dir:"));
    snprintf(kept, sizeof kept, "%s/store", dir->path);
    copy_small(token, kept);
}

void blob_dir_remove_empty(const char *spec) {
    static const char *const ours[] = {".", "..", STORE};
    const char *path = spec + strlen("dir:");
    char pool[BLOB_SPEC_MAX + 16];
    const struct dirent *entry;
    bool empty = true;
    DIR *dir = opendir(path);
    if (dir == NULL) return;
    snprintf(pool, sizeof pool, "%s/" POOL, path);
    data_dir_remove_tree(pool);
    while ((entry = readdir(dir)) != NULL) {
        bool own = false;
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            if (strcmp(entry->d_name, ours[i]) == 0) own = true;
        if (!own) empty = false;
    }
    if (empty) {
        unlinkat(dirfd(dir), STORE, 0);
        rmdir(path);
    }
    closedir(dir);
}
