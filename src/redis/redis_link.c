/* Addresses, keys, errors, connecting, the library of functions. Read next: caller.c. */
#include "redis/redis_link.h"

#include "redis/redis_tls.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Addresses */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Copies text[0..len) with %XX undone; false where it does not fit or is malformed. */
static bool unescape(const char *text, size_t len, char *out, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '%') {
            int high = len - i > 2 ? hex_digit(text[i + 1]) : -1;
            int low = len - i > 2 ? hex_digit(text[i + 2]) : -1;
            if (high < 0 || low < 0 || high * 16 + low == 0) return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (n + 1 >= size) return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

static bool number(const char *text, size_t len, int most, int *ret) {
    int value = 0;
    if (len == 0 || len > 9) return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = value * 10 + (text[i] - '0');
    }
    *ret = value;
    return value <= most;
}

static int bad_url(struct blasd_err *err, const char *what) {
    return blasd_fail(err, BLASD_E_invalid_field, "redis",
                      "%s; the address of Redis is redis://[user:password@]host[:port][/db], "
                      "rediss:// with TLS, or unix:/path",
                      what);
}

/* user:password@ */
static bool parse_login(const char *text, size_t len, struct blasd_link_address *ret) {
    const char *colon = memchr(text, ':', len);
    if (!colon) return unescape(text, len, ret->user, sizeof ret->user);
    size_t user = (size_t)(colon - text);
    return unescape(text, user, ret->user, sizeof ret->user) &&
           unescape(colon + 1, len - user - 1, ret->password, sizeof ret->password);
}

/* host[:port], [v6][:port] */
static bool parse_host(const char *text, size_t len, struct blasd_link_address *ret) {
    const char *end = text + len, *host_end;
    if (len && text[0] == '[') {
        text++;
        host_end = memchr(text, ']', len - 1);
        if (!host_end) return false;
        len = (size_t)(host_end - text);
        host_end++;
    } else {
        host_end = memchr(text, ':', len);
        if (!host_end) host_end = end;
        len = (size_t)(host_end - text);
    }
    if (len == 0 || len >= sizeof ret->host) return false;
    memcpy(ret->host, text, len);
    ret->host[len] = '\0';
    ret->port = 6379;
    if (host_end == end) return true;
    return host_end[0] == ':' &&
           number(host_end + 1, (size_t)(end - host_end - 1), 65535, &ret->port) && ret->port > 0;
}

int blasd_link_parse(const char *url, struct blasd_link_address *ret, struct blasd_err *err) {
    static const char tcp[] = "redis://", tls[] = "rediss://", local[] = "unix:";
    memset(ret, 0, sizeof *ret);
    if (!strncmp(url, local, sizeof local - 1)) {
        const char *path = url + sizeof local - 1;
        if (!strncmp(path, "//", 2)) path += 2; /* unix:///path */
        size_t len = strlen(path);
        if (path[0] != '/') return bad_url(err, "The path of a unix socket begins with /");
        if (len >= sizeof ret->path) return bad_url(err, "A unix socket's path ends at 107 bytes");
        memcpy(ret->path, path, len + 1);
        return 0;
    }
    ret->tls = !strncmp(url, tls, sizeof tls - 1);
    if (ret->tls && !blasd_redis_tls_known())
        return bad_url(err, "This build has no TLS for Redis, for its hiredis has none");
    if (!ret->tls && strncmp(url, tcp, sizeof tcp - 1) != 0)
        return bad_url(err, "The scheme is not known");
    const char *rest = strstr(url, "://") + strlen("://");
    const char *slash = strrchr(rest, '/'), *at = strrchr(rest, '@');
    if (slash && at && slash < at) slash = NULL; /* a slash inside the password */
    const char *end = slash ? slash : rest + strlen(rest);
    if (at) {
        if (!parse_login(rest, (size_t)(at - rest), ret))
            return bad_url(err, "The user or password is malformed or too long");
        rest = at + 1;
    }
    if (!parse_host(rest, (size_t)(end - rest), ret))
        return bad_url(err, "The host or port is malformed");
    if (slash && slash[1] && !number(slash + 1, strlen(slash + 1), 1 << 20, &ret->db))
        return bad_url(err, "The database is not a number");
    return 0;
}

/* Names */

int blasd_link_check_name(const char *name, struct blasd_err *err) {
    size_t len = strlen(name);
    if (len == 0 || len >= BLASD_LINK_NAME_MAX ||
        strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != len)
        return blasd_fail(err, BLASD_E_invalid_field, "queue",
                          "The queue's name must be 1 to %d characters of A-Z a-z 0-9 . _ -",
                          BLASD_LINK_NAME_MAX - 1);
    return 0;
}

