/* The blob store: who may use a directory, blobs from making to removal, and the sweep. */
#include "../child_fork.h"
#include "base/clock.h"
#include "core/wanted.h"
#include "store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct fixture {
    struct store_place place;
};

static struct {
    int count;
    off_t most; /* bytes of one */
} allocations;

/* In place of the C library's. */
int posix_fallocate(int fd, off_t offset, off_t len) {
    allocations.count++;
    if (len > allocations.most) allocations.most = len;
    return fallocate(fd, 0, offset, len) == 0 ? 0 : errno;
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    return store_place_open(&f->place);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    int code = store_place_close(&f->place);
    free(f);
    return code;
}

static void new_name(char name[BLASD_BLOB_NAME], const char *suffix) {
    char id[BLASD_ID_LEN + 1];
    blasd_id_new(BLASD_ID_ASYNC, blasd_clock_wall_us(), id);
    snprintf(name, BLASD_BLOB_NAME, "%s%s", id, suffix);
}

static bool there(const struct fixture *f, const char *name) {
    char path[192];
    snprintf(path, sizeof path, "%s/%s", f->place.dir, name);
    return access(path, F_OK) == 0;
}

static void test_open(void **state) {
    struct fixture *f = *state;
    struct blasd_store *second;
    struct blasd_err err;
    struct stat info;
    uint64_t free_bytes, all_bytes;
    assert_int_equal(stat(f->place.dir, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(blasd_store_kind(f->place.store), BLASD_STORE_DIR);
    assert_int_equal(strlen(blasd_store_identity(f->place.store)), 4 + 32);
    assert_memory_equal(blasd_store_identity(f->place.store), "dir:", 4);
    /* another process sees the same store, another directory is another store */
    assert_int_equal(blasd_store_open(f->place.spec, &second, &err), 0);
    assert_string_equal(blasd_store_identity(f->place.store), blasd_store_identity(second));
    blasd_store_free(second);
    blasd_store_space(f->place.store, &free_bytes, &all_bytes);
    assert_true(all_bytes > 0 && free_bytes <= all_bytes);
}

static void test_open_refused(void **state) {
    struct fixture *f = *state;
    struct blasd_store *store = (void *)1;
    struct blasd_err err;
    char path[128], spec[160];
    int fd;
    assert_true(blasd_store_open("shelf:/x", &store, &err) < 0);
    assert_null(store);
    assert_true(blasd_store_open("dir:relative", &store, &err) < 0);
    assert_true(blasd_store_open("dir:/no/such/parent/blobs", &store, &err) < 0);
    /* readable by others */
    assert_int_equal(chmod(f->place.dir, 0750), 0);
    assert_true(blasd_store_open(f->place.spec, &store, &err) < 0);
    assert_non_null(strstr(err.detail, "chmod 700"));
    assert_int_equal(chmod(f->place.dir, 0700), 0);
    /* not a directory, and a link to one */
    snprintf(path, sizeof path, "%s/file", f->place.base);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    snprintf(spec, sizeof spec, "dir:%s", path);
    assert_true(blasd_store_open(spec, &store, &err) < 0);
    snprintf(path, sizeof path, "%s/link", f->place.base);
    assert_int_equal(symlink(f->place.dir, path), 0);
    snprintf(spec, sizeof spec, "dir:%s", path);
    assert_true(blasd_store_open(spec, &store, &err) < 0);
    /* owned by somebody else */
    if (geteuid() == 0) {
        assert_int_equal(chown(f->place.dir, 12345, (gid_t)-1), 0);
        assert_true(blasd_store_open(f->place.spec, &store, &err) < 0);
        assert_non_null(strstr(err.detail, "12345"));
        assert_int_equal(chown(f->place.dir, 0, (gid_t)-1), 0);
    }
    /* a token that is no token */
    snprintf(path, sizeof path, "%s/.store", f->place.dir);
    fd = open(path, O_TRUNC | O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "short\n", 6), 6);
    close(fd);
    assert_true(blasd_store_open(f->place.spec, &store, &err) < 0);
    assert_non_null(strstr(err.detail, ".store"));
    assert_null(store);
}

/* Eight processes that come first at one time agree on the token. */
static void test_token_race(void **state) {
    struct fixture *f = *state;
    char spec[160], seen[8][40] = {{0}};
    snprintf(spec, sizeof spec, "dir:%s/race", f->place.base);
    for (int round = 0; round < 5; round++) {
        char path[160];
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        for (int i = 0; i < 8; i++) {
            pid_t pid = child_fork();
            assert_true(pid >= 0);
            if (pid == 0) {
                struct blasd_store *store;
                struct blasd_err err;
                char text[40] = {0};
                if (blasd_store_open(spec, &store, &err) == 0) {
                    snprintf(text, sizeof text, "%s", blasd_store_identity(store));
                    blasd_store_free(store);
                }
                _exit(write(pipes[1], text, sizeof text) == sizeof text ? 0 : 1);
            }
        }
        close(pipes[1]);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(read(pipes[0], seen[i], 40), 40);
            assert_memory_equal(seen[i], "dir:", 4);
            assert_string_equal(seen[i], seen[0]);
        }
        close(pipes[0]);
        for (int i = 0; i < 8; i++) assert_true(wait(NULL) > 0);
        snprintf(path, sizeof path, "%s/race/.store", f->place.base);
        assert_int_equal(unlink(path), 0);
    }
}

