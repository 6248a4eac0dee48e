/* Files that are cut while they are mapped. */
#include "../child_fork.h"
#include "base/cut.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGES 16

static char *mapped(int *fd, size_t *len) {
    char *data;
    blasd_cut_init(); /* cmocka has taken the signal before each test */
    *len = PAGES * (size_t)sysconf(_SC_PAGESIZE);
    *fd = memfd_create("cut", MFD_CLOEXEC);
    assert_true(*fd >= 0 && ftruncate(*fd, (off_t)*len) == 0);
    data = mmap(NULL, *len, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    assert_true(data != MAP_FAILED);
    memset(data, 7, *len);
    return data;
}

static long sum(const char *data, size_t len) {
    long all = 0;
    for (size_t i = 0; i < len; i++) all += data[i];
    return all;
}

static void what_is_missing_is_zeros_and_told(void **state) {
    size_t len;
    int fd;
    char *data = mapped(&fd, &len);
    (void)state;
    blasd_cut_watch(data, len);
    assert_int_equal(sum(data, len), 7 * (long)len);
    assert_false(blasd_cut_seen());
    assert_int_equal(ftruncate(fd, (off_t)(len / 2)), 0);
    blasd_cut_watch(data, len);
    assert_int_equal(sum(data, len), 7 * (long)(len / 2));
    data[len - 1] = 1;
    assert_true(blasd_cut_seen());
    munmap(data, len);
    close(fd);
}

static void a_whole_file_after_a_cut_one(void **state) {
    size_t len;
    int fd, other;
    char *data = mapped(&fd, &len), *whole = mapped(&other, &len);
    (void)state;
    assert_int_equal(ftruncate(fd, 0), 0);
    blasd_cut_watch(data, len);
    assert_int_equal(sum(data, len), 0);
    blasd_cut_watch(whole, len);
    assert_int_equal(sum(whole, len), 7 * (long)len);
    assert_false(blasd_cut_seen());
    munmap(data, len);
    munmap(whole, len);
    close(fd);
    close(other);
}

/* What nobody watches ends the process, as ever. */
static void elsewhere_it_is_fatal(void **state) {
    size_t len;
    int fd, status;
    char *data = mapped(&fd, &len);
    pid_t child;
    (void)state;
    assert_int_equal(ftruncate(fd, 0), 0);
    blasd_cut_watch(data, len / 2);
    child = child_fork();
    assert_true(child >= 0);
    if (child == 0) _exit((int)sum(data + len / 2, len / 2));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
    munmap(data, len);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_zeros_and_told),
        cmocka_unit_test(a_whole_file_after_a_cut_one),
        cmocka_unit_test(elsewhere_it_is_fatal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
