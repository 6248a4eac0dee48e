/* One flag for a batch, which all its threads read; the thread that began it asks the watch. */
#include "core/wanted.h"

#include "base/clock.h"

#include <stdatomic.h>

struct blasd_wanted {
    struct blasd_watch *watch; /* borrowed */
    double told;               /* progress */
    int64_t asked_ns;
    atomic_bool stopped;
};

static _Thread_local struct blasd_wanted own;
static _Thread_local struct blasd_wanted *current; /* own, or that of the thread it helps */

void blasd_wanted_begin(struct blasd_watch *watch) {
    own.watch = watch;
    own.told = 0;
    own.asked_ns = blasd_clock_coarse_ns();
    atomic_store(&own.stopped, false);
    current = &own;
}

int blasd_wanted_end(int code, struct blasd_err *err) {
    current = NULL;
    if (!atomic_load(&own.stopped)) return code;
    return blasd_fail(err, BLASD_E_cancelled, "", "stopped while it ran");
}

static bool ask(struct blasd_wanted *batch) {
    if (batch->watch->go_on(batch->watch, batch->told)) return true;
    atomic_store(&batch->stopped, true);
    return false;
}

bool blasd_wanted(void) {
    struct blasd_wanted *batch = current;
    int64_t now;
    if (batch == NULL) return true;
    if (atomic_load_explicit(&batch->stopped, memory_order_relaxed)) return false;
    if (batch != &own || batch->watch == NULL) return true;
    now = blasd_clock_coarse_ns();
    if (now == batch->asked_ns) return true;
    batch->asked_ns = now;
    return ask(batch);
}

/* Takes it over; whether the thread is the one to talk to the watch. */
static bool note(struct blasd_wanted *batch, double progress) {
    if (batch == NULL || batch != &own || batch->watch == NULL) return false;
    if (progress > batch->told) batch->told = progress < 1 ? progress : 1;
    return true;
}

bool blasd_wanted_at(double progress) {
    note(current, progress);
    return blasd_wanted();
}

bool blasd_wanted_tell(double progress) {
    struct blasd_wanted *batch = current;
    if (batch == NULL) return true;
    if (atomic_load_explicit(&batch->stopped, memory_order_relaxed)) return false;
    return !note(batch, progress) || ask(batch);
}

struct blasd_wanted *blasd_wanted_current(void) {
    return current;
}

void blasd_wanted_join(struct blasd_wanted *batch) {
    current = batch;
}
