/* The core that a thread stays on while each of the others has a thread like it: the kernel may let
 * two of them share one core for milliseconds and the other idle, for it looks around less the more
 * often it has had nothing to do for a moment. Elsewhere a thread goes where the kernel puts it.
 *
 * Knows nothing of what the threads do. Not locked: one thread at a time. */
#ifndef BLASD_WORKER_SEAT_H
#define BLASD_WORKER_SEAT_H

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

/* Zeroed it belongs to no thread, and all that is done with it does nothing. */
struct blasd_seat {
    pid_t thread;
    cpu_set_t cores; /* that it may run on */
    bool taken;      /* it is on one of them */
};

/* For the calling thread. */
void blasd_seat_open(struct blasd_seat *seat);
/* The thread stays on the core of that number, from 0, of those it may run on. Only its own thread
 * calls this: threads that it starts would stay there, too. */
void blasd_seat_take(struct blasd_seat *seat, int number);
/* It may run anywhere again; any thread may say so. */
void blasd_seat_leave(struct blasd_seat *seat);

#endif
