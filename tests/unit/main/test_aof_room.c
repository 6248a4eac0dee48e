/* What is held on the disk for the append-only file, and when space is short. On the disk of /tmp,
 * whose free space is not of this test's making; tests/integration/test_disk.py fills real ones. */
#include "tests/unit/queue/redis_fixture.h"

#include "main/aof_room.h"

#include <fcntl.h>
#include <sys/stat.h>

#define RESERVE (8 * BLASD_MIB)
#define FIRST "appendonlydir/appendonly.aof.1.incr.aof"
#define TENTH "appendonlydir/appendonly.aof.10.incr.aof"
#define BASE "appendonlydir/appendonly.aof.1.base.rdb"

static struct stat look_at(const char *dir, const char *name) {
    char path[128];
    struct stat info = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (stat(path, &info) != 0) info.st_size = -1;
    return info;
}

static void append(const char *dir, const char *name, size_t bytes) {
    char path[128], *text = calloc(1, bytes + 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0 && text != NULL);
    assert_int_equal(write(fd, text, bytes), bytes);
    close(fd);
    free(text);
}

static uint64_t allocated(const char *dir, const char *name) {
    return (uint64_t)look_at(dir, name).st_blocks * 512;
}

static int dir_new(void **state) {
    static char dir[32];
    char files[64];
    snprintf(dir, sizeof dir, "/tmp/test_aof_room.XXXXXX");
    if (mkdtemp(dir) == NULL) return -1;
    snprintf(files, sizeof files, "%s/appendonlydir", dir);
    *state = dir;
    return mkdir(files, 0700);
}

static int dir_free(void **state) {
    struct redis redis = {.pid = 0};
    snprintf(redis.dir, sizeof redis.dir, "%s", (char *)*state);
    redis_stop(&redis);
    return 0;
}

/* Blocks lie behind the end of the newest file alone, and nobody who reads it sees them. */
static void test_ahead_of_the_newest(void **state) {
    const char *dir = *state;
    struct blasd_aof_room room;
    append(dir, FIRST, 1000);
    blasd_aof_room_open(&room, dir, RESERVE);
    assert_int_equal(room.reserve, RESERVE);
    assert_false(room.is_short);
    assert_int_equal(look_at(dir, FIRST).st_size, 1000);
    assert_true(allocated(dir, FIRST) >= 1000 + RESERVE / 2);
    for (int i = 0; i < 20; i++) { /* far more than was held at first */
        append(dir, FIRST, BLASD_MIB);
        blasd_aof_room_look(&room);
        assert_true(allocated(dir, FIRST) >= (uint64_t)look_at(dir, FIRST).st_size + RESERVE / 4);
    }
    append(dir, TENTH, 1000); /* a rewrite begins: 10 comes after 1, whatever the letters say */
    blasd_aof_room_look(&room);
    assert_true(allocated(dir, TENTH) >= 1000 + RESERVE / 2);
    assert_true(allocated(dir, FIRST) < (uint64_t)look_at(dir, FIRST).st_size + BLASD_MIB);
    assert_int_equal(look_at(dir, FIRST).st_size, 1000 + 20 * BLASD_MIB);
}

/* Redis makes the file of a rewrite, cannot write the manifest for the disk is full, and goes on
 * with the one that it had. */
static void test_ahead_of_the_one_in_the_manifest(void **state) {
    static const char manifest[] = "file appendonly.aof.1.base.rdb seq 1 type b\n"
                                   "file appendonly.aof.1.incr.aof seq 1 type i\n";
    const char *dir = *state;
    struct blasd_aof_room room;
    char path[128];
    FILE *file;
    snprintf(path, sizeof path, "%s/appendonlydir/appendonly.aof.manifest", dir);
    file = fopen(path, "we");
    assert_non_null(file);
    fputs(manifest, file);
    fclose(file);
    append(dir, FIRST, 1000);
    blasd_aof_room_open(&room, dir, RESERVE);
    append(dir, TENTH, 0);
    blasd_aof_room_look(&room);
    assert_true(allocated(dir, FIRST) >= 1000 + RESERVE / 2);
    append(dir, FIRST, 3 * BLASD_MIB);
    blasd_aof_room_look(&room);
    assert_true(allocated(dir, FIRST) >= (uint64_t)look_at(dir, FIRST).st_size + RESERVE / 4);
    assert_true(allocated(dir, TENTH) < BLASD_MIB);
}

/* What is free is left to the rewrite. */
static void test_nothing_ahead_while_rewriting(void **state) {
    const char *dir = *state;
    struct blasd_aof_room room;
    blasd_aof_room_open(&room, dir, RESERVE);
    append(dir, FIRST, 1000);
    room.rewriting = true;
    blasd_aof_room_look(&room);
    assert_true(allocated(dir, FIRST) < RESERVE / 2);
    room.rewriting = false;
    blasd_aof_room_look(&room);
    assert_true(allocated(dir, FIRST) >= RESERVE / 2);
}

