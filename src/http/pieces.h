/* Whose turn it is to make a piece of a large answer.
 *
 * To write numbers as text comes to some 450 MB/s, so a turn of the loop in which a hundred readers
 * each get a piece holds everybody up. A turn makes no more than HTTP_TURN_BYTES, and in a round
 * everybody gets one piece. Pure. Read next: results.c. */
#ifndef BLASD_HTTP_PIECES_H
#define BLASD_HTTP_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_TURN_BYTES ((size_t)524288)

struct http_pieces {
    size_t bytes;   /* made in this turn */
    uint64_t round; /* 0: none has begun */
    bool refused;   /* somebody had none in this turn, for it had made enough */
};

/* A turn begins. */
static inline void http_pieces_turn(struct http_pieces *pieces) {
    if (!pieces->refused) pieces->round++;
    pieces->refused = false;
    pieces->bytes = 0;
}

/* Whether who had a piece in round *had (0: in none) may have one now, which is noted. */
static inline bool http_pieces_next(struct http_pieces *pieces, uint64_t *had) {
    if (*had == pieces->round) return false;
    pieces->refused = pieces->refused || pieces->bytes >= HTTP_TURN_BYTES;
    if (pieces->bytes >= HTTP_TURN_BYTES) return false;
    *had = pieces->round;
    return true;
}

#endif
