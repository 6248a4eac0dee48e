/* Host memory that the card reads and writes where it lies: files of the store that stay mapped.
 *
 * The worker says which memory comes and goes. A mapping that more than one batch uses is
 * registered with the driver, whole: then copies to and from it need no chunk between. Registered
 * pages stay in memory, so there is a bound, and what was not used for longest makes way. What
 * cannot be registered goes through the rings like everything else.
 *
 * A driver knows pages, not addresses: memory that was unmapped, or whose file was cut, while it
 * was registered would be read as it once was. So whoever maps a file says that it goes before it
 * does either (store/store.h). That may be any thread, hence the lock; it is held while the driver
 * is at work, for what goes must not be registered meanwhile. Read next: transfer.c. */
#include "base/memory_limit.h"
#include "kernels/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFUSALS 3 /* in a row, after which the driver is not asked any more */

void blasd_cuda_pinned_open(struct blasd_device *device) {
    struct blasd_cuda_pinned *pinned = &device->pinned;
    pinned->most = device->sizes.pinned_bytes > 0 ? device->sizes.pinned_bytes
                                                  : (size_t)(blasd_memory_here().all / 4);
    pthread_mutex_init(&pinned->lock, NULL);
}

/* How many ranges begin at this address or before it. */
static int begun_at(const struct blasd_cuda_pinned *pinned, const char *memory) {
    int low = 0, high = pinned->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if ((uintptr_t)pinned->ranges[middle].memory <= (uintptr_t)memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The range that holds all these bytes, or NULL. */
static struct blasd_cuda_range *find(const struct blasd_cuda_pinned *pinned, const char *memory,
                                     size_t bytes) {
    int before = begun_at(pinned, memory);
    struct blasd_cuda_range *range = before > 0 ? &pinned->ranges[before - 1] : NULL;
    if (range == NULL || bytes > range->bytes) return NULL;
    return (size_t)(memory - range->memory) <= range->bytes - bytes ? range : NULL;
}

/* Its batches begin to count anew: what was given up once is not taken again at the next sight. */
static void unregister(struct blasd_device *device, struct blasd_cuda_range *range) {
    if (!range->registered) return;
    device->calls->host_unregister(device->gpu, range->memory);
    device->pinned.bytes -= range->bytes;
    range->registered = false;
    range->batches = 0;
}

/* Registered and not in use, the one that was not used for longest; or NULL. */
static struct blasd_cuda_range *oldest(struct blasd_cuda_pinned *pinned) {
    struct blasd_cuda_range *found = NULL;
    for (int i = 0; i < pinned->count; i++) {
        struct blasd_cuda_range *range = &pinned->ranges[i];
        if (range->registered && range->slots == 0 &&
            (found == NULL || range->batch < found->batch))
            found = range;
    }
    return found;
}

static bool make_way(struct blasd_device *device, size_t bytes) {
    struct blasd_cuda_pinned *pinned = &device->pinned;
    if (bytes > pinned->most) return false;
    while (pinned->bytes > pinned->most - bytes) {
        struct blasd_cuda_range *old = oldest(pinned);
        if (old == NULL) return false;
        unregister(device, old);
    }
    return true;
}

static void refuse(struct blasd_cuda_pinned *pinned, struct blasd_cuda_range *range,
                   const char *why) {
    range->refused = true;
    if (pinned->why[0] == '\0')
        snprintf(pinned->why, sizeof pinned->why,
                 "some inputs and results are copied on the host, on their way: %.90s", why);
}

static void try_register(struct blasd_device *device, struct blasd_cuda_range *range) {
    struct blasd_cuda_pinned *pinned = &device->pinned;
    struct blasd_err err = {0};
    int code;
    if (range->refused || pinned->refusals == REFUSALS) return;
    if (!range->writable && !device->facts.registers_read_only) {
        refuse(pinned, range, "this card or its driver takes no memory that is mapped for reading");
        return;
    }
    if (!make_way(device, range->bytes)) return;
    code = device->calls->host_register(device->gpu, range->memory, range->bytes, !range->writable,
                                        &err);
    if (code == 0) {
        range->registered = true;
        pinned->bytes += range->bytes;
        pinned->refusals = 0;
        return;
    }
    refuse(pinned, range, err.detail);
    pinned->refusals++;
}

bool blasd_cuda_pin(struct blasd_cuda_slot *slot, const void *memory, size_t bytes) {
    struct blasd_device *device = slot->device;
    struct blasd_cuda_pinned *pinned = &device->pinned;
    uint64_t batch = slot->batch->number;
    struct blasd_cuda_range *range;
    bool there;
    if (bytes < device->sizes.pinned_least) return false;
    pthread_mutex_lock(&pinned->lock);
    range = find(pinned, memory, bytes);
    if (range != NULL && range->batch != batch) {
        range->batch = batch;
        range->batches++;
        if (!range->registered && range->batches >= device->sizes.pinned_after)
            try_register(device, range);
    }
    there = range != NULL && range->registered;
    if (there) range->slots |= 1u << (slot - device->slots);
    pthread_mutex_unlock(&pinned->lock);
    return there;
}

void blasd_cuda_unpin(struct blasd_cuda_slot *slot) {
    struct blasd_cuda_pinned *pinned = &slot->device->pinned;
    pthread_mutex_lock(&pinned->lock);
    for (int i = 0; i < pinned->count; i++)
        pinned->ranges[i].slots &= ~(1u << (slot - slot->device->slots));
    pthread_mutex_unlock(&pinned->lock);
}

/* Forgets what overlaps. */
static void forget(struct blasd_device *device, const char *memory, size_t bytes) {
    struct blasd_cuda_pinned *pinned = &device->pinned;
    int kept = 0;
    for (int i = 0; i < pinned->count; i++) {
        struct blasd_cuda_range *range = &pinned->ranges[i];
        bool apart = range->memory >= memory + bytes || memory >= range->memory + range->bytes;
        if (apart)
            pinned->ranges[kept++] = *range;
        else
            unregister(device, range);
    }
    pinned->count = kept;
}

static size_t whole_pages(uint64_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return ((size_t)bytes + page - 1) / page * page;
}

void blasd_cuda_memory_comes(struct blasd_device *device, void *memory, uint64_t bytes,
                             bool writable) {
    struct blasd_cuda_pinned *pinned = &device->pinned;
    const struct blasd_cuda_range range = {
        .memory = memory, .bytes = whole_pages(bytes), .writable = writable};
    int at;
    pthread_mutex_lock(&pinned->lock);
    forget(device, memory, range.bytes);
    if (pinned->count == pinned->room) {
        int room = pinned->room < 64 ? 64 : pinned->room * 2;
        void *ranges = realloc(pinned->ranges, (size_t)room * sizeof *pinned->ranges);
        if (ranges == NULL) goto done; /* it goes through the rings, then */
        pinned->ranges = ranges;
        pinned->room = room;
    }
    at = begun_at(pinned, memory);
    memmove(&pinned->ranges[at + 1], &pinned->ranges[at],
            (size_t)(pinned->count - at) * sizeof *pinned->ranges);
    pinned->ranges[at] = range;
    pinned->count++;
done:
    pthread_mutex_unlock(&pinned->lock);
}

void blasd_cuda_memory_goes(struct blasd_device *device, void *memory) {
    pthread_mutex_lock(&device->pinned.lock);
    forget(device, memory, 1);
    pthread_mutex_unlock(&device->pinned.lock);
}

void blasd_cuda_pinned_remark(struct blasd_device *device, char *remark, size_t size) {
    struct blasd_cuda_pinned *pinned = &device->pinned;
    pthread_mutex_lock(&pinned->lock);
    snprintf(remark, size, "%s", pinned->why);
    pthread_mutex_unlock(&pinned->lock);
}

void blasd_cuda_pinned_close(struct blasd_device *device) {
    struct blasd_cuda_pinned *pinned = &device->pinned;
    for (int i = 0; i < pinned->count; i++) unregister(device, &pinned->ranges[i]);
    free(pinned->ranges);
    pthread_mutex_destroy(&pinned->lock);
}
