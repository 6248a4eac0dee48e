/* Finding, making, locking. Two Redis servers on one append-only file would destroy it: the lock's
 * descriptor is inherited by the private Redis, so that the lock lasts as long as it does. */
#include "main/data_dir.h"

#include "base/file.h"
#include "base/id.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_TIMEOUT_MS 5000

static int default_path(char path[PATH_MAX], struct blasd_err *err) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int len;
    if (geteuid() == 0)
        len = snprintf(path, PATH_MAX, "/var/lib/blasd");
    else if (state != NULL && state[0] == '/')
        len = snprintf(path, PATH_MAX, "%s/blasd", state);
    else if (home != NULL && home[0] == '/')
        len = snprintf(path, PATH_MAX, "%s/.local/state/blasd", home);
    else
        return blasd_fail(err, BLASD_E_invalid_field, "data",
                          "the user has no home directory; give --data DIR");
    if (len >= PATH_MAX)
        return blasd_fail(err, BLASD_E_invalid_field, "data", "the path is too long");
    return 0;
}

/* Makes the directory and those above it that are missing. */
static int make_path(const char *path) {
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *at = part + 1; *at != '\0'; at++) {
        if (*at != '/') continue;
        *at = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) return -1;
        *at = '/';
    }
    return mkdir(part, 0700) != 0 && errno != EEXIST ? -1 : 0;
}

static int take_lock(struct data_dir *dir, struct blasd_err *err) {
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/lock", dir->path);
    dir->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (dir->lock_fd < 0)
        return blasd_fail(err, BLASD_E_internal_error, "data", "cannot open %.180s: %s", path,
                          strerror(errno));
    for (int waited = 0; flock(dir->lock_fd, LOCK_EX | LOCK_NB) != 0; waited += 50) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return blasd_fail(err, BLASD_E_internal_error, "data", "cannot lock %.180s: %s", path,
                              strerror(errno));
        if (waited >= LOCK_TIMEOUT_MS)
            return blasd_fail(err, BLASD_E_internal_error, "data",
                              "another blasd uses %.180s; stop it or give another --data",
                              dir->path);
        if (waited == 500)
            blasd_log(BLASD_LOG_INFO, "waiting for another blasd that still uses %s", dir->path);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return 0;
}

static int read_instance(struct data_dir *dir, const char *path) {
    size_t len = 0;
    char *text = blasd_file_read(path, 256, &len);
    bool good = len >= INSTANCE_LEN && strspn(text, "0123456789abcdef") >= INSTANCE_LEN;
    if (good) memcpy(dir->instance, text, INSTANCE_LEN);
    free(text);
    return good ? 0 : -1;
}

/* The token that names what lies outside the directory: blobs, sockets, workers. */
static int find_instance(struct data_dir *dir, struct blasd_err *err) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/instance", dir->path);
    if (read_instance(dir, path) == 0) return 0;
    blasd_random_hex(dir->instance, INSTANCE_LEN);
    if (blasd_file_replace(path, dir->instance, INSTANCE_LEN) == 0) return 0;
    return blasd_fail(err, BLASD_E_internal_error, "data", "cannot write %.180s: %s", path,
                      strerror(errno));
}

static bool is_known(const char *name) {
    static const char *const known[] = {".", "..", "lost+found"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0) return true;
    return false;
}

/* Finds what another user has put there, such as a link to a place of theirs, or, in a directory
 * that is `open` to others and was never one of ours, a folder: what is closed to others then may
 * be theirs, were it /tmp. Files alone say nothing: keys are put there before the first start. */
static bool has_others(const struct data_dir *dir, bool open, char name[NAME_MAX + 1]) {
    char path[PATH_MAX + 16];
    const struct dirent *entry;
    struct stat info;
    bool found = false, started;
    DIR *list = opendir(dir->path);
    snprintf(path, sizeof path, "%s/instance", dir->path);
    started = lstat(path, &info) == 0 && info.st_uid == geteuid();
    while (list != NULL && !found && (entry = readdir(list)) != NULL) {
        found = !is_known(entry->d_name) &&
                fstatat(dirfd(list), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                ((info.st_uid != geteuid() && !(geteuid() == 0 && S_ISREG(info.st_mode))) ||
                 (open && !started && S_ISDIR(info.st_mode)));
        if (found) snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
    }
    if (list != NULL) closedir(list);
    return found;
}

static int check_owner(const struct data_dir *dir, struct blasd_err *err) {
    char name[NAME_MAX + 1];
    struct stat info;
    if (stat(dir->path, &info) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "data", "cannot look at %.180s: %s",
                          dir->path, strerror(errno));
    if (info.st_uid != geteuid())
        return blasd_fail(err, BLASD_E_internal_error, "data",
                          "%.180s belongs to another user; give another --data", dir->path);
    if (has_others(dir, (info.st_mode & 077) != 0, name))
        return blasd_fail(err, BLASD_E_internal_error, "data",
                          "%.100s is or was open to other users, and has %.60s in it: remove that, "
                          "close the directory (chmod 700), or give one of its own",
                          dir->path, name);
    if ((info.st_mode & 077) != 0 && chmod(dir->path, 0700) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "data",
                          "%.180s is open to other users and cannot be closed to them: %s",
                          dir->path, strerror(errno));
    return 0;
}

int data_dir_open(struct data_dir *dir, const char *path, struct blasd_err *err) {
    char found[PATH_MAX];
    int code = 0;
    *dir = (struct data_dir){.lock_fd = -1};
    if (path == NULL) {
        code = default_path(found, err);
        if (code != 0) return code;
        path = found;
    }
    if (make_path(path) != 0 || realpath(path, dir->path) == NULL)
        return blasd_fail(err, BLASD_E_internal_error, "data", "cannot make %.180s: %s", path,
                          strerror(errno));
    code = check_owner(dir, err);
    if (code == 0) code = take_lock(dir, err);
    if (code == 0) code = find_instance(dir, err);
    if (code != 0) data_dir_close(dir);
    return code;
}

int data_dir_open_temporary(struct data_dir *dir, struct blasd_err *err) {
    const char *above = getenv("TMPDIR");
    char path[PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/blasd-XXXXXX",
                       above == NULL || above[0] == '\0' ? "/tmp" : above);
    int code;
    *dir = (struct data_dir){.lock_fd = -1};
    if (len >= (int)sizeof path || mkdtemp(path) == NULL)
        return blasd_fail(err, BLASD_E_internal_error, "data", "cannot make %.180s: %s", path,
                          strerror(errno));
    code = data_dir_open(dir, path, err);
    if (code != 0) data_dir_remove_tree(path);
    return code;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    remove(path);
    return 0;
}

void data_dir_remove_tree(const char *path) {
    nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

void data_dir_close(struct data_dir *dir) {
    if (dir->lock_fd >= 0) close(dir->lock_fd);
    dir->lock_fd = -1;
}
