/* Children that are kept alive: what they say, and what becomes of one that says nothing. */
#include "main/child.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define STEPS_MOST 2400 /* of 50 ms */

static struct { int ready, quiet, exits, status; } seen;

static void on_ready(struct child *child) {
    (void)child;
    seen.ready++;
}

/* All that it said before has been read by now. */
static void on_quiet(struct child *child) {
    seen.quiet++;
    child_signal(child, SIGKILL);
}

static void on_exit_seen(struct child *child, int status, bool *again) {
    (void)child;
    seen.exits++;
    seen.status = status;
    *again = false;
}

static const struct child_events events = {
    .on_ready = on_ready, .on_quiet = on_quiet, .on_exit = on_exit_seen};

/* Runs `script` in a shell as a child, until it has ended. */
static void run(const char *script, int start_s) {
    static char shell[] = "sh", option[] = "-c";
    char *const argv[] = {shell, option, (char *)(uintptr_t)script, NULL};
    static struct child child;
    child = (struct child){.loop = blasd_loop_new(),
                           .label = "a test's",
                           .foreign = true,
                           .argv = argv,
                           .notifies = true,
                           .silence_s = 1000,
                           .start_s = start_s,
                           .events = &events};
    memset(&seen, 0, sizeof seen);
    assert_non_null(child.loop);
    child_start(&child);
    for (int i = 0; i < STEPS_MOST && seen.exits == 0; i++) {
        blasd_loop_step(child.loop, 50);
        child_reap(&child);
    }
    child_signal(&child, SIGKILL);
    blasd_loop_free(child.loop);
    assert_int_equal(seen.exits, 1);
}

static void one_that_hangs_before_it_is_ready_is_killed(void **state) {
    (void)state;
    run("exec sleep 1000", 1);
    assert_true(WIFSIGNALED(seen.status) && WTERMSIG(seen.status) == SIGKILL);
    assert_int_equal(seen.ready, 0);
}

static void signs_of_life_do_not_say_that_it_is_ready(void **state) {
    (void)state;
    run("printf aa >&$" CHILD_NOTIFY "; printf q >&$" CHILD_NOTIFY "; exec sleep 1000", 1000);
    assert_int_equal(seen.quiet, 1);
    assert_int_equal(seen.ready, 0);
}

static void it_says_that_it_is_ready_once_and_then_quiet(void **state) {
    (void)state;
    run("printf ar >&$" CHILD_NOTIFY "; printf ra >&$" CHILD_NOTIFY "; printf q >&$" CHILD_NOTIFY
        "; exec sleep 1000",
        1000);
    assert_int_equal(seen.ready, 1);
    assert_int_equal(seen.quiet, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_hangs_before_it_is_ready_is_killed),
        cmocka_unit_test(signs_of_life_do_not_say_that_it_is_ready),
        cmocka_unit_test(it_says_that_it_is_ready_once_and_then_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
