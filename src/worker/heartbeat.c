/* Start and end of the two threads that watch over a worker. */
#include "worker/heartbeat.h"

#include "base/clock.h"
#include "base/file.h"
#include "queue/worker_queue.h"
#include "worker/heartbeat_state.h"

#include <stdlib.h>

static void heartbeat_free(struct blasd_heartbeat *heartbeat) {
    blasd_worker_queue_free(heartbeat->lease.queue);
    pthread_cond_destroy(&heartbeat->wake);
    pthread_mutex_destroy(&heartbeat->lock);
    free(heartbeat);
}

static void stop_thread(struct blasd_heartbeat *heartbeat, pthread_t thread) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->stop = true;
    pthread_cond_broadcast(&heartbeat->wake);
    pthread_mutex_unlock(&heartbeat->lock);
    pthread_join(thread, NULL);
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
    heartbeat->host_memory = blasd_host_memory();
    heartbeat->started_ns = heartbeat->tally.window_ns = blasd_clock_ns();
    atomic_store(&heartbeat->lost_epoch, -1);
    pthread_mutex_init(&heartbeat->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&heartbeat->wake, &steady);
    pthread_condattr_destroy(&steady);
    code = blasd_worker_queue_open(&options->queue, &heartbeat->lease.queue, err);
    if (code != 0) {
        heartbeat_free(heartbeat);
        return code;
    }
    if (pthread_create(&heartbeat->lease_thread, NULL, blasd_lease_run, heartbeat) != 0) {
        heartbeat_free(heartbeat);
        return blasd_fail(err, BLASD_E_internal_error, "", "cannot start the heartbeat thread");
    }
    if (pthread_create(&heartbeat->watchdog_thread, NULL, blasd_watchdog_run, heartbeat) != 0) {
        stop_thread(heartbeat, heartbeat->lease_thread);
        heartbeat_free(heartbeat);
        return blasd_fail(err, BLASD_E_internal_error, "", "cannot start the watchdog thread");
    }
    *ret = heartbeat;
    return 0;
}

void blasd_heartbeat_stop(struct blasd_heartbeat *heartbeat) {
    if (heartbeat == NULL) return;
    stop_thread(heartbeat, heartbeat->lease_thread);
    stop_thread(heartbeat, heartbeat->watchdog_thread);
    heartbeat_free(heartbeat);
}
