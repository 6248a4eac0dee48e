/* Small things done with files: every byte is written, a value is found by its whole key. */
#include "base/file.h"
#include "base/id.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MANY (1 << 20)

static void *read_slowly(void *arg) {
    char *all = malloc(MANY + 1);
    size_t got = 0;
    ssize_t n;
    while ((n = read(*(int *)arg, all + got, MANY - got < 777 ? MANY + 1 - got : 777)) > 0)
        got += (size_t)n;
    all[got] = '\0';
    return all;
}

static void all_is_written_though_a_call_takes_less(void **state) {
    static int ends[2];
    pthread_t reader;
    void *seen;
    char *bytes = malloc(MANY + 1);
    (void)state;
    for (int i = 0; i < MANY; i++) bytes[i] = (char)('a' + i % 23);
    bytes[MANY] = '\0';
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    assert_int_equal(pthread_create(&reader, NULL, read_slowly, &ends[0]), 0);
    assert_int_equal(blasd_write_all(ends[1], bytes, MANY), 0);
    close(ends[1]);
    pthread_join(reader, &seen);
    assert_string_equal(seen, bytes);
    close(ends[0]);
    free(seen);
    free(bytes);
}

static void what_cannot_be_written_is_said(void **state) {
    int fd = open("/dev/full", O_WRONLY);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(blasd_write_all(fd, "x", 1), -1);
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(blasd_write_all(fd, "", 0), 0);
    close(fd);
}

static void values_by_key(void **state) {
    char path[] = "/tmp/blasd-file-XXXXXX", value[8];
    int fd = mkstemp(path);
    (void)state;
    assert_int_equal(blasd_write_all(fd, "model name\t: A B C D E F\nmodel\t\t: 17\nempty :\n", 45),
                     0);
    blasd_file_value(path, "model\t", value, sizeof value);
    assert_string_equal(value, "17");
    blasd_file_value(path, "model name", value, sizeof value);
    assert_string_equal(value, "A B C D"); /* as much as there is room for */
    blasd_file_value(path, "empty", value, sizeof value);
    assert_string_equal(value, "");
    blasd_file_value(path, "missing", value, sizeof value);
    assert_string_equal(value, "");
    unlink(path);
    close(fd);
    blasd_file_value(path, "model", value, sizeof value);
    assert_string_equal(value, "");
}

static void random_digits(void **state) {
    char a[42], b[42];
    (void)state;
    memset(a, 'x', sizeof a);
    blasd_random_hex(a, 40);
    blasd_random_hex(b, 40);
    assert_int_equal(strspn(a, "0123456789abcdef"), 40);
    assert_int_equal(a[40], '\0');
    assert_int_equal(a[41], 'x');
    assert_string_not_equal(a, b);
}

static void a_file_is_replaced_whole(void **state) {
    char dir[] = "/tmp/blasd-file-XXXXXX", path[64];
    size_t len = 0;
    char *text;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file", dir);
    assert_int_equal(blasd_file_replace(path, "first", 5), 0);
    assert_int_equal(blasd_file_replace(path, "then", 4), 0);
    text = blasd_file_read(path, 4, &len);
    assert_int_equal(len, 4);
    assert_string_equal(text, "then");
    free(text);
    errno = 0;
    assert_null(blasd_file_read(path, 3, &len)); /* too long */
    assert_int_equal(errno, EFBIG);
    errno = ENOENT; /* it is there, whatever was before */
    assert_null(blasd_file_read(dir, 4096, &len));
    assert_int_equal(errno, EISDIR);
    assert_int_equal(blasd_file_replace(dir, "x", 1), -1); /* it is a folder */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0); /* nothing else is left */
}

static void what_is_kept_is_whole_or_not_there(void **state) {
    char dir[] = "/tmp/blasd-file-XXXXXX", path[64], *text, *all;
    size_t len = 0;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/found", dir);
    assert_null(blasd_kept_load(dir, "found", "key", 64));
    assert_int_equal(blasd_kept_save(dir, "found", "key", "what was found", false), 0);
    assert_non_null(text = blasd_kept_load(dir, "found", "key", 64));
    assert_string_equal(text, "what was found\n");
    free(text);
    assert_null(blasd_kept_load(dir, "found", "another key", 64));
    assert_non_null(all = blasd_file_read(path, 128, &len));
    for (size_t cut = 0; cut < len; cut++) { /* as a machine that goes down may leave it */
        assert_int_equal(blasd_file_replace(path, all, cut), 0);
        assert_null(blasd_kept_load(dir, "found", "key", 64));
    }
    free(all);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_written_though_a_call_takes_less),
        cmocka_unit_test(what_cannot_be_written_is_said),
        cmocka_unit_test(values_by_key),
        cmocka_unit_test(random_digits),
        cmocka_unit_test(a_file_is_replaced_whole),
        cmocka_unit_test(what_is_kept_is_whole_or_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
