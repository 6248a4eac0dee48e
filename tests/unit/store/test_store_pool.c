/* Recycled blobs: what goes into the pool and comes out of it, what must not, and that neither
 * kills nor a full tmpfs leave anything behind. */
#include "../child_fork.h"
#include "base/clock.h"
#include "store/store_discard.h"
#include "store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define LIMIT (8 * MIB)

struct fixture {
    struct store_place place;
    struct blasd_err err;
};

static int setup_at(void **state, const char *base) {
    struct fixture *f = calloc(1, sizeof *f);
    if (store_place_open_at(&f->place, base) != 0) return -1;
    blasd_store_recycle(f->place.store, LIMIT);
    *state = f;
    return 0;
}

static int setup(void **state) {
    return setup_at(state, "/dev/shm");
}

static int teardown(void **state) {
    struct fixture *f = *state;
    int code = store_place_close(&f->place);
    free(f);
    return code;
}

static void new_name(char name[BLASD_BLOB_NAME]) {
    static unsigned serial;
    char id[BLASD_ID_LEN + 1];
    blasd_id_new(BLASD_ID_ASYNC, blasd_clock_wall_us(), id);
    /* forked processes would draw the same random digits */
    snprintf(id + BLASD_ID_LEN - 16, 17, "%08x%08x", (unsigned)getpid(), serial++);
    snprintf(name, BLASD_BLOB_NAME, "%s.in", id);
}

/* The files of a folder, their bytes, and the name of one of them. */
static int count_files(const char *folder, uint64_t *bytes, char one[64]) {
    struct dirent *entry;
    struct stat info;
    int count = 0;
    DIR *dir = opendir(folder);
    *bytes = 0;
    if (dir == NULL) return 0;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.') continue;
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (!S_ISREG(info.st_mode)) continue;
        *bytes += (uint64_t)info.st_size;
        if (one != NULL) snprintf(one, 64, "%.63s", entry->d_name);
        count++;
    }
    closedir(dir);
    return count;
}

static int in_pool(const struct fixture *f, uint64_t *bytes) {
    char path[128];
    snprintf(path, sizeof path, "%s/.pool", f->place.dir);
    return count_files(path, bytes, NULL);
}

static void make(struct fixture *f, struct blasd_blob *blob, uint64_t bytes, int fill) {
    char name[BLASD_BLOB_NAME];
    new_name(name);
    assert_int_equal(blasd_blob_obtain(f->place.store, name, bytes, blob, &f->err), 0);
    assert_int_equal(blasd_blob_fit(blob, bytes, &f->err), 0);
    assert_int_equal(blasd_blob_map(blob, &f->err), 0);
    memset(blob->data, fill, bytes);
}

static void make_and_remove(struct fixture *f, uint64_t bytes) {
    struct blasd_blob blob;
    char name[BLASD_BLOB_NAME];
    make(f, &blob, bytes, 1);
    memcpy(name, blob.name, sizeof name);
    blasd_blob_close(&blob);
    blasd_store_remove(f->place.store, name);
}

static int keeps_none(void *arg, const char (*names)[BLASD_BLOB_NAME], int count, bool *keep) {
    (void)arg, (void)names;
    for (int i = 0; i < count; i++) keep[i] = false;
    return 0;
}

static void test_round(void **state) {
    struct fixture *f = *state;
    struct blasd_blob first, second;
    char name[BLASD_BLOB_NAME];
    uint64_t bytes, inode;
    void *data;
    make(f, &first, MIB, 1);
    assert_false(first.recycled);
    memcpy(name, first.name, sizeof name);
    inode = first.inode;
    data = first.data;
    blasd_blob_close(&first);
    assert_int_equal(in_pool(f, &bytes), 0);
    blasd_store_remove(f->place.store, name);
    assert_int_equal(in_pool(f, &bytes), 1);
    assert_int_equal(bytes, MIB);
    assert_int_equal(blasd_blob_open(f->place.store, name, 1, &second, &f->err),
                     -BLASD_E_inputs_lost);
    /* the next one has its file and, in this process, its mapping */
    make(f, &second, MIB, 2);
    assert_true(second.recycled);
    assert_int_equal(second.inode, inode);
    assert_ptr_equal(second.data, data);
    assert_int_equal(in_pool(f, &bytes), 0);
    /* it is locked as a new one is: no sweep takes it for an orphan */
    assert_int_equal(blasd_store_sweep(f->place.store, keeps_none, NULL, &f->err), 0);
    memcpy(name, second.name, sizeof name);
    blasd_blob_close(&second);
    /* and an orphan's file goes back into the pool */
    assert_int_equal(blasd_store_sweep(f->place.store, keeps_none, NULL, &f->err), 1);
    assert_int_equal(in_pool(f, &bytes), 1);
    blasd_store_remove(f->place.store, name);
    assert_int_equal(in_pool(f, &bytes), 1);
}

