/* The readers. Everything is done with the lock, and is a copy at the most. */
#include "http/events.h"

#include "base/clock.h"
#include "base/container.h"
#include "wire/answer.h"
#include "wire/frame.h"
#include "wire/json_out.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MOST ((size_t)65536)

struct http_events {
    pthread_mutex_t lock;
    const struct blasd_prices *prices; /* borrowed, or NULL */
    uint64_t rate;
    struct blasd_list readers;
    int count; /* of readers */
    bool heard;
};

/* What is told: its text is written once, for the first reader that wants it. */
struct event {
    const char *kind;
    const struct blasd_queue_event *told;
    const struct blasd_record *record;
    int state; /* -1: of no state */
    struct blasd_buf text;
    bool failed;
};

struct http_events *http_events_new(uint64_t rate, const struct blasd_prices *prices) {
    struct http_events *events = calloc(1, sizeof *events);
    if (events == NULL) return NULL;
    events->rate = rate;
    events->prices = prices;
    blasd_list_init(&events->readers);
    pthread_mutex_init(&events->lock, NULL);
    return events;
}

void http_events_free(struct http_events *events) {
    if (events == NULL) return;
    pthread_mutex_destroy(&events->lock);
    free(events);
}

static struct http_events_reader *reader_of(struct blasd_list *node) {
    return blasd_container_of(node, struct http_events_reader, node);
}

/* --- readers --- */

bool http_events_join(struct http_events *events, struct http_events_reader *reader, uint64_t most,
                      uint64_t most_of_one) {
    uint64_t own = 0;
    bool room;
    pthread_mutex_lock(&events->lock);
    BLASD_LIST_EACH(node, &events->readers)
    own += strcmp(reader_of(node)->tenant, reader->tenant) == 0;
    room = (uint64_t)events->count < most && own < most_of_one;
    if (room) {
        blasd_buf_init(&reader->text, HTTP_EVENTS_WAITING);
        blasd_list_append(&events->readers, &reader->node);
        events->count++;
    }
    pthread_mutex_unlock(&events->lock);
    return room;
}

void http_events_leave(struct http_events *events, struct http_events_reader *reader) {
    pthread_mutex_lock(&events->lock);
    blasd_list_remove(&reader->node);
    events->count--;
    pthread_mutex_unlock(&events->lock);
    blasd_buf_release(&reader->text);
}

int http_events_readers(struct http_events *events) {
    pthread_mutex_lock(&events->lock);
    int count = events->count;
    pthread_mutex_unlock(&events->lock);
    return count;
}

bool http_events_begin(struct http_events *events, struct http_events_reader *reader) {
    pthread_mutex_lock(&events->lock);
    reader->hears = events->heard;
    pthread_mutex_unlock(&events->lock);
    return reader->hears;
}

/* Tells what is lost, if anything is; false where there is no room for it. */
static bool put_lost(struct http_events_reader *reader) {
    int rc = 0;
    if (reader->unheard)
        rc = blasd_buf_puts(&reader->text, "event: lost\ndata: {\"events\":null}\n\n");
    else if (reader->lost > 0)
        rc = blasd_buf_printf(&reader->text, "event: lost\ndata: {\"events\":%" PRIu64 "}\n\n",
                              reader->lost);
    if (rc != 0) return false;
    reader->unheard = false;
    reader->lost = 0;
    return true;
}

void http_events_take(struct http_events *events, struct http_events_reader *reader, bool all,
                      struct blasd_buf *text) {
    struct blasd_buf empty = *text;
    pthread_mutex_lock(&events->lock);
    reader->all = all;
    (void)put_lost(reader); /* or with the next */
    *text = reader->text;
    reader->text = empty;
    pthread_mutex_unlock(&events->lock);
}

/* --- events --- */

static bool is_wanted(const struct http_events_reader *reader, const struct event *event) {
    return strcmp(reader->tenant, event->told->tenant) == 0 &&
           (reader->op == NULL || strcmp(reader->op, event->record->op) == 0) &&
           (reader->state < 0 || reader->state == event->state);
}

