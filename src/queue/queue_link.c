/* The anonymous tenant, the limits as the functions take them, the first words on a connection.
 * Read next: worker_queue.c, front_queue.c. */
#include "queue/queue_link.h"

#include "functions_lua.h"
#include "redis/route.h"

#include "base/id.h"
#include "base/log.h"
#include "core/slice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct blasd_principal blasd_anonymous = {.tenant = "anonymous"};

const struct blasd_link_library blasd_queue_library = {BLASD_QUEUE_LIBRARY, functions_lua};

#define QUEUES " queues=" /* behind the store's identity */

void blasd_queue_one(const struct blasd_queue_options *all, int number,
                     struct blasd_queue_one *ret) {
    ret->options = *all;
    ret->options.number = number;
    ret->options.name = ret->name;
    if (number == 0)
        snprintf(ret->name, sizeof ret->name, "%s", all->name);
    else
        snprintf(ret->name, sizeof ret->name, "%s:%d", all->name, number);
}

int blasd_queue_of(const struct blasd_queue_options *options, const char *id) {
    char mark[3] = {0};
    int count = blasd_queue_count(options);
    if (count == 1) return 0;
    if (strcspn(id, ".") != BLASD_SEGMENT_NAME) return blasd_id_marked(id, count);
    memcpy(mark, id, 2);
    return (int)(strtoul(mark, NULL, 16) % (unsigned long)count);
}

const char *blasd_queue_recorded(const struct blasd_queue_options *options,
                                 char text[BLASD_QUEUE_RECORDED]) {
    int count = blasd_queue_count(options);
    snprintf(text, BLASD_QUEUE_RECORDED, "%s", blasd_store_identity(options->store));
    if (count > 1)
        snprintf(text + strlen(text), BLASD_QUEUE_RECORDED - strlen(text), QUEUES "%d", count);
    return text;
}

static int queues_in(const char *recorded) {
    const char *at = strstr(recorded, QUEUES);
    return at == NULL ? 1 : (int)strtol(at + strlen(QUEUES), NULL, 10);
}

int blasd_queue_differs(const char *own, const char *recorded, struct blasd_err *err) {
    if (queues_in(own) != queues_in(recorded))
        return blasd_fail(err, BLASD_E_internal_error, "queues",
                          "This process counts %d queues, but the deployment has %d: start it with "
                          "--queues %d, or with another --queue NAME, whose queues are new",
                          queues_in(own), queues_in(recorded), queues_in(recorded));
    return blasd_fail(err, BLASD_E_internal_error, "store",
                      "This process has the blob store %.60s, but the deployment uses %.60s; start "
                      "it with that one",
                      own, recorded);
}

#define LEAST_BYTES (64 * BLASD_MIB)

/* A limit of 0 is a share of the store; a store whose size is not known counts as 4 GiB. */
static uint64_t share_or(uint64_t limit, uint64_t all, uint64_t parts) {
    if (limit) return limit;
    if (!all) all = 4 * BLASD_GIB;
    return all / parts > LEAST_BYTES ? all / parts : LEAST_BYTES;
}

/* What of a limit is this queue's: all parts come to it. */
static uint64_t part_of(const struct blasd_queue_options *options, uint64_t limit) {
    uint64_t count = (uint64_t)blasd_queue_count(options);
    return limit / count + ((uint64_t)options->number < limit % count ? 1 : 0);
}

static void divide(const struct blasd_queue_options *options, struct blasd_link_limits *ret) {
    uint64_t *const of[] = {&ret->queue_jobs,        &ret->queue_bytes,  &ret->record_bytes,
                            &ret->record_sync_bytes, &ret->tensor_bytes, &ret->webhooks};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) *of[i] = part_of(options, *of[i]);
}

