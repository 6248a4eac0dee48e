/* The directory of one deployment: its lock, its token, the files of its Redis. Read next:
 * private_redis.h. */
#ifndef BLASD_MAIN_DATA_DIR_H
#define BLASD_MAIN_DATA_DIR_H

#include "base/err.h"

#include <limits.h>

#define INSTANCE_LEN 16

struct data_dir {
    char path[PATH_MAX];             /* absolute */
    int lock_fd;                     /* held as long as the service runs; -1: not locked */
    char instance[INSTANCE_LEN + 1]; /* random, the same at every start */
};

/* Finds the directory (`path` NULL: where the user's state belongs), makes it with mode 0700 where
 * it is missing, refuses one that belongs to somebody else, and locks it: another `blasd up` that
 * holds it is waited for a few seconds, for one that was killed may still be ending. */
int data_dir_open(struct data_dir *dir, const char *path, struct blasd_err *err);
/* Makes a new directory below $TMPDIR, or /tmp, and opens it. */
int data_dir_open_temporary(struct data_dir *dir, struct blasd_err *err);
void data_dir_close(struct data_dir *dir);
/* Removes a directory with all that is in it; follows no link. */
void data_dir_remove_tree(const char *path);

#endif
