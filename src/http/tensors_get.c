/* The routes that list, read, prolong and drop tensors. Read next: references.c. */
#include "http/jobs.h"
#include "http/reply.h"
#include "http/tensors.h"
#include "wire/json_text.h"
#include "wire/tensor_document.h"

#include <stdio.h>
#include <string.h>

static void reply_document(struct http_exchange *exchange,
                           const struct blasd_stored_tensor *tensor) {
    struct blasd_buf body;
    blasd_buf_init(&body, BLASD_MIB);
    http_reply_written(exchange, blasd_tensor_document(tensor, &body), &body);
}

static void on_document(void *arg, const struct blasd_err *err,
                        const struct blasd_stored_tensor *tensors, int count, const char *cursor) {
    struct http_exchange *exchange = arg;
    (void)count, (void)cursor;
    if (http_exchange_open(exchange)) {
        if (err != NULL)
            http_reply_problem(exchange, err);
        else
            reply_document(exchange, tensors);
    }
    http_exchange_release(exchange);
}

static int write_list(const struct blasd_stored_tensor *tensors, int count, const char *cursor,
                      struct blasd_buf *out) {
    int failed = blasd_buf_puts(out, "{\"tensors\":[");
    for (int i = 0; i < count; i++) {
        failed |= blasd_buf_puts(out, i == 0 ? "" : ",");
        failed |= blasd_tensor_document(&tensors[i], out);
    }
    failed |= blasd_buf_puts(out, "]");
    if (cursor[0] != '\0') failed |= blasd_buf_printf(out, ",\"cursor\":\"%s\"", cursor);
    return failed | blasd_buf_puts(out, "}");
}

static void on_list(void *arg, const struct blasd_err *err,
                    const struct blasd_stored_tensor *tensors, int count, const char *cursor) {
    struct http_exchange *exchange = arg;
    struct blasd_buf body;
    if (http_exchange_open(exchange)) {
        blasd_buf_init(&body, 16 * BLASD_MIB);
        if (err != NULL)
            http_reply_problem(exchange, err);
        else
            http_reply_written(exchange, write_list(tensors, count, cursor, &body), &body);
    }
    http_exchange_release(exchange);
}

void http_tensors_list(struct http_exchange *exchange) {
    const struct http_query *query = &exchange->request.query;
    int limit = (query->given & HTTP_PARAM_LIMIT) != 0
                    ? query->limit
                    : (int)exchange->home->server->limits->list_jobs;
    http_exchange_hold(exchange);
    blasd_front_queue_tensor_list(http_queue(exchange), &exchange->caller.principal, limit,
                                  query->cursor, on_list, exchange);
}

static void on_tensor(void *arg, const struct blasd_err *err,
                      const struct blasd_stored_tensor *tensors, int count, const char *cursor) {
    struct http_exchange *exchange = arg;
    enum blasd_format format = (enum blasd_format)exchange->wanted.format;
    bool possible = err == NULL && blasd_tensor_answer_possible(&tensors->tensor, format);
    (void)count, (void)cursor;
    if (!http_exchange_open(exchange))
        ;
    else if (err != NULL)
        http_reply_problem(exchange, err);
    else if (!possible && !http_other_format(exchange))
        http_reply_fail(exchange, BLASD_E_not_acceptable, "Accept",
                        format == BLASD_FORMAT_NPY
                            ? "a .npy file cannot hold bfloat16"
                            : "the tensor came in Fortran order: ask for application/x-npy");
    else if (exchange->wanted.format == BLASD_FORMAT_JSON)
        reply_document(exchange, tensors);
    else
        http_result_tensor(exchange, tensors);
    http_exchange_release(exchange);
}

/* The document where JSON is asked for, else the bytes. */
void http_tensors_get(struct http_exchange *exchange) {
    enum blasd_format format;
    if (!blasd_accept_choose(&exchange->request.accepts, true, &format)) {
        http_reply_fail(exchange, BLASD_E_not_acceptable, "Accept",
                        "no answer of this route has a format that '%.100s' names",
                        exchange->request.accept);
        return;
    }
    exchange->wanted.format = (int)format;
    http_exchange_hold(exchange);
    blasd_front_queue_tensor_get(http_queue(exchange), &exchange->caller.principal,
                                 exchange->captures[0], format != BLASD_FORMAT_JSON,
                                 format == BLASD_FORMAT_JSON ? on_document : on_tensor, exchange);
}

void http_tensors_patch_body(struct http_exchange *exchange, const void *bytes, size_t len) {
    if (blasd_buf_add(&exchange->body.kept, bytes, len) != 0)
        http_reply_fail(exchange, BLASD_E_body_too_large, "",
                        "the body is larger than any valid change of a tensor");
}

/* A body {"life_s": N}. */
struct life {
    struct blasd_json_text text;
    int members;
    int64_t seconds; /* 0: it does not say */
};

static int read_member(void *arg, const char *quote, const char *name, const char *value,
                       const char **next, struct blasd_err *err) {
    struct life *life = arg;
    (void)quote;
    life->members++;
    if (strcmp(name, "life_s") == 0 && !blasd_json_whole(value, life->text.end, &life->seconds))
        life->seconds = 0;
    return blasd_json_check(&life->text, value, 1, next, err);
}

static int read_life(const struct http_exchange *exchange, uint64_t *life_s,
                     struct blasd_err *err) {
    const struct blasd_buf *body = &exchange->body.kept;
    uint64_t most = exchange->home->server->limits->tensor_life_most_s;
    struct life life = {.members = 0};
    struct blasd_buf copy;
    const char *p;
    int rc = blasd_json_hold(&copy, body->data, body->len, 8, &life.text, err);
    p = rc == 0 ? blasd_json_space(life.text.start) : NULL;
    if (rc == 0)
        rc = *p == '{' ? blasd_json_members(&life.text, p, read_member, &life, &p, err)
                       : blasd_json_check(&life.text, p, 0, &p, err);
    if (rc == 0) rc = blasd_json_end(&life.text, p, "the value", err);
    blasd_buf_release(&copy);
    if (rc != 0) return rc;
    *life_s = (uint64_t)life.seconds;
    if (life.members == 1 && life.seconds >= 1 && (uint64_t)life.seconds <= most) return 0;
    return blasd_fail(err, BLASD_E_invalid_field, "life_s",
                      "the body is {\"life_s\": N}, and N a whole number of seconds from 1 to %llu "
                      "(limit tensor_life_most_s)",
                      (unsigned long long)most);
}

void http_tensors_patch(struct http_exchange *exchange) {
    struct blasd_err err = {0};
    uint64_t life_s = 0;
    if (read_life(exchange, &life_s, &err) != 0) {
        http_reply_problem(exchange, &err);
        return;
    }
    http_exchange_hold(exchange);
    blasd_front_queue_tensor_life(http_queue(exchange), &exchange->caller.principal,
                                  exchange->captures[0], life_s, on_document, exchange);
}

void http_tensors_delete(struct http_exchange *exchange) {
    http_exchange_hold(exchange);
    blasd_front_queue_tensor_drop(http_queue(exchange), &exchange->caller.principal,
                                  exchange->captures[0], on_document, exchange);
}
