/* From a member to the struct that holds it: how a timer's or a watcher's owner is found. */
#ifndef BLASD_BASE_CONTAINER_H
#define BLASD_BASE_CONTAINER_H

#include <stddef.h>

#define blasd_container_of(ptr, type, member)                                                      \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
