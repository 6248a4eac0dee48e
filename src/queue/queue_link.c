/* The anonymous tenant, the limits as the functions take them, the first words on a connection.
 * Read next: worker_queue.c, front_queue.c. */
#include "queue/queue_link.h"

#include "functions_lua.h"
#include "redis/route.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct blasd_principal blasd_anonymous = {.tenant = "anonymous"};

const struct blasd_link_library blasd_queue_library = {BLASD_QUEUE_LIBRARY, functions_lua};

#define LEAST_BYTES (64 * BLASD_MIB)

/* A limit of 0 is a share of the store; a store whose size is not known counts as 4 GiB. */
static uint64_t share_or(uint64_t limit, uint64_t all, uint64_t parts) {
    if (limit) return limit;
    if (!all) all = 4 * BLASD_GIB;
    return all / parts > LEAST_BYTES ? all / parts : LEAST_BYTES;
}

void blasd_link_limits(const struct blasd_queue_options *options, struct blasd_link_limits *ret) {
    const struct blasd_limits *limits = options->limits;
    uint64_t free_bytes = 0, all_bytes = 0;
    if (!limits->queue_bytes || !limits->record_bytes || !limits->record_sync_bytes ||
        !limits->tensor_bytes)
        blasd_store_space(options->store, &free_bytes, &all_bytes);
    ret->queue_jobs = limits->queue_jobs;
    ret->webhooks = limits->webhooks;
    ret->queue_bytes = share_or(limits->queue_bytes, all_bytes, 2);
    ret->record_bytes = share_or(limits->record_bytes, all_bytes, 4);
    ret->record_sync_bytes = share_or(limits->record_sync_bytes, all_bytes, 64);
    ret->tensor_bytes = share_or(limits->tensor_bytes, all_bytes, 4);
    snprintf(ret->text, sizeof ret->text,
             "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
             " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
             limits->attempts, ret->record_bytes, limits->record_sync_s, limits->record_async_s,
             ret->queue_jobs, ret->queue_bytes, limits->lease_ms, ret->record_sync_bytes,
             ret->tensor_bytes, limits->tensors, limits->tensor_life_s);
}

int blasd_link_open(redisContext *redis, const struct blasd_queue_options *options, bool adopt,
                    struct blasd_err *err) {
    struct blasd_link_limits limits;
    char key[BLASD_LINK_KEY_MAX];
    const char *identity = blasd_store_identity(options->store);
    redisReply *reply;
    int kept = options->may_lose_jobs ? 0 : blasd_link_check_keeps(redis, err);
    int rc = kept < 0 ? kept : blasd_link_load(redis, &blasd_queue_library, err);
    if (rc < 0) return rc;
    blasd_link_limits(options, &limits);
    blasd_link_key(key, options->name, "%s", "");
    const char *argv[] = {"FCALL",  BLASD_QUEUE_FN("open"), "1", key, limits.text,
                          identity, adopt ? "1" : "0"};
    rc = blasd_link_ask(redis, 7, argv, &reply, err);
    if (rc < 0) return rc;
    if (reply->type != REDIS_REPLY_STRING) {
        rc = blasd_fail(err, BLASD_E_internal_error, "", "Redis gave no name for the blob store");
    } else if (strcmp(reply->str, identity) != 0) {
        rc = blasd_fail(
            err, BLASD_E_internal_error, "store",
            "This process has the blob store %.60s, but the deployment uses %.60s; start "
            "it with that one",
            identity, reply->str);
    }
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
