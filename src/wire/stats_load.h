/* The texts of the functions `stats` and `usage`, read. In that of `stats` stands what each worker
 * says of itself, as it said it: where one of these is no JSON, as of a worker that was taken over,
 * that worker is left out, and not all of them. */
#ifndef BLASD_WIRE_STATS_LOAD_H
#define BLASD_WIRE_STATS_LOAD_H

#include <stddef.h>

struct json_t;

/* New reference; NULL where it is none of these texts, or memory has run out. */
struct json_t *blasd_stats_load(const char *text, size_t len);

#endif
