/* Blocks kept for the next who needs one. */
#include "base/spares.h"

#include <stdlib.h>
#include <string.h>

static void *pop(struct blasd_spares *spares) {
    void *block = spares->first;
    if (block == NULL) return NULL;
    memcpy(&spares->first, block, sizeof spares->first);
    spares->count--;
    return block;
}

void *blasd_spares_take(struct blasd_spares *spares) {
    void *block = pop(spares);
    return block != NULL ? block : malloc(spares->size);
}

void *blasd_spares_take_zeroed(struct blasd_spares *spares) {
    void *block = pop(spares);
    return block != NULL ? memset(block, 0, spares->size) : calloc(1, spares->size);
}

void blasd_spares_give(struct blasd_spares *spares, void *block) {
    if (block == NULL) return;
    if (spares->count >= spares->most) {
        free(block);
        return;
    }
    memcpy(block, &spares->first, sizeof spares->first);
    spares->first = block;
    spares->count++;
}

void blasd_spares_release(struct blasd_spares *spares) {
    for (void *block; (block = pop(spares)) != NULL;) free(block);
}
