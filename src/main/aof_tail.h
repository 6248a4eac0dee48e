/* The end of the append-only file of a Redis that is down.
 *
 * A Redis that is killed while it writes may leave the beginning of a transaction at the end of its
 * file: effects of a call that nobody was answered. When it loads such a file it takes the command
 * off that is cut in the middle, but may leave those before it (7.0.15 does), a transaction without
 * an end; what it writes from then on stands behind that, and the next start does both as one. Half
 * a call of submit is a job without its inputs. So the end is set right before Redis sees it.
 *
 * One that found the disk full, in a file that it had begun itself (and so not opened to append),
 * takes back what it wrote of a command, but goes on behind it: zero bytes between two commands,
 * over which the next start stumbles (7.0.15). They become notes, which Redis passes over. */
#ifndef BLASD_MAIN_AOF_TAIL_H
#define BLASD_MAIN_AOF_TAIL_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* The name of the file that Redis appends to, as the manifest in `dir` (Redis' appendonlydir) has
 * it; false where there is none. One with a higher number is what a rewrite left that could not
 * begin, for the disk was full. */
#define BLASD_AOF_NAME 256
bool blasd_aof_newest(const char *dir, char name[BLASD_AOF_NAME]);

/* Cuts what follows the last whole command, or whole transaction, off the newest file that the
 * manifest in `dir` (Redis' appendonlydir) names; *cut: bytes. Where there is none, and where what
 * it comes upon is no command at all, it changes nothing: that is for Redis to judge. Returns 0 or
 * a negative code. No Redis may have the file open. */
int blasd_aof_repair(const char *dir, uint64_t *cut, struct blasd_err *err);

#endif
