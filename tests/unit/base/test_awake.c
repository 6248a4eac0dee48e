/* What is written to the device that keeps cores awake: held from the first touch until some time
 * after the last, asked once; without the device nothing happens. The device is a file here. */
#include "base/awake.h"
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define HELD 0
#define FREE 2000000000

struct device {
    char path[32];
    int fd;
};

static struct device device_new(void) {
    struct device device = {.path = "/tmp/blasd-awake-XXXXXX"};
    device.fd = mkstemp(device.path);
    assert_true(device.fd >= 0);
    return device;
}

static void device_free(struct device *device) {
    unlink(device->path);
    close(device->fd);
}

/* The requests written so far, in order; how many. */
static int requests(const struct device *device, int32_t *out, int most) {
    ssize_t got = pread(device->fd, out, (size_t)most * sizeof *out, 0);
    assert_true(got >= 0 && got % (ssize_t)sizeof *out == 0);
    return (int)(got / (ssize_t)sizeof *out);
}

static void it_is_held_from_the_first_touch_until_some_time_after_the_last(void **state) {
    struct blasd_loop *loop = blasd_loop_new();
    struct blasd_awake awake;
    struct device device = device_new();
    int32_t said[32];
    (void)state;
    assert_true(blasd_awake_open(&awake, loop, device.path, 50));
    assert_int_equal(requests(&device, said, 32), 0);
    int64_t touched = 0;
    for (int i = 0; i < 4; i++) { /* together longer than it is held after one */
        touched = blasd_clock_ns();
        blasd_awake_touch(&awake);
        blasd_awake_touch(&awake); /* asks for nothing more */
        assert_int_equal(requests(&device, said, 32) % 2, 1);
        blasd_loop_step(loop, 20);
    }
    while (awake.held) blasd_loop_step(loop, -1);
    assert_true(blasd_clock_ns() - touched >= INT64_C(50000000));
    int count = requests(&device, said, 32);
    assert_true(count >= 2 && count % 2 == 0); /* more where the machine stood still */
    for (int i = 0; i < count; i++) assert_int_equal(said[i], i % 2 == 0 ? HELD : FREE);
    blasd_awake_touch(&awake); /* and again */
    assert_int_equal(requests(&device, said, 32), count + 1);
    assert_int_equal(said[count], HELD);
    blasd_awake_close(&awake);
    blasd_awake_close(&awake);
    device_free(&device);
    blasd_loop_free(loop);
}

static void without_a_device_or_a_time_nothing_is_held(void **state) {
    struct blasd_loop *loop = blasd_loop_new();
    struct blasd_awake awake;
    struct device device = device_new();
    int32_t said[8];
    (void)state;
    assert_false(blasd_awake_open(&awake, loop, NULL, 50));
    blasd_awake_touch(&awake);
    assert_false(blasd_awake_open(&awake, loop, "/nowhere/at/all", 50));
    blasd_awake_touch(&awake);
    blasd_awake_close(&awake);
    assert_false(blasd_awake_open(&awake, loop, device.path, 0));
    blasd_awake_touch(&awake);
    assert_false(awake.held);
    blasd_awake_close(&awake);
    assert_int_equal(requests(&device, said, 8), 0);
    device_free(&device);
    blasd_loop_free(loop);
}

static void a_device_that_takes_no_requests_is_asked_once(void **state) {
    struct blasd_loop *loop = blasd_loop_new();
    struct blasd_awake awake;
    (void)state;
    assert_true(blasd_awake_open(&awake, loop, "/dev/full", 50));
    blasd_awake_touch(&awake);
    assert_false(awake.held);
    assert_int_equal(awake.fd, -1);
    blasd_awake_touch(&awake);
    blasd_awake_close(&awake);
    blasd_loop_free(loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_held_from_the_first_touch_until_some_time_after_the_last),
        cmocka_unit_test(without_a_device_or_a_time_nothing_is_held),
        cmocka_unit_test(a_device_that_takes_no_requests_is_asked_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
