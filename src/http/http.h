/* The HTTP front end: event loops that take jobs in, wait for them and hand results out.
 *
 * One thread a listening socket; each has its own libmicrohttpd daemon, its own connections to the
 * queue and its own event loop, and shares nothing with the others but counters. Read next:
 * server.c (a turn of the loop), exchange.h (the life of one request), routes.c (the table). */
#ifndef BLASD_HTTP_HTTP_H
#define BLASD_HTTP_HTTP_H

#include "auth/auth.h"
#include "base/err.h"
#include "core/price.h"
#include "outgoing/outgoing.h"
#include "queue/queue.h"

/* Paths of PEM files. */
struct blasd_tls_files {
    const char *cert, *key; /* the certificate, with those it is signed by behind it, and its key */
    const char *client_ca;  /* NULL: clients are not asked for certificates */
};

struct blasd_otlp;

struct blasd_http_options {
    /* listening sockets, `loops` of them, bound to one address with SO_REUSEPORT; given away: they
     * are closed when the service has drained, and where blasd_http_run fails */
    const int *listen_fds;
    int loops; /* sockets, and so threads; the first runs on the caller's */
    /* borrowed; its limits are the ones that hold here too */
    const struct blasd_queue_options *queue;
    /* names beside addresses and localhost that a Host header may have, and origins of web pages
     * that may call; each ended by NULL, or NULL; "*" allows all. Borrowed. */
    const char *const *allow_hosts;
    const char *const *allow_origins;
    struct blasd_auth *auth;           /* who may do what; NULL: everybody everything. Borrowed */
    const struct blasd_tls_files *tls; /* NULL: no TLS. Borrowed */
    const struct blasd_prices *prices; /* NULL: nothing has a price. Borrowed */
    /* "cuda:0: why it has no worker", for GET /devices; ended by NULL, or NULL. Borrowed. */
    const char *const *unusable_devices;
    /* The read end of a pipe, not blocking: the byte SIGHUP means that certificates are to be read
     * anew; any other that it is time to drain, the next one that it is time to end. Borrowed. */
    int stop_fd;
    bool webhooks; /* `blasd notify` delivers them: jobs may have "notify" */
    const struct blasd_outgoing
        *outgoing; /* where clients' URLs may lead; NULL: nowhere. Borrowed */
    bool share;    /* clients on this machine may hand in files, see shared_files.c */
    struct {
        bool audit, access; /* a line for each job that is taken; for each request answered */
    } log;
    struct blasd_otlp *otlp; /* where spans go; NULL: nowhere. Borrowed */
    bool metrics_tenants;    /* GET /metrics names tenants */
    int grace_ms; /* how long requests may go on once it is time to drain; where none are left it is
                     the end. -1: until it is told to end */
    const char *version; /* for GET /metrics; borrowed */
    /* Each may be NULL. Every loop stands and the sockets are served; each of them has turned since
     * the last such call, which there is about once a second; while it drains, no request is left
     */
    void (*on_ready)(void *arg), (*on_alive)(void *arg), (*on_quiet)(void *arg);
    /* Called once: the queue takes jobs, and a worker lives to run them. May be NULL. */
    void (*on_serving)(void *arg);
    /* The queue takes jobs from now on (`trouble` NULL), or has not for a second: then again each
     * ten seconds. May be NULL. */
    void (*on_queue)(void *arg, const struct blasd_err *trouble);
    void *arg;
};

/* Whether certificate, key and client CA can be read and fit together. */
int blasd_http_check_tls(const struct blasd_tls_files *files, struct blasd_err *err);

/* Serves until stop_fd says that it is time to drain, then refuses new jobs with `draining`, serves
 * all else for as long as grace_ms says, and returns 0. A negative
 * code where it could not start. Ignores SIGPIPE and raises the soft limit of open files. */
int blasd_http_run(const struct blasd_http_options *options, struct blasd_err *err);

#endif
