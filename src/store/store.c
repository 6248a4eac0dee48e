/* The blob store: blobs as files of one directory, or as memfds on their way to and from Redis.
 *
 * Knows nothing of Redis. A store does not change once it is open, so threads may share it; a blob
 * belongs to one thread at a time. Read next: store_dir.c, and front_blob.c for the kind redis. */
#include "store/store.h"

#include "base/memory_limit.h"
#include "base/text.h"
#include "core/wanted.h"
#include "store/store_dir.h"
#include "store/store_discard.h"
#include "store/store_maps.h"
#include "store/store_pool.h"
#include "store/store_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CUT_ONCE (S_IRUSR | S_IWUSR | S_IXUSR) /* the mode of a file that was cut */

struct blasd_store {
    enum blasd_store_kind kind;
    int dir_fd;  /* owned; -1 for the kind redis */
    char *path;  /* of the directory; owned; NULL for the kind redis */
    bool memory; /* the bytes lie in memory: the kind redis, or tmpfs */
    struct store_pool pool;
    char identity[sizeof "dir:" + BLASD_STORE_TOKEN];
    struct store_maps maps;
};

int blasd_store_open(const char *spec, struct blasd_store **ret, struct blasd_err *err) {
    char token[BLASD_STORE_TOKEN + 1] = "";
    struct blasd_store *store;
    struct statfs kind;
    int result;
    bool dir = strncmp(spec, "dir:", 4) == 0;
    *ret = NULL;
    if (!dir && strcmp(spec, "redis") != 0)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "\"%s\" names no blob store; give dir:/path or redis", spec);
    if (dir && spec[4] != '/')
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "the blob directory \"%s\" is not an absolute path", spec + 4);
    store = calloc(1, sizeof *store);
    if (store == NULL) return blasd_fail(err, BLASD_E_internal_error, "", "out of memory");
    store->kind = dir ? BLASD_STORE_DIR : BLASD_STORE_REDIS;
    store->dir_fd = -1;
    if (dir) {
        store->path = strdup(spec + 4);
        result = store->path == NULL ? blasd_fail(err, BLASD_E_internal_error, "", "out of memory")
                                     : blasd_store_dir_open(spec + 4, &store->dir_fd, token, err);
        if (result < 0) {
            free(store->path);
            free(store);
            return result;
        }
    }
    blasd_text_join(store->identity, sizeof store->identity, dir ? "dir:" : "redis", token, NULL);
    store->memory = !dir || (fstatfs(store->dir_fd, &kind) == 0 && kind.f_type == TMPFS_MAGIC);
    store_pool_open(&store->pool, store->dir_fd, 0);
    store_maps_init(&store->maps, 0);
    *ret = store;
    return 0;
}

void blasd_store_free(struct blasd_store *store) {
    if (store == NULL) return;
    store_pool_trim(&store->pool, true); /* nobody may be left to do it later */
    store_pool_close(&store->pool);
    store_maps_release(&store->maps);
    if (store->dir_fd >= 0) close(store->dir_fd);
    free(store->path);
    free(store);
}

enum blasd_store_kind blasd_store_kind(const struct blasd_store *store) {
    return store->kind;
}

const char *blasd_store_identity(const struct blasd_store *store) {
    return store->identity;
}

const char *blasd_store_path(const struct blasd_store *store) {
    return store->path;
}

static void free_space(const struct blasd_store *store, uint64_t *free_bytes, uint64_t *all_bytes) {
    struct blasd_memory memory;
    struct statvfs space;
    *free_bytes = *all_bytes = UINT64_MAX;
    if (store->kind == BLASD_STORE_DIR) {
        if (fstatvfs(store->dir_fd, &space) != 0) {
            *free_bytes = *all_bytes = 0;
        } else if (space.f_blocks != 0) { /* a tmpfs without a size of its own says 0 */
            *free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
            *all_bytes = (uint64_t)space.f_blocks * space.f_frsize;
        }
    }
    if (!store->memory) return;
    /* a tmpfs may promise more than the machine has left, and the machine more than a container may
     * have of it */
    memory = blasd_memory_here();
    if (memory.left < *free_bytes) *free_bytes = memory.left;
    if (memory.all < *all_bytes) *all_bytes = memory.all;
}

void blasd_store_space(const struct blasd_store *store, uint64_t *free_bytes, uint64_t *all_bytes) {
    uint64_t kept = store_pool_bytes(&store->pool);
    free_space(store, free_bytes, all_bytes);
    *free_bytes = kept < *all_bytes - *free_bytes ? *free_bytes + kept : *all_bytes;
}

