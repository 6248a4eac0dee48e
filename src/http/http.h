/* The HTTP front end: event loops that take jobs in, wait for them and hand results out.
 *
 * One thread a listening socket; each has its own libmicrohttpd daemon, its own connections to the
 * queue and its own event loop, and shares nothing with the others but counters. Read next:
 * server.c (a turn of the loop), exchange.h (the life of one request), routes.c (the table). */
#ifndef BLASD_HTTP_HTTP_H
#define BLASD_HTTP_HTTP_H

#include "base/err.h"
#include "queue/queue.h"

struct blasd_http_options {
    /* listening sockets, `loops` of them, bound to one address with SO_REUSEPORT; given away: they
     * are closed when the service drains, and where blasd_http_run fails */
    const int *listen_fds;
    int loops; /* sockets, and so threads; the first runs on the caller's */
    /* borrowed; its limits are the ones that hold here too */
    const struct blasd_queue_options *queue;
    /* names beside addresses and localhost that a Host header may have, and origins of web pages
     * that may call; each ended by NULL, or NULL; "*" allows all. Borrowed. */
    const char *const *allow_hosts;
    const char *const *allow_origins;
    /* "cuda:0: why it has no worker", for GET /devices; ended by NULL, or NULL. Borrowed. */
    const char *const *unusable_devices;
    /* Readable when it is time to end (a signalfd, an eventfd, the read end of a pipe). Nothing is
     * read from it. Borrowed. */
    int stop_fd;
    bool share;                  /* clients on this machine may hand in files, see share.c */
    int grace_ms;                /* how long requests may go on once it is time to end */
    const char *version;         /* for GET /metrics; borrowed */
    void (*on_ready)(void *arg); /* every loop stands and the sockets are served; may be NULL */
    /* The queue takes jobs from now on (`trouble` NULL), or has not for a second: then again each
     * ten seconds. May be NULL. */
    void (*on_queue)(void *arg, const struct blasd_err *trouble);
    void *arg;
};

/* Serves until stop_fd is readable, then takes no new connections, refuses new jobs with
 * `draining`, lets the requests under way end within the grace period, and returns 0. A negative
 * code where it could not start. Ignores SIGPIPE and raises the soft limit of open files. */
int blasd_http_run(const struct blasd_http_options *options, struct blasd_err *err);

#endif
