/* Cards, drivers and builds that cannot be used: each is refused with a sentence that names it and
 * says what to do, before a device is opened where that can be known. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "kernels/cuda/cuda_status.h"
#include "tests/standin/library_standin.h"

static struct blasd_standin usual;

static int setup(void **state) {
    (void)state;
    usual = blasd_standin;
    return 0;
}
static int teardown(void **state) {
    (void)state;
    blasd_standin = usual;
    blasd_standin_card(usual.major, usual.minor);
    return 0;
}

/* The device does not open, and says so with these words; the same is said beforehand. */
static void refused(const char *const *words, bool beforehand) {
    struct blasd_device *device;
    struct blasd_err err = {0}, before = {0};
    int code = blasd_backend.device_count(&before);
    if (code > 0) code = blasd_backend.device_check(0, &before);
    assert_int_equal(code < 0, beforehand);
    assert_int_equal(blasd_backend.device_open(0, &device, &err), -(int)BLASD_E_no_such_device);
    for (; *words != NULL; words++)
        if (strstr(err.detail, *words) == NULL) fail_msg("no '%s' in: %s", *words, err.detail);
    if (beforehand) assert_string_equal(err.detail, before.detail);
    assert_true(strlen(err.detail) < sizeof err.detail - 1);
    assert_int_equal(blasd_standin.streams, 0);
}
#define REFUSED(beforehand, ...) refused((const char *const[]){__VA_ARGS__, NULL}, beforehand)

static void cards_that_are_too_old(void **state) {
    struct blasd_device *device;
    struct blasd_err err;
    (void)state;
    blasd_standin_card(7, 5);
    REFUSED(true, "stand-in for a GPU (0)", "compute capability 7.5", "8.0 or later", "use");
    blasd_standin_card(7, 0);
    REFUSED(true, "compute capability 7.0");
    blasd_standin_card(5, 2);
    REFUSED(true, "compute capability 5.2");
    blasd_standin_card(8, 0);
    assert_int_equal(blasd_backend.device_check(0, &err), 0);
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    blasd_backend.device_close(device);
}

static void builds_for_newer_cards(void **state) {
    (void)state;
    blasd_standin_card(8, 6);
    blasd_standin.least = 90;
    REFUSED(true, "compute capability 8.6", "built for 9.0", "CUDA_ARCH");
}

static void drivers_that_are_too_old(void **state) {
    (void)state;
    blasd_standin.driver_status = BLASD_CUDA_InsufficientDriver;
    blasd_standin.driver_version = 11040;
    REFUSED(true, "driver is too old", "11.4", "13.0", "update the driver");
    blasd_standin.driver_version = 0;
    REFUSED(true, "driver does not answer", "nvidia-smi", "--gpus all");
}

/* Never "there are 0 devices". */
static void a_driver_that_shows_no_card(void **state) {
    (void)state;
    blasd_standin.device_count = 0;
    REFUSED(true, "shows this process no card", "CUDA_VISIBLE_DEVICES");
    blasd_standin.driver_status = BLASD_CUDA_NoDevice;
    REFUSED(true, "shows this process no card", "CUDA_VISIBLE_DEVICES");
}

static void drivers_in_trouble(void **state) {
    static const struct {
        int status;
        const char *word;
    } cases[] = {{BLASD_CUDA_StubLibrary, "stub"},
                 {BLASD_CUDA_SystemNotReady, "fabricmanager"},
                 {BLASD_CUDA_SystemDriverMismatch, "different versions"},
                 {BLASD_CUDA_CompatNotSupportedOnDevice, "cuda-compat"},
                 {BLASD_CUDA_InitializationError, "/dev/nvidia"},
                 {BLASD_CUDA_OperatingSystem, "/dev/nvidia"},
                 {BLASD_CUDA_Unknown, "/dev/nvidia"},
                 {BLASD_CUDA_MpsServerNotReady, "MPS"},
                 {1234, "as a test asked for"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char number[32];
        snprintf(number, sizeof number, "CUDA error %d", cases[i].status);
        blasd_standin.driver_status = cases[i].status;
        REFUSED(true, cases[i].word, number);
    }
}

/* What only opening shows. */
static void cards_that_do_not_open(void **state) {
    (void)state;
    blasd_standin.open_status = BLASD_CUDA_NoKernelImageForDevice;
    REFUSED(false, "no code for this card", "CUDA_ARCH");
    blasd_standin.open_status = BLASD_CUDA_UnsupportedPtxVersion;
    REFUSED(false, "no code for this card", "update the driver");
    blasd_standin.open_status = BLASD_CUDA_DevicesUnavailable;
    REFUSED(false, "card is taken", "exclusive");
}

/* After these CUDA gives the same answer for ever, so its documentation says. */
static void errors_that_stick(void **state) {
    static const int stick[] = {226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911};
    static const int pass[] = {0, 1, 2, 9, 98, 101, 209, 600, 701, 704, 720, 801, 900, 910};
    (void)state;
    for (size_t i = 0; i < sizeof stick / sizeof *stick; i++)
        if (!blasd_cuda_sticks(stick[i])) fail_msg("%d does not stick", stick[i]);
    for (size_t i = 0; i < sizeof pass / sizeof *pass; i++)
        if (blasd_cuda_sticks(pass[i])) fail_msg("%d sticks", pass[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cards_that_are_too_old, setup, teardown),
        cmocka_unit_test_setup_teardown(builds_for_newer_cards, setup, teardown),
        cmocka_unit_test_setup_teardown(drivers_that_are_too_old, setup, teardown),
        cmocka_unit_test_setup_teardown(a_driver_that_shows_no_card, setup, teardown),
        cmocka_unit_test_setup_teardown(drivers_in_trouble, setup, teardown),
        cmocka_unit_test_setup_teardown(cards_that_do_not_open, setup, teardown),
        cmocka_unit_test(errors_that_stick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
