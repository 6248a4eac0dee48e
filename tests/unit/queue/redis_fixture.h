/* For tests of the queue: a queue in a redis-server, and calls of its functions by hand. */
#ifndef TESTS_REDIS_FIXTURE_H
#define TESTS_REDIS_FIXTURE_H

#include "record_fixture.h"
#include "redis_server.h"

#include "base/clock.h"
#include "queue/queue_link.h"
#include "queue/worker_side.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PLENTY (UINT64_C(1) << 40) /* bytes: no claim is cut short by them */
#define TIMEOUT_MS                                                                                 \
    60000 /* with a Redis that stands still, as a busy machine or disk may make it                 \
           */
#define INFO_CPU "{\"id\":\"cpu:0\",\"name\":\"test\"}"

/* The server of all the tests of one program, and what starts and ends it. */
static struct redis server;

static inline int setup(void **state) {
    (void)state;
    return redis_start(&server);
}

static inline int teardown(void **state) {
    (void)state;
    redis_stop(&server);
    return 0;
}

/* A queue of its own name in that server. */
struct bed {
    struct blasd_limits limits;
    struct blasd_store *store;
    struct blasd_queue_options options;
    struct blasd_link_limits link;
    redisContext *raw;
    char name[32], tag[40];
};

static inline void bed_connect(struct bed *bed) {
    struct blasd_link_address address;
    struct blasd_err err;
    assert_int_equal(blasd_link_parse(bed->options.url, bed->name, &address, &err), 0);
    assert_int_equal(blasd_link_connect(&address, TIMEOUT_MS, &bed->raw, &err), 0);
}

/* Call it again after a change of bed->limits: they are recorded as the deployment's. */
static inline void bed_limits(struct bed *bed) {
    blasd_link_limits(&bed->options, &bed->link);
    if (bed->raw == NULL) return;
    const char *argv[] = {"FCALL",        BLASD_QUEUE_FN("open"),           "1", bed->tag,
                          bed->link.text, blasd_store_identity(bed->store), "1"};
    redisReply *reply = redisCommandArgv(bed->raw, 7, argv, NULL);
    if (reply->type == REDIS_REPLY_ERROR) fail_msg("%s", reply->str);
    freeReplyObject(reply);
}

static inline void bed_open(struct bed *bed, const struct redis *redis, const char *name) {
    struct blasd_err err;
    memset(bed, 0, sizeof *bed);
    blasd_limits_init(&bed->limits);
    bed->limits.queue_bytes = bed->limits.record_bytes = BLASD_GIB;
    bed->limits.lease_ms = 600000; /* however long a test takes: nobody renews it */
    snprintf(bed->name, sizeof bed->name, "%s", name);
    snprintf(bed->tag, sizeof bed->tag, "{%s}", name);
    assert_int_equal(blasd_store_open("redis", &bed->store, &err), 0);
    bed->options = (struct blasd_queue_options){
        .url = redis->url, .name = bed->name, .limits = &bed->limits, .store = bed->store};
    bed_limits(bed);
    bed_connect(bed);
    if (blasd_link_open(bed->raw, &bed->options, false, &err) < 0) fail_msg("%s", err.detail);
}

static inline void bed_close(struct bed *bed) {
    redisFree(bed->raw);
    blasd_store_free(bed->store);
}

/* Whose jobs the calls below see and make. */
static const char *tenant = "anonymous";

/* Whether the function's first word is a tenant. */
static inline bool of_tenant(const char *function) {
    static const char *const names[] = {"get", "watch", "cancel", "list"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(function, names[i]) == 0) return true;
    return false;
}

/* FCALL blasd_7_<function>, with words ended by NULL behind LIMITS and, where it takes one, the
 * tenant. New reply. */
static inline redisReply *fcall(struct bed *bed, const char *function, ...) {
    char name[64];
    const char *argv[64] = {"FCALL", name, "1", bed->tag, bed->link.text};
    int argc = 5;
    va_list words;
    if (of_tenant(function)) argv[argc++] = tenant;
    snprintf(name, sizeof name, BLASD_QUEUE_LIBRARY "_%s", function);
    va_start(words, function);
    while (argc < 64 && (argv[argc] = va_arg(words, const char *))) argc++;
    va_end(words);
    redisReply *reply = redisCommandArgv(bed->raw, argc, argv, NULL);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", function, reply->str);
    return reply;
}

