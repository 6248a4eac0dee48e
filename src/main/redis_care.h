/* What `blasd up` asks of its private Redis, and tells it, over one connection: whether it lives,
 * that the queue refuses jobs while the disk has no room for them, and to rewrite its file.
 *
 * A Redis 7.0 that found the disk full in a file that it had begun itself may leave zero bytes
 * between two commands, behind which its next start reads nothing. So once a write may have failed
 * jobs are refused until the file has been rewritten. Read next: aof_disk.h. */
#ifndef BLASD_MAIN_REDIS_CARE_H
#define BLASD_MAIN_REDIS_CARE_H

#include "main/aof_disk.h"
#include "redis/async_link.h"

struct redis_care {
    /* set before redis_care_start */
    struct aof_disk disk; /* open */
    const char *queue;    /* its name; borrowed */
    /* It has replied, with whatever. */
    void (*on_alive)(struct redis_care *care);
    /* It answers for the first time since it was started, and knows whether jobs are refused. */
    void (*on_ready)(struct redis_care *care);

    /* its own; zero */
    struct blasd_link_address address;
    struct blasd_async_link link;
    struct blasd_timer timer;
    bool started;
    bool told, ready;      /* of the Redis that runs: it was told of the disk, and has answered */
    bool refuses, said;    /* what it was told last, and what the log was */
    bool torn;             /* a write may have failed since its file was rewritten last */
    bool rewriting, asked; /* it rewrites; a rewrite was asked for since a write may have failed */
    int64_t asked_ns, told_ns, rewrite_ns; /* when it was asked, told, and asked for a rewrite */
};

/* Connects to the unix socket as `user`, now and whenever the connection breaks, and goes on until
 * redis_care_stop. */
int redis_care_start(struct redis_care *care, struct blasd_loop *loop, const char *socket,
                     const char *user, const char *password, struct blasd_err *err);
/* Redis has ended: what it knew is forgotten. */
void redis_care_ended(struct redis_care *care);
void redis_care_stop(struct redis_care *care);

#endif