static void write_data(struct http_events *events, struct event *event) {
    const struct blasd_queue_event *told = event->told;
    struct blasd_record record = *event->record;
    struct json_out out = {.buf = &event->text};
    json_out_put(&out, "event: %r\ndata: ", event->kind);
    if (event->state < 0) {
        json_out_put(&out, "{\"worker\":%s,\"device\":%n,\"op\":%s,\"jobs\":%u,\"started_at\":%t}",
                     told->worker, record.execution.device, record.op, told->jobs,
                     record.started_us);
    } else {
        record.prices = events->prices;
        event->failed = blasd_job_document(&record, NULL, 0, false, &event->text) != 0;
    }
    json_out_put(&out, "\n\n");
    event->failed = event->failed || out.failed;
}

/* Whether the reader may be told of one more in this second. */
static bool has_turn(const struct http_events *events, struct http_events_reader *reader) {
    int64_t second = blasd_clock_ns() / (1000 * BLASD_MS);
    if (second > reader->second) {
        reader->told = 0;
        reader->second = second;
    }
    return reader->told < events->rate;
}

static void tell(struct http_events *events, struct event *event) {
    blasd_buf_init(&event->text, TEXT_MOST);
    BLASD_LIST_EACH(node, &events->readers) {
        struct http_events_reader *reader = reader_of(node);
        if (!reader->hears || !is_wanted(reader, event)) continue;
        if (event->text.len == 0 && !event->failed) write_data(events, event);
        if (!event->failed && has_turn(events, reader) && put_lost(reader) &&
            blasd_buf_add(&reader->text, event->text.data, event->text.len) == 0)
            reader->told++;
        else
            reader->lost++;
    }
    blasd_buf_release(&event->text);
}

/* Of the tenant's readers, or all of them where it is "". */
static void lose(struct http_events *events, const char *tenant, uint64_t count) {
    BLASD_LIST_EACH(node, &events->readers) {
        struct http_events_reader *reader = reader_of(node);
        if (!reader->hears || (tenant[0] != '\0' && strcmp(reader->tenant, tenant) != 0)) continue;
        reader->lost += count;
        reader->unheard = reader->unheard || tenant[0] == '\0';
    }
}

void http_events_add(struct http_events *events, const struct blasd_queue_event *told) {
    struct blasd_record record;
    struct blasd_err ignored;
    size_t payload_at;
    pthread_mutex_lock(&events->lock);
    if (told->tenant[0] == '\0') {
        lose(events, "", 0);
        events->heard = true;
    } else if (told->record == NULL) {
        lose(events, told->tenant, told->jobs);
    } else if (blasd_record_decode(told->record, told->len, &record, &payload_at, &ignored) != 0) {
        lose(events, told->tenant, 1);
    } else {
        struct event batch = {.kind = "batch", .told = told, .record = &record, .state = -1};
        struct event job = {
            .kind = "job", .told = told, .record = &record, .state = (int)record.state};
        if (told->worker != NULL && told->first) tell(events, &batch);
        tell(events, &job);
    }
    pthread_mutex_unlock(&events->lock);
}

bool http_events_end(struct http_events *events) {
    pthread_mutex_lock(&events->lock);
    bool empty = events->count == 0;
    if (empty) events->heard = false;
    pthread_mutex_unlock(&events->lock);
    return empty;
}

void http_events_devices(struct http_events *events, char *all, char *few) {
    pthread_mutex_lock(&events->lock);
    BLASD_LIST_EACH(node, &events->readers) {
        struct http_events_reader *reader = reader_of(node);
        const char *text = reader->all ? all : few;
        if (reader->hears && text != NULL &&
            blasd_buf_printf(&reader->text, "event: devices\ndata: %s\n\n", text) != 0)
            continue; /* the next ones come in a second */
    }
    pthread_mutex_unlock(&events->lock);
    free(all);
    free(few);
}