/* Whoever reads a blob, or still writes it, keeps its bytes to himself when it is removed. */
static void test_never_under_a_reader(void **state) {
    struct fixture *f = *state;
    struct blasd_blob blob, reader, next;
    char name[BLASD_BLOB_NAME];
    uint64_t bytes;
    make(f, &blob, MIB, 1);
    memcpy(name, blob.name, sizeof name);
    blasd_blob_close(&blob);
    assert_int_equal(blasd_blob_open(f->place.store, name, MIB, &reader, &f->err), 0);
    assert_int_equal(blasd_blob_map(&reader, &f->err), 0);
    blasd_store_remove(f->place.store, name);
    assert_int_equal(in_pool(f, &bytes), 0);
    make(f, &next, MIB, 2);
    assert_false(next.recycled);
    for (uint64_t i = 0; i < MIB; i += 512) assert_int_equal(((char *)reader.data)[i], 1);
    blasd_blob_close(&reader);
    /* the same while its maker holds it: a worker that was given up may still write */
    blasd_store_remove(f->place.store, next.name);
    assert_int_equal(in_pool(f, &bytes), 0);
    blasd_blob_close(&next);
    /* a reader that has gone is no obstacle, though its mapping is kept */
    make(f, &blob, MIB, 3);
    memcpy(name, blob.name, sizeof name);
    blasd_blob_close(&blob);
    assert_int_equal(blasd_blob_open(f->place.store, name, MIB, &reader, &f->err), 0);
    assert_int_equal(blasd_blob_map(&reader, &f->err), 0);
    blasd_blob_close(&reader);
    blasd_store_remove(f->place.store, name);
    assert_int_equal(in_pool(f, &bytes), 1);
}

static bool has_file(const struct fixture *f, const char *name) {
    return blasd_store_has(f->place.store, name);
}

/* Who removes what he has open removes no other's of that name. */
static void test_a_name_that_is_another_s(void **state) {
    struct fixture *f = *state;
    struct blasd_blob stale, seen, next;
    char name[BLASD_BLOB_NAME];
    uint64_t bytes;
    make(f, &stale, MIB, 1);
    memcpy(name, stale.name, sizeof name);
    blasd_blob_remove(&stale); /* its own goes, and serves again */
    assert_false(has_file(f, name));
    assert_int_equal(in_pool(f, &bytes), 1);
    make(f, &stale, MIB, 1);
    assert_true(stale.recycled);
    memcpy(name, stale.name, sizeof name);
    blasd_blob_close(&stale);
    for (int round = 0; round < 2; round++) {
        assert_true(blasd_blob_find(f->place.store, name, &seen));
        blasd_store_remove(f->place.store, name); /* by another, who makes it anew */
        assert_int_equal(blasd_blob_obtain(f->place.store, name, MIB, &next, &f->err), 0);
        blasd_blob_remove(&seen);
        assert_true(has_file(f, name) && blasd_blob_is_named(&next));
        if (round == 0) blasd_blob_close(&next);
    }
    assert_true(blasd_blob_find(f->place.store, name, &seen));
    blasd_blob_remove(&seen); /* its maker still has it: the name alone goes */
    assert_false(has_file(f, name) || blasd_blob_is_named(&next));
    blasd_blob_remove(&next);
    assert_int_equal(in_pool(f, &bytes), 0);
    assert_false(blasd_blob_find(f->place.store, name, &seen));
    blasd_blob_remove(&seen);
    make(f, &stale, MIB, 1);
    memcpy(name, stale.name, sizeof name);
    blasd_blob_close(&stale);
    assert_true(blasd_blob_find(f->place.store, name, &seen)); /* a dead maker's serves again */
    blasd_blob_remove(&seen);
    assert_int_equal(in_pool(f, &bytes), 1);
}