void blasd_store_recycle(struct blasd_store *store, uint64_t bytes) {
    uint64_t free_bytes, all_bytes;
    if (store->kind != BLASD_STORE_DIR || !store->memory) return;
    free_space(store, &free_bytes, &all_bytes);
    store_pool_close(&store->pool);
    store_pool_open(&store->pool, store->dir_fd, bytes != 0 ? bytes : all_bytes / 16);
    store->maps.limit = store->pool.fd >= 0 ? store->pool.limit : 0;
}

void blasd_store_trim(struct blasd_store *store) {
    store_maps_trim(&store->maps, false);
    store_pool_trim(&store->pool, false);
}

void blasd_store_watch(struct blasd_store *store, const struct blasd_store_watch *watch) {
    store->maps.watch = watch != NULL ? *watch : (struct blasd_store_watch){.arg = NULL};
}

static int blob_start(struct blasd_store *store, const char *name, struct blasd_blob *blob,
                      struct blasd_err *err) {
    memset(blob, 0, sizeof *blob);
    blob->fd = -1;
    if (!blasd_blob_name_valid(name))
        return blasd_fail(err, BLASD_E_internal_error, "", "\"%.64s\" is not the name of a blob",
                          name);
    snprintf(blob->name, sizeof blob->name, "%s", name);
    blob->store = store;
    return 0;
}

int blasd_blob_create(struct blasd_store *store, const char *name, struct blasd_blob *blob,
                      struct blasd_err *err) {
    return blasd_blob_obtain(store, name, 0, blob, err);
}

int blasd_blob_obtain(struct blasd_store *store, const char *name, uint64_t want,
                      struct blasd_blob *blob, struct blasd_err *err) {
    int fd, result = blob_start(store, name, blob, err);
    if (result < 0) return result;
    fd = store_pool_take(&store->pool, name, want, &blob->bytes);
    blob->recycled = fd >= 0;
    if (fd < 0 && store->kind == BLASD_STORE_DIR)
        fd = blasd_store_dir_create(store->dir_fd, name, err);
    else if (fd < 0 && (fd = memfd_create(name, MFD_CLOEXEC)) < 0)
        fd = blasd_fail(err, BLASD_E_no_space, "", "memory for a blob could not be had: %s",
                        strerror(errno));
    if (fd < 0) {
        blob->store = NULL;
        return fd;
    }
    blob->fd = fd;
    blob->writable = true;
    return 0;
}

/* Meanwhile nobody else can so much as unlink the file, and whoever tries stands still; also, the
 * job may be cancelled. So it is done in steps of some milliseconds. */
#define GROW_STEP (UINT64_C(8) << 20)

static int allocate(const struct blasd_blob *blob, uint64_t from, uint64_t bytes) {
    int reason;
    do {
        reason = posix_fallocate(blob->fd, (off_t)from, (off_t)bytes);
    } while (reason == EINTR || (reason == ENOSPC && store_pool_trim(&blob->store->pool, true)));
    return reason;
}

/* What cannot come to its end is not begun: others would find the store full meanwhile. */
static bool has_room(const struct blasd_store *store, uint64_t bytes) {
    struct statvfs space;
    if (store->kind != BLASD_STORE_DIR || fstatvfs(store->dir_fd, &space) != 0 ||
        space.f_blocks == 0)
        return true;
    return bytes <= (uint64_t)space.f_bavail * space.f_frsize + store_pool_bytes(&store->pool) ||
           store_discard_wait();
}

int blasd_blob_grow(struct blasd_blob *blob, uint64_t bytes, struct blasd_err *err) {
    if (blob->store == NULL || blob->data != NULL)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "a blob that is closed or mapped cannot grow");
    if (bytes <= blob->bytes) return 0;
    if (bytes > (uint64_t)INT64_MAX)
        return blasd_fail(err, BLASD_E_no_space, "", "no blob store holds %" PRIu64 " bytes",
                          bytes);
    if (bytes - blob->bytes > GROW_STEP && !has_room(blob->store, bytes - blob->bytes))
        return blasd_fail(err, BLASD_E_no_space, "",
                          "the blob store has no room for %" PRIu64 " bytes more",
                          bytes - blob->bytes);
    while (blob->bytes < bytes) {
        uint64_t left = bytes - blob->bytes, step = left < GROW_STEP ? left : GROW_STEP;
        int reason = allocate(blob, blob->bytes, step);
        if (reason != 0)
            return blasd_fail(err, BLASD_E_no_space, "",
                              "the blob store has no room for %" PRIu64 " bytes more: %s", left,
                              strerror(reason));
        blob->bytes += step;
        if (!blasd_wanted())
            return blasd_fail(err, BLASD_E_cancelled, "", "stopped while room was made for it");
    }
    return 0;
}

