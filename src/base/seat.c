/* What cannot be set costs only time, so failures are passed over. Read next: worker/lane.c,
 * http/loop_core.c. */
#include "base/seat.h"

#include <pthread.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cpu_set_t at_first; /* of the process; empty: not known */

static void note_cores(void) {
    if (sched_getaffinity(0, sizeof at_first, &at_first) != 0) CPU_ZERO(&at_first);
}

void blasd_seat_open(struct blasd_seat *seat) {
    pthread_once(&once, note_cores);
    *seat = (struct blasd_seat){.thread = gettid()};
}

static bool cores_of(const struct blasd_seat *seat, cpu_set_t *cores) {
    return seat->thread != 0 && sched_getaffinity(seat->thread, sizeof *cores, cores) == 0;
}

void blasd_seat_take(struct blasd_seat *seat, int number) {
    cpu_set_t cores;
    if (seat->taken || !cores_of(seat, &cores)) return;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET((size_t)core, &cores) || number-- > 0) continue;
        blasd_seat_take_core(seat, core);
        return;
    }
}

void blasd_seat_take_core(struct blasd_seat *seat, int core) {
    cpu_set_t one;
    if (core < 0 || core >= CPU_SETSIZE || (seat->taken && core == seat->core)) return;
    if (!seat->taken && !cores_of(seat, &seat->cores)) return;
    if (!CPU_ISSET((size_t)core, &seat->cores)) return;
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    if (sched_setaffinity(seat->thread, sizeof one, &one) != 0) return;
    seat->core = core;
    seat->taken = true;
}

void blasd_seat_leave(struct blasd_seat *seat) {
    cpu_set_t now;
    if (!seat->taken) return;
    seat->taken = false;
    if (cores_of(seat, &now) && CPU_COUNT(&now) == 1 && CPU_ISSET((size_t)seat->core, &now))
        (void)sched_setaffinity(seat->thread, sizeof seat->cores, &seat->cores);
}

void blasd_seat_decline(void) {
    pthread_once(&once, note_cores);
    if (CPU_COUNT(&at_first) > 0) (void)sched_setaffinity(0, sizeof at_first, &at_first);
}
