/* The routes about many jobs: a list of them, a page at a time, and their cancellation. */
#include "base/container.h"
#include "base/log.h"
#include "core/graph.h"
#include "http/jobs.h"
#include "http/reply.h"
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

/* What a list is sorted by, and where its record lies. */
struct listed {
    int64_t created_us;
    int position;
};

/* A page that the queue gave. */
struct page {
    const char *cursor;
    const void *const *records;
    const size_t *lens;
    int count;
};

static int newest_first(const void *a, const void *b) {
    const struct listed *x = a, *y = b;
    if (x->created_us != y->created_us) return x->created_us < y->created_us ? 1 : -1;
    return x->position - y->position;
}

/* Whether the job has all the labels that are asked for: the queue has looked for the first. */
static bool is_wanted(const struct http_query *query, const struct blasd_record *record) {
    for (int i = 1; i < query->label_count; i++)
        if (!blasd_labels_have(record->labels, query->labels_wanted[i])) return false;
    return true;
}

/* Puts the page in order; how many of it are left, or -1: no memory. */
static int sort_page(const struct http_query *query, const struct page *page,
                     struct listed **order) {
    struct blasd_record record;
    struct blasd_err bad = {0};
    size_t payload_at;
    int kept = 0, damaged = 0;
    *order = calloc((size_t)page->count + 1, sizeof **order);
    if (*order == NULL) return -1;
    for (int i = 0; i < page->count; i++) {
        if (blasd_record_decode(page->records[i], page->lens[i], &record, &payload_at, &bad) != 0)
            damaged++; /* the client that asks for that job is told; the others are still listed */
        else if (is_wanted(query, &record))
            (*order)[kept++] = (struct listed){.created_us = record.created_us, .position = i};
    }
    if (damaged > 0)
        blasd_log(BLASD_LOG_WARN, "%d records of %d are damaged: %s", damaged, page->count,
                  bad.detail);
    if (kept > 0) qsort(*order, (size_t)kept, sizeof **order, newest_first);
    return kept;
}

static int put_cursor(const char *cursor, struct blasd_buf *out) {
    return cursor[0] == '\0' ? 0 : blasd_buf_printf(out, ",\"cursor\":\"%s\"", cursor);
}

static int write_page(const struct http_exchange *exchange, const struct page *page,
                      struct blasd_buf *out) {
    struct blasd_record record;
    struct blasd_err bad;
    struct listed *order;
    size_t payload_at;
    int kept = sort_page(&exchange->request.query, page, &order);
    int failed = kept < 0
                     ? -1
                     : blasd_buf_printf(out, "{\"%s\":[", exchange->form.graph ? "graphs" : "jobs");
    for (int i = 0; failed == 0 && i < kept; i++) {
        int at = order[i].position;
        (void)blasd_record_decode(page->records[at], page->lens[at], &record, &payload_at, &bad);
        record.prices = exchange->home->server->options->prices;
        failed = blasd_buf_puts(out, i == 0 ? "" : ",") |
                 blasd_job_document(&record, NULL, 0, false, out);
    }
    free(order);
    if (failed == 0) failed = blasd_buf_puts(out, "]") | put_cursor(page->cursor, out);
    return failed == 0 ? blasd_buf_puts(out, "}") : failed;
}

static void on_list(void *arg, const struct blasd_err *err, const char *cursor,
                    const void *const *records, const size_t *lens, int count) {
    struct http_exchange *exchange = arg;
    const struct page page = {cursor, records, lens, count};
    struct blasd_buf body;
    if (http_exchange_open(exchange)) {
        blasd_buf_init(&body, BLASD_GIB);
        if (err != NULL)
            http_reply_problem(exchange, err);
        else if (write_page(exchange, &page, &body) != 0)
            http_reply_fail(exchange, BLASD_E_no_space, "",
                            "memory has run out; ask for fewer jobs");
        else
            http_reply(exchange, 200, HTTP_TYPE_JSON, NULL, http_buf(&body));
        blasd_buf_release(&body);
    }
    http_exchange_release(exchange);
}

/* Asks the queue for the page that the query names. */
static void ask(struct http_exchange *exchange, blasd_list_fn done, void *arg) {
    const struct http_query *asked = &exchange->request.query;
    const struct blasd_list_query query = {
        .state = (asked->given & HTTP_PARAM_STATE) != 0 ? asked->state : -1,
        .op = exchange->form.graph ? blasd_op_graph.name : asked->op,
        .label = asked->labels_wanted[0],
        .since_us = asked->since_us,
        .before_us = (asked->given & HTTP_PARAM_BEFORE) != 0 ? asked->before_us : INT64_MAX,
        .limit = (asked->given & HTTP_PARAM_LIMIT) != 0
                     ? asked->limit
                     : (int)exchange->home->server->limits->list_jobs,
        .cursor = asked->cursor};
    http_exchange_hold(exchange);
    blasd_front_queue_list(http_queue(exchange), &exchange->caller.principal, &query, done, arg);
}

