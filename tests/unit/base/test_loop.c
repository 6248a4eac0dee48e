/* The event loop: readiness, removal while events are pending, timers in order. */
#include "base/clock.h"
#include "base/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cmocka.h>

struct pipe_end {
    struct blasd_watcher watcher;
    struct blasd_loop *loop;
    struct pipe_end *other; /* unwatched by whichever is called first */
    int calls;
};

static void on_ready(struct blasd_watcher *watcher, uint32_t events) {
    struct pipe_end *end = (struct pipe_end *)(void *)watcher;
    char byte;
    assert_true((events & EPOLLIN) != 0);
    assert_int_equal(read(watcher->fd, &byte, 1), 1);
    end->calls++;
    if (end->other != NULL) blasd_loop_unwatch(end->loop, &end->other->watcher);
}

static void a_watcher_removed_by_another_is_not_called(void **state) {
    struct blasd_loop *loop = blasd_loop_new();
    struct pipe_end ends[2] = {0};
    int fds[2][2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(fds[i]), 0);
        ends[i] = (struct pipe_end){
            .watcher = {.fd = fds[i][0], .ready = on_ready}, .loop = loop, .other = &ends[1 - i]};
        assert_int_equal(blasd_loop_watch(loop, &ends[i].watcher, EPOLLIN), 0);
        assert_int_equal(write(fds[i][1], "x", 1), 1);
    }
    blasd_loop_step(loop, 1000);
    blasd_loop_step(loop, 0);
    assert_int_equal(ends[0].calls + ends[1].calls, 1);
    for (int i = 0; i < 2; i++) {
        close(fds[i][0]);
        close(fds[i][1]);
    }
    blasd_loop_free(loop);
}

static int64_t fired[1000];
static int fired_count;

static void on_fire(struct blasd_timer *timer) {
    fired[fired_count++] = timer->at_ns;
}

static void timers_fire_in_order_and_cleared_ones_never(void **state) {
    struct blasd_loop *loop = blasd_loop_new();
    struct blasd_timer timers[1000] = {0};
    int64_t now = blasd_clock_ns();
    int left = 0;
    (void)state;
    srand(1);
    for (int round = 0; round < 3; round++) /* sets, moves, moves again */
        for (int i = 0; i < 1000; i++) {
            timers[i].fire = on_fire;
            assert_int_equal(blasd_loop_timer_set(loop, &timers[i], now - rand() % 100000), 0);
        }
    for (int i = 0; i < 1000; i++) {
        if (i % 3 == 0)
            blasd_loop_timer_clear(loop, &timers[i]);
        else
            left++;
        if (i % 9 == 0) blasd_loop_timer_clear(loop, &timers[i]); /* twice does no harm */
    }
    blasd_loop_step(loop, 1000);
    assert_int_equal(fired_count, left);
    for (int i = 1; i < fired_count; i++) assert_true(fired[i - 1] <= fired[i]);
    blasd_loop_free(loop);
}

static void a_step_waits_for_the_next_timer_and_no_longer(void **state) {
    struct blasd_loop *loop = blasd_loop_new();
    struct blasd_timer timer = {.fire = on_fire};
    int64_t due = blasd_clock_ns() + 20000000;
    (void)state;
    fired_count = 0;
    assert_int_equal(blasd_loop_timer_set(loop, &timer, due), 0);
    while (fired_count == 0) blasd_loop_step(loop, -1);
    assert_true(blasd_clock_ns() >= due);
    assert_int_equal(timer.slot, 0);
    blasd_loop_free(loop);
    blasd_loop_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_watcher_removed_by_another_is_not_called),
        cmocka_unit_test(timers_fire_in_order_and_cleared_ones_never),
        cmocka_unit_test(a_step_waits_for_the_next_timer_and_no_longer),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
