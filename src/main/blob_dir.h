/* The blob directory that `blasd up` chooses where none is named. It lies on tmpfs, outside the
 * data directory, so somebody has to see to it that it does not outlive that one: memory would stay
 * taken for ever. */
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
/* Once the store stands: keeps its token for that, and notes in it whose it is. Returns a
 * descriptor to be held, which tells others that it is in use, or -1. */
int blob_dir_mark(const char *spec, const struct data_dir *dir);
/* Removes the blob directories of data directories that are gone, of this user and on this view of
 * the file system, that nobody holds. */
void blob_dir_remove_stale(void);
/* Once nobody uses it: removes the files kept for the next blobs, and the directory itself where it
 * holds no blob; the next start makes it anew. */
void blob_dir_remove_empty(const char *spec);

#endif