static void fill(unsigned char *bytes, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(seed >> 24);
    }
}

static void round_trip(struct blasd_store *store, const char *name, struct blasd_blob *blob) {
    enum { len = 300000 };
    unsigned char *bytes = malloc(len);
    struct blasd_err err;
    fill(bytes, len, 7);
    assert_int_equal(blasd_blob_create(store, name, blob, &err), 0);
    assert_string_equal(blob->name, name);
    assert_int_equal(blasd_blob_map(blob, &err), 0);
    assert_null(blob->data); /* empty */
    assert_int_equal(blasd_blob_grow(blob, 1000, &err), 0);
    assert_int_equal(blasd_blob_write(blob, 0, bytes, 1000, &err), 0);
    assert_int_equal(blasd_blob_grow(blob, len, &err), 0);
    assert_int_equal(blasd_blob_grow(blob, 10, &err), 0);
    assert_int_equal(blob->bytes, len);
    assert_int_equal(blasd_blob_write(blob, 1000, bytes + 1000, len - 1000 - 1, &err), 0);
    /* outside what was allocated */
    assert_int_equal(blasd_blob_write(blob, len - 1, bytes, 2, &err), -BLASD_E_internal_error);
    assert_int_equal(blasd_blob_write(blob, len + 64, bytes, 2, &err), -BLASD_E_internal_error);
    assert_int_equal(blasd_blob_write(blob, UINT64_MAX, bytes, 2, &err), -BLASD_E_internal_error);
    assert_int_equal(blasd_blob_map(blob, &err), 0);
    ((unsigned char *)blob->data)[len - 1] = bytes[len - 1]; /* writable by its maker */
    assert_memory_equal(blob->data, bytes, len);
    assert_int_equal(blasd_blob_grow(blob, len + 1, &err), -BLASD_E_internal_error);
    free(bytes);
}

static void test_dir_blob(void **state) {
    struct fixture *f = *state;
    struct blasd_blob blob = {0}, reader = {0}, other = {0};
    struct blasd_err err;
    char name[BLASD_BLOB_NAME], path[192];
    struct stat info;
    new_name(name, ".in");
    blasd_blob_close(&blob); /* zeroed: must not close descriptor 0 */
    assert_true(fcntl(0, F_GETFD) >= 0 || errno == EBADF);
    round_trip(f->place.store, name, &blob);
    snprintf(path, sizeof path, "%s/%s", f->place.dir, name);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_true((uint64_t)info.st_blocks * 512 >= 300000); /* allocated, not sparse */
    /* a name is taken once */
    assert_true(blasd_blob_create(f->place.store, name, &other, &err) < 0);
    assert_null(other.store);
    /* the reader sees the same bytes, may not write, and learns when too few are there */
    assert_int_equal(blasd_blob_open(f->place.store, name, 300000, &reader, &err), 0);
    assert_int_equal(blasd_blob_map(&reader, &err), 0);
    assert_memory_equal(reader.data, blob.data, 300000);
    assert_true(blasd_blob_write(&reader, 0, "x", 1, &err) < 0);
    assert_int_equal(blasd_blob_open(f->place.store, name, 300001, &other, &err),
                     -BLASD_E_inputs_lost);
    assert_null(other.store);
    blasd_store_remove(f->place.store, name);
    blasd_store_remove(f->place.store, name);
    assert_false(there(f, name));
    assert_memory_equal(reader.data, blob.data, 300000); /* a mapping outlives the name */
    assert_int_equal(blasd_blob_open(f->place.store, name, 1, &other, &err), -BLASD_E_inputs_lost);
    blasd_blob_close(&reader);
    blasd_blob_close(&blob);
    blasd_blob_close(&blob);
    assert_int_equal(blob.fd, -1);
}