static inline void drop(redisReply *reply) {
    freeReplyObject(reply);
}

/* An id made `ago_s` seconds ago, on the server's clock. */
static inline void id_make(char id[BLASD_ID_LEN + 1], enum blasd_id_kind kind, int ago_s) {
    blasd_id_new(kind, blasd_clock_wall_us() + redis_ahead_us - ago_s * INT64_C(1000000), id);
}

/* A worker has died: what it held goes back when the next one takes its name, which then leaves. */
static inline void expire_worker(struct bed *bed, const char *name) {
    char epoch[24];
    redisReply *reply =
        fcall(bed, "register", name, "1", "{}", blasd_store_identity(bed->store), NULL);
    snprintf(epoch, sizeof epoch, "%lld", reply->element[1]->integer);
    drop(reply);
    drop(fcall(bed, "lease", name, epoch, "release", NULL));
}

/* FRONT and SEQ of the next call of submit. */
static inline const char *submit_seq(bool again) {
    static char text[24];
    static unsigned seq;
    if (!again) seq++;
    snprintf(text, sizeof text, "%u", seq);
    return text;
}
#define NEXT_SEQ "test", submit_seq(false)
#define SAME_SEQ "test", submit_seq(true) /* its reply was lost: it is sent again */

/* Submits one job whose frame is its id; returns the reply's r: 0 .. 4, or -1 where it names an
 * earlier job. */
static inline int submit_as(struct bed *bed, const char *id, const char *si, const char *cost,
                            const char *options, const char *channel) {
    char note[128];
    snprintf(note, sizeof note, "\t%s\tmatmul\t%s", channel, tenant);
    redisReply *reply = fcall(bed, "submit", NEXT_SEQ, id, id, si, cost, options, note, NULL);
    assert_int_equal(reply->elements, 4);
    const redisReply *r = reply->element[3];
    int code = r->type == REDIS_REPLY_INTEGER ? (int)r->integer : -1;
    drop(reply);
    return code;
}

static inline void submit_new(struct bed *bed, char id[BLASD_ID_LEN + 1], const char *si) {
    id_make(id, BLASD_ID_SYNC, 0);
    assert_int_equal(submit_as(bed, id, si, "100", "", ""), 0);
}

static inline bool reply_is(const redisReply *reply, enum blasd_state state) {
    return reply->type == REDIS_REPLY_STRING && record_is(reply->str, reply->len, state);
}

/* Whether a record in a reply is of that job. */
static inline bool reply_names(const redisReply *reply, const char *id) {
    return memmem(reply->str, reply->len, id, BLASD_ID_LEN) != NULL;
}

/* What the record of `id` says there, as text; "404" or "410" where there is none; where it is no
 * record, its bytes. In a static buffer. */
enum record_line {
    LINE_STATE,
    LINE_STARTED,
    LINE_PROGRESS,
    LINE_REMAINING,
    LINE_ATTEMPTS,
    LINE_ERROR,
    LINE_DEVICE,
    LINE_CLASS
};
static inline const char *record_line(struct bed *bed, const char *id, enum record_line line) {
    static char room[4][256];
    static unsigned turn;
    char *out = room[turn++ % 4];
    redisReply *reply = fcall(bed, "get", id, NULL);
    const redisReply *r = reply->element[0];
    struct blasd_record record;
    struct blasd_err err;
    size_t payload_at;
    if (r->type == REDIS_REPLY_INTEGER) {
        snprintf(out, 256, "%lld", r->integer);
    } else if (blasd_record_decode(r->str, r->len, &record, &payload_at, &err) != 0) {
        snprintf(out, 256, "%s", r->str);
    } else {
        switch (line) {
        case LINE_STATE: snprintf(out, 256, "%s", blasd_state_names[record.state]); break;
        case LINE_STARTED: snprintf(out, 256, "%lld", (long long)record.started_us); break;
        case LINE_REMAINING: snprintf(out, 256, "%lld", (long long)record.remaining_us); break;
        case LINE_PROGRESS: snprintf(out, 256, "%g", record.progress); break;
        case LINE_ATTEMPTS: snprintf(out, 256, "%d", record.execution.attempts); break;
        case LINE_ERROR:
            snprintf(out, 256, "%s",
                     record.error.code == BLASD_OK ? "" : blasd_err_info(record.error.code)->name);
            break;
        case LINE_DEVICE: snprintf(out, 256, "%s", record.execution.device); break;
        case LINE_CLASS: snprintf(out, 256, "%s", blasd_device_class_names[record.device]); break;
        }
    }
    drop(reply);
    return out;
}

