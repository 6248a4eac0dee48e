/* Hash tables with chains. */
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

uint64_t blasd_hash_bytes(uint64_t seed, const void *bytes, size_t len) {
    const unsigned char *at = bytes;
    uint64_t hash = seed ^ len * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t n; len > 0; at += n, len -= n) {
        uint64_t word = 0;
        n = len < sizeof word ? len : sizeof word;
        memcpy(&word, at, n);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    hash *= UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 32;
}

static void put(struct blasd_hash *table, struct blasd_hash_node *node) {
    struct blasd_hash_node **bucket = &table->buckets[node->hash & (table->size - 1)];
    node->next = *bucket;
    *bucket = node;
}

static void grow(struct blasd_hash *table) {
    struct blasd_hash more = {.size = table->size == 0 ? 64 : table->size * 2,
                              .count = table->count};
    more.buckets = calloc(more.size, sizeof *more.buckets);
    if (more.buckets == NULL) return;
    for (size_t i = 0; i < table->size; i++)
        for (struct blasd_hash_node *node = table->buckets[i], *next; node != NULL; node = next) {
            next = node->next;
            put(&more, node);
        }
    free(table->buckets);
    *table = more;
}

int blasd_hash_add(struct blasd_hash *table, struct blasd_hash_node *node, uint64_t hash) {
    if (table->count >= table->size) grow(table);
    if (table->size == 0) return -1;
    node->hash = hash;
    put(table, node);
    table->count++;
    return 0;
}

void blasd_hash_remove(struct blasd_hash *table, struct blasd_hash_node *node) {
    struct blasd_hash_node **at = &table->buckets[node->hash & (table->size - 1)];
    while (*at != node) at = &(*at)->next;
    *at = node->next;
    table->count--;
}

struct blasd_hash_node *blasd_hash_find(const struct blasd_hash *table, uint64_t hash,
                                        struct blasd_hash_node *last) {
    struct blasd_hash_node *node = NULL;
    if (last != NULL)
        node = last->next;
    else if (table->size > 0)
        node = table->buckets[hash & (table->size - 1)];
    while (node != NULL && node->hash != hash) node = node->next;
    return node;
}

struct blasd_hash_node *blasd_hash_any(const struct blasd_hash *table) {
    for (size_t i = 0; table->count > 0 && i < table->size; i++)
        if (table->buckets[i] != NULL) return table->buckets[i];
    return NULL;
}

void blasd_hash_each(struct blasd_hash *table,
                     void (*each)(void *arg, struct blasd_hash_node *node), void *arg) {
    for (size_t i = 0; i < table->size; i++)
        for (struct blasd_hash_node *node = table->buckets[i], *next; node != NULL; node = next) {
            next = node->next;
            each(arg, node);
        }
}

void blasd_hash_release(struct blasd_hash *table) {
    free(table->buckets);
    *table = (struct blasd_hash){0};
}
