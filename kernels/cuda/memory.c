/* Device memory that is kept, host memory that is not. Read next: transfer.c. */
#include "kernels/cuda/device.h"

#include <stdlib.h>

static size_t round_up(size_t bytes, size_t to) {
    return (bytes + to - 1) / to * to;
}

static int add_block(struct blasd_device *device, struct blasd_cuda_arena *arena, size_t bytes,
                     struct blasd_err *err) {
    struct blasd_cuda_block *block = &arena->blocks[arena->count];
    void *memory = NULL;
    size_t size = bytes > arena->want ? bytes : arena->want;
    int code;
    /* no piece may end where another allocation begins: a copy must not run on into that */
    bytes += 512;
    if (size < bytes) size = bytes;
    if (arena->count == BLASD_CUDA_BLOCKS)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "too many pieces of device memory");
    if (size < device->sizes.block_bytes) size = device->sizes.block_bytes;
    code = device->calls->device_alloc(device->gpu, size, &memory, err);
    if (code == -(int)BLASD_E_out_of_memory && size > bytes) {
        size = bytes;
        code = device->calls->device_alloc(device->gpu, size, &memory, err);
    }
    if (code != 0) return code;
    *block = (struct blasd_cuda_block){.memory = memory, .bytes = size - 512};
    arena->count++;
    return 0;
}

int blasd_cuda_arena_take(struct blasd_device *device, struct blasd_cuda_arena *arena, size_t bytes,
                          size_t align, void **ret, struct blasd_err *err) {
    struct blasd_cuda_block *block = arena->count > 0 ? &arena->blocks[arena->count - 1] : NULL;
    size_t at = block != NULL ? round_up(block->used, align) : 0;
    if (bytes == 0) bytes = 1;
    if (bytes > SIZE_MAX / 4)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "the device is out of memory");
    if (block == NULL || at > block->bytes || bytes > block->bytes - at) {
        int code = add_block(device, arena, round_up(bytes, 256), err);
        if (code != 0) return code;
        block = &arena->blocks[arena->count - 1];
        at = 0;
    }
    *ret = block->memory + at;
    block->used = at + bytes;
    return 0;
}

void blasd_cuda_arena_release(struct blasd_device *device, struct blasd_cuda_arena *arena) {
    for (int i = 0; i < arena->count; i++)
        device->calls->device_free(device->gpu, arena->blocks[i].memory);
    arena->count = 0;
}

void blasd_cuda_arena_reset(struct blasd_device *device, struct blasd_cuda_arena *arena) {
    size_t used = 0;
    for (int i = 0; i < arena->count; i++) used += arena->blocks[i].used;
    if (arena->count == 1) {
        arena->blocks[0].used = 0;
        return;
    }
    /* one block of the size that this batch took serves the next one whole */
    arena->want = round_up(used + used / 8, (size_t)2 << 20);
    blasd_cuda_arena_release(device, arena);
}

struct blasd_cuda_scrap {
    struct blasd_cuda_scrap *next;
    size_t bytes, used;
    _Alignas(64) char memory[];
};

void *blasd_cuda_scrap_take(struct blasd_cuda_scrap **list, size_t bytes) {
    struct blasd_cuda_scrap *scrap = *list;
    void *taken;
    if (bytes > SIZE_MAX / 4) return NULL;
    bytes = round_up(bytes > 0 ? bytes : 1, 64);
    if (scrap == NULL || bytes > scrap->bytes - scrap->used) {
        size_t room = bytes > 16384 ? bytes : 16384;
        scrap = aligned_alloc(64, round_up(sizeof *scrap + room, 64));
        if (scrap == NULL) return NULL;
        *scrap = (struct blasd_cuda_scrap){.next = *list, .bytes = room};
        *list = scrap;
    }
    taken = scrap->memory + scrap->used;
    scrap->used += bytes;
    for (size_t i = 0; i < bytes; i++) ((char *)taken)[i] = 0;
    return taken;
}

void blasd_cuda_scrap_release(struct blasd_cuda_scrap **list) {
    while (*list != NULL) {
        struct blasd_cuda_scrap *next = (*list)->next;
        free(*list);
        *list = next;
    }
}
