/* The ring. Everything is done with the lock, and is a copy at the most. */
#include "http/events.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "wire/answer.h"
#include "wire/frame.h"
#include "wire/json_out.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TENANTS_MOST 65536 /* of more than these nothing is told until all are forgotten */
#define TEXT_MOST ((size_t)65536)

struct tenant {
    struct blasd_hash_node node;
    char name[BLASD_TENANT_MAX];
    uint64_t next; /* number */
    uint64_t readers;
};

struct event {
    char *text;                  /* a JSON document; owned */
    const struct tenant *tenant; /* lives as long as the event */
    uint64_t number;             /* among that tenant's */
    const char *kind;            /* "job" or "batch"; static */
    char op[BLASD_NAME_MAX];
    int state; /* -1: of no state */
};

struct http_events {
    pthread_mutex_t lock;
    const struct blasd_prices *prices; /* borrowed, or NULL */
    struct event *ring;                /* owned; NULL while there are none */
    size_t size;
    uint64_t count; /* of all events so far; the newest `size` of them are in the ring */
    struct blasd_hash tenants;
    int readers;
    bool heard;
    char *devices[2];      /* owned: few, all; NULL: not known */
    uint64_t devices_told; /* how often */
};

struct http_events *http_events_new(size_t kept, const struct blasd_prices *prices) {
    struct http_events *events = calloc(1, sizeof *events);
    if (events == NULL) return NULL;
    events->size = kept;
    events->prices = prices;
    pthread_mutex_init(&events->lock, NULL);
    return events;
}

static uint64_t hash_of(const char *tenant) {
    return blasd_hash_bytes(0, tenant, strlen(tenant));
}

static struct tenant *tenant_of(const struct http_events *events, const char *name) {
    uint64_t hash = hash_of(name);
    struct blasd_hash_node *node = NULL;
    while ((node = blasd_hash_find(&events->tenants, hash, node)) != NULL) {
        struct tenant *tenant = blasd_container_of(node, struct tenant, node);
        if (strcmp(tenant->name, name) == 0) return tenant;
    }
    return NULL;
}

/* NULL: no memory, or too many. */
static struct tenant *tenant_make(struct http_events *events, const char *name) {
    struct tenant *tenant = tenant_of(events, name);
    if (tenant != NULL || events->tenants.count >= TENANTS_MOST) return tenant;
    tenant = calloc(1, sizeof *tenant);
    if (tenant == NULL) return NULL;
    memcpy(tenant->name, name, strnlen(name, sizeof tenant->name - 1));
    tenant->next = (uint64_t)blasd_clock_wall_us();
    if (blasd_hash_add(&events->tenants, &tenant->node, hash_of(tenant->name)) == 0) return tenant;
    free(tenant);
    return NULL;
}

static struct event *at(const struct http_events *events, uint64_t place) {
    return &events->ring[place % events->size];
}

static uint64_t oldest(const struct http_events *events) {
    return events->count > events->size ? events->count - events->size : 0;
}

static void clear(struct http_events *events) {
    struct blasd_hash_node *node;
    for (size_t i = 0; events->ring != NULL && i < events->size; i++) free(events->ring[i].text);
    free(events->ring);
    events->ring = NULL;
    events->count = 0;
    events->heard = false;
    while ((node = blasd_hash_any(&events->tenants)) != NULL) {
        blasd_hash_remove(&events->tenants, node);
        free(blasd_container_of(node, struct tenant, node));
    }
    for (int i = 0; i < 2; i++) {
        free(events->devices[i]);
        events->devices[i] = NULL;
    }
}

void http_events_forget(struct http_events *events) {
    pthread_mutex_lock(&events->lock);
    if (events->readers == 0) clear(events);
    pthread_mutex_unlock(&events->lock);
}

void http_events_free(struct http_events *events) {
    if (events == NULL) return;
    clear(events);
    blasd_hash_release(&events->tenants);
    pthread_mutex_destroy(&events->lock);
    free(events);
}

bool http_events_heard(struct http_events *events) {
    pthread_mutex_lock(&events->lock);
    bool heard = events->heard;
    pthread_mutex_unlock(&events->lock);
    return heard;
}

