/* A short list under a lock, the longest idle first; the unmapping is done outside the lock, for it
 * can take milliseconds. */
#include "store/store_maps.h"

#include "base/clock.h"

#include <string.h>
#include <sys/mman.h>

/* A result's file comes back some seconds after it was written, when its record has made way. Large
 * files are few, and cost more memory while they wait for nothing. */
#define IDLE_NS INT64_C(15000000000)
#define IDLE_LARGE_NS INT64_C(2000000000)
#define LARGE (UINT64_C(16) << 20)

void store_maps_init(struct store_maps *maps, uint64_t limit) {
    memset(maps, 0, sizeof *maps);
    pthread_mutex_init(&maps->lock, NULL);
    maps->limit = limit;
}

void store_maps_tell(const struct store_maps *maps, struct store_map *map, bool good) {
    if (maps->watch.comes == NULL || good == map->told) return;
    map->told = good;
    if (good)
        maps->watch.comes(maps->watch.arg, map->data, map->bytes, map->writable);
    else
        maps->watch.goes(maps->watch.arg, map->data);
}

void store_maps_unmap(const struct store_maps *maps, struct store_map *map) {
    store_maps_tell(maps, map, false);
    munmap(map->data, (size_t)map->bytes);
}

void store_maps_release(struct store_maps *maps) {
    store_maps_trim(maps, true);
    pthread_mutex_destroy(&maps->lock);
}

/* With the lock. */
static struct store_map take(struct store_maps *maps, int i) {
    struct store_map map = maps->items[i];
    maps->bytes -= map.bytes;
    maps->count--;
    memmove(&maps->items[i], &maps->items[i + 1], (size_t)(maps->count - i) * sizeof *maps->items);
    return map;
}

struct store_map store_maps_take(struct store_maps *maps, uint64_t inode, bool writable,
                                 uint64_t bytes) {
    struct store_map map = {.data = NULL};
    pthread_mutex_lock(&maps->lock);
    for (int i = 0; i < maps->count; i++)
        if (maps->items[i].inode == inode && maps->items[i].writable == writable &&
            maps->items[i].bytes >= bytes) {
            map = take(maps, i);
            break;
        }
    pthread_mutex_unlock(&maps->lock);
    return map;
}

void store_maps_keep(struct store_maps *maps, struct store_map map) {
    bool kept = false;
    map.since_ns = blasd_clock_ns();
    while (map.bytes <= maps->limit && !kept) {
        struct store_map other = {.data = NULL};
        pthread_mutex_lock(&maps->lock);
        kept = maps->count < STORE_MAPS_MOST && maps->bytes <= maps->limit - map.bytes;
        if (kept) {
            maps->items[maps->count++] = map;
            maps->bytes += map.bytes;
        } else {
            other = take(maps, 0);
        }
        pthread_mutex_unlock(&maps->lock);
        if (!kept) store_maps_unmap(maps, &other);
    }
    if (!kept) store_maps_unmap(maps, &map);
}

/* With the lock: one that has been idle for long, or -1. */
static int find_idle(const struct store_maps *maps, int64_t now) {
    for (int i = 0; i < maps->count; i++) {
        const struct store_map *map = &maps->items[i];
        if (now - map->since_ns > (map->bytes > LARGE ? IDLE_LARGE_NS : IDLE_NS)) return i;
    }
    return -1;
}

void store_maps_trim(struct store_maps *maps, bool everything) {
    int64_t now = blasd_clock_ns();
    for (;;) {
        struct store_map map = {.data = NULL};
        int i;
        pthread_mutex_lock(&maps->lock);
        i = everything ? maps->count - 1 : find_idle(maps, now);
        if (i >= 0) map = take(maps, i);
        pthread_mutex_unlock(&maps->lock);
        if (map.data == NULL) return;
        store_maps_unmap(maps, &map);
    }
}
