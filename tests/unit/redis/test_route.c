/* Addresses of Redis, and the way from them to the server that has the queue, by what servers and
 * Sentinels may say. */
#include "redis/redis_tls.h"
#include "redis/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int parse(const char *url, struct blasd_link_address *ret) {
    struct blasd_err err = {0};
    int rc = blasd_link_parse(url, "q", ret, &err);
    if (rc != 0) assert_int_equal(err.code, BLASD_E_invalid_field);
    return rc;
}

static void one_address(void **state) {
    struct blasd_link_address a;
    (void)state;
    assert_int_equal(parse("unix:/run/r.sock", &a), 0);
    assert_string_equal(a.path, "/run/r.sock");
    assert_string_equal(a.tag, "{q}");
    assert_int_equal(a.count, 0);
    assert_int_equal(parse("redis://host", &a), 0);
    assert_string_equal(a.places[0].host, "host");
    assert_int_equal(a.places[0].port, 6379);
    assert_int_equal(a.count, 1);
    assert_string_equal(a.password, "");
    assert_int_equal(parse("redis://me:p%40ss%2fw/o:r,d@[::1]:7000/3", &a), 0);
    assert_string_equal(a.user, "me");
    assert_string_equal(a.password, "p@ss/w/o:r,d");
    assert_string_equal(a.places[0].host, "::1");
    assert_int_equal(a.places[0].port, 7000);
    assert_int_equal(a.db, 3);
    assert_int_equal(parse("redis://:secret@h:1/", &a), 0);
    assert_string_equal(a.user, "");
    assert_string_equal(a.password, "secret");
    if (blasd_redis_tls_known()) {
        assert_int_equal(parse("rediss://u:p@host/2", &a), 0);
        assert_true(a.tls && a.places[0].port == 6379 && a.db == 2);
        assert_int_equal(parse("rediss+sentinel://u:p@host/m", &a), 0);
        assert_true(a.tls && a.places[0].port == 26379 && a.db == 0);
    } else { /* never in the clear what was to be encrypted */
        assert_true(parse("rediss://u:p@host/2", &a) < 0);
        assert_true(parse("rediss+sentinel://u:p@host/m", &a) < 0);
    }
}

static void several(void **state) {
    struct blasd_link_address a;
    (void)state;
    assert_int_equal(parse("redis://u:p@a,[::2]:7001,c.d:7002", &a), 0);
    assert_int_equal(a.count, 3);
    assert_string_equal(a.places[0].host, "a");
    assert_int_equal(a.places[0].port, 6379);
    assert_string_equal(a.places[1].host, "::2");
    assert_int_equal(a.places[1].port, 7001);
    assert_string_equal(a.places[2].host, "c.d");
    assert_int_equal(a.places[2].port, 7002);
    assert_string_equal(a.master, "");
    assert_int_equal(parse("redis+sentinel://u:p@a,b:5/the%20name/4", &a), 0);
    assert_int_equal(a.count, 2);
    assert_int_equal(a.places[0].port, 26379);
    assert_int_equal(a.places[1].port, 5);
    assert_string_equal(a.master, "the name");
    assert_int_equal(a.db, 4);
    assert_int_equal(parse("redis://1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", &a), 0);
    assert_int_equal(a.count, BLASD_LINK_PLACES);
}

static void malformed(void **state) {
    static const char *const bad[] = {"",
                                      "host:6379",
                                      "rediss://host:x",
                                      "unix:relative",
                                      "redis://",
                                      "redis://:p@",
                                      "redis://h:0",
                                      "redis://h:65536",
                                      "redis://h:x",
                                      "redis://h/x",
                                      "redis://h/1/2",
                                      "redis://[::1",
                                      "redis://[::1]x",
                                      "redis://u:%4@h",
                                      "redis://u:%zz@h",
                                      "redis://u:%00@h",
                                      "redis://h:123456789012",
                                      "redis://a,",
                                      "redis://,a",
                                      "redis://a,,b",
                                      "redis://a,b:x",
                                      "redis://1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
                                      "redis+sentinel://h",
                                      "redis+sentinel://h/",
                                      "redis+sentinel://h//1",
                                      "redis+sentinel://h/m/x",
                                      "redis+other://h/m"};
    struct blasd_link_address a;
    struct blasd_err err;
    char path[200] = "unix:/";
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse(bad[i], &a) == 0) fail_msg("%s was taken", bad[i]);
    memset(path + 6, 'x', 150);
    assert_true(parse(path, &a) < 0);
    assert_int_equal(blasd_link_parse("redis://h", "a.b-c_1", &a, &err), 0);
    assert_true(blasd_link_parse("redis://h", "a{b", &a, &err) < 0);
    assert_true(blasd_link_parse("redis://h", "", &a, &err) < 0);
}

static struct blasd_err said;

static int hear_error(struct blasd_route *route, const char *text) {
    char room[400];
    redisReply reply = {.type = REDIS_REPLY_ERROR, .str = room};
    snprintf(room, sizeof room, "%s", text);
    reply.len = strlen(room);
    said = (struct blasd_err){0};
    return blasd_route_heard(route, &reply, &said);
}

static struct blasd_route at(const char *url, struct blasd_link_address *address) {
    struct blasd_route route = {.turn = 0};
    assert_int_equal(parse(url, address), 0);
    blasd_route_begin(&route, address);
    return route;
}

