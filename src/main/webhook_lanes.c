/* Lanes are kept while something of them waits, is under way, or fails. */
#include "main/webhook_lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LANE_NAME 384
#define SECOND INT64_C(1000000) /* us */
#define RETRY_MOST (3600 * SECOND)
#define PAUSE_MOST (60 * SECOND) /* of a lane that fails */

struct webhook_lane {
    struct blasd_hash_node node;
    struct blasd_list turn, waiting;
    char name[LANE_NAME];
    int running;
    int64_t next_us;            /* none of it is due before */
    int64_t since_us, pause_us; /* it fails since then, and rests until then; 0: it does not */
};

void webhook_lanes_init(struct webhook_lanes *lanes) {
    *lanes = (struct webhook_lanes){.seed = 1};
    blasd_list_init(&lanes->all);
    blasd_list_init(&lanes->running);
    if (getrandom(&lanes->seed, sizeof lanes->seed, GRND_NONBLOCK) < 0) lanes->seed = 1;
}

static int64_t between(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
}

static struct webhook_lane *lane_of(struct blasd_list *turn) {
    return blasd_container_of(turn, struct webhook_lane, turn);
}

static struct webhook_hook *hook_of(struct blasd_list *node) {
    return blasd_container_of(node, struct webhook_hook, node);
}

static void free_hooks(struct blasd_list *list) {
    BLASD_LIST_EACH(node, list) {
        blasd_list_remove(node);
        free(hook_of(node));
    }
}

static void free_lane(struct webhook_lanes *lanes, struct webhook_lane *lane) {
    free_hooks(&lane->waiting);
    blasd_list_remove(&lane->turn);
    blasd_hash_remove(&lanes->by_name, &lane->node);
    free(lane);
}

static void free_idle(struct webhook_lanes *lanes, struct webhook_lane *lane) {
    if (lane->running == 0 && lane->since_us == 0 && blasd_list_empty(&lane->waiting))
        free_lane(lanes, lane);
}

void webhook_lanes_forget(struct webhook_lanes *lanes) {
    BLASD_LIST_EACH(turn, &lanes->all) {
        free_hooks(&lane_of(turn)->waiting);
        free_idle(lanes, lane_of(turn));
    }
}

void webhook_lanes_release(struct webhook_lanes *lanes) {
    free_hooks(&lanes->running);
    BLASD_LIST_EACH(turn, &lanes->all) free_lane(lanes, lane_of(turn));
    blasd_hash_release(&lanes->by_name);
}

/* The lane of that name, which may be new; NULL where there is no memory. */
static struct webhook_lane *find_lane(struct webhook_lanes *lanes, const char *name) {
    uint64_t hash = blasd_hash_bytes(lanes->seed, name, strlen(name));
    struct blasd_hash_node *node = NULL;
    struct webhook_lane *lane;
    while ((node = blasd_hash_find(&lanes->by_name, hash, node)) != NULL) {
        lane = blasd_container_of(node, struct webhook_lane, node);
        if (strcmp(lane->name, name) == 0) return lane;
    }
    lane = calloc(1, sizeof *lane);
    if (lane == NULL) return NULL;
    if (blasd_hash_add(&lanes->by_name, &lane->node, hash) != 0) {
        free(lane);
        return NULL;
    }
    snprintf(lane->name, sizeof lane->name, "%s", name);
    blasd_list_init(&lane->waiting);
    blasd_list_append(&lanes->all, &lane->turn);
    return lane;
}

static void wait(struct webhook_hook *hook, int64_t due_us) {
    struct webhook_lane *lane = hook->lane;
    hook->due_us = due_us;
    blasd_list_append(&lane->waiting, &hook->node);
    if (due_us < lane->next_us) lane->next_us = due_us;
}

