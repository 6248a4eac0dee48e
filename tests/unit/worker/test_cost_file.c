/* Keeping what jobs have taught. Says nothing of how fast anything is. */
#include "base/clock.h"
#include "base/memory_limit.h"
#include "wire/cost_text.h"
#include "worker/cost_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct blasd_err err;

static char folder[64], dir[80];
static const struct blasd_device_info known = {
    .id = "cuda:1", .name = "a card", .libraries = "v1", .units = 7};

static int setup_folder(void **state) {
    snprintf(folder, sizeof folder, "/tmp/blasd-costs-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(dir, sizeof dir, "%s/kept", folder);
    (void)state;
    return 0;
}

static int teardown_folder(void **state) {
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/cuda.1", dir);
    unlink(path);
    rmdir(dir);
    return rmdir(folder); /* nothing else may be left */
}

static struct blasd_cost some_cost(void) {
    struct blasd_cost cost;
    blasd_cost_usual(BLASD_DEVICE_CUDA, 7, &cost);
    cost.copy_bytes_s = 2e9;
    assert_true(blasd_cost_add(&cost.curves[0][0], 100, 1e-6, 1e-7));
    return cost;
}

static void write_file(const char *text, size_t len) {
    char path[128];
    FILE *file;
    snprintf(path, sizeof path, "%s/cuda.1", dir);
    mkdir(dir, 0700);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static void kept_and_found(void **state) {
    struct blasd_cost cost = some_cost(), read;
    struct blasd_device_info other = known;
    (void)state;
    assert_false(blasd_cost_file_load(dir, &known, "1.0", &read));
    assert_int_equal(blasd_cost_file_save(dir, &known, "1.0", &cost, &err), 0);
    assert_int_equal(blasd_cost_file_save(dir, &known, "1.0", &cost, &err), 0); /* over the first */
    assert_true(blasd_cost_file_load(dir, &known, "1.0", &read));
    assert_true(read.copy_bytes_s == 2e9 && read.curves[0][0].count == 1);
    assert_false(blasd_cost_file_load(dir, &known, "1.1", &read));
    assert_true(blasd_cost_known(&read)); /* by usual figures */
    assert_int_equal(read.curves[0][0].count, 0);
    snprintf(other.name, sizeof other.name, "another card");
    assert_false(blasd_cost_file_load(dir, &other, "1.0", &read));
    other = known;
    snprintf(other.libraries, sizeof other.libraries, "v2");
    assert_false(blasd_cost_file_load(dir, &other, "1.0", &read));
    other = known;
    other.units = 8;
    assert_false(blasd_cost_file_load(dir, &other, "1.0", &read));
    other = known;
    snprintf(other.id, sizeof other.id, "cuda:2");
    assert_false(blasd_cost_file_load(dir, &other, "1.0", &read));
}

static void what_was_learnt(void **state) {
    const struct blasd_cost_work large = {.flops = 1e9, .items = 1},
                                 short_of = {.flops = 1e9, .items = 1, .ends_early = true};
    struct blasd_cost cost = some_cost(), read;
    (void)state;
    blasd_cost_learn(&cost, &large, 2);
    blasd_cost_learn(&cost, &short_of, 0.5);
    assert_int_equal(blasd_cost_file_save(dir, &known, "1.0", &cost, &err), 0);
    assert_true(blasd_cost_file_load(dir, &known, "1.0", &read));
    assert_int_equal(read.curves[0][0].count, 2);
    assert_true(read.curves[0][0].points[1].flops == 1e9);
    assert_true(fabs(read.curves[0][0].points[1].alone_s - 2) < 1e-5);
    assert_true(fabs(read.early[0] - 0.25) < 1e-3);
    assert_int_equal(blasd_cost_file_save(NULL, &known, "1.0", &cost, &err), 0);
}

static void files_that_are_not_right(void **state) {
    char key[512], fewer[512]; /* all operations but one, which was added since */
    static const char costs[] =
        "{\"copy_gbytes_s\":1,\"curves\":{\"matmul\":{\"float64\":[[1,1,1]]}}}";
    long long now = blasd_clock_wall_us() / 1000000;
    const long long times[] = {now, now + 100000, now - 31 * 86400, 0};
    struct blasd_cost read;
    char text[1024], *large;
    int len;
    (void)state;
    len = snprintf(key, sizeof key, "blasd 1.0 | a card | 7 units | v1 |");
    for (int i = 0; blasd_ops[i] != NULL; i++) {
        memcpy(fewer, key, sizeof key);
        len += snprintf(key + len, sizeof key - (size_t)len, " %s", blasd_ops[i]->name);
    }
    strcat(key, "\n");
    strcat(fewer, "\n");
    for (int i = 0; i < 4; i++) { /* of now; of the future; old */
        len = snprintf(text, sizeof text, "%s%lld\n%s\n", key, times[i], costs);
        write_file(text, (size_t)len);
        assert_int_equal(blasd_cost_file_load(dir, &known, "1.0", &read), i == 0);
    }
    len = snprintf(text, sizeof text, "%s%lld\n%s\n", fewer, now, costs);
    write_file(text, (size_t)len);
    assert_false(blasd_cost_file_load(dir, &known, "1.0", &read));
    len = snprintf(text, sizeof text, "%s%lld\n%s\n", key, now, costs);
    for (int cut = 0; cut < len - 2; cut++) {
        write_file(text, (size_t)cut);
        assert_false(blasd_cost_file_load(dir, &known, "1.0", &read));
    }
    large = malloc(1 << 20);
    assert_non_null(large);
    memset(large, '\n', 1 << 20);
    memcpy(large, text, (size_t)len);
    write_file(large, 1 << 20);
    assert_false(blasd_cost_file_load(dir, &known, "1.0", &read));
    free(large);
}

static void places_that_are_not_right(void **state) {
    struct blasd_cost cost = some_cost(), read;
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/no/such", folder);
    assert_true(blasd_cost_file_save(path, &known, "1.0", &cost, &err) < 0);
    assert_non_null(strstr(err.detail, path));
    /* the file is a folder */
    snprintf(path, sizeof path, "%s/cuda.1", dir);
    mkdir(dir, 0700);
    mkdir(path, 0700);
    assert_false(blasd_cost_file_load(dir, &known, "1.0", &read));
    assert_true(blasd_cost_file_save(dir, &known, "1.0", &cost, &err) < 0);
    rmdir(path);
}

static void memory_of_the_host(void **state) {
    (void)state;
    assert_true(blasd_memory_here().all >= 1 << 20);
}

int main(void) {
#define FILES(name) cmocka_unit_test_setup_teardown(name, setup_folder, teardown_folder)
    const struct CMUnitTest tests[] = {
        FILES(kept_and_found),
        FILES(what_was_learnt),
        FILES(files_that_are_not_right),
        FILES(places_that_are_not_right),
        cmocka_unit_test(memory_of_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
