/* Reading and writing a mapping of a file that somebody else may cut.
 *
 * To touch a page behind the end of a file is a SIGBUS, which ends the process. A thread that is
 * about to do so says where; what is missing is then zeros to it, and it is told. The mapping is
 * good for nothing from then on, but to be unmapped. */
#ifndef BLASD_BASE_CUT_H
#define BLASD_BASE_CUT_H

#include <stdbool.h>
#include <stddef.h>

/* Takes SIGBUS over; elsewhere it still ends the process. Once, before threads call the others. */
void blasd_cut_init(void);
/* This thread touches the mapping at `data`; one at a time. */
void blasd_cut_watch(const void *data, size_t len);
/* And no more. True where some of it was not there. */
bool blasd_cut_seen(void);

#endif
