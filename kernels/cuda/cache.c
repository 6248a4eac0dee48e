/* Inputs that stay on the device, so that a tensor which many jobs use goes up once.
 *
 * A copy is filled from where the first such input came to lie, and from then on copied to where
 * the next ones are to lie, within the device. Both are put on the upload stream alone, so they are
 * in order whatever is dropped in between, and kernels may write to their inputs as ever. A copy
 * only saves a transfer: whoever maps a job's inputs has made sure that they still are there. Read
 * next: async_batch.c, where the copies are made. */
#include "base/hash.h"
#include "kernels/cuda/device.h"

#include <string.h>

/* What it may hold: the device's memory is for jobs first. */
static uint64_t most_bytes(const struct blasd_device *device) {
    return device->sizes.cache_bytes > 0 ? device->sizes.cache_bytes
                                         : device->facts.memory_free_bytes / 4;
}

static struct blasd_cuda_copy *find(struct blasd_cuda_cache *cache, const struct blasd_key *key) {
    uint64_t hash;
    if (key == NULL || key->len > BLASD_KEY_MAX) return NULL;
    hash = blasd_hash_bytes(0, key->bytes, key->len);
    for (int i = 0; i < cache->count; i++)
        if (cache->copies[i].hash == hash && blasd_key_equal(&cache->copies[i].key, key))
            return &cache->copies[i];
    return NULL;
}

/* Takes it out; its memory is the caller's. */
static void take_out(struct blasd_cuda_cache *cache, struct blasd_cuda_copy *copy) {
    cache->bytes -= copy->room;
    *copy = cache->copies[--cache->count];
}

static void drop(struct blasd_device *device, struct blasd_cuda_copy *copy) {
    char *memory = copy->memory;
    take_out(&device->cache, copy);
    device->calls->device_free(device->gpu, memory);
}

/* The one not used for longest, but those of the part that is being put on its streams. */
static struct blasd_cuda_copy *oldest(struct blasd_cuda_cache *cache) {
    struct blasd_cuda_copy *found = NULL;
    for (int i = 0; i < cache->count; i++)
        if (!cache->copies[i].in_use && (found == NULL || cache->copies[i].used < found->used))
            found = &cache->copies[i];
    return found;
}

/* Memory for `bytes`: that of an old copy where it fits, for to free some waits for the device. */
static bool find_room(struct blasd_device *device, size_t bytes, char **memory, size_t *room) {
    struct blasd_cuda_cache *cache = &device->cache;
    uint64_t most = most_bytes(device);
    struct blasd_err ignored;
    void *fresh = NULL;
    if (bytes > most) return false;
    while (cache->count == BLASD_CUDA_COPIES || cache->bytes + bytes > most) {
        struct blasd_cuda_copy *old = oldest(cache);
        if (old == NULL) return false;
        if (old->room >= bytes && old->room / 2 <= bytes) {
            *memory = old->memory;
            *room = old->room;
            take_out(cache, old);
            return true;
        }
        drop(device, old);
    }
    if (device->calls->device_alloc(device->gpu, bytes, &fresh, &ignored) != 0) return false;
    *memory = fresh;
    *room = bytes;
    return true;
}

bool blasd_cuda_cache_hold(struct blasd_device *device, const struct blasd_key *key,
                           const void *place, size_t bytes) {
    struct blasd_cuda_cache *cache = &device->cache;
    struct blasd_cuda_copy *copy = find(cache, key);
    char *memory;
    size_t room;
    if (copy != NULL) {
        copy->in_use = true;
        copy->used = ++cache->turn;
        return true;
    }
    if (key == NULL || key->len > BLASD_KEY_MAX || bytes < device->sizes.cache_least ||
        bytes == 0 || !find_room(device, bytes, &memory, &room))
        return false;
    cache->bytes += room;
    cache->copies[cache->count++] =
        (struct blasd_cuda_copy){.key = *key,
                                 .hash = blasd_hash_bytes(0, key->bytes, key->len),
                                 .memory = memory,
                                 .room = room,
                                 .from = place,
                                 .in_use = true,
                                 .used = ++cache->turn};
    return false;
}

int blasd_cuda_cache_copy(struct blasd_device *device, const struct blasd_key *key, void *place,
                          size_t bytes, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = device->calls;
    struct blasd_cuda_copy *copy = find(&device->cache, key);
    const void *from = copy != NULL ? copy->from : NULL;
    int code = 0;
    if (copy == NULL) return 0;
    if (from != NULL) code = calls->copy_within(device->up, copy->memory, from, bytes, err);
    if (code == 0 && from != place)
        code = calls->copy_within(device->up, place, copy->memory, bytes, err);
    if (code == 0) copy->from = NULL;
    return code;
}

void blasd_cuda_cache_settle(struct blasd_device *device) {
    struct blasd_cuda_cache *cache = &device->cache;
    for (int i = cache->count - 1; i >= 0; i--) {
        cache->copies[i].in_use = false;
        if (cache->copies[i].from != NULL) drop(device, &cache->copies[i]);
    }
}

void blasd_cuda_cache_clear(struct blasd_device *device) {
    while (device->cache.count > 0) drop(device, &device->cache.copies[device->cache.count - 1]);
}

static bool told_already(char (*ids)[BLASD_ID_LEN + 1], int count, const char *id) {
    for (int i = 0; i < count; i++)
        if (memcmp(ids[i], id, BLASD_ID_LEN) == 0) return true;
    return false;
}

int blasd_cuda_cache_ids(const struct blasd_device *device, char (*ids)[BLASD_ID_LEN + 1],
                         int most) {
    const struct blasd_cuda_cache *cache = &device->cache;
    int count = 0;
    for (uint64_t below = UINT64_MAX; count < most;) {
        const struct blasd_cuda_copy *next = NULL;
        for (int i = 0; i < cache->count; i++)
            if (cache->copies[i].used < below &&
                (next == NULL || cache->copies[i].used > next->used))
                next = &cache->copies[i];
        if (next == NULL) break;
        below = next->used;
        const char *id = (const char *)next->key.bytes;
        if (next->key.len < BLASD_ID_LEN || told_already(ids, count, id)) continue;
        memcpy(ids[count], id, BLASD_ID_LEN);
        ids[count++][BLASD_ID_LEN] = '\0';
    }
    return count;
}
