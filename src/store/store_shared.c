/* Taking clients' files in, and sweeping those that were left.
 *
 * Who may write into the directory is this user, or root, so the checks are against mistakes: they
 * keep a wrong file from being taken, and what a client does to its file later from harming others.
 * Read next: store.c. */
#include "store/store_shared.h"

#include "base/hex.h"

#include "store/store_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX ".put"
#define FIELD "Body-File"
#define NEW_FILE_S 10 /* an empty file is left alone so long: its client is about to lock it */

bool store_shared_name_valid(const char *name) {
    return blasd_hex_begins(name, STORE_SHARED_NAME) &&
           strcmp(name + STORE_SHARED_NAME, SUFFIX) == 0;
}

static int refuse_missing(int reason, const char *given, struct blasd_err *err) {
    if (reason == ENOENT)
        return blasd_fail(err, BLASD_E_body_file_refused, FIELD,
                          "there is no file %s" SUFFIX " in the directory that GET /share names",
                          given);
    if (reason == ENOSPC || reason == EDQUOT || reason == EMLINK)
        return blasd_fail(err, BLASD_E_no_space, "", "the file cannot be taken now: %s",
                          strerror(reason));
    return blasd_fail(err, BLASD_E_body_file_refused, FIELD, "the file cannot be taken: %s",
                      strerror(reason));
}

static int open_plain(int dir_fd, const char *file, const char *given, struct blasd_err *err) {
    int fd = openat(dir_fd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) return fd;
    if (errno == ENOENT) return refuse_missing(errno, given, err);
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
        return blasd_fail(err, BLASD_E_no_space, "", "the file cannot be opened now: %s",
                          strerror(errno));
    return blasd_fail(err, BLASD_E_body_file_refused, FIELD, "the file cannot be opened: %s",
                      errno == ELOOP ? "it is a symbolic link" : strerror(errno));
}

static int refuse_locked(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_body_file_refused, FIELD,
                      "somebody has locked it for himself alone; its writer holds a shared lock "
                      "(flock, LOCK_SH) until the answer comes");
}

/* Two names may share a byte: then one is swept later, or handed in again. */
bool store_shared_lock_name(int fd, const char *name, short how) {
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *name != '\0'; name++) hash = (hash ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return store_pool_lock_byte(fd, how, 1 + (hash >> 2)); /* not byte 0, the readers' */
}

/* Whether the file is one to be taken; locks it. */
static int check(int fd, bool whole, struct stat *info, struct blasd_err *err) {
    uint64_t bytes;
    if (fstat(fd, info) != 0 || !S_ISREG(info->st_mode))
        return blasd_fail(err, BLASD_E_body_file_refused, FIELD, "it is not an ordinary file");
    if (info->st_uid != geteuid())
        return blasd_fail(err, BLASD_E_body_file_refused, FIELD,
                          "the file belongs to user %u, and the service runs as user %u",
                          (unsigned)info->st_uid, (unsigned)geteuid());
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) return refuse_locked(err);
    bytes = (uint64_t)info->st_size;
    /* a page that is missing is made when it is first read, and kills who reads where none is left
     */
    if (whole && (uint64_t)info->st_blocks * 512 < bytes)
        return blasd_fail(err, BLASD_E_body_file_refused, FIELD,
                          "the file has holes: %" PRIu64 " of %" PRIu64
                          " bytes are there; allocate it with posix_fallocate",
                          (uint64_t)info->st_blocks * 512, bytes);
    if ((info->st_mode & S_ISVTX) == 0 && fchmod(fd, S_ISVTX | S_IRUSR | S_IWUSR) != 0)
        return blasd_fail(err, BLASD_E_body_file_refused, FIELD, "its mode cannot be changed: %s",
                          strerror(errno));
    return 0;
}

/* Gives `file`, which is open as `fd`, the name `name` as well. */
static int add_name(int dir_fd, const char *file, const char *given, const char *name, int fd,
                    const struct stat *info, struct blasd_err *err) {
    if (!store_shared_lock_name(fd, name, F_RDLCK))
        return blasd_fail(err, BLASD_E_body_file_refused, FIELD, "the file cannot be locked: %s",
                          strerror(errno));
    if (linkat(dir_fd, file, dir_fd, name, 0) != 0) return refuse_missing(errno, given, err);
    if (store_pool_is_named(dir_fd, name, info)) return 0;
    /* where nobody held it, a sweep may have been faster than our locks */
    unlinkat(dir_fd, name, 0);
    return refuse_locked(err);
}

int store_shared_open(int dir_fd, const char *given, const char *name, bool whole, uint64_t *bytes,
                      struct blasd_err *err) {
    char file[STORE_SHARED_NAME + sizeof SUFFIX] = "";
    struct stat info;
    int fd, rc;
    if (strlen(given) == STORE_SHARED_NAME) snprintf(file, sizeof file, "%s" SUFFIX, given);
    if (!store_shared_name_valid(file))
        return blasd_fail(err, BLASD_E_malformed_query, FIELD,
                          "the header is the file's name without " SUFFIX
                          ": %d digits of 0-9 and a-f",
                          STORE_SHARED_NAME);
    fd = rc = open_plain(dir_fd, file, given, err);
    if (fd >= 0) rc = check(fd, whole, &info, err);
    if (rc >= 0) rc = add_name(dir_fd, file, given, name, fd, &info, err);
    if (rc >= 0) {
        *bytes = (uint64_t)info.st_size;
        return fd;
    }
    if (fd >= 0) close(fd);
    return rc;
}

bool store_shared_sweep(int dir_fd, const char *name) {
    struct stat info;
    bool removed = false;
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ELOOP) return unlinkat(dir_fd, name, 0) == 0; /* a symbolic link */
    if (fd < 0) return false;
    if (fstat(fd, &info) == 0) {
        time_t age = time(NULL) - info.st_ctime;
        bool is_new = info.st_size == 0 && age >= 0 && age < NEW_FILE_S;
        removed = !is_new && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                  store_pool_is_named(dir_fd, name, &info) && unlinkat(dir_fd, name, 0) == 0;
    }
    close(fd);
    return removed;
}
