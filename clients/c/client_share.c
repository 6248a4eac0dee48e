/* Tensors in memory shared with a service on this machine: docs/sharing.md has the rules.
 *
 * A file NAME.put of ours holds a safetensors header and the arrays, each at a multiple of 64
 * bytes. It is locked for as long as it is used, so that the service does not sweep it away; who
 * dies lets go of the lock, and the file goes with the next sweep. Knows nothing of HTTP. */
#include "clients/c/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALIGNMENT 64
/* Of inputs: from so many bytes on copying them beats sending them. */
#define LEAST_BYTES (UINT64_C(1) << 20)
#define PIECE_BYTES ((size_t)256 << 10) /* stays in the cache between reading and writing it */

/* --- a file of ours */

static int refuse(struct blasd_problem *problem, const char *what, int reason) {
    bool full = reason == ENOSPC || reason == EDQUOT;
    blasd_problem_set(problem, full ? "no_space" : "sharing_off", "%s: %s", what, strerror(reason));
    problem->retry = full;
    return -1;
}

static int name_at_random(char *name, const char *prefix) {
    unsigned char bytes[BLASD_SHARED_NAME / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return -1;
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(name + 2 * i, 3, "%02x", bytes[i]);
    memcpy(name, prefix, strnlen(prefix, BLASD_SHARED_NAME));
    return 0;
}

static int lock(int fd) {
    int rc;
    do rc = flock(fd, LOCK_SH);
    while (rc != 0 && errno == EINTR);
    return rc;
}

/* The service takes files of its own user alone, so what root makes is given to that user. */
static int give_to_owner(int fd, const char *directory) {
    struct stat info;
    if (stat(directory, &info) != 0) return -1;
    return info.st_uid == geteuid() ? 0 : fchown(fd, info.st_uid, (gid_t)-1);
}

int blasd_shared_open(const struct blasd_share *share, struct blasd_shared **ret,
                      struct blasd_problem *problem) {
    const char *directory = share->directory;
    struct blasd_shared *shared = calloc(1, sizeof *shared);
    *ret = NULL;
    if (shared == NULL) return blasd_refuse_memory(problem);
    shared->fd = -1;
    shared->owner = getpid();
    if (name_at_random(shared->name, share->prefix) != 0) goto fail;
    if (asprintf(&shared->path, "%s/%s.put", directory, shared->name) < 0) {
        shared->path = NULL;
        goto fail;
    }
    shared->fd = open(shared->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (shared->fd < 0 || lock(shared->fd) != 0 || give_to_owner(shared->fd, directory) != 0)
        goto fail;
    *ret = shared;
    return 0;
fail:
    refuse(problem, directory, errno);
    blasd_shared_free(shared);
    return -1;
}

void blasd_shared_free(struct blasd_shared *shared) {
    if (shared == NULL) return;
    if (shared->map != NULL) munmap(shared->map, shared->len);
    if (shared->fd >= 0) {
        if (shared->owner == getpid()) unlink(shared->path); /* not a fork's parent's */
        close(shared->fd);
    }
    for (int i = 0; i < shared->array_count; i++) free((char *)(uintptr_t)shared->arrays[i].name);
    free(shared->arrays);
    free(shared->path);
    free(shared);
}

/* --- arrays in place */

/* Points the arrays to where they lie. */
static int take_arrays(struct blasd_shared *shared, const struct blasd_array *specs, int count,
                       size_t begin) {
    uint64_t at = 0;
    size_t size = 0;
    shared->arrays = calloc((size_t)count + 1, sizeof *shared->arrays);
    if (shared->arrays == NULL) return -1;
    for (int i = 0; i < count; i++) {
        struct blasd_array *array = &shared->arrays[i];
        *array = specs[i];
        array->name = strdup(specs[i].name);
        shared->array_count++;
        if (array->name == NULL) return -1;
        /* the table's own word for it, which stays */
        array->dtype = blasd_dtype_of_code(blasd_dtype_code(specs[i].dtype, &size), &size);
        at = blasd_array_place(at, ALIGNMENT);
        array->data = shared->map + begin + at;
        at += (uint64_t)blasd_array_bytes(array);
    }
    return 0;
}

int blasd_shared_lay_out(struct blasd_shared *shared, const struct blasd_array *specs, int count,
                         struct blasd_problem *problem) {
    size_t header_len = 0;
    uint64_t data_bytes = 0;
    unsigned char *header =
        blasd_tensors_header(specs, count, ALIGNMENT, NULL, &header_len, &data_bytes, problem);
    void *map;
    int reason, rc = -1;
    if (header == NULL) return -1;
    shared->len = header_len + data_bytes;
    /* a full store is an error here, and would be a bus error later */
    do reason = posix_fallocate(shared->fd, 0, (off_t)shared->len);
    while (reason == EINTR);
    if (reason != 0) {
        refuse(problem, "the service's store has no room for the arrays", reason);
        goto done;
    }
    map = mmap(NULL, shared->len, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
    if (map == MAP_FAILED) {
        refuse(problem, "the arrays cannot be mapped", errno);
        goto done;
    }
    shared->map = map;
    memcpy(shared->map, header, header_len);
    rc = take_arrays(shared, specs, count, header_len);
    if (rc != 0) blasd_refuse_memory(problem);
done:
    free(header);
    return rc;
}

const struct blasd_array *blasd_shared_array(const struct blasd_shared *shared, const char *name) {
    for (int i = 0; name != NULL && i < shared->array_count; i++)
        if (strcmp(shared->arrays[i].name, name) == 0) return &shared->arrays[i];
    return NULL;
}

void *blasd_shared_data(struct blasd_shared *shared, const char *name) {
    const struct blasd_array *array = blasd_shared_array(shared, name);
    return array == NULL ? NULL : (void *)(uintptr_t)array->data;
}

/* --- copies */

/* Where an input is copied from: memory, or a file where `fd` is one. */
struct source {
    int fd;
    uint64_t at;
};

static bool write_all(int fd, const void *bytes, uint64_t len, uint64_t at) {
    while (len > 0) {
        ssize_t n = pwrite(fd, bytes, len < SSIZE_MAX ? (size_t)len : SSIZE_MAX, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes = (const char *)bytes + n;
        at += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return true;
}

static bool copy_file(int fd, uint64_t at, const struct source *from, uint64_t len) {
    unsigned char *piece = malloc(PIECE_BYTES);
    bool good = piece != NULL;
    for (uint64_t done = 0; good && done < len;) {
        size_t most = len - done < PIECE_BYTES ? (size_t)(len - done) : PIECE_BYTES;
        ssize_t n = pread(from->fd, piece, most, (off_t)(from->at + done));
        if (n < 0 && errno == EINTR) continue;
        good = n > 0 && write_all(fd, piece, (uint64_t)n, at + done); /* 0: it was cut meanwhile */
        done += good ? (uint64_t)n : 0;
    }
    free(piece);
    return good;
}

/* Written and not mapped: each page is touched once, and a full store is an error of pwrite. The
 * gaps between arrays are shorter than a page, so the file has no holes. */
static bool write_copies(const struct blasd_shared *shared, const struct blasd_array *arrays,
                         const struct source *sources, int count) {
    struct blasd_problem problem;
    size_t header_len = 0;
    uint64_t data_bytes = 0, at = 0;
    unsigned char *header =
        blasd_tensors_header(arrays, count, ALIGNMENT, NULL, &header_len, &data_bytes, &problem);
    bool good = header != NULL && ftruncate(shared->fd, (off_t)(header_len + data_bytes)) == 0 &&
                write_all(shared->fd, header, header_len, 0);
    for (int i = 0; good && i < count; i++) {
        uint64_t len = (uint64_t)blasd_array_bytes(&arrays[i]);
        at = blasd_array_place(at, ALIGNMENT);
        good = sources[i].fd < 0 ? write_all(shared->fd, arrays[i].data, len, header_len + at)
                                 : copy_file(shared->fd, header_len + at, &sources[i], len);
        at += len;
    }
    free(header);
    return good;
}

/* Describes the request's inputs as arrays; false where one of them has to be sent. */
static bool find_sources(const struct blasd_request *request, struct blasd_array *arrays,
                         struct source *sources, int count) {
    for (int i = 0; i < count; i++) {
        if (request->file_count == 0) {
            arrays[i] = request->inputs[i];
            continue;
        }
        arrays[i].name = request->files[i].name;
        sources[i].fd = open(request->files[i].path, O_RDONLY | O_CLOEXEC);
        if (sources[i].fd < 0) return false;
        if (!blasd_client_npy_read(sources[i].fd, &arrays[i], &sources[i].at)) return false;
    }
    return true;
}

static bool worth_it(const struct blasd_array *arrays, int count) {
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        int64_t more = blasd_array_bytes(&arrays[i]);
        if (arrays[i].name == NULL || more < 0) return false;
        if (__builtin_add_overflow(bytes, (uint64_t)more, &bytes)) return false;
    }
    return bytes >= LEAST_BYTES && bytes <= INT64_MAX / 2;
}

struct blasd_shared *blasd_shared_copy(const struct blasd_share *share,
                                       const struct blasd_request *request) {
    int count = request->file_count > 0 ? request->file_count : request->input_count;
    struct blasd_array *arrays = calloc((size_t)count + 1, sizeof *arrays);
    struct source *sources = calloc((size_t)count + 1, sizeof *sources);
    struct blasd_shared *shared = NULL;
    struct blasd_problem problem;
    if (arrays == NULL || sources == NULL) goto done;
    for (int i = 0; i < count; i++) sources[i].fd = -1;
    if (!find_sources(request, arrays, sources, count) || !worth_it(arrays, count)) goto done;
    if (blasd_shared_open(share, &shared, &problem) != 0) goto done;
    if (!write_copies(shared, arrays, sources, count)) {
        blasd_shared_free(shared);
        shared = NULL;
    }
done:
    for (int i = 0; arrays != NULL && sources != NULL && i < count; i++)
        if (sources[i].fd >= 0) close(sources[i].fd);
    free(sources);
    free(arrays);
    return shared;
}

/* --- results */

/* Maps a file of the directory; the mapping keeps the lock. It is private, so that whoever writes
 * to his arrays writes to copies of their pages. */
static bool map_file(struct blasd_reply *reply, const char *directory, const char *name) {
    struct stat info, named;
    char *path = NULL;
    int fd = -1;
    void *map = MAP_FAILED;
    if (strchr(name, '/') != NULL || asprintf(&path, "%s/%s", directory, name) < 0) return false;
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    /* without the look at the name it might be another job's by now */
    if (fd >= 0 && lock(fd) == 0 && fstat(fd, &info) == 0 && lstat(path, &named) == 0 &&
        info.st_ino == named.st_ino && info.st_dev == named.st_dev && info.st_size > 0)
        map = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                   fd, 0);
    if (fd >= 0) close(fd);
    free(path);
    if (map == MAP_FAILED) return false;
    reply->map = map;
    reply->map_len = (size_t)info.st_size;
    return true;
}

static bool map_output(struct blasd_reply *reply, const char *name, const json_t *output) {
    struct blasd_array *array = &reply->arrays[reply->array_count];
    const json_t *shape = json_object_get(output, "shape");
    json_int_t offset =
        json_integer_value(json_object_get(json_object_get(output, "blob"), "offset"));
    const char *dtype = json_string_value(json_object_get(output, "dtype"));
    int64_t bytes;
    size_t size = 0;
    if (reply->array_count == BLASD_REPLY_ARRAYS) return false;
    *array = (struct blasd_array){.name = name};
    if (!blasd_shape_read(shape, &array->rank, array->shape)) return false;
    array->dtype = blasd_dtype_of_code(blasd_dtype_code(dtype, &size), &size);
    bytes = blasd_array_bytes(array);
    if (bytes < 0 || offset < 0 || (uint64_t)offset > reply->map_len ||
        (uint64_t)bytes > reply->map_len - (uint64_t)offset || (size_t)offset % size != 0)
        return false;
    array->data = reply->map + offset;
    reply->array_count++;
    return true;
}

static const char *blob_of(const json_t *output) {
    return json_string_value(json_object_get(json_object_get(output, "blob"), "name"));
}

/* The file that all outputs lie in, or NULL. */
static const char *file_of(const json_t *outputs) {
    const char *name, *file = NULL;
    const json_t *output;
    json_object_foreach((json_t *)(uintptr_t)outputs, name, output) {
        const char *blob = blob_of(output);
        if (blob == NULL || (file != NULL && strcmp(file, blob) != 0)) return NULL;
        file = blob;
    }
    return file;
}

bool blasd_reply_map(struct blasd_reply *reply, const char *directory) {
    json_t *outputs = json_object_get(blasd_reply_json(reply), "outputs");
    const char *file = file_of(outputs), *name;
    json_t *output;
    if (file == NULL || !map_file(reply, directory, file)) return false;
    json_object_foreach(outputs, name, output) if (!map_output(reply, name, output)) {
        munmap(reply->map, reply->map_len);
        reply->map = NULL;
        reply->array_count = 0;
        return false;
    }
    reply->complete = true;
    return true;
}
