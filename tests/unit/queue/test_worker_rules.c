/* What a guard lets through: each form of what a worker says, and none of what it could say beside.
 */
#include "queue/worker_rules.h"

#include <hiredis/hiredis.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct blasd_limits limits;
static struct blasd_worker_rules rules;

/* Words with spaces between; LIMITS stands for those of the queue, EMPTY for no bytes. */
static bool may(const char *text) {
    struct blasd_redis_request request = {0};
    const char *words[64];
    char copy[512], *sent = NULL, *save = NULL;
    int count = 0, len;
    bool yes;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
        words[count++] = strcmp(word, "LIMITS") == 0  ? rules.limits.text
                         : strcmp(word, "EMPTY") == 0 ? ""
                         : strcmp(word, "STORE") == 0 ? rules.store
                         : strcmp(word, "CODE") == 0  ? blasd_queue_library.code
                                                      : word;
    len = (int)redisFormatCommandArgv(&sent, count, words, NULL);
    assert_int_equal(blasd_redis_request_read(&request, sent, (size_t)len), 1);
    yes = blasd_worker_may(&rules, sent, &request);
    blasd_redis_request_release(&request);
    redisFreeCommand(sent);
    return yes;
}

static int setup(void **state) {
    struct blasd_queue_options options = {.name = "q", .limits = &limits, .guard = 3};
    (void)state;
    blasd_limits_init(&limits);
    assert_int_equal(blasd_store_open("redis", &options.store, NULL), 0);
    blasd_worker_rules_init(&rules, "me", &options);
    blasd_store_free(options.store);
    return 0;
}

static void check(const char *const *texts, bool expected) {
    for (; *texts != NULL; texts++)
        if (may(*texts) != expected)
            fail_msg("%s: %s", expected ? "refused" : "let through", *texts);
}

#define FN BLASD_QUEUE_LIBRARY "_"

static void its_own(void **state) {
    static const char *const texts[] = {
        "FCALL " FN "turn 1 {q} LIMITS me 7 0 1 1 64 1000 0",
        "FCALL " FN "turn 1 {q} LIMITS me 7 0 1 1 64 1000 0 id frames out",
        "FCALL " FN "begin 1 {q} LIMITS me 7 0 text",
        "FCALL " FN "progress 1 {q} LIMITS me 7 0.5 id id",
        "FCALL " FN "holds 1 {q} LIMITS me 7 3 id",
        "FCALL " FN "register 1 {q} LIMITS me 1 {} STORE",
        "FCALL " FN "renew 1 {q} LIMITS me 7 {}",
        "FCALL " FN "release 1 {q} LIMITS me 7",
        "FCALL " FN "tensor_copies 1 {q} LIMITS cuda:0 me id",
        "FCALL " FN "refs 1 {q} LIMITS id.in",
        "FCALL " FN "blob_write 1 {q} LIMITS me 7 id.out 3 0 EMPTY",
        "FCALL " FN "blob_free 1 {q} LIMITS id.out",
        "FCALL " FN "open 1 {q} LIMITS STORE 0",
        "BLMPOP 3.000 1 {q}:wake:me LEFT COUNT 16400",
        "HSET {q}:claims:me @0 text",
        "SET {q}:figures:me {} PX 3000",
        "SET {q}:figures:me {\"ops\":{\"a\":[1,2.5e3]}} PX 3000",
        "GET {q}:blob:id.in:0",
        "HSCAN {q}:blobs 0 COUNT 256",
        "SET {q}:sweeping me PX 10000 NX",
        "SET {q}:sweeping:at_work me PX 1000 NX",
        "PEXPIRE {q}:sweeping 1000",
        "PEXPIRE {q}:sweeping:at_work 1000",
        "EXISTS {q}",
        "TIME",
        "INFO",
        "CLIENT REPLY ON",
        "CLIENT REPLY SKIP",
        "FUNCTION LIST LIBRARYNAME " BLASD_QUEUE_LIBRARY " WITHCODE",
        "FUNCTION LOAD REPLACE CODE",
        NULL,
    };
    (void)state;
    check(texts, true);
}

