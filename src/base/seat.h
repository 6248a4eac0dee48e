/* A core that a thread stays on for a while. Left to the kernel two threads may share one core for
 * milliseconds while another idles, for it looks around less the more often it has had nothing to
 * do for a moment. Knows nothing of what the threads do. Not locked: one thread at a time. */
#ifndef BLASD_BASE_SEAT_H
#define BLASD_BASE_SEAT_H

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

/* Zeroed it belongs to no thread, and all that is done with it does nothing. */
struct blasd_seat {
    pid_t thread;
    cpu_set_t cores; /* that it may run on, as it took the seat */
    int core;        /* where it stays */
    bool taken;
};

/* For the calling thread. */
void blasd_seat_open(struct blasd_seat *seat);
/* The thread stays on the core of that number, from 0, of those it may run on; does nothing where
 * it stays on one already. Only its own thread calls this: threads that it starts would stay there,
 * too, but for blasd_seat_decline. */
void blasd_seat_take(struct blasd_seat *seat, int number);
/* The same by the core's own number, also where it stays on another one. Does nothing where the
 * thread may not run there. */
void blasd_seat_take_core(struct blasd_seat *seat, int core);
/* It may run where it could before, unless somebody else has said meanwhile where it may (taskset).
 * Any thread may call this. */
void blasd_seat_leave(struct blasd_seat *seat);
/* For a new thread, whose starter may have had a seat: it may run wherever the process could when
 * its first seat was opened. */
void blasd_seat_decline(void);

#endif
