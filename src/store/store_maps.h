/* Mappings of this process that nobody uses just now, kept for the next time the same file comes
 * out of the pool: mapping a file anew costs as much as copying into it.
 *
 * A mapping names the file by its inode, which cannot be another one's while it is mapped. Only
 * idle mappings are in here, for some seconds and bounded in bytes: they keep the memory of a file
 * that was unlinked meanwhile. Who watches is told of mappings that stay good for as long as they
 * are there, and before they go. Threads may share it. Internal to store.c. */
#ifndef BLASD_STORE_MAPS_H
#define BLASD_STORE_MAPS_H

#include "store/store.h"

#include <pthread.h>

struct store_map {
    void *data;
    uint64_t bytes, inode;
    bool writable, told; /* told: to who watches */
    int64_t since_ns;
};

#define STORE_MAPS_MOST 256

struct store_maps {
    pthread_mutex_t lock;
    int count;
    uint64_t bytes, limit;
    struct blasd_store_watch watch; /* set while nobody else has the store */
    struct store_map items[STORE_MAPS_MOST];
};

void store_maps_init(struct store_maps *maps, uint64_t limit);
void store_maps_release(struct store_maps *maps);
/* The caller's from here on; data NULL where there is none of at least `bytes`. */
struct store_map store_maps_take(struct store_maps *maps, uint64_t inode, bool writable,
                                 uint64_t bytes);
/* Who watches is to know of the mapping, or no more. */
void store_maps_tell(const struct store_maps *maps, struct store_map *map, bool good);
void store_maps_unmap(const struct store_maps *maps, struct store_map *map);
/* Takes the mapping, and unmaps what it has no room for. */
void store_maps_keep(struct store_maps *maps, struct store_map map);
/* Unmaps those that have been idle for a while, or all. */
void store_maps_trim(struct store_maps *maps, bool everything);

#endif