size_t blasd_link_key(char key[BLASD_LINK_KEY_MAX], const char *queue, const char *fmt, ...) {
    int head = snprintf(key, BLASD_LINK_KEY_MAX, "{%s}", queue);
    size_t at = head < 0 ? 0 : (size_t)head;
    if (at >= BLASD_LINK_KEY_MAX) return BLASD_LINK_KEY_MAX - 1;
    va_list args;
    va_start(args, fmt);
    int tail = vsnprintf(key + at, BLASD_LINK_KEY_MAX - at, fmt, args);
    va_end(args);
    at += tail < 0 ? 0 : (size_t)tail;
    return at < BLASD_LINK_KEY_MAX ? at : BLASD_LINK_KEY_MAX - 1;
}

/* Errors */

static bool begins(const char *text, const char *word) {
    return !strncmp(text, word, strlen(word));
}

enum blasd_link_fault blasd_link_fault(const char *text) {
    static const char *const passing[] = {
        "LOADING",  "OOM",        "MISCONF",    "BUSY ",     "CLUSTERDOWN",
        "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "UNBLOCKED", "ERR max number of clients"};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (begins(text, passing[i])) return BLASD_LINK_UNAVAILABLE;
    if (begins(text, "READONLY")) return BLASD_LINK_REPLICA;
    if (begins(text, "ERR Function not found")) return BLASD_LINK_NO_LIBRARY;
    if (begins(text, "LOST ")) return BLASD_LINK_LOST;
    if (begins(text, "STORE ")) return BLASD_LINK_STORE;
    if (begins(text, "DISK ")) return BLASD_LINK_DISK;
    return BLASD_LINK_WRONG;
}

int blasd_link_error(const char *text, struct blasd_err *err) {
    switch (blasd_link_fault(text)) {
    case BLASD_LINK_UNAVAILABLE:
    case BLASD_LINK_REPLICA:
    case BLASD_LINK_NO_LIBRARY:
        return blasd_fail(err, BLASD_E_queue_unavailable, "", "Redis refuses at present: %.120s",
                          text);
    case BLASD_LINK_STORE:
        return blasd_fail(err, BLASD_E_internal_error, "store",
                          "This process has another blob store than the deployment, which uses "
                          "%.80s; start it with that one",
                          text + strlen("STORE "));
    case BLASD_LINK_DISK:
        return blasd_fail(err, BLASD_E_disk_full, "", "%.200s", text + strlen("DISK "));
    case BLASD_LINK_LOST:
    case BLASD_LINK_WRONG: break;
    }
    return blasd_fail(err, BLASD_E_internal_error, "", "Redis answered: %.160s", text);
}

/* Connecting */

int blasd_link_ask(redisContext *redis, int argc, const char *const *argv, redisReply **ret,
                   struct blasd_err *err) {
    redisReply *reply = redisCommandArgv(redis, argc, (const char **)(void *)argv, NULL);
    *ret = NULL;
    if (!reply)
        return blasd_fail(err, BLASD_E_queue_unavailable, "", "Redis cannot be reached: %.100s",
                          redis->errstr);
    if (reply->type == REDIS_REPLY_ERROR) {
        int rc = blasd_link_error(reply->str, err);
        freeReplyObject(reply);
        return rc;
    }
    *ret = reply;
    return 0;
}

static int login(redisContext *redis, const struct blasd_link_address *address,
                 struct blasd_err *err) {
    redisReply *reply;
    int rc = 0;
    if (address->password[0]) {
        const char *argv[] = {"AUTH", address->user, address->password};
        if (!address->user[0]) argv[1] = argv[2];
        rc = blasd_link_ask(redis, address->user[0] ? 3 : 2, argv, &reply, err);
        freeReplyObject(reply);
    }
    if (rc == 0 && address->db) {
        char db[16];
        const char *argv[] = {"SELECT", db};
        snprintf(db, sizeof db, "%d", address->db);
        rc = blasd_link_ask(redis, 2, argv, &reply, err);
        freeReplyObject(reply);
    }
    return rc;
}

int blasd_link_connect(const struct blasd_link_address *address, int timeout_ms, redisContext **ret,
                       struct blasd_err *err) {
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    redisContext *redis = address->path[0]
                              ? redisConnectUnixWithTimeout(address->path, limit)
                              : redisConnectWithTimeout(address->host, address->port, limit);
    int rc;
    *ret = NULL;
    if (!redis || redis->err) {
        rc = blasd_fail(err, BLASD_E_queue_unavailable, "",
                        "Redis cannot be reached at %.120s: %.80s",
                        address->path[0] ? address->path : address->host,
                        redis ? redis->errstr : "out of memory");
        goto fail;
    }
    if (redisSetTimeout(redis, limit) != REDIS_OK) {
        rc = blasd_fail(err, BLASD_E_queue_unavailable, "",
                        "The connection to Redis has no time-outs");
        goto fail;
    }
    if (!address->path[0]) redisEnableKeepAlive(redis);
    if (address->tls && (rc = blasd_redis_tls_start(redis, address, err)) != 0) goto fail;
    rc = login(redis, address, err);
    if (rc < 0) goto fail;
    *ret = redis;
    return 0;
fail:
    if (redis) redisFree(redis);
    return rc;
}

/* Whether it keeps what it is given */

/* The value behind `name` in the text of INFO. */
static bool info_is(const char *info, const char *name, const char *value) {
    const char *at = strstr(info, name);
    size_t len = strlen(value);
    if (!at) return false;
    at += strlen(name);
    return strcspn(at, "\r\n") == len && !strncmp(at, value, len);
}

int blasd_link_keeps(const redisReply *info, struct blasd_err *err) {
    static const char advice[] = "; or start with --redis-may-lose-jobs";
    if (info->type == REDIS_REPLY_ERROR && begins(info->str, "NOPERM")) return BLASD_LINK_UNSURE;
    if (info->type == REDIS_REPLY_ERROR) return blasd_link_error(info->str, err);
    if (!info->str) return BLASD_LINK_UNSURE;
    if (info_is(info->str, "\naof_enabled:", "0"))
        return blasd_fail(err, BLASD_E_internal_error, "redis",
                          "This Redis keeps no file and would lose jobs: set appendonly yes%s",
                          advice);
    if (!info_is(info->str, "\nmaxmemory:", "0") &&
        !info_is(info->str, "\nmaxmemory_policy:", "noeviction"))
        return blasd_fail(err, BLASD_E_internal_error, "redis",
                          "This Redis may evict keys and would lose jobs: set maxmemory-policy "
                          "noeviction, or no maxmemory%s",
                          advice);
    return 0;
}

int blasd_link_check_keeps(redisContext *redis, struct blasd_err *err) {
    redisReply *reply = redisCommand(redis, "INFO");
    int rc = reply ? blasd_link_keeps(reply, err)
                   : blasd_fail(err, BLASD_E_queue_unavailable, "",
                                "Redis cannot be reached: %.100s", redis->errstr);
    freeReplyObject(reply);
    return rc;
}

/* The library's functions */

/* The number in the source's second line. */
static long revision(const char *code) {
    static const char mark[] = "-- revision ";
    const char *at = strstr(code, mark);
    return at ? strtol(at + sizeof mark - 1, NULL, 10) : 0;
}

/* The source that the server has, or NULL; borrowed from `list`. */
static const char *loaded_code(const redisReply *list) {
    if (list->type != REDIS_REPLY_ARRAY || list->elements == 0) return NULL;
    const redisReply *library = list->element[0];
    for (size_t i = 0; library->type == REDIS_REPLY_ARRAY && i + 1 < library->elements; i += 2) {
        const redisReply *name = library->element[i], *value = library->element[i + 1];
        if (name->str && value->str && !strcmp(name->str, "library_code")) return value->str;
    }
    return NULL;
}

bool blasd_link_stale(const struct blasd_link_library *library, const redisReply *list) {
    const char *theirs = loaded_code(list);
    return !theirs ||
           (strcmp(theirs, library->code) != 0 && revision(theirs) <= revision(library->code));
}

int blasd_link_load(redisContext *redis, const struct blasd_link_library *library,
                    struct blasd_err *err) {
    const char *list[] = {"FUNCTION", "LIST", "LIBRARYNAME", library->name, "WITHCODE"};
    const char *load[] = {"FUNCTION", "LOAD", "REPLACE", library->code};
    redisReply *reply;
    int rc = blasd_link_ask(redis, 5, list, &reply, err);
    if (rc < 0) return rc;
    bool stale = blasd_link_stale(library, reply);
    freeReplyObject(reply);
    if (!stale) return 0;
    rc = blasd_link_ask(redis, 4, load, &reply, err);
    freeReplyObject(reply);
    return rc;
}
