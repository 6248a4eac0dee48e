/* The functions webhook_take and webhook_done. */
#include "queue/webhooks.h"

#include "queue/queue_link.h"
#include "redis/caller.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 1000
#define EACH_MOST 16

struct blasd_webhooks {
    struct blasd_caller caller;
};

int blasd_webhooks_open(const struct blasd_queue_options *options, struct blasd_webhooks **ret,
                        struct blasd_err *err) {
    struct blasd_webhooks *webhooks;
    int code;
    *ret = NULL;
    webhooks = calloc(1, sizeof *webhooks);
    if (webhooks == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    webhooks->caller.library = &blasd_queue_library;
    /* of these they ask for none but where records are, which needs no number right */
    webhooks->caller.limits = "1 1 1 1 1 1 1 1 1 1 1 0";
    webhooks->caller.timeout_ms = TIMEOUT_MS;
    code = blasd_link_parse(options->url, options->name, &webhooks->caller.address, err);
    if (code == 0)
        *ret = webhooks;
    else
        blasd_webhooks_free(webhooks);
    return code;
}

void blasd_webhooks_free(struct blasd_webhooks *webhooks) {
    if (webhooks == NULL) return;
    blasd_caller_release(&webhooks->caller);
    free(webhooks);
}

static bool is_text(const redisReply *reply) {
    return reply->type == REDIS_REPLY_STRING && strlen(reply->str) == reply->len;
}

/* "URL\nRECORD"; the newline becomes the URL's end. */
static bool read_hook(const redisReply *id, redisReply *text, struct blasd_webhook *ret) {
    char *newline = text->type == REDIS_REPLY_STRING ? memchr(text->str, '\n', text->len) : NULL;
    if (!is_text(id) || !blasd_id_valid(id->str) || newline == NULL) return false;
    ret->id = id->str;
    *newline = '\0';
    ret->url = text->str;
    ret->record = newline + 1;
    ret->record_len = text->len - (size_t)(newline + 1 - text->str);
    return true;
}

/* LANE, then ID and text of each. */
static bool read_lane(const redisReply *lane, blasd_webhook_lane_fn begin, void *arg) {
    struct blasd_webhook hooks[EACH_MOST];
    int count = 0;
    if (lane->type != REDIS_REPLY_ARRAY || lane->elements < 1 || !is_text(lane->element[0]) ||
        lane->element[0]->len >= BLASD_WEBHOOK_LANE)
        return false;
    for (size_t i = 1; i + 1 < lane->elements && count < EACH_MOST; i += 2)
        count += read_hook(lane->element[i], lane->element[i + 1], &hooks[count]) ? 1 : 0;
    begin(arg, lane->element[0]->str, hooks, count);
    return true;
}

int blasd_webhooks_take(struct blasd_webhooks *webhooks, int lanes, int each, int lease_s,
                        blasd_webhook_lane_fn begin, void *arg, struct blasd_err *err) {
    struct blasd_caller *caller = &webhooks->caller;
    char most[16], of_one[16], lease[24];
    redisReply *reply;
    int code, taken = 0;
    snprintf(most, sizeof most, "%d", lanes);
    snprintf(of_one, sizeof of_one, "%d", each < EACH_MOST ? each : EACH_MOST);
    snprintf(lease, sizeof lease, "%" PRId64, (int64_t)lease_s * 1000000);
    blasd_caller_function(caller, BLASD_QUEUE_FN("webhook_take"));
    blasd_caller_text(caller, most);
    blasd_caller_text(caller, of_one);
    blasd_caller_text(caller, lease);
    code = blasd_caller_call(caller, &reply, err);
    if (code != 0) return code;
    if (reply->type != REDIS_REPLY_ARRAY) code = blasd_caller_odd_reply("webhook_take", err);
    for (size_t i = 0; code == 0 && i < reply->elements; i++)
        taken += read_lane(reply->element[i], begin, arg) ? 1 : 0;
    freeReplyObject(reply);
    return code == 0 ? taken : code;
}

int blasd_webhooks_done(struct blasd_webhooks *webhooks, const char *lane, uint64_t life_s,
                        const struct blasd_webhook_outcome *outcomes, int count,
                        struct blasd_err *err) {
    struct blasd_caller *caller = &webhooks->caller;
    redisReply *reply;
    char life[24];
    int code;
    snprintf(life, sizeof life, "%" PRIu64, life_s);
    blasd_caller_function(caller, BLASD_QUEUE_FN("webhook_done"));
    blasd_caller_text(caller, lane);
    blasd_caller_text(caller, life);
    for (int i = 0; i < count; i++) {
        blasd_caller_text(caller, outcomes[i].id);
        blasd_caller_text(caller, outcomes[i].text);
    }
    code = blasd_caller_call(caller, &reply, err);
    if (code != 0) return code;
    code = reply->type == REDIS_REPLY_INTEGER ? (int)reply->integer
                                              : blasd_caller_odd_reply("webhook_done", err);
    freeReplyObject(reply);
    return code;
}
