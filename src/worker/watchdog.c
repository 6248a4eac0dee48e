/* The thread that never waits for Redis: it says when a batch must end, and ends the worker where
 * that is in vain, or where the main thread stands still. */
#include "base/clock.h"
#include "base/log.h"
#include "queue/worker_queue.h"
#include "worker/completion.h"
#include "worker/heartbeat_state.h"

#include <string.h>

#define SIGN_NS (500 * BLASD_MS)
#define LEAP_NS (1000 * BLASD_MS) /* more between two looks: this thread did not run */
#define MAIN_LONGER 3             /* times silence_s: the main thread may be waiting for Redis */

/* Why a batch cannot go on, or NULL where it may. With the lock. */
static const char *must_end(struct blasd_heartbeat *heartbeat, struct active *active, int64_t now) {
    int64_t most_ns = (int64_t)active->most_s * 1000 * BLASD_MS;
    if (!active->computing) return NULL;
    if (blasd_heartbeat_lost(heartbeat)) return "belongs to others now";
    /* also a call that was told to give way and does not hear it */
    if (atomic_load(&active->told) != BLASD_UNWANTED && most_ns > 0 &&
        now - active->since_ns > most_ns)
        atomic_store(&active->told, BLASD_TOO_LONG);
    if (atomic_load(&active->told) == BLASD_GO_ON && active->gives_way &&
        now - active->since_ns > BLASD_OVERRUN_NS)
        atomic_store(&active->told, BLASD_OVERRAN);
    switch (atomic_load(&active->told)) {
    case BLASD_UNWANTED: return "is cancelled or past its deadline";
    case BLASD_TOO_LONG: return "has computed for longer than job_s";
    default: return NULL;
    }
}

/* The batch that was told to end stop_s ago and still computes, and why; NULL: there is none. With
 * the lock. */
static struct active *find_hung(struct blasd_heartbeat *heartbeat, int64_t now, const char **why) {
    int64_t stop_ns = (int64_t)heartbeat->options->queue.limits->stop_s * 1000 * BLASD_MS;
    for (int i = 0; i < BLASD_SLOTS; i++) {
        struct active *active = &heartbeat->active[i];
        if ((*why = must_end(heartbeat, active, now)) == NULL) continue;
        if (active->told_ns == 0) active->told_ns = now;
        if (now - active->told_ns > stop_ns) return active;
    }
    return NULL;
}

/* The record of the job that computes by itself and took too long: it is not to be tried again.
 * With the lock. */
static void end_too_long(struct blasd_heartbeat *heartbeat, const struct active *active,
                         char id[BLASD_ID_LEN + 1], struct blasd_completions *completions) {
    int64_t now = blasd_clock_ns(), began = active->began_ns;
    struct blasd_batch_times times = {began, began, began, now, now};
    struct blasd_batch_place place = {heartbeat->device.id, heartbeat->device.name, 1};
    struct blasd_record record;
    struct blasd_err error, ignored;
    if (active->count != 1 || atomic_load(&active->told) != BLASD_TOO_LONG) return;
    blasd_heartbeat_too_long(heartbeat, (enum blasd_slot)(active - heartbeat->active), &error);
    blasd_completion_record(active->jobs[0], NULL, NULL, &error, &times, &place, &record);
    if (blasd_completions_add(completions, &record, active->jobs[0], NULL, NULL, &ignored) != 0)
        return;
    blasd_ended_log(&completions->of[0].ended, active->jobs[0], heartbeat->device.id,
                    heartbeat->options);
    memcpy(id, active->jobs[0]->claim->id,
           BLASD_ID_LEN + 1); /* the item may not outlive the lock */
    completions->rows[0].id = id;
}

/* Ends what is in `completions`, and gives back all that the worker holds, over a connection that
 * nobody else uses. Where this does not arrive the lease lapses by itself. */
