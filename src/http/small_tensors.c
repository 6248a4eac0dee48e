/* Small tensors by id: a place for each that an id may have, the newest one in it. */
#include "http/small_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACES 256 /* so there are 4 MiB at the most */

struct http_small_tensor {
    char id[BLASD_ID_LEN + 1];
    void *bytes; /* owned; NULL: the place is free */
};

/* An id ends in two random digits. */
static struct http_small_tensor *place_of(struct http_small_tensor *places, const char *id) {
    unsigned long at = strtoul(id + BLASD_ID_LEN - 2, NULL, 16);
    return &places[at % PLACES];
}

static void *read_bytes(struct blasd_store *store, const struct blasd_stored_tensor *tensor) {
    struct blasd_blob blob = {.fd = -1};
    struct blasd_err err;
    char name[BLASD_BLOB_NAME];
    uint64_t size = blasd_stored_bytes(tensor->bytes);
    void *bytes = malloc((size_t)size);
    int rc = bytes == NULL ? -1 : 0;
    snprintf(name, sizeof name, "%s.in", tensor->id);
    if (rc == 0) rc = blasd_blob_open(store, name, size, &blob, &err);
    if (rc == 0) rc = blasd_blob_read(&blob, 0, bytes, (size_t)tensor->bytes, &err);
    blasd_blob_close(&blob);
    if (rc == 0) return bytes;
    free(bytes);
    return NULL;
}

const void *http_small_tensor(struct http_small_tensors *small, struct blasd_store *store,
                              const struct blasd_stored_tensor *tensor) {
    struct http_small_tensor *place;
    void *bytes;
    if (tensor->bytes > HTTP_SMALL_TENSOR || blasd_store_kind(store) != BLASD_STORE_DIR)
        return NULL;
    if (small->of == NULL) small->of = calloc(PLACES, sizeof *small->of);
    if (small->of == NULL) return NULL;
    place = place_of(small->of, tensor->id);
    if (place->bytes != NULL && strcmp(place->id, tensor->id) == 0) return place->bytes;
    bytes = read_bytes(store, tensor);
    if (bytes == NULL) return NULL;
    free(place->bytes);
    place->bytes = bytes;
    snprintf(place->id, sizeof place->id, "%s", tensor->id);
    return bytes;
}

void http_small_tensors_release(struct http_small_tensors *small) {
    for (int i = 0; small->of != NULL && i < PLACES; i++) free(small->of[i].bytes);
    free(small->of);
    small->of = NULL;
}
