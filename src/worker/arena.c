/* A chain of blocks. A batch that needed several leaves one large block for the next. */
#include "worker/arena.h"

#include "base/memory_limit.h"
#include "core/tensor.h"

#include <stdio.h>
#include <stdlib.h>

#define FIRST_BLOCK (UINT64_C(1) << 20)
/* Linux promises memory it does not have and kills who uses it: larger blocks are checked first. */
#define CHECKED_BLOCK (UINT64_C(64) << 20)

struct blasd_arena_block {
    struct blasd_arena_block *next;
    uint64_t size, at; /* of the bytes behind this header */
    uint64_t pad[5];   /* so that they begin at a multiple of 64 */
};

void blasd_arena_init(struct blasd_arena *arena, uint64_t max, uint64_t keep) {
    *arena = (struct blasd_arena){.max = max, .keep = keep, .want = FIRST_BLOCK};
}

/* Those that came behind `last`. */
static void free_blocks(struct blasd_arena *arena, const struct blasd_arena_block *last) {
    while (arena->blocks != last) {
        struct blasd_arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
}

void blasd_arena_release(struct blasd_arena *arena) {
    free_blocks(arena, NULL);
    arena->used = 0;
}

/* What the system says it can still give without swapping; all of it where it does not say. */
static uint64_t available_bytes(void) {
    struct blasd_memory memory = blasd_memory_here();
    return memory.all == 0 ? UINT64_MAX : memory.left;
}

static struct blasd_arena_block *new_block(uint64_t size) {
    struct blasd_arena_block *block;
    if (size >= CHECKED_BLOCK && size > available_bytes()) return NULL;
    block = aligned_alloc(BLASD_ALIGN, sizeof *block + size);
    if (block == NULL) return NULL;
    block->size = size;
    block->at = 0;
    return block;
}

void *blasd_arena_take(struct blasd_arena *arena, uint64_t bytes) {
    struct blasd_arena_block *block = arena->blocks;
    uint64_t size = blasd_align_up(bytes);
    void *taken;
    if (bytes > arena->max || size > arena->max - arena->used) return NULL;
    if (block == NULL || size > block->size - block->at) {
        block = new_block(size > arena->want ? size : arena->want);
        if (block == NULL) return NULL;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    taken = (char *)block + sizeof *block + block->at;
    block->at += size;
    arena->used += size;
    return taken;
}

void blasd_arena_reset(struct blasd_arena *arena) {
    struct blasd_arena_block *block = arena->blocks;
    if (block != NULL && block->next == NULL && block->size <= arena->keep) {
        block->at = 0;
    } else {
        /* one block of the size this batch took serves the next one whole */
        uint64_t want = arena->used < arena->keep ? arena->used : arena->keep;
        if (want > arena->want) arena->want = blasd_align_up(want);
        free_blocks(arena, NULL);
    }
    arena->used = 0;
}

struct blasd_arena_mark blasd_arena_mark(const struct blasd_arena *arena) {
    return (struct blasd_arena_mark){.block = arena->blocks,
                                     .at = arena->blocks == NULL ? 0 : arena->blocks->at,
                                     .used = arena->used};
}

void blasd_arena_rewind(struct blasd_arena *arena, const struct blasd_arena_mark *mark) {
    free_blocks(arena, mark->block);
    if (arena->blocks != NULL) arena->blocks->at = mark->at;
    arena->used = mark->used;
}
