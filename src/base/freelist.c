/* Blocks kept for the next who needs one. */
#include "base/freelist.h"

#include <stdlib.h>
#include <string.h>

static void *pop(struct blasd_freelist *freelist) {
    void *block = freelist->first;
    if (block == NULL) return NULL;
    memcpy(&freelist->first, block, sizeof freelist->first);
    freelist->count--;
    return block;
}

void *blasd_freelist_take(struct blasd_freelist *freelist) {
    void *block = pop(freelist);
    return block != NULL ? block : malloc(freelist->size);
}

void *blasd_freelist_take_zeroed(struct blasd_freelist *freelist) {
    void *block = pop(freelist);
    return block != NULL ? memset(block, 0, freelist->size) : calloc(1, freelist->size);
}

void blasd_freelist_give(struct blasd_freelist *freelist, void *block) {
    if (block == NULL) return;
    if (freelist->count >= freelist->most) {
        free(block);
        return;
    }
    memcpy(block, &freelist->first, sizeof freelist->first);
    freelist->first = block;
    freelist->count++;
}

void blasd_freelist_release(struct blasd_freelist *freelist) {
    for (void *block; (block = pop(freelist)) != NULL;) free(block);
}