static void test_sizes(void **state) {
    struct fixture *f = *state;
    struct blasd_blob blob, more[8];
    uint64_t bytes;
    make_and_remove(f, 255 * 1024); /* not worth it */
    assert_int_equal(in_pool(f, &bytes), 0);
    make_and_remove(f, 9 * MIB); /* more than all may have */
    assert_int_equal(in_pool(f, &bytes), 0);
    make_and_remove(f, 4 * MIB);
    make(f, &blob, MIB, 1); /* a file four times as large is not wasted on it */
    assert_false(blob.recycled);
    blasd_blob_close(&blob);
    make(f, &blob, 4 * MIB - 4096, 1);
    assert_true(blob.recycled);
    assert_int_equal(blob.bytes, 4 * MIB);
    blasd_blob_close(&blob);
    blasd_store_remove(f->place.store, blob.name);
    make_and_remove(f, 4 * MIB);
    assert_int_equal(in_pool(f, &bytes), 1);
    make(f, &blob, 5 * MIB, 1); /* grows */
    assert_true(blob.recycled);
    assert_int_equal(blob.bytes, 5 * MIB);
    blasd_blob_close(&blob);
    /* never more than the limit; the oldest make way */
    for (int i = 0; i < 8; i++) make(f, &more[i], 3 * MIB / 2, i);
    for (int i = 0; i < 8; i++) {
        char name[BLASD_BLOB_NAME];
        memcpy(name, more[i].name, sizeof name);
        blasd_blob_close(&more[i]);
        blasd_store_remove(f->place.store, name);
        assert_true(in_pool(f, &bytes) <= 5 && bytes <= LIMIT);
    }
    assert_int_equal(in_pool(f, &bytes), 5);
    blasd_store_trim(f->place.store);
    assert_int_equal(in_pool(f, &bytes), 5); /* young */
}

/* Age stands in the name; a file that came long ago goes, and so does everything with the store. */
static void test_age(void **state) {
    struct fixture *f = *state;
    struct blasd_store *second;
    char folder[128], name[64], from[256], to[256];
    uint64_t bytes;
    make_and_remove(f, MIB);
    snprintf(folder, sizeof folder, "%s/.pool", f->place.dir);
    assert_int_equal(count_files(folder, &bytes, name), 1);
    snprintf(from, sizeof from, "%s/%s", folder, name);
    snprintf(to, sizeof to, "%s/%.17s%016x%s", folder, name, 1, name + 33);
    assert_int_equal(rename(from, to), 0);
    blasd_store_trim(f->place.store);
    assert_int_equal(in_pool(f, &bytes), 0);
    assert_int_equal(blasd_store_open(f->place.spec, &second, &f->err), 0);
    blasd_store_recycle(second, LIMIT);
    make_and_remove(f, MIB);
    assert_int_equal(in_pool(f, &bytes), 1);
    blasd_store_free(second);
    assert_int_equal(in_pool(f, &bytes), 0);
}

/* The blocks of an open file, once nobody is about to give any of them back. */
static uint64_t blocks_at_rest(int fd) {
    struct stat info;
    store_discard_wait();
    assert_int_equal(fstat(fd, &info), 0);
    return (uint64_t)info.st_blocks;
}

/* What is too large to be freed while a loop waits: what nobody needs is cut even where somebody
 * has it open, and what is read still keeps its bytes until the reader is done. */
