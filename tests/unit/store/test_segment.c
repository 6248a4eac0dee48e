/* Segments: slices written and read, segments used again, owners that die, readers that are slow.
 */
#include "../child_fork.h"
#include "store/segment.h"

#include "base/clock.h"
#include "store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE BLASD_SLICE_MOST
#define A_SEGMENT ((int)(BLASD_SEGMENT_BYTES / LARGE) - 1) /* slices of that size in one */

struct fixture {
    struct store_place place;
    struct blasd_segments *segments;
    struct blasd_views *views;
};

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    if (store_place_open(&f->place) != 0) return -1;
    f->segments = blasd_segments_new(f->place.store);
    f->views = blasd_views_new(f->place.store);
    *state = f;
    return f->segments == NULL || f->views == NULL ? -1 : 0;
}

static struct {
    pthread_t thread;
    bool on;
    _Atomic bool stop;
} writing;

static void writer_end(void) {
    atomic_store(&writing.stop, true);
    if (writing.on) pthread_join(writing.thread, NULL);
    writing.on = false;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    int code;
    writer_end(); /* of a test that failed */
    blasd_segments_free(f->segments);
    blasd_views_free(f->views);
    code = store_place_close(&f->place);
    free(f);
    return code;
}

static struct blasd_slice take(struct blasd_segments *segments, uint64_t bytes, int fill) {
    struct blasd_slice slice = {{0}, 0, 0};
    void *at = blasd_segments_take(segments, BLASD_SEGMENT_SYNC, bytes, &slice);
    assert_non_null(at);
    assert_int_equal((uintptr_t)at % 64, 0);
    memset(at, fill, (size_t)bytes);
    return slice;
}

/* The first byte of the slice, or -1 where it is not there any more. */
static int look(struct fixture *f, const struct blasd_slice *slice, uint64_t bytes) {
    struct blasd_view *hold;
    const unsigned char *at = blasd_views_get(f->views, slice, bytes, &hold);
    int first, valid;
    if (at == NULL) return -1;
    first = at[0];
    assert_int_equal(at[bytes - 1], first);
    valid = blasd_views_valid(hold, slice);
    blasd_views_let_go(hold);
    return valid ? first : -1;
}