static void test_redis_blob(void **state) {
    struct blasd_store *store;
    struct blasd_blob blob = {0}, other = {0};
    struct blasd_err err;
    char name[BLASD_BLOB_NAME];
    uint64_t free_bytes, all_bytes;
    (void)state;
    assert_int_equal(blasd_store_open("redis", &store, &err), 0);
    assert_int_equal(blasd_store_kind(store), BLASD_STORE_REDIS);
    assert_string_equal(blasd_store_identity(store), "redis");
    new_name(name, ".out");
    round_trip(store, name, &blob);
    assert_int_equal(blasd_blob_open(store, name, 1, &other, &err), -BLASD_E_inputs_lost);
    blasd_store_remove(store, name);
    assert_int_equal(blasd_store_sweep(store, NULL, NULL, &err), 0);
    blasd_store_space(store, &free_bytes, &all_bytes);
    assert_true(free_bytes > 0 && free_bytes <= all_bytes);
    blasd_blob_close(&blob);
    blasd_store_free(store);
}

static void test_names(void **state) {
    struct fixture *f = *state;
    struct blasd_blob blob = {0};
    struct blasd_err err;
    char name[BLASD_BLOB_NAME], bad[192];
    static const char *const names[] = {"", ".store", "../x", "/etc/passwd", "s.in"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_true(blasd_blob_create(f->place.store, names[i], &blob, &err) < 0);
        assert_true(blasd_blob_open(f->place.store, names[i], 0, &blob, &err) < 0);
        blasd_store_remove(f->place.store, names[i]);
        assert_null(blob.store);
    }
    new_name(name, ".in");
    snprintf(bad, sizeof bad, "%sx", name);
    assert_true(blasd_blob_create(f->place.store, bad, &blob, &err) < 0);
    snprintf(bad, sizeof bad, "%s", name);
    bad[3] = '/';
    assert_true(blasd_blob_create(f->place.store, bad, &blob, &err) < 0);
    snprintf(bad, sizeof bad, "%.41s.ou", name);
    assert_true(blasd_blob_create(f->place.store, bad, &blob, &err) < 0);
    assert_true(there(f, ".store"));
    /* a link under a good name is not followed */
    snprintf(bad, sizeof bad, "%s/%s", f->place.dir, name);
    assert_int_equal(symlink("/etc/hostname", bad), 0);
    assert_true(blasd_blob_open(f->place.store, name, 0, &blob, &err) < 0);
    assert_true(blasd_blob_create(f->place.store, name, &blob, &err) < 0);
}

/* A file system with room for little: growing fails as no_space, and nothing is written. */
static void test_no_space(void **state) {
    struct fixture *f = *state;
    struct blasd_blob blob = {0};
    struct blasd_err err;
    char name[BLASD_BLOB_NAME];
    uint64_t free_bytes, all_bytes;
    new_name(name, ".in");
    assert_int_equal(blasd_blob_create(f->place.store, name, &blob, &err), 0);
    blasd_store_space(f->place.store, &free_bytes, &all_bytes);
    assert_int_equal(blasd_blob_grow(&blob, UINT64_MAX, &err), -BLASD_E_no_space);
    assert_int_equal(blasd_blob_grow(&blob, INT64_C(1) << 61, &err), -BLASD_E_no_space);
    assert_int_equal(err.code, BLASD_E_no_space);
    assert_int_equal(blob.bytes, 0);
    assert_int_equal(blasd_blob_grow(&blob, 4096, &err), 0);
    blasd_blob_close(&blob);
}

/* A file that is being made longer cannot be unlinked meanwhile, also by an event loop. */
static void test_it_grows_in_steps(void **state) {
    struct fixture *f = *state;
    struct blasd_blob blob = {0};
    struct blasd_err err;
    char name[BLASD_BLOB_NAME];
    struct stat info;
    new_name(name, ".out");
    assert_int_equal(blasd_blob_create(f->place.store, name, &blob, &err), 0);
    allocations.most = 0;
    assert_int_equal(blasd_blob_grow(&blob, (UINT64_C(41) << 20) + 5, &err), 0);
    assert_true(allocations.most > 0 && allocations.most <= 8 << 20);
    assert_int_equal(fstat(blob.fd, &info), 0);
    assert_int_equal(info.st_size, (41 << 20) + 5);
    assert_true(info.st_blocks * 512 >= info.st_size);
    blasd_blob_close(&blob);
}

