/* Mappings as who watches is told of them: those whose pages stay, once, and before they go. A
 * driver that has pinned a file's pages never looks at the file again. */
#include "base/clock.h"
#include "store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MIB (UINT64_C(1) << 20)
#define MOST 64

struct fixture {
    struct store_place place;   /* the front end's: it writes inputs */
    struct blasd_store *worker; /* maps them, and watches */
};

static struct {
    void *memory[MOST];
    uint64_t bytes[MOST];
    int count, came, went;
} told;

static void comes(void *arg, void *memory, uint64_t bytes, bool writable) {
    (void)arg;
    assert_true(told.count < MOST);
    for (int i = 0; i < told.count; i++) assert_ptr_not_equal(told.memory[i], memory);
    (void)writable;
    told.memory[told.count] = memory;
    told.bytes[told.count++] = bytes;
    told.came++;
}

static void goes(void *arg, void *memory) {
    unsigned char resident[MOST * MIB / 4096];
    int at = 0;
    (void)arg;
    while (at < told.count && told.memory[at] != memory) at++;
    assert_true(at < told.count);
    assert_int_equal(mincore(memory, told.bytes[at], resident), 0); /* it is mapped still */
    told.count--;
    told.memory[at] = told.memory[told.count];
    told.bytes[at] = told.bytes[told.count];
    told.went++;
}

static int setup(void **state) {
    static const struct blasd_store_watch watch = {comes, goes, NULL};
    struct fixture *f = calloc(1, sizeof *f);
    struct blasd_err err;
    *state = f;
    memset(&told, 0, sizeof told);
    if (store_place_open_at(&f->place, "/dev/shm") != 0 ||
        blasd_store_open(f->place.spec, &f->worker, &err) != 0)
        return -1;
    blasd_store_recycle(f->place.store, MOST * MIB);
    blasd_store_recycle(f->worker, MOST * MIB);
    blasd_store_watch(f->worker, &watch);
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    int code;
    blasd_store_free(f->worker);
    assert_int_equal(told.count, 0);
    code = store_place_close(&f->place);
    free(f);
    return code;
}

/* A new blob of so many bytes, the first of which is `mark`; tells whether its file was used. */
static bool write_blob(struct blasd_store *store, char name[BLASD_BLOB_NAME], uint64_t bytes,
                       char mark) {
    char id[BLASD_ID_LEN + 1];
    struct blasd_blob blob;
    struct blasd_err err;
    bool recycled;
    blasd_id_new(BLASD_ID_ASYNC, blasd_clock_wall_us(), id);
    snprintf(name, BLASD_BLOB_NAME, "%s.in", id);
    assert_int_equal(blasd_blob_obtain(store, name, bytes, &blob, &err), 0);
    recycled = blob.recycled;
    assert_int_equal(blasd_blob_fit(&blob, bytes, &err), 0);
    assert_int_equal(blasd_blob_write(&blob, 0, &mark, 1, &err), 0);
    assert_int_equal(blasd_blob_write(&blob, bytes - 1, &mark, 1, &err), 0);
    blasd_blob_close(&blob);
    return recycled;
}

/* The worker reads it and is done with it: where it lay. */
static void *read_blob(struct fixture *f, const char *name, uint64_t bytes, char mark) {
    struct blasd_blob blob;
    struct blasd_err err;
    void *where;
    assert_int_equal(blasd_blob_open(f->worker, name, bytes, &blob, &err), 0);
    assert_int_equal(blasd_blob_map(&blob, &err), 0);
    where = blob.data;
    assert_int_equal(((char *)where)[0], mark);
    assert_int_equal(((char *)where)[bytes - 1], mark);
    blasd_blob_close(&blob);
    return where;
}

static void a_file_that_comes_again_is_told_once(void **state) {
    struct fixture *f = *state;
    char name[BLASD_BLOB_NAME];
    for (char i = 1; i < 6; i++) {
        void *where;
        assert_true(write_blob(f->place.store, name, 4 * MIB, i) == (i > 1));
        where = read_blob(f, name, 4 * MIB, i);
        assert_ptr_equal(where, told.memory[0]);
        assert_int_equal(told.came, 1);
        assert_int_equal(told.bytes[0], 4 * MIB);
        blasd_store_remove(f->place.store, name);
    }
    assert_int_equal(told.went, 0);
    blasd_store_trim(f->worker); /* not idle for long enough */
    assert_int_equal(told.went, 0);
    blasd_store_watch(f->worker, NULL); /* the device is closed: nobody is to be told */
    told.count = 0;
}

