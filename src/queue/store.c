/* The blob store: blobs as files of one directory, or as memfds on their way to and from Redis.
 *
 * Knows nothing of Redis. A store does not change once it is open, so threads may share it; a blob
 * belongs to one thread at a time. Read next: store_dir.c, and front_blob.c for the kind redis. */
#include "queue/store.h"

#include "base/text.h"
#include "queue/store_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

struct blasd_store {
    enum blasd_store_kind kind;
    int dir_fd; /* owned; -1 for the kind redis */
    char identity[sizeof "dir:" + BLASD_STORE_TOKEN];
};

int blasd_store_open(const char *spec, struct blasd_store **ret, struct blasd_err *err) {
    char token[BLASD_STORE_TOKEN + 1] = "";
    struct blasd_store *store;
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
        result = blasd_store_dir_open(spec + 4, &store->dir_fd, token, err);
        if (result < 0) {
            free(store);
            return result;
        }
    }
    blasd_text_join(store->identity, sizeof store->identity, dir ? "dir:" : "redis", token, NULL);
    *ret = store;
    return 0;
}

void blasd_store_free(struct blasd_store *store) {
    if (store == NULL) return;
    if (store->dir_fd >= 0) close(store->dir_fd);
    free(store);
}

enum blasd_store_kind blasd_store_kind(const struct blasd_store *store) {
    return store->kind;
}

const char *blasd_store_identity(const struct blasd_store *store) {
    return store->identity;
}

/* What the machine has, and could give to programs now. */
static void memory_space(uint64_t *free_bytes, uint64_t *all_bytes) {
    char line[128];
    uint64_t kib;
    FILE *file = fopen("/proc/meminfo", "re");
    *free_bytes = *all_bytes = 0;
    if (file == NULL) return;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "MemTotal: %" SCNu64, &kib) == 1) *all_bytes = kib * 1024;
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1) {
            *free_bytes = kib * 1024;
            break;
        }
    }
    fclose(file);
}

void blasd_store_space(const struct blasd_store *store, uint64_t *free_bytes, uint64_t *all_bytes) {
    uint64_t free_memory, all_memory;
    struct statvfs space;
    struct statfs kind;
    bool is_memory = store->kind == BLASD_STORE_REDIS ||
                     (fstatfs(store->dir_fd, &kind) == 0 && kind.f_type == TMPFS_MAGIC);
    *free_bytes = *all_bytes = UINT64_MAX;
    if (store->kind == BLASD_STORE_DIR) {
        if (fstatvfs(store->dir_fd, &space) != 0) {
            *free_bytes = *all_bytes = 0;
        } else if (space.f_blocks != 0) { /* a tmpfs without a size of its own says 0 */
            *free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
            *all_bytes = (uint64_t)space.f_blocks * space.f_frsize;
        }
    }
    if (!is_memory) return;
    /* a tmpfs may promise more than the machine has left */
    memory_space(&free_memory, &all_memory);
    if (free_memory < *free_bytes) *free_bytes = free_memory;
    if (all_memory < *all_bytes) *all_bytes = all_memory;
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
    int fd, result = blob_start(store, name, blob, err);
    if (result < 0) return result;
    if (store->kind == BLASD_STORE_DIR)
        fd = blasd_store_dir_create(store->dir_fd, name, err);
    else if ((fd = memfd_create(name, MFD_CLOEXEC)) < 0)
        fd = blasd_fail(err, BLASD_E_no_space, "", "memory for a blob could not be had: %s",
                        strerror(errno));
    if (fd < 0) {
        blob->store = NULL;
        return fd;
    }
    blob->fd = fd;
    return 0;
}

int blasd_blob_grow(struct blasd_blob *blob, uint64_t bytes, struct blasd_err *err) {
    int reason;
    if (blob->store == NULL || blob->data != NULL)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "a blob that is closed or mapped cannot grow");
    if (bytes <= blob->bytes) return 0;
    if (bytes > (uint64_t)INT64_MAX)
        return blasd_fail(err, BLASD_E_no_space, "", "no blob store holds %" PRIu64 " bytes",
                          bytes);
    do {
        reason = posix_fallocate(blob->fd, (off_t)blob->bytes, (off_t)(bytes - blob->bytes));
    } while (reason == EINTR);
    if (reason != 0)
        return blasd_fail(err, BLASD_E_no_space, "",
                          "the blob store has no room for %" PRIu64 " bytes more: %s",
                          bytes - blob->bytes, strerror(reason));
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

int blasd_blob_map(struct blasd_blob *blob, struct blasd_err *err) {
    int protection = PROT_READ;
    void *data;
    if (blob->store == NULL)
        return blasd_fail(err, BLASD_E_internal_error, "", "a closed blob cannot be mapped");
    if (blob->data != NULL || blob->bytes == 0) return 0;
    if ((fcntl(blob->fd, F_GETFL) & O_ACCMODE) == O_RDWR) protection |= PROT_WRITE;
    data = mmap(NULL, (size_t)blob->bytes, protection, MAP_SHARED, blob->fd, 0);
    if (data == MAP_FAILED)
        return blasd_fail(err, BLASD_E_no_space, "",
                          "a blob of %" PRIu64 " bytes could not be mapped: %s", blob->bytes,
                          strerror(errno));
    blob->data = data;
    return 0;
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
    } else if (blob->fd < 0 || fstat(blob->fd, &info) != 0 || !S_ISREG(info.st_mode)) {
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

void blasd_blob_close(struct blasd_blob *blob) {
    if (blob->store == NULL) return; /* zeroed, or closed before */
    if (blob->data != NULL) munmap(blob->data, (size_t)blob->bytes);
    if (blob->fd >= 0) close(blob->fd);
    blob->data = NULL;
    blob->fd = -1;
    blob->bytes = 0;
    blob->store = NULL;
}

void blasd_store_remove(struct blasd_store *store, const char *name) {
    if (store->kind != BLASD_STORE_DIR || !blasd_blob_name_valid(name)) return;
    unlinkat(store->dir_fd, name, 0);
}

int blasd_store_sweep(struct blasd_store *store,
                      int (*referenced)(void *arg, const char (*names)[BLASD_BLOB_NAME], int count,
                                        bool *keep),
                      void *arg, struct blasd_err *err) {
    if (store->kind != BLASD_STORE_DIR) return 0;
    return blasd_store_dir_sweep(store->dir_fd, referenced, arg, err);
}
