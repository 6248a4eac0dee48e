/* Blocks of memory of one size, kept when they are given back and taken again, the last first.
 *
 * For what every request needs and is larger than a kilobyte: malloc has no quick list for that,
 * and before it looks for such a block it may sweep up all that was freed. For one thread. */
#ifndef BLASD_BASE_FREELIST_H
#define BLASD_BASE_FREELIST_H

#include <stddef.h>

struct blasd_freelist {
    size_t size;     /* of a block; at least that of a pointer */
    int most, count; /* kept at a time */
    void *first;     /* owned; each begins with a pointer to the next */
};

/* A block whose bytes are not set, or NULL where memory has run out. Give it back with
 * blasd_freelist_give, or free it. */
void *blasd_freelist_take(struct blasd_freelist *freelist) __attribute__((warn_unused_result));
/* The same, all zero. */
void *blasd_freelist_take_zeroed(struct blasd_freelist *freelist)
    __attribute__((warn_unused_result));
void blasd_freelist_give(struct blasd_freelist *freelist, void *block); /* takes NULL */
/* Frees what is kept; blocks that are out are not touched. */
void blasd_freelist_release(struct blasd_freelist *freelist);

#endif
