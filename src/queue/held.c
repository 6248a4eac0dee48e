/* A table of names, open addressing with linear probing; a name's last digits are random, so they
 * are the hash. Read next: worker_claim.c, worker_end.c. */
#include "queue/held.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static size_t hash(const char *name, size_t len) {
    uint64_t tail;
    memcpy(&tail, name + len - sizeof tail, sizeof tail);
    tail *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(tail >> 32);
}

/* The slot of `name`, or the free one where it would go. The table has room. */
static size_t seek(const struct blasd_held *held, const char *name, size_t len) {
    size_t at = hash(name, len) & (held->room - 1);
    while (held->slots[at].name[0] &&
           (memcmp(held->slots[at].name, name, len) != 0 || held->slots[at].name[len] != '\0'))
        at = (at + 1) & (held->room - 1);
    return at;
}

/* The slot that the job is held in, its own or its packet's; NULL: none. */
static struct blasd_held_slot *find(const struct blasd_held *held, const char *id) {
    if (held->count == 0) return NULL;
    struct blasd_held_slot *slot = &held->slots[seek(held, id, BLASD_ID_LEN)];
    if (!slot->name[0]) slot = &held->slots[seek(held, id, BLASD_ID_PACKET)];
    return slot->name[0] ? slot : NULL;
}

void blasd_held_release(struct blasd_held *held) {
    free(held->slots);
    memset(held, 0, sizeof *held);
}

void blasd_held_clear(struct blasd_held *held) {
    if (held->count) memset(held->slots, 0, held->room * sizeof *held->slots);
    held->count = held->jobs = 0;
}

static int grow(struct blasd_held *held) {
    struct blasd_held larger = *held;
    larger.room = held->room ? held->room * 2 : 64;
    larger.slots = calloc(larger.room, sizeof *larger.slots);
    if (!larger.slots) return -1;
    for (size_t i = 0; i < held->room; i++) {
        const char *name = held->slots[i].name;
        if (name[0]) larger.slots[seek(&larger, name, strlen(name))] = held->slots[i];
    }
    free(held->slots);
    *held = larger;
    return 0;
}

int blasd_held_add(struct blasd_held *held, const char *name, size_t name_len, int jobs) {
    if (held->count * 2 >= held->room && grow(held) < 0) return -1;
    struct blasd_held_slot *slot = &held->slots[seek(held, name, name_len)];
    if (slot->name[0]) return 0;
    memcpy(slot->name, name, name_len);
    slot->name[name_len] = '\0';
    slot->jobs = slot->left = jobs;
    slot->begun_us = 0;
    held->count++;
    held->jobs += (size_t)jobs;
    return 0;
}

/* Takes a slot out: what probing had pushed past the hole moves back into it. */
static void take_out(struct blasd_held *held, size_t hole) {
    size_t mask = held->room - 1;
    held->count--;
    for (size_t at = (hole + 1) & mask; held->slots[at].name[0]; at = (at + 1) & mask) {
        const char *name = held->slots[at].name;
        size_t home = hash(name, strlen(name)) & mask;
        if (((at - home) & mask) < ((at - hole) & mask)) continue;
        held->slots[hole] = held->slots[at];
        hole = at;
    }
    held->slots[hole].name[0] = '\0';
}

void blasd_held_remove(struct blasd_held *held, const char *id) {
    struct blasd_held_slot *slot = find(held, id);
    if (slot == NULL) return;
    held->jobs--;
    if (--slot->left == 0) take_out(held, (size_t)(slot - held->slots));
}

int blasd_held_packet(const struct blasd_held *held, const char *id) {
    const struct blasd_held_slot *slot = find(held, id);
    return slot != NULL && slot->name[BLASD_ID_PACKET] == '\0' && slot->left == slot->jobs
               ? slot->jobs
               : 0;
}

void blasd_held_begin(struct blasd_held *held, const char *id, int64_t us) {
    struct blasd_held_slot *slot = find(held, id);
    if (slot != NULL) slot->begun_us = us;
}

int blasd_held_write(const struct blasd_held *held, struct blasd_buf *out) {
    bool first = true;
    if (blasd_buf_reserve(out, held->count * (BLASD_ID_LEN + 1)) < 0) return -1;
    for (size_t i = 0; i < held->room && held->count; i++) {
        const char *name = held->slots[i].name;
        if (!name[0]) continue;
        if (!first && blasd_buf_add(out, " ", 1) < 0) return -1;
        if (blasd_buf_puts(out, name) < 0) return -1;
        first = false;
    }
    return 0;
}

int blasd_held_write_begun(const struct blasd_held *held, int64_t us, struct blasd_buf *out) {
    if (blasd_buf_printf(out, "%" PRId64, us) < 0) return -1;
    for (size_t i = 0; i < held->room && held->count; i++) {
        const struct blasd_held_slot *slot = &held->slots[i];
        if (!slot->name[0] || slot->begun_us != us) continue;
        if (blasd_buf_add(out, " ", 1) < 0 || blasd_buf_puts(out, slot->name) < 0) return -1;
    }
    for (size_t i = 0; i < held->room && held->count; i++) {
        const struct blasd_held_slot *slot = &held->slots[i];
        if (!slot->name[0] || slot->begun_us == us || slot->begun_us == 0) continue;
        if (blasd_buf_printf(out, "\n%" PRId64 " %s", slot->begun_us, slot->name) < 0) return -1;
    }
    return 0;
}
