/* A hash table of nodes that lie in the structs they find (container.h). Whoever keeps one computes
 * the hash and compares the keys. It grows by itself; where there is no memory for it chains grow
 * longer, and that is all. Owns its buckets alone. */
#ifndef BLASD_BASE_HASH_H
#define BLASD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct blasd_hash_node {
    struct blasd_hash_node *next; /* in its bucket */
    uint64_t hash;
};

/* Zeroed: empty. */
struct blasd_hash {
    struct blasd_hash_node **buckets; /* owned */
    size_t size, count;               /* buckets, a power of two or 0; nodes */
};

/* `seed` begins; what one call gives may seed the next. Only where the seed is secret can nobody
 * choose keys that meet in one bucket. */
uint64_t blasd_hash_bytes(uint64_t seed, const void *bytes, size_t len);

/* Adds a node that is in no table; 0, or -1 where there is no memory for even one bucket. */
int blasd_hash_add(struct blasd_hash *table, struct blasd_hash_node *node, uint64_t hash)
    __attribute__((warn_unused_result));
/* Takes out a node that is in the table. */
void blasd_hash_remove(struct blasd_hash *table, struct blasd_hash_node *node);
/* The node of that hash that comes after `last`, or, where this is NULL, the first; NULL where
 * there is none. Their keys may still differ. */
struct blasd_hash_node *blasd_hash_find(const struct blasd_hash *table, uint64_t hash,
                                        struct blasd_hash_node *last);
/* Any node, while there is one. */
struct blasd_hash_node *blasd_hash_any(const struct blasd_hash *table);
/* Calls `each` with every node; it may take out the node it is called with. */
void blasd_hash_each(struct blasd_hash *table,
                     void (*each)(void *arg, struct blasd_hash_node *node), void *arg);
/* Frees the buckets; nodes are not touched. */
void blasd_hash_release(struct blasd_hash *table);

#endif
