/* The heartbeat thread and the watchdog. The first touches Redis through its own connection only;
 * what they share with the computing threads is a few atomics and, under one lock, the batches. */
#include "worker/heartbeat.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "queue/worker_queue.h"
#include "wire/cost_text.h"
#include "worker/cost_file.h"
#include "worker/ending.h"
#include "worker/host_memory.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS (200 * BLASD_MS)
#define RENEW_MOST_NS (1000 * BLASD_MS)
#define SWEEP_NS (5000 * BLASD_MS)
#define SWEEP_SOON_NS (1100 * BLASD_MS) /* while jobs end, and after one that found something */
#define INFO_MOST (4096 + BLASD_COST_TEXT_MOST)
#define SHARE_NS (10000 * BLASD_MS) /* the window of busy_share and jobs_per_s */
#define SIGN_NS (500 * BLASD_MS)
#define LEAP_NS (1000 * BLASD_MS) /* more between two looks of the watchdog: it did not run */
#define MAIN_LONGER 3             /* times silence_s: the main thread may be waiting for Redis */

/* The batch that runs in one place. All but the atomics is under the heartbeat's lock. */
struct shift {
    struct blasd_watch watch; /* first: go_on finds the rest behind it */
    struct blasd_heartbeat *heartbeat;
    struct blasd_item **jobs; /* owned; the items are borrowed */
    int count, room;
    uint64_t batch; /* counts batches, so that news of one is not taken for the next one's */
    int64_t began_ns;
    bool computing;
    int64_t since_ns, told_ns; /* the watchdog's clock: it began; it was told to end, 0: not yet */
    _Atomic double progress;
    _Atomic enum blasd_told told;
};

struct blasd_heartbeat {
    const struct blasd_worker_options *options;
    struct blasd_worker_queue *queue; /* the thread's own */
    pthread_t thread, watchdog;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* time as the watchdog sees it: it stands still while the process is stopped */
    _Atomic int64_t clock_ns, main_ns; /* now; when the main thread gave its last sign */
    int64_t started_ns, renewed_ns;
    int64_t renewed_epoch; /* the lease that the thread's own queue speaks for */
    int64_t swept_ns;      /* when the store was swept last, */
    bool sweep_found;      /* whether that found anything, */
    uint64_t swept_jobs;   /* and how many jobs had ended then */
    uint64_t host_memory;

    /* under the lock */
    bool stop;
    int64_t epoch; /* 0: no lease */
    struct shift shifts[BLASD_PLACES];
    struct blasd_device_info device;
    struct blasd_cost cost;
    uint64_t jobs, failed, batches;
    int64_t busy_ns;
    int64_t window_ns, window_busy_ns; /* where the current window began, and busy_ns then */
    uint64_t window_jobs;
    double busy_share, jobs_per_s;

    _Atomic int64_t leased_epoch, lost_epoch;
};

static bool go_on(struct blasd_watch *watch, double progress) {
    struct shift *shift = (struct shift *)watch;
    atomic_store_explicit(&shift->progress, progress, memory_order_relaxed);
    return atomic_load_explicit(&shift->told, memory_order_relaxed) == BLASD_GO_ON &&
           !blasd_heartbeat_lost(shift->heartbeat);
}

struct blasd_watch *blasd_heartbeat_watch(struct blasd_heartbeat *heartbeat,
                                          enum blasd_place place) {
    return &heartbeat->shifts[place].watch;
}

enum blasd_told blasd_heartbeat_told(const struct blasd_heartbeat *heartbeat,
                                     enum blasd_place place) {
    return atomic_load(&heartbeat->shifts[place].told);
}

int blasd_heartbeat_too_long(const struct blasd_heartbeat *heartbeat, struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_job_too_long, "",
                      "the job computed for longer than %" PRIu64 " s (limit job_s)",
                      heartbeat->options->queue.limits->job_s);
}

void blasd_heartbeat_sign(struct blasd_heartbeat *heartbeat) {
    atomic_store(&heartbeat->main_ns, atomic_load(&heartbeat->clock_ns));
}

