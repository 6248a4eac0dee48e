/* A folder of a test's own with a blob store in it, on tmpfs where there is one. */
#ifndef BLASD_TESTS_STORE_FIXTURE_H
#define BLASD_TESTS_STORE_FIXTURE_H

#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>

struct store_place {
    char base[64], dir[96], spec[112];
    struct blasd_store *store;
};

/* The folder is made in `where`. 0 or -1. */
static int store_place_open_at(struct store_place *place, const char *where) {
    struct blasd_err err;
    snprintf(place->base, sizeof place->base, "%s/blasd-test-XXXXXX", where);
    if (mkdtemp(place->base) == NULL) return -1;
    snprintf(place->dir, sizeof place->dir, "%s/blobs", place->base);
    snprintf(place->spec, sizeof place->spec, "dir:%s", place->dir);
    return blasd_store_open(place->spec, &place->store, &err) == 0 ? 0 : -1;
}

/* Any file system will do where there is no tmpfs. */
static __attribute__((unused)) int store_place_open(struct store_place *place) {
    return store_place_open_at(place, "/dev/shm") == 0 ? 0 : store_place_open_at(place, "/tmp");
}

static int store_place_close(struct store_place *place) {
    char command[128];
    blasd_store_free(place->store);
    snprintf(command, sizeof command, "rm -rf '%s'", place->base);
    return system(command) == 0 ? 0 : -1;
}

#endif
