/* The directory behind a store of kind dir: its token, and files locked while they are written.
 *
 * Internal to store.c; knows nothing of mappings or jobs. */
#ifndef BLASD_STORE_DIR_H
#define BLASD_STORE_DIR_H

#include "store/store.h"
#include "store/store_pool.h"

#define BLASD_STORE_TOKEN 32 /* hexadecimal digits */

/* Opens (making it where it is missing) the directory `path`, checks that it is the caller's alone
 * and reads its token. *fd is the caller's to close. */
int blasd_store_dir_open(const char *path, int *fd, char token[BLASD_STORE_TOKEN + 1],
                         struct blasd_err *err);
/* Makes the file `name`, which must not exist, and locks it. Returns a descriptor or a negative
 * code. */
int blasd_store_dir_create(int dir_fd, const char *name, struct blasd_err *err);
/* See blasd_store_sweep. Large files go into the pool. */
int blasd_store_dir_sweep(const struct store_pool *pool,
                          int (*referenced)(void *arg, const char (*names)[BLASD_BLOB_NAME],
                                            int count, bool *keep),
                          void *arg, struct blasd_err *err);

/* Whether `name` is that of a blob, ID.in or ID.out, or of a segment, NAME.seg. */
bool blasd_blob_name_valid(const char *name);

#endif