int blasd_blob_fit(struct blasd_blob *blob, uint64_t bytes, struct blasd_err *err) {
    uint64_t spare = bytes / 8 + STORE_POOL_LEAST / 4; /* not worth the call */
    if (blob->store == NULL || blob->bytes < bytes) return blasd_blob_grow(blob, bytes, err);
    if (blob->data != NULL || blob->bytes - bytes <= spare) return 0;
    /* who has it mapped is not to take its pages for those that it had: see will_stay */
    if (fchmod(blob->fd, CUT_ONCE) != 0 || ftruncate(blob->fd, (off_t)bytes) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "a blob could not be cut: %s",
                          strerror(errno));
    blob->bytes = bytes;
    return 0;
}

int blasd_blob_write(struct blasd_blob *blob, uint64_t offset, const void *bytes, size_t len,
                     struct blasd_err *err) {
    const char *from = bytes;
    if (blob->store == NULL || offset > blob->bytes || len > blob->bytes - offset)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "a write of %zu bytes at %" PRIu64 " leaves a blob of %" PRIu64 " bytes",
                          len, offset, blob->bytes);
    while (len > 0) {
        ssize_t n = pwrite(blob->fd, from, len, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != ENOSPC && errno != EDQUOT)
            return blasd_fail(err, BLASD_E_internal_error, "", "a blob could not be written: %s",
                              strerror(errno));
        if (n <= 0) return blasd_fail(err, BLASD_E_no_space, "", "the blob store is full");
        from += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

/* Whether a mapping of the file shows the pages that it shows now for as long as it is there. A
 * client may cut the file that it handed in; one of ours that was cut and then grew has other pages
 * there. */
static bool will_stay(const struct blasd_store *store, const struct stat *info) {
    return store->maps.limit > 0 && (uint64_t)info->st_size >= STORE_POOL_LEAST &&
           (info->st_mode & (S_ISVTX | CUT_ONCE)) == (S_IRUSR | S_IWUSR);
}

int blasd_blob_map(struct blasd_blob *blob, struct blasd_err *err) {
    struct stat info = {.st_ino = 0};
    struct store_map map;
    bool stays;
    if (blob->store == NULL)
        return blasd_fail(err, BLASD_E_internal_error, "", "a closed blob cannot be mapped");
    if (blob->data != NULL || blob->bytes == 0) return 0;
    stays = fstat(blob->fd, &info) == 0 && will_stay(blob->store, &info);
    blob->inode = info.st_ino;
    map = store_maps_take(&blob->store->maps, blob->inode, blob->writable, blob->bytes);
    if (map.data == NULL) {
        map = (struct store_map){
            .bytes = blob->bytes, .inode = blob->inode, .writable = blob->writable};
        /* the pages of a recycled file are there: to enter them all at once beats a fault for each
         */
        map.data = mmap(NULL, (size_t)blob->bytes, PROT_READ | (blob->writable ? PROT_WRITE : 0),
                        MAP_SHARED | (blob->recycled ? MAP_POPULATE : 0), blob->fd, 0);
    }
    if (map.data == MAP_FAILED)
        return blasd_fail(err, BLASD_E_no_space, "",
                          "a blob of %" PRIu64 " bytes could not be mapped: %s", blob->bytes,
                          strerror(errno));
    store_maps_tell(&blob->store->maps, &map, stays);
    blob->data = map.data;
    blob->mapped = map.bytes;
    blob->told = map.told;
    return 0;
}

void blasd_blob_unmap(struct blasd_blob *blob) {
    struct store_map map = {.data = blob->data,
                            .bytes = blob->mapped,
                            .inode = blob->inode,
                            .writable = blob->writable,
                            .told = blob->told};
    if (blob->data == NULL) return;
    if (blob->store->maps.limit > 0 && blob->mapped >= STORE_POOL_LEAST && !blob->cut)
        store_maps_keep(&blob->store->maps, map);
    else
        store_maps_unmap(&blob->store->maps, &map);
    blob->data = NULL;
}

int blasd_blob_open(struct blasd_store *store, const char *name, uint64_t bytes,
                    struct blasd_blob *blob, struct blasd_err *err) {
    struct stat info;
    int result = blob_start(store, name, blob, err);
    if (result < 0) return result;
    errno = ENOENT;
    if (store->kind == BLASD_STORE_DIR)
        blob->fd = openat(store->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (blob->fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        result = blasd_fail(err, BLASD_E_no_space, "", "a blob could not be opened: %s",
                            strerror(errno));
    } else if (blob->fd < 0 || fstat(blob->fd, &info) != 0 || !S_ISREG(info.st_mode) ||
               !store_pool_hold(&store->pool, name, blob->fd)) {
        result = blasd_fail(err, BLASD_E_inputs_lost, "", "the tensors are not in the blob store");
    } else if ((uint64_t)info.st_size < bytes) {
        result = blasd_fail(err, BLASD_E_inputs_lost, "",
                            "the blob store holds %" PRIu64 " of the %" PRIu64 " bytes",
                            (uint64_t)info.st_size, bytes);
    }
    if (result < 0) {
        blasd_blob_close(blob);
        return result;
    }
    blob->bytes = bytes; /* the file may be longer */
    return 0;
}

int blasd_blob_adopt(struct blasd_store *store, const char *given, const char *name,
                     struct blasd_blob *blob, struct blasd_err *err) {
    int result = blob_start(store, name, blob, err);
    if (result == 0)
        blob->fd = result =
            store_shared_open(store->dir_fd, given, name, store->memory, &blob->bytes, err);
    if (result >= 0) return 0;
    *blob = (struct blasd_blob){.fd = -1};
    return result;
}

int blasd_blob_read(const struct blasd_blob *blob, uint64_t offset, void *bytes, size_t len,
                    struct blasd_err *err) {
    char *to = bytes;
    while (len > 0) {
        ssize_t n = pread(blob->fd, to, len, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return blasd_fail(err, BLASD_E_internal_error, "", "a file could not be read: %s",
                              strerror(errno));
        if (n == 0)
            return blasd_fail(err, BLASD_E_body_file_refused, "Body-File",
                              "the file was cut while it was read: it ends at byte %" PRIu64,
                              offset);
        to += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

bool blasd_blob_is_named(const struct blasd_blob *blob) {
    struct stat info;
    if (blob->store == NULL || blob->store->kind != BLASD_STORE_DIR) return blob->store != NULL;
    return fstat(blob->fd, &info) == 0 &&
           store_pool_is_named(blob->store->dir_fd, blob->name, &info);
}

void blasd_blob_close(struct blasd_blob *blob) {
    if (blob->store == NULL) return; /* zeroed, or closed before */
    blasd_blob_unmap(blob);
    if (blob->fd >= 0) {
        if (blob->mapped > 0) store_pool_let_go(blob->fd);
        close(blob->fd);
    }
    blob->fd = -1;
    blob->bytes = blob->mapped = 0;
    blob->store = NULL;
}

bool blasd_blob_find(struct blasd_store *store, const char *name, struct blasd_blob *blob) {
    struct blasd_err ignored;
    if (store->kind != BLASD_STORE_DIR || blob_start(store, name, blob, &ignored) != 0)
        return false;
    blob->fd = openat(store->dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (blob->fd < 0) {
        blob->store = NULL;
        return false;
    }
    /* without it the same file might become another blob of the same name, by way of the pool */
    (void)store_pool_lock_maker(blob->fd, LOCK_EX | LOCK_NB);
    return true;
}

void blasd_blob_remove(struct blasd_blob *blob) {
    const struct blasd_store *store = blob->store;
    int fd = blob->fd;
    if (store == NULL || store->kind != BLASD_STORE_DIR || !blasd_blob_is_named(blob)) {
        blasd_blob_close(blob);
        return;
    }
    blasd_blob_unmap(blob);
    if (store_pool_lock_maker(fd, LOCK_EX | LOCK_NB) &&
        store_pool_give_locked(&store->pool, blob->name, fd)) {
        blasd_blob_close(blob);
        return;
    }
    if (blasd_blob_is_named(blob)) unlinkat(store->dir_fd, blob->name, 0);
    blob->fd = -1;
    blasd_blob_close(blob);
    store_discard(fd, false);
}

void blasd_store_remove(struct blasd_store *store, const char *name) {
    int fd;
    if (store->kind != BLASD_STORE_DIR || !blasd_blob_name_valid(name)) return;
    if (store_pool_give(&store->pool, name)) return;
    fd = openat(store->dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    unlinkat(store->dir_fd, name, 0);
    if (fd >= 0) store_discard(fd, false);
}

bool blasd_store_has(const struct blasd_store *store, const char *name) {
    return store->kind == BLASD_STORE_DIR && blasd_blob_name_valid(name) &&
           faccessat(store->dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int blasd_store_sweep(struct blasd_store *store,
                      int (*referenced)(void *arg, const char (*names)[BLASD_BLOB_NAME], int count,
                                        bool *keep),
                      void *arg, struct blasd_err *err) {
    if (store->kind != BLASD_STORE_DIR) return 0;
    return blasd_store_dir_sweep(&store->pool, referenced, arg, err);
}
