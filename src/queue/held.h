/* The jobs a worker has claimed and not ended, and which of them have begun: what it tells Redis so
 * that its jobs can be found should it die. A small hash table by id.
 *
 * Internal to worker_queue.c; knows nothing of Redis. */
#ifndef BLASD_QUEUE_HELD_H
#define BLASD_QUEUE_HELD_H

#include "base/buf.h"
#include "base/id.h"

struct blasd_held_slot {
    char id[BLASD_ID_LEN + 1]; /* "": free */
    int64_t begun_us;          /* Redis' clock; 0: not yet */
};

/* Zeroed it is empty. */
struct blasd_held {
    struct blasd_held_slot *slots; /* owned */
    size_t room;                   /* 0 or a power of two, at least twice `count` */
    size_t count;
};

void blasd_held_release(struct blasd_held *held); /* frees; leaves it empty */
void blasd_held_clear(struct blasd_held *held);   /* forgets the ids, keeps the memory */
/* 0, or -1 where memory has run out. Adding twice is as adding once. */
int blasd_held_add(struct blasd_held *held, const char *id);
void blasd_held_remove(struct blasd_held *held, const char *id);
/* Notes that the job begins; ids that are not held are ignored. */
void blasd_held_begin(struct blasd_held *held, const char *id, int64_t us);
/* Appends "ID ID ..."; 0, or -1 where memory has run out. */
int blasd_held_write(const struct blasd_held *held, struct blasd_buf *out);
/* Appends a line "US ID" for each job that has begun, but one line "US ID ID ..." for all of `us`,
 * the batch that is beginning. */
int blasd_held_write_begun(const struct blasd_held *held, int64_t us, struct blasd_buf *out);

#endif
