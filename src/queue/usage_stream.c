/* Plain commands, for who takes the stream is alone: a lock that expires says who. What belongs
 * together is one transaction, which the lock guards. */
#include "queue/usage_stream.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "core/op.h"
#include "queue/queue_link.h"
#include "queue/record_frame.h"
#include "redis/route.h"
#include "wire/frame.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 5000
#define ONE_OF_SEVERAL_MS 1000 /* others wait meanwhile */
#define LOCK_MS "10000"        /* longer than a step takes, with a receiver's time to answer */
#define AT_ONCE_MOST 100       /* entries, of at most a batch entry each */
#define SUMS_KEPT_S 7948800    /* 92 days */
#define HOUR_S 3600
#define HOURS 3                                     /* an entry's own, and its neighbours */
#define OPS_MOST 54                                 /* more than there are */
#define SUMS_MOST (AT_ONCE_MOST * HOURS * OPS_MOST) /* of a step: an entry is of one tenant */
#define FLOPS_MOST 0x1p80

/* What jobs of one tenant, hour and operation used. */
struct sum {
    char tenant[BLASD_TENANT_MAX];
    char op[BLASD_NAME_MAX];
    int64_t hour; /* since 1970 */
    uint64_t jobs, failed, device_us, energy_mj, bytes;
    double flops;
};

struct blasd_usage_stream {
    struct blasd_queue_options options;
    struct blasd_link_address address;
    redisContext *redis; /* NULL: not connected */
    char name[33];       /* of the lock's holder */
    redisReply *entries; /* read and not settled, or NULL */
    bool more;           /* than those */
    struct sum *sums;
    int sum_count;
    int sent; /* commands whose replies are not read */
};

static int ask(struct blasd_usage_stream *usage, redisReply **ret, struct blasd_err *err, int argc,
               ...) {
    const char *argv[12];
    redisReply *reply;
    va_list words;
    int code;
    va_start(words, argc);
    for (int i = 0; i < argc; i++) argv[i] = va_arg(words, const char *);
    va_end(words);
    code = blasd_link_ask(usage->redis, argc, argv, &reply, err);
    if (code == 0 && ret != NULL)
        *ret = reply;
    else
        freeReplyObject(reply);
    return code;
}

/* Sends a command with those that follow; await says how all went. */
static int send_later(struct blasd_usage_stream *usage, struct blasd_err *err, int argc,
                      const char *const *argv) {
    if (redisAppendCommandArgv(usage->redis, argc, (const char **)(void *)argv, NULL) != REDIS_OK)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for what is told to Redis");
    usage->sent++;
    return 0;
}

#define SEND(usage, err, ...)                                                                      \
    send_later(usage, err, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                 \
               (const char *[]){__VA_ARGS__})

/* The reply to the last of what was sent; the first error of any. After one the connection is of no
 * more use. */
static int await(struct blasd_usage_stream *usage, redisReply **last, struct blasd_err *err) {
    int code = 0;
    *last = NULL;
    while (code == 0 && usage->sent > 0) {
        freeReplyObject(*last);
        code = blasd_link_reply(usage->redis, last, err);
        usage->sent--;
    }
    return code;
}

static void hang_up(struct blasd_usage_stream *usage) {
    if (usage->redis != NULL) redisFree(usage->redis);
    usage->redis = NULL;
    usage->sent = 0;
}

#define KEY(to, ...)                                                                               \
    char to[BLASD_LINK_KEY_MAX];                                                                   \
    blasd_link_key(to, usage->options.name, __VA_ARGS__)

static int has_lock(struct blasd_usage_stream *usage, const char *lock, bool *ret,
                    struct blasd_err *err) {
    redisReply *reply;
    int code = ask(usage, &reply, err, 2, "GET", lock);
    if (code != 0) return code;
    *ret = reply->type == REDIS_REPLY_STRING && strcmp(reply->str, usage->name) == 0;
    freeReplyObject(reply);
    return 0;
}

/* Takes the lock, or makes it last, and watches it: a transaction fails from then on where it is
 * not ours any more. */
