/* What both sides of the queue share about Redis: its address, the key names, the library of
 * functions, and what its errors mean to a user.
 *
 * Must not know jobs. What the keys and functions are is told in functions/contract.lua. */
#ifndef BLASD_QUEUE_REDIS_LINK_H
#define BLASD_QUEUE_REDIS_LINK_H

#include "queue/queue.h"

#include <hiredis/hiredis.h>

#define BLASD_LINK_LIBRARY "blasd_4"
/* The name of a function as FCALL takes it: BLASD_LINK_FN("submit"). */
#define BLASD_LINK_FN(name) BLASD_LINK_LIBRARY "_" name

#define BLASD_LINK_NAME_MAX 64           /* bytes of a queue's name with its zero */
#define BLASD_LINK_KEY_MAX 256           /* bytes of a key with its zero */
#define BLASD_LINK_CHUNK BLASD_MIB       /* a piece of a blob of kind redis */
#define BLASD_LINK_FRONT_CHANNEL "front" /* {q}:front:… are the names of reply channels */

/* Where Redis is. A plain value. */
struct blasd_link_address {
    char path[108]; /* of the unix socket; "" where it is TCP */
    char host[256];
    int port;
    int db;             /* SELECT it after connecting where it is not 0 */
    char user[128];     /* "": AUTH with the password alone */
    char password[256]; /* "": no AUTH */
};

/* Reads "redis://[user:password@]host[:port][/db]" ([v6] hosts in brackets; %XX understood in user
 * and password) or "unix:/path". invalid_field. */
int blasd_link_parse(const char *url, struct blasd_link_address *ret, struct blasd_err *err);
/* Refuses queue names that would break the hash tag or a key: 1 to 63 of [A-Za-z0-9._-]. */
int blasd_link_check_name(const char *name, struct blasd_err *err);
/* Writes "{QUEUE}" and then the rest, formatted; longer keys than BLASD_LINK_KEY_MAX are cut, which
 * no valid name or id can bring about. Returns the length. */
size_t blasd_link_key(char key[BLASD_LINK_KEY_MAX], const char *queue, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The limits as the functions take them, with those that are 0 resolved from the store's size. */
struct blasd_link_limits {
    char text[184]; /* the argument LIMITS */
    uint64_t queue_jobs, queue_bytes, record_bytes, record_sync_bytes;
};
void blasd_link_limits(const struct blasd_queue_options *options, struct blasd_link_limits *ret);

/* The source of the library, static, for FUNCTION LOAD. */
const char *blasd_link_functions(size_t *len);

/* What an error reply means. */
enum blasd_link_fault {
    BLASD_LINK_UNAVAILABLE, /* LOADING, OOM, READONLY, MISCONF, BUSY, CLUSTERDOWN, …: try again */
    BLASD_LINK_NO_LIBRARY,  /* the functions are not loaded: FUNCTION LOAD, then try again */
    BLASD_LINK_LOST,        /* the worker's lease has lapsed */
    BLASD_LINK_STORE,       /* the deployment uses another blob store */
    BLASD_LINK_DISK,        /* its disk has too little space for more jobs */
    BLASD_LINK_WRONG,       /* anything else: NOAUTH, WRONGPASS, a mistake of ours */
};
enum blasd_link_fault blasd_link_fault(const char *text);
/* Fills `err` from the text of an error reply: queue_unavailable or disk_full where a retry can
 * help, else internal_error. Returns the negative code. */
int blasd_link_error(const char *text, struct blasd_err *err);

/* Connects, waiting, and authenticates and selects the database. New: free with redisFree.
 * queue_unavailable where nobody answers in time; internal_error where the password is wrong. */
int blasd_link_connect(const struct blasd_link_address *address, int timeout_ms, redisContext **ret,
                       struct blasd_err *err);
/* What the reply to INFO says: internal_error where that Redis keeps no file or may evict keys;
 * BLASD_QUEUE_UNSURE where it is not allowed. */
int blasd_link_keeps(const redisReply *info, struct blasd_err *err);
/* Whether the library should be loaded: `list` is the reply of FUNCTION LIST LIBRARYNAME …
 * WITHCODE.
 */
bool blasd_link_stale(const redisReply *list);
/* Loads the library where the server lacks it or has an earlier revision. */
int blasd_link_load(redisContext *redis, struct blasd_err *err);
/* Checks that Redis loses no jobs, loads the library, makes the queue's keys and checks that the
 * store is the one the deployment uses (recording it where this is the first to come;
 * internal_error where it is another). `adopt`: record it in any case. As
 * blasd_queue_check_store. */
int blasd_link_open(redisContext *redis, const struct blasd_queue_options *options, bool adopt,
                    struct blasd_err *err);

/* Makes the store of `options` the deployment's own, whatever was recorded. Only for who knows that
 * no other process uses the queue yet, as `blasd up` does of its private Redis: the store on tmpfs
 * of before a reboot is gone. */
int blasd_queue_adopt_store(const struct blasd_queue_options *options, struct blasd_err *err);

#endif
