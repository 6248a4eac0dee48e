/* Leases, taken and lost. */
#include "worker/registration.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <time.h>

#define AGAIN_NS (50 * BLASD_MS)
#define AGAIN_MOST 10
#define TELL_NS (10000 * BLASD_MS)
#define PAUSE_NS (100 * BLASD_MS) /* where the queue does not answer */

void blasd_registration_release(struct blasd_registration *registered) {
    blasd_worker_queue_free(registered->queue);
    registered->queue = NULL;
}

/* Connects this thread, and those of the pool, and takes a lease. */
static int take(struct blasd_registration *registered, struct blasd_batcher *main,
                struct blasd_slow_pool *pool, struct blasd_err *err) {
    const struct blasd_worker_options *options = main->options;
    int64_t epoch = 0;
    char *info = blasd_heartbeat_info(main->heartbeat);
    int code =
        info == NULL ? blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the worker") : 0;
    if (code == 0 && registered->queue == NULL)
        code = blasd_worker_queue_open(&options->queue, &registered->queue, err);
    if (code == 0)
        code = blasd_worker_queue_register(registered->queue, options->name,
                                           options->backend->device_class, info, &epoch, err);
    free(info);
    if (code == 0 && pool != NULL) code = blasd_slow_pool_lease(pool, options->name, epoch, err);
    if (code != 0) return code;
    blasd_heartbeat_lease(main->heartbeat, epoch);
    blasd_log(BLASD_LOG_INFO, "worker %s serves %s (%s)", options->name, main->info.id,
              main->info.name);
    registered->held = registered->had = true;
    registered->tries = 0;
    return 0;
}

/* It is tried again, later each time. */
static void put_off(struct blasd_registration *registered, const struct blasd_err *err) {
    int tries = registered->tries < AGAIN_MOST ? ++registered->tries : AGAIN_MOST;
    int64_t now = blasd_clock_ns();
    registered->again_ns = now + tries * AGAIN_NS;
    if (registered->told_ns != 0 && now - registered->told_ns < TELL_NS) return;
    registered->told_ns = now;
    blasd_log(BLASD_LOG_WARN, "waiting for Redis: %s", err->detail);
}

int blasd_registration_care(struct blasd_registration *registered, struct blasd_batcher *main,
                            struct blasd_slow_pool *pool, struct blasd_err *err) {
    int code = 0;
    if (registered->held && blasd_heartbeat_lost(main->heartbeat))
        blasd_registration_lose(registered, main);
    if (registered->held || blasd_clock_ns() < registered->again_ns) return 0;
    if (pool != NULL) code = blasd_slow_pool_failed(pool, err);
    if (code != 0) return code;
    if (pool != NULL && blasd_slow_pool_drop(pool)) return 0; /* until that has stopped */
    if (registered->had) blasd_log(BLASD_LOG_WARN, "the lease was lost; taking a new one");
    *err = (struct blasd_err){0};
    code = take(registered, main, pool, err);
    if (code == 0 || (code != -(int)BLASD_E_queue_unavailable && !registered->had)) return code;
    put_off(registered, err);
    return 0;
}

void blasd_registration_lose(struct blasd_registration *registered, struct blasd_batcher *main) {
    blasd_heartbeat_give_up(main->heartbeat);
    registered->held = false;
}

void blasd_registration_miss(const struct blasd_err *err) {
    blasd_log(BLASD_LOG_DEBUG, "the queue does not answer: %s", err->detail);
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

void blasd_registration_give_back(struct blasd_registration *registered) {
    struct blasd_err ignored;
    if (registered->queue != NULL) blasd_worker_queue_release(registered->queue, &ignored);
}
