/* The allowance of refusals: how many are refused beside many jobs, beside few, and beside none.
 * Time passes while a test runs, so what it may add is measured and allowed for. */
#include "http/admission.h"

#include "base/clock.h"
#include "http/exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MANY 4000
#define AT_ONCE 64
#define JOBS_A_REFUSAL 32
#define REFUSAL_NS 500000

static struct {
    struct blasd_limits limits;
    struct http_server server;
    struct http_loop loop;
    struct http_exchange exchanges[MANY];
    int room, let_in, refused;
    int64_t began_ns;
} at;

/* In place of jobs_post.c: the queue has room for so many. */
static bool admit(struct http_exchange *exchange, bool late) {
    bool room = at.room > 0;
    if (!room && !late) return false;
    /* nobody overtakes */
    assert_ptr_equal(exchange, &at.exchanges[at.let_in + at.refused]);
    http_exchange_enter(exchange, room ? HTTP_AT_SUBMITTED : HTTP_AT_ANSWERED);
    if (room) {
        at.room--;
        at.let_in++;
    } else {
        at.refused++;
    }
    return true;
}

static const struct http_body_handlers handlers = {.admit = admit};
static const struct http_route route = {.jobs = &handlers};

/* MANY wait, each for longer than it has to. */
static int set_up(void **state) {
    (void)state;
    memset(&at, 0, sizeof at);
    at.limits.queue_wait_ms = 100;
    at.server.limits = &at.limits;
    at.loop.server = &at.server;
    at.loop.loop = blasd_loop_new();
    blasd_list_init(&at.loop.admission.waiting);
    at.began_ns = blasd_clock_ns();
    for (int i = 0; i < MANY; i++) {
        at.exchanges[i].home = &at.loop;
        at.exchanges[i].route = &route;
        at.exchanges[i].state = HTTP_AT_FETCHING;
        at.exchanges[i].began_ns = at.began_ns - INT64_C(1000000000);
        http_admission_wait(&at.exchanges[i], false);
    }
    return at.loop.loop == NULL ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    blasd_loop_free(at.loop.loop);
    return 0;
}

/* A turn of the loop, with room for `room` jobs. */
static void turn(int room) {
    at.room = room;
    http_admission_turn(&at.loop);
    assert_int_equal(at.room, 0);
}

/* What the clock may have added to the refusals meanwhile. */
static int by_time(void) {
    return (int)((blasd_clock_ns() - at.began_ns) / REFUSAL_NS) + 1;
}

static void test_beside_no_jobs(void **state) {
    (void)state;
    turn(0);
    assert_in_range(at.refused, AT_ONCE, AT_ONCE + by_time());
    assert_true(at.loop.admission.timer.slot != 0); /* it goes on though nothing else happens */
    while (at.refused < 2 * AT_ONCE && by_time() < 10000) {
        blasd_loop_step(at.loop.loop, 20);
        turn(0);
    }
    assert_in_range(at.refused, 2 * AT_ONCE, AT_ONCE + by_time());
}

static void test_beside_many_jobs(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) turn(320);
    assert_int_equal(at.let_in, 3200);
    assert_in_range(at.refused, 3200 / JOBS_A_REFUSAL, 3200 / JOBS_A_REFUSAL + by_time());
}

static void test_beside_few_jobs(void **state) {
    (void)state;
    turn(24); /* take the place of as many refusals */
    assert_int_equal(at.let_in, 24);
    assert_in_range(at.refused, AT_ONCE - 24, AT_ONCE - 24 + by_time());
}

static void test_what_is_earned_is_not_hoarded(void **state) {
    int most;
    (void)state;
    at.limits.queue_wait_ms = 60000; /* nobody is late yet */
    turn(3000);
    at.limits.queue_wait_ms = 100;
    turn(0);
    most = 2 * AT_ONCE + by_time();
    assert_int_equal(at.let_in, 3000);
    assert_in_range(at.refused, AT_ONCE, most);
}

static void test_nobody_is_refused_early(void **state) {
    (void)state;
    at.limits.queue_wait_ms = 60000;
    turn(10);
    assert_int_equal(at.let_in, 10);
    assert_int_equal(at.refused, 0);
    assert_ptr_equal(at.loop.admission.waiting.next, &at.exchanges[10].admission);
    assert_true(at.loop.admission.timer.slot != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_beside_no_jobs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_beside_many_jobs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_beside_few_jobs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_earned_is_not_hoarded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_is_refused_early, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
