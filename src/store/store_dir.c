/* A directory of blobs. A file in it is locked (flock) by whoever writes it, until Redis refers to
 * it; the sweep removes what it can lock and nothing refers to, and holds the lock while it asks
 * and removes, so that a file can never be referred to in between. Read next: store.c. */
#include "store/store_dir.h"

#include "base/file.h"
#include "base/hex.h"
#include "core/slice.h"
#include "store/store_shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TOKEN_FILE ".store"
#define SWEEP_GROUP 256
/* A file is empty and unlocked for the microseconds between its making and its locking. A sweep
 * leaves empty files alone for this long, so that the maker need not wait for it. */
#define NEW_FILE_S 10

bool blasd_blob_name_valid(const char *name) {
    char id[BLASD_ID_LEN + 1];
    if (blasd_hex_begins(name, BLASD_SEGMENT_NAME))
        return strcmp(name + BLASD_SEGMENT_NAME, ".seg") == 0;
    if (strnlen(name, BLASD_BLOB_NAME) <= BLASD_ID_LEN) return false;
    memcpy(id, name, BLASD_ID_LEN);
    id[BLASD_ID_LEN] = '\0';
    if (!blasd_id_valid(id) && !blasd_id_tensor_valid(id)) return false;
    return strcmp(name + BLASD_ID_LEN, ".in") == 0 || strcmp(name + BLASD_ID_LEN, ".out") == 0;
}

static int open_dir(const char *path, struct blasd_err *err) {
    struct stat info;
    int fd;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "the blob directory %s could not be made: %s", path, strerror(errno));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "the blob directory %s could not be opened: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0) {
        blasd_fail(err, BLASD_E_internal_error, "", "the blob directory %s: %s", path,
                   strerror(errno));
        goto fail;
    }
    if (info.st_uid != geteuid()) {
        blasd_fail(err, BLASD_E_internal_error, "",
                   "the blob directory %s belongs to user %u, and this process runs as user %u; "
                   "give it to that user or name another directory",
                   path, (unsigned)info.st_uid, (unsigned)geteuid());
        goto fail;
    }
    if ((info.st_mode & 077) != 0) {
        blasd_fail(err, BLASD_E_internal_error, "",
                   "the blob directory %s has mode %03o, so that others could use it; "
                   "chmod 700 it or name another directory",
                   path, (unsigned)(info.st_mode & 0777));
        goto fail;
    }
    return fd;
fail:
    close(fd);
    return -BLASD_E_internal_error;
}

/* Makes the token under a name of its own, then links it into place: of several processes that come
 * first at one time, one wins and all read the same complete token. */
static int make_token(int dir_fd) {
    char token[BLASD_STORE_TOKEN + 1], line[BLASD_STORE_TOKEN + 2], temporary[64];
    int fd, failed, why;
    blasd_random_hex(token, BLASD_STORE_TOKEN);
    snprintf(line, sizeof line, "%s\n", token);
    blasd_random_hex(token, BLASD_STORE_TOKEN / 2);
    snprintf(temporary, sizeof temporary, TOKEN_FILE ".%s", token);
    fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    failed = blasd_write_all(fd, line, strlen(line));
    if (fsync(fd) != 0) failed = -1;
    close(fd);
    if (failed == 0 && linkat(dir_fd, temporary, dir_fd, TOKEN_FILE, 0) != 0 && errno != EEXIST)
        failed = -1;
    why = errno;
    unlinkat(dir_fd, temporary, 0);
    errno = why;
    return failed;
}

/* 0, or -1 where there is no such file; any other trouble leaves *token empty. */
static int read_token(int dir_fd, char token[BLASD_STORE_TOKEN + 1]) {
    char line[BLASD_STORE_TOKEN + 2];
    ssize_t n;
    int fd = openat(dir_fd, TOKEN_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    token[0] = '\0';
    if (fd < 0) return errno == ENOENT ? -1 : 0;
    n = read(fd, line, sizeof line);
    close(fd);
    if (n != BLASD_STORE_TOKEN + 1 || line[BLASD_STORE_TOKEN] != '\n') return 0;
    line[BLASD_STORE_TOKEN] = '\0';
    if (!blasd_hex_begins(line, BLASD_STORE_TOKEN)) return 0;
    memcpy(token, line, BLASD_STORE_TOKEN + 1);
    return 0;
}

int blasd_store_dir_open(const char *path, int *fd, char token[BLASD_STORE_TOKEN + 1],
                         struct blasd_err *err) {
    int dir_fd = open_dir(path, err);
    if (dir_fd < 0) return dir_fd;
    if (read_token(dir_fd, token) != 0 &&
        (make_token(dir_fd) != 0 || read_token(dir_fd, token) != 0)) {
        blasd_fail(err, BLASD_E_internal_error, "",
                   "the file " TOKEN_FILE " could not be made in the blob directory %s: %s", path,
                   strerror(errno));
        goto fail;
    }
    if (token[0] == '\0') {
        blasd_fail(err, BLASD_E_internal_error, "",
                   "the file " TOKEN_FILE " in the blob directory %s holds no token; "
                   "remove it while nothing uses the directory",
                   path);
        goto fail;
    }
    *fd = dir_fd;
    return 0;
fail:
    close(dir_fd);
    return -BLASD_E_internal_error;
}

int blasd_store_dir_create(int dir_fd, const char *name, struct blasd_err *err) {
    struct stat info;
    for (int attempt = 0; attempt < 8; attempt++) {
        int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) {
            if (errno == ENOSPC || errno == EDQUOT)
                return blasd_fail(err, BLASD_E_no_space, "", "the blob store is full");
            return blasd_fail(err, BLASD_E_internal_error, "", "a blob could not be made: %s",
                              strerror(errno));
        }
        if (!store_pool_lock_maker(fd, LOCK_EX) || fstat(fd, &info) != 0) {
            int reason = errno;
            unlinkat(dir_fd, name, 0);
            close(fd);
            return blasd_fail(err, BLASD_E_internal_error, "", "a blob could not be locked: %s",
                              strerror(reason));
        }
        if (info.st_nlink > 0) return fd;
        close(fd); /* a sweep was faster than our lock */
    }
    return blasd_fail(err, BLASD_E_internal_error, "", "a blob was removed while it was made");
}