static bool refuse(struct blasd_watch *watch, double progress) {
    (void)watch, (void)progress;
    return false;
}

static void test_it_does_not_grow_for_what_nobody_wants(void **state) {
    struct fixture *f = *state;
    struct blasd_watch watch = {.go_on = refuse};
    struct blasd_blob blob = {0};
    struct blasd_err err;
    char name[BLASD_BLOB_NAME];
    new_name(name, ".out");
    assert_int_equal(blasd_blob_create(f->place.store, name, &blob, &err), 0);
    allocations.count = 0;
    blasd_wanted_begin(&watch);
    assert_false(blasd_wanted_tell(0));
    assert_int_equal(blasd_blob_grow(&blob, UINT64_C(41) << 20, &err), -BLASD_E_cancelled);
    assert_int_equal(blasd_wanted_end(0, &err), -BLASD_E_cancelled);
    assert_int_equal(allocations.count, 1);
    blasd_blob_close(&blob);
}

struct sweep {
    char kept[BLASD_BLOB_NAME];
    int asked, groups, fail_at;
};

static int referenced(void *arg, const char (*names)[BLASD_BLOB_NAME], int count, bool *keep) {
    struct sweep *sweep = arg;
    assert_in_range(count, 1, 256);
    sweep->asked += count;
    if (++sweep->groups == sweep->fail_at) return -BLASD_E_queue_unavailable;
    for (int i = 0; i < count; i++) keep[i] = strcmp(names[i], sweep->kept) == 0;
    return 0;
}

static void make_blob(struct blasd_store *store, const char *name, struct blasd_blob *blob) {
    struct blasd_err err;
    assert_int_equal(blasd_blob_create(store, name, blob, &err), 0);
    assert_int_equal(blasd_blob_grow(blob, 64, &err), 0);
}

static void test_sweep(void **state) {
    struct fixture *f = *state;
    struct sweep sweep = {.asked = 0};
    struct blasd_blob held = {0}, fresh = {0}, blob = {0};
    struct blasd_err err;
    char name[BLASD_BLOB_NAME], path[192];
    int fd;
    new_name(name, ".in");
    make_blob(f->place.store, name, &held); /* somebody writes it */
    new_name(name, ".in");
    assert_int_equal(blasd_blob_create(f->place.store, name, &fresh, &err), 0);
    new_name(sweep.kept, ".out");
    make_blob(f->place.store, sweep.kept, &blob);
    blasd_blob_close(&blob);
    for (int i = 0; i < 600; i++) {
        new_name(name, i % 2 == 0 ? ".in" : ".out");
        make_blob(f->place.store, name, &blob);
        blasd_blob_close(&blob);
    }
    snprintf(path, sizeof path, "%s/notes.txt", f->place.dir); /* not ours to judge */
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    sweep.fail_at = 1;
    assert_int_equal(blasd_store_sweep(f->place.store, referenced, &sweep, &err),
                     -BLASD_E_queue_unavailable);
    assert_int_equal(err.code, BLASD_E_queue_unavailable);
    sweep.fail_at = sweep.asked = sweep.groups = 0;
    assert_int_equal(blasd_store_sweep(f->place.store, referenced, &sweep, &err), 600);
    assert_int_equal(sweep.asked, 601);
    assert_int_equal(sweep.groups, 3);
    assert_true(there(f, sweep.kept) && there(f, held.name) && there(f, fresh.name));
    assert_true(there(f, "notes.txt") && there(f, ".store"));
    assert_false(there(f, name));
    blasd_blob_close(&held); /* its writer died before Redis referred to it */
    assert_int_equal(blasd_store_sweep(f->place.store, referenced, &sweep, &err), 1);
    assert_true(there(f, sweep.kept) && there(f, fresh.name));
    blasd_blob_close(&fresh);
}

/* A client's file of 4096 bytes, locked as it should be. */
static int make_put(const struct fixture *f, char name[40], int lock) {
    char path[192];
    int fd;
    snprintf(name, 40, "%032x.put", rand());
    snprintf(path, sizeof path, "%s/%s", f->place.dir, name);
    fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, lock), 0);
    assert_int_equal(posix_fallocate(fd, 0, 4096), 0);
    assert_int_equal(pwrite(fd, "here", 4, 4000), 4);
    return fd;
}

