/* Queues are kept while something of them waits, is under way, or fails. */
#include "main/webhook_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define QUEUE_NAME 384
#define SECOND INT64_C(1000000) /* us */
#define RETRY_MOST (3600 * SECOND)
#define PAUSE_MOST (60 * SECOND) /* of a queue that fails */

struct webhook_queue {
    struct blasd_hash_node node;
    struct blasd_list turn, waiting;
    char name[QUEUE_NAME];
    int running;
    int64_t since_us, pause_us; /* it fails since then, and rests until then; 0: it does not */
};

void webhook_queues_init(struct webhook_queues *queues) {
    *queues = (struct webhook_queues){.seed = 1};
    blasd_list_init(&queues->all);
    blasd_list_init(&queues->running);
    if (getrandom(&queues->seed, sizeof queues->seed, GRND_NONBLOCK) < 0) queues->seed = 1;
}

/* The pause after a failure: as long as there were failures for, and as long as was asked for. */
static int64_t pause_until(int64_t since_us, int64_t most_us, int asked_s, int64_t now_us) {
    int64_t pause = now_us - since_us;
    if (pause < SECOND) pause = SECOND;
    if (pause > most_us) pause = most_us;
    if (pause < asked_s * SECOND) pause = asked_s * SECOND;
    return now_us + pause;
}

static struct webhook_queue *queue_of(struct blasd_list *turn) {
    return blasd_container_of(turn, struct webhook_queue, turn);
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

static void free_idle(struct webhook_queues *queues, struct webhook_queue *queue) {
    if (queue->running > 0 || queue->since_us != 0 || !blasd_list_empty(&queue->waiting)) return;
    blasd_list_remove(&queue->turn);
    blasd_hash_remove(&queues->by_name, &queue->node);
    free(queue);
}

void webhook_queues_forget(struct webhook_queues *queues) {
    BLASD_LIST_EACH(turn, &queues->all) {
        free_hooks(&queue_of(turn)->waiting);
        free_idle(queues, queue_of(turn));
    }
}

void webhook_queues_release(struct webhook_queues *queues) {
    free_hooks(&queues->running);
    BLASD_LIST_EACH(turn, &queues->all) queue_of(turn)->running = 0, queue_of(turn)->since_us = 0;
    webhook_queues_forget(queues);
    blasd_hash_release(&queues->by_name);
}

/* The queue of that name, which may be new; NULL where there is no memory. */
static struct webhook_queue *find_queue(struct webhook_queues *queues, const char *name) {
    uint64_t hash = blasd_hash_bytes(queues->seed, name, strlen(name));
    struct blasd_hash_node *node = NULL;
    struct webhook_queue *queue;
    while ((node = blasd_hash_find(&queues->by_name, hash, node)) != NULL) {
        queue = blasd_container_of(node, struct webhook_queue, node);
        if (strcmp(queue->name, name) == 0) return queue;
    }
    queue = calloc(1, sizeof *queue);
    if (queue == NULL) return NULL;
    if (blasd_hash_add(&queues->by_name, &queue->node, hash) != 0) {
        free(queue);
        return NULL;
    }
    snprintf(queue->name, sizeof queue->name, "%s", name);
    blasd_list_init(&queue->waiting);
    blasd_list_append(&queues->all, &queue->turn);
    return queue;
}

/* "TENANT SCHEME://HOST:PORT". */
static void name_queue(const struct blasd_webhook *webhook, char name[QUEUE_NAME]) {
    const char *host = strstr(webhook->url, "://");
    size_t len = host == NULL ? 0 : (size_t)(host - webhook->url) + 3;
    len += strcspn(webhook->url + len, "/?");
    snprintf(name, QUEUE_NAME, "%s %.*s", webhook->tenant, (int)len, webhook->url);
}

int webhook_queues_add(struct webhook_queues *queues, const struct blasd_webhook *webhook) {
    struct webhook_hook *hook;
    char name[QUEUE_NAME];
    BLASD_LIST_EACH(node, &queues->running)
    if (strcmp(hook_of(node)->entry, webhook->entry) == 0) return 0;
    hook = calloc(1, sizeof *hook);
    if (hook == NULL) return -1;
    name_queue(webhook, name);
    hook->queue = find_queue(queues, name);
    if (hook->queue == NULL) {
        free(hook);
        return -1;
    }
    snprintf(hook->entry, sizeof hook->entry, "%s", webhook->entry);
    hook->ended_us = strtoll(webhook->entry, NULL, 10) * 1000; /* Redis names it by that */
    blasd_list_append(&hook->queue->waiting, &hook->node);
    return 0;
}

/* The first of the queue that may be sent now, or NULL. */
static struct webhook_hook *first_due(const struct webhook_queue *queue, int64_t now_us) {
    if (queue->running >= (queue->since_us == 0 ? WEBHOOK_EACH : 1)) return NULL;
    if (now_us < queue->pause_us) return NULL;
    BLASD_LIST_EACH(node, &queue->waiting)
    if (hook_of(node)->due_us <= now_us) return hook_of(node);
    return NULL;
}

struct webhook_hook *webhook_queues_next(struct webhook_queues *queues, int64_t now_us) {
    if (queues->running_count == WEBHOOK_REQUESTS) return NULL;
    BLASD_LIST_EACH(turn, &queues->all) {
        struct webhook_queue *queue = queue_of(turn);
        struct webhook_hook *hook = first_due(queue, now_us);
        if (hook == NULL) continue;
        blasd_list_remove(turn);
        blasd_list_append(&queues->all, turn);
        blasd_list_remove(&hook->node);
        blasd_list_append(&queues->running, &hook->node);
        queue->running++;
        queues->running_count++;
        return hook;
    }
    return NULL;
}

void webhook_queues_over(struct webhook_queues *queues, struct webhook_hook *hook, bool failed,
                         int asked_s, int64_t now_us) {
    struct webhook_queue *queue = hook->queue;
    queues->running_count--;
    queue->running--;
    blasd_list_remove(&hook->node);
    if (failed) {
        if (queue->since_us == 0) queue->since_us = now_us;
        queue->pause_us = pause_until(queue->since_us, PAUSE_MOST, asked_s, now_us);
        hook->due_us = pause_until(hook->ended_us, RETRY_MOST, asked_s, now_us);
        blasd_list_append(&queue->waiting, &hook->node);
    } else {
        queue->since_us = queue->pause_us = 0;
        free(hook);
    }
    free_idle(queues, queue);
}

const char *webhook_queue_name(const struct webhook_queue *queue) {
    return queue->name;
}
