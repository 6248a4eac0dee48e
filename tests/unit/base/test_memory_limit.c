/* Control groups of both versions as they are seen from a unit, a container, a container within
 * one. */
#include "base/memory_limit.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define KIB 1024ULL

static char folder[PATH_MAX];

/* A file below `folder`, with the folders above it. */
static void put(const char *name, const char *text) {
    char path[2 * PATH_MAX];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        mkdir(path, 0700);
    }
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct blasd_memory seen(void) {
    char meminfo[PATH_MAX + 16], self[PATH_MAX + 16], mount[PATH_MAX + 16];
    snprintf(meminfo, sizeof meminfo, "%s/meminfo", folder);
    snprintf(self, sizeof self, "%s/self", folder);
    snprintf(mount, sizeof mount, "%s/fs", folder);
    return blasd_memory_read(meminfo, self, mount);
}

static void assert_seen(uint64_t all, uint64_t left) {
    struct blasd_memory memory = seen();
    assert_int_equal(memory.all, all);
    assert_int_equal(memory.left, left);
}

static int start(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/blasd-memory-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    put("meminfo", "MemTotal:       8000 kB\nMemFree:  1 kB\nMemAvailable:   6000 kB\n");
    return 0;
}

static int end(void **state) {
    char command[PATH_MAX + 16];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command); /* NOLINT: the folder's name is our own */
}

static void without_groups_the_machine(void **state) {
    (void)state;
    assert_seen(8000 * KIB, 6000 * KIB);
    put("self", "0::/a\n");
    assert_seen(8000 * KIB, 6000 * KIB);
    put("fs/a/memory.max", "max\n");
    put("fs/a/memory.current", "1000\n");
    assert_seen(8000 * KIB, 6000 * KIB);
    put("meminfo", "");
    assert_seen(0, 0);
}

static void a_unit(void **state) {
    (void)state;
    put("self", "0::/system.slice/blasd.service\n");
    put("fs/system.slice/blasd.service/memory.max", "4096000\n");
    assert_seen(4000 * KIB, 4000 * KIB);
    put("fs/system.slice/blasd.service/memory.current", "3072000\n");
    assert_seen(4000 * KIB, 1000 * KIB);
    put("fs/system.slice/blasd.service/memory.stat",
        "anon 1\nfile 1024000\ninactive_file 204800\nactive_file 307200\nshmem 9\n");
    assert_seen(4000 * KIB, 1500 * KIB);
}

static void the_group_above_counts_too(void **state) {
    (void)state;
    put("self", "0::/pods/one\n");
    put("fs/pods/one/memory.max", "2048000\n");
    put("fs/pods/one/memory.current", "102400\n");
    put("fs/pods/memory.max", "4096000\n");
    put("fs/pods/memory.current", "3993600\n"); /* others, for the most part */
    assert_seen(2000 * KIB, 100 * KIB);
    put("fs/pods/memory.current", "5000000\n");
    assert_seen(2000 * KIB, 0);
}

static void a_container_sees_its_own_group_as_the_root(void **state) {
    (void)state;
    put("self", "0::/\n");
    put("fs/memory.max", "1024000\n");
    put("fs/memory.current", "512000\n");
    assert_seen(1000 * KIB, 500 * KIB);
    put("self", "0::/../somewhere\n"); /* moved out of what it sees */
    assert_seen(1000 * KIB, 500 * KIB);
}

static void version_1(void **state) {
    (void)state;
    put("self", "5:cpu,cpuacct:/x\n4:memory:/slurm/job_7\n1:name=systemd:/y\n0::/\n");
    put("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("fs/memory/memory.usage_in_bytes", "7000000\n");
    put("fs/memory/slurm/job_7/memory.limit_in_bytes", "3072000\n");
    put("fs/memory/slurm/job_7/memory.usage_in_bytes", "2048000\n");
    put("fs/memory/slurm/job_7/memory.stat",
        "inactive_file 5\ntotal_inactive_file 102400\ntotal_active_file 0\n");
    assert_seen(3000 * KIB, 1100 * KIB);
    put("self", "4:hugetlb,memory:/docker/not-seen-in-here\n");
    put("fs/memory/memory.limit_in_bytes", "1024000\n");
    put("fs/memory/memory.usage_in_bytes", "1000000\n");
    assert_seen(1000 * KIB, 24000);
    put("self", "4:memory_of_others:/slurm/job_7\n");
    assert_seen(8000 * KIB, 6000 * KIB);
}

static void version_2_beside_version_1(void **state) {
    (void)state;
    put("self", "3:cpu:/\n0::/user\n");
    put("fs/unified/user/memory.max", "2048000\n");
    assert_seen(2000 * KIB, 2000 * KIB);
}

static void here(void **state) {
    struct blasd_memory memory = blasd_memory_here();
    (void)state;
    assert_true(memory.all > 1 << 20 && memory.left < memory.all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_groups_the_machine, start, end),
        cmocka_unit_test_setup_teardown(a_unit, start, end),
        cmocka_unit_test_setup_teardown(the_group_above_counts_too, start, end),
        cmocka_unit_test_setup_teardown(a_container_sees_its_own_group_as_the_root, start, end),
        cmocka_unit_test_setup_teardown(version_1, start, end),
        cmocka_unit_test_setup_teardown(version_2_beside_version_1, start, end),
        cmocka_unit_test(here),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
