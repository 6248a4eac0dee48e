/* Runs this program again with other words and reads what it prints: for what may crash or hang. */
#ifndef BLASD_MAIN_ASK_SELF_H
#define BLASD_MAIN_ASK_SELF_H

#include <stddef.h>

/* `argv` begins with "blasd"; `variables`: names and values in turns, ended by NULL, or NULL.
 * Writes what it prints on standard output, ended by a zero, to `text`. Its exit status;
 * ASK_CRASHED where it was ended by a signal or could not be started, ASK_TOO_LONG where it took
 * longer than `timeout_ms`. */
enum { ASK_CRASHED = -1, ASK_TOO_LONG = -2 };
int ask_self(char *const argv[], const char *const *variables, int timeout_ms, char *text,
             size_t size);

#endif
