/* A blob as it lies in the store, whole: a file is there already, values of Redis are moved in
 * chunks. For who waits for Redis; the front end does not (front_blob.c). */
#ifndef BLASD_QUEUE_BLOB_FETCH_H
#define BLASD_QUEUE_BLOB_FETCH_H

#include "redis/caller.h"
#include "store/store.h"

/* Opens and maps it; inputs_lost where it is not there. `queue` names the queue. */
int blasd_blob_fetch(struct blasd_caller *caller, const char *queue, struct blasd_store *store,
                     const char *name, uint64_t bytes, struct blasd_blob *blob,
                     struct blasd_err *err);

#endif
