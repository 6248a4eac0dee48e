/* Redis as any of its users sees it: its address, the key names of a queue, a library of functions
 * and its versions, and what errors mean to a user.
 *
 * Must not know jobs, nor what the library's functions do. Read next: route.h, caller.h,
 * async_link.h. */
#ifndef BLASD_REDIS_LINK_H
#define BLASD_REDIS_LINK_H

#include "base/err.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>

#define BLASD_LINK_NAME_MAX 64 /* bytes of a queue's name with its zero */
#define BLASD_LINK_KEY_MAX 256 /* bytes of a key with its zero */

#define BLASD_LINK_PLACES 16 /* most that an address may name */

/* Where a server, or a Sentinel, is. A plain value. */
struct blasd_link_place {
    char host[256];
    int port;
};

/* Where the Redis of a queue is. A plain value. */
struct blasd_link_address {
    char path[108];                                    /* of the unix socket; "" where it is TCP */
    struct blasd_link_place places[BLASD_LINK_PLACES]; /* any of which leads there */
    int count;                                         /* of them; 0 with a path */
    char master[64]; /* the places are Sentinels, which know it by that name; "": servers */
    char tag[BLASD_LINK_NAME_MAX + 2]; /* "{QUEUE}": a key in the queue's slot */
    bool tls;
    int db;             /* SELECT it after connecting where it is not 0 */
    char user[128];     /* "": AUTH with the password alone */
    char password[256]; /* "": no AUTH */
};

/* Reads "redis://[user:password@]host[:port][,host[:port]...][/db]", the same with rediss:// for
 * TLS
 * ([v6] hosts in brackets; %XX understood in user and password), "redis+sentinel://[user:password@]
 * host[:port][,host[:port]...]/MASTER[/db]", the same with rediss+sentinel://, or
 * "unix:[//user:password@]/path"; and the name of the queue. invalid_field. */
int blasd_link_parse(const char *url, const char *queue, struct blasd_link_address *ret,
                     struct blasd_err *err);
/* The name of a queue: 1 to 63 of [A-Za-z0-9._-], or it would break the hash tag or a key.
 * invalid_field. */
int blasd_link_check_name(const char *name, struct blasd_err *err);
/* Writes "{QUEUE}" and then the rest, formatted; longer keys than BLASD_LINK_KEY_MAX are cut, which
 * no valid name or id can bring about. Returns the length. */
size_t blasd_link_key(char key[BLASD_LINK_KEY_MAX], const char *queue, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A library of functions. `code`: its source, whose second line says "-- revision N". */
struct blasd_link_library {
    const char *name, *code; /* static */
};

/* What an error reply means. */
enum blasd_link_fault {
    BLASD_LINK_UNAVAILABLE, /* LOADING, OOM, MISCONF, BUSY, …: try again */
    BLASD_LINK_ELSEWHERE, /* READONLY, MOVED, ASK, CLUSTERDOWN, …: nothing was done; the same, over
                             a new connection, for the way may lead to another server by now */
    BLASD_LINK_NO_LIBRARY, /* the functions are not loaded: FUNCTION LOAD, then try again */
    BLASD_LINK_LOST,       /* the worker's lease has lapsed */
    BLASD_LINK_STORE,      /* the deployment uses another blob store */
    BLASD_LINK_DISK,       /* its disk has too little space for more jobs */
    BLASD_LINK_SCHEMA,     /* another version has written the queue, in another way */
    BLASD_LINK_WRONG,      /* anything else: NOAUTH, WRONGPASS, a mistake of ours */
};
enum blasd_link_fault blasd_link_fault(const char *text);
/* Fills `err` from the text of an error reply: queue_unavailable or disk_full where a retry can
 * help, else internal_error. Returns the negative code. */
int blasd_link_error(const char *text, struct blasd_err *err);

/* Runs one command; an error reply or a broken connection becomes an error. *ret: new. */
int blasd_link_ask(redisContext *redis, int argc, const char *const *argv, redisReply **ret,
                   struct blasd_err *err);
/* The same for the next reply to what was appended to `redis` by redisAppendCommandArgv. */
int blasd_link_reply(redisContext *redis, redisReply **ret, struct blasd_err *err);
/* What the reply to INFO says: internal_error where that Redis keeps no file or may evict keys;
 * BLASD_LINK_UNSURE where it is not allowed. */
#define BLASD_LINK_UNSURE 1
int blasd_link_keeps(const redisReply *info, struct blasd_err *err);
/* Whether the reply to CONFIG GET appendfsync says that a Redis that is killed loses nothing it has
 * acknowledged: 0, also where this user may not ask; internal_error where it does not. */
int blasd_link_writes(const redisReply *config, struct blasd_err *err);
/* Asks for both. */
int blasd_link_check_keeps(redisContext *redis, struct blasd_err *err);
/* Whether the library should be loaded, which the server lacks, or has in an earlier revision:
 * `list` is the reply of FUNCTION LIST LIBRARYNAME NAME WITHCODE. */
bool blasd_link_stale(const struct blasd_link_library *library, const redisReply *list);
/* Loads it then. queue_unavailable where this user may not: another process will. */
int blasd_link_load(redisContext *redis, const struct blasd_link_library *library,
                    struct blasd_err *err);

#endif