/* Waits until that line of the record is `text`. */
static inline void expect_line(struct bed *bed, const char *id, int n, const char *text) {
    for (int i = 0; i < TIMEOUT_MS && strcmp(record_line(bed, id, n), text) != 0; i++) sleep_ms(1);
    assert_string_equal(record_line(bed, id, n), text);
}

/* Goes through all pages of a list; `each` is called with every record. Returns how many there are.
 */
static inline int list_all(struct bed *bed, const char *which, const char *limit,
                           void (*each)(void *arg, const redisReply *record), void *arg) {
    char cursor[128] = "";
    int count = 0;
    do {
        redisReply *reply =
            fcall(bed, "list", which, "", "0", "9000000000000000", limit, cursor, NULL);
        assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
        assert_true(reply->elements <= strtoul(limit, NULL, 10) + 1);
        for (size_t i = 1; i < reply->elements; i++, count++)
            if (each != NULL) each(arg, reply->element[i]);
        snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
        drop(reply);
    } while (cursor[0] != '\0');
    return count;
}

/* In Lua: the numbers of the state (contract.lua) by their names, those, and their form. */
#define STATE_NUMBERS                                                                              \
    "local function state_numbers(key) "                                                           \
    "  local all, names = {}, {} "                                                                 \
    "  for name in string.gmatch('jobs bytes results waits1 waits2 waits3 clock offset shared ' "  \
    "      .. 'watched alone2 alone3 kept_s kept_a swept goes gap resume gone ended due ' "        \
    "      .. 'due_bytes', '%S+') do names[#names + 1] = name end "                                \
    "  local form = '<' .. string.rep('d', #names) "                                               \
    "  local text = redis.call('HGET', key, 'numbers') or string.rep('\\0', 8 * #names) "          \
    "  for i, value in ipairs({struct.unpack(form, text)}) do "                                    \
    "    if names[i] then all[names[i]] = value end end "                                          \
    "  return all, names, form end "

/* Adds to one of the numbers of the state; returns what it then is. */
static inline long long state_add(struct bed *bed, const char *name, long long by) {
    static const char script[] =
        STATE_NUMBERS "local all, names, form = state_numbers(KEYS[1]) "
                      "all[ARGV[1]] = all[ARGV[1]] + ARGV[2] "
                      "local values = {} for i, name in ipairs(names) do values[i] = all[name] end "
                      "if ARGV[2] ~= '0' then redis.call('HSET', KEYS[1], 'numbers', "
                      "struct.pack(form, unpack(values))) end return all[ARGV[1]]";
    redisReply *reply =
        redisCommand(bed->raw, "EVAL %s 1 %s:state %s %lld", script, bed->tag, name, by);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    long long value = reply->integer;
    drop(reply);
    return value;
}

/* What the queue counts: `field` jobs, bytes, or, of the tenant, an SI. */
static inline long long counted(struct bed *bed, const char *field) {
    char line[64];
    if (field[1] != '\0') return state_add(bed, field, 0);
    snprintf(line, sizeof line, "%s %s", field, tenant);
    redisReply *reply = redisCommand(bed->raw, "HGET %s:lines %s", bed->tag, line);
    long long n = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
    drop(reply);
    return n;
}

/* How many references Redis counts to a segment. */
static inline int refs_of(struct bed *bed, const char *segment) {
    static const char *const keys[] = {"refs", "segments"}; /* of pending jobs, of records */
    int sum = 0;
    for (int i = 0; i < 2; i++) {
        redisReply *reply = redisCommand(bed->raw, "HGET %s:%s %s", bed->tag, keys[i], segment);
        int count = reply->type == REDIS_REPLY_STRING ? atoi(reply->str) : 0;
        if (reply->type == REDIS_REPLY_STRING) assert_true(count > 0); /* none is no field */
        drop(reply);
        sum += count;
    }
    return sum;
}

