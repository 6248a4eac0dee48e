/* Memory for the tensors of one batch: taken piece by piece, given back all at once, kept for the
 * next batch, so that a worker in its stride calls malloc for no job. Read next: map_io.h. */
#ifndef BLASD_WORKER_ARENA_H
#define BLASD_WORKER_ARENA_H

#include <stdint.h>

struct blasd_arena_block;

struct blasd_arena {
    struct blasd_arena_block *blocks; /* owned; the one being filled first */
    uint64_t used;                    /* bytes taken since the last reset */
    uint64_t max;                     /* bytes that may be taken between two resets */
    uint64_t keep;                    /* most bytes held across a reset */
    uint64_t want;                    /* size of the next first block */
};

/* Makes an empty arena; allocates nothing. */
void blasd_arena_init(struct blasd_arena *arena, uint64_t max, uint64_t keep);
void blasd_arena_release(struct blasd_arena *arena);
/* Bytes aligned to 64, holding anything, valid until the reset; never NULL for 0 bytes unless
 * memory has run out. NULL where the cap or the machine's memory does not allow it. */
void *blasd_arena_take(struct blasd_arena *arena, uint64_t bytes);
/* Takes everything back. */
void blasd_arena_reset(struct blasd_arena *arena);

/* How far it is filled. */
struct blasd_arena_mark {
    const struct blasd_arena_block *block;
    uint64_t at, used;
};
struct blasd_arena_mark blasd_arena_mark(const struct blasd_arena *arena);
/* Takes back what was taken since the mark, and no reset since. */
void blasd_arena_rewind(struct blasd_arena *arena, const struct blasd_arena_mark *mark);

#endif