void blasd_heartbeat_give_up(struct blasd_heartbeat *heartbeat) {
    atomic_store(&heartbeat->lost_epoch, atomic_load(&heartbeat->leased_epoch));
}

bool blasd_heartbeat_lost(const struct blasd_heartbeat *heartbeat) {
    return atomic_load_explicit(&heartbeat->lost_epoch, memory_order_relaxed) ==
           atomic_load_explicit(&heartbeat->leased_epoch, memory_order_relaxed);
}

void blasd_heartbeat_device(struct blasd_heartbeat *heartbeat,
                            const struct blasd_device_info *info) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->device = *info;
    pthread_mutex_unlock(&heartbeat->lock);
}

void blasd_heartbeat_cost(struct blasd_heartbeat *heartbeat, const struct blasd_cost *cost) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->cost = *cost;
    pthread_mutex_unlock(&heartbeat->lock);
}

void blasd_heartbeat_lease(struct blasd_heartbeat *heartbeat, int64_t epoch) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->epoch = epoch;
    atomic_store(&heartbeat->leased_epoch, epoch);
    pthread_mutex_unlock(&heartbeat->lock);
}

int blasd_heartbeat_begin(struct blasd_heartbeat *heartbeat, enum blasd_place place,
                          struct blasd_item *const *jobs, int count) {
    struct shift *shift = &heartbeat->shifts[place];
    int code = -1;
    pthread_mutex_lock(&heartbeat->lock);
    if (count > shift->room) {
        void *grown = realloc(shift->jobs, (size_t)count * sizeof *shift->jobs);
        if (grown == NULL) goto done;
        shift->jobs = grown;
        shift->room = count;
    }
    memcpy(shift->jobs, jobs, (size_t)count * sizeof *shift->jobs);
    shift->count = count;
    shift->batch++;
    shift->began_ns = blasd_clock_ns();
    shift->computing = true;
    shift->since_ns = atomic_load(&heartbeat->clock_ns);
    shift->told_ns = 0;
    atomic_store(&shift->progress, 0.0);
    atomic_store(&shift->told, BLASD_GO_ON);
    code = 0;
done:
    pthread_mutex_unlock(&heartbeat->lock);
    return code;
}

enum blasd_told blasd_heartbeat_ran(struct blasd_heartbeat *heartbeat, enum blasd_place place) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->shifts[place].computing = false;
    pthread_mutex_unlock(&heartbeat->lock);
    return blasd_heartbeat_told(heartbeat, place);
}

void blasd_heartbeat_end(struct blasd_heartbeat *heartbeat, enum blasd_place place, int jobs,
                         int failed) {
    struct shift *shift = &heartbeat->shifts[place];
    pthread_mutex_lock(&heartbeat->lock);
    shift->count = 0;
    shift->computing = false;
    heartbeat->jobs += (uint64_t)jobs;
    heartbeat->failed += (uint64_t)failed;
    if (jobs > 0) heartbeat->batches++;
    heartbeat->busy_ns += blasd_clock_ns() - shift->began_ns;
    pthread_mutex_unlock(&heartbeat->lock);
    if (place == BLASD_PLACE_MAIN) blasd_heartbeat_sign(heartbeat);
}

/* Jobs of the batches that run. Under the lock. */
static int running(const struct blasd_heartbeat *heartbeat) {
    int count = 0;
    for (int i = 0; i < BLASD_PLACES; i++) count += heartbeat->shifts[i].count;
    return count;
}

/* Rates over the last window, the batch that is running included. Under the lock. */
static void measure(struct blasd_heartbeat *heartbeat, int64_t now) {
    int64_t busy = heartbeat->busy_ns, span = now - heartbeat->window_ns;
    for (int i = 0; i < BLASD_PLACES; i++)
        if (heartbeat->shifts[i].count > 0) busy += now - heartbeat->shifts[i].began_ns;
    if (span < RENEW_MOST_NS / 2) return;
    heartbeat->busy_share = (double)(busy - heartbeat->window_busy_ns) / (double)span;
    if (heartbeat->busy_share > 1) heartbeat->busy_share = 1;
    if (heartbeat->busy_share < 0) heartbeat->busy_share = 0;
    heartbeat->jobs_per_s = (double)(heartbeat->jobs - heartbeat->window_jobs) * 1e9 / (double)span;
    if (span < SHARE_NS) return;
    heartbeat->window_ns = now;
    heartbeat->window_busy_ns = busy;
    heartbeat->window_jobs = heartbeat->jobs;
}

