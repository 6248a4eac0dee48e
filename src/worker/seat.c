/* What cannot be set costs only time, so failures are passed over. Read next: lane.c. */
#include "worker/seat.h"

#include <unistd.h>

void blasd_seat_open(struct blasd_seat *seat) {
    *seat = (struct blasd_seat){.thread = gettid()};
    if (sched_getaffinity(0, sizeof seat->cores, &seat->cores) != 0) seat->thread = 0;
}

void blasd_seat_take(struct blasd_seat *seat, int number) {
    cpu_set_t one;
    if (seat->thread == 0 || seat->taken) return;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET((size_t)core, &seat->cores) || number-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET((size_t)core, &one);
        seat->taken = sched_setaffinity(seat->thread, sizeof one, &one) == 0;
        return;
    }
}

void blasd_seat_leave(struct blasd_seat *seat) {
    if (seat->taken) (void)sched_setaffinity(seat->thread, sizeof seat->cores, &seat->cores);
    seat->taken = false;
}
