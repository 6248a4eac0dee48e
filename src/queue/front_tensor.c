/* Tensors that are kept: put, asked for, given a longer life, dropped, listed. Each is one call of
 * a function; a blob of kind redis goes ahead of its own. Read next: functions/tensors.lua. */
#include "queue/front.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the tenant's tensors may come to; 0: as all. */
uint64_t front_tensor_quota(const struct blasd_front_queue *queue,
                            const struct blasd_principal *principal) {
    if (front_alone(principal)) return 0;
    if (principal->quotas.stored_bytes != 0) return principal->quotas.stored_bytes;
    return 1 + queue->limits.tensor_bytes / 2;
}

void blasd_front_queue_keep_outputs(struct blasd_front_queue *queue,
                                    const struct blasd_principal *principal, const char *id,
                                    struct blasd_keeping *keeping) {
    struct blasd_id_key key = front_id_key(queue, principal);
    char own[BLASD_ID_LEN + 1];
    own[0] = BLASD_ID_TENSOR;
    memcpy(own + 1, id + 1, BLASD_ID_ENTRY);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) {
        if (!blasd_keeps(keeping, i)) continue;
        blasd_id_sign(own, &key, (uint16_t)i);
        memcpy(keeping->ids[i], own + BLASD_ID_ENTRY, sizeof keeping->ids[i]);
    }
}

/* Putting. Where the blobs go to Redis they go ahead, and the one call that keeps all follows. */

struct put {
    int left; /* calls without an answer */
    bool failed;
    struct blasd_err err;
    blasd_tensors_fn done;
    void *arg;
    uint64_t most;
    struct front_call *keep; /* owned until it is sent; NULL: it was */
};

struct put_call {
    struct front_call call;
    struct put *put;
};

static void refused_put(const struct blasd_front_queue *queue, const struct put *put,
                        long long code, struct blasd_err *err) {
    if (code == 1)
        blasd_fail(err, BLASD_E_tensor_too_large, "",
                   "all tensors may come to %" PRIu64 " bytes (limit tensor_bytes), and be as many "
                   "as the limit tensors says",
                   queue->limits.tensor_bytes);
    else if (code == 2)
        blasd_fail(err, BLASD_E_tensor_too_large, "",
                   "the tenant's tensors may come to %" PRIu64
                   " bytes, and be half of what the limit tensors says",
                   put->most);
    else if (code == 3)
        blasd_fail(err, BLASD_E_tensors_full, "",
                   "tensors that queued jobs refer to, and those of other tenants, leave no room "
                   "for more");
    else if (code == 4)
        blasd_fail(err, BLASD_E_inputs_lost, "", "the tensors were lost on their way");
    else
        front_unknown_answer(err);
}

static void put_answered(struct put *put, const struct blasd_err *err) {
    if (err != NULL && !put->failed) {
        put->failed = true;
        put->err = *err;
    }
    if (--put->left > 0) return;
    if (put->keep != NULL && !put->failed) {
        struct front_call *keep = put->keep;
        put->keep = NULL;
        put->left = 1;
        front_call_send(keep);
        return;
    }
    if (put->keep != NULL) front_call_free(put->keep);
    put->done(put->arg, put->failed ? &put->err : NULL, NULL, 0, "");
    free(put);
}

/* A blob has come to Redis, or has not. */
static void stored_reply(struct front_call *call, const redisReply *reply,
                         const struct blasd_err *err) {
    (void)reply;
    put_answered(blasd_container_of(call, struct put_call, call)->put, err);
}

static void put_reply(struct front_call *call, const redisReply *reply,
                      const struct blasd_err *err) {
    struct put *put = blasd_container_of(call, struct put_call, call)->put;
    struct blasd_err own;
    bool good = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements >= 1 &&
                reply->element[0]->type == REDIS_REPLY_INTEGER;
    if (err == NULL && (!good || reply->element[0]->integer != 0)) {
        refused_put(call->queue, put, good ? reply->element[0]->integer : -1, &own);
        err = &own;
    }
    put_answered(put, err);
}

/* Others make room, some at a time: there are more to drop. */
static bool put_more(const redisReply *reply) {
    return reply->type == REDIS_REPLY_ARRAY && reply->elements >= 1 &&
           reply->element[0]->type == REDIS_REPLY_INTEGER && reply->element[0]->integer == 5;
}

static struct front_call *put_call_new(struct blasd_front_queue *queue, struct put *put,
                                       front_reply_fn reply) {
    struct put_call *c = front_call_new(queue, sizeof *c, reply);
    if (c == NULL) return NULL;
    c->put = put;
    return &c->call;
}

