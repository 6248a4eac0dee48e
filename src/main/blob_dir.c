/* Choosing, marking, clearing away. */
#include "main/blob_dir.h"

#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED "/dev/shm"
#define PREFIX "blasd-"
#define MARK ".data" /* lines: the mount namespace, the data directory's path, its device */
#define STORE ".store"
#define POOL ".pool" /* files that wait for their next use: store/store_pool.h */
#define NAMESPACE_MAX 64
#define MARK_MAX (PATH_MAX + NAMESPACE_MAX + 32)

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

static int read_namespace(char text[NAMESPACE_MAX]) {
    ssize_t len = readlink("/proc/self/ns/mnt", text, NAMESPACE_MAX - 1);
    if (len <= 0) return -1;
    text[len] = '\0';
    return 0;
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

/* The device of a directory, or of the nearest above it that is there; 0: it cannot be told. */
static unsigned long long device_at(const char *path) {
    char at[PATH_MAX];
    struct stat info;
    snprintf(at, sizeof at, "%s", path);
    for (char *slash; stat(at, &info) != 0; *slash = '\0') {
        if (errno != ENOENT && errno != ENOTDIR) return 0;
        slash = strrchr(at, '/');
        if (slash == NULL) return 0;
        if (slash == at) return stat("/", &info) == 0 ? info.st_dev : 0;
    }
    return info.st_dev;
}

int blob_dir_mark(const char *spec, const struct data_dir *dir) {
    char path[BLOB_SPEC_MAX + 16], text[MARK_MAX], space[NAMESPACE_MAX];
    int len, fd;
    if (read_namespace(space) != 0) return -1;
    snprintf(path, sizeof path, "%s/" STORE, spec + strlen("dir:"));
    snprintf(text, sizeof text, "%s/store", dir->path);
    copy_small(path, text);
    snprintf(path, sizeof path, "%s/" MARK, spec + strlen("dir:"));
    len = snprintf(text, sizeof text, "%s\n%s\n%llu\n", space, dir->path, device_at(dir->path));
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return -1;
    if (flock(fd, LOCK_SH | LOCK_NB) != 0 || ftruncate(fd, 0) != 0 ||
        write(fd, text, (size_t)len) != len) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Ends the line that begins at `line`; returns what follows it, or NULL where none does. */
static char *end_line(char *line) {
    char *end = line == NULL ? NULL : strchr(line, '\n');
    if (end != NULL) *end++ = '\0';
    return end;
}

/* Whether the data directory that the mark names is gone, or has become another one. One on a disk
 * that is not mounted for now is not gone: what stands in its place is on another device. */
static bool is_orphan(int mark, const char *instance) {
    char text[MARK_MAX], space[NAMESPACE_MAX], file[PATH_MAX + 16];
    char *path, *device, *found;
    ssize_t len = read(mark, text, sizeof text - 1);
    size_t found_len = 0;
    bool other;
    if (len <= 0 || read_namespace(space) != 0) return false;
    text[len] = '\0';
    path = end_line(text);
    device = end_line(path);
    if (device == NULL || strcmp(text, space) != 0 || path[0] != '/') return false;
    if (strtoull(device, NULL, 10) != device_at(path)) return false;
    snprintf(file, sizeof file, "%s/instance", path);
    found = blasd_file_read(file, 256, &found_len);
    if (found == NULL) return errno == ENOENT || errno == ENOTDIR;
    other = found_len >= INSTANCE_LEN && memcmp(found, instance, INSTANCE_LEN) != 0;
    free(found);
    return other;
}

static void consider(int dir_fd, const char *name) {
    const char *instance = name + strlen(PREFIX);
    struct stat info;
    char path[NAME_MAX + 32];
    int mark;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || strlen(instance) != INSTANCE_LEN) return;
    if (fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != geteuid())
        return;
    snprintf(path, sizeof path, "%s/" MARK, name);
    mark = openat(dir_fd, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (mark < 0) return;
    if (flock(mark, LOCK_EX | LOCK_NB) == 0 && is_orphan(mark, instance)) {
        snprintf(path, sizeof path, SHARED "/%s", name);
        data_dir_remove_tree(path);
        blasd_log(BLASD_LOG_INFO, "removed %s, whose data directory is gone", path);
    }
    close(mark);
}

void blob_dir_remove_stale(void) {
    struct dirent *entry;
    DIR *dir = opendir(SHARED);
    if (dir == NULL) return;
    while ((entry = readdir(dir)) != NULL) consider(dirfd(dir), entry->d_name);
    closedir(dir);
}

void blob_dir_remove_empty(const char *spec) {
    static const char *const ours[] = {".", "..", STORE, MARK};
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
        unlinkat(dirfd(dir), MARK, 0);
        rmdir(path);
    }
    closedir(dir);
}
