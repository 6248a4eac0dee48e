/* Read next: functions/contract.lua for the keys. */
#include "queue/blob_fetch.h"

#include "queue/queue_link.h"

#include <inttypes.h>
#include <string.h>

/* One chunk into its place. */
static int fetch(struct blasd_caller *caller, const char *queue, struct blasd_blob *blob,
                 uint64_t n, size_t len, struct blasd_err *err) {
    char key[BLASD_LINK_KEY_MAX];
    redisReply *reply;
    blasd_link_key(key, queue, ":blob:%s:%" PRIu64, blob->name, n);
    blasd_caller_command(caller, "GET");
    blasd_caller_text(caller, key);
    int rc = blasd_caller_call(caller, &reply, err);
    if (rc == 0 && (reply->type != REDIS_REPLY_STRING || (size_t)reply->len != len))
        rc = blasd_fail(err, BLASD_E_inputs_lost, "", "The blob %s is not in Redis any more",
                        blob->name);
    if (rc == 0) memcpy((char *)blob->data + n * BLASD_QUEUE_CHUNK, reply->str, len);
    freeReplyObject(reply);
    return rc;
}

int blasd_blob_fetch(struct blasd_caller *caller, const char *queue, struct blasd_store *store,
                     const char *name, uint64_t bytes, struct blasd_blob *blob,
                     struct blasd_err *err) {
    int rc;
    if (blasd_store_kind(store) == BLASD_STORE_DIR) {
        rc = blasd_blob_open(store, name, bytes, blob, err);
        if (rc == 0) rc = blasd_blob_map(blob, err);
        goto done;
    }
    rc = blasd_blob_create(store, name, blob, err);
    if (rc == 0) rc = blasd_blob_grow(blob, bytes, err);
    if (rc == 0 && bytes) rc = blasd_blob_map(blob, err);
    for (uint64_t at = 0, n = 0; rc == 0 && at < bytes; at += BLASD_QUEUE_CHUNK, n++) {
        uint64_t left = bytes - at;
        rc = fetch(caller, queue, blob, n,
                   (size_t)(left < BLASD_QUEUE_CHUNK ? left : BLASD_QUEUE_CHUNK), err);
    }
done:
    if (rc < 0) blasd_blob_close(blob);
    return rc;
}
