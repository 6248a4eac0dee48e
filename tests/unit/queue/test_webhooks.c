/* Webhooks inside Redis: promised with a job, made when it ends, given away by lanes, tried again
 * later and later, and given up. The server's clock is moved. */
#include "redis_fixture.h"

#include "queue/webhooks.h"

#define NOTE "\t\tmatmul\tanonymous"
#define LEASE_S 20
#define LIFE_S 3600
#define A "https://a.example:443"
#define B "https://b.example:443"

struct taken {
    int lanes, hooks;
    char lane[8][BLASD_WEBHOOK_LANE];
    char id[16][BLASD_ID_LEN + 1], url[16][64];
};

static void note(void *arg, const char *lane, const struct blasd_webhook *hooks, int count) {
    struct taken *taken = arg;
    struct blasd_record record;
    struct blasd_err err;
    size_t size;
    assert_true(taken->lanes < 8 && taken->hooks + count <= 16);
    snprintf(taken->lane[taken->lanes++], BLASD_WEBHOOK_LANE, "%s", lane);
    for (int i = 0; i < count; i++) {
        snprintf(taken->id[taken->hooks], sizeof taken->id[0], "%s", hooks[i].id);
        snprintf(taken->url[taken->hooks++], sizeof taken->url[0], "%s", hooks[i].url);
        assert_int_equal(
            blasd_record_decode_bare(hooks[i].record, hooks[i].record_len, &record, &size, &err),
            0);
        assert_string_equal(record.id, hooks[i].id);
        assert_true(blasd_state_final(record.state));
    }
}

static struct taken take(struct blasd_webhooks *hooks, int each) {
    struct taken taken = {.lanes = 0};
    struct blasd_err err;
    int lanes = blasd_webhooks_take(hooks, 8, each, LEASE_S, note, &taken, &err);
    assert_int_equal(lanes, taken.lanes);
    return taken;
}

