/* Signals as bytes in a pipe, for an event loop to read. Not a signalfd: that needs the signals
 * blocked in every thread, and libraries (OpenBLAS) start threads before main does. */
#ifndef BLASD_MAIN_SIGNAL_PIPE_H
#define BLASD_MAIN_SIGNAL_PIPE_H

#include <stdbool.h>

/* Catches `signals` (ended by 0) from now on and ignores SIGPIPE; a signal that was ignored when
 * the program started stays so. Returns the pipe's read end, not blocking, owned by the caller, or
 * -1 with errno. Once a process. */
int signal_pipe_open(const int *signals);
/* The next signal, or 0 where none is waiting. */
int signal_pipe_next(int fd);

/* For those without a loop: from now on SIGTERM and SIGINT are noted, and SIGPIPE is ignored. */
void note_end_signals(void);
/* Whether one of them came. */
bool told_to_end(void);

#endif
