/* Gives back the pages of files that have lost their name. Read next: store_discard.c. */
#ifndef BLASD_STORE_DISCARD_H
#define BLASD_STORE_DISCARD_H

#include <stdbool.h>

/* Takes the descriptor, open for writing, of a file without a name, and closes it. `cut`: its pages
 * go also where some process has it mapped still; else they stay until the last user is done. Many
 * pages go in a thread of its own, for the caller may be an event loop, and some time later. */
void store_discard(int fd, bool cut);
/* Waits until this process has nothing left to discard. Returns whether there was anything. */
bool store_discard_wait(void);

#endif
