/* Which webhook is tried when: four of a lane at one time, one where the last failed, later and
 * later, and no lane holds up another. Time is a number here. */
#include "main/webhook_lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define S INT64_C(1000000)
#define LIFE 3600

static void add(struct webhook_lanes *lanes, const char *receiver, int number) {
    char entry[BLASD_WEBHOOK_ENTRY], url[80];
    struct blasd_webhook webhook = {.entry = entry, .tenant = "t", .url = url};
    snprintf(entry, sizeof entry, "0-%d", number); /* ended at the begin of time */
    snprintf(url, sizeof url, "%s/path?%d", receiver, number);
    assert_int_equal(webhook_lanes_add(lanes, &webhook), 0);
}

/* Takes all that may be sent at that time; returns how many. */
static int take(struct webhook_lanes *lanes, struct webhook_hook **hooks, int64_t now) {
    int count = 0;
    while ((hooks[count] = webhook_lanes_next(lanes, now)) != NULL) count++;
    return count;
}

static void lanes_by_themselves(void **state) {
    struct webhook_lanes lanes;
    struct webhook_hook *a[600], *more[600];
    (void)state;
    webhook_lanes_init(&lanes);
    for (int i = 0; i < 9; i++) add(&lanes, "https://a:443", i);
    assert_int_equal(take(&lanes, a, S), 4);
    add(&lanes, "https://b:443", 10);
    assert_int_equal(take(&lanes, more, S), 1);
    assert_string_equal(more[0]->entry, "0-10");
    webhook_lanes_over(&lanes, more[0], false, 0, S);
    webhook_lanes_over(&lanes, a[0], false, 0, S);
    assert_int_equal(take(&lanes, a, S), 1);
    assert_string_equal(a[0]->entry, "0-4");
    assert_int_equal(lanes.running_count, 4);
    /* of many lanes so many at one time, and then the others first */
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "https://%d:443", i);
        add(&lanes, name, 100 + 2 * i);
        add(&lanes, name, 101 + 2 * i);
    }
    assert_int_equal(take(&lanes, more, S), 2 * (WEBHOOK_LANES - 1));
    for (int i = 0; more[i] != NULL; i++) webhook_lanes_over(&lanes, more[i], false, 0, S);
    assert_int_equal(take(&lanes, more, S), 2 * (100 - (WEBHOOK_LANES - 1)));
    webhook_lanes_release(&lanes);
}

/* Each wait is as long as all before it: about the logarithm of the time. */
static void tried_again(void **state) {
    struct webhook_lanes lanes;
    struct webhook_hook *hooks[8];
    int tries = 0;
    (void)state;
    webhook_lanes_init(&lanes);
    add(&lanes, "https://a:443", 1);
    for (int64_t now = 0; now < LIFE * S; now += S) {
        if (take(&lanes, hooks, now) == 0) continue;
        tries++;
        webhook_lanes_over(&lanes, hooks[0], true, 0, now);
    }
    assert_in_range(tries, 9, 19);
    webhook_lanes_release(&lanes);
}

static void a_lane_that_fails(void **state) {
    struct webhook_lanes lanes;
    struct webhook_hook *hooks[8];
    (void)state;
    webhook_lanes_init(&lanes);
    for (int i = 0; i < 3; i++) add(&lanes, "https://a:443", i);
    assert_int_equal(take(&lanes, hooks, S), 3);
    for (int i = 0; i < 3; i++) webhook_lanes_over(&lanes, hooks[i], true, 30, S);
    add(&lanes, "https://a:443", 9); /* one that comes waits with them */
    assert_int_equal(take(&lanes, hooks, 30 * S), 0);
    assert_int_equal(take(&lanes, hooks, 31 * S), 1); /* one at a time */
    /* what is forgotten and told again is not sent beside itself, and the lane rests all the same
     */
    webhook_lanes_forget(&lanes);
    add(&lanes, "https://a:443", atoi(hooks[0]->entry + 2));
    add(&lanes, "https://a:443", 5);
    webhook_lanes_over(&lanes, hooks[0], true, 0, 31 * S);
    assert_int_equal(take(&lanes, hooks, 60 * S), 0);
    assert_int_equal(take(&lanes, hooks, 62 * S), 1);
    assert_string_equal(hooks[0]->entry, "0-5");
    webhook_lanes_over(&lanes, hooks[0], false, 0, 62 * S);
    assert_int_equal(take(&lanes, hooks, 62 * S), 1); /* it gets on */
    webhook_lanes_over(&lanes, hooks[0], false, 0, 62 * S);
    assert_true(blasd_list_empty(&lanes.all));
    webhook_lanes_release(&lanes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lanes_by_themselves),
                                       cmocka_unit_test(tried_again),
                                       cmocka_unit_test(a_lane_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
