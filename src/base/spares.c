/* A list of pieces of memory, linked through their first bytes. */
#include "base/spares.h"

#include <stdlib.h>
#include <string.h>

void *blasd_spares_take(struct blasd_spares *spares, size_t size) {
    void *memory = spares == NULL ? NULL : spares->first;
    if (memory == NULL) return calloc(1, size);
    memcpy(&spares->first, memory, sizeof spares->first);
    spares->count--;
    return memset(memory, 0, size);
}

void blasd_spares_give(struct blasd_spares *spares, void *memory, size_t most) {
    if (spares == NULL || spares->count >= most) {
        free(memory);
        return;
    }
    memcpy(memory, &spares->first, sizeof spares->first);
    spares->first = memory;
    spares->count++;
}

void blasd_spares_release(struct blasd_spares *spares) {
    while (spares->first != NULL) {
        void *memory = spares->first;
        memcpy(&spares->first, memory, sizeof spares->first);
        free(memory);
    }
    spares->count = 0;
}
