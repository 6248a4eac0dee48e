/* Room on the disk for a Redis' append-only file, held before it is needed.
 *
 * A Redis with `appendfsync no` that finds the disk full answers the commands whose write failed:
 * killed then, it has lost them. So the blocks behind the end of the file it appends to are always
 * its own already, whoever fills the disk, and a ballast file lies beside: what rewriting the file
 * needs where nothing else is left, or, where that would bring nothing, the file itself. Below a
 * reserve of free space
 * (`is_short`) nobody is to put more in than must be. */
#ifndef BLASD_MAIN_AOF_ROOM_H
#define BLASD_MAIN_AOF_ROOM_H

#include "base/limits.h"

#include <limits.h>
#include <stdbool.h>

struct blasd_aof_room {
    char dir[PATH_MAX];       /* Redis' own; the files are in appendonlydir/ */
    uint64_t reserve;         /* bytes; half of it is held ahead of the file, half is ballast */
    uint64_t free_bytes;      /* of the disk, as of the last look */
    uint64_t bytes, appended; /* of all files; of those that a rewrite makes anew */
    bool is_short;
    bool has_ballast;
    bool rewriting; /* set by who asks for a rewrite: what is free is left to it */

    /* its own */
    char newest[NAME_MAX + 1]; /* the file appended to */
    uint64_t ahead_end;        /* its blocks are there up to this offset */
};

/* `reserve`: the limit disk_reserve_bytes, 0 for a part of the disk. Gives the ballast up where
 * space is short already, so that the service can start. */
void blasd_aof_room_open(struct blasd_aof_room *room, const char *dir, uint64_t reserve);
/* To be called several times a second: looks at disk and files, holds what is to be held. */
void blasd_aof_room_look(struct blasd_aof_room *room);
/* Whether a rewrite of the file is worth the ballast. */
bool blasd_aof_room_rewritable(const struct blasd_aof_room *room);
void blasd_aof_room_drop_ballast(struct blasd_aof_room *room);
/* Where there is room for it at all. */
void blasd_aof_room_hold_ballast(struct blasd_aof_room *room);
/* The size from which Redis is to rewrite the file by itself: small beside the disk. */
uint64_t blasd_aof_room_rewrite_bytes(const struct blasd_aof_room *room);

#endif
