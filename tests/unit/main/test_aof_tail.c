/* What a Redis that was killed while it wrote leaves at the end of its append-only file. */
#include "tests/unit/queue/redis_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#define PLAIN "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n$1\r\n"
#define NOTE "#TS:1795321940\r\n"
#define BEGIN "*1\r\n$5\r\nMULTI\r\n"
#define HALF "*2\r\n$4\r\nINCR\r\n$4\r\nhalf\r\n"
#define END "*1\r\n$4\r\nEXEC\r\n"
#define MANY "*3\r\n$3\r\nSET\r\n$1\r\nm\r\n$12\r\n*1\r\n$4\r\nEXEC\r\n" /* 12: up to "EXEC" */
#define MANIFEST                                                                                   \
    "file appendonly.aof.2.base.rdb seq 2 type b\n"                                                \
    "file appendonly.aof.2.incr.aof seq 2 type i\n"                                                \
    "file appendonly.aof.3.incr.aof seq 3 type i\n"

struct folder {
    char dir[32], manifest[80], older[80], newest[80];
};

static void put(const char *path, const char *text, size_t len) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), len);
    close(fd);
}

static long long size_of(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (long long)info.st_size : -1;
}

static struct folder folder_new(void) {
    struct folder f = {.dir = "/tmp/test_aof_tail.XXXXXX"};
    assert_non_null(mkdtemp(f.dir));
    snprintf(f.manifest, sizeof f.manifest, "%s/appendonly.aof.manifest", f.dir);
    snprintf(f.older, sizeof f.older, "%s/appendonly.aof.2.incr.aof", f.dir);
    snprintf(f.newest, sizeof f.newest, "%s/appendonly.aof.3.incr.aof", f.dir);
    put(f.manifest, MANIFEST, strlen(MANIFEST));
    return f;
}

static void folder_free(const struct folder *f) {
    unlink(f->manifest);
    unlink(f->older);
    unlink(f->newest);
    rmdir(f->dir);
}

static uint64_t repair(const char *dir) {
    struct blasd_err err;
    uint64_t cut = 99;
    if (blasd_aof_repair(dir, &cut, &err) != 0) fail_msg("%s", err.detail);
    return cut;
}

/* Torn at every byte: what is left ends with a whole command outside a transaction, or with a whole
 * transaction, and is the longest such part. */
static void test_torn_anywhere(void **state) {
    static const char *const pieces[] = {PLAIN, BEGIN HALF MANY END, NOTE,
                                         PLAIN, BEGIN HALF END,      PLAIN};
    char text[1024] = "";
    size_t bounds[8] = {0}, count = 1;
    struct folder f = folder_new();
    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        strcat(text, pieces[i]);
        bounds[count++] = strlen(text);
    }
    for (size_t len = 0; len <= strlen(text); len++) {
        size_t whole = 0;
        for (size_t i = 0; i < count; i++)
            if (bounds[i] <= len) whole = bounds[i];
        put(f.newest, text, len);
        assert_int_equal(repair(f.dir), len - whole);
        assert_int_equal(size_of(f.newest), whole);
        assert_int_equal(repair(f.dir), 0);
    }
    folder_free(&f);
}

/* The same where zero bytes follow, few or many: what a full disk leaves of a write. */
static void test_torn_before_zeros(void **state) {
    static const char whole[] = PLAIN BEGIN HALF END, half[] = BEGIN HALF END;
    char text[sizeof whole + sizeof half + 64];
    struct folder f = folder_new();
    (void)state;
    for (size_t torn = 0; torn < strlen(half); torn++)
        for (size_t zeros = 1; zeros <= 40; zeros += 13) {
            size_t len = strlen(whole) + torn;
            memcpy(text, whole, strlen(whole));
            memcpy(text + strlen(whole), half, torn);
            memset(text + len, 0, zeros);
            put(f.newest, text, len + zeros);
            repair(f.dir);
            assert_int_equal(size_of(f.newest), strlen(whole));
        }
    folder_free(&f);
}

/* Nothing is taken off a file that holds something else, nor off any but the newest. */
static void test_what_is_left_alone(void **state) {
    static const char *const foreign[] = {
        PLAIN "hello" PLAIN,
        PLAIN "*1\r\n$4\r\nEXECxx" PLAIN,
        PLAIN "*x\r\n",
        PLAIN "*1\n$1\r\na\r\n",
        PLAIN "*\r\n",
        "REDIS0010\xfa",
        PLAIN "*123456789012345678901234567890",
    };
    struct folder f = folder_new();
    (void)state;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        put(f.newest, foreign[i], strlen(foreign[i]));
        assert_int_equal(repair(f.dir), 0);
        assert_int_equal(size_of(f.newest), strlen(foreign[i]));
    }
    put(f.older, BEGIN HALF, strlen(BEGIN HALF));
    put(f.newest, PLAIN, strlen(PLAIN));
    assert_int_equal(repair(f.dir), 0);
    assert_int_equal(size_of(f.older), strlen(BEGIN HALF));
    unlink(f.newest);
    assert_int_equal(repair(f.dir), 0);
    unlink(f.manifest);
    assert_int_equal(repair(f.dir), 0);
    assert_int_equal(repair("/nowhere/at/all"), 0);
    folder_free(&f);
}