static void settle(struct blasd_limits *limits, struct blasd_store *store) {
    uint64_t free_bytes = 0, all_bytes = 0;
    if (store && (!limits->queue_bytes || !limits->record_bytes || !limits->record_sync_bytes ||
                  !limits->tensor_bytes))
        blasd_store_space(store, &free_bytes, &all_bytes);
    limits->queue_bytes = share_or(limits->queue_bytes, all_bytes, 2);
    limits->record_bytes = share_or(limits->record_bytes, all_bytes, 4);
    limits->record_sync_bytes = share_or(limits->record_sync_bytes, all_bytes, 64);
    limits->tensor_bytes = share_or(limits->tensor_bytes, all_bytes, 4);
}

void blasd_link_limits(const struct blasd_queue_options *options, struct blasd_link_limits *ret) {
    struct blasd_limits settled = *options->limits;
    const struct blasd_limits *limits = &settled;
    settle(&settled, options->store);
    ret->queue_jobs = limits->queue_jobs;
    ret->webhooks = limits->webhooks;
    ret->queue_bytes = limits->queue_bytes;
    ret->record_bytes = limits->record_bytes;
    ret->record_sync_bytes = limits->record_sync_bytes;
    ret->tensor_bytes = limits->tensor_bytes;
    divide(options, ret);
    snprintf(ret->text, sizeof ret->text,
             "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
             " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
             limits->attempts, ret->record_bytes, limits->record_sync_s, limits->record_async_s,
             ret->queue_jobs, ret->queue_bytes, limits->lease_ms, ret->record_sync_bytes,
             ret->tensor_bytes, part_of(options, limits->tensors), limits->tensor_life_s,
             limits->ended_jobs);
}

/* In the order of the text. */
static const char *const limit_names[] = {"attempts",       "record_bytes",      "record_sync_s",
                                          "record_async_s", "queue_jobs",        "queue_bytes",
                                          "lease_ms",       "record_sync_bytes", "tensor_bytes",
                                          "tensors",        "tensor_life_s",     "ended_jobs"};
#define LIMITS (sizeof limit_names / sizeof *limit_names)

/* How many numbers it has, of which the first LIMITS are read. */
static size_t read_limits(const char *text, uint64_t number[LIMITS]) {
    size_t count = 0;
    char *end;
    for (; count < LIMITS; count++, text = end) {
        number[count] = strtoull(text, &end, 10);
        if (end == text) break;
    }
    return count;
}

bool blasd_link_take_limits(struct blasd_link_limits *limits, const char *recorded) {
    uint64_t own[LIMITS] = {0}, all[LIMITS] = {0};
    size_t len = 0;
    if (!strcmp(limits->text, recorded) || read_limits(limits->text, own) < LIMITS ||
        read_limits(recorded, all) < LIMITS || !memcmp(own, all, sizeof own))
        return false;
    limits->told[0] = '\0';
    for (size_t i = 0; i < LIMITS; i++)
        if (own[i] != all[i] && len < sizeof limits->told)
            len += (size_t)snprintf(limits->told + len, sizeof limits->told - len,
                                    "%s%s %" PRIu64 " (here %" PRIu64 ")", len > 0 ? ", " : "",
                                    limit_names[i], all[i], own[i]);
    blasd_log(BLASD_LOG_WARN,
              "the deployment has other limits than this process, and they hold: %s", limits->told);
    limits->record_bytes = all[1];
    limits->queue_jobs = all[4];
    limits->queue_bytes = all[5];
    limits->record_sync_bytes = all[7];
    limits->tensor_bytes = all[8];
    snprintf(limits->text, sizeof limits->text, "%s", recorded);
    return true;
}

int blasd_queue_worker_acl(const char *queue, char *text, size_t size) {
    return snprintf(text, size, "~{%s} ~{%s}:* ~{%s:* resetchannels &{%s}:* &{%s:* %s", queue,
                    queue, queue, queue, queue, worker_acl);
}

/* Whether a store that is recorded may make way for that of `options`. */
static int may_adopt(redisContext *redis, const struct blasd_queue_options *options,
                     const char *own, struct blasd_err *err) {
    char key[BLASD_LINK_KEY_MAX];
    const char *argv[] = {"GET", key};
    redisReply *reply;
    blasd_link_key(key, options->name, ":store");
    int rc = blasd_link_ask(redis, 2, argv, &reply, err);
    if (rc == 0 && reply->type == REDIS_REPLY_STRING && queues_in(reply->str) != queues_in(own))
        rc = blasd_queue_differs(own, reply->str, err);
    freeReplyObject(reply);
    return rc;
}

