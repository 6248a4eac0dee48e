/* --low-latency: what is written to the device, and that it stays open. The device is a file here.
 */
#include "main/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Descriptors of this process that are `path`. */
static int holders(const char *path) {
    int count = 0;
    for (int fd = 0; fd < 256; fd++) {
        char link[32], target[256];
        ssize_t len;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        len = readlink(link, target, sizeof target - 1);
        if (len < 0) continue;
        target[len] = '\0';
        count += strcmp(target, path) == 0;
    }
    return count;
}

static void no_latency_is_asked_for_and_held(void **state) {
    char path[] = "/tmp/blasd-latency-XXXXXX";
    int32_t said[2] = {-1, -1};
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(hold_low_latency(path), 0);
    assert_int_equal(pread(fd, said, sizeof said, 0), sizeof *said);
    assert_int_equal(said[0], 0);
    close(fd);
    assert_int_equal(holders(path), 1);
    unlink(path);
}

static void a_device_that_cannot_be_had_is_an_error(void **state) {
    (void)state;
    assert_int_equal(hold_low_latency("/nowhere/at/all"), -1);
    assert_int_equal(hold_low_latency("/dev/full"), -1);
    assert_int_equal(holders("/dev/full"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_latency_is_asked_for_and_held),
        cmocka_unit_test(a_device_that_cannot_be_had_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