/* Numbers */

/* The next `count` of them are used up. */
static uint64_t take_numbers(struct tenant *tenant, uint64_t count) {
    uint64_t first = tenant->next;
    tenant->next += count;
    return first;
}

static void skip_number(void *arg, struct blasd_hash_node *node) {
    (void)arg;
    blasd_container_of(node, struct tenant, node)->next++;
}

/* Adding */

/* Takes the text, and a number of the tenant's in any case. */
static void push(struct http_events *events, struct tenant *tenant, const char *kind, char *text,
                 const char *op, int state) {
    uint64_t number = take_numbers(tenant, 1);
    struct event *event;
    if (events->ring == NULL) events->ring = calloc(events->size, sizeof *events->ring);
    if (events->ring == NULL || text == NULL) {
        free(text);
        return;
    }
    event = at(events, events->count++);
    free(event->text);
    *event = (struct event){
        .text = text, .tenant = tenant, .number = number, .kind = kind, .state = state};
    memcpy(event->op, op, strnlen(op, sizeof event->op - 1));
}

static char *text_of(struct blasd_buf *buf, bool whole) {
    if (whole && blasd_buf_add(buf, "", 1) == 0) return buf->data;
    blasd_buf_release(buf);
    return NULL;
}

static char *job_text(const struct blasd_record *record) {
    struct blasd_buf buf;
    blasd_buf_init(&buf, TEXT_MOST);
    return text_of(&buf, blasd_job_document(record, NULL, 0, false, &buf) == 0);
}

static char *batch_text(const struct blasd_queue_event *told, const struct blasd_record *record) {
    struct blasd_buf buf;
    struct json_out out = {.buf = &buf};
    blasd_buf_init(&buf, TEXT_MOST);
    json_out_put(&out, "{\"worker\":%s,\"device\":%n,\"op\":%s,\"jobs\":%u,\"started_at\":%t}",
                 told->worker, record->execution.device, record->op, told->jobs,
                 record->started_us);
    return text_of(&buf, !out.failed);
}

static void add_record(struct http_events *events, struct tenant *tenant,
                       const struct blasd_queue_event *told) {
    struct blasd_record record;
    struct blasd_err ignored;
    size_t payload_at;
    if (blasd_record_decode(told->record, told->len, &record, &payload_at, &ignored) != 0) {
        (void)take_numbers(tenant, 1);
        return;
    }
    if (told->worker != NULL && told->first)
        push(events, tenant, "batch", batch_text(told, &record), record.op, -1);
    record.prices = events->prices;
    push(events, tenant, "job", job_text(&record), record.op, (int)record.state);
}

void http_events_add(struct http_events *events, const struct blasd_queue_event *told) {
    struct tenant *tenant;
    pthread_mutex_lock(&events->lock);
    if (told->tenant[0] == '\0') {
        events->heard = true;
        blasd_hash_each(&events->tenants, skip_number, NULL);
    } else if ((tenant = tenant_make(events, told->tenant)) != NULL) {
        if (told->record != NULL)
            add_record(events, tenant, told);
        else
            (void)take_numbers(tenant, told->jobs);
    }
    pthread_mutex_unlock(&events->lock);
}

void http_events_set_devices(struct http_events *events, char *all, char *few) {
    pthread_mutex_lock(&events->lock);
    free(events->devices[0]);
    free(events->devices[1]);
    events->devices[0] = few;
    events->devices[1] = all;
    events->devices_told++;
    pthread_mutex_unlock(&events->lock);
}

/* Readers */

bool http_events_join(struct http_events *events, const char *name, uint64_t most,
                      uint64_t most_of_one) {
    struct tenant *tenant;
    bool room;
    pthread_mutex_lock(&events->lock);
    tenant = tenant_make(events, name);
    room = tenant != NULL && (uint64_t)events->readers < most && tenant->readers < most_of_one;
    if (room) {
        events->readers++;
        tenant->readers++;
    }
    pthread_mutex_unlock(&events->lock);
    return room;
}