int blasd_link_open(redisContext *redis, const struct blasd_queue_options *options, bool adopt,
                    struct blasd_err *err) {
    struct blasd_link_limits limits;
    char key[BLASD_LINK_KEY_MAX], own[BLASD_QUEUE_RECORDED];
    redisReply *reply;
    int kept = options->may_lose_jobs ? 0 : blasd_link_check_keeps(redis, err);
    int rc = kept < 0 ? kept : blasd_link_load(redis, &blasd_queue_library, err);
    blasd_queue_recorded(options, own);
    if (rc == 0 && adopt) rc = may_adopt(redis, options, own, err);
    if (rc < 0) return rc;
    blasd_link_limits(options, &limits);
    blasd_link_key(key, options->name, "%s", "");
    const char *argv[] = {"FCALL", BLASD_QUEUE_FN("open"), "1", key, limits.text,
                          own,     adopt ? "1" : "0"};
    rc = blasd_link_ask(redis, 7, argv, &reply, err);
    if (rc < 0) return rc;
    if (reply->type != REDIS_REPLY_STRING)
        rc = blasd_fail(err, BLASD_E_internal_error, "", "Redis gave no name for the blob store");
    else if (strcmp(reply->str, own) != 0)
        rc = blasd_queue_differs(own, reply->str, err);
    freeReplyObject(reply);
    return rc < 0 ? rc : kept;
}

/* Over a connection for this alone. */
static int open_once(const struct blasd_queue_options *options, int timeout_ms, bool adopt,
                     struct blasd_err *err) {
    struct blasd_link_address address;
    redisContext *redis = NULL;
    int rc = blasd_link_parse(options->url, options->name, &address, err);
    if (rc == 0) rc = blasd_link_connect(&address, timeout_ms, &redis, err);
    if (rc == 0) rc = blasd_link_open(redis, options, adopt, err);
    if (redis) redisFree(redis);
    return rc;
}

int blasd_queue_adopt_store(const struct blasd_queue_options *options, struct blasd_err *err) {
    struct blasd_queue_one one;
    int rc = 0;
    for (int i = 0; rc >= 0 && i < blasd_queue_count(options); i++) {
        blasd_queue_one(options, i, &one);
        rc = open_once(&one.options, 5000, true, err);
    }
    return rc < 0 ? rc : 0;
}

int blasd_queue_check_store(const struct blasd_queue_options *options, struct blasd_err *err) {
    struct blasd_queue_one one;
    struct blasd_err unavailable;
    int good = -(int)BLASD_E_queue_unavailable;
    for (int i = 0; i < blasd_queue_count(options); i++) {
        blasd_queue_one(options, i, &one);
        int rc = open_once(&one.options, 1000, false, &unavailable);
        if (rc < 0 && (good < 0 || rc != good)) *err = unavailable;
        if (rc < 0 && rc != -(int)BLASD_E_queue_unavailable) return rc;
        if (rc >= 0) good = good < rc ? rc : good;
    }
    return good;
}

void blasd_queue_take_lease(const struct blasd_queue_options *options,
                            struct blasd_limits *limits) {
    struct blasd_link_address address;
    struct blasd_err ignored;
    redisContext *redis = NULL;
    redisReply *reply = NULL;
    char key[BLASD_LINK_KEY_MAX];
    const char *argv[] = {"GET", key};
    uint64_t all[LIMITS] = {0};
    blasd_link_key(key, options->name, ":limits");
    if (blasd_link_parse(options->url, options->name, &address, &ignored) == 0 &&
        blasd_link_connect(&address, 1000, &redis, &ignored) == 0 &&
        blasd_link_ask(redis, 2, argv, &reply, &ignored) == 0 &&
        reply->type == REDIS_REPLY_STRING && read_limits(reply->str, all) == LIMITS)
        limits->lease_ms = all[6];
    freeReplyObject(reply);
    if (redis) redisFree(redis);
}