static void nothing_else(void **state) {
    static const char *const texts[] = {
        /* in another's name */
        "FCALL " FN "turn 1 {q} LIMITS you 7 0 1 1 64 1000 0",
        "FCALL " FN "turn 1 {q} LIMITS mee 7 0 1 1 64 1000 0",
        "FCALL " FN "turn 1 {q} LIMITS m 7 0 1 1 64 1000 0",
        "FCALL " FN "register 1 {q} LIMITS you 1 {} STORE",
        "FCALL " FN "release 1 {q} LIMITS you 7",
        "FCALL " FN "blob_write 1 {q} LIMITS you 7 id.out 3 0 x",
        "FCALL " FN "tensor_copies 1 {q} LIMITS cuda:0 you id",
        "BLMPOP 3.000 1 {q}:wake:you LEFT COUNT 1",
        "HSET {q}:claims:you @0 text",
        "SET {q}:figures:you {} PX 3000",
        /* in another queue, or by other limits */
        "FCALL " FN "turn 1 {r} LIMITS me 7 0 1 1 64 1000 0",
        "FCALL " FN "turn 1 {q}x LIMITS me 7 0 1 1 64 1000 0",
        "FCALL " FN "turn 1 {q} 1 me 7 0 1 1 64 1000 0",
        "FCALL " FN "turn 2 {q} LIMITS me 7 0 1 1 64 1000 0",
        /* what no front end can read */
        "FCALL " FN "register 1 {q} LIMITS me 1 {\"a\":NaN} STORE",
        "FCALL " FN "register 1 {q} LIMITS me 1 {\"a\":1}} STORE",
        "FCALL " FN "register 1 {q} LIMITS me 1 [] STORE",
        "FCALL " FN "register 1 {q} LIMITS me 1 EMPTY STORE",
        "FCALL " FN "renew 1 {q} LIMITS me 7 {\"a\":-Infinity}",
        "FCALL " FN "renew 1 {q} LIMITS me 7 {\"a\":\"\xff\"}",
        "SET {q}:figures:me {\"a\":1e999} PX 3000",
        "SET {q}:figures:me text PX 3000",
        /* what it takes, as if it had been given it; the same command with more in it */
        "HSET {q}:claims:me id 0",
        "HSET {q}:claims:me @00 text",
        "HSET {q}:claims:me @0 text id 0",
        "BLMPOP 3.000 2 {q}:wake:me {q}:wake:you LEFT COUNT 1",
        "SET {q}:figures:me {} PX 3000 GET",
        "FCALL " FN "open 1 {q} LIMITS STORE 1",
        "FCALL " FN "open 1 {q} LIMITS other 0",
        "FCALL " FN "register 1 {q} LIMITS me 1 {} other",
        "HSCAN {q}:blobs 0 COUNT 1000000",
        "FUNCTION LOAD REPLACE #!lua",
        "FUNCTION LOAD CODE",
        "FUNCTION FLUSH",
        "CLIENT REPLY OFF",
        "CLIENT KILL x",
        "PEXPIRE {q}:pending 1",
        "GET {q}:idkey",
        "GET {q}:blo",
        "SET {q}:blob:id.in:0 x",
        "SET {q}:sweeping me PX 10000",
        "EXISTS {q}:pending",
        "EXISTS {q} {q}:pending",
        /* of front ends and others */
        "FCALL " FN "submit 1 {q} LIMITS front 1",
        "FCALL " FN "cancel 1 {q} LIMITS id",
        "FCALL " FN "blob 1 {q} LIMITS id.in 3",
        "FCALL " FN "blob_drop 1 {q} LIMITS id.in",
        "FCALL " FN "tick 1 {q} LIMITS",
        "FCALL " FN "get 1 {q} LIMITS id",
        "FCALL_RO " FN "refs 1 {q} LIMITS id.in",
        "EVAL x 0",
        "FLUSHALL",
        "CONFIG GET *",
        "AUTH x",
        "MULTI",
        "SUBSCRIBE {q}:events",
        "time",
        NULL,
    };
    (void)state;
    check(texts, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(its_own), cmocka_unit_test(nothing_else)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
