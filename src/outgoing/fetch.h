/* Fetching what lies at URLs, by ranges: one thread does it for a whole process, with libcurl's
 * multi interface, so that whoever asks never waits.
 *
 * How long a file is has to be known before the first of its bytes is taken; a transfer that is cut
 * off goes on where it was, as long as the file is the same one (ETag). Read next: outgoing.h. */
#ifndef BLASD_OUTGOING_FETCH_H
#define BLASD_OUTGOING_FETCH_H

#include "base/limits.h"
#include "base/list.h"
#include "core/principal.h"
#include "outgoing/outgoing.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BLASD_FETCH_ETAG 256

/* One fetch; stays where it is until `done` was called. Its owner fills in the first part. */
struct blasd_fetch {
    const char *url, *field; /* borrowed; the field that errors blame */
    char tenant[BLASD_TENANT_MAX];
    /* Called in the fetching thread. The size of the file is known: says in `at` and `end` what is
     * wanted of it first. The bytes from `at` on have come, no more than to `end`: says in both
     * what is wanted next; they are equal where nothing is. A negative return ends it with that
     * error.
     */
    int (*size)(struct blasd_fetch *fetch, uint64_t size, struct blasd_err *err);
    int (*feed)(struct blasd_fetch *fetch, const char *bytes, size_t len, struct blasd_err *err);
    /* The last call; `err` NULL: all that was wanted has come. */
    void (*done)(struct blasd_fetch *fetch, const struct blasd_err *err);
    uint64_t at, end;
    _Atomic bool unwanted; /* set by anybody, at any time: it ends soon */

    /* the fetcher's own */
    struct blasd_list node; /* in what came, or what is not done */
    struct blasd_fetcher *fetcher;
    CURL *curl; /* NULL: no transfer is under way */
    struct curl_slist *headers;
    struct blasd_outgoing_transfer transfer;
    struct blasd_err err;
    int64_t until_ns, again_ns;
    int tries;
    uint64_t position, began_at; /* of the next byte to come, and of this transfer's first */
    struct {
        bool known;
        uint64_t all; /* its bytes */
        char etag[BLASD_FETCH_ETAG];
    } file;
    struct {          /* to this transfer's request */
        bool checked; /* its head was */
        bool jump;    /* another place is wanted */
        bool encoded;
        int64_t length; /* of its body; -1: it does not say */
        char tag[BLASD_FETCH_ETAG], range[96];
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
