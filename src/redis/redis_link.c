/* Addresses, keys, errors, the library of functions. Read next: route.c. */
#include "redis/redis_link.h"

#include "redis/redis_tls.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool begins(const char *text, const char *word) {
    return !strncmp(text, word, strlen(word));
}

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
    return blasd_fail(
        err, BLASD_E_invalid_field, "redis",
        "%s; the address of Redis is redis://[user:password@]host[:port][,host...][/db], "
        "rediss:// with TLS, redis+sentinel://host[:port][,host...]/MASTER[/db], or "
        "unix:[//user:password@]/path",
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

int blasd_link_check_name(const char *name, struct blasd_err *err) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strlen(name);
    if (len == 0 || len >= BLASD_LINK_NAME_MAX || strspn(name, allowed) != len)
        return blasd_fail(err, BLASD_E_invalid_field, "queue",
                          "The queue's name must be 1 to %d characters of A-Z a-z 0-9 . _ -",
                          BLASD_LINK_NAME_MAX - 1);
    return 0;
}

/* host[:port], [v6][:port] */
static bool parse_place(const char *text, size_t len, struct blasd_link_place *ret) {
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
    if (host_end == end) return true;
    return host_end[0] == ':' &&
           number(host_end + 1, (size_t)(end - host_end - 1), 65535, &ret->port) && ret->port > 0;
}

static bool parse_places(const char *text, const char *end, int port,
                         struct blasd_link_address *ret) {
    for (;;) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        struct blasd_link_place *place = &ret->places[ret->count];
        if (ret->count == BLASD_LINK_PLACES) return false;
        place->port = port;
        if (!parse_place(text, (size_t)((comma ? comma : end) - text), place)) return false;
        ret->count++;
        if (!comma) return true;
        text = comma + 1;
    }
}

/* MASTER[/db], behind the slash; *rest: what is left for the database. */
static bool parse_master(const char *text, struct blasd_link_address *ret, const char **rest) {
    size_t len = strcspn(text, "/");
    *rest = text[len] ? text + len + 1 : text + len;
    return len > 0 && unescape(text, len, ret->master, sizeof ret->master);
}

static int parse_unix(const char *path, struct blasd_link_address *ret, struct blasd_err *err) {
    size_t login = strcspn(path, "@"), len;
    if (begins(path, "//") && path[2] != '/' && path[login] == '@') {
        if (!parse_login(path + 2, login - 2, ret))
            return bad_url(err, "The user or password is malformed or too long");
        path += login + 1;
    } else if (begins(path, "//"))
        path += 2; /* unix:///path */
    len = strlen(path);
    if (path[0] != '/') return bad_url(err, "The path of a unix socket begins with /");
    if (len >= sizeof ret->path) return bad_url(err, "A unix socket's path ends at 107 bytes");
    memcpy(ret->path, path, len + 1);
    return 0;
}

static int parse_tcp(const char *url, const char *scheme, struct blasd_link_address *ret,
                     struct blasd_err *err) {
    bool sentinel = strstr(scheme, "sentinel") != NULL;
    const char *rest = url + strlen(scheme), *at = strrchr(rest, '@');
    ret->tls = begins(scheme, "rediss");
    if (ret->tls && !blasd_redis_tls_known())
        return bad_url(err, "This build has no TLS for Redis, for its hiredis has none");
    if (at) {
        if (!parse_login(rest, (size_t)(at - rest), ret))
            return bad_url(err, "The user or password is malformed or too long");
        rest = at + 1;
    }
    const char *end = rest + strcspn(rest, "/"), *db = *end ? end + 1 : end;
    if (!parse_places(rest, end, sentinel ? 26379 : 6379, ret))
        return bad_url(err, "A host or port is malformed, or there are more than 16");
    if (sentinel && !parse_master(db, ret, &db))
        return bad_url(err, "The Sentinels' name for the master is missing or too long");
    if (db[0] && !number(db, strlen(db), 1 << 20, &ret->db))
        return bad_url(err, "The database is not a number");
    return 0;
}

int blasd_link_parse(const char *url, const char *queue, struct blasd_link_address *ret,
                     struct blasd_err *err) {
    static const char *const schemes[] = {"redis://", "rediss://", "redis+sentinel://",
                                          "rediss+sentinel://"};
    memset(ret, 0, sizeof *ret);
    int rc = blasd_link_check_name(queue, err);
    if (rc < 0) return rc;
    snprintf(ret->tag, sizeof ret->tag, "{%s}", queue);
    if (begins(url, "unix:")) return parse_unix(url + strlen("unix:"), ret, err);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (begins(url, schemes[i])) return parse_tcp(url, schemes[i], ret, err);
    return bad_url(err, "The scheme is not known");
}

