/* Admission to a full queue: small requests wait a moment for room, first come first
 * served, before they are refused.
 *
 * A refusal costs the service a third of what a job costs it, and a client that is refused comes
 * again; where refusals go out as fast as requests come in they leave little time for jobs. Those
 * who wait here cost nothing, and most of them get in. What waits is the job, read and checked
 * once; it is submitted again as it is. Whose time is up is refused, but not faster than leaves the
 * machine to the jobs: the others wait on, and who has waited longest is still the first to get in.
 * Read next: jobs_post.c. */
#ifndef BLASD_HTTP_ADMISSION_H
#define BLASD_HTTP_ADMISSION_H

#include "base/list.h"
#include "base/loop.h"

#include <stdbool.h>

struct http_exchange;
struct http_loop;

/* A loop's: who waits, and what may be refused. */
struct http_admission {
    struct blasd_list waiting; /* exchanges, by `admission` */
    struct blasd_timer timer;
    int64_t spent_ns;
    int earned;
};

/* Whether the request is one that may wait: its body is small, and its length is known. */
bool http_admission_suits(const struct http_exchange *exchange);
/* The exchange waits from now on, behind all others, until it enters another state; `again`: it
 * was let in and found no room after all, so it goes to the front. */
void http_admission_wait(struct http_exchange *exchange, bool again);
/* Whether anybody waits. */
bool http_admission_busy(const struct http_loop *loop);
/* Lets in those for whom there is room and refuses those who have waited too long. In each turn
 * before answers are sent, for their jobs have made room, and after new requests have come. */
void http_admission_turn(struct http_loop *loop);

#endif
