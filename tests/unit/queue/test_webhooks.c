/* Webhooks inside Redis: promised with a job, written to a stream when it ends, read by the one
 * process that has the lease, and gone once they are delivered or given up. */
#include "redis_fixture.h"

#include "queue/webhooks.h"
#include "wire/frame.h"

#define NOTE "\t\tmatmul\tanonymous"
#define A "https://a.example:443"
#define B "https://b.example:443"

/* What a process has been told of. */
struct taken {
    int forgotten, count;
    char url[16][64], entry[16][BLASD_WEBHOOK_ENTRY];
};

static void forget(void *arg) {
    struct taken *taken = arg;
    taken->forgotten++;
    taken->count = 0;
}

static void note(void *arg, const struct blasd_webhook *webhook) {
    struct taken *taken = arg;
    assert_true(taken->count < 16);
    snprintf(taken->entry[taken->count], sizeof taken->entry[0], "%s", webhook->entry);
    snprintf(taken->url[taken->count++], sizeof taken->url[0], "%s", webhook->url);
}

static int take(struct blasd_webhooks *hooks, struct taken *taken) {
    const struct blasd_webhook_index index = {forget, note, taken};
    struct blasd_err err;
    return blasd_webhooks_take(hooks, 16, &index, &err);
}

static void settle(struct blasd_webhooks *hooks, const char *entry,
                   enum blasd_webhook_outcome outcome) {
    struct blasd_err err;
    assert_int_equal(blasd_webhooks_done(hooks, entry, outcome, &err), 0);
}

static long long submit(struct bed *bed, char id[BLASD_ID_LEN + 1], const char *options) {
    redisReply *reply;
    long long code;
    id_make(id, BLASD_ID_ASYNC, 0);
    reply = fcall(bed, "submit", NEXT_SEQ, id, "frame", "2", "100", options, NOTE, NULL);
    code = reply->element[3]->integer;
    drop(reply);
    return code;
}

/* A job that has ended, by being cancelled. */
static void end_one(struct bed *bed, char id[BLASD_ID_LEN + 1], const char *options) {
    assert_int_equal(submit(bed, id, options), 0);
    drop(fcall(bed, "cancel", "0", id, NULL));
}

static struct blasd_webhooks *deliverer(struct bed *bed) {
    struct blasd_webhooks *hooks;
    struct blasd_err err;
    assert_int_equal(blasd_webhooks_open(&bed->options, &hooks, &err), 0);
    return hooks;
}

static int number(struct bed *bed, const char *command, const char *key, const char *field) {
    redisReply *reply = redisCommand(bed->raw, field[0] == '\0' ? "%s %s:%s" : "%s %s:%s %s",
                                     command, bed->tag, key, field);
    int count = reply->type == REDIS_REPLY_STRING ? atoi(reply->str) : (int)reply->integer;
    drop(reply);
    return count;
}

static void delivered(void **state) {
    struct blasd_webhooks *hooks;
    struct taken taken = {0};
    struct blasd_webhook webhook;
    struct blasd_record record;
    struct blasd_err err;
    struct bed bed;
    char id[3][BLASD_ID_LEN + 1];
    size_t size;
    (void)state;
    bed_open(&bed, &server, "delivered");
    hooks = deliverer(&bed);
    assert_int_equal(take(hooks, &taken), 0);
    /* a key that looks like more options, a URL that looks like a key */
    assert_int_equal(submit(&bed, id[0], "d=60000 n=9:" A "/x?k=1:2 k=00:n=9:" B "/"), 0);
    assert_int_equal(take(hooks, &taken), 0); /* it has not ended */
    drop(fcall(&bed, "cancel", "0", id[0], NULL));
    end_one(&bed, id[1], "k=00:m=9 n=9:" B "/"); /* which asks for none */
    assert_int_equal(take(hooks, &taken), 1);
    assert_int_equal(take(hooks, &taken), 0); /* it was told of */
    assert_int_equal(blasd_webhooks_get(hooks, taken.entry[0], &webhook, &err), 1);
    assert_string_equal(webhook.id, id[0]);
    assert_string_equal(webhook.tenant, "anonymous");
    assert_string_equal(webhook.url, A "/x?k=1:2");
    assert_int_equal(
        blasd_record_decode_bare(webhook.record, webhook.record_len, &record, &size, &err), 0);
    assert_string_equal(record.id, id[0]);
    assert_int_equal(record.state, BLASD_CANCELLED);
    blasd_webhook_release(&webhook);
    settle(hooks, taken.entry[0], BLASD_WEBHOOK_FAILED);
    assert_int_equal(number(&bed, "XLEN", "hooks", ""), 1);
    settle(hooks, taken.entry[0], BLASD_WEBHOOK_DELIVERED);
    settle(hooks, taken.entry[0], BLASD_WEBHOOK_DELIVERED); /* the reply was lost */
    assert_int_equal(number(&bed, "HGET", "state", "webhooks\\ failed"), 0);
    assert_int_equal(blasd_webhooks_get(hooks, taken.entry[0], &webhook, &err), 0);
    blasd_webhook_release(&webhook);
    assert_int_equal(number(&bed, "XLEN", "hooks", ""), 0);
    assert_int_equal(number(&bed, "EXISTS", "hook_counts", ""), 0);
    /* what is none of a URL's options is refused before anything is done */
    assert_int_equal(submit(&bed, id[2], "n=9:nowhere"), 4);
    assert_int_equal(submit(&bed, id[2], "n=x:" A), 4);
    assert_int_equal(number(&bed, "EXISTS", "hook_counts", ""), 0);
    blasd_webhooks_free(hooks);
    bed_close(&bed);
}