/* `"key":"text",` with what JSON does not allow in a string replaced. */
static int put_text(struct blasd_buf *out, const char *key, const char *text) {
    char safe[160];
    size_t len = 0;
    for (; *text != '\0' && len < sizeof safe - 1; text++)
        safe[len++] = (unsigned char)*text < ' ' || *text == '"' || *text == '\\' ? ' ' : *text;
    safe[len] = '\0';
    return blasd_buf_printf(out, "\"%s\":\"%s\",", key, safe);
}

static int put_device(struct blasd_buf *out, const struct blasd_device_info *device) {
    int failed = put_text(out, "device", device->id);
    failed |= put_text(out, "device_name", device->name);
    failed |= put_text(out, "class", blasd_device_class_names[device->device_class]);
    failed |= blasd_buf_printf(
        out, "\"units\":%d,\"memory_bytes\":%" PRIu64 ",\"memory_free_bytes\":%" PRIu64 ",",
        device->units, device->memory_bytes, device->memory_free_bytes);
    if (device->blas_library[0] != '\0') {
        failed |= blasd_buf_puts(out, "\"blas\":{");
        failed |= put_text(out, "library", device->blas_library);
        failed |= put_text(out, "core", device->blas_core);
        failed |= put_text(out, "chosen_by", device->blas_chosen_by);
        out->len--; /* its comma */
        failed |= blasd_buf_puts(out, "},");
    }
    if (device->gflops_float64 > 0) /* measured, or left out */
        failed |= blasd_buf_printf(
            out, "\"gflops_float64\":%.6g,\"gflops_float32\":%.6g,\"copy_gbytes_s\":%.6g,",
            device->gflops_float64, device->gflops_float32, device->copy_gbytes_s);
    /* each only where the card counts it */
    if (device->power_watts > 0)
        failed |= blasd_buf_printf(out, "\"power_watts\":%.6g,", device->power_watts);
    if (device->energy_joules > 0)
        failed |= blasd_buf_printf(out, "\"energy_joules\":%.9g,", device->energy_joules);
    if (device->device_class == BLASD_DEVICE_CUDA && device->busy_percent >= 0)
        failed |= blasd_buf_printf(out, "\"busy_percent\":%d,", device->busy_percent);
    return failed;
}

/* What jobs cost on the device and how large they may be; under the lock. */
static int put_cost(struct blasd_buf *out, const struct blasd_heartbeat *heartbeat) {
    const struct blasd_backend *backend = heartbeat->options->backend;
    const char *comma = "";
    int failed = blasd_buf_printf(out, "\"host_memory_bytes\":%" PRIu64 ",\"ops\":[",
                                  heartbeat->host_memory);
    for (int i = 0; backend->kernels[i] != NULL; i++, comma = ",")
        failed |= blasd_buf_printf(out, "%s\"%s\"", comma, backend->kernels[i]->op);
    failed |= blasd_buf_puts(out, "],");
    if (!blasd_cost_known(&heartbeat->cost)) return failed;
    failed |= blasd_buf_puts(out, "\"cost\":");
    failed |= blasd_cost_write(&heartbeat->cost, out);
    return failed | blasd_buf_puts(out, ",");
}

