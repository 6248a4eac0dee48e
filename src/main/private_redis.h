/* The redis-server that `blasd up` keeps for itself where none is given: a unix socket and nothing
 * else, an append-only file under the data directory, nothing ever evicted. Read next: child.h. */
#ifndef BLASD_MAIN_PRIVATE_REDIS_H
#define BLASD_MAIN_PRIVATE_REDIS_H

#include "base/err.h"
#include "main/aof_sync.h"
#include "main/data_dir.h"
#include "main/redis_care.h"

/* Who may do anything to it. */
#define PRIVATE_REDIS_USER "blasd-up"
/* What workers are. The other parts are Redis' default user, who may do what they need: as that
 * Redis reads its file, too. */
#define PRIVATE_REDIS_WORKER "blasd-worker"

/* The passwords of those that it knows. */
struct private_redis_logins {
    char own[33];    /* of `blasd up`: in redis.conf, which no part can read */
    char part[33];   /* of the parts; in redis.conf, and in the file of the address */
    char worker[33]; /* of the workers; in redis.conf */
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
    char *argv[3];              /* words borrowed from this struct or static, as repair_argv */
    char files[PATH_MAX + 16];  /* the directory of its append-only files */
    char manifest[PATH_MAX + 48]; /* of these */
    char *repair_argv[6]; /* cuts off an end of its file that it does not load, and starts it */
    struct redis_care care;
    struct aof_sync sync;
    void *arg; /* for the callbacks of `care` */
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
/* Begins to look after a Redis that is to be started, until private_redis_leave; the callbacks of
 * redis->care are set. */
int private_redis_attend(struct private_redis *redis, struct blasd_loop *loop,
                         struct blasd_err *err);
/* It has ended, or was never started; returns the words of its next start. Where it ended by itself
 * before it was ready these repair its file first. */
char *const *private_redis_next(struct private_redis *redis, bool own_end);
/* All that it wrote is on the disk then. */
void private_redis_leave(struct private_redis *redis);
/* Copies the last lines of Redis' log to standard error. */
void private_redis_show_log(const struct private_redis *redis);
/* Removes the socket. */
void private_redis_cleanup(const struct private_redis *redis);

#endif
