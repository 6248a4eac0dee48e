/* 10,000 batches of changing shapes through every operation's frame: device memory and host memory
 * stay where they were. Numbers of batches as the first argument, else 10000. */
#include "gpu_backend.h"
#define TRIAL_BACKEND blasd_backend
#include "kernel_support.h"

#include <unistd.h>

static struct trial *product(int64_t n) {
    struct trial *t = trial_new("matmul");
    float *a = trial_input(t, "a", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
    float *b = trial_input(t, "b", BLASD_float32, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
    for (int64_t i = 0; i < n * n; i++) {
        a[i] = (float)trial_between(-9, 9);
        b[i] = (float)trial_between(-9, 9);
    }
    return t;
}

static uint64_t device_free(void) {
    struct blasd_device_info info;
    struct blasd_err err;
    assert_int_equal(TRIAL_BACKEND.device_info(trial_device(), false, &info, &err), 0);
    return info.memory_free_bytes;
}

static uint64_t host_used(void) {
    unsigned long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    if (fscanf(file, "%llu %llu", &pages, &resident) != 2) resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int rounds = 10000;

static void nothing_grows(void **state) {
    const int64_t sizes[] = {2, 8, 16, 17, 64, 150, 400};
    struct trial *trials[7][8];
    uint64_t device_before = 0, host_before = 0, device_after, host_after;
    (void)state;
    for (int s = 0; s < 7; s++)
        for (int i = 0; i < 8; i++) trials[s][i] = product(sizes[s]);
    for (int round = 0; round < rounds; round++) {
        int s = round % 7;
        assert_int_equal(trial_run_batch(trials[s], 8), BLASD_OK);
        if (round == (rounds < 2000 ? rounds / 2 : rounds / 10)) { /* all sizes have been met */
            device_before = device_free();
            host_before = host_used();
        }
    }
    device_after = device_free();
    host_after = host_used();
    printf("device memory: %lld bytes more than after the first part; host memory: %lld\n",
           (long long)(device_before - device_after), (long long)(host_after - host_before));
    assert_true(device_after + (4 << 20) >= device_before);
    assert_true(host_after <= host_before + (8 << 20));
    for (int s = 0; s < 7; s++)
        for (int i = 0; i < 8; i++) trial_free(trials[s][i]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_grows)};
    if (argc > 1) rounds = (int)strtol(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