static void test_ballast(void **state) {
    const char *dir = *state;
    struct blasd_aof_room room;
    blasd_aof_room_open(&room, dir, RESERVE);
    assert_true(room.has_ballast);
    assert_true(allocated(dir, "ballast") >= RESERVE / 2);
    blasd_aof_room_drop_ballast(&room);
    assert_int_equal(look_at(dir, "ballast").st_size, -1);
    blasd_aof_room_look(&room); /* there is room: it is put back */
    assert_true(room.has_ballast && allocated(dir, "ballast") >= RESERVE / 2);
    blasd_aof_room_open(&room, dir, RESERVE * 2); /* one of another size than it had */
    assert_true(allocated(dir, "ballast") >= RESERVE);
}

/* More is to be free than the disk has. */
static void test_short(void **state) {
    const char *dir = *state;
    struct blasd_aof_room room;
    append(dir, "ballast", 4096);
    blasd_aof_room_open(&room, dir, 1024 * BLASD_TIB);
    assert_true(room.is_short);
    assert_false(room.has_ballast);
    assert_int_equal(look_at(dir, "ballast").st_size, -1);
    room.reserve = RESERVE; /* as if so much had become free */
    blasd_aof_room_look(&room);
    assert_false(room.is_short);
    assert_true(room.has_ballast);
}

/* Who asks for it gets it although space is short, and what is held already stays as it is. */
static void test_ballast_is_held_when_asked_for(void **state) {
    const char *dir = *state;
    struct blasd_aof_room room;
    blasd_aof_room_open(&room, dir, 1024 * BLASD_TIB);
    room.reserve = RESERVE;
    assert_true(room.is_short && !room.has_ballast);
    blasd_aof_room_hold_ballast(&room);
    assert_true(room.has_ballast && allocated(dir, "ballast") >= RESERVE / 2);
    append(dir, "ballast", 1);
    blasd_aof_room_hold_ballast(&room);
    assert_int_equal(look_at(dir, "ballast").st_size, RESERVE / 2 + 1);
}

/* Not at the very line at which it began. */
static void test_short_until_there_is_some_more(void **state) {
    const char *dir = *state;
    struct blasd_aof_room room;
    blasd_aof_room_open(&room, dir, RESERVE);
    uint64_t free_bytes = room.free_bytes;
    blasd_aof_room_drop_ballast(&room);
    room.is_short = true;
    room.reserve = free_bytes - free_bytes / 16; /* less than is free, but not by so much */
    blasd_aof_room_look(&room);
    assert_true(room.is_short && !room.has_ballast);
    room.is_short = false;
    blasd_aof_room_look(&room);
    assert_false(room.is_short);
}

static void test_when_a_rewrite_helps(void **state) {
    const char *dir = *state;
    struct blasd_aof_room room;
    append(dir, BASE, 4 * BLASD_MIB);
    append(dir, FIRST, BLASD_MIB);
    blasd_aof_room_open(&room, dir, RESERVE);
    assert_int_equal(room.bytes, 5 * BLASD_MIB);
    assert_int_equal(room.appended, BLASD_MIB);
    assert_false(blasd_aof_room_rewritable(&room));
    append(dir, FIRST, 4 * BLASD_MIB);
    blasd_aof_room_look(&room);
    assert_true(blasd_aof_room_rewritable(&room));
}

static void test_size_of_a_rewrite(void **state) {
    struct blasd_aof_room room = {.free_bytes = 40 * BLASD_MIB, .bytes = 8 * BLASD_MIB};
    (void)state;
    assert_int_equal(blasd_aof_room_rewrite_bytes(&room), 12 * BLASD_MIB);
    room.free_bytes = 0;
    room.bytes = 0;
    assert_int_equal(blasd_aof_room_rewrite_bytes(&room), BLASD_MIB);
    room.free_bytes = BLASD_TIB;
    assert_int_equal(blasd_aof_room_rewrite_bytes(&room), 2 * BLASD_GIB);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, dir_new, dir_free)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_ahead_of_the_newest),
        TEST(test_ahead_of_the_one_in_the_manifest),
        TEST(test_nothing_ahead_while_rewriting),
        TEST(test_ballast),
        TEST(test_short),
        TEST(test_ballast_is_held_when_asked_for),
        TEST(test_short_until_there_is_some_more),
        TEST(test_when_a_rewrite_helps),
        cmocka_unit_test(test_size_of_a_rewrite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
