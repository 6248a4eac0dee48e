/* A doubly linked list of nodes that lie in the structs they link (container.h finds the struct).
 * The list itself is a node too: a ring in which each has two neighbours, so that nothing is
 * special at the ends. Owns nothing. */
#ifndef BLASD_BASE_LIST_H
#define BLASD_BASE_LIST_H

#include "base/container.h"

#include <stdbool.h>

struct blasd_list {
    struct blasd_list *next, *prev;
};

static inline void blasd_list_init(struct blasd_list *list) {
    list->next = list->prev = list;
}

static inline bool blasd_list_empty(const struct blasd_list *list) {
    return list->next == list;
}

/* Puts a node that is in no list behind `at`: a node, or the list itself for its front. */
static inline void blasd_list_add(struct blasd_list *at, struct blasd_list *node) {
    node->prev = at;
    node->next = at->next;
    at->next->prev = node;
    at->next = node;
}

static inline void blasd_list_append(struct blasd_list *list, struct blasd_list *node) {
    blasd_list_add(list->prev, node);
}

/* Afterwards the node is a list of its own, so it may be removed again. */
static inline void blasd_list_remove(struct blasd_list *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    blasd_list_init(node);
}

/* Goes through a list; the body may remove the node it is at, and no other. */
#define BLASD_LIST_EACH(node, list)                                                                \
    for (struct blasd_list *node = (list)->next, *node##_next = node->next; node != (list);        \
         node = node##_next, node##_next = node->next)

#endif