/* Names */

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

enum blasd_link_fault blasd_link_fault(const char *text) {
    static const char *const passing[] = {"LOADING",
                                          "OOM",
                                          "MISCONF",
                                          "BUSY ",
                                          "NOREPLICAS",
                                          "UNBLOCKED",
                                          "ERR max number of clients"};
    static const char *const elsewhere[] = {"READONLY",    "MOVED ",   "ASK ",
                                            "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN"};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (begins(text, passing[i])) return BLASD_LINK_UNAVAILABLE;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (begins(text, elsewhere[i])) return BLASD_LINK_ELSEWHERE;
    if (begins(text, "ERR Function not found")) return BLASD_LINK_NO_LIBRARY;
    if (begins(text, "LOST ")) return BLASD_LINK_LOST;
    if (begins(text, "STORE ")) return BLASD_LINK_STORE;
    if (begins(text, "DISK ")) return BLASD_LINK_DISK;
    if (begins(text, "SCHEMA ")) return BLASD_LINK_SCHEMA;
    return BLASD_LINK_WRONG;
}

int blasd_link_error(const char *text, struct blasd_err *err) {
    switch (blasd_link_fault(text)) {
    case BLASD_LINK_UNAVAILABLE:
    case BLASD_LINK_ELSEWHERE:
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
    case BLASD_LINK_SCHEMA:
        return blasd_fail(err, BLASD_E_internal_error, "schema",
                          "The queue has the schema %.*s, which this version of blasd does not "
                          "know: drain and stop "
                          "the version that has written it, then start this one with another "
                          "--queue, or an empty "
                          "--data (docs: deploying, Upgrading)",
                          (int)strcspn(text + strlen("SCHEMA "), " \r\n"),
                          text + strlen("SCHEMA "));
    case BLASD_LINK_LOST:
    case BLASD_LINK_WRONG: break;
    }
    return blasd_fail(err, BLASD_E_internal_error, "", "Redis answered: %.160s", text);
}

/* Asking */

/* Takes over what came, which may be NULL. */
static int judge(redisContext *redis, redisReply *reply, redisReply **ret, struct blasd_err *err) {
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

int blasd_link_ask(redisContext *redis, int argc, const char *const *argv, redisReply **ret,
                   struct blasd_err *err) {
    return judge(redis, redisCommandArgv(redis, argc, (const char **)(void *)argv, NULL), ret, err);
}

int blasd_link_reply(redisContext *redis, redisReply **ret, struct blasd_err *err) {
    void *reply = NULL;
    if (redisGetReply(redis, &reply) != REDIS_OK) reply = NULL;
    return judge(redis, reply, ret, err);
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

int blasd_link_writes(const redisReply *config, struct blasd_err *err) {
    const char *value =
        config->type == REDIS_REPLY_ARRAY && config->elements == 2 ? config->element[1]->str : NULL;
    if (value == NULL || strcmp(value, "everysec") != 0) return 0;
    return blasd_fail(err, BLASD_E_internal_error, "redis",
                      "This Redis writes its file late (appendfsync everysec) and would lose jobs "
                      "where it is killed: set appendfsync always; or start with "
                      "--redis-may-lose-jobs");
}

int blasd_link_check_keeps(redisContext *redis, struct blasd_err *err) {
    static const char *const asks[] = {"INFO", "CONFIG GET appendfsync"};
    int kept = 0;
    for (int i = 0; i < 2; i++) {
        redisReply *reply = redisCommand(redis, asks[i]);
        int rc = reply == NULL ? blasd_fail(err, BLASD_E_queue_unavailable, "",
                                            "Redis cannot be reached: %.100s", redis->errstr)
                 : i == 0      ? blasd_link_keeps(reply, err)
                               : blasd_link_writes(reply, err);
        freeReplyObject(reply);
        if (rc < 0) return rc;
        kept = rc > kept ? rc : kept;
    }
    return kept;
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
    if (reply == NULL) return rc;
    bool stale = blasd_link_stale(library, reply);
    freeReplyObject(reply);
    if (!stale) return 0;
    reply = redisCommandArgv(redis, 4, (const char **)(void *)load, NULL);
    if (reply && reply->type == REDIS_REPLY_ERROR && begins(reply->str, "NOPERM")) {
        freeReplyObject(reply);
        return blasd_fail(err, BLASD_E_queue_unavailable, "",
                          "Redis does not have this version's functions yet, and this user may not "
                          "load them: start the front end of this version");
    }
    rc = judge(redis, reply, &reply, err);
    freeReplyObject(reply);
    return rc;
}