static int take_lock(struct blasd_usage_stream *usage, bool *ours, struct blasd_err *err) {
    KEY(lock, ":meter");
    int code = ask(usage, NULL, err, 1, "UNWATCH"); /* where a step was not settled */
    if (code == 0) code = has_lock(usage, lock, ours, err);
    if (code == 0)
        code = *ours ? ask(usage, NULL, err, 3, "PEXPIRE", lock, LOCK_MS)
                     : ask(usage, NULL, err, 6, "SET", lock, usage->name, "NX", "PX", LOCK_MS);
    if (code == 0) code = ask(usage, NULL, err, 2, "WATCH", lock);
    return code == 0 ? has_lock(usage, lock, ours, err) : code;
}

/* Connected, with the lock. */
static int hold(struct blasd_usage_stream *usage, struct blasd_err *err) {
    bool ours = false;
    int code = 0;
    if (usage->redis == NULL)
        code = blasd_link_connect(&usage->address,
                                  blasd_queue_count(&usage->options) > 1 ? ONE_OF_SEVERAL_MS
                                                                         : TIMEOUT_MS,
                                  &usage->redis, err);
    if (code == 0) code = take_lock(usage, &ours, err);
    if (code == 0 && !ours)
        code = blasd_fail(err, BLASD_E_invalid_field, "queue",
                          "another process takes what jobs of this queue used; end it, or wait "
                          "10 s where it was killed");
    if (code != 0) hang_up(usage);
    return code;
}

int blasd_usage_open(const struct blasd_queue_options *options, struct blasd_usage_stream **ret,
                     struct blasd_err *err) {
    struct blasd_usage_stream *usage = calloc(1, sizeof *usage);
    int code;
    *ret = NULL;
    if (usage == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    usage->options = *options;
    blasd_random_hex(usage->name, sizeof usage->name - 1);
    usage->sums = calloc(SUMS_MOST, sizeof *usage->sums);
    code = usage->sums == NULL ? blasd_fail(err, BLASD_E_out_of_memory, "", "no memory") : 0;
    if (code == 0) code = blasd_link_parse(options->url, options->name, &usage->address, err);
    if (code == 0) code = hold(usage, err);
    if (code == 0) {
        KEY(metered, ":metered");
        code = ask(usage, NULL, err, 3, "SET", metered, "1");
    }
    if (code == 0)
        *ret = usage;
    else
        blasd_usage_free(usage);
    return code;
}

/* Only where it is still ours: what watches it sees to that. */
static void let_go(struct blasd_usage_stream *usage) {
    struct blasd_err err;
    KEY(lock, ":meter");
    if (usage->redis == NULL || hold(usage, &err) != 0) return;
    if (ask(usage, NULL, &err, 1, "MULTI") == 0 && ask(usage, NULL, &err, 2, "DEL", lock) == 0)
        ask(usage, NULL, &err, 1, "EXEC");
}

void blasd_usage_free(struct blasd_usage_stream *usage) {
    if (usage == NULL) return;
    let_go(usage);
    hang_up(usage);
    freeReplyObject(usage->entries);
    free(usage->sums);
    free(usage);
}

/* An entry of the stream, whose fields are names and values in turn. */
struct entry {
    uint64_t ms, n; /* its id */
    const char *tenant;
    redisReply *const *fields; /* borrowed */
    size_t count;
    int jobs; /* that were read of it */
};

/* When it ended, as it says, unless it was noted at quite another time. */
static int64_t hour_of(const struct entry *entry, const struct blasd_record *record) {
    int64_t noted = (int64_t)(entry->ms / 1000 / HOUR_S);
    int64_t hour = record->finished_us / 1000000 / HOUR_S;
    return hour < noted - 1 || hour > noted + 1 ? noted : hour;
}

static struct sum *sum_of(struct blasd_usage_stream *usage, const struct entry *entry,
                          const struct blasd_record *record) {
    int64_t hour = hour_of(entry, record);
    const char *op = blasd_op_find(record->op) == NULL ? "unknown" : record->op;
    struct sum *sum = usage->sums + usage->sum_count - 1;
    for (; sum >= usage->sums; sum--)
        if (sum->hour == hour && strcmp(sum->op, op) == 0 &&
            strcmp(sum->tenant, entry->tenant) == 0)
            return sum;
    if (usage->sum_count == SUMS_MOST) return NULL;
    sum = &usage->sums[usage->sum_count++];
    *sum = (struct sum){.hour = hour};
    snprintf(sum->tenant, sizeof sum->tenant, "%s", entry->tenant);
    snprintf(sum->op, sizeof sum->op, "%s", op);
    return sum;
}

static bool add_up(struct blasd_usage_stream *usage, const struct entry *entry,
                   const struct blasd_record *record) {
    struct sum *sum = sum_of(usage, entry, record);
    struct blasd_usage used = blasd_record_usage(record);
    if (sum == NULL) return false;
    sum->jobs++;
    sum->failed += record->state == BLASD_SUCCEEDED ? 0 : 1;
    sum->device_us += (uint64_t)llround(used.device_s * 1e6);
    sum->energy_mj += (uint64_t)llround(used.energy_joules * 1e3);
    sum->bytes += (uint64_t)blasd_told((double)record->execution.bytes, BLASD_TOLD_MOST);
    sum->flops += blasd_told(record->execution.flops, FLOPS_MOST);
    return true;
}

/* False where it is none of ours. */
static bool open_entry(const redisReply *reply, struct entry *entry) {
    const redisReply *id, *fields;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) return false;
    id = reply->element[0];
    fields = reply->element[1];
    *entry = (struct entry){.fields = fields->element, .count = fields->elements};
    if (fields->type != REDIS_REPLY_ARRAY || entry->count < 2 || id->str == NULL) return false;
    for (size_t i = 0; i < entry->count; i++)
        if (entry->fields[i]->str == NULL) return false;
    sscanf(id->str, "%" SCNu64 "-%" SCNu64, &entry->ms, &entry->n);
    entry->tenant = entry->fields[1]->str;
    return strcmp(entry->fields[0]->str, "tenant") == 0;
}

