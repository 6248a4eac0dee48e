/* Memory of one size that is used again, the latest first: what was just given back is still in the
 * caches. Where thousands are in use at a time malloc's own store of them is too small, and each
 * would be cut from, and joined with, its neighbours. Not for several threads. */
#ifndef BLASD_BASE_SPARES_H
#define BLASD_BASE_SPARES_H

#include <stddef.h>

struct blasd_spares {
    void *first; /* owned; the next one stands at the beginning of each */
    size_t count;
};

/* New memory of `size` bytes, which must be the same each time, all zero; NULL: there is none.
 * `spares` may be NULL here and in the next: nothing is kept then. */
void *blasd_spares_take(struct blasd_spares *spares, size_t size);
/* Gives back what was taken. More than `most` are not kept. */
void blasd_spares_give(struct blasd_spares *spares, void *memory, size_t most);
/* Frees those that were given back. */
void blasd_spares_release(struct blasd_spares *spares);

#endif