void http_jobs_list(struct http_exchange *exchange) {
    ask(exchange, on_list, exchange);
}

void http_graphs_list(struct http_exchange *exchange) {
    exchange->form.graph = true;
    http_jobs_list(exchange);
}

/* --- cancelling many --- */

#define CURSOR_MOST 256

struct cancelling {
    struct http_side side;          /* must come first */
    struct http_exchange *exchange; /* borrowed: this is its part */
    int left;                       /* answers to come, and one while the questions are asked */
    int cancelled;
    char cursor[CURSOR_MOST];
    struct blasd_err err; /* why one could not be cancelled that had not ended */
};

static void release(struct http_side *side) {
    free(blasd_container_of(side, struct cancelling, side));
}

static void one_less(struct cancelling *all) {
    struct http_exchange *exchange = all->exchange;
    struct blasd_buf body;
    if (--all->left > 0 || !http_exchange_open(exchange)) return;
    blasd_buf_init(&body, BLASD_MIB);
    if (all->err.code != BLASD_OK && all->cancelled == 0)
        http_reply_problem(exchange, &all->err);
    else if (blasd_buf_printf(&body, "{\"cancelled\":%d", all->cancelled) != 0 ||
             put_cursor(all->cursor, &body) != 0 || blasd_buf_puts(&body, "}") != 0)
        http_reply_no_memory(exchange);
    else
        http_reply(exchange, 200, HTTP_TYPE_JSON, NULL, http_buf(&body));
    blasd_buf_release(&body);
}

static void on_cancelled(void *arg, const struct blasd_err *err, const void *bytes, size_t len) {
    struct cancelling *all = arg;
    struct http_exchange *exchange = all->exchange;
    struct blasd_record record;
    struct blasd_err bad;
    size_t payload_at;
    /* one that has ended meanwhile is none of those that were to be cancelled */
    if (err != NULL && err->code == BLASD_E_queue_unavailable) all->err = *err;
    if (err == NULL && blasd_record_decode(bytes, len, &record, &payload_at, &bad) == 0 &&
        record.state == BLASD_CANCELLED) {
        all->cancelled++;
        http_log_cancelled(exchange, &record);
    }
    one_less(all);
    http_exchange_release(exchange);
}

static void on_found(void *arg, const struct blasd_err *err, const char *cursor,
                     const void *const *records, const size_t *lens, int count) {
    struct cancelling *all = arg;
    struct http_exchange *exchange = all->exchange;
    struct blasd_record record;
    struct blasd_err bad;
    size_t payload_at;
    if (err != NULL) all->err = *err;
    if (err == NULL && strlen(cursor) < sizeof all->cursor)
        memcpy(all->cursor, cursor, strlen(cursor) + 1);
    for (int i = 0; err == NULL && http_exchange_open(exchange) && i < count; i++) {
        if (blasd_record_decode(records[i], lens[i], &record, &payload_at, &bad) != 0 ||
            blasd_state_final(record.state) || !is_wanted(&exchange->request.query, &record))
            continue;
        all->left++;
        http_exchange_hold(exchange);
        blasd_front_queue_cancel(http_queue(exchange), &exchange->caller.principal, record.id,
                                 false, on_cancelled, all);
    }
    one_less(all);
    http_exchange_release(exchange);
}

void http_jobs_cancel(struct http_exchange *exchange) {
    const struct http_query *query = &exchange->request.query;
    struct cancelling *all;
    if ((query->given & ~(unsigned)(HTTP_PARAM_LIMIT | HTTP_PARAM_CURSOR)) == 0) {
        http_reply_fail(exchange, BLASD_E_malformed_query, "",
                        "say which jobs, by state, op, label, since or before: without any of them "
                        "none is cancelled");
        return;
    }
    if ((query->given & HTTP_PARAM_STATE) != 0 &&
        blasd_state_final((enum blasd_state)query->state)) {
        http_reply_fail(exchange, BLASD_E_malformed_query, "state",
                        "jobs that are queued or running can be cancelled, not those that are %s",
                        blasd_state_names[query->state]);
        return;
    }
    if ((all = calloc(1, sizeof *all)) == NULL) {
        http_reply_no_memory(exchange);
        return;
    }
    *all = (struct cancelling){.side.release = release, .exchange = exchange, .left = 1};
    exchange->side = &all->side;
    ask(exchange, on_found, all);
}
