/* Fetching what lies at URLs, whole: one thread does it for a process, with libcurl's multi
 * interface, so that no loop waits.
 *
 * How long a file is has to be known before the first of its bytes is taken. A transfer of which
 * nothing was taken is tried again; one that is cut off later fails. Read next: outgoing.h. */
#ifndef BLASD_OUTGOING_FETCH_H
#define BLASD_OUTGOING_FETCH_H

#include "base/limits.h"
#include "base/list.h"
#include "core/principal.h"
#include "outgoing/outgoing.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* One fetch; stays where it is until `done` was called. Its owner fills in the first part. */
struct blasd_fetch {
    const char *url, *field; /* borrowed; the field that errors blame */
    char tenant[BLASD_TENANT_MAX];
    /* Called in the fetching thread: the size of the file is known; bytes have come. A negative
     * return ends it with that error. */
    int (*size)(struct blasd_fetch *fetch, uint64_t size, struct blasd_err *err);
    int (*feed)(struct blasd_fetch *fetch, const char *bytes, size_t len, struct blasd_err *err);
    /* The last call; `err` NULL: all of it has come. */
    void (*done)(struct blasd_fetch *fetch, const struct blasd_err *err);
    _Atomic bool unwanted; /* set by anybody, at any time: it ends soon */

    /* the fetcher's own */
    struct blasd_list node; /* in what came, or what is not done */
    struct blasd_fetcher *fetcher;
    CURL *curl; /* NULL: no transfer is under way */
    struct blasd_outgoing_transfer transfer;
    struct blasd_err err;
    int64_t until_ns, again_ns;
    int tries;
    bool known;          /* how long the file is: */
    uint64_t all, taken; /* its bytes; those that were fed */
    struct {             /* to this transfer's request */
        bool checked;    /* its head was */
        bool encoded;
        int64_t length; /* of its body; -1: it does not say */
    } answer;
};

struct blasd_fetcher;

/* Starts the thread. `outgoing` and `limits` are borrowed. New: ended with blasd_fetcher_stop. */
int blasd_fetcher_start(const struct blasd_outgoing *outgoing, const struct blasd_limits *limits,
                        struct blasd_fetcher **ret, struct blasd_err *err);
/* Ends what is under way, with `done` for each, and the thread; takes NULL. */
void blasd_fetcher_stop(struct blasd_fetcher *fetcher);
/* Any thread may call. */
void blasd_fetch_begin(struct blasd_fetcher *fetcher, struct blasd_fetch *fetch);
/* Ends it soon; `done` is called all the same. */
void blasd_fetch_cancel(struct blasd_fetch *fetch);

#endif
