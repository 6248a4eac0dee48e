/* Start and end of the two threads that watch over a worker. */
#include "worker/heartbeat.h"

#include "base/clock.h"
#include "base/memory_limit.h"
#include "queue/worker_queue.h"
#include "worker/heartbeat_state.h"

#include <stdlib.h>

static void heartbeat_free(struct blasd_heartbeat *heartbeat) {
    for (int i = 0; i < heartbeat->queues; i++) blasd_worker_queue_free(heartbeat->leases[i].queue);
    pthread_cond_destroy(&heartbeat->wake);
    pthread_mutex_destroy(&heartbeat->lock);
    free(heartbeat);
}

static void stop_leases(struct blasd_heartbeat *heartbeat, int count) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->stop = true;
    pthread_cond_broadcast(&heartbeat->wake);
    pthread_mutex_unlock(&heartbeat->lock);
    for (int i = 0; i < count; i++) pthread_join(heartbeat->leases[i].thread, NULL);
}

static int start_lease(struct blasd_heartbeat *heartbeat, int number, struct blasd_err *err) {
    struct lease *lease = &heartbeat->leases[number];
    lease->heartbeat = heartbeat;
    lease->number = number;
    atomic_store(&lease->lost_epoch, -1);
    if (pthread_create(&lease->thread, NULL, blasd_lease_run, lease) == 0) return 0;
    return blasd_fail(err, BLASD_E_internal_error, "", "cannot start the heartbeat thread");
}

int blasd_heartbeat_start(const struct blasd_worker_options *options, struct blasd_heartbeat **ret,
                          struct blasd_err *err) {
    struct blasd_heartbeat *heartbeat = calloc(1, sizeof *heartbeat);
    pthread_condattr_t steady;
    int code = 0, started = 0;
    if (heartbeat == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the heartbeat");
    for (int i = 0; i < BLASD_SLOTS; i++) {
        heartbeat->active[i].watch.go_on = blasd_active_go_on;
        heartbeat->active[i].heartbeat = heartbeat;
    }
    heartbeat->options = options;
    heartbeat->host_memory = blasd_memory_here().all;
    heartbeat->started_ns = heartbeat->tally.window_ns = blasd_clock_ns();
    heartbeat->queues = blasd_queue_count(&options->queue);
    pthread_mutex_init(&heartbeat->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&heartbeat->wake, &steady);
    pthread_condattr_destroy(&steady);
    for (; started < heartbeat->queues && code == 0; started += code == 0)
        code = start_lease(heartbeat, started, err);
    if (code == 0 &&
        pthread_create(&heartbeat->watchdog_thread, NULL, blasd_watchdog_run, heartbeat) != 0)
        code = blasd_fail(err, BLASD_E_internal_error, "", "cannot start the watchdog thread");
    if (code != 0) {
        stop_leases(heartbeat, started);
        heartbeat_free(heartbeat);
        return code;
    }
    *ret = heartbeat;
    return 0;
}

void blasd_heartbeat_stop(struct blasd_heartbeat *heartbeat) {
    if (heartbeat == NULL) return;
    stop_leases(heartbeat, heartbeat->queues);
    pthread_join(heartbeat->watchdog_thread, NULL);
    heartbeat_free(heartbeat);
}