char *blasd_heartbeat_info(struct blasd_heartbeat *heartbeat) {
    int64_t now = blasd_clock_ns();
    char host[65] = "";
    struct blasd_buf out;
    int failed;
    blasd_buf_init(&out, INFO_MOST);
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    pthread_mutex_lock(&heartbeat->lock);
    measure(heartbeat, now);
    failed = blasd_buf_puts(&out, "{");
    failed |= put_text(&out, "worker", heartbeat->options->name);
    failed |= put_text(&out, "id", heartbeat->device.id);
    failed |= put_text(&out, "host", host);
    failed |= put_device(&out, &heartbeat->device);
    failed |= put_cost(&out, heartbeat);
    failed |= blasd_buf_printf(
        &out,
        "\"pid\":%d,\"uptime_s\":%.3f,\"jobs\":%" PRIu64 ",\"failed\":%" PRIu64
        ",\"batches\":%" PRIu64
        ",\"running\":%d,\"busy_s\":%.3f,\"busy_share\":%.4f,\"jobs_per_s\":%.6g}",
        (int)getpid(), (double)(now - heartbeat->started_ns) / 1e9, heartbeat->jobs,
        heartbeat->failed, heartbeat->batches, running(heartbeat), (double)heartbeat->busy_ns / 1e9,
        heartbeat->busy_share, heartbeat->jobs_per_s);
    pthread_mutex_unlock(&heartbeat->lock);
    if (failed == 0) failed = blasd_buf_add(&out, "", 1); /* its zero */
    if (failed == 0) return out.data;
    blasd_buf_release(&out);
    return NULL;
}

/* Redis says that a lease is lost: late news of an earlier one is none of the one there is now,
 * which may itself have been given up. */
static void note_lost(struct blasd_heartbeat *heartbeat, int64_t epoch) {
    pthread_mutex_lock(&heartbeat->lock);
    if (heartbeat->epoch == epoch) atomic_store(&heartbeat->lost_epoch, epoch);
    pthread_mutex_unlock(&heartbeat->lock);
}

static void renew(struct blasd_heartbeat *heartbeat, int64_t epoch) {
    struct blasd_err err = {0};
    bool lost = false;
    char *info = blasd_heartbeat_info(heartbeat);
    if (info == NULL) return;
    blasd_worker_queue_join(heartbeat->queue, heartbeat->options->name, epoch, 8);
    heartbeat->renewed_epoch = epoch;
    if (blasd_worker_queue_renew(heartbeat->queue, info, &lost, &err) != 0)
        blasd_log(BLASD_LOG_DEBUG, "cannot renew the lease: %s", err.detail);
    else if (lost)
        note_lost(heartbeat, epoch);
    free(info);
}

/* Tells the progress of a batch that has run for a while, and learns whether it is still wanted.
 * Called with the lock, which is left while Redis is asked. */
static void relay(struct blasd_heartbeat *heartbeat, struct shift *shift) {
    uint64_t batch = shift->batch;
    int count = shift->count;
    bool wanted = true;
    struct blasd_err err = {0};
    char(*copies)[BLASD_ID_LEN + 1] = calloc((size_t)count, sizeof *copies);
    const char **ids = calloc((size_t)count, sizeof *ids);
    if (copies == NULL || ids == NULL) goto done;
    for (int i = 0; i < count; i++) {
        memcpy(copies[i], shift->jobs[i]->claim->id, sizeof *copies);
        ids[i] = copies[i];
    }
    pthread_mutex_unlock(&heartbeat->lock);
    if (blasd_worker_queue_progress(heartbeat->queue, ids, count, atomic_load(&shift->progress),
                                    &wanted, &err) != 0)
        wanted = true; /* nothing was learnt */
    pthread_mutex_lock(&heartbeat->lock);
    if (!wanted && shift->batch == batch) atomic_store(&shift->told, BLASD_UNWANTED);
done:
    free(copies);
    free(ids);
}

/* Sweeps the store if that is due: soon where jobs have ended since, or there was something to find
 * the last time. Called and left with the lock. */
