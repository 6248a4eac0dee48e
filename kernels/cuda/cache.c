/* Inputs that are kept on the device, so that a tensor which many jobs use goes up once; and
 * resident outputs, for steps to come of the same graph.
 *
 * A copy is filled from where the first such input came to lie, and from then on copied to where
 * the next ones are to lie, within the device. Both are put on the upload stream alone, so they are
 * in order whatever is dropped in between. A copy only saves a transfer: whoever maps a job's
 * inputs has made sure that they still are there.
 *
 * To a task that has a part for itself the copy is lent: it is read where it lies, as no operation
 * writes to its inputs, and neither goes nor changes until the part has ended.
 *
 * A resident output may be here alone. It has a home, its place on the host, to which it is
 * written before it is dropped. It is filled, and written home, on the download stream, and what it
 * is given the memory of was read on the upload stream before the part that makes it computed. Read
 * next: async_batch.c, where the copies are made, then residents.c. */
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

static bool is_nobodys(const struct blasd_cuda_copy *copy) {
    return copy->key.len == 0;
}

/* The host has it afterwards. */
static int write_home(struct blasd_device *device, struct blasd_cuda_copy *copy,
                      struct blasd_err *err) {
    int code;
    if (copy->home == NULL) return 0;
    code = blasd_cuda_copy_to_host(device, copy->home, copy->memory, copy->bytes, err);
    if (code != 0) return code;
    device->cache.brought += copy->bytes;
    copy->home = NULL;
    return 0;
}

/* The one not used for longest, but those of the part that is being put on its streams. */
static struct blasd_cuda_copy *oldest(struct blasd_cuda_cache *cache) {
    struct blasd_cuda_copy *found = NULL;
    for (int i = 0; i < cache->count; i++)
        if (!cache->copies[i].in_use && cache->copies[i].lent == 0 &&
            (found == NULL || cache->copies[i].used < found->used))
            found = &cache->copies[i];
    return found;
}

static bool suits(const struct blasd_cuda_copy *copy, size_t bytes) {
    return copy->room >= bytes && copy->room / 2 <= bytes;
}

static struct blasd_cuda_copy *nobodys(struct blasd_cuda_cache *cache, size_t bytes) {
    for (int i = 0; i < cache->count; i++)
        if (is_nobodys(&cache->copies[i]) && cache->copies[i].lent == 0 &&
            suits(&cache->copies[i], bytes))
            return &cache->copies[i];
    return NULL;
}

/* Memory for `bytes`: that of an old copy where it fits, for to free some waits for the device. */
static bool find_room(struct blasd_device *device, size_t bytes, char **memory, size_t *room) {
    struct blasd_cuda_cache *cache = &device->cache;
    struct blasd_cuda_copy *old = nobodys(cache, bytes);
    uint64_t most = most_bytes(device);
    struct blasd_err ignored;
    void *fresh = NULL;
    if (bytes > most) return false;
    while (old != NULL || cache->count == BLASD_CUDA_COPIES || cache->bytes + bytes > most) {
        if (old == NULL) old = oldest(cache);
        if (old == NULL || write_home(device, old, &ignored) != 0) return false;
        if (suits(old, bytes)) {
            *memory = old->memory;
            *room = old->room;
            take_out(cache, old);
            return true;
        }
        drop(device, old);
        old = NULL;
    }
    if (device->calls->device_alloc(device->gpu, bytes, &fresh, &ignored) != 0) return false;
    *memory = fresh;
    *room = bytes;
    return true;
}

/* A copy with a name and memory, not filled yet; NULL: there is no room. */
static struct blasd_cuda_copy *add(struct blasd_device *device, const struct blasd_key *key,
                                   const void *place, size_t bytes) {
    struct blasd_cuda_cache *cache = &device->cache;
    struct blasd_cuda_copy *copy;
    char *memory;
    size_t room;
    if (!find_room(device, bytes, &memory, &room)) return NULL;
    cache->bytes += room;
    copy = &cache->copies[cache->count++];
    *copy = (struct blasd_cuda_copy){.key = *key,
                                     .hash = blasd_hash_bytes(0, key->bytes, key->len),
                                     .memory = memory,
                                     .room = room,
                                     .from = place,
                                     .in_use = true,
                                     .used = ++cache->turn};
    return copy;
}

void blasd_cuda_cache_use(struct blasd_device *device, const struct blasd_key *key) {
    struct blasd_cuda_copy *copy = find(&device->cache, key);
    if (copy != NULL) copy->in_use = true;
}

