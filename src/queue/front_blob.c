/* Blobs on their way out of the store and, for the kind redis, into it.
 *
 * A blob of kind dir is opened and mapped where it lies. One of kind redis lies there in chunks; a
 * few of them are in flight at a time, each an ordinary call that is sent again if its connection
 * is lost, and locally the bytes are in a memfd. What the calls of one blob share lives until the
 * last of them is gone. Read next: functions/contract.lua for the keys. */
#include "queue/front.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK BLASD_QUEUE_CHUNK
/* bytes of chunks in flight, at least one chunk */
#define WINDOW ((4 * BLASD_MIB + CHUNK - 1) / CHUNK)
#define CHUNK_TRIES 3
#define HOLD_AGAIN (30000 * BLASD_MS)

struct transfer {
    int refs; /* calls that point here */
    struct blasd_front_queue *queue;
    uint64_t bytes, next; /* all; where the next chunk begins */
    uint64_t flying;      /* chunks in flight */
    bool failed;
    struct blasd_err err;
    /* out of the store */
    struct blasd_blob blob; /* owned */
    blasd_blob_fn done;
    void *arg;
    /* into it */
    const struct blasd_blob *from; /* borrowed */
    struct front_call *then;       /* owned until it is sent */
    int64_t held_ns;               /* when Redis was last told that the blob is being written */
    bool noted;                    /* and has answered that */
};

struct chunk {
    struct front_call call;
    struct transfer *transfer;
    uint64_t offset;
    size_t len;
};

static void transfer_unref(struct transfer *t) {
    if (--t->refs > 0) return;
    blasd_blob_close(&t->blob);
    if (t->then != NULL) front_call_free(t->then);
    free(t);
}

static void chunk_release(struct front_call *call) {
    transfer_unref(blasd_container_of(call, struct chunk, call)->transfer);
}

static struct chunk *chunk_new(struct transfer *t, front_reply_fn reply) {
    struct chunk *chunk = front_call_new(t->queue, sizeof *chunk, reply);
    if (chunk == NULL) {
        t->failed = true;
        blasd_fail(&t->err, BLASD_E_no_space, "", "the front end is out of memory");
        return NULL;
    }
    if (t->from == NULL) front_call_reads(&chunk->call);
    chunk->transfer = t;
    chunk->call.release = chunk_release;
    chunk->call.tries_left = CHUNK_TRIES;
    t->refs++;
    return chunk;
}

static void fail(struct transfer *t, const struct blasd_err *err) {
    if (!t->failed) t->err = *err;
    t->failed = true;
}

static void add_chunk_key(struct front_call *call, const char *name, uint64_t offset) {
    char key[BLASD_LINK_KEY_MAX];
    size_t len = blasd_link_key(key, call->queue->name, ":blob:%s:%llu", name,
                                (unsigned long long)(offset / CHUNK));
    front_call_arg(call, key, len);
}

/* Takes the next chunk of the transfer for `chunk`. */
static void take_next(struct transfer *t, struct chunk *chunk) {
    uint64_t left = t->bytes - t->next;
    chunk->offset = t->next;
    chunk->len = (size_t)(left < CHUNK ? left : CHUNK);
    t->next += chunk->len;
    t->flying++;
}

static void missing(const char *name, struct blasd_err *err) {
    if (strcmp(name + BLASD_ID_LEN, ".out") == 0)
        blasd_fail(err, BLASD_E_record_expired, "", "the outputs of the job are no longer kept");
    else
        blasd_fail(err, BLASD_E_inputs_lost, "", "the tensors are not in the blob store");
}

/* Out of the store. */

static void get_end(struct transfer *t) {
    struct blasd_err err;
    if (!t->failed && blasd_blob_map(&t->blob, &err) != 0) fail(t, &err);
    if (t->failed) {
        t->done(t->arg, &t->err, NULL);
        return;
    }
    t->done(t->arg, NULL, &t->blob);
    memset(&t->blob, 0, sizeof t->blob); /* the callee's now */
}

