/* What servers and Sentinels say of where the queue is; connecting by it, waiting.
 *
 * A server is asked for a write that makes nothing, to a key that never exists, of the queue's
 * slot: it answers, or says MOVED, with the owner of the slot, or READONLY, for it is a replica,
 * which would answer whoever only reads. That needs no right that the service has not anyway. */
#include "redis/route.h"

#include "base/clock.h"
#include "redis/redis_tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HOPS = 5,        /* servers that disagree may send one in a circle */
    GIVEN_TIMES = 2, /* the time for one server, for all attempts together */
};

void blasd_route_begin(struct blasd_route *route, const struct blasd_link_address *address) {
    route->address = address;
    route->hops = 0;
    route->sentinel = address->master[0] != '\0';
    if (address->count > 0)
        route->to = address->places[route->turn++ % (unsigned)address->count];
    else
        route->to = (struct blasd_link_place){.port = 0};
}

int blasd_route_question(const struct blasd_route *route, const char *words[BLASD_ROUTE_WORDS]) {
    if (route->sentinel) {
        words[0] = "SENTINEL";
        words[1] = "get-master-addr-by-name";
        words[2] = route->address->master;
        return 3;
    }
    words[0] = "EXPIRE";
    words[1] = route->address->tag;
    words[2] = "1";
    return 3;
}

/* On to that server; an empty host is the present one. */
static int go_on(struct blasd_route *route, const char *host, size_t len, const char *port,
                 struct blasd_err *err) {
    char *end;
    long number = strtol(port, &end, 10);
    if (len >= sizeof route->to.host || number < 1 || number > 65535 || *end != '\0' ||
        (len == 0 && route->to.host[0] == '\0'))
        return blasd_fail(err, BLASD_E_queue_unavailable, "",
                          "Redis sends us to '%.*s', port '%.8s', which is no address",
                          (int)(len < 100 ? len : 100), host, port);
    if (++route->hops > HOPS)
        return blasd_fail(err, BLASD_E_queue_unavailable, "",
                          "The servers of Redis do not agree on which of them has the queue");
    if (len > 0) {
        memcpy(route->to.host, host, len);
        route->to.host[len] = '\0';
    }
    route->to.port = (int)number;
    route->sentinel = false;
    return BLASD_ROUTE_ON;
}

/* "MOVED SLOT HOST:PORT" */
static int moved(struct blasd_route *route, const char *text, struct blasd_err *err) {
    const char *host = strchr(text + strlen("MOVED "), ' '), *colon = strrchr(text, ':');
    if (host == NULL || colon == NULL || colon < host) return blasd_link_error(text, err);
    return go_on(route, host + 1, (size_t)(colon - host - 1), colon + 1, err);
}

/* Whether a server refuses the write that would refuse any other one, or this user's: it is the
 * one, and may be read. */
static bool refuses_writes(const char *text) {
    static const char *const words[] = {"MISCONF ", "NOREPLICAS ", "OOM ", "NOPERM "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0) return true;
    return false;
}

int blasd_route_heard(struct blasd_route *route, const redisReply *reply, struct blasd_err *err) {
    if (reply->type == REDIS_REPLY_ERROR && !route->sentinel && refuses_writes(reply->str))
        return 0;
    if (reply->type == REDIS_REPLY_ERROR)
        return strncmp(reply->str, "MOVED ", strlen("MOVED ")) == 0
                   ? moved(route, reply->str, err)
                   : blasd_link_error(reply->str, err);
    if (!route->sentinel) return 0;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return blasd_fail(err, BLASD_E_queue_unavailable, "",
                          "The Sentinel at %.120s knows no master by the name of %s",
                          route->to.host, route->address->master);
    return go_on(route, reply->element[0]->str, reply->element[0]->len, reply->element[1]->str,
                 err);
}

/* A Sentinel need not have the servers' users, and what it thinks of them shows in its answer. */
static int login(redisContext *redis, const struct blasd_route *route, struct blasd_err *err) {
    const struct blasd_link_address *address = route->address;
    redisReply *reply;
    int rc = 0;
    if (address->password[0]) {
        const char *argv[] = {"AUTH", address->user, address->password};
        if (!address->user[0]) argv[1] = argv[2];
        rc = blasd_link_ask(redis, address->user[0] ? 3 : 2, argv, &reply, err);
        freeReplyObject(reply);
    }
    if (route->sentinel) return 0;
    if (rc == 0 && address->db) {
        char db[16];
        const char *argv[] = {"SELECT", db};
        snprintf(db, sizeof db, "%d", address->db);
        rc = blasd_link_ask(redis, 2, argv, &reply, err);
        freeReplyObject(reply);
    }
    return rc;
}

static int ask_way(redisContext *redis, struct blasd_route *route, struct blasd_err *err) {
    const char *words[BLASD_ROUTE_WORDS];
    int count = blasd_route_question(route, words);
    redisReply *reply = redisCommandArgv(redis, count, words, NULL);
    int rc = reply ? blasd_route_heard(route, reply, err)
                   : blasd_fail(err, BLASD_E_queue_unavailable, "",
                                "Redis cannot be reached: %.100s", redis->errstr);
    freeReplyObject(reply);
    return rc;
}

/* One server of the way; *ret: new where that is 0. */
static int connect_next(struct blasd_route *route, int timeout_ms, redisContext **ret,
                        struct blasd_err *err) {
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    const char *host = route->to.host, *path = route->address->path;
    redisContext *redis = host[0] ? redisConnectWithTimeout(host, route->to.port, limit)
                                  : redisConnectUnixWithTimeout(path, limit);
    int rc;
    if (!redis || redis->err) {
        rc = blasd_fail(err, BLASD_E_queue_unavailable, "",
                        "Redis cannot be reached at %.120s: %.80s", host[0] ? host : path,
                        redis ? redis->errstr : "out of memory");
        goto fail;
    }
    if (redisSetTimeout(redis, limit) != REDIS_OK) {
        rc = blasd_fail(err, BLASD_E_queue_unavailable, "",
                        "The connection to Redis has no time-outs");
        goto fail;
    }
    if (host[0]) redisEnableKeepAlive(redis);
    if (route->address->tls && (rc = blasd_redis_tls_start(redis, host, err)) != 0) goto fail;
    rc = login(redis, route, err);
    if (rc == 0) rc = ask_way(redis, route, err);
    if (rc != 0) goto fail;
    *ret = redis;
    return 0;
fail:
    if (redis) redisFree(redis);
    return rc;
}

int blasd_link_connect(const struct blasd_link_address *address, int timeout_ms, redisContext **ret,
                       struct blasd_err *err) {
    int64_t now = blasd_clock_ns(), until = now + GIVEN_TIMES * timeout_ms * INT64_C(1000000);
    struct blasd_route route = {.turn = (unsigned)(now / 1000)};
    int rc, tries = 0;
    *ret = NULL;
    do {
        blasd_route_begin(&route, address);
        do rc = connect_next(&route, timeout_ms, ret, err);
        while (rc == BLASD_ROUTE_ON);
    } while (rc == -(int)BLASD_E_queue_unavailable && ++tries < address->count &&
             blasd_clock_ns() < until);
    return rc;
}