void http_events_leave(struct http_events *events, const char *name) {
    pthread_mutex_lock(&events->lock);
    struct tenant *tenant = tenant_of(events, name);
    if (tenant != NULL) tenant->readers--;
    events->readers--;
    pthread_mutex_unlock(&events->lock);
}

int http_events_readers(struct http_events *events) {
    pthread_mutex_lock(&events->lock);
    int readers = events->readers;
    pthread_mutex_unlock(&events->lock);
    return readers;
}

bool http_events_begin(struct http_events *events, struct http_events_reader *reader,
                       uint64_t after) {
    const struct tenant *tenant;
    bool found;
    pthread_mutex_lock(&events->lock);
    tenant = tenant_make(events, reader->tenant);
    reader->at = events->count;
    reader->devices = events->devices_told; /* what was told before is old */
    reader->number = tenant == NULL ? 0 : tenant->next - 1;
    found = after == 0 || after == reader->number;
    if (after < reader->number && after != 0) {
        for (reader->at = oldest(events); reader->at < events->count; reader->at++) {
            const struct event *event = at(events, reader->at);
            if (event->tenant == tenant && event->number > after) break;
            if (event->tenant == tenant && event->number == after) found = true;
        }
        if (reader->at < events->count) {
            uint64_t number = at(events, reader->at)->number;
            found = found || number == after + 1;
            reader->number = found ? after : number - 1;
        } else if (found) {
            reader->number = after; /* of those behind it nothing is kept: they are lost */
        }
    }
    pthread_mutex_unlock(&events->lock);
    return found;
}

static int put_lost(struct blasd_buf *out, uint64_t lost) {
    return blasd_buf_printf(out, "event: lost\ndata: {\"events\":%" PRIu64 "}\n\n", lost);
}

static bool is_wanted(const struct http_events_reader *reader, const struct event *event) {
    return (reader->op == NULL || strcmp(reader->op, event->op) == 0) &&
           (reader->state < 0 || reader->state == event->state);
}

/* How many the reader has not seen before the one of that number. */
static uint64_t missed(const struct http_events_reader *reader, uint64_t number) {
    return number <= reader->number ? 0 : number - reader->number - 1;
}

static int put_event(struct blasd_buf *out, const struct event *event) {
    int rc =
        blasd_buf_printf(out, "event: %s\nid: %" PRIu64 "\ndata: ", event->kind, event->number);
    if (rc == 0) rc = blasd_buf_puts(out, event->text);
    return rc == 0 ? blasd_buf_puts(out, "\n\n") : rc;
}

static int read_ring(const struct http_events *events, struct http_events_reader *reader, int most,
                     const struct tenant *tenant, struct blasd_buf *out) {
    uint64_t lost = 0;
    int count = 0;
    if (reader->at < oldest(events)) reader->at = oldest(events);
    for (; reader->at < events->count && count < most; reader->at++) {
        const struct event *event = at(events, reader->at);
        if (event->tenant != tenant) continue;
        lost += missed(reader, event->number);
        reader->number = event->number;
        if (!is_wanted(reader, event)) continue;
        if ((lost > 0 && put_lost(out, lost) != 0) || put_event(out, event) != 0) return -1;
        lost = 0;
        count++;
    }
    if (reader->at == events->count && tenant != NULL && tenant->next > reader->number + 1) {
        lost += missed(reader, tenant->next); /* those behind all that it could be told of */
        reader->number = tenant->next - 1;
    }
    return lost > 0 && put_lost(out, lost) != 0 ? -1 : count;
}

int http_events_read(struct http_events *events, struct http_events_reader *reader, int most,
                     struct blasd_buf *out) {
    const char *devices;
    int count;
    pthread_mutex_lock(&events->lock);
    count = read_ring(events, reader, most, tenant_of(events, reader->tenant), out);
    devices = events->devices[reader->all ? 1 : 0];
    if (count >= 0 && devices != NULL && reader->devices != events->devices_told) {
        reader->devices = events->devices_told;
        if (blasd_buf_puts(out, "event: devices\ndata: ") != 0 ||
            blasd_buf_puts(out, devices) != 0 || blasd_buf_puts(out, "\n\n") != 0)
            count = -1;
    }
    pthread_mutex_unlock(&events->lock);
    return count;
}
