/* A thread's seat: one of its cores while it has it, all of them before and after. */
#include "worker/seat.h"

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
        cmocka_unit_test(test_another_thread_may_give_it_up),
        cmocka_unit_test(test_a_seat_of_no_thread_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
