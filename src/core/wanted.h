/* Whether anybody still wants what a thread computes: asked from within every loop that may take
 * long, wherever it stands, and answered in some nanoseconds.
 *
 * A kernel begins with the watch it was given and ends with what came of it. In between, any
 * function on its thread, or on one that helps it (parallel.h), asks blasd_wanted() at least every
 * millisecond or so; the watch itself is asked each time the coarse clock has moved. From the first
 * no on, all answers are no: loops leave, their results are worthless, and blasd_wanted_end says
 * so. So a function without a way to report it may simply return. Read next: parallel.h. */
#ifndef BLASD_CORE_WANTED_H
#define BLASD_CORE_WANTED_H

#include "core/kernel.h"

#include <stdint.h>

struct blasd_wanted; /* of a batch */

/* From now on the calling thread works for `watch` (borrowed; NULL: for whoever, without end). */
void blasd_wanted_begin(struct blasd_watch *watch);
/* Ends that. `code` is what came of the batch; returns it, or cancelled where it was stopped. */
int blasd_wanted_end(int code, struct blasd_err *err);

/* False: stop. */
bool blasd_wanted(void);
/* The same with the progress of the batch, which never falls: a lower one counts as the last. */
bool blasd_wanted_at(double progress);
/* Tells the watch now, whatever the clock says. */
bool blasd_wanted_tell(double progress);

/* For loops whose steps are too short for a look at the clock: asks once each BLASD_WANTED_WORK
 * operations or so. `*done` is the loop's own count, 0 at first; `work` is that of the step. */
#define BLASD_WANTED_WORK 50000
static inline bool blasd_wanted_due(int64_t *done, int64_t work) {
    *done += work + 1;
    if (*done < BLASD_WANTED_WORK) return false;
    *done = 0;
    return true;
}
static inline bool blasd_wanted_after(int64_t *done, int64_t work) {
    return !blasd_wanted_due(done, work) || blasd_wanted();
}

/* What the calling thread works on; NULL: nothing. A thread that helps another takes its. */
struct blasd_wanted *blasd_wanted_current(void);
void blasd_wanted_join(struct blasd_wanted *batch);

#endif