/* What a Redis leaves that found the disk full: zero bytes between commands, as many as it had
 * written of one. */
static void test_gaps_become_notes(void **state) {
    static char text[4096];
    struct folder f = folder_new();
    (void)state;
    for (size_t gap = 2; gap < 400; gap += gap < 140 ? 1 : 37) {
        size_t len = strlen(PLAIN), size = len;
        memcpy(text, PLAIN, len);
        memset(text + size, 0, gap);
        size += gap;
        memcpy(text + size, BEGIN HALF END PLAIN, strlen(BEGIN HALF END PLAIN));
        size += strlen(BEGIN HALF END PLAIN);
        put(f.newest, text, size);
        assert_int_equal(repair(f.dir), 0);
        assert_int_equal(size_of(f.newest), size);
        int fd = open(f.newest, O_RDONLY);
        assert_int_equal(read(fd, text, sizeof text), size);
        close(fd);
        assert_null(memchr(text, 0, size));
        assert_int_equal(text[len + gap - 1], '\n');
        for (size_t at = len, line = 0; at < len + gap; at++, line++) {
            if (line == 0) assert_int_equal(text[at], '#');
            assert_true(line < 127);
            if (text[at] == '\n') line = (size_t)-1;
        }
        put(f.newest, text, size);
        assert_int_equal(repair(f.dir), 0);
    }
    memset(text, 0, 100); /* at the end they are only cut */
    memcpy(text, PLAIN, strlen(PLAIN));
    put(f.newest, text, 100);
    assert_int_equal(repair(f.dir), 100 - strlen(PLAIN));
    folder_free(&f);
}

static void test_redis_passes_over_a_gap(void **state) {
    static const char gap[62], after[] = "*3\r\n$3\r\nSET\r\n$5\r\nafter\r\n$1\r\n1\r\n";
    char path[160];
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "gap");
    drop(redisCommand(bed.raw, "SET first 1"));
    redisFree(bed.raw);
    redis_end(&server, SIGKILL);
    snprintf(path, sizeof path, "%s/appendonlydir/appendonly.aof.1.incr.aof", server.dir);
    int fd = open(path, O_WRONLY | O_APPEND);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, gap, sizeof gap), sizeof gap);
    assert_int_equal(write(fd, after, sizeof after - 1), sizeof after - 1);
    close(fd);
    redis_up(&server);
    bed_connect(&bed);
    redisReply *reply = redisCommand(bed.raw, "EXISTS first after");
    assert_int_equal(reply->integer, 2);
    drop(reply);
    bed_close(&bed);
}

/* With Redis itself: half a transaction at the end of its file has no effect, however often it is
 * started after that. */
static void test_redis_never_does_half_a_transaction(void **state) {
    static const char torn[] = BEGIN HALF HALF "*2\r\n$4\r\nINCR\r\n$4\r\nha";
    char path[160];
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "torn");
    drop(redisCommand(bed.raw, "SET before 1"));
    redisFree(bed.raw);
    redis_end(&server, SIGKILL);
    snprintf(path, sizeof path, "%s/appendonlydir/appendonly.aof.1.incr.aof", server.dir);
    int fd = open(path, O_WRONLY | O_APPEND);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, torn, sizeof torn - 1), sizeof torn - 1);
    close(fd);
    redis_up(&server); /* which repairs the file */
    bed_connect(&bed);
    drop(redisCommand(bed.raw, "MULTI"));
    drop(redisCommand(bed.raw, "SET after 1"));
    drop(redisCommand(bed.raw, "EXEC"));
    redisFree(bed.raw);
    redis_end(&server, SIGKILL);
    redis_up(&server);
    bed_connect(&bed);
    redisReply *reply = redisCommand(bed.raw, "EXISTS before after");
    assert_int_equal(reply->integer, 2);
    drop(reply);
    reply = redisCommand(bed.raw, "EXISTS half");
    assert_int_equal(reply->integer, 0);
    drop(reply);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torn_anywhere),
        cmocka_unit_test(test_torn_before_zeros),
        cmocka_unit_test(test_what_is_left_alone),
        cmocka_unit_test(test_gaps_become_notes),
        cmocka_unit_test(test_redis_passes_over_a_gap),
        cmocka_unit_test(test_redis_never_does_half_a_transaction),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
