/* Start and end of the three threads that watch over a worker. */
#include "worker/heartbeat.h"

#include "base/clock.h"
#include "base/memory_limit.h"
#include "queue/worker_queue.h"
#include "worker/heartbeat_state.h"

#include <stdlib.h>

void blasd_heartbeat_stop(struct blasd_heartbeat *heartbeat) {
    if (heartbeat == NULL) return;
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->stop = true;
    pthread_cond_broadcast(&heartbeat->wake);
    pthread_mutex_unlock(&heartbeat->lock);
    for (int i = 0; i < heartbeat->thread_count; i++) pthread_join(heartbeat->threads[i], NULL);
    blasd_worker_queue_free(heartbeat->lease.queue);
    pthread_cond_destroy(&heartbeat->wake);
    pthread_mutex_destroy(&heartbeat->lock);
    free(heartbeat);
}

static int start_threads(struct blasd_heartbeat *heartbeat, struct blasd_err *err) {
    static void *(*const run[BLASD_HEARTBEAT_THREADS])(void *) = {
        blasd_lease_run, blasd_sweeper_run, blasd_watchdog_run};
    for (int i = 0; i < BLASD_HEARTBEAT_THREADS; i++) {
        if (pthread_create(&heartbeat->threads[i], NULL, run[i], heartbeat) != 0)
            return blasd_fail(err, BLASD_E_internal_error, "",
                              "cannot start the heartbeat threads");
        heartbeat->thread_count++;
    }
    return 0;
}

int blasd_heartbeat_start(const struct blasd_worker_options *options, struct blasd_heartbeat **ret,
                          struct blasd_err *err) {
    struct blasd_heartbeat *heartbeat = calloc(1, sizeof *heartbeat);
    pthread_condattr_t steady;
    int code;
    if (heartbeat == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the heartbeat");
    for (int i = 0; i < BLASD_SLOTS; i++) {
        heartbeat->active[i].watch.go_on = blasd_active_go_on;
        heartbeat->active[i].heartbeat = heartbeat;
    }
    heartbeat->options = options;
    heartbeat->lease.heartbeat = heartbeat;
    atomic_store(&heartbeat->lease.lost_epoch, -1);
    blasd_phases_init(&heartbeat->phases);
    heartbeat->host_memory = blasd_memory_here().all;
    heartbeat->started_ns = heartbeat->tally.window_ns = blasd_clock_ns();
    pthread_mutex_init(&heartbeat->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&heartbeat->wake, &steady);
    pthread_condattr_destroy(&steady);
    code = start_threads(heartbeat, err);
    if (code != 0) {
        blasd_heartbeat_stop(heartbeat);
        return code;
    }
    *ret = heartbeat;
    return 0;
}