static void test_large(void **state) {
    struct fixture *f = *state;
    struct blasd_blob blob, reader;
    struct stat info;
    char name[BLASD_BLOB_NAME], path[256];
    uint64_t bytes;
    int fd;
    blasd_store_recycle(f->place.store, 64 * MIB);
    make(f, &blob, 48 * MIB, 1);
    memcpy(name, blob.name, sizeof name);
    snprintf(path, sizeof path, "%s/%s", f->place.dir, name);
    assert_true((fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0);
    blasd_blob_close(&blob);
    blasd_store_remove(f->place.store, name);
    assert_int_equal(in_pool(f, &bytes), 1);
    make_and_remove(f, 24 * MIB); /* the large one makes way */
    assert_int_equal(in_pool(f, &bytes), 1);
    assert_int_equal(bytes, 24 * MIB);
    assert_int_equal(blocks_at_rest(fd), 0);
    close(fd);

    blasd_store_recycle(f->place.store, LIMIT);
    make(f, &blob, 48 * MIB, 7); /* more than the pool takes */
    memcpy(name, blob.name, sizeof name);
    blasd_blob_close(&blob);
    assert_int_equal(blasd_blob_open(f->place.store, name, 48 * MIB, &reader, &f->err), 0);
    assert_int_equal(blasd_blob_map(&reader, &f->err), 0);
    blasd_store_remove(f->place.store, name);
    snprintf(path, sizeof path, "%s/%s", f->place.dir, name);
    assert_int_equal(stat(path, &info), -1);
    store_discard_wait();
    for (uint64_t i = 0; i < 48 * MIB; i += 4096) assert_int_equal(((char *)reader.data)[i], 7);
    blasd_blob_close(&reader);
}

/* Takes files, checks that nobody else writes to them, and gives them back, for ever. */
static void churn(struct fixture *f, int mark) {
    for (unsigned round = 0;; round++) {
        struct blasd_blob blob;
        uint64_t bytes = MIB / 4 * (1 + round % 3);
        char name[BLASD_BLOB_NAME];
        new_name(name);
        if (blasd_blob_obtain(f->place.store, name, bytes, &blob, &f->err) != 0 ||
            blasd_blob_fit(&blob, bytes, &f->err) != 0 || blasd_blob_map(&blob, &f->err) != 0)
            _exit(1);
        for (uint64_t i = 0; i < bytes; i += 1024) ((char *)blob.data)[i] = (char)mark;
        sched_yield();
        for (uint64_t i = 0; i < bytes; i += 1024)
            if (((char *)blob.data)[i] != (char)mark) _exit(2);
        blasd_blob_close(&blob);
        if (round % 8 != 7) blasd_store_remove(f->place.store, name); /* else the sweep's */
        if (round % 64 == 63) blasd_store_trim(f->place.store);
    }
}

/* Processes at it together, each killed at some moment: no file ever belongs to two, and in the end
 * each is a blob that the sweep finds or in the pool, which keeps its bounds. */
static void test_killed(void **state) {
    struct fixture *f = *state;
    uint64_t bytes, pooled;
    pid_t pids[4];
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < 4; i++) {
            pids[i] = child_fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) churn(f, round * 4 + i + 1);
        }
        for (int i = 0; i < 4; i++) {
            int status;
            usleep((useconds_t)(5000 + 1700 * i + 311 * round));
            assert_int_equal(blasd_store_sweep(f->place.store, keeps_none, NULL, &f->err) >= 0, 1);
            assert_int_equal(kill(pids[i], SIGKILL), 0);
            assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
            assert_true(WIFSIGNALED(status)); /* it had not ended by itself: nothing was wrong */
        }
    }
    while (blasd_store_sweep(f->place.store, keeps_none, NULL, &f->err) > 0) continue;
    make_and_remove(f, MIB); /* whatever several givers did at a time, the next one puts right */
    in_pool(f, &pooled);
    assert_true(pooled <= LIMIT);
    /* no blob is left but files that are empty because their maker was killed as it began */
    count_files(f->place.dir, &bytes, NULL);
    assert_int_equal(bytes, 0);
}

static bool write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return written;
}

/* A tmpfs of 8 MiB of this process' own, where it may have one. */
static bool small_tmpfs(const char *path) {
    char ids[64];
    snprintf(ids, sizeof ids, "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
    if (unshare(CLONE_NEWNS) != 0 &&
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !write_text("/proc/self/uid_map", ids)))
        return false;
    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return mount("tmpfs", path, "tmpfs", 0, "size=8m") == 0;
}

static int fill_small(const char *path) {
    struct fixture *f;
    struct blasd_blob blob;
    uint64_t free_bytes, all_bytes, bytes;
    char name[BLASD_BLOB_NAME];
    if (!small_tmpfs(path)) return 77;
    if (setup_at((void **)&f, path) != 0) return 1;
    make_and_remove(f, 3 * MIB);
    if (in_pool(f, &bytes) != 1) return 2;
    blasd_store_space(f->place.store, &free_bytes, &all_bytes); /* what is kept counts as free */
    if (free_bytes + 64 * 1024 < 8 * MIB) return 3;
    new_name(name);
    if (blasd_blob_obtain(f->place.store, name, 0, &blob, &f->err) != 0) return 4;
    /* mapped still by this process, the file in the pool makes room all the same */
    if (blasd_blob_grow(&blob, 7 * MIB, &f->err) != 0) return 5;
    if (in_pool(f, &bytes) != 0) return 6;
    if (blasd_blob_grow(&blob, 9 * MIB, &f->err) != -BLASD_E_no_space) return 7;
    blasd_blob_close(&blob);
    return teardown((void **)&f) == 0 ? 0 : 8;
}

static void test_full(void **state) {
    struct fixture *f = *state;
    int status;
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(fill_small(f->place.base));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round, setup, teardown),
        cmocka_unit_test_setup_teardown(test_never_under_a_reader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_name_that_is_another_s, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_age, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
    };
    if (access("/dev/shm", W_OK) != 0) {
        printf("no tmpfs at /dev/shm: nothing is recycled, nothing to test\n");
        return 0;
    }
    return cmocka_run_group_tests_name("store_pool", tests, NULL, NULL);
}
