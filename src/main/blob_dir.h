/* The blob directory that `blasd up` chooses where none is named. It lies on tmpfs, outside the
 * data directory: the operator who deletes that one by hand deletes this one too. */
#ifndef BLASD_MAIN_BLOB_DIR_H
#define BLASD_MAIN_BLOB_DIR_H

#include "main/data_dir.h"

#include <stdbool.h>
#include <sys/types.h>

#define BLOB_SPEC_MAX (PATH_MAX + 16)

/* Writes "dir:…" for --blobs. */
void blob_dir_choose(const struct data_dir *dir, char spec[BLOB_SPEC_MAX]);
/* Where its directory is gone, as after a reboot, or its token is, or another one, makes it again
 * with the token it had, so that a Redis which outlived it still takes it for the deployment's
 * store. False: it is not there, as before the first start, or for a reason that is logged. */
bool blob_dir_restore(const char *spec, const struct data_dir *dir);
/* Another one than before: somebody has removed it, as systemd does (RemoveIPC) with what a user
 * has in /dev/shm once that user's last session ends. A confined part cannot: it may remove what
 * lies in it alone. 0: there is none. */
ino_t blob_dir_inode(const char *spec);
/* Copies the token of a new store to the data directory, for blob_dir_restore. */
void blob_dir_keep_token(const char *spec, const struct data_dir *dir);
/* Once nobody uses it: removes the files kept for the next blobs, and the directory itself where it
 * holds no blob; the next start makes it anew. */
void blob_dir_remove_empty(const char *spec);

#endif