/* Cut, then grown: the mapping that was kept shows other pages behind the cut. */
static void a_file_that_was_cut_is_not_what_it_was(void **state) {
    struct fixture *f = *state;
    char name[BLASD_BLOB_NAME];
    void *where;
    write_blob(f->place.store, name, 8 * MIB, 1);
    where = read_blob(f, name, 8 * MIB, 1);
    assert_int_equal(told.came, 1);
    blasd_store_remove(f->place.store, name);
    assert_true(write_blob(f->place.store, name, 7 * MIB, 2));
    blasd_store_remove(f->place.store, name); /* the worker has not seen this one */
    assert_true(write_blob(f->place.store, name, 8 * MIB, 3));
    assert_ptr_equal(read_blob(f, name, 8 * MIB, 3), where);
    assert_int_equal(told.went, 1);
    blasd_store_remove(f->place.store, name);
    assert_true(write_blob(f->place.store, name, 9 * MIB, 4)); /* nor in a new mapping */
    assert_ptr_not_equal(read_blob(f, name, 9 * MIB, 4), where);
    assert_int_equal(told.came, 1);
    blasd_store_remove(f->place.store, name);
}

static void a_result_that_is_cut_goes(void **state) {
    struct fixture *f = *state;
    char name[BLASD_BLOB_NAME], id[BLASD_ID_LEN + 1];
    struct blasd_blob blob;
    struct blasd_err err;
    blasd_id_new(BLASD_ID_ASYNC, blasd_clock_wall_us(), id);
    snprintf(name, sizeof name, "%s.out", id);
    assert_int_equal(blasd_blob_obtain(f->worker, name, 8 * MIB, &blob, &err), 0);
    assert_int_equal(blasd_blob_fit(&blob, 8 * MIB, &err), 0);
    assert_int_equal(blasd_blob_map(&blob, &err), 0);
    assert_int_equal(told.came, 1);
    blasd_blob_unmap(&blob);
    assert_int_equal(blasd_blob_fit(&blob, 4 * MIB, &err), 0);
    assert_int_equal(blasd_blob_map(&blob, &err), 0);
    assert_int_equal(told.went, 1);
    blasd_blob_close(&blob);
    blasd_store_remove(f->worker, name);
}

static void what_a_client_may_cut_is_not_told(void **state) {
    struct fixture *f = *state;
    char name[BLASD_BLOB_NAME], path[192];
    write_blob(f->place.store, name, 4 * MIB, 1);
    snprintf(path, sizeof path, "%s/%s", f->place.dir, name);
    assert_int_equal(chmod(path, S_ISVTX | S_IRUSR | S_IWUSR), 0); /* as store_shared.c does */
    read_blob(f, name, 4 * MIB, 1);
    assert_int_equal(told.came, 0);
    write_blob(f->place.store, name, 64 << 10, 1); /* nor what is too small to be kept */
    read_blob(f, name, 64 << 10, 1);
    assert_int_equal(told.came, 0);
}

static void what_makes_way_is_told_to_go(void **state) {
    struct fixture *f = *state;
    char name[BLASD_BLOB_NAME];
    for (char i = 1; i < 12; i++) { /* 96 MiB, of which 64 may be kept */
        write_blob(f->place.store, name, 8 * MIB + (uint64_t)i * 4096, i);
        read_blob(f, name, 8 * MIB + (uint64_t)i * 4096, i);
    }
    assert_int_equal(told.came, 11);
    assert_true(told.went > 0 && told.count > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_that_comes_again_is_told_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_was_cut_is_not_what_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(a_result_that_is_cut_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_client_may_cut_is_not_told, setup, teardown),
        cmocka_unit_test_setup_teardown(what_makes_way_is_told_to_go, setup, teardown),
    };
    struct store_place place;
    if (store_place_open_at(&place, "/dev/shm") != 0) {
        printf("no tmpfs at /dev/shm: nothing is kept, nothing to test\n");
        return 0;
    }
    store_place_close(&place);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