/* The same fate for all that were taken of the one lane; returns how many were given up. */
static int settle(struct blasd_webhooks *hooks, const struct taken *taken, const char *text) {
    struct blasd_webhook_outcome outcomes[16];
    struct blasd_err err;
    assert_int_equal(taken->lanes, 1);
    for (int i = 0; i < taken->hooks; i++) {
        memcpy(outcomes[i].id, taken->id[i], sizeof outcomes[i].id);
        snprintf(outcomes[i].text, sizeof outcomes[i].text, "%s", text);
    }
    return blasd_webhooks_done(hooks, taken->lane[0], LIFE_S, outcomes, taken->hooks, &err);
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

static int keys_left(struct bed *bed) {
    redisReply *reply = redisCommand(bed->raw,
                                     "EXISTS %s:hooks %s:hook_due "
                                     "%s:hook_counts %s:hook_holds",
                                     bed->tag, bed->tag, bed->tag, bed->tag);
    int count = (int)reply->integer;
    drop(reply);
    return count;
}

static int total(struct bed *bed, const char *field) {
    redisReply *reply = redisCommand(bed->raw, "HGET %s:state %s", bed->tag, field);
    int count = reply->type == REDIS_REPLY_STRING ? atoi(reply->str) : 0;
    drop(reply);
    return count;
}

static void delivered(void **state) {
    struct blasd_webhooks *hooks;
    struct taken taken;
    struct bed bed;
    char id[3][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "delivered");
    hooks = deliverer(&bed);
    assert_int_equal(take(hooks, 4).lanes, 0);
    /* a key that looks like more options, a URL that looks like a key */
    assert_int_equal(submit(&bed, id[0], "d=60000 n=9:" A "/x?k=1:2 k=00:n=9:" B "/"), 0);
    assert_int_equal(take(hooks, 4).lanes, 0); /* it has not ended */
    drop(fcall(&bed, "cancel", "0", id[0], NULL));
    end_one(&bed, id[1], "k=00:m=9 n=9:" B "/"); /* which asks for none */
    taken = take(hooks, 4);
    assert_int_equal(taken.hooks, 1);
    assert_string_equal(taken.lane[0], "anonymous " A);
    assert_string_equal(taken.id[0], id[0]);
    assert_string_equal(taken.url[0], A "/x?k=1:2");
    assert_int_equal(settle(hooks, &taken, "delivered"), 0);
    assert_int_equal(settle(hooks, &taken, "delivered"), 0); /* the reply was lost */
    assert_int_equal(total(&bed, "webhooks delivered"), 1);
    assert_int_equal(take(hooks, 4).lanes, 0);
    assert_int_equal(keys_left(&bed), 0);
    /* what is none of a URL's options is refused before anything is done */
    assert_int_equal(submit(&bed, id[2], "n=9:nowhere"), 4);
    assert_int_equal(submit(&bed, id[2], "n=x:" A), 4);
    assert_int_equal(keys_left(&bed), 0);
    blasd_webhooks_free(hooks);
    bed_close(&bed);
}

/* A lane is one's alone until its time is up, and others go on meanwhile. */
static void lanes(void **state) {
    struct blasd_webhooks *hooks, *other;
    struct taken first, again;
    struct bed bed;
    char id[6][BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "lanes");
    hooks = deliverer(&bed);
    other = deliverer(&bed);
    for (int i = 0; i < 5; i++) end_one(&bed, id[i], "n=99:" A "/");
    first = take(hooks, 3);
    assert_int_equal(first.lanes, 1);
    assert_int_equal(first.hooks, 3);
    end_one(&bed, id[5], "n=99:" A "/"); /* that one more comes gives it to nobody else */
    assert_int_equal(take(other, 3).lanes, 0);
    end_one(&bed, id[5], "n=99:" B "/");
    again = take(other, 3);
    assert_int_equal(again.hooks, 1);
    assert_string_equal(again.lane[0], "anonymous " B);
    redis_forward(&server, LEASE_S * 1000 + 1000);
    again = take(other, 16);
    assert_int_equal(again.lanes, 2); /* whoever had them is gone */
    assert_int_equal(again.hooks, 7);
    blasd_webhooks_free(hooks);
    blasd_webhooks_free(other);
    bed_close(&bed);
}

static void tried_again(void **state) {
    struct blasd_webhooks *hooks;
    struct taken taken;
    struct bed bed;
    char id[3][BLASD_ID_LEN + 1];
    int tries = 0;
    (void)state;
    bed_open(&bed, &server, "again");
    hooks = deliverer(&bed);
    end_one(&bed, id[0], "n=99:" A "/");
    for (int i = 1; i <= 2 * LIFE_S; i++) {
        taken = take(hooks, 4);
        if (taken.lanes == 1) {
            tries++;
            if (settle(hooks, &taken, "0") == 1) break;
        }
        redis_forward(&server, 1000);
    }
    /* each wait is as long as all before it: about the logarithm of the time */
    assert_true(tries > 8 && tries < 20);
    assert_int_equal(total(&bed, "webhooks failed"), tries - 1);
    assert_int_equal(total(&bed, "webhooks given_up"), 1);
    assert_int_equal(keys_left(&bed), 0);
    /* one that does not get on gets one at a time, and none for a while; as long as it asks for */
    for (int i = 0; i < 3; i++) end_one(&bed, id[i], "n=99:" A "/");
    taken = take(hooks, 4);
    assert_int_equal(taken.hooks, 3);
    assert_int_equal(settle(hooks, &taken, "30"), 0);
    redis_forward(&server, 25000);
    assert_int_equal(take(hooks, 4).lanes, 0);
    redis_forward(&server, 6000);
    taken = take(hooks, 4);
    assert_int_equal(taken.hooks, 1);
    assert_int_equal(settle(hooks, &taken, "delivered"), 0);
    taken = take(hooks, 4);
    assert_int_equal(taken.hooks, 2); /* it gets on */
    assert_int_equal(settle(hooks, &taken, "never"), 2);
    assert_int_equal(keys_left(&bed), 0);
    blasd_webhooks_free(hooks);
    bed_close(&bed);
}

static void room(void **state) {
    struct blasd_webhooks *hooks;
    struct taken taken;
    struct bed bed;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "room");
    hooks = deliverer(&bed);
    for (int i = 0; i < 2; i++) assert_int_equal(submit(&bed, id, "n=20:" A "/"), 0);
    assert_int_equal(submit(&bed, id, "n=20:" A "/other"), 10);
    assert_int_equal(submit(&bed, id, "n=20:" B "/"), 0);
    assert_int_equal(submit(&bed, id, "n=3:" B "/"), 10); /* of all */
    drop(fcall(&bed, "cancel", "0", id, NULL));
    end_one(&bed, id, "n=40:" A "/");
    assert_int_equal(submit(&bed, id, "n=20:" A "/"), 10);
    taken = take(hooks, 4);
    assert_int_equal(settle(hooks, &taken, "delivered"), 0);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(delivered), cmocka_unit_test(lanes),
                                       cmocka_unit_test(tried_again), cmocka_unit_test(room),
                                       cmocka_unit_test(room_of_a_tenant)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
