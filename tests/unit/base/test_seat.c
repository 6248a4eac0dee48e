/* A thread's seat: one of its cores while it has it, all of them before and after. */
#include "base/seat.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static cpu_set_t cores_now(void) {
    cpu_set_t now;
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    return now;
}

static void test_a_seat_is_one_of_the_thread_s_cores(void **state) {
    struct blasd_seat seat = {0};
    cpu_set_t all = cores_now(), now, seen;
    (void)state;
    CPU_ZERO(&seen);
    blasd_seat_open(&seat);
    for (int number = 0; number < CPU_COUNT(&all); number++) {
        blasd_seat_take(&seat, number);
        blasd_seat_take(&seat, number + 1); /* it has one */
        now = cores_now();
        assert_int_equal(CPU_COUNT(&now), 1);
        CPU_OR(&seen, &seen, &now);
        blasd_seat_leave(&seat);
        blasd_seat_leave(&seat);
        now = cores_now();
        assert_true(CPU_EQUAL(&now, &all));
    }
    assert_true(CPU_EQUAL(&seen, &all));
    blasd_seat_take(&seat, CPU_COUNT(&all)); /* there is none of that number */
    now = cores_now();
    assert_true(CPU_EQUAL(&now, &all));
}

/* By the core's own number, from one to another. */
static void test_a_seat_on_a_certain_core(void **state) {
    struct blasd_seat seat = {0};
    cpu_set_t all = cores_now(), now;
    (void)state;
    blasd_seat_open(&seat);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET((size_t)core, &all)) continue;
        blasd_seat_take_core(&seat, core);
        now = cores_now();
        assert_int_equal(CPU_COUNT(&now), 1);
        assert_true(CPU_ISSET((size_t)core, &now));
    }
    blasd_seat_leave(&seat);
    now = cores_now();
    assert_true(CPU_EQUAL(&now, &all));
    for (int core = -1; core < CPU_SETSIZE + 2; core++)
        if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET((size_t)core, &all))
            blasd_seat_take_core(&seat, core);
    assert_false(seat.taken);
}

/* taskset while the thread has a seat: what it says stands. */
static void test_what_others_say_stands(void **state) {
    struct blasd_seat seat = {0};
    cpu_set_t all = cores_now(), first, now;
    int core = 0, last = CPU_SETSIZE - 1;
    (void)state;
    if (CPU_COUNT(&all) < 2) skip();
    while (!CPU_ISSET((size_t)core, &all)) core++;
    while (!CPU_ISSET((size_t)last, &all)) last--;
    CPU_ZERO(&first);
    CPU_SET((size_t)core, &first);
    blasd_seat_open(&seat);
    blasd_seat_take_core(&seat, last);
    assert_int_equal(sched_setaffinity(0, sizeof first, &first), 0);
    blasd_seat_leave(&seat);
    now = cores_now();
    assert_true(CPU_EQUAL(&now, &first));
    blasd_seat_take_core(&seat, last); /* it may not run there now */
    assert_false(seat.taken);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void *decline_seat(void *arg) {
    cpu_set_t *cores = arg;
    blasd_seat_decline();
    cores[1] = cores_now();
    return NULL;
}

static void *start_with_seat(void *arg) {
    cpu_set_t *cores = arg;
    struct blasd_seat seat;
    pthread_t thread;
    blasd_seat_open(&seat);
    blasd_seat_take(&seat, 0);
    cores[0] = cores_now();
    assert_int_equal(pthread_create(&thread, NULL, decline_seat, cores), 0);
    pthread_join(thread, NULL);
    return NULL;
}

static void test_a_new_thread_need_not_sit_there_too(void **state) {
    cpu_set_t all = cores_now(), cores[2];
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, start_with_seat, cores), 0);
    pthread_join(thread, NULL);
    assert_int_equal(CPU_COUNT(&cores[0]), 1);
    assert_true(CPU_EQUAL(&cores[1], &all));
}

static void *give_up_seat(void *arg) {
    blasd_seat_leave(arg);
    return NULL;
}

static void test_another_thread_may_give_it_up(void **state) {
    struct blasd_seat seat = {0};
    cpu_set_t all = cores_now(), now;
    pthread_t other;
    (void)state;
    blasd_seat_open(&seat);
    blasd_seat_take(&seat, 0);
    assert_int_equal(pthread_create(&other, NULL, give_up_seat, &seat), 0);
    pthread_join(other, NULL);
    now = cores_now();
    assert_true(CPU_EQUAL(&now, &all));
}

static void test_a_seat_of_no_thread_does_nothing(void **state) {
    struct blasd_seat seat = {0};
    cpu_set_t all = cores_now(), now;
    (void)state;
    blasd_seat_take(&seat, 0);
    blasd_seat_leave(&seat);
    now = cores_now();
    assert_true(CPU_EQUAL(&now, &all));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_seat_is_one_of_the_thread_s_cores),
        cmocka_unit_test(test_a_seat_on_a_certain_core),
        cmocka_unit_test(test_what_others_say_stands),
        cmocka_unit_test(test_a_new_thread_need_not_sit_there_too),
        cmocka_unit_test(test_another_thread_may_give_it_up),
        cmocka_unit_test(test_a_seat_of_no_thread_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