bool blasd_cuda_cache_hold(struct blasd_device *device, const struct blasd_key *key,
                           const void *place, size_t bytes) {
    struct blasd_cuda_cache *cache = &device->cache;
    struct blasd_cuda_copy *copy = find(cache, key);
    if (copy != NULL) {
        copy->in_use = true;
        copy->used = ++cache->turn;
        return true;
    }
    if (key != NULL && key->len <= BLASD_KEY_MAX && bytes >= device->sizes.cache_least && bytes > 0)
        (void)add(device, key, place, bytes);
    return false;
}

char *blasd_cuda_cache_lend(struct blasd_device *device, const struct blasd_key *key, size_t bytes,
                            bool *fresh) {
    struct blasd_cuda_copy *copy;
    *fresh = !blasd_cuda_cache_hold(device, key, NULL, bytes);
    copy = find(&device->cache, key);
    if (copy == NULL) return NULL;
    if (*fresh) copy->from = copy->memory; /* a part that fails has not filled it */
    copy->lent++;
    return copy->memory;
}

void blasd_cuda_cache_return(struct blasd_device *device, const char *memory) {
    struct blasd_cuda_cache *cache = &device->cache;
    for (int i = 0; i < cache->count; i++)
        if (cache->copies[i].memory == memory) cache->copies[i].lent--;
}

int blasd_cuda_cache_copy(struct blasd_device *device, const struct blasd_key *key, void *place,
                          size_t bytes, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = device->calls;
    struct blasd_cuda_copy *copy = find(&device->cache, key);
    const void *from = copy != NULL ? copy->from : NULL;
    int code = 0;
    if (copy == NULL) return 0;
    if (from != NULL && from != copy->memory)
        code = calls->copy_within(device->up, copy->memory, from, bytes, err);
    if (code == 0 && from != place && place != copy->memory)
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

bool blasd_cuda_cache_make_resident(struct blasd_device *device, const struct blasd_key *key,
                                    const void *place, size_t bytes, void *home) {
    struct blasd_cuda_copy *copy = find(&device->cache, key);
    if (key->len == 0 || key->len > BLASD_KEY_MAX || bytes == 0) return false;
    if (copy != NULL && copy->room < bytes) { /* of a part that was tried before */
        drop(device, copy);
        copy = NULL;
    }
    if (copy == NULL) copy = add(device, key, place, bytes);
    if (copy == NULL) return false;
    copy->from = place;
    copy->home = home;
    copy->bytes = bytes;
    copy->in_use = true;
    return true;
}

int blasd_cuda_cache_fill(struct blasd_device *device, const struct blasd_key *key,
                          struct blasd_err *err) {
    struct blasd_cuda_copy *copy = find(&device->cache, key);
    int code = device->calls->copy_within(device->down, copy->memory, copy->from, copy->bytes, err);
    if (code == 0) copy->from = NULL;
    return code;
}

bool blasd_cuda_cache_device_only(struct blasd_device *device, const struct blasd_key *key) {
    const struct blasd_cuda_copy *copy = find(&device->cache, key);
    return copy != NULL && copy->home != NULL;
}

int blasd_cuda_cache_to_host(struct blasd_device *device, const struct blasd_key *key,
                             struct blasd_err *err) {
    struct blasd_cuda_copy *copy = find(&device->cache, key);
    return copy == NULL ? 0 : write_home(device, copy, err);
}

/* Its memory is for the next one. */
static void forget(struct blasd_cuda_copy *copy) {
    copy->key.len = 0;
    copy->hash = copy->used = 0;
    copy->home = NULL;
}

void blasd_cuda_cache_forget(struct blasd_device *device, const struct blasd_key *prefix) {
    struct blasd_cuda_cache *cache = &device->cache;
    for (int i = cache->count - 1; i >= 0; i--) {
        struct blasd_cuda_copy *copy = &cache->copies[i];
        if (prefix == NULL && is_nobodys(copy))
            drop(device, copy);
        else if (prefix != NULL && !is_nobodys(copy) && copy->key.len >= prefix->len &&
                 memcmp(copy->key.bytes, prefix->bytes, prefix->len) == 0)
            forget(copy);
    }
}

void blasd_cuda_cache_clear(struct blasd_device *device) {
    struct blasd_err ignored;
    for (int i = device->cache.count - 1; i >= 0; i--)
        if (write_home(device, &device->cache.copies[i], &ignored) == 0)
            drop(device, &device->cache.copies[i]);
}

void blasd_cuda_cache_release(struct blasd_device *device) {
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
