/* The pool of files: a folder, whose entries are named SIZE-TIME-RANDOM in hexadecimal.
 *
 * Names are never used twice, so a name that was read means the same file for ever, or none: of two
 * who want it one wins the rename. Knows nothing of jobs. Read next: store.c. */
#include "store/store_pool.h"

#include "base/clock.h"
#include "base/hex.h"
#include "store/store_discard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER ".pool"
#define FILES_MOST 128
#define AGE_MS 60000
#define NAME_LEN 50 /* three numbers of 16 digits */
#define TRIES 4

struct entry {
    uint64_t bytes, ms; /* size, and when it came */
    char name[NAME_LEN + 1];
};

struct listing {
    int count;
    uint64_t bytes;
    struct entry entries[2 * FILES_MOST]; /* givers do not wait for each other */
};

static uint64_t now_ms(void) {
    return (uint64_t)(blasd_clock_ns() / 1000000);
}

static bool too_old(const struct entry *entry, uint64_t now) {
    return now < entry->ms ? entry->ms - now > AGE_MS : now - entry->ms > AGE_MS;
}

void store_pool_open(struct store_pool *pool, int dir_fd, uint64_t limit) {
    *pool = (struct store_pool){.dir_fd = dir_fd, .fd = -1, .limit = limit};
    if (limit < STORE_POOL_LEAST) return;
    if (mkdirat(dir_fd, FOLDER, 0700) != 0 && errno != EEXIST) return;
    pool->fd = openat(dir_fd, FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void store_pool_close(struct store_pool *pool) {
    if (pool->fd >= 0) close(pool->fd);
    pool->fd = -1;
}

/* Sixteen lower-case hexadecimal digits. */
static bool read_number(const char *text, uint64_t *ret) {
    *ret = strtoull(text, NULL, 16);
    return blasd_hex_begins(text, 16);
}

/* A blob that comes and goes reads all names four times, and sscanf would take most of that. */
static bool read_name(const char *name, struct entry *entry) {
    uint64_t tag;
    if (strlen(name) != NAME_LEN || name[16] != '-' || name[33] != '-') return false;
    if (!read_number(name, &entry->bytes) || !read_number(name + 17, &entry->ms) ||
        !read_number(name + 34, &tag))
        return false;
    memcpy(entry->name, name, NAME_LEN + 1);
    return true;
}

static void list(const struct store_pool *pool, struct listing *listing) {
    int fd = openat(pool->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *item;
    listing->count = 0;
    listing->bytes = 0;
    if (dir == NULL) {
        if (fd >= 0) close(fd);
        return;
    }
    while (listing->count < 2 * FILES_MOST && (item = readdir(dir)) != NULL) {
        struct entry *entry = &listing->entries[listing->count];
        if (!read_name(item->d_name, entry)) continue;
        listing->bytes += entry->bytes;
        listing->count++;
    }
    closedir(dir);
}

/* Takes entry number `i` off the list. */
static void forget(struct listing *listing, int i) {
    listing->bytes -= listing->entries[i].bytes;
    listing->entries[i] = listing->entries[--listing->count];
}

static int oldest(const struct listing *listing) {
    int found = -1;
    for (int i = 0; i < listing->count; i++)
        if (found < 0 || listing->entries[i].ms < listing->entries[found].ms) found = i;
    return found;
}

/* The smallest that is large enough without wasting much, else the largest that is not; of equals
 * the one that came last, whose pages are the likelier to lie in a cache. */
static int fitting(const struct listing *listing, uint64_t want) {
    uint64_t most = want + want / 4 + STORE_POOL_LEAST;
    int found = -1;
    for (int i = 0; i < listing->count; i++) {
        const struct entry *it = &listing->entries[i];
        const struct entry *best = found < 0 ? NULL : &listing->entries[found];
        bool better = best == NULL;
        if (it->bytes > most) continue;
        if (best != NULL && it->bytes == best->bytes)
            better = it->ms > best->ms;
        else if (best != NULL && it->bytes >= want)
            better = best->bytes < want || it->bytes < best->bytes;
        else if (best != NULL)
            better = it->bytes > best->bytes;
        if (better) found = i;
    }
    return found;
}

/* Whether the descriptor is of an ordinary file without holes, that has a name, and that no client
 * made: such a one carries the sticky bit (store_shared.c), and may still be written to from there.
 */
static bool is_whole(int fd, struct stat *info) {
    return fstat(fd, info) == 0 && S_ISREG(info->st_mode) && (info->st_mode & S_ISVTX) == 0 &&
           info->st_nlink == 1 && info->st_size > 0 &&
           (uint64_t)info->st_blocks * 512 >= (uint64_t)info->st_size;
}

bool store_pool_lock_maker(int fd, int how) {
    int result;
    do {
        result = flock(fd, how);
    } while (result != 0 && errno == EINTR);
    return result == 0;
}

bool store_pool_lock_byte(int fd, short how, uint64_t at) {
    struct flock lock = {.l_type = how, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

static bool lock_readers(int fd, short how) {
    return store_pool_lock_byte(fd, how, 0);
}

int store_pool_take(const struct store_pool *pool, const char *name, uint64_t want,
                    uint64_t *bytes) {
    struct listing listing;
    struct stat info;
    if (pool->fd < 0 || want < STORE_POOL_LEAST) return -1;
    list(pool, &listing);
    for (int tries = 0; tries < TRIES; tries++) {
        int i = fitting(&listing, want), fd;
        const char *from;
        if (i < 0) return -1;
        from = listing.entries[i].name;
        fd = openat(pool->fd, from, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0 && store_pool_lock_maker(fd, LOCK_EX | LOCK_NB) && is_whole(fd, &info) &&
            renameat2(pool->fd, from, pool->dir_fd, name, RENAME_NOREPLACE) == 0) {
            *bytes = (uint64_t)info.st_size;
            return fd;
        }
        if (fd >= 0) close(fd);
        forget(&listing, i); /* somebody else has it */
    }
    return -1;
}

/* Its pages go, also where some process has it mapped still, and `at_once` before this returns.
 * False where somebody is taking it. */
static bool drop(const struct store_pool *pool, const char *name, bool at_once) {
    int fd = openat(pool->fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    bool gone;
    if (fd < 0) return false;
    gone = store_pool_lock_maker(fd, LOCK_EX | LOCK_NB) && unlinkat(pool->fd, name, 0) == 0;
    if (gone && !at_once) {
        store_discard(fd, true);
        return true;
    }
    gone = gone && ftruncate(fd, 0) == 0;
    close(fd);
    return gone;
}

/* Removes old files, and of the others so many that `bytes` more fit. */
static void make_way(const struct store_pool *pool, uint64_t bytes) {
    uint64_t now = now_ms();
    struct listing listing;
    list(pool, &listing);
    for (int i; (i = oldest(&listing)) >= 0; forget(&listing, i)) {
        if (listing.count < FILES_MOST && listing.bytes <= pool->limit - bytes &&
            !too_old(&listing.entries[i], now))
            break;
        drop(pool, listing.entries[i].name, false);
    }
}

bool store_pool_is_named(int dir_fd, const char *name, const struct stat *info) {
    struct stat named;
    return fstatat(dir_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_ino == info->st_ino && named.st_dev == info->st_dev;
}

bool store_pool_give_locked(const struct store_pool *pool, const char *name, int fd) {
    struct stat info;
    char to[NAME_LEN + 1];
    uint64_t tag;
    if (pool->fd < 0 || !is_whole(fd, &info) || (uint64_t)info.st_size < STORE_POOL_LEAST ||
        (uint64_t)info.st_size > pool->limit || !lock_readers(fd, F_WRLCK))
        return false;
    /* it may have gone, and come again as another one, since it was opened */
    if (!store_pool_is_named(pool->dir_fd, name, &info)) return false;
    if (getrandom(&tag, sizeof tag, 0) != (ssize_t)sizeof tag) return false;
    make_way(pool, (uint64_t)info.st_size);
    snprintf(to, sizeof to, "%016" PRIx64 "-%016" PRIx64 "-%016" PRIx64, (uint64_t)info.st_size,
             now_ms(), tag);
    return renameat2(pool->dir_fd, name, pool->fd, to, RENAME_NOREPLACE) == 0;
}

bool store_pool_give(const struct store_pool *pool, const char *name) {
    bool given;
    int fd;
    if (pool->fd < 0) return false;
    fd = openat(pool->dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT;
    given = store_pool_lock_maker(fd, LOCK_EX | LOCK_NB) && store_pool_give_locked(pool, name, fd);
    close(fd);
    return given;
}

/* Also without a pool of its own: another process may have one. */
bool store_pool_hold(const struct store_pool *pool, const char *name, int fd) {
    struct stat info;
    if (!lock_readers(fd, F_RDLCK) && (errno == EAGAIN || errno == EACCES)) return false;
    return fstat(fd, &info) == 0 && store_pool_is_named(pool->dir_fd, name, &info);
}

void store_pool_let_go(int fd) {
    lock_readers(fd, F_UNLCK);
    flock(fd, LOCK_UN);
}

uint64_t store_pool_bytes(const struct store_pool *pool) {
    struct listing listing;
    if (pool->fd < 0) return 0;
    list(pool, &listing);
    return listing.bytes;
}

bool store_pool_trim(const struct store_pool *pool, bool everything) {
    uint64_t now = now_ms();
    struct listing listing;
    bool removed = false;
    if (pool->fd < 0) return everything && store_discard_wait();
    list(pool, &listing);
    for (int i = 0; i < listing.count; i++)
        if ((everything || too_old(&listing.entries[i], now)) &&
            drop(pool, listing.entries[i].name, everything))
            removed = true;
    if (everything && store_discard_wait()) removed = true;
    return removed;
}
