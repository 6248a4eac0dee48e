/* The webhooks that wait, in memory: which is to be tried when. What a tenant has for one receiver
 * is a lane. Four of a lane are under way at one time, one where the last failed, and after that
 * none for a while, so a receiver that hangs holds up nobody else's. Knows neither Redis nor HTTP.
 * Read next: webhook_send.h, cmd_notify.c. */
#ifndef BLASD_MAIN_WEBHOOK_LANES_H
#define BLASD_MAIN_WEBHOOK_LANES_H

#include "base/hash.h"
#include "base/list.h"
#include "queue/webhooks.h"

#define WEBHOOK_LANES 64 /* at one time */
#define WEBHOOK_EACH 4   /* webhooks of one at one time */

struct webhook_lane;

/* A webhook that waits, or is under way. */
struct webhook_hook {
    struct blasd_list node; /* of its lane, while it waits */
    struct webhook_lane *lane;
    char entry[BLASD_WEBHOOK_ENTRY];
    int64_t ended_us, due_us;
};

struct webhook_lanes {
    struct blasd_hash by_name;
    uint64_t seed;
    struct blasd_list all;     /* who had its turn last stands last */
    struct blasd_list running; /* webhooks under way */
    int running_lanes, running_count;
};

void webhook_lanes_init(struct webhook_lanes *lanes);
/* Frees all, also what is under way. */
void webhook_lanes_release(struct webhook_lanes *lanes);
/* Forgets what waits, but not which lanes fail. */
void webhook_lanes_forget(struct webhook_lanes *lanes);
/* One more that waits, unless it is under way. 0, or -1 where there is no memory. */
int webhook_lanes_add(struct webhook_lanes *lanes, const struct blasd_webhook *webhook);
/* The next that is to be sent now, which is then under way; NULL: none. */
struct webhook_hook *webhook_lanes_next(struct webhook_lanes *lanes, int64_t now_us);
/* It has been tried. One that has failed waits as long again as it has been tried for, and for
 * `asked_s` at the least; others are forgotten. */
void webhook_lanes_over(struct webhook_lanes *lanes, struct webhook_hook *hook, bool failed,
                        int asked_s, int64_t now_us);
const char *webhook_lane_name(const struct webhook_lane *lane);

#endif
