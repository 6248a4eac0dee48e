/* What the card says of itself, and what a batch drew: the backend over a library with NVML's names
 * that make builds beside this program. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/device.h"

#include "fake_nvml_load.h"

static struct fake_nvml *fake; /* the library's own */

static int setup(void **state) {
    (void)state;
    if (fake == NULL) fake = fake_nvml_load();
    assert_non_null(fake);
    *fake = (struct fake_nvml){
        .percent = 37, .milliwatts = 250500, .available = 12345, .millijoules = 7000000};
    blasd_cuda_tuning.energy_ns = 0;
    return 0;
}

static struct blasd_device *open_device(void) {
    struct blasd_device *device;
    struct blasd_err err;
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    return device;
}

static void a_device_tells_what_its_card_tells(void **state) {
    struct blasd_device *device = open_device();
    struct blasd_device_info info;
    struct blasd_err err;
    (void)state;
    assert_string_equal(fake->bus_id, device->facts.bus_id);
    assert_int_equal(blasd_backend.device_info(device, false, &info, &err), 0);
    assert_int_equal(info.busy_percent, 37);
    assert_true(info.power_watts == 250.5);
    assert_true(info.energy_joules == 7000);
    assert_true(info.memory_free_bytes == 12345);
    fake->no_utilization = fake->no_memory = fake->no_power = fake->no_energy = true;
    assert_int_equal(blasd_backend.device_info(device, false, &info, &err), 0);
    assert_int_equal(info.busy_percent, -1);
    assert_true(info.power_watts == 0);
    assert_true(info.energy_joules == 0);
    assert_true(info.memory_free_bytes == device->facts.memory_free_bytes);
    blasd_backend.device_close(device);
    assert_int_equal(fake->inits, 1);
    assert_int_equal(fake->shutdowns, 1);
}

/* A slice of a card does not pass the whole card's load, memory and energy off as its own. */
static void a_slice_says_nothing_of_its_card(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct blasd_device *device;
        struct blasd_device_info info;
        struct blasd_err err;
        bool slice = i == 0;
        *fake = (struct fake_nvml){.percent = 37, .available = 12345, .millijoules = 7000000};
        fake->mig = slice;
        fake->no_mig = i == 2; /* a card that cannot be cut up */
        device = open_device();
        assert_int_equal(blasd_backend.device_info(device, false, &info, &err), 0);
        assert_int_equal(info.busy_percent, slice ? -1 : 37);
        assert_true(info.energy_joules == (slice ? 0 : 7000));
        assert_true(info.memory_free_bytes == (slice ? device->facts.memory_free_bytes : 12345));
        blasd_backend.device_close(device);
        assert_int_equal(fake->inits, 1);
        assert_int_equal(fake->shutdowns, 1);
    }
}

/* A library that is not there, does not start, or does not know the card: the device opens. */
static void without_nvml_a_device_opens(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct blasd_device *device;
        fake->init_fails = i == 0;
        fake->unknown = i == 1;
        if (i == 2) blasd_nvml_library = "/nowhere/libnvidia-ml.so.1";
        device = open_device();
        assert_null(device->nvml);
        blasd_backend.device_close(device);
    }
    blasd_nvml_library = fake_nvml_path;
    assert_int_equal(fake->inits, 2);
    assert_int_equal(fake->shutdowns, 1); /* of the one that had started */
}