struct group {
    int count;
    int fds[SWEEP_GROUP];
    char names[SWEEP_GROUP][BLASD_BLOB_NAME];
};

/* Locks the file against those who use it. One that a client handed in may be held by that client
 * for long, and have many names, whose users are not in each other's way: of those it is the lock
 * of this name. */
static bool lock_unused(int fd, const char *name, const struct stat *info) {
    if ((info->st_mode & S_ISVTX) == 0) return store_pool_lock_maker(fd, LOCK_EX | LOCK_NB);
    return store_shared_lock_name(fd, name, F_WRLCK);
}

/* Locks the file and adds it to the group, unless somebody holds it or it has just been made. */
static void group_add(struct group *group, int dir_fd, const char *name) {
    struct stat info;
    int fd = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) goto skip;
    if (info.st_size == 0) {
        time_t age = time(NULL) - info.st_ctime;
        if (age >= 0 && age < NEW_FILE_S) goto skip;
    }
    if (!lock_unused(fd, name, &info)) goto skip;
    if (fstat(fd, &info) != 0 || info.st_nlink == 0) goto skip;
    group->fds[group->count] = fd;
    memcpy(group->names[group->count++], name, strlen(name) + 1); /* a valid name: it fits */
    return;
skip:
    close(fd);
}

/* Removes what is not referred to and lets the locks go. Returns the number removed, or negative.
 */
static int group_end(struct group *group, const struct store_pool *pool,
                     int (*referenced)(void *arg, const char (*names)[BLASD_BLOB_NAME], int count,
                                       bool *keep),
                     void *arg) {
    bool keep[SWEEP_GROUP] = {false};
    int removed = 0;
    int result = group->count == 0 ? 0
                                   : referenced(arg, (const char(*)[BLASD_BLOB_NAME])group->names,
                                                group->count, keep);
    for (int i = 0; i < group->count; i++) {
        if (result >= 0 && !keep[i] &&
            (store_pool_give_locked(pool, group->names[i], group->fds[i]) ||
             unlinkat(pool->dir_fd, group->names[i], 0) == 0))
            removed++;
    }
    for (int i = 0; i < group->count; i++) close(group->fds[i]);
    group->count = 0;
    return result < 0 ? result : removed;
}

int blasd_store_dir_sweep(const struct store_pool *pool,
                          int (*referenced)(void *arg, const char (*names)[BLASD_BLOB_NAME],
                                            int count, bool *keep),
                          void *arg, struct blasd_err *err) {
    struct group group = {.count = 0};
    int removed = 0, result = 0;
    struct dirent *entry;
    DIR *dir;
    int fd = openat(pool->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (dir = fdopendir(fd)) == NULL) {
        if (fd >= 0) close(fd);
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "the blob directory could not be listed: %s", strerror(errno));
    }
    while (result >= 0 && (entry = readdir(dir)) != NULL) {
        if (store_shared_name_valid(entry->d_name) &&
            store_shared_sweep(pool->dir_fd, entry->d_name))
            removed++;
        if (!blasd_blob_name_valid(entry->d_name)) continue;
        group_add(&group, pool->dir_fd, entry->d_name);
        if (group.count < SWEEP_GROUP) continue;
        result = group_end(&group, pool, referenced, arg);
        if (result > 0) removed += result;
    }
    if (result >= 0) {
        result = group_end(&group, pool, referenced, arg);
        if (result > 0) removed += result;
    }
    closedir(dir);
    if (result >= 0) return removed;
    return blasd_fail(err, (enum blasd_code) - result, "",
                      "the sweep of the blob directory stopped: it is not known which blobs are "
                      "still needed");
}