static void get_more(struct transfer *t);

static void get_reply(struct front_call *call, const redisReply *reply,
                      const struct blasd_err *err) {
    struct chunk *chunk = blasd_container_of(call, struct chunk, call);
    struct transfer *t = chunk->transfer;
    struct blasd_err own;
    t->flying--;
    if (err != NULL) {
        fail(t, err);
    } else if (reply != NULL) {
        if (reply->type != REDIS_REPLY_STRING || reply->len != chunk->len) {
            missing(t->blob.name, &own);
            fail(t, &own);
        } else if (blasd_blob_write(&t->blob, chunk->offset, reply->str, reply->len, &own) != 0) {
            fail(t, &own);
        }
    }
    get_more(t);
    if (t->flying == 0) get_end(t);
}

static void get_more(struct transfer *t) {
    struct chunk *chunk;
    while (!t->failed && t->next < t->bytes && t->flying < WINDOW &&
           (chunk = chunk_new(t, get_reply)) != NULL) {
        take_next(t, chunk);
        front_call_text(&chunk->call, "GET");
        add_chunk_key(&chunk->call, t->blob.name, chunk->offset);
        front_call_send(&chunk->call);
    }
}

void blasd_front_queue_blob_get(struct blasd_front_queue *queue, const char *name, uint64_t bytes,
                                blasd_blob_fn done, void *arg) {
    bool dir = blasd_store_kind(queue->store) == BLASD_STORE_DIR;
    struct transfer *t = calloc(1, sizeof *t);
    struct chunk *now = NULL;
    struct blasd_err err;
    int result;
    if (t != NULL) {
        t->queue = queue;
        t->bytes = bytes;
        t->done = done;
        t->arg = arg;
        now = chunk_new(t, get_reply);
    }
    if (now == NULL) {
        free(t);
        blasd_fail(&err, BLASD_E_no_space, "", "the front end is out of memory");
        done(arg, &err, NULL);
        return;
    }
    if (dir)
        result = blasd_blob_open(queue->store, name, bytes, &t->blob, &err);
    else if ((result = blasd_blob_create(queue->store, name, &t->blob, &err)) == 0)
        result = blasd_blob_grow(&t->blob, bytes, &err);
    if (result == -BLASD_E_inputs_lost) missing(name, &err);
    if (result != 0) fail(t, &err);
    if (dir) t->next = t->bytes;
    /* a first call that needs no answer: it starts the chunks, or ends what needs none, by the next
     * flush */
    t->flying++;
    front_call_answer_later(&now->call, NULL);
}

/* Into it. */

static void put_more(struct transfer *t);
static void put_hold(struct transfer *t, front_reply_fn reply);

/* A reply of `blob`: that it was not noted is true of the first one alone. */
static void note(struct transfer *t, const redisReply *reply) {
    struct blasd_err err;
    if (t->noted && reply->integer == 1) {
        blasd_fail(&err, BLASD_E_queue_unavailable, "",
                   "Redis has lost a part of the tensors while they were sent there");
        fail(t, &err);
    }
    t->noted = true;
}

static void put_failed(struct transfer *t) {
    struct front_call *then = t->then;
    t->then = NULL;
    blasd_front_queue_blob_remove(t->queue, t->from->name);
    front_call_answer_later(then, &t->err);
}

/* Redis knows that the blob is whole and held: now the job may refer to it. */
static void put_end(struct front_call *call, const redisReply *reply, const struct blasd_err *err) {
    struct transfer *t = blasd_container_of(call, struct chunk, call)->transfer;
    struct front_call *then = t->then;
    if (err == NULL) note(t, reply);
    if (t->failed) {
        put_failed(t);
        return;
    }
    t->then = NULL;
    if (err != NULL || then->args == 0)
        front_call_answer_later(then, err);
    else
        front_call_send(then);
}