static void sweep(struct blasd_heartbeat *heartbeat, int64_t now) {
    bool at_work = heartbeat->jobs != heartbeat->swept_jobs;
    int64_t every = at_work || heartbeat->sweep_found ? SWEEP_SOON_NS : SWEEP_NS;
    struct blasd_err err = {0};
    int removed;
    if (heartbeat->swept_ns != 0 && now - heartbeat->swept_ns < every) return;
    heartbeat->swept_jobs = heartbeat->jobs;
    pthread_mutex_unlock(&heartbeat->lock);
    removed = at_work ? blasd_worker_queue_sweep_at_work(heartbeat->queue, &err)
                      : blasd_worker_queue_sweep(heartbeat->queue, &err);
    if (removed < 0) blasd_log(BLASD_LOG_DEBUG, "cannot sweep the store: %s", err.detail);
    heartbeat->sweep_found = removed > 0;
    heartbeat->swept_ns = blasd_clock_ns();
    pthread_mutex_lock(&heartbeat->lock);
}

static int64_t silence_ns(const struct blasd_heartbeat *heartbeat) {
    return (int64_t)heartbeat->options->queue.limits->silence_s * 1000 * BLASD_MS;
}

/* How long ago the main thread gave a sign that it owes. With the lock. */
static int64_t main_silence(const struct blasd_heartbeat *heartbeat) {
    if (heartbeat->shifts[BLASD_PLACE_MAIN].count > 0) return 0;
    return atomic_load(&heartbeat->clock_ns) - atomic_load(&heartbeat->main_ns);
}

/* Whether the batch has run so long that it is time to ask after it. It is asked for in the name of
 * the lease that was renewed last: of a batch that began under a newer one Redis would say that
 * this worker has no business with it, which must not be taken for a cancellation. */
static bool relay_due(const struct blasd_heartbeat *heartbeat, const struct shift *shift,
                      int64_t now) {
    return shift->count > 0 && now - shift->began_ns >= TICK_NS &&
           heartbeat->epoch == heartbeat->renewed_epoch;
}

/* One round; called and left with the lock. */
static void beat(struct blasd_heartbeat *heartbeat, int64_t every_ns) {
    int64_t now = blasd_clock_ns(), epoch = heartbeat->epoch;
    if (epoch == 0 || blasd_heartbeat_lost(heartbeat)) return;
    /* a main thread that stands still must not keep its jobs from other workers */
    if (main_silence(heartbeat) <= silence_ns(heartbeat) &&
        (now - heartbeat->renewed_ns >= every_ns || epoch != heartbeat->renewed_epoch)) {
        heartbeat->renewed_ns = now;
        pthread_mutex_unlock(&heartbeat->lock);
        renew(heartbeat, epoch);
        pthread_mutex_lock(&heartbeat->lock);
    }
    for (int i = 0; i < BLASD_PLACES; i++) {
        struct shift *shift = &heartbeat->shifts[i];
        if (relay_due(heartbeat, shift, now)) relay(heartbeat, shift);
    }
    sweep(heartbeat, now);
}

static void nap(struct blasd_heartbeat *heartbeat, int64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / (1000 * BLASD_MS);
    until.tv_nsec = ns % (1000 * BLASD_MS);
    pthread_cond_timedwait(&heartbeat->wake, &heartbeat->lock, &until);
}

static void *run(void *arg) {
    struct blasd_heartbeat *heartbeat = arg;
    int64_t every_ns = (int64_t)heartbeat->options->queue.limits->lease_ms * BLASD_MS / 4;
    int64_t tick_ns;
    if (every_ns > RENEW_MOST_NS) every_ns = RENEW_MOST_NS;
    tick_ns = every_ns < TICK_NS ? every_ns : TICK_NS;
    pthread_mutex_lock(&heartbeat->lock);
    while (!heartbeat->stop) {
        beat(heartbeat, every_ns);
        if (!heartbeat->stop) nap(heartbeat, tick_ns);
    }
    pthread_mutex_unlock(&heartbeat->lock);
    return NULL;
}

/* ---- the watchdog ---- */

