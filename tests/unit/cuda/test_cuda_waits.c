/* How often the host waits for the device: for each thing that it decides, and not for each call,
 * slice or step that it puts on a stream. Counted, on the stand-in; what a wait costs a card says.
 */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

#include <sys/mman.h>

static struct blasd_device *open_device(void) {
    struct blasd_device *device;
    struct blasd_err err;
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    return device;
}

static long waits_of(struct blasd_device *device, struct trial *t) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(&blasd_backend, t->job.op);
    struct blasd_err err = {0};
    long before = blasd_standin.waits;
    assert_int_equal(kernel->run(device, &t->task, 1, &trial_watch.base, &err), 0);
    assert_int_equal(t->task.err.code, BLASD_OK);
    return blasd_standin.waits - before;
}

/* `count` systems that the host leads through; their waits, and the steps of refinement. */
static long of_systems(struct blasd_device *device, int64_t count, int64_t *steps) {
    enum { LARGE = 1030 };
    const int64_t shape[3] = {count, LARGE, LARGE};
    struct trial *t = trial_new("solve");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 3, shape);
    double *b =
        trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 3, (int64_t[]){count, LARGE, 1});
    long waits;
    for (int64_t i = 0; i < count * LARGE * LARGE; i++) a[i] = trial_uniform();
    for (int64_t i = 0; i < count * LARGE; i++) a[i * LARGE + i % LARGE] += LARGE;
    for (int64_t i = 0; i < count * LARGE; i++) b[i] = trial_uniform();
    assert_int_equal(trial_plan(t), BLASD_OK);
    trial_bind(t);
    waits = waits_of(device, t);
    *steps = 0;
    for (int64_t i = 0; i < count; i++)
        *steps += (int64_t)trial_value(trial_output(t, "refinement_steps"), i);
    trial_free(t);
    return waits;
}

/* A system is loaded, factored, its right-hand side measured, its growth, its first residual and
 * its result looked at: six; then a step of refinement, and an application of the inverse, each. */
#define OTHERWISE 6
#define APPLICATIONS 5

static void large_systems(void **state) {
    struct blasd_device *device = open_device();
    int64_t steps;
    long one = of_systems(device, 1, &steps), begun, two;
    (void)state;
    begun = one - steps;
    assert_true(steps > 0);
    assert_true(begun <= OTHERWISE + APPLICATIONS + 4); /* and the frame, for chunks that come */
    two = of_systems(device, 2, &steps);
    print_message("%ld waits of one system, %ld of two\n", one, two);
    assert_true(two - one <= OTHERWISE + APPLICATIONS + steps + 4);
    assert_int_equal(device->slots[0].pinned != NULL || device->slots[1].pinned != NULL, true);
    blasd_backend.device_close(device);
    assert_int_equal(blasd_standin.host_blocks, 0);
}

/* As many launches of gd as steps need; a wait for several of them. */
static void steps_of_gd(void **state) {
    struct blasd_device *device = open_device();
    long waits[2];
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct trial *t = trial_new("regression");
        double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){40, 2});
        double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){40});
        for (int i = 0; i < 80; i++) x[i] = trial_normal();
        for (int i = 0; i < 40; i++) y[i] = trial_normal();
        trial_set_choice(t, "method", "gd");
        trial_set_int(t, "iterations", more ? 2000 : 2);
        assert_int_equal(trial_plan(t), BLASD_OK);
        trial_bind(t);
        waits[more] = waits_of(device, t);
        trial_free(t);
    }
    assert_int_equal(waits[0], waits[1]);
    blasd_backend.device_close(device);
}

/* A watch that stops what is more than half done: for one task alone, what the host still does when
 * all has come back. */
static bool until_half(struct blasd_watch *watch, double progress) {
    (void)watch;
    return progress <= 0.5;
}

/* A proof is made on the host, and takes some ticks of the clock by which it asks. */
static void the_hosts_part_is_stopped(void **state) {
    enum { N = 200 };
    const struct blasd_kernel *kernel;
    struct blasd_watch watch = {.go_on = until_half};
    struct blasd_device *device = open_device();
    struct trial *t = trial_new("solve");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){N, N});
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){N});
    struct blasd_err err = {0};
    (void)state;
    for (int i = 0; i < N * N; i++) a[i] = trial_normal();
    for (int i = 0; i < N; i++) b[i] = trial_normal();
    kernel = blasd_backend_kernel(&blasd_backend, t->job.op);
    trial_set_bool(t, "certify", true);
    assert_int_equal(trial_plan(t), BLASD_OK);
    trial_bind(t);
    assert_int_equal(kernel->run(device, &t->task, 1, &watch, &err), -(int)BLASD_E_cancelled);
    trial_free(t);
    blasd_backend.device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_systems),
        cmocka_unit_test(steps_of_gd),
        cmocka_unit_test(the_hosts_part_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
