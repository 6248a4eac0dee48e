/* A hash table of the exchanges that wait, by job id, and their clocks. */
#include "http/waits.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "http/jobs.h"
#include "http/reply.h"
#include "wire/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The last characters of an id are random. */
static size_t bucket_of(const struct http_loop *loop, const char *id) {
    uint64_t tail;
    memcpy(&tail, id + BLASD_ID_LEN - sizeof tail, sizeof tail);
    tail *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(tail >> 32) & (loop->waiting_buckets - 1);
}

static void put(struct http_loop *loop, struct http_exchange *exchange) {
    struct http_exchange **bucket = &loop->waiting[bucket_of(loop, exchange->id)];
    exchange->waiting_next = *bucket;
    *bucket = exchange;
}

/* Keeps chains short; where there is no memory for it they grow, and that is all. */
static void grow(struct http_loop *loop) {
    size_t old_count = loop->waiting_buckets;
    struct http_exchange **old = loop->waiting;
    struct http_exchange **more = calloc(old_count * 2, sizeof(struct http_exchange *));
    if (more == NULL) return;
    loop->waiting = more;
    loop->waiting_buckets = old_count * 2;
    for (size_t i = 0; i < old_count; i++) {
        struct http_exchange *next;
        for (struct http_exchange *exchange = old[i]; exchange != NULL; exchange = next) {
            next = exchange->waiting_next;
            put(loop, exchange);
        }
    }
    free(old);
}

static void take_out(struct http_exchange *exchange) {
    struct http_loop *loop = exchange->home;
    struct http_exchange **link = &loop->waiting[bucket_of(loop, exchange->id)];
    while (*link != exchange) link = &(*link)->waiting_next;
    *link = exchange->waiting_next;
    exchange->waiting = false;
    loop->waiting_count--;
    http_uncount(&loop->metrics->waiting);
    blasd_loop_timer_clear(loop->loop, &exchange->timer);
}

static struct http_exchange *find(struct http_loop *loop, const char *id) {
    struct http_exchange *exchange = loop->waiting[bucket_of(loop, id)];
    while (exchange != NULL && strcmp(exchange->id, id) != 0) exchange = exchange->waiting_next;
    return exchange;
}

static void on_timer(struct blasd_timer *timer) {
    http_waits_time_up(blasd_container_of(timer, struct http_exchange, timer));
}

void http_waits_add(struct http_exchange *exchange, double seconds) {
    struct http_loop *loop = exchange->home;
    if (loop->waiting_count >= loop->waiting_buckets) grow(loop);
    exchange->waiting = true;
    put(loop, exchange);
    loop->waiting_count++;
    http_count(&loop->metrics->waiting, 1);
    exchange->timer.fire = on_timer;
    if (loop->out_of_time) seconds = 0;
    if (blasd_loop_timer_set(loop->loop, &exchange->timer,
                             blasd_clock_ns() + (int64_t)(seconds * 1e9)) != 0)
        exchange->time_up = true;
}

void http_waits_rename(struct http_exchange *exchange, const char *id) {
    struct http_loop *loop = exchange->home;
    if (exchange->waiting) {
        struct http_exchange **link = &loop->waiting[bucket_of(loop, exchange->id)];
        while (*link != exchange) link = &(*link)->waiting_next;
        *link = exchange->waiting_next;
    }
    memcpy(exchange->id, id, BLASD_ID_LEN + 1);
    if (exchange->waiting) put(loop, exchange);
}

void http_waits_remove(struct http_exchange *exchange) {
    struct http_loop *loop = exchange->home;
    if (!exchange->waiting) return;
    take_out(exchange);
    if (find(loop, exchange->id) == NULL) blasd_front_queue_unwatch(loop->queue, exchange->id);
}

void http_waits_time_up(struct http_exchange *exchange) {
    exchange->time_up = true;
    if (exchange->waiting && http_exchange_open(exchange) && http_upload_submitted(exchange))
        http_jobs_fetch(exchange);
}

void http_waits_unseen(void *arg, const char *line, size_t len) {
    char id[BLASD_ID_LEN + 1], op[64], state[16], code[64], text[256];
    (void)arg;
    if (len >= sizeof text) return;
    memcpy(text, line, len);
    text[len] = '\0';
    if (sscanf(text, "%41s %63s %15s %63s", id, op, state, code) == 4)
        blasd_log_job(BLASD_LOG_INFO, "job %s: id=%s code=%s op=%s", state, id, code, op);
}

void http_waits_ended(void *arg, const char *id, const void *bytes, size_t len) {
    struct http_loop *loop = arg;
    struct http_exchange *exchange;
    struct blasd_record record;
    struct blasd_err err = {0};
    size_t payload_at;
    if (strlen(id) != BLASD_ID_LEN) return;
    if (bytes == NULL)
        blasd_fail(&err, BLASD_E_job_lost, "", "the job %s was waited for and is gone", id);
    else if (blasd_record_decode(bytes, len, &record, &payload_at, &err) == 0)
        http_metrics_job(loop->metrics, &record);
    while ((exchange = find(loop, id)) != NULL) {
        take_out(exchange);
        if (!http_exchange_open(exchange)) continue;
        if (err.code != BLASD_OK)
            http_reply_problem(exchange, &err);
        else
            http_result_answer(exchange, 200, &record, (const char *)bytes + payload_at);
    }
}