/* Begins the call that keeps them. */
static void begin_keep(struct front_call *call, const struct put *put,
                       const struct blasd_principal *principal, uint64_t life_s, bool in_redis) {
    char life[BLASD_TEXT_NUMBER + 2];
    snprintf(life, sizeof life, "%" PRIu64 "%s", life_s, in_redis ? " B" : "");
    call->acknowledges = true;
    call->more = put_more;
    front_call_function(call, "tensor");
    front_call_text(call, "put");
    front_call_text(call, principal->tenant);
    front_call_number(call, put->most);
    front_call_text(call, life);
}

/* Behind the form, of what was summed. */
#define SUM " sha256="

static void add_tensor(struct front_call *call, const struct blasd_tensor_put *one) {
    char form[BLASD_FORM_MAX], text[BLASD_FORM_MAX + sizeof SUM + BLASD_SHA256_MAX];
    bool summed = one->sha256[0] != '\0';
    front_call_arg(call, one->id, BLASD_ID_LEN);
    front_call_number(call, blasd_tensor_bytes(&one->tensor));
    snprintf(text, sizeof text, "%s%s%s", blasd_form_write(&one->tensor, form), summed ? SUM : "",
             one->sha256);
    front_call_text(call, text);
}

/* Has the blob brought to Redis; false where memory has run out. */
static bool store(struct blasd_front_queue *queue, struct put *put, const struct blasd_blob *blob) {
    struct front_call *stored = put_call_new(queue, put, stored_reply);
    if (stored == NULL) return false;
    put->left++;
    front_blob_put(queue, blob, stored);
    return true;
}

void blasd_front_queue_tensor_put(struct blasd_front_queue *queue,
                                  const struct blasd_principal *principal, uint64_t life_s,
                                  const struct blasd_tensor_put *tensors, int count,
                                  blasd_tensors_fn done, void *arg) {
    bool in_redis = blasd_store_kind(queue->store) == BLASD_STORE_REDIS, good = true;
    struct put *put = calloc(1, sizeof *put);
    struct blasd_err err;
    front_no_memory(&err);
    if (put != NULL) {
        *put = (struct put){.left = 1, .done = done, .arg = arg};
        put->most = front_tensor_quota(queue, principal);
        put->keep = put_call_new(queue, put, put_reply);
    }
    if (put == NULL || put->keep == NULL) {
        free(put);
        done(arg, &err, NULL, 0, "");
        return;
    }
    begin_keep(put->keep, put, principal, life_s, in_redis);
    for (int i = 0; i < count; i++) add_tensor(put->keep, &tensors[i]);
    for (int i = 0; in_redis && good && i < count; i++) good = store(queue, put, tensors[i].blob);
    put_answered(put, good ? NULL : &err);
}

/* Asking. */

struct tensor_call {
    struct front_call call;
    blasd_tensors_fn done;
    void *arg;
    struct blasd_id_key key; /* of the tenant's ids */
    char id[BLASD_ID_LEN + 1];
};

/* "BYTES LIFE CREATED USED ENDS FORM", the sum where there is one, and behind a tab the device that
 * has a copy. */
static bool read_facts(const char *id, const char *text, struct blasd_stored_tensor *ret) {
    char form[BLASD_FORM_MAX];
    double used, ends;
    const char *sum = strstr(text, SUM);
    int at = 0;
    size_t len;
    memset(ret, 0, sizeof *ret);
    if (strlen(id) != BLASD_ID_LEN) return false;
    memcpy(ret->id, id, BLASD_ID_LEN + 1);
    if (sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNd64 " %lf %lf %n", &ret->bytes, &ret->life_s,
               &ret->created_us, &used, &ends, &at) < 5 ||
        at == 0)
        return false;
    ret->used_us = (int64_t)used;
    ret->expires_us = (int64_t)ends * 1000000;
    text += at;
    len = strcspn(text, "\t");
    if (text[len] == '\t') snprintf(ret->device, sizeof ret->device, "%s", text + len + 1);
    if (sum != NULL) {
        snprintf(ret->sha256, sizeof ret->sha256, "%.*s",
                 (int)(text + len - sum) - (int)strlen(SUM), sum + strlen(SUM));
        len = (size_t)(sum - text);
    }
    if (len >= sizeof form) return false;
    memcpy(form, text, len);
    form[len] = '\0';
    return blasd_form_read(form, &ret->tensor) && blasd_tensor_bytes(&ret->tensor) == ret->bytes;
}

static void not_there(const char *id, const struct blasd_id_key *key, struct blasd_err *err) {
    /* whether the tenant had such a tensor its signature tells */
    if (blasd_id_signed(id, key))
        blasd_fail(err, BLASD_E_tensor_expired, "id", "the tensor %s is not kept any more", id);
    else
        blasd_fail(err, BLASD_E_tensor_not_found, "id", "there is no tensor %s", id);
}