static void put_step(struct transfer *t) {
    put_more(t);
    if (t->flying > 0) return;
    if (!t->failed) put_hold(t, put_end);
    if (t->failed && t->then != NULL) put_failed(t);
}

static void put_reply(struct front_call *call, const redisReply *reply,
                      const struct blasd_err *err) {
    struct transfer *t = blasd_container_of(call, struct chunk, call)->transfer;
    t->flying--;
    if (err != NULL)
        fail(t, err);
    else if (reply->type == REDIS_REPLY_INTEGER) /* a chunk's is a status */
        note(t, reply);
    put_step(t);
}

static void put_hold(struct transfer *t, front_reply_fn reply) {
    struct chunk *chunk = chunk_new(t, reply);
    if (chunk == NULL) return;
    if (reply == put_reply) t->flying++;
    t->held_ns = blasd_clock_ns();
    front_call_function(&chunk->call, "blob");
    front_call_text(&chunk->call, "hold");
    front_call_text(&chunk->call, t->from->name);
    front_call_number(&chunk->call, t->bytes);
    front_call_send(&chunk->call);
}

/* One argument of the command is read from the blob, straight into the command. */
static int add_chunk_bytes(struct front_call *call, const struct blasd_blob *from, uint64_t offset,
                           size_t len) {
    struct blasd_buf *out = &call->command;
    size_t got = 0;
    call->args++;
    if (call->broken || blasd_buf_reserve(out, len + 32) != 0 ||
        blasd_buf_printf(out, "$%zu\r\n", len) != 0)
        return -1;
    while (got < len) {
        ssize_t n = pread(from->fd, out->data + out->len, len - got, (off_t)(offset + got));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return -1;
        out->len += (size_t)n;
        got += (size_t)n;
    }
    return blasd_buf_add(out, "\r\n", 2);
}

static void put_more(struct transfer *t) {
    struct chunk *chunk;
    if (!t->failed && t->next < t->bytes && blasd_clock_ns() - t->held_ns > HOLD_AGAIN)
        put_hold(t, put_reply);
    while (!t->failed && t->next < t->bytes && t->flying < WINDOW &&
           (chunk = chunk_new(t, put_reply)) != NULL) {
        take_next(t, chunk);
        front_call_text(&chunk->call, "SET");
        add_chunk_key(&chunk->call, t->from->name, chunk->offset);
        if (add_chunk_bytes(&chunk->call, t->from, chunk->offset, chunk->len) != 0)
            chunk->call.broken = true;
        front_call_send(&chunk->call);
    }
}

void front_blob_put(struct blasd_front_queue *queue, const struct blasd_blob *blob,
                    struct front_call *then) {
    struct transfer *t = calloc(1, sizeof *t);
    struct blasd_err err;
    if (t == NULL) {
        blasd_fail(&err, BLASD_E_no_space, "", "the front end is out of memory");
        front_call_answer_later(then, &err);
        return;
    }
    t->queue = queue;
    t->from = blob;
    t->bytes = blob->bytes;
    t->then = then;
    t->refs = 1;
    put_hold(t, put_reply); /* its answer starts the chunks */
    if (t->failed) {
        t->then = NULL;
        front_call_answer_later(then, &t->err);
    }
    transfer_unref(t);
}

static void drop_reply(struct front_call *call, const redisReply *reply,
                       const struct blasd_err *err) {
    (void)call;
    (void)reply;
    (void)err; /* the sweep finds what stays behind */
}

void blasd_front_queue_blob_remove(struct blasd_front_queue *queue, const char *name) {
    struct front_call *call;
    if (blasd_store_kind(queue->store) == BLASD_STORE_DIR) {
        blasd_store_remove(queue->store, name);
        return;
    }
    call = front_call_new(queue, sizeof *call, drop_reply);
    if (call == NULL) return;
    front_call_function(call, "blob");
    front_call_text(call, "drop");
    front_call_text(call, name);
    front_call_send(call);
}