/* Why a batch cannot go on, or NULL where it may. With the lock. */
static const char *must_end(struct blasd_heartbeat *heartbeat, struct shift *shift, int64_t now) {
    int64_t most_ns = (int64_t)heartbeat->options->queue.limits->job_s * 1000 * BLASD_MS;
    if (!shift->computing) return NULL;
    if (blasd_heartbeat_lost(heartbeat)) return "belongs to others now";
    if (atomic_load(&shift->told) == BLASD_GO_ON && most_ns > 0 && now - shift->since_ns > most_ns)
        atomic_store(&shift->told, BLASD_TOO_LONG);
    switch (atomic_load(&shift->told)) {
    case BLASD_UNWANTED: return "is cancelled or past its deadline";
    case BLASD_TOO_LONG: return "has computed for longer than job_s";
    default: return NULL;
    }
}

/* The batch that was told to end stop_s ago and still computes, and why; NULL: there is none. With
 * the lock. */
static struct shift *find_hung(struct blasd_heartbeat *heartbeat, int64_t now, const char **why) {
    int64_t stop_ns = (int64_t)heartbeat->options->queue.limits->stop_s * 1000 * BLASD_MS;
    for (int i = 0; i < BLASD_PLACES; i++) {
        struct shift *shift = &heartbeat->shifts[i];
        if ((*why = must_end(heartbeat, shift, now)) == NULL) continue;
        if (shift->told_ns == 0) shift->told_ns = now;
        if (now - shift->told_ns > stop_ns) return shift;
    }
    return NULL;
}

/* The record of the job that computes by itself and took too long: it is not to be tried again.
 * With the lock. */
static void end_too_long(struct blasd_heartbeat *heartbeat, const struct shift *shift,
                         char id[BLASD_ID_LEN + 1], struct blasd_endings *endings) {
    int64_t now = blasd_clock_ns(), began = shift->began_ns;
    struct blasd_batch_times times = {began, began, began, now, now};
    struct blasd_batch_place place = {heartbeat->device.id, heartbeat->device.name, 1};
    struct blasd_record record;
    struct blasd_err error, ignored;
    if (shift->count != 1 || atomic_load(&shift->told) != BLASD_TOO_LONG) return;
    blasd_heartbeat_too_long(heartbeat, &error);
    blasd_ending_record(shift->jobs[0], NULL, NULL, &error, &times, &place, &record);
    if (blasd_endings_add(endings, &record, shift->jobs[0], NULL, &ignored) != 0) return;
    memcpy(id, shift->jobs[0]->claim->id, BLASD_ID_LEN + 1); /* the item may not outlive the lock */
    endings->rows[0].id = id;
}

/* Ends what is in `endings` and gives back all that the worker holds, over a connection that nobody
 * else uses. Where this does not arrive the lease lapses by itself. */
static void give_all_back(const struct blasd_heartbeat *heartbeat, int64_t epoch,
                          struct blasd_endings *endings) {
    const struct blasd_worker_options *options = heartbeat->options;
    struct blasd_worker_queue *queue;
    struct blasd_err err;
    bool lost = false;
    if (blasd_worker_queue_open(&options->queue, &queue, &err) != 0) return;
    blasd_worker_queue_join(queue, options->name, epoch, 9);
    if (endings->count > 0)
        (void)blasd_worker_queue_finish(queue, blasd_endings_rows(endings), endings->count, &lost,
                                        &err);
    if (!lost) (void)blasd_worker_queue_release(queue, &err);
    blasd_worker_queue_free(queue);
}

/* The one place that decides that this process must end. `shift`: what hangs; NULL: the main
 * thread. Called and left with the lock. */
static void end_worker(struct blasd_heartbeat *heartbeat, const struct shift *shift,
                       const char *why) {
    const struct blasd_worker_options *options = heartbeat->options;
    int64_t epoch = heartbeat->epoch;
    struct blasd_device_info device = heartbeat->device;
    struct blasd_endings endings;
    char id[BLASD_ID_LEN + 1];
    blasd_endings_init(&endings);
    if (shift != NULL) {
        blasd_log(BLASD_LOG_ERROR,
                  "%s %s (jobs in the call: %d) %s and does not stop: ending this worker",
                  shift->jobs[0]->job.op->name, shift->jobs[0]->claim->id, shift->count, why);
        end_too_long(heartbeat, shift, id, &endings);
    } else {
        blasd_log(BLASD_LOG_ERROR, "the worker's loop stands still: ending this worker");
    }
    pthread_mutex_unlock(&heartbeat->lock);
    /* measuring is not at fault where a batch is */
    if (shift != NULL && options->kept_in != NULL) blasd_cost_file_end(options->kept_in, &device);
    if (epoch != 0) give_all_back(heartbeat, epoch, &endings);
    blasd_endings_release(&endings);
    if (options->hung != NULL) options->hung(options->arg);
    pthread_mutex_lock(&heartbeat->lock);
}