static int adopt(const struct fixture *f, const char *file, struct blasd_blob *blob) {
    struct blasd_err err;
    char given[40], name[BLASD_BLOB_NAME];
    int rc;
    snprintf(given, sizeof given, "%.*s", (int)strcspn(file, "."), file);
    new_name(name, ".in");
    rc = blasd_blob_adopt(f->place.store, given, name, blob, &err);
    assert_int_equal(there(f, name), rc == 0);
    return rc;
}

static void test_adopt(void **state) {
    struct fixture *f = *state;
    struct sweep sweep = {.asked = 0};
    struct blasd_blob blob = {0}, twice = {0}, reader = {0};
    struct blasd_err err;
    char file[40], first[BLASD_BLOB_NAME], bytes[4];
    int fd = make_put(f, file, LOCK_SH);
    assert_int_equal(adopt(f, "nothing", &blob), -(int)BLASD_E_malformed_query);
    assert_int_equal(adopt(f, "00000000000000000000000000000000.put", &blob),
                     -(int)BLASD_E_body_file_refused);
    assert_int_equal(adopt(f, file, &blob), 0);
    assert_int_equal(blob.bytes, 4096);
    assert_int_equal(blasd_blob_read(&blob, 4000, bytes, 4, &err), 0);
    assert_memory_equal(bytes, "here", 4);
    snprintf(first, sizeof first, "%s", blob.name);
    assert_int_equal(adopt(f, file, &twice), 0); /* as often as one likes */
    assert_int_equal(blasd_blob_open(f->place.store, first, 4096, &reader, &err), 0);
    assert_int_equal(blasd_blob_map(&reader, &err), 0);
    assert_memory_equal((char *)reader.data + 4000, "here", 4);
    blasd_blob_close(&reader);
    assert_int_equal(blasd_store_sweep(f->place.store, referenced, &sweep, &err),
                     0); /* all are held */
    assert_int_equal(ftruncate(fd, 100), 0);
    assert_int_equal(blasd_blob_read(&blob, 4000, bytes, 4, &err), -(int)BLASD_E_body_file_refused);
    assert_int_equal(blasd_blob_open(f->place.store, first, 4096, &reader, &err),
                     -(int)BLASD_E_inputs_lost);
    blasd_blob_close(&blob);
    blasd_blob_close(&twice);
    /* its maker holds on to the file, and yet the names of jobs that are no more go, all at once */
    assert_int_equal(blasd_store_sweep(f->place.store, referenced, &sweep, &err), 2);
    assert_true(there(f, file) && !there(f, first));
    close(fd);
    assert_int_equal(blasd_store_sweep(f->place.store, referenced, &sweep, &err), 1);
    assert_false(there(f, file));
}

/* What a worker and a front end do while a sweep asks about names of the file. */
struct during {
    struct fixture *f;
    char file[40], queued[BLASD_BLOB_NAME];
    int opened, adopted;
};

static int keeps_all_and_meanwhile(void *arg, const char (*names)[BLASD_BLOB_NAME], int count,
                                   bool *keep) {
    struct during *during = arg;
    struct fixture *f = during->f;
    struct blasd_blob blob = {0};
    struct blasd_err err;
    (void)names;
    for (int i = 0; i < count; i++) keep[i] = true;
    during->opened = blasd_blob_open(f->place.store, during->queued, 4096, &blob, &err);
    blasd_blob_close(&blob);
    during->adopted = adopt(f, during->file, &blob);
    blasd_blob_close(&blob);
    return 0;
}

/* A sweep that asks about a queued job's name of a client's file is in the way neither of the
 * worker that claims this job nor of the next job that is handed the file. */
static void test_adopted_is_free_during_a_sweep(void **state) {
    struct fixture *f = *state;
    struct during during = {.f = f, .opened = 1, .adopted = 1};
    struct blasd_blob blob = {0};
    struct blasd_err err;
    int fd = make_put(f, during.file, LOCK_SH);
    assert_int_equal(adopt(f, during.file, &blob), 0);
    snprintf(during.queued, sizeof during.queued, "%s", blob.name);
    blasd_blob_close(&blob); /* Redis refers to it now */
    assert_int_equal(blasd_store_sweep(f->place.store, keeps_all_and_meanwhile, &during, &err), 0);
    assert_int_equal(during.opened, 0);
    assert_int_equal(during.adopted, 0);
    assert_true(there(f, during.queued));
    close(fd);
}

