/* The redis-server that `blasd up` keeps for itself where none is given: a unix socket and nothing
 * else, an append-only file under the data directory, nothing ever evicted. Read next: child.h. */
#ifndef BLASD_MAIN_PRIVATE_REDIS_H
#define BLASD_MAIN_PRIVATE_REDIS_H

#include "base/err.h"
#include "main/aof_room.h"
#include "main/data_dir.h"
#include "main/probe.h"
#include "queue/queue.h"

#include <stdbool.h>

/* Who may do anything to it. */
#define PRIVATE_REDIS_USER "blasd-up"
/* What workers are. The other parts are Redis' default user, who may do what they need: as that
 * Redis reads its file, too. */
#define PRIVATE_REDIS_WORKER "blasd-worker"

#define PRIVATE_REDIS_ANSWER "+OK\r\n:"

/* Who it knows, and how it is asked whether it answers. */
struct private_redis_logins {
    char own[33];      /* password of `blasd up`: in redis.conf, which no part can read */
    char part[33];     /* of the parts; in redis.conf, and in the file of the address */
    char worker[33];   /* of the workers; in redis.conf */
    char question[64]; /* answered by PRIVATE_REDIS_ANSWER once it has loaded its data */
};

struct private_redis {
    const struct data_dir *dir; /* borrowed */
    const char *queue;          /* borrowed: the queue's name */
    struct private_redis_logins logins;
    bool durable;               /* Redis syncs each write itself */
    char socket[108];           /* path of the unix socket */
    char socket_dir[108];       /* made for the socket where the data directory's path is too long;
                                   "" otherwise */
    char url[192];              /* "unix:…"; also in the file redis.url */
    char worker_url[192];       /* the same for workers */
    char log[PATH_MAX + 16];    /* Redis' own log */
    char config[PATH_MAX + 16]; /* redis.conf */
    char *argv[3];              /* words borrowed from this struct or static */
    long long synced_bytes;     /* of the append-only files, when they were last synced */
    int64_t synced_ns;
    struct blasd_aof_room room;

    /* what Redis, and the log, were told last of the disk; 0 bytes: nothing yet */
    uint64_t told_bytes;
    bool told_short, said_short;
    bool heard; /* it has answered to that, since it was started */
    int64_t told_ns, rewritten_ns;
    bool paused;  /* Redis takes no writes until the file is rewritten */
    bool copying; /* its child does that still, as it told last */
    int rewrites; /* asked for in this pause */
    struct probe teller;
    char words[600];
};

/* How it is to be. */
struct private_redis_options {
    const char *queue; /* its name; borrowed */
    bool durable;
    uint64_t reserve; /* the limit disk_reserve_bytes */
};
/* Chooses paths and writes redis.conf and redis.url; starts nothing. */
int private_redis_init(struct private_redis *redis, const struct data_dir *dir,
                       const struct private_redis_options *options, struct blasd_err *err);
/* To be called before each start: sets right the end of its file, should it have been killed while
 * it wrote, and removes the copy of a rewrite that was cut off. */
void private_redis_repair(struct private_redis *redis);
/* To be called ten times a second while it runs: holds room on the disk, has the queue of that name
 * refuse jobs while space is short (all of them, where there are several), and syncs once a second.
 */
void private_redis_care(struct private_redis *redis, struct blasd_loop *loop,
                        const struct blasd_queue_options *queue);
/* fdatasync of what was appended since the last call: with `appendfsync no` this bounds what a
 * power cut can take to about the time between two calls, while a killed process loses nothing. Of
 * what is on the disk nothing stays in the kernel's cache. */
void private_redis_sync(struct private_redis *redis);
/* Copies the last lines of Redis' log to standard error. */
void private_redis_show_log(const struct private_redis *redis);
/* Removes the socket. */
void private_redis_cleanup(const struct private_redis *redis);

#endif