/* The pending jobs, as they are counted, which must fit what is there. */
static inline long long pending(struct bed *bed) {
    static const char script[] =
        STATE_NUMBERS "return {state_numbers(KEYS[1]).jobs, redis.call('HLEN', KEYS[2])}";
    redisReply *reply =
        redisCommand(bed->raw, "EVAL %s 2 %s:state %s:pending", script, bed->tag, bed->tag);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    long long jobs = reply->element[0]->integer, names = reply->element[1]->integer / 2;
    assert_int_equal(reply->element[1]->integer % 2, 0); /* metas and frames */
    if (names > jobs || (names == 0 && jobs > 0))
        fail_msg("%lld jobs are counted, %lld entries are pending", jobs, names);
    drop(reply);
    return jobs;
}

/* A worker that is registered. */
static inline struct blasd_worker_queue *worker_new(struct bed *bed, const char *name,
                                                    enum blasd_device_class device) {
    struct blasd_worker_queue *queue;
    struct blasd_err err;
    int64_t epoch;
    if (blasd_worker_queue_open(&bed->options, &queue, &err) < 0) fail_msg("%s", err.detail);
    if (blasd_worker_queue_register(queue, name, device, INFO_CPU, &epoch, &err) < 0)
        fail_msg("%s", err.detail);
    return queue;
}

/* Claims; the worker must still have its lease. */
static inline int claim(struct blasd_worker_queue *queue, int max, uint64_t bytes,
                        struct blasd_claim *claims) {
    struct blasd_err err;
    bool lost;
    int count;
    if (blasd_worker_queue_claim(queue, max, bytes, claims, &count, &lost, &err) < 0)
        fail_msg("%s", err.detail);
    assert_false(lost);
    return count;
}

static inline void begin(struct blasd_worker_queue *queue, const struct blasd_claim *claims,
                         int count) {
    const char *ids[512];
    struct blasd_err err;
    for (int i = 0; i < count; i++) ids[i] = claims[i].id;
    assert_int_equal(blasd_worker_queue_begin(queue, ids, count, &err), 0);
}

/* Sends a turn of thread 0 by hand, as if the worker had sent it and its reply had been lost;
 * COMPLETIONS: one, unless `name` is NULL. New reply. */
static inline redisReply *turn_lost(struct bed *bed, struct blasd_worker_queue *queue, int most,
                                    const char *name, const void *record_frames, size_t len,
                                    const char *outputs) {
    char seq[24], most_text[16];
    snprintf(seq, sizeof seq, "%" PRIu64, ++queue->turns.seq);
    snprintf(most_text, sizeof most_text, "%d", most);
    const char *argv[16] = {"FCALL",
                            BLASD_QUEUE_FN("turn"),
                            "1",
                            bed->tag,
                            bed->link.text,
                            queue->lease.worker,
                            queue->lease.epoch,
                            "0",
                            seq,
                            "1",
                            most_text,
                            "1000000",
                            "0",
                            name,
                            record_frames,
                            outputs};
    size_t lens[16];
    for (int i = 0; i < (name ? 16 : 13); i++) lens[i] = i == 14 ? len : strlen(argv[i]);
    redisReply *reply = redisCommandArgv(bed->raw, name ? 16 : 13, argv, lens);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    queue->turns.unsure = true;
    queue->turns.completion = name != NULL;
    queue->turns.idle = false;
    return reply;
}

/* Finishes one job; returns 1 accepted, 0 not, -1 the lease is lost. */
static inline int finish(struct blasd_worker_queue *queue, const char *id, const char *record,
                         uint64_t blob_bytes) {
    struct blasd_completion completion = {
        .id = id, .record = record, .record_len = strlen(record), .out_bytes = blob_bytes};
    struct blasd_err err;
    bool lost;
    if (blasd_worker_queue_finish(queue, &completion, 1, &lost, &err) < 0)
        fail_msg("%s", err.detail);
    return lost ? -1 : completion.accepted;
}

#endif
