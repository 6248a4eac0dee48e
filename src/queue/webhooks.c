/* The functions webhook_lease and webhook_done, and the stream {q}:hooks. */
#include "queue/webhooks.h"

#include "base/clock.h"
#include "queue/queue_link.h"
#include "redis/caller.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 1000
#define BEGIN "0-0"  /* of the stream */
#define LEASE "5000" /* ms */

struct blasd_webhooks {
    struct blasd_caller caller;
    char name[64], stream[BLASD_LINK_KEY_MAX];
    char after[BLASD_WEBHOOK_ENTRY]; /* the last entry that was told of */
    uint64_t connection;             /* over which that was */
    int64_t ahead_us;                /* Redis' clock, of this machine's */
};

int blasd_webhooks_open(const struct blasd_queue_options *options, struct blasd_webhooks **ret,
                        struct blasd_err *err) {
    struct blasd_webhooks *webhooks;
    char host[33] = "host";
    int code;
    *ret = NULL;
    webhooks = calloc(1, sizeof *webhooks);
    if (webhooks == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "host");
    snprintf(webhooks->name, sizeof webhooks->name, "%s-%d-%" PRIx64, host, (int)getpid(),
             (uint64_t)blasd_clock_wall_us());
    blasd_link_key(webhooks->stream, options->name, ":hooks");
    snprintf(webhooks->after, sizeof webhooks->after, BEGIN);
    webhooks->caller.library = &blasd_queue_library;
    /* of these they ask for none but where records are, which needs no number right */
    webhooks->caller.limits = "1 1 1 1 1 1 1 1 1 1 1 0";
    webhooks->caller.timeout_ms = TIMEOUT_MS;
    code = blasd_link_parse(options->url, options->name, &webhooks->caller.address, err);
    if (code == 0)
        *ret = webhooks;
    else
        free(webhooks);
    return code;
}

/* Whether this process has the lease, by enum own; a negative code. */
enum own { NOT, STILL, NEWLY };

static int call_lease(struct blasd_webhooks *webhooks, const char *ms, struct blasd_err *err) {
    struct blasd_caller *caller = &webhooks->caller;
    redisReply *reply;
    int code;
    blasd_caller_function(caller, BLASD_QUEUE_FN("webhook"));
    blasd_caller_text(caller, "lease");
    blasd_caller_text(caller, webhooks->name);
    blasd_caller_text(caller, ms);
    code = blasd_caller_call(caller, &reply, err);
    if (code != 0) return code;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) {
        code = blasd_caller_odd_reply("webhook lease", err);
    } else {
        code = (int)reply->element[0]->integer;
        webhooks->ahead_us = reply->element[1]->integer - blasd_clock_wall_us();
    }
    freeReplyObject(reply);
    return code;
}

void blasd_webhooks_free(struct blasd_webhooks *webhooks) {
    struct blasd_err err;
    if (webhooks == NULL) return;
    if (webhooks->caller.connections > 0) (void)call_lease(webhooks, "0", &err);
    blasd_caller_release(&webhooks->caller);
    free(webhooks);
}

/* Entries of the stream, from `from` to `to`. */
static int call_range(struct blasd_webhooks *webhooks, const char *from, const char *to, int most,
                      redisReply **reply, struct blasd_err *err) {
    struct blasd_caller *caller = &webhooks->caller;
    char count[16];
    int code;
    snprintf(count, sizeof count, "%d", most);
    blasd_caller_command(caller, "XRANGE");
    blasd_caller_text(caller, webhooks->stream);
    blasd_caller_text(caller, from);
    blasd_caller_text(caller, to);
    blasd_caller_text(caller, "COUNT");
    blasd_caller_text(caller, count);
    code = blasd_caller_call(caller, reply, err);
    if (code != 0 || (*reply)->type == REDIS_REPLY_ARRAY) return code;
    freeReplyObject(*reply);
    return blasd_caller_odd_reply("XRANGE", err);
}

static bool is_text(const redisReply *reply, size_t size) {
    return reply->type == REDIS_REPLY_STRING && strlen(reply->str) == reply->len &&
           reply->len < size;
}