/* What a reply says of one tensor; a negative code where that is why there is none. */
static int read_one(const struct front_call *call, const redisReply *r, const char *id,
                    const struct blasd_id_key *key, struct blasd_stored_tensor *tensor,
                    struct blasd_err *err) {
    if (r != NULL && r->type == REDIS_REPLY_STRING && read_facts(id, r->str, tensor)) return 0;
    if (r != NULL && r->type == REDIS_REPLY_INTEGER && call->early)
        front_too_early(err);
    else if (r != NULL && r->type == REDIS_REPLY_INTEGER)
        not_there(id, key, err);
    else
        front_unknown_answer(err);
    return -(int)err->code;
}

static void one_reply(struct front_call *call, const redisReply *reply,
                      const struct blasd_err *err) {
    struct tensor_call *c = blasd_container_of(call, struct tensor_call, call);
    const redisReply *r = NULL;
    struct blasd_stored_tensor tensor;
    struct blasd_err own;
    bool spare = false;
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements >= 1)
        r = reply->element[0];
    if (r != NULL && reply->elements == 2)
        spare = reply->element[1]->type == REDIS_REPLY_INTEGER && reply->element[1]->integer == 1;
    if (err == NULL && read_one(call, r, c->id, &c->key, &tensor, &own) != 0) err = &own;
    if (err == NULL && spare) {
        char name[BLASD_BLOB_NAME];
        snprintf(name, sizeof name, "%s.in", c->id);
        blasd_front_queue_blob_remove(call->queue, name);
    }
    c->done(c->arg, err, err == NULL ? &tensor : NULL, err == NULL, "");
}

static void list_reply(struct front_call *call, const redisReply *reply,
                       const struct blasd_err *err) {
    struct tensor_call *c = blasd_container_of(call, struct tensor_call, call);
    struct blasd_stored_tensor *tensors = NULL;
    struct blasd_err own;
    int count = 0;
    bool good = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements % 2 == 1;
    for (size_t i = 0; good && i < reply->elements; i++)
        good = reply->element[i]->type == REDIS_REPLY_STRING;
    if (good) tensors = calloc(reply->elements, sizeof *tensors);
    if (err == NULL && tensors == NULL) {
        if (good)
            front_no_memory(&own);
        else
            front_unknown_answer(&own);
        err = &own;
    }
    for (size_t i = 1; err == NULL && i + 1 < reply->elements; i += 2)
        if (read_facts(reply->element[i]->str, reply->element[i + 1]->str, &tensors[count]))
            count++;
    c->done(c->arg, err, tensors, count, err == NULL ? reply->element[0]->str : "");
    free(tensors);
}

/* Starts a call about the tenant's tensors; NULL: it was answered. */
static struct tensor_call *ask(struct blasd_front_queue *queue, const char *verb,
                               const struct blasd_principal *principal, front_reply_fn reply,
                               blasd_tensors_fn done, void *arg) {
    struct tensor_call *c = front_call_new(queue, sizeof *c, reply);
    struct blasd_err err;
    if (c == NULL) {
        front_no_memory(&err);
        done(arg, &err, NULL, 0, "");
        return NULL;
    }
    c->done = done;
    c->arg = arg;
    c->key = front_id_key(queue, principal);
    front_call_function(&c->call, "tensor");
    front_call_text(&c->call, verb);
    front_call_text(&c->call, principal->tenant);
    return c;
}

/* Adds the id; false where it is none, and the call was answered. */
static bool add_id(struct tensor_call *c, const char *id) {
    struct blasd_err err;
    if (!blasd_id_tensor_valid(id)) {
        blasd_fail(&err, BLASD_E_tensor_not_found, "id", "'%.64s' is not the id of a tensor", id);
        front_call_answer_later(&c->call, &err);
        return false;
    }
    memcpy(c->id, id, sizeof c->id);
    front_call_arg(&c->call, id, BLASD_ID_LEN);
    return true;
}

/* What one turn of the loop asks for goes as one call: a reference costs a small job no trip of its
 * own. */
#define ASKED_MOST 256

struct asker {
    blasd_tensors_fn done;
    void *arg;
    int at; /* which of the ids */
};

struct tensors_call {
    struct front_call call;
    char tenant[BLASD_TENANT_MAX];
    struct blasd_id_key key;
    bool use;
    int ids, askers;
    char id[ASKED_MOST][BLASD_ID_LEN + 1];
    struct asker asker[ASKED_MOST];
};

