/* A table of ids, open addressing with linear probing; an id's last digits are random, so they are
 * the hash. Read next: worker_queue.c. */
#include "queue/held.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static size_t hash(const char *id) {
    uint64_t tail;
    memcpy(&tail, id + BLASD_ID_LEN - sizeof tail, sizeof tail);
    tail *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(tail >> 32);
}

/* The slot of `id`, or the free one where it would go. The table has room. */
static size_t seek(const struct blasd_held *held, const char *id) {
    size_t at = hash(id) & (held->room - 1);
    while (held->slots[at].id[0] && memcmp(held->slots[at].id, id, BLASD_ID_LEN) != 0)
        at = (at + 1) & (held->room - 1);
    return at;
}

void blasd_held_release(struct blasd_held *held) {
    free(held->slots);
    memset(held, 0, sizeof *held);
}

void blasd_held_clear(struct blasd_held *held) {
    if (held->count) memset(held->slots, 0, held->room * sizeof *held->slots);
    held->count = 0;
}

static int grow(struct blasd_held *held) {
    struct blasd_held larger = {.room = held->room ? held->room * 2 : 64, .count = held->count};
    larger.slots = calloc(larger.room, sizeof *larger.slots);
    if (!larger.slots) return -1;
    for (size_t i = 0; i < held->room; i++)
        if (held->slots[i].id[0]) larger.slots[seek(&larger, held->slots[i].id)] = held->slots[i];
    free(held->slots);
    *held = larger;
    return 0;
}

int blasd_held_add(struct blasd_held *held, const char *id) {
    if (held->count * 2 >= held->room && grow(held) < 0) return -1;
    struct blasd_held_slot *slot = &held->slots[seek(held, id)];
    if (slot->id[0]) return 0;
    memcpy(slot->id, id, BLASD_ID_LEN);
    slot->id[BLASD_ID_LEN] = '\0';
    slot->begun_us = 0;
    held->count++;
    return 0;
}

void blasd_held_remove(struct blasd_held *held, const char *id) {
    if (!held->count) return;
    size_t mask = held->room - 1, hole = seek(held, id);
    if (!held->slots[hole].id[0]) return;
    held->count--;
    /* what probing had pushed past the hole moves back into it */
    for (size_t at = (hole + 1) & mask; held->slots[at].id[0]; at = (at + 1) & mask) {
        size_t home = hash(held->slots[at].id) & mask;
        if (((at - home) & mask) < ((at - hole) & mask)) continue;
        held->slots[hole] = held->slots[at];
        hole = at;
    }
    held->slots[hole].id[0] = '\0';
}

void blasd_held_begin(struct blasd_held *held, const char *id, int64_t us) {
    if (!held->count) return;
    struct blasd_held_slot *slot = &held->slots[seek(held, id)];
    if (slot->id[0]) slot->begun_us = us;
}

int blasd_held_write(const struct blasd_held *held, struct blasd_buf *out) {
    bool first = true;
    if (blasd_buf_reserve(out, held->count * (BLASD_ID_LEN + 1)) < 0) return -1;
    for (size_t i = 0; i < held->room && held->count; i++) {
        const char *id = held->slots[i].id;
        if (!id[0]) continue;
        if (!first && blasd_buf_add(out, " ", 1) < 0) return -1;
        if (blasd_buf_add(out, id, BLASD_ID_LEN) < 0) return -1;
        first = false;
    }
    return 0;
}

int blasd_held_write_begun(const struct blasd_held *held, int64_t us, struct blasd_buf *out) {
    if (blasd_buf_printf(out, "%" PRId64, us) < 0) return -1;
    for (size_t i = 0; i < held->room && held->count; i++) {
        const struct blasd_held_slot *slot = &held->slots[i];
        if (!slot->id[0] || slot->begun_us != us) continue;
        if (blasd_buf_add(out, " ", 1) < 0 || blasd_buf_add(out, slot->id, BLASD_ID_LEN) < 0)
            return -1;
    }
    for (size_t i = 0; i < held->room && held->count; i++) {
        const struct blasd_held_slot *slot = &held->slots[i];
        if (!slot->id[0] || slot->begun_us == us || slot->begun_us == 0) continue;
        if (blasd_buf_printf(out, "\n%" PRId64 " %s", slot->begun_us, slot->id) < 0) return -1;
    }
    return 0;
}