struct receiver {
    int (*each)(void *, const struct blasd_usage_job *, struct blasd_err *);
    void *arg;
};

/* The jobs of one field. What is damaged was never a record, and nothing that could be billed. */
static int read_frames(struct blasd_usage_stream *usage, struct entry *entry,
                       const redisReply *frames, const struct receiver *to, struct blasd_err *err) {
    char sequence[BLASD_USAGE_SEQUENCE];
    struct blasd_err broken;
    for (size_t at = 0, len; at + BLASD_RECORD_FRAME_HEAD <= frames->len; at += len) {
        struct blasd_record record;
        struct blasd_usage_job job = {sequence, entry->tenant, &record};
        size_t size;
        int code;
        len = blasd_record_frame_len(frames->str + at);
        at += BLASD_RECORD_FRAME_HEAD;
        if (len > frames->len - at) return 0;
        if (blasd_record_decode_bare(frames->str + at, len, &record, &size, &broken) != 0) continue;
        snprintf(sequence, sizeof sequence, "%015" PRIu64 "%010" PRIu64 "%06d", entry->ms, entry->n,
                 entry->jobs++);
        if (!add_up(usage, entry, &record))
            return blasd_fail(err, BLASD_E_internal_error, "", "too many sums at once");
        code = to->each(to->arg, &job, err);
        if (code != 0) return code;
    }
    return 0;
}

/* How many jobs it has, or a code. */
static int read_entry(struct blasd_usage_stream *usage, const redisReply *reply,
                      const struct receiver *to, struct blasd_err *err) {
    struct entry entry;
    int code = 0;
    if (!open_entry(reply, &entry)) return 0;
    for (size_t i = 2; code == 0 && i + 1 < entry.count; i += 2)
        if (strcmp(entry.fields[i]->str, "records") == 0)
            code = read_frames(usage, &entry, entry.fields[i + 1], to, err);
    return code == 0 ? entry.jobs : code;
}

int blasd_usage_read(struct blasd_usage_stream *usage,
                     int (*each)(void *, const struct blasd_usage_job *, struct blasd_err *),
                     void *arg, struct blasd_err *err) {
    KEY(stream, ":usage");
    const struct receiver to = {each, arg};
    char most[16];
    int jobs = 0, code = hold(usage, err);
    snprintf(most, sizeof most, "%d", AT_ONCE_MOST);
    freeReplyObject(usage->entries);
    usage->entries = NULL;
    usage->more = false;
    usage->sum_count = 0;
    if (code == 0)
        code = ask(usage, &usage->entries, err, 6, "XRANGE", stream, "-", "+", "COUNT", most);
    if (code != 0) {
        hang_up(usage);
        return code;
    }
    usage->more = usage->entries->elements == AT_ONCE_MOST;
    for (size_t i = 0; i < usage->entries->elements; i++) {
        int one = read_entry(usage, usage->entries->element[i], &to, err);
        if (one < 0) return one;
        jobs += one;
    }
    return jobs;
}

