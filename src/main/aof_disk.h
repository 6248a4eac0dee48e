/* The disk of a Redis' append-only file: whether it has room for more jobs, and blocks for the file
 * that are held before they are needed.
 *
 * A Redis with `appendfsync no` that finds the disk full answers the commands whose write failed:
 * killed then, it has lost them. So the blocks behind the end of the file are always its own
 * already, and jobs are refused while less than a reserve is free. Read next: redis_care.h. */
#ifndef BLASD_MAIN_AOF_DISK_H
#define BLASD_MAIN_AOF_DISK_H

#include "base/err.h"
#include "base/limits.h"

#include <limits.h>
#include <stdbool.h>

struct aof_disk {
    char dir[PATH_MAX];  /* Redis' own; the files are in appendonlydir/ */
    uint64_t reserve;    /* bytes; half of it is held behind the file */
    uint64_t free_bytes; /* as of the last look, as the next two */
    uint64_t appended;   /* bytes of the file that Redis appends to */
    bool is_short;       /* less than the reserve is free */
    bool is_full; /* blocks could not be had, or were used up unseen: a write may have failed */

    /* its own */
    char newest[NAME_MAX + 1]; /* the file appended to; "": none */
    uint64_t ahead_end;        /* its blocks are there up to this offset */
};

/* `reserve`: the limit disk_reserve_bytes, 0 for a part of the disk. invalid_field where the disk
 * is too small for it. */
int aof_disk_open(struct aof_disk *disk, const char *dir, uint64_t reserve, struct blasd_err *err);
/* Looks at the disk, and holds the blocks; to be called several times a second. */
void aof_disk_look(struct aof_disk *disk);
/* Forgets what is held: Redis starts again, and may cut its file. */
void aof_disk_forget(struct aof_disk *disk);
/* The size from which Redis is to rewrite the file by itself: small beside the disk. */
uint64_t aof_disk_rewrite_bytes(const struct aof_disk *disk);

#endif