static int files(const struct fixture *f) {
    char command[160];
    FILE *pipe;
    int count = -1;
    snprintf(command, sizeof command, "ls '%s/blobs' | grep -c '[.]seg$'", f->place.base);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

static int keep_none(void *arg, const char (*names)[BLASD_BLOB_NAME], int count, bool *keep) {
    (void)names;
    for (int i = 0; i < count; i++) keep[i] = arg != NULL;
    return 0;
}

static void test_slices_are_read_where_they_were_written(void **state) {
    struct fixture *f = *state;
    struct blasd_slice a = take(f->segments, 1024, 1), b = take(f->segments, 1025, 2), c;
    struct blasd_view *hold;
    assert_false(blasd_segments_wanted(f->segments, BLASD_SLICE_LEAST - 1));
    assert_false(blasd_segments_wanted(f->segments, BLASD_SLICE_MOST + 1));
    assert_null(blasd_segments_take(f->segments, BLASD_SEGMENT_SYNC, BLASD_SLICE_MOST + 1, &c));
    assert_string_equal(a.segment, b.segment);
    assert_true(b.offset >= a.offset + 1024);
    assert_int_equal(look(f, &a, 1024), 1);
    assert_int_equal(look(f, &b, 1025), 2);
    /* jobs of another kind do not share it */
    assert_non_null(blasd_segments_take(f->segments, BLASD_SEGMENT_ASYNC, 2000, &c));
    assert_string_not_equal(a.segment, c.segment);
    /* slices that cannot be */
    c = a;
    c.offset = BLASD_SEGMENT_BYTES;
    assert_null(blasd_views_get(f->views, &c, 64, &hold));
    c.offset = 0; /* the head is nobody's */
    assert_int_equal(look(f, &c, 64) == 1, false);
    c.offset = UINT64_MAX - 63;
    assert_null(blasd_views_get(f->views, &c, 1024, &hold));
    c = a;
    memcpy(c.segment, "0000000000000000", 17);
    assert_null(blasd_views_get(f->views, &c, 1024, &hold));
}

static void test_a_segment_is_used_again(void **state) {
    struct fixture *f = *state;
    char names[8][BLASD_BLOB_NAME];
    struct blasd_slice first = take(f->segments, LARGE, 1), next = first;
    int count = 1;
    while (strcmp(next.segment, first.segment) == 0) next = take(f->segments, LARGE, ++count);
    assert_true(count > A_SEGMENT);
    assert_int_equal(blasd_segments_doubtful(f->segments, names, 8, true), 0); /* it is pinned */
    for (int i = 1; i < count; i++) blasd_segments_unpin(f->segments, &first, true);
    assert_int_equal(blasd_segments_doubtful(f->segments, names, 8, true), 1);
    assert_memory_equal(names[0], first.segment, BLASD_SEGMENT_NAME);
    assert_string_equal(names[0] + BLASD_SEGMENT_NAME, ".seg");
    assert_int_equal(look(f, &first, LARGE), 1);
    blasd_segments_reuse(f->segments, names[0]);
    assert_int_equal(look(f, &first, LARGE), 1); /* nobody has written there yet */
    for (int i = 0; i <= A_SEGMENT && strcmp(next.segment, first.segment) != 0; i++)
        next = take(f->segments, LARGE, 77);
    assert_string_equal(next.segment, first.segment);
    assert_int_equal(next.generation, first.generation + 1);
    assert_int_equal(look(f, &first, LARGE), -1);
    assert_int_equal(look(f, &next, LARGE), 77);
    assert_int_equal(files(f), 2);
}

static void test_what_is_held_long_hides_nothing(void **state) {
    struct fixture *f = *state;
    enum { SEGMENTS = 24 };
    char names[8][BLASD_BLOB_NAME], last[BLASD_SEGMENT_NAME + 1] = "";
    bool seen = false;
    for (int i = 0; i < SEGMENTS * (A_SEGMENT + 1); i++) {
        struct blasd_slice slice = take(f->segments, LARGE, i);
        blasd_segments_unpin(f->segments, &slice, true);
        if (i == (SEGMENTS - 3) * (A_SEGMENT + 1)) memcpy(last, slice.segment, sizeof last);
    }
    for (int turn = 0; turn < 12 && !seen; turn++) {
        int count = blasd_segments_doubtful(f->segments, names, 8, true);
        for (int i = 0; i < count; i++)
            if (memcmp(names[i], last, BLASD_SEGMENT_NAME) == 0) seen = true;
    }
    assert_true(seen);
}

static void test_what_is_not_known_is_left_to_the_sweep(void **state) {
    struct fixture *f = *state;
    char names[8][BLASD_BLOB_NAME];
    struct blasd_slice a = take(f->segments, 4096, 1), b = take(f->segments, 4096, 2);
    struct blasd_err err;
    assert_int_equal(blasd_store_sweep(f->place.store, keep_none, NULL, &err), 0); /* it is held */
    blasd_segments_unpin(f->segments, &a, false);
    blasd_segments_unpin(f->segments, &b, true);
    assert_int_equal(blasd_segments_doubtful(f->segments, names, 8, true), 0);
    assert_string_not_equal(take(f->segments, 4096, 3).segment, a.segment);
    assert_int_equal(files(f), 2);
    assert_int_equal(blasd_store_sweep(f->place.store, keep_none, f, &err),
                     0); /* Redis refers to it */
    assert_int_equal(look(f, &a, 4096), 1);
    assert_int_equal(blasd_store_sweep(f->place.store, keep_none, NULL, &err), 1);
    assert_int_equal(files(f), 1);
}

static void test_an_owner_is_killed(void **state) {
    struct fixture *f = *state;
    struct blasd_err err;
    int fds[2];
    pid_t child;
    assert_int_equal(pipe(fds), 0);
    child = child_fork();
    if (child == 0) { /* the fork shares no lock: it opens files of its own */
        struct blasd_segments *own = blasd_segments_new(f->place.store);
        struct blasd_slice slice;
        void *at = blasd_segments_take(own, BLASD_SEGMENT_SYNC, 5000, &slice);
        if (at == NULL) _exit(1);
        memset(at, 9, 5000);
        if (write(fds[1], &slice, sizeof slice) != (ssize_t)sizeof slice) _exit(1);
        pause();
        _exit(1);
    }
    struct blasd_slice slice;
    assert_int_equal(read(fds[0], &slice, sizeof slice), sizeof slice);
    assert_int_equal(look(f, &slice, 5000), 9);
    assert_int_equal(blasd_store_sweep(f->place.store, keep_none, NULL, &err), 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(blasd_store_sweep(f->place.store, keep_none, f, &err), 0);
    assert_int_equal(look(f, &slice, 5000), 9);
    assert_int_equal(blasd_store_sweep(f->place.store, keep_none, NULL, &err), 1);
    assert_int_equal(files(f), 0);
    close(fds[0]);
    close(fds[1]);
}

/* One thread writes the same segment over and over; another copies slices and believes what it
 * copied only where the generation says so. */

static struct blasd_slice shown; /* under the lock, for a reader may stand still for long */
static pthread_mutex_t showing = PTHREAD_MUTEX_INITIALIZER;

static void *writer(void *arg) {
    struct fixture *f = arg;
    char name[BLASD_SEGMENT_NAME + 1] = "";
    int slices = 0;
    for (int i = 1; !atomic_load(&writing.stop); i++) {
        struct blasd_slice slice = {{0}, 0, 0};
        char *at = blasd_segments_take(f->segments, BLASD_SEGMENT_SYNC, LARGE, &slice);
        if (at == NULL) break;
        memset(at, (int)((unsigned)i * 37u % 251u) + (int)(slice.generation % 2), (size_t)LARGE);
        blasd_segments_unpin(f->segments, &slice, true);
        pthread_mutex_lock(&showing);
        shown = slice;
        pthread_mutex_unlock(&showing);
        if (strcmp(name, slice.segment) != 0 && name[0] != '\0')
            blasd_segments_reuse(f->segments, name);
        memcpy(name, slice.segment, sizeof name);
        slices++;
    }
    return (void *)(intptr_t)slices;
}

static void test_a_slow_reader_is_told(void **state) {
    struct fixture *f = *state;
    unsigned char *copy = malloc((size_t)LARGE);
    int64_t until = blasd_clock_ns() + INT64_C(60000000000);
    int valid = 0, gone = 0;
    assert_non_null(copy);
    atomic_store(&writing.stop, false);
    assert_int_equal(pthread_create(&writing.thread, NULL, writer, f), 0);
    writing.on = true;
    for (int i = 0; blasd_clock_ns() < until && (valid < 50 || gone < 1); i++) {
        struct blasd_slice slice;
        struct blasd_view *hold;
        const void *at;
        pthread_mutex_lock(&showing);
        slice = shown;
        pthread_mutex_unlock(&showing);
        if (slice.segment[0] == '\0') continue; /* nothing was written yet */
        at = blasd_views_get(f->views, &slice, LARGE, &hold);
        if (at == NULL) {
            gone++;
            continue;
        }
        if (i % 4 == 0) usleep(300);
        memcpy(copy, at, (size_t)LARGE);
        if (blasd_views_valid(hold, &slice)) {
            valid++;
            for (size_t k = 1; k < (size_t)LARGE; k++) assert_int_equal(copy[k], copy[0]);
        } else {
            gone++;
        }
        blasd_views_let_go(hold);
    }
    writer_end();
    assert_true(valid > 0);
    free(copy);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_slices_are_read_where_they_were_written),
        TEST(test_a_segment_is_used_again),
        TEST(test_what_is_held_long_hides_nothing),
        TEST(test_what_is_not_known_is_left_to_the_sweep),
        TEST(test_an_owner_is_killed),
        TEST(test_a_slow_reader_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
