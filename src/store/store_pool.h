/* Files of removed blobs, kept for a few seconds for the next blob of a fitting size.
 *
 * On tmpfs a fresh page costs more than the bytes that are copied into it, and giving it back costs
 * again. So a large blob that is removed goes, by one rename, into the folder `.pool` of the blob
 * directory, and a new one comes, by one rename, out of it. The name tells size and age, so looking
 * through the pool asks for no file's status. Whatever process dies at whatever moment, each file
 * is either a blob, which the sweep judges, or in the pool, which is bounded in bytes, files and
 * age.
 *
 * A file is only kept where nobody else can reach its bytes any more: its maker's lock (flock) and
 * the readers' lock (fcntl, on byte 0, of the open file) must both be free, else it is unlinked and
 * whoever maps it keeps what he has. The bytes of the last job stay in the file: whoever takes it
 * writes every byte that may be read.
 *
 * Internal to store.c and store_dir.c. */
#ifndef BLASD_STORE_POOL_H
#define BLASD_STORE_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define STORE_POOL_LEAST (UINT64_C(256) << 10) /* smaller files are not worth it */

struct store_pool {
    int dir_fd;     /* of the blob directory; borrowed */
    int fd;         /* of the pool's folder; -1: there is none, and everything is unlinked */
    uint64_t limit; /* bytes */
};

/* Opens (making it where it is missing) the folder of the pool. Without one, on any trouble, there
 * is just no pool. */
void store_pool_open(struct store_pool *pool, int dir_fd, uint64_t limit);
void store_pool_close(struct store_pool *pool);

/* Makes one of the pool's files the blob `name`, locked as a new one is. Returns a descriptor and
 * the bytes that are allocated, about `want` or fewer, or -1 where none fits. */
int store_pool_take(const struct store_pool *pool, const char *name, uint64_t want,
                    uint64_t *bytes);
/* Moves the blob `name` into the pool. False where it must be unlinked instead. */
bool store_pool_give(const struct store_pool *pool, const char *name);
/* The same, for one that the caller has opened for writing and locked. */
bool store_pool_give_locked(const struct store_pool *pool, const char *name, int fd);
/* Whether `name` is (still) the file of which `info` tells. */
bool store_pool_is_named(int dir_fd, const char *name, const struct stat *info);
/* The lock of who writes a blob, as of flock. */
bool store_pool_lock_maker(int fd, int how);
/* A lock on byte `at`, F_RDLCK or F_WRLCK, that does not wait. It is of the open file, not of the
 * process: it counts between threads, and ends with the descriptor. Byte 0 is the readers': of who
 * reads a blob, and of who takes it away. */
bool store_pool_lock_byte(int fd, short how, uint64_t at);
/* Locks `fd`, just opened as the blob `name`, against going into the pool while it is open. False
 * where it has gone there already. */
bool store_pool_hold(const struct store_pool *pool, const char *name, int fd);

/* Lets go of all locks of `fd`. Closing it does not do that while the file is mapped through it. */
void store_pool_let_go(int fd);

uint64_t store_pool_bytes(const struct store_pool *pool);
/* Removes what has lain there too long, or everything. Returns whether anything was removed. */
bool store_pool_trim(const struct store_pool *pool, bool everything);

#endif