static void test_adopt_refuses(void **state) {
    struct fixture *f = *state;
    struct blasd_blob blob = {0};
    char file[40], other[40], path[192], target[192];
    int fd = make_put(f, file, LOCK_EX);
    assert_int_equal(adopt(f, file, &blob), -(int)BLASD_E_body_file_refused);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    assert_int_equal(adopt(f, file, &blob), 0);
    blasd_blob_close(&blob);
    snprintf(target, sizeof target, "%s/%s", f->place.dir, file);
    snprintf(other, sizeof other, "%032x.put", rand());
    snprintf(path, sizeof path, "%s/%s", f->place.dir, other);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(adopt(f, other, &blob), -(int)BLASD_E_body_file_refused);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(adopt(f, other, &blob), -(int)BLASD_E_body_file_refused);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(adopt(f, other, &blob), -(int)BLASD_E_body_file_refused);
    rmdir(path);
    close(fd);
}

/* What a client may still have mapped never comes out of the pool. */
static void test_adopted_is_not_recycled(void **state) {
    struct fixture *f = *state;
    struct blasd_blob blob = {0};
    struct blasd_err err;
    char file[40], path[192], name[BLASD_BLOB_NAME];
    int fd;
    blasd_store_recycle(f->place.store, 64 << 20);
    fd = make_put(f, file, LOCK_SH);
    assert_int_equal(posix_fallocate(fd, 0, 1 << 20), 0);
    assert_int_equal(adopt(f, file, &blob), 0);
    snprintf(name, sizeof name, "%s", blob.name);
    blasd_blob_close(&blob);
    close(fd);
    snprintf(path, sizeof path, "%s/%s", f->place.dir, file);
    unlink(path);
    blasd_store_remove(f->place.store, name);
    assert_false(there(f, name));
    new_name(name, ".out");
    assert_int_equal(blasd_blob_obtain(f->place.store, name, 1 << 20, &blob, &err), 0);
    assert_false(blob.recycled);
    blasd_blob_close(&blob);
}

/* The lock ends with the process that held it, however it ends, and no child inherits it. */
static void test_lock_of_the_dead(void **state) {
    struct fixture *f = *state;
    struct sweep sweep = {.asked = 0};
    struct blasd_err err;
    char name[BLASD_BLOB_NAME];
    int ready[2], status;
    char byte;
    pid_t pid;
    new_name(name, ".in");
    assert_int_equal(pipe(ready), 0);
    pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct blasd_blob blob = {0};
        if (blasd_blob_create(f->place.store, name, &blob, &err) != 0) _exit(1);
        if (blasd_blob_grow(&blob, 64, &err) != 0) _exit(1);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(blasd_store_sweep(f->place.store, referenced, &sweep, &err), 0);
    assert_true(there(f, name));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(blasd_store_sweep(f->place.store, referenced, &sweep, &err), 1);
    assert_false(there(f, name));
    close(ready[0]);
    close(ready[1]);
}

/* A process that sweeps all the time never removes a blob whose maker still holds it. */
static void test_sweep_against_makers(void **state) {
    struct fixture *f = *state;
    struct blasd_err err;
    int status;
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sweep sweep = {.asked = 0};
        int64_t end = blasd_clock_ns() + INT64_C(700000000);
        while (blasd_clock_ns() < end)
            if (blasd_store_sweep(f->place.store, referenced, &sweep, &err) < 0) _exit(1);
        _exit(0);
    }
    for (int64_t end = blasd_clock_ns() + INT64_C(500000000); blasd_clock_ns() < end;) {
        struct blasd_blob blob = {0};
        char name[BLASD_BLOB_NAME];
        new_name(name, ".in");
        assert_int_equal(blasd_blob_create(f->place.store, name, &blob, &err), 0);
        assert_int_equal(blasd_blob_grow(&blob, 4096, &err), 0);
        assert_true(there(f, name));
        blasd_blob_close(&blob);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_open, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_token_race, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dir_blob, setup, teardown),
        cmocka_unit_test_setup_teardown(test_redis_blob, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_space, setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_grows_in_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_does_not_grow_for_what_nobody_wants, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_sweep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adopt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adopted_is_free_during_a_sweep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adopt_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adopted_is_not_recycled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lock_of_the_dead, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sweep_against_makers, setup, teardown),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