bool blasd_usage_more(const struct blasd_usage_stream *usage) {
    return usage->more;
}

/* HINCRBY of one figure, queued. */
static int add_figure(struct blasd_usage_stream *usage, const char *key, const struct sum *sum,
                      const char *what, uint64_t by, struct blasd_err *err) {
    char field[BLASD_NAME_MAX + 48], number[24];
    if (by == 0) return 0;
    snprintf(field, sizeof field, "%" PRId64 " %s %s", sum->hour, sum->op, what);
    snprintf(number, sizeof number, "%" PRIu64, by);
    return SEND(usage, err, "HINCRBY", key, field, number);
}

static int add_sum(struct blasd_usage_stream *usage, const struct sum *sum, struct blasd_err *err) {
    KEY(key, ":usage:%s:%" PRId64, sum->tenant, sum->hour / 24);
    KEY(tenants, ":usage_tenants");
    char field[BLASD_NAME_MAX + 48], number[32], kept[24];
    int code = SEND(usage, err, "SADD", tenants, sum->tenant);
    if (code == 0) code = add_figure(usage, key, sum, "jobs", sum->jobs, err);
    if (code == 0) code = add_figure(usage, key, sum, "failed", sum->failed, err);
    if (code == 0) code = add_figure(usage, key, sum, "device_us", sum->device_us, err);
    if (code == 0) code = add_figure(usage, key, sum, "energy_mj", sum->energy_mj, err);
    if (code == 0) code = add_figure(usage, key, sum, "bytes", sum->bytes, err);
    snprintf(field, sizeof field, "%" PRId64 " %s flops", sum->hour, sum->op);
    snprintf(number, sizeof number, "%.17g", sum->flops);
    snprintf(kept, sizeof kept, "%d", SUMS_KEPT_S);
    if (code == 0) code = SEND(usage, err, "HINCRBYFLOAT", key, field, number);
    if (code == 0) code = SEND(usage, err, "EXPIRE", key, kept);
    return code;
}

/* XDEL of all entries that were read. */
static int delete_entries(struct blasd_usage_stream *usage, const char *stream,
                          struct blasd_err *err) {
    const char *argv[2 + AT_ONCE_MOST] = {"XDEL", stream};
    int argc = 2;
    for (size_t i = 0; i < usage->entries->elements && i < AT_ONCE_MOST; i++)
        argv[argc++] = usage->entries->element[i]->element[0]->str;
    return argc == 2 ? 0 : send_later(usage, err, argc, argv);
}

/* All that belongs to one step, from MULTI to EXEC. */
static int send_step(struct blasd_usage_stream *usage, char *const *events, int count,
                     struct blasd_err *err) {
    KEY(stream, ":usage");
    KEY(lock, ":meter");
    KEY(cloudevents, ":cloudevents");
    int code = SEND(usage, err, "MULTI");
    if (code == 0) code = delete_entries(usage, stream, err);
    for (int i = 0; code == 0 && i < usage->sum_count; i++)
        code = add_sum(usage, &usage->sums[i], err);
    for (int i = 0; code == 0 && events != NULL && i < count; i++)
        code = SEND(usage, err, "XADD", cloudevents, "*", "event", events[i]);
    if (code == 0) code = SEND(usage, err, "PEXPIRE", lock, LOCK_MS);
    return code == 0 ? SEND(usage, err, "EXEC") : code;
}

int blasd_usage_settle(struct blasd_usage_stream *usage, char *const *events, int count,
                       struct blasd_err *err) {
    redisReply *reply = NULL;
    bool done = false;
    int code;
    if (usage->entries == NULL) return 0;
    code = send_step(usage, events, count, err);
    if (code == 0) code = await(usage, &reply, err);
    if (code == 0) done = reply->type == REDIS_REPLY_ARRAY;
    freeReplyObject(reply);
    freeReplyObject(usage->entries);
    usage->entries = NULL;
    if (code != 0) hang_up(usage);
    if (code != 0 || done) return code;
    return blasd_fail(err, BLASD_E_queue_unavailable, "",
                      "the lock went to another process, or expired; what it left is read again");
}

int blasd_usage_stop(struct blasd_usage_stream *usage, struct blasd_err *err) {
    KEY(metered, ":metered");
    int code = usage->redis == NULL ? hold(usage, err) : 0;
    return code == 0 ? ask(usage, NULL, err, 2, "DEL", metered) : code;
}