static void give_back(const struct blasd_heartbeat *heartbeat, int64_t epoch,
                      struct blasd_completions *completions) {
    const struct blasd_worker_options *options = heartbeat->options;
    struct blasd_worker_queue *queue;
    struct blasd_err err;
    bool lost = false;
    if (blasd_worker_queue_open(&options->queue, &queue, &err) != 0) return;
    blasd_worker_queue_join(queue, options->name, epoch, BLASD_THREAD_WATCHDOG);
    if (completions->count > 0)
        (void)blasd_worker_queue_finish(queue, blasd_completions_rows(completions),
                                        completions->count, &lost, &err);
    if (!lost) (void)blasd_worker_queue_release(queue, &err);
    blasd_worker_queue_free(queue);
}

/* The one place that decides that this process must end. `active`: what hangs; NULL: the main
 * thread. Called and left with the lock. */
static void end_worker(struct blasd_heartbeat *heartbeat, const struct active *active,
                       const char *why) {
    const struct blasd_worker_options *options = heartbeat->options;
    int64_t epoch;
    struct blasd_completions completions;
    char id[BLASD_ID_LEN + 1];
    blasd_completions_init(&completions);
    if (active != NULL) {
        blasd_log(BLASD_LOG_ERROR,
                  "%s %s (jobs in the call: %d) %s and does not stop: ending this worker",
                  active->jobs[0]->job.op->name, active->jobs[0]->claim->id, active->count, why);
        end_too_long(heartbeat, active, id, &completions);
    } else {
        blasd_log(BLASD_LOG_ERROR, "the worker's loop stands still: ending this worker");
    }
    epoch = heartbeat->lease.epoch;
    pthread_mutex_unlock(&heartbeat->lock);
    if (epoch != 0) give_back(heartbeat, epoch, &completions);
    blasd_completions_release(&completions);
    if (options->hung != NULL) options->hung(options->arg);
    pthread_mutex_lock(&heartbeat->lock);
}

/* Once told to end, the worker lets its batches compute for drain_s. With the lock. */
static void heed_drain(struct blasd_heartbeat *heartbeat, int64_t now, int64_t *since_ns) {
    int64_t most_ns = (int64_t)heartbeat->options->queue.limits->drain_s * 1000 * BLASD_MS;
    if (!heartbeat->options->stopping(heartbeat->options->arg)) return;
    if (*since_ns == 0) *since_ns = now;
    if (now - *since_ns <= most_ns || blasd_active_jobs(heartbeat) == 0) return;
    if (blasd_heartbeat_lost(heartbeat)) return; /* that was said */
    blasd_log(BLASD_LOG_WARN, "jobs that do not end within drain_s go back to the queue: %d",
              blasd_active_jobs(heartbeat));
    blasd_heartbeat_give_up(heartbeat);
}

void *blasd_watchdog_run(void *arg) {
    struct blasd_heartbeat *heartbeat = arg;
    int64_t last_ns = blasd_clock_ns(), draining_ns = 0, signed_ns = 0;
    bool ended = false;
    pthread_mutex_lock(&heartbeat->lock);
    while (!heartbeat->stop && !ended) {
        const char *why = NULL;
        int64_t now = blasd_clock_ns(), past = now - last_ns < LEAP_NS ? now - last_ns : LEAP_NS;
        last_ns = now;
        now = atomic_fetch_add(&heartbeat->clock_ns, past) + past;
        heed_drain(heartbeat, now, &draining_ns);
        const struct active *hung = find_hung(heartbeat, now, &why);
        ended = hung != NULL ||
                blasd_main_silence(heartbeat) > MAIN_LONGER * blasd_silence_ns(heartbeat);
        if (ended) {
            end_worker(heartbeat, hung, why);
        } else if (now - signed_ns >= SIGN_NS && heartbeat->options->alive != NULL) {
            signed_ns = now;
            heartbeat->options->alive(heartbeat->options->arg);
        }
        if (!heartbeat->stop) blasd_heartbeat_wait(heartbeat, BLASD_TICK_NS);
    }
    pthread_mutex_unlock(&heartbeat->lock);
    return NULL;
}
