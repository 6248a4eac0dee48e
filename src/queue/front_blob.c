/* Blobs on their way out of the store and, for the kind redis, into it.
 *
 * A blob of kind dir is opened and mapped where it lies. One of kind redis lies there in pieces; a
 * few of them are in flight at a time, each an ordinary call that is sent again if its connection
 * is lost, and locally the bytes are in a memfd. What the calls of one blob share lives until the
 * last of them is gone. Read next: functions/contract.lua for the keys. */
#include "queue/front.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE BLASD_QUEUE_CHUNK
/* bytes of pieces in flight, at least one piece */
#define WINDOW ((4 * BLASD_MIB + PIECE - 1) / PIECE)
#define PIECE_TRIES 3
#define HOLD_AGAIN (30000 * BLASD_MS)

struct transfer {
    int refs; /* calls that point here */
    struct blasd_front_queue *queue;
    uint64_t bytes, next; /* all; where the next piece begins */
    uint64_t flying;      /* pieces in flight */
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
};

struct piece {
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

static void piece_release(struct front_call *call) {
    transfer_unref(((struct piece *)(void *)call)->transfer);
}

static struct piece *piece_new(struct transfer *t, front_reply_fn reply) {
    struct piece *piece = front_call_new(t->queue, sizeof *piece, reply);
    if (piece == NULL) {
        t->failed = true;
        blasd_fail(&t->err, BLASD_E_no_space, "", "the front end is out of memory");
        return NULL;
    }
    if (t->from == NULL) front_call_reads(&piece->call);
    piece->transfer = t;
    piece->call.release = piece_release;
    piece->call.tries_left = PIECE_TRIES;
    t->refs++;
    return piece;
}

static void fail(struct transfer *t, const struct blasd_err *err) {
    if (!t->failed) t->err = *err;
    t->failed = true;
}

static void add_piece_key(struct front_call *call, const char *name, uint64_t offset) {
    char key[BLASD_LINK_KEY_MAX];
    size_t len = blasd_link_key(key, call->queue->name, ":blob:%s:%llu", name,
                                (unsigned long long)(offset / PIECE));
    front_call_arg(call, key, len);
}

/* Takes the next piece of the transfer for `piece`. */
static void take_next(struct transfer *t, struct piece *piece) {
    uint64_t left = t->bytes - t->next;
    piece->offset = t->next;
    piece->len = (size_t)(left < PIECE ? left : PIECE);
    t->next += piece->len;
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
    struct piece *piece = (struct piece *)(void *)call;
    struct transfer *t = piece->transfer;
    struct blasd_err own;
    t->flying--;
    if (err != NULL) {
        fail(t, err);
    } else if (reply != NULL) {
        if (reply->type != REDIS_REPLY_STRING || reply->len != piece->len) {
            missing(t->blob.name, &own);
            fail(t, &own);
        } else if (blasd_blob_write(&t->blob, piece->offset, reply->str, reply->len, &own) != 0) {
            fail(t, &own);
        }
    }
    get_more(t);
    if (t->flying == 0) get_end(t);
}

static void get_more(struct transfer *t) {
    struct piece *piece;
    while (!t->failed && t->next < t->bytes && t->flying < WINDOW &&
           (piece = piece_new(t, get_reply)) != NULL) {
        take_next(t, piece);
        front_call_text(&piece->call, "GET");
        add_piece_key(&piece->call, t->blob.name, piece->offset);
        front_call_send(&piece->call);
    }
}

void blasd_front_queue_blob_get(struct blasd_front_queue *queue, const char *name, uint64_t bytes,
                                blasd_blob_fn done, void *arg) {
    bool dir = blasd_store_kind(queue->store) == BLASD_STORE_DIR;
    struct transfer *t = calloc(1, sizeof *t);
    struct piece *now = NULL;
    struct blasd_err err;
    int result;
    if (t != NULL) {
        t->queue = queue;
        t->bytes = bytes;
        t->done = done;
        t->arg = arg;
        now = piece_new(t, get_reply);
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
    /* a first call that needs no answer: it starts the pieces, or ends what needs none, by the next
     * flush */
    t->flying++;
    front_call_answer_later(&now->call, NULL);
}

/* Into it. */

static void put_more(struct transfer *t);
static void put_hold(struct transfer *t, front_reply_fn reply);

/* Redis knows that the blob is whole and held: now the job may refer to it. */
static void put_end(struct front_call *call, const redisReply *reply, const struct blasd_err *err) {
    struct transfer *t = ((struct piece *)(void *)call)->transfer;
    struct front_call *then = t->then;
    (void)reply;
    t->then = NULL;
    if (err != NULL)
        front_call_answer_later(then, err);
    else
        front_call_send(then);
}

static void put_step(struct transfer *t) {
    put_more(t);
    if (t->flying > 0) return;
    if (!t->failed) put_hold(t, put_end);
    if (t->failed && t->then != NULL) {
        struct front_call *then = t->then;
        t->then = NULL;
        blasd_front_queue_blob_remove(t->queue, t->from->name);
        front_call_answer_later(then, &t->err);
    }
}

static void put_reply(struct front_call *call, const redisReply *reply,
                      const struct blasd_err *err) {
    struct transfer *t = ((struct piece *)(void *)call)->transfer;
    (void)reply;
    t->flying--;
    if (err != NULL) fail(t, err);
    put_step(t);
}

static void put_hold(struct transfer *t, front_reply_fn reply) {
    struct piece *piece = piece_new(t, reply);
    if (piece == NULL) return;
    if (reply == put_reply) t->flying++;
    t->held_ns = blasd_clock_ns();
    front_call_function(&piece->call, "blob");
    front_call_text(&piece->call, t->from->name);
    front_call_number(&piece->call, t->bytes);
    front_call_send(&piece->call);
}

/* One argument of the command is read from the blob, straight into the command. */
static int add_piece_bytes(struct front_call *call, const struct blasd_blob *from, uint64_t offset,
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
    struct piece *piece;
    if (!t->failed && t->next < t->bytes && blasd_clock_ns() - t->held_ns > HOLD_AGAIN)
        put_hold(t, put_reply);
    while (!t->failed && t->next < t->bytes && t->flying < WINDOW &&
           (piece = piece_new(t, put_reply)) != NULL) {
        take_next(t, piece);
        front_call_text(&piece->call, "SET");
        add_piece_key(&piece->call, t->from->name, piece->offset);
        if (add_piece_bytes(&piece->call, t->from, piece->offset, piece->len) != 0)
            piece->call.broken = true;
        front_call_send(&piece->call);
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
    put_hold(t, put_reply); /* its answer starts the pieces */
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
    front_call_function(call, "blob_drop");
    front_call_text(call, name);
    front_call_send(call);
}
