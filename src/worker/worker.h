/* The worker: one process, one device. It claims jobs, runs those that fit together as one call,
 * and ends them; a second thread keeps its lease alive, a third runs what takes long.
 *
 * Knows nothing of HTTP and never ends the process itself. The pieces, in reading order: worker.c
 * (the loop), group.c (which jobs run together), slow_pool.c (what runs beside the others),
 * runner.c (one group from inputs to records), map_io.c (where tensors lie), completion.c
 * (records), heartbeat.c (the lease), backend_load.c (devices). */
#ifndef BLASD_WORKER_WORKER_H
#define BLASD_WORKER_WORKER_H

#include "base/err.h"
#include "core/kernel.h"
#include "queue/queue.h"

#include <stdbool.h>

struct blasd_otlp;

struct blasd_worker_options {
    struct blasd_queue_options queue;    /* limits and store are borrowed for the whole run */
    const struct blasd_backend *backend; /* borrowed */
    int ordinal;                         /* of the device in its backend */
    const char *name;                    /* unique among live workers; a worker that takes the name
                                            of a dead one sends that one's jobs back to the queue at
                                            once. Borrowed */
    const char *kept_in; /* directory that keeps what jobs taught of the device's speed; NULL: each
                            start begins with usual figures. Borrowed */
    bool audit;          /* log each job that has ended, not only some that failed */
    const struct blasd_prices *prices; /* for these lines; NULL: none. Borrowed */
    struct blasd_otlp *otlp;           /* where spans of jobs go; NULL: nowhere. Borrowed */
    const char *version;               /* blasd's, for which such figures hold. Borrowed */
    /* Asked between batches and while waiting, by two threads: true makes the worker finish the
     * batch in hand, give back the rest and return. May be called often; must be cheap. */
    bool (*stopping)(void *arg);
    /* Called about twice a second, by a thread of its own, while the worker is alive, and more
     * often while it waits for Redis at first; NULL: nobody wants to know. */
    void (*alive)(void *arg);
    /* The process must end now, for a computation does not stop or the loop stands still; what it
     * held has gone back to the queue. Called once, by that thread; NULL: the worker hangs. */
    void (*hung)(void *arg);
    /* Called once, when the worker has its lease and takes jobs. */
    void (*ready)(void *arg);
    void *arg;
};

/* Runs until `stopping`. Returns 0 then; -BLASD_E_device_error where the device failed for good
 * (its jobs were given back); another negative code where it could not start: wrong store, no such
 * device. A queue that is away is none of these: it waits and tries again. */
int blasd_worker_run(const struct blasd_worker_options *options, struct blasd_err *err);

#define BLASD_BACKENDS_MAX 4

/* The backends that work here: cpu always, cuda where blasd_cuda.so lies beside the executable and
 * loads. Returns how many were written to `ret`; they live as long as the process. Where cuda is
 * not among them though this machine has a part of it, `why` says what is missing; else its code is
 * BLASD_OK. */
int blasd_backends(const struct blasd_backend *ret[BLASD_BACKENDS_MAX], struct blasd_err *why);
/* The backend and ordinal of a device written "cpu:0" or "cuda:1". no_such_device says in `detail`
 * what is missing: the shared object, a symbol, the device. */
int blasd_backend_find(const char *device, const struct blasd_backend **ret, int *ordinal,
                       struct blasd_err *err);

#endif