/* The fields of an entry, in the order in which functions/webhooks.lua writes them. */
enum field { TENANT = 1, URL = 3, ID = 5, RECORD = 7, FIELDS };

static bool read_entry(const redisReply *entry, struct blasd_webhook *ret) {
    const redisReply *fields;
    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2 ||
        !is_text(entry->element[0], BLASD_WEBHOOK_ENTRY))
        return false;
    ret->entry = entry->element[0]->str;
    fields = entry->element[1];
    if (fields->type != REDIS_REPLY_ARRAY || fields->elements != FIELDS ||
        !is_text(fields->element[TENANT], BLASD_TENANT_MAX) ||
        !is_text(fields->element[URL], BLASD_WEBHOOK_URL_MAX) ||
        !is_text(fields->element[ID], BLASD_ID_LEN + 1) ||
        fields->element[RECORD]->type != REDIS_REPLY_STRING)
        return false;
    ret->tenant = fields->element[TENANT]->str;
    ret->url = fields->element[URL]->str;
    ret->id = fields->element[ID]->str;
    ret->record = fields->element[RECORD]->str;
    ret->record_len = fields->element[RECORD]->len;
    return true;
}

/* What was told over another connection may have been of a Redis that was emptied, or of one that
 * another has taken the place of. */
static void begin_anew(struct blasd_webhooks *webhooks, const struct blasd_webhook_index *index) {
    snprintf(webhooks->after, sizeof webhooks->after, BEGIN);
    index->anew(index->arg);
}

int blasd_webhooks_take(struct blasd_webhooks *webhooks, int most,
                        const struct blasd_webhook_index *index, struct blasd_err *err) {
    char from[BLASD_WEBHOOK_ENTRY + 1];
    redisReply *reply;
    int own = call_lease(webhooks, LEASE, err), code, taken = 0;
    if (own < 0) return own;
    if (own != STILL || webhooks->connection != webhooks->caller.connections)
        begin_anew(webhooks, index);
    webhooks->connection = webhooks->caller.connections;
    if (own == NOT) return 0;
    snprintf(from, sizeof from, "(%s", webhooks->after);
    if ((code = call_range(webhooks, from, "+", most, &reply, err)) != 0) return code;
    for (size_t i = 0; i < reply->elements; i++) {
        struct blasd_webhook webhook = {.entry = webhooks->after};
        bool good = read_entry(reply->element[i], &webhook);
        if (webhook.entry != webhooks->after)
            snprintf(webhooks->after, sizeof webhooks->after, "%s", webhook.entry);
        if (!good) continue;
        index->add(index->arg, &webhook);
        taken++;
    }
    freeReplyObject(reply);
    return taken;
}

int64_t blasd_webhooks_now_us(const struct blasd_webhooks *webhooks) {
    return blasd_clock_wall_us() + webhooks->ahead_us;
}

int blasd_webhooks_get(struct blasd_webhooks *webhooks, const char *entry,
                       struct blasd_webhook *ret, struct blasd_err *err) {
    redisReply *reply;
    int code = call_range(webhooks, entry, entry, 1, &reply, err);
    *ret = (struct blasd_webhook){.reply = NULL};
    if (code != 0) return code;
    code = reply->elements == 1 && read_entry(reply->element[0], ret) ? 1 : 0;
    ret->reply = reply;
    return code;
}

void blasd_webhook_release(struct blasd_webhook *webhook) {
    freeReplyObject(webhook->reply);
    webhook->reply = NULL;
}

int blasd_webhooks_done(struct blasd_webhooks *webhooks, const char *entry,
                        enum blasd_webhook_outcome outcome, struct blasd_err *err) {
    static const char *const outcomes[] = {"delivered", "failed", "given_up"};
    blasd_caller_function(&webhooks->caller, BLASD_QUEUE_FN("webhook"));
    blasd_caller_text(&webhooks->caller, "done");
    blasd_caller_text(&webhooks->caller, entry);
    blasd_caller_text(&webhooks->caller, outcomes[outcome]);
    return blasd_caller_do(&webhooks->caller, err);
}
