/* Which webhook is tried when: four of a queue at one time, one where the last failed, later and
 * later, and no queue holds up another. Time is a number here. */
#include "main/webhook_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define S INT64_C(1000000)
#define LIFE 3600

static void add(struct webhook_queues *queues, const char *receiver, int number) {
    char entry[BLASD_WEBHOOK_ENTRY], url[80];
    struct blasd_webhook webhook = {.entry = entry, .tenant = "t", .url = url};
    snprintf(entry, sizeof entry, "0-%d", number); /* ended at the begin of time */
    snprintf(url, sizeof url, "%s/path?%d", receiver, number);
    assert_int_equal(webhook_queues_add(queues, &webhook), 0);
}

/* Takes all that may be sent at that time; returns how many. */
static int take(struct webhook_queues *queues, struct webhook_hook **hooks, int64_t now) {
    int count = 0;
    while ((hooks[count] = webhook_queues_next(queues, now)) != NULL) count++;
    return count;
}

static void queues_by_themselves(void **state) {
    struct webhook_queues queues;
    struct webhook_hook *a[600], *more[600];
    (void)state;
    webhook_queues_init(&queues);
    for (int i = 0; i < 9; i++) add(&queues, "https://a:443", i);
    assert_int_equal(take(&queues, a, S), 4);
    add(&queues, "https://b:443", 10);
    assert_int_equal(take(&queues, more, S), 1);
    assert_string_equal(more[0]->entry, "0-10");
    webhook_queues_over(&queues, more[0], false, 0, S);
    webhook_queues_over(&queues, a[0], false, 0, S);
    assert_int_equal(take(&queues, a, S), 1);
    assert_string_equal(a[0]->entry, "0-4");
    assert_int_equal(queues.running_count, 4);
    /* of many queues so many requests at one time, and then the others first */
    for (int i = 0; i < 150; i++) {
        char name[32];
        snprintf(name, sizeof name, "https://%d:443", i);
        add(&queues, name, 100 + 2 * i);
        add(&queues, name, 101 + 2 * i);
    }
    assert_int_equal(take(&queues, more, S), WEBHOOK_REQUESTS - 4);
    for (int i = 0; more[i] != NULL; i++) webhook_queues_over(&queues, more[i], false, 0, S);
    assert_int_equal(take(&queues, more, S), 2 * 150 - (WEBHOOK_REQUESTS - 4));
    webhook_queues_release(&queues);
}

/* Each wait is as long as all before it: about the logarithm of the time. */
static void tried_again(void **state) {
    struct webhook_queues queues;
    struct webhook_hook *hooks[8];
    int tries = 0;
    (void)state;
    webhook_queues_init(&queues);
    add(&queues, "https://a:443", 1);
    for (int64_t now = 0; now < LIFE * S; now += S) {
        if (take(&queues, hooks, now) == 0) continue;
        tries++;
        webhook_queues_over(&queues, hooks[0], true, 0, now);
    }
    assert_in_range(tries, 9, 19);
    webhook_queues_release(&queues);
}

static void a_queue_that_fails(void **state) {
    struct webhook_queues queues;
    struct webhook_hook *hooks[8];
    (void)state;
    webhook_queues_init(&queues);
    for (int i = 0; i < 3; i++) add(&queues, "https://a:443", i);
    assert_int_equal(take(&queues, hooks, S), 3);
    for (int i = 0; i < 3; i++) webhook_queues_over(&queues, hooks[i], true, 30, S);
    add(&queues, "https://a:443", 9); /* one that comes waits with them */
    assert_int_equal(take(&queues, hooks, 30 * S), 0);
    assert_int_equal(take(&queues, hooks, 31 * S), 1); /* one at a time */
    /* what is forgotten and told again is not sent beside itself, and the queue rests all the same
     */
    webhook_queues_forget(&queues);
    add(&queues, "https://a:443", atoi(hooks[0]->entry + 2));
    add(&queues, "https://a:443", 5);
    webhook_queues_over(&queues, hooks[0], true, 0, 31 * S);
    assert_int_equal(take(&queues, hooks, 60 * S), 0);
    assert_int_equal(take(&queues, hooks, 62 * S), 1);
    assert_string_equal(hooks[0]->entry, "0-5");
    webhook_queues_over(&queues, hooks[0], false, 0, 62 * S);
    assert_int_equal(take(&queues, hooks, 62 * S), 1); /* it gets on */
    webhook_queues_over(&queues, hooks[0], false, 0, 62 * S);
    assert_true(blasd_list_empty(&queues.all));
    webhook_queues_release(&queues);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(queues_by_themselves),
                                       cmocka_unit_test(tried_again),
                                       cmocka_unit_test(a_queue_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
