/* The anonymous tenant, the limits as the functions take them, the first words on a connection.
 * Read next: worker_queue.c, front_queue.c. */
#include "queue/queue_link.h"

#include "functions_lua.h"
#include "redis/route.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct blasd_principal blasd_anonymous = {.tenant = "anonymous"};

const struct blasd_link_library blasd_queue_library = {BLASD_QUEUE_LIBRARY, functions_lua};

int blasd_queue_differs(const char *own, const char *recorded, struct blasd_err *err) {
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
    snprintf(ret->text, sizeof ret->text,
             "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
             " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
             limits->attempts, ret->record_bytes, limits->record_sync_s, limits->record_async_s,
             ret->queue_jobs, ret->queue_bytes, limits->lease_ms, ret->record_sync_bytes,
             ret->tensor_bytes, limits->tensors, limits->tensor_life_s, limits->ended_jobs);
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
    return snprintf(text, size, "~{%s} ~{%s}:* resetchannels &{%s}:* %s", queue, queue, queue,
                    worker_acl);
}

int blasd_link_open(redisContext *redis, const struct blasd_queue_options *options, bool adopt,
                    struct blasd_err *err) {
    struct blasd_link_limits limits;
    const char *own = blasd_store_identity(options->store);
    char key[BLASD_LINK_KEY_MAX];
    redisReply *reply;
    int kept = options->may_lose_jobs ? 0 : blasd_link_check_keeps(redis, err);
    int rc = kept < 0 ? kept : blasd_link_load(redis, &blasd_queue_library, err);
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
    int rc = open_once(options, 5000, true, err);
    return rc < 0 ? rc : 0;
}

int blasd_queue_check_store(const struct blasd_queue_options *options, struct blasd_err *err) {
    return open_once(options, 1000, false, err);
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