static void to_the_owner(void **state) {
    struct blasd_link_address a;
    struct blasd_route route = at("redis://one:1,two:2", &a);
    const char *words[BLASD_ROUTE_WORDS];
    redisReply zero = {.type = REDIS_REPLY_INTEGER};
    (void)state;
    assert_int_equal(blasd_route_question(&route, words), 3);
    assert_string_equal(words[1], "{q}"); /* whose slot is the queue's */
    assert_int_equal(hear_error(&route, "MOVED 3999 10.0.0.7:6381"), BLASD_ROUTE_ON);
    assert_string_equal(route.to.host, "10.0.0.7");
    assert_int_equal(route.to.port, 6381);
    assert_int_equal(hear_error(&route, "MOVED 3999 ::1:6382"), BLASD_ROUTE_ON);
    assert_string_equal(route.to.host, "::1");
    assert_int_equal(route.to.port, 6382);
    assert_int_equal(hear_error(&route, "MOVED 3999 :6383"), BLASD_ROUTE_ON); /* the same host */
    assert_string_equal(route.to.host, "::1");
    assert_int_equal(route.to.port, 6383);
    assert_int_equal(blasd_route_heard(&route, &zero, &said), 0);
    blasd_route_begin(&route, &a); /* the next one of those that were given */
    assert_string_equal(route.to.host, "two");
    blasd_route_begin(&route, &a);
    assert_string_equal(route.to.host, "one");
}

static void nowhere(void **state) {
    static const char *const texts[] = {
        "MOVED 1 host",        "MOVED 1 host:0",    "MOVED",
        "MOVED 1 host:65536",  "MOVED 1 host:7x",   "MOVED :7",
        "ASK 1 host:7",        "CLUSTERDOWN it is", "TRYAGAIN so",
        "LOADING the dataset", "MASTERDOWN so",     "READONLY a replica"};
    struct blasd_link_address a;
    char text[400] = "MOVED 1 ";
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct blasd_route route = at("redis://h", &a);
        if (i == 2) { /* no error of Redis': ours to tell */
            assert_true(hear_error(&route, texts[i]) < 0);
            continue;
        }
        if (hear_error(&route, texts[i]) != -(int)BLASD_E_queue_unavailable)
            fail_msg("%s: %s", texts[i], said.detail);
    }
    struct blasd_route route = at("unix:/run/r", &a);
    assert_int_equal(hear_error(&route, "MOVED 1 :7"), -(int)BLASD_E_queue_unavailable);
    memset(text + 8, 'x', 300);
    memcpy(text + 308, ":7", 3);
    assert_int_equal(hear_error(&route, text), -(int)BLASD_E_queue_unavailable);
    assert_int_equal(hear_error(&route, "WRONGPASS no"), -(int)BLASD_E_internal_error);
}

/* It refuses all writes, or this user's: there is no other one to go to. */
static void here_but_not_now(void **state) {
    static const char *const texts[] = {"MISCONF no file", "NOREPLICAS so", "OOM command not",
                                        "NOPERM this user"};
    struct blasd_link_address a;
    struct blasd_route route = at("redis://one,two", &a);
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(hear_error(&route, texts[i]), 0);
    route = at("redis+sentinel://s/name", &a);
    assert_true(hear_error(&route, texts[3]) < 0); /* who has not told where it is */
}

static void in_a_circle(void **state) {
    struct blasd_link_address a;
    struct blasd_route route = at("redis://h", &a);
    int on = 0;
    (void)state;
    while (on < 100 && hear_error(&route, "MOVED 1 other:7") == BLASD_ROUTE_ON) on++;
    assert_in_range(on, 2, 10);
    assert_int_equal(said.code, BLASD_E_queue_unavailable);
    blasd_route_begin(&route, &a);
    assert_int_equal(hear_error(&route, "MOVED 1 other:7"), BLASD_ROUTE_ON);
}

static void by_a_sentinel(void **state) {
    struct blasd_link_address a;
    struct blasd_route route = at("redis+sentinel://s/name", &a);
    const char *words[BLASD_ROUTE_WORDS];
    redisReply host = {.type = REDIS_REPLY_STRING, .str = (char[]){"10.0.0.8"}, .len = 8},
               port = {.type = REDIS_REPLY_STRING, .str = (char[]){"6390"}, .len = 4},
               nil = {.type = REDIS_REPLY_NIL}, zero = {.type = REDIS_REPLY_INTEGER};
    redisReply *pair[] = {&host, &port}, *odd[] = {&host, &nil};
    redisReply told = {.type = REDIS_REPLY_ARRAY, .elements = 2, .element = pair},
               half = {.type = REDIS_REPLY_ARRAY, .elements = 2, .element = odd};
    (void)state;
    assert_int_equal(blasd_route_question(&route, words), 3);
    assert_string_equal(words[0], "SENTINEL");
    assert_string_equal(words[2], "name");
    assert_int_equal(blasd_route_heard(&route, &nil, &said), -(int)BLASD_E_queue_unavailable);
    assert_int_equal(blasd_route_heard(&route, &half, &said), -(int)BLASD_E_queue_unavailable);
    assert_true(route.sentinel);
    assert_int_equal(blasd_route_heard(&route, &told, &said), BLASD_ROUTE_ON);
    assert_string_equal(route.to.host, "10.0.0.8");
    assert_int_equal(route.to.port, 6390);
    assert_int_equal(blasd_route_question(&route, words), 3); /* that is a server */
    assert_int_equal(blasd_route_heard(&route, &zero, &said), 0);
    blasd_route_begin(&route, &a);
    assert_true(route.sentinel);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_address), cmocka_unit_test(several),
        cmocka_unit_test(malformed),   cmocka_unit_test(to_the_owner),
        cmocka_unit_test(nowhere),     cmocka_unit_test(here_but_not_now),
        cmocka_unit_test(in_a_circle), cmocka_unit_test(by_a_sentinel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
