/* Which of several queues something is in, and what of a limit each of them has. */
#include "base/clock.h"
#include "base/id.h"
#include "queue/queue_link.h"
#include "store/segment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/blasd-set-XXXXXX";
static struct blasd_limits limits;
static struct blasd_queue_options options;

static int setup(void **state) {
    char spec[64];
    struct blasd_err err;
    (void)state;
    blasd_limits_init(&limits);
    if (mkdtemp(dir) == NULL) return -1;
    snprintf(spec, sizeof spec, "dir:%s", dir);
    options = (struct blasd_queue_options){.url = "redis://h", .name = "q", .limits = &limits};
    return blasd_store_open(spec, &options.store, &err);
}

static int teardown(void **state) {
    char file[64];
    (void)state;
    blasd_store_free(options.store);
    snprintf(file, sizeof file, "%s/.store", dir);
    unlink(file);
    return rmdir(dir);
}

static void test_an_id_says_which(void **state) {
    const struct blasd_id_key key = {{1, 2}};
    char id[BLASD_ID_LEN + 1], name[BLASD_BLOB_NAME];
    (void)state;
    options.queues = 16;
    for (int i = 0; i < 16; i++) {
        blasd_id_new(BLASD_ID_ASYNC, blasd_clock_wall_us(), id);
        blasd_id_mark(id, i);
        blasd_id_sign(id, &key);
        assert_true(blasd_id_valid(id) && blasd_id_signed(id, &key));
        assert_int_equal(blasd_queue_of(&options, id), i);
        snprintf(name, sizeof name, "%s.out", id);
        assert_int_equal(blasd_queue_of(&options, name), i);
        id[9] = id[9] == '0' ? '1' : '0'; /* of another queue it is nobody's */
        assert_false(blasd_id_signed(id, &key));
    }
    options.queues = 3; /* whatever is asked for is in one of them */
    assert_in_range(blasd_queue_of(&options, "sffffffffff"), 0, 2);
    assert_int_equal(blasd_queue_of(&options, "s"), 0);
    assert_int_equal(blasd_queue_of(&options, ""), 0);
    options.queues = 1;
    assert_int_equal(blasd_queue_of(&options, id), 0);
}

static void test_a_segment_says_which(void **state) {
    struct blasd_segments *segments = blasd_segments_new(options.store);
    struct blasd_slice slice;
    char name[BLASD_BLOB_NAME];
    (void)state;
    options.queues = 16;
    assert_non_null(segments);
    blasd_segments_mark(segments, 11, 16);
    assert_non_null(blasd_segments_take(segments, BLASD_SEGMENT_SYNC, 4096, &slice));
    snprintf(name, sizeof name, "%s.seg", slice.segment);
    assert_int_equal(blasd_queue_of(&options, name), 11);
    blasd_segments_unpin(segments, &slice, true);
    blasd_segments_free(segments);
    blasd_store_remove(options.store, name);
}

static void test_the_parts_of_a_limit_come_to_it(void **state) {
    static const uint64_t jobs[] = {1, 2, 10, 199999};
    (void)state;
    for (size_t k = 0; k < sizeof jobs / sizeof *jobs; k++)
        for (options.queues = 1; options.queues <= 16; options.queues++) {
            struct blasd_link_limits part;
            uint64_t sum = 0, least = UINT64_MAX, most = 0;
            limits.queue_jobs = jobs[k];
            for (options.number = 0; options.number < options.queues; options.number++) {
                blasd_link_limits(&options, &part);
                sum += part.queue_jobs;
                if (part.queue_jobs < least) least = part.queue_jobs;
                if (part.queue_jobs > most) most = part.queue_jobs;
            }
            assert_int_equal(sum, jobs[k]);
            assert_true(most - least <= 1);
        }
    options.number = 0;
}

static void test_names_and_what_is_recorded(void **state) {
    struct blasd_queue_one one;
    char alone[BLASD_QUEUE_RECORDED], three[BLASD_QUEUE_RECORDED];
    char name[BLASD_LINK_NAME_MAX];
    struct blasd_link_address address;
    struct blasd_err err;
    (void)state;
    options.queues = 1;
    assert_string_equal(blasd_queue_recorded(&options, alone), blasd_store_identity(options.store));
    options.queues = 3;
    blasd_queue_one(&options, 0, &one);
    assert_string_equal(one.options.name, "q"); /* where those meet who count otherwise */
    blasd_queue_one(&options, 2, &one);
    assert_string_equal(one.options.name, "q:2");
    assert_int_equal(blasd_link_parse("redis://h", one.name, &address, &err), 0);
    assert_string_equal(address.tag, "{q:2}");
    assert_int_not_equal(blasd_link_parse("redis://h", "q:", &address, &err), 0);
    assert_int_not_equal(blasd_link_parse("redis://h", "q:2:3", &address, &err), 0);
    memset(name, 'q', sizeof name - 1); /* refused, for two queues whose numbers are cut are one */
    name[sizeof name - 1] = '\0';
    options.name = name;
    blasd_queue_one(&options, 2, &one);
    assert_string_equal(one.options.name + sizeof name - 1, ":2");
    assert_int_not_equal(blasd_link_parse("redis://h", one.options.name, &address, &err), 0);
    options.name = "q";
    blasd_queue_differs(alone, blasd_queue_recorded(&options, three), &err);
    assert_non_null(strstr(err.detail, "counts 1 queues, but the deployment has 3"));
    blasd_queue_differs(three, "dir:other queues=3", &err);
    assert_non_null(strstr(err.detail, "blob store"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_id_says_which),
        cmocka_unit_test(test_a_segment_says_which),
        cmocka_unit_test(test_the_parts_of_a_limit_come_to_it),
        cmocka_unit_test(test_names_and_what_is_recorded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