/* One process delivers; another takes over, and is told of all, once that one ends or is silent. A
 * Redis that was emptied is read from its begin. */
static void one_at_a_time(void **state) {
    struct blasd_webhooks *one, *other;
    struct taken first = {0}, second = {0};
    struct bed bed;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "one");
    one = deliverer(&bed);
    other = deliverer(&bed);
    for (int i = 0; i < 5; i++) end_one(&bed, id, "n=99:" A "/");
    assert_int_equal(take(one, &first), 5);
    assert_int_equal(take(other, &second), 0);
    settle(one, first.entry[0], BLASD_WEBHOOK_DELIVERED);
    redis_forward(&server, 6000);
    assert_int_equal(take(other, &second), 4);
    assert_int_equal(take(one, &first), 0);
    assert_int_equal(first.count, 0);                      /* it has forgotten the others */
    settle(one, second.entry[0], BLASD_WEBHOOK_DELIVERED); /* an answer that came late counts */
    blasd_webhooks_free(other);
    assert_int_equal(take(one, &first), 3);
    drop(redisCommand(bed.raw, "DEL %s:hooks %s:hook_counts", bed.tag, bed.tag));
    drop(redisCommand(bed.raw, "HDEL %s:state notifier", bed.tag));
    end_one(&bed, id, "n=99:" B "/");
    assert_int_equal(take(one, &first), 1);
    assert_int_equal(first.count, 1);
    assert_string_equal(first.url[0], B "/");
    blasd_webhooks_free(one);
    bed_close(&bed);
}

static void room(void **state) {
    struct blasd_webhooks *hooks;
    struct taken taken = {0};
    struct bed bed;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "room");
    hooks = deliverer(&bed);
    for (int i = 0; i < 2; i++) assert_int_equal(submit(&bed, id, "n=20:" A "/"), 0);
    assert_int_equal(submit(&bed, id, "n=20:" A "/other"), 10);
    assert_int_equal(submit(&bed, id, "n=20:" B "/"), 0);
    assert_int_equal(submit(&bed, id, "n=3:" B "/"), 10); /* of all */
    end_one(&bed, id, "n=40:" A "/");
    assert_int_equal(submit(&bed, id, "n=20:" A "/"), 10);
    assert_int_equal(take(hooks, &taken), 1);
    settle(hooks, taken.entry[0], BLASD_WEBHOOK_GIVEN_UP);
    assert_int_equal(submit(&bed, id, "n=30:" A "/"), 0);
    blasd_webhooks_free(hooks);
    bed_close(&bed);
}

/* One of several tenants has three quarters of the room, however many receivers he names. */
static void room_of_a_tenant(void **state) {
    struct bed bed;
    char id[BLASD_ID_LEN + 1], options[64];
    int taken = 0;
    (void)state;
    bed_open(&bed, &server, "shares");
    for (int i = 0; i < 40; i++) {
        redisReply *reply;
        snprintf(options, sizeof options, "n=40:https://h%d.example:443/", i);
        id_make(id, BLASD_ID_ASYNC, 0);
        reply = fcall(&bed, "submit", NEXT_SEQ, id, "frame", "2", "100", options,
                      "\t\tmatmul\tgreedy", NULL);
        taken += reply->element[3]->integer == 0;
        drop(reply);
    }
    assert_int_equal(taken, 30);
    for (int i = 0; i < 4; i++) assert_int_equal(submit(&bed, id, "n=40:" A "/"), 0);
    assert_int_equal(submit(&bed, id, "n=40:" A "/"), 10); /* its tenth */
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(delivered), cmocka_unit_test(one_at_a_time),
                                       cmocka_unit_test(room), cmocka_unit_test(room_of_a_tenant)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