/* Once told to end, the worker lets its batches compute for drain_s. With the lock. */
static void heed_drain(struct blasd_heartbeat *heartbeat, int64_t now, int64_t *since_ns) {
    int64_t most_ns = (int64_t)heartbeat->options->queue.limits->drain_s * 1000 * BLASD_MS;
    if (!heartbeat->options->stopping(heartbeat->options->arg)) return;
    if (*since_ns == 0) *since_ns = now;
    if (now - *since_ns <= most_ns || running(heartbeat) == 0 || blasd_heartbeat_lost(heartbeat))
        return;
    blasd_log(BLASD_LOG_WARN, "jobs that do not end within drain_s go back to the queue: %d",
              running(heartbeat));
    blasd_heartbeat_give_up(heartbeat);
}

static void *watch(void *arg) {
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
        const struct shift *hung = find_hung(heartbeat, now, &why);
        ended = hung != NULL || main_silence(heartbeat) > MAIN_LONGER * silence_ns(heartbeat);
        if (ended) {
            end_worker(heartbeat, hung, why);
        } else if (now - signed_ns >= SIGN_NS && heartbeat->options->alive != NULL) {
            signed_ns = now;
            heartbeat->options->alive(heartbeat->options->arg);
        }
        if (!heartbeat->stop) nap(heartbeat, TICK_NS);
    }
    pthread_mutex_unlock(&heartbeat->lock);
    return NULL;
}

/* ---- from beginning to end ---- */

static void heartbeat_free(struct blasd_heartbeat *heartbeat) {
    blasd_worker_queue_free(heartbeat->queue);
    pthread_cond_destroy(&heartbeat->wake);
    pthread_mutex_destroy(&heartbeat->lock);
    for (int i = 0; i < BLASD_PLACES; i++) free(heartbeat->shifts[i].jobs);
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
    for (int i = 0; i < BLASD_PLACES; i++) {
        heartbeat->shifts[i].watch.go_on = go_on;
        heartbeat->shifts[i].heartbeat = heartbeat;
    }
    heartbeat->options = options;
    heartbeat->host_memory = blasd_host_memory();
    heartbeat->started_ns = heartbeat->window_ns = blasd_clock_ns();
    atomic_store(&heartbeat->lost_epoch, -1);
    pthread_mutex_init(&heartbeat->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&heartbeat->wake, &steady);
    pthread_condattr_destroy(&steady);
    code = blasd_worker_queue_open(&options->queue, &heartbeat->queue, err);
    if (code != 0) {
        heartbeat_free(heartbeat);
        return code;
    }
    if (pthread_create(&heartbeat->thread, NULL, run, heartbeat) != 0) {
        heartbeat_free(heartbeat);
        return blasd_fail(err, BLASD_E_internal_error, "", "cannot start the heartbeat thread");
    }
    if (pthread_create(&heartbeat->watchdog, NULL, watch, heartbeat) != 0) {
        stop_thread(heartbeat, heartbeat->thread);
        heartbeat_free(heartbeat);
        return blasd_fail(err, BLASD_E_internal_error, "", "cannot start the watchdog thread");
    }
    *ret = heartbeat;
    return 0;
}

void blasd_heartbeat_stop(struct blasd_heartbeat *heartbeat) {
    if (heartbeat == NULL) return;
    stop_thread(heartbeat, heartbeat->thread);
    stop_thread(heartbeat, heartbeat->watchdog);
    heartbeat_free(heartbeat);
}