static void tensors_reply(struct front_call *call, const redisReply *reply,
                          const struct blasd_err *err) {
    struct tensors_call *c = blasd_container_of(call, struct tensors_call, call);
    bool good =
        reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == (size_t)c->ids;
    struct blasd_stored_tensor tensor;
    struct blasd_err own;
    bool there = false;
    for (int i = 0, read = -1; i < c->askers; i++) {
        const struct asker *asker = &c->asker[i];
        if (err == NULL && asker->at != read) {
            read = asker->at;
            there = read_one(call, good ? reply->element[read] : NULL, c->id[read], &c->key,
                             &tensor, &own) == 0;
        }
        asker->done(asker->arg,
                    there         ? NULL
                    : err != NULL ? err
                                  : &own,
                    there ? &tensor : NULL, there, "");
    }
}

void front_asking_close(struct blasd_front_queue *queue) {
    struct tensors_call *c = queue->asking;
    queue->asking = NULL;
    if (c != NULL) front_call_send(&c->call);
}

void front_asking_free(struct blasd_front_queue *queue) {
    if (queue->asking != NULL) front_call_free(&queue->asking->call);
    queue->asking = NULL;
}

/* The call that the tenant's question goes with; NULL where memory has run out. */
static struct tensors_call *asking(struct blasd_front_queue *queue,
                                   const struct blasd_principal *principal, bool use) {
    struct tensors_call *c = queue->asking;
    if (c != NULL && c->use == use && c->askers < ASKED_MOST &&
        strcmp(c->tenant, principal->tenant) == 0)
        return c;
    front_asking_close(queue);
    c = front_call_new(queue, sizeof *c, tensors_reply);
    if (c == NULL) return NULL;
    snprintf(c->tenant, sizeof c->tenant, "%s", principal->tenant);
    c->key = front_id_key(queue, principal);
    c->use = use;
    front_call_function(&c->call, "tensor");
    front_call_text(&c->call, "get");
    front_call_text(&c->call, principal->tenant);
    front_call_text(&c->call, use ? "1" : "0");
    queue->asking = c;
    return c;
}

/* Which of the call's ids it is, from now on. */
static int place_of(struct tensors_call *c, const char *id) {
    for (int i = c->ids; i-- > 0;)
        if (memcmp(c->id[i], id, BLASD_ID_LEN) == 0) return i;
    memcpy(c->id[c->ids], id, BLASD_ID_LEN + 1);
    front_call_arg(&c->call, id, BLASD_ID_LEN);
    return c->ids++;
}

void blasd_front_queue_tensor_get(struct blasd_front_queue *queue,
                                  const struct blasd_principal *principal, const char *id, bool use,
                                  blasd_tensors_fn done, void *arg) {
    struct tensors_call *c;
    struct blasd_err err;
    if (!blasd_id_tensor_valid(id)) {
        struct tensor_call *none = ask(queue, "get", principal, one_reply, done, arg);
        if (none != NULL) (void)add_id(none, id);
        return;
    }
    c = asking(queue, principal, use);
    if (c != NULL) {
        c->asker[c->askers++] = (struct asker){done, arg, place_of(c, id)};
        return;
    }
    front_no_memory(&err);
    done(arg, &err, NULL, 0, "");
}

void blasd_front_queue_tensor_life(struct blasd_front_queue *queue,
                                   const struct blasd_principal *principal, const char *id,
                                   uint64_t life_s, blasd_tensors_fn done, void *arg) {
    struct tensor_call *c = ask(queue, "life", principal, one_reply, done, arg);
    if (c == NULL || !add_id(c, id)) return;
    front_call_number(&c->call, life_s);
    front_call_send(&c->call);
}

void blasd_front_queue_tensor_drop(struct blasd_front_queue *queue,
                                   const struct blasd_principal *principal, const char *id,
                                   blasd_tensors_fn done, void *arg) {
    struct tensor_call *c = ask(queue, "drop", principal, one_reply, done, arg);
    if (c == NULL || !add_id(c, id)) return;
    c->call.tries_left = 0; /* a second one would find nothing, and say so */
    front_call_send(&c->call);
}

/* When a tensor was made, and its id. */
static bool is_cursor(const char *text) {
    return blasd_id_tensor_valid(text + strspn(text, "0123456789"));
}

void blasd_front_queue_tensor_list(struct blasd_front_queue *queue,
                                   const struct blasd_principal *principal, int limit,
                                   const char *cursor, blasd_tensors_fn done, void *arg) {
    struct tensor_call *c = ask(queue, "list", principal, list_reply, done, arg);
    struct blasd_err err;
    if (c == NULL) return;
    if (cursor != NULL && cursor[0] != '\0' && !is_cursor(cursor)) {
        blasd_fail(&err, BLASD_E_malformed_query, "cursor",
                   "cursor is not one that a page of GET /tensors gave");
        front_call_answer_later(&c->call, &err);
        return;
    }
    front_call_reads(&c->call);
    front_call_number(&c->call, (uint64_t)limit);
    front_call_text(&c->call, cursor == NULL ? "" : cursor);
    front_call_send(&c->call);
}