/* "TENANT SCHEME://HOST:PORT". */
static void name_lane(const struct blasd_webhook *webhook, char name[LANE_NAME]) {
    const char *host = strstr(webhook->url, "://");
    size_t len = host == NULL ? 0 : (size_t)(host - webhook->url) + 3;
    len += strcspn(webhook->url + len, "/?");
    snprintf(name, LANE_NAME, "%s %.*s", webhook->tenant, (int)len, webhook->url);
}

int webhook_lanes_add(struct webhook_lanes *lanes, const struct blasd_webhook *webhook) {
    struct webhook_hook *hook;
    char name[LANE_NAME];
    BLASD_LIST_EACH(node, &lanes->running)
    if (strcmp(hook_of(node)->entry, webhook->entry) == 0) return 0;
    hook = calloc(1, sizeof *hook);
    if (hook == NULL) return -1;
    name_lane(webhook, name);
    hook->lane = find_lane(lanes, name);
    if (hook->lane == NULL) {
        free(hook);
        return -1;
    }
    snprintf(hook->entry, sizeof hook->entry, "%s", webhook->entry);
    hook->ended_us = strtoll(webhook->entry, NULL, 10) * 1000; /* Redis names it by that */
    wait(hook, 0);
    return 0;
}

/* The first of the lane that is due; NULL: none is before its next_us. */
static struct webhook_hook *first_due(struct webhook_lane *lane, int64_t now_us) {
    int64_t next = INT64_MAX;
    if (lane->next_us > now_us) return NULL;
    BLASD_LIST_EACH(node, &lane->waiting) {
        if (hook_of(node)->due_us <= now_us) return hook_of(node);
        if (hook_of(node)->due_us < next) next = hook_of(node)->due_us;
    }
    lane->next_us = next;
    return NULL;
}

static bool may_send(const struct webhook_lanes *lanes, const struct webhook_lane *lane,
                     int64_t now_us) {
    if (lane->running == 0 && lanes->running_lanes == WEBHOOK_LANES) return false;
    if (lane->since_us == 0) return lane->running < WEBHOOK_EACH;
    return lane->running == 0 && now_us >= lane->pause_us;
}

struct webhook_hook *webhook_lanes_next(struct webhook_lanes *lanes, int64_t now_us) {
    BLASD_LIST_EACH(turn, &lanes->all) {
        struct webhook_lane *lane = lane_of(turn);
        struct webhook_hook *hook = may_send(lanes, lane, now_us) ? first_due(lane, now_us) : NULL;
        if (hook == NULL) continue;
        blasd_list_remove(turn);
        blasd_list_append(&lanes->all, turn);
        blasd_list_remove(&hook->node);
        blasd_list_append(&lanes->running, &hook->node);
        if (lane->running++ == 0) lanes->running_lanes++;
        lanes->running_count++;
        return hook;
    }
    return NULL;
}

/* Whether the lane gets on after this try. */
static void note(struct webhook_lane *lane, bool good, int64_t asked_us, int64_t now_us) {
    int64_t pause;
    if (good) {
        lane->since_us = lane->pause_us = 0;
        return;
    }
    if (lane->since_us == 0) lane->since_us = now_us;
    pause = between(now_us - lane->since_us, SECOND, PAUSE_MOST);
    lane->pause_us = now_us + (pause > asked_us ? pause : asked_us);
}

void webhook_lanes_over(struct webhook_lanes *lanes, struct webhook_hook *hook, bool failed,
                        int asked_s, int64_t now_us) {
    struct webhook_lane *lane = hook->lane;
    int64_t asked_us = asked_s * SECOND,
            later = between(now_us - hook->ended_us, SECOND, RETRY_MOST);
    lanes->running_count--;
    if (--lane->running == 0) lanes->running_lanes--;
    note(lane, !failed, asked_us, now_us);
    blasd_list_remove(&hook->node);
    if (failed)
        wait(hook, now_us + (later > asked_us ? later : asked_us));
    else
        free(hook);
    free_idle(lanes, lane);
}

const char *webhook_lane_name(const struct webhook_lane *lane) {
    return lane->name;
}