/* Runs a batch of products and gives the energy that its tasks were told, all the same. */
static double energy_of(struct blasd_device *device, int count) {
    const struct blasd_kernel *kernel =
        blasd_backend_kernel(&blasd_backend, blasd_op_find("matmul"));
    struct trial *trials[8];
    struct blasd_task tasks[8];
    struct blasd_err err;
    double joules;
    for (int i = 0; i < count; i++) {
        trials[i] = trial_new("matmul");
        trial_input(trials[i], "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){30, 30});
        trial_input(trials[i], "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){30, 30});
        assert_int_equal(trial_plan(trials[i]), BLASD_OK);
        trial_bind(trials[i]);
        tasks[i] = trials[i]->task;
    }
    assert_int_equal(kernel->run(device, tasks, count, NULL, &err), 0);
    joules = tasks[0].energy_joules;
    for (int i = 0; i < count; i++) {
        assert_true(tasks[i].energy_joules == joules);
        trial_free(trials[i]);
    }
    return joules;
}

static void a_batch_is_told_what_it_drew(void **state) {
    struct blasd_device *device = open_device();
    (void)state;
    fake->step = 2500;
    for (int i = 0; i < 20; i++) {
        unsigned long long before = fake->millijoules + fake->step; /* at its begin */
        double joules = energy_of(device, 1 + i % 8);
        assert_true(joules > 0);
        assert_true(joules <= (double)(fake->millijoules - before) / 1e3 * (1 + 1e-9));
    }
    blasd_backend.device_close(device);
}

/* Small batches far apart from readings have the power of the span before; no reading, no figure.
 */
static void the_counter_is_read_now_and_then(void **state) {
    struct blasd_device *device = open_device();
    int readings;
    (void)state;
    fake->step = 2500;
    blasd_cuda_tuning.energy_ns = INT64_C(3600000000000);
    assert_true(energy_of(device, 2) == 0); /* read once, as it began: no span yet */
    assert_int_equal(fake->readings, 1);
    blasd_cuda_tuning.energy_ns = 0;
    assert_true(energy_of(device, 2) > 0);
    blasd_cuda_tuning.energy_ns = INT64_C(3600000000000);
    readings = fake->readings;
    device->energy.before.at_ns = device->energy.last.at_ns - 1000000;
    assert_true(energy_of(device, 2) > 0);
    device->energy.before.at_ns = device->energy.last.at_ns - INT64_C(100000000000);
    assert_true(energy_of(device, 2) == 0); /* a span too long ago says nothing */
    assert_int_equal(fake->readings, readings);
    blasd_backend.device_close(device);
}

static void a_card_without_a_counter_tells_nothing(void **state) {
    struct blasd_device *device = open_device();
    (void)state;
    fake->no_energy = true;
    for (int i = 0; i < 4; i++) assert_true(energy_of(device, 3) == 0);
    fake->no_energy = false; /* a counter that stands still draws nothing */
    for (int i = 0; i < 4; i++) assert_true(energy_of(device, 3) == 0);
    blasd_backend.device_close(device);
}

/* Two batches in hand at once: together they draw no more than the card. */
static void overlapping_batches_share_the_time(void **state) {
    struct blasd_device *device = open_device();
    const struct blasd_kernel *kernel =
        blasd_backend_kernel(&blasd_backend, blasd_op_find("matmul"));
    (void)state;
    fake->step = 1000;
    for (int round = 0; round < 10; round++) {
        struct trial *trials[2];
        struct blasd_async_batch *batches[2];
        struct blasd_err err;
        int64_t begun[2], ended[2];
        double joules = 0;
        unsigned long long before = fake->millijoules;
        for (int i = 0; i < 2; i++) {
            trials[i] = trial_new("matmul");
            trial_input(trials[i], "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){40, 40});
            trial_input(trials[i], "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){40, 40});
            assert_int_equal(trial_plan(trials[i]), BLASD_OK);
            trial_bind(trials[i]);
            assert_int_equal(kernel->begin(device, &trials[i]->task, 1, NULL, &batches[i], &err),
                             0);
            begun[i] = batches[i]->begun_ns;
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(kernel->end(batches[i], &err), 0);
            ended[i] = device->energy.ended_ns;
            assert_true(trials[i]->task.energy_joules > 0);
            joules += trials[i]->task.energy_joules;
            trial_free(trials[i]);
        }
        assert_true(begun[1] < ended[0]);
        assert_true(joules <= (double)(fake->millijoules - before) / 1e3);
    }
    blasd_backend.device_close(device);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(a_device_tells_what_its_card_tells), TEST(a_slice_says_nothing_of_its_card),
        TEST(without_nvml_a_device_opens),        TEST(a_batch_is_told_what_it_drew),
        TEST(the_counter_is_read_now_and_then),   TEST(a_card_without_a_counter_tells_nothing),
        TEST(overlapping_batches_share_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
