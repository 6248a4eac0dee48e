/* What a worker has claimed and not ended, and what of it has begun: what it tells Redis so that
 * its jobs can be found should it die. A small hash table by name, which is a job's id or that of a
 * packet (queue/functions/contract.lua); a packet is held as long as one of its jobs is.
 *
 * Internal to worker_*.c; knows nothing of Redis. */
#ifndef BLASD_QUEUE_HELD_H
#define BLASD_QUEUE_HELD_H

#include "base/buf.h"
#include "base/id.h"

struct blasd_held_slot {
    char name[BLASD_ID_LEN + 1]; /* "": free */
    int jobs, left;              /* it was claimed with, and that have not ended */
    int64_t begun_us;            /* Redis' clock; 0: not yet */
};

/* Zeroed it is empty. */
struct blasd_held {
    struct blasd_held_slot *slots; /* owned */
    size_t room;                   /* 0 or a power of two, at least twice `count` */
    size_t count;                  /* names */
    size_t jobs;                   /* that have not ended, of all */
};

void blasd_held_release(struct blasd_held *held); /* frees; leaves it empty */
void blasd_held_clear(struct blasd_held *held);   /* forgets the names, keeps the memory */
/* Adds a job (`jobs` 1), or a packet, by its name. 0, or -1 where memory has
 * run out. Adding twice is as adding once. */
int blasd_held_add(struct blasd_held *held, const char *name, size_t name_len, int jobs);
/* The job has ended. */
void blasd_held_remove(struct blasd_held *held, const char *id);
/* How many jobs the packet of this job has, where it is held and none of them has ended; else 0. */
int blasd_held_packet(const struct blasd_held *held, const char *id);
/* Notes that the job begins, and its packet with it; what is not held is ignored. */
void blasd_held_begin(struct blasd_held *held, const char *id, int64_t us);
/* Appends "NAME NAME ..."; 0, or -1 where memory has run out. */
int blasd_held_write(const struct blasd_held *held, struct blasd_buf *out);
/* Appends a line "US NAME" for each that has begun, but one line "US NAME NAME ..." for all of
 * `us`, the batch that is beginning. */
int blasd_held_write_begun(const struct blasd_held *held, int64_t us, struct blasd_buf *out);

#endif
