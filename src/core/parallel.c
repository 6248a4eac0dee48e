/* Threads that take pieces of work from one counter. Each thread that runs loops has helpers of its
 * own, a crew: made when a loop first asks for them, asleep between loops, ended with the thread.
 * So two threads that run loops at once never wait for each other's helpers, and helpers have the
 * weight of the one they help: a thread that lowered its weight could not raise it again.
 *
 * A loop leaves places open; helpers that wake take them. It ends when no piece is left and those
 * that came have gone: one that has not woken by then is not waited for. Read next: parallel.h. */
#include "core/parallel.h"

#include "core/wanted.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* Of helpers in the background: a third of the weight of the slow pool's own threads
 * (worker/slow_pool.c), and enough that what they have taken gets done beside programs that want
 * every core: others wait for it. Of the idle class, they took minutes for it. */
#define BACKGROUND_NICE 15

/* Looks at what is awaited before sleeping: some 10 us, as a sleep and a wake-up cost. Loops follow
 * closely upon each other in a factorization. */
#define LOOKS 300
/* The same between loops that follow each other as steps do: some 100 us. */
#define LOOKS_CLOSE 3000

/* One loop while it runs. */
struct round {
    const struct blasd_parallel *loop;
    atomic_llong next;
    atomic_bool stop;
};

struct crew {
    pthread_t helpers[BLASD_PARALLEL_MAX - 1];
    int hired;
    pid_t process; /* that they are threads of */
    bool at_work;  /* the owner's: a loop runs */

    /* Written under the lock, and read without it to see whether it is worth taking. */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* helpers: places are open, the end */
    pthread_cond_t left; /* the owner: nobody is inside */
    atomic_int places;   /* open ones of the current loop */
    atomic_int inside;   /* helpers at work */
    atomic_bool end;
    atomic_int looks; /* LOOKS or LOOKS_CLOSE */
    int next_slot;
    bool gives_way;
    struct round *round;        /* borrowed: in the owner's frame while places are open or taken */
    struct blasd_wanted *batch; /* borrowed: what the owner works on */
};

static _Thread_local bool in_background;
static _Thread_local bool close_together;
static _Thread_local struct crew *my_crew; /* owned */
static _Thread_local bool am_helper;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* only so that a thread's crew ends with it */
static bool have_key;

void blasd_parallel_background(void) {
    in_background = true;
}

void blasd_parallel_close_together(bool close) {
    close_together = close;
}

static void pause_briefly(void) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

static void work(struct round *round, int slot) {
    const struct blasd_parallel *loop = round->loop;
    while (!atomic_load_explicit(&round->stop, memory_order_relaxed)) {
        long long i = atomic_fetch_add_explicit(&round->next, 1, memory_order_relaxed);
        if (i >= loop->count) return;
        if (!loop->piece(loop->arg, i, slot)) atomic_store(&round->stop, true);
        if (slot == 0 && loop->watch != NULL) {
            double done = (double)(i + 1) / (double)loop->count;
            if (!blasd_wanted_tell(loop->from + (loop->to - loop->from) * done))
                atomic_store(&round->stop, true);
        } else if (!blasd_wanted()) {
            atomic_store(&round->stop, true);
        }
    }
}

/* ---- helpers ---- */

static bool is_called(struct crew *crew) {
    return atomic_load(&crew->places) > 0 || atomic_load(&crew->end);
}

/* Waits for a place, and takes it. False: the crew ends. Leaves without the lock. */
static bool come_in(struct crew *crew, int *slot, bool *gives_way) {
    bool called;
    for (int i = 0; i < atomic_load(&crew->looks) && !is_called(crew); i++) pause_briefly();
    pthread_mutex_lock(&crew->lock);
    while (!is_called(crew)) pthread_cond_wait(&crew->wake, &crew->lock);
    called = !atomic_load(&crew->end);
    if (called) {
        atomic_fetch_sub(&crew->places, 1);
        atomic_fetch_add(&crew->inside, 1);
        *slot = crew->next_slot++;
        *gives_way = crew->gives_way;
    }
    pthread_mutex_unlock(&crew->lock);
    return called;
}

static void *helper_main(void *arg) {
    struct crew *crew = arg;
    bool gives_way, gave_way = false;
    int slot;
    am_helper = true;
    while (come_in(crew, &slot, &gives_way)) {
        if (gives_way && !gave_way)
            (void)setpriority(PRIO_PROCESS, (id_t)gettid(), BACKGROUND_NICE);
        gave_way = gives_way;
        blasd_wanted_join(crew->batch);
        work(crew->round, slot);
        blasd_wanted_join(NULL);
        pthread_mutex_lock(&crew->lock);
        if (atomic_fetch_sub(&crew->inside, 1) == 1) pthread_cond_signal(&crew->left);
        pthread_mutex_unlock(&crew->lock);
    }
    return NULL;
}

/* ---- crews ---- */

/* Ends the helpers. In a process forked off their own there are none, and the lock may be held for
 * ever. */
static void crew_free(void *arg) {
    struct crew *crew = arg;
    if (crew->process == getpid()) {
        pthread_mutex_lock(&crew->lock);
        atomic_store(&crew->end, true);
        pthread_cond_broadcast(&crew->wake);
        pthread_mutex_unlock(&crew->lock);
        for (int i = 0; i < crew->hired; i++) pthread_join(crew->helpers[i], NULL);
        pthread_cond_destroy(&crew->left);
        pthread_cond_destroy(&crew->wake);
        pthread_mutex_destroy(&crew->lock);
    }
    free(crew);
}

void blasd_parallel_dismiss(void) {
    struct crew *crew = my_crew;
    if (crew == NULL) return;
    my_crew = NULL;
    pthread_setspecific(key, NULL);
    crew_free(crew);
}

static void make_key(void) {
    have_key = pthread_key_create(&key, crew_free) == 0;
}

/* The calling thread's crew. NULL: no memory. */
static struct crew *crew_get(void) {
    struct crew *crew;
    if (my_crew != NULL && my_crew->process != getpid()) blasd_parallel_dismiss();
    if (my_crew != NULL) return my_crew;
    pthread_once(&once, make_key);
    if (!have_key || (crew = calloc(1, sizeof *crew)) == NULL) return NULL;
    crew->process = getpid();
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->wake, NULL);
    pthread_cond_init(&crew->left, NULL);
    if (pthread_setspecific(key, crew) != 0) {
        free(crew);
        return NULL;
    }
    return my_crew = crew;
}

/* Has `count` helpers, or as many as can be started. They leave signals to those who wait for
 * them. */
static void hire(struct crew *crew, int count) {
    sigset_t all, before;
    if (crew->hired >= count) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (crew->hired < count) {
        if (pthread_create(&crew->helpers[crew->hired], NULL, helper_main, crew) != 0) break;
        crew->hired++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void call_helpers(struct crew *crew, struct round *round, int count) {
    if (count > crew->hired) count = crew->hired;
    pthread_mutex_lock(&crew->lock);
    crew->round = round;
    crew->batch = blasd_wanted_current();
    crew->next_slot = 1;
    crew->gives_way = in_background;
    atomic_store(&crew->looks, close_together ? LOOKS_CLOSE : LOOKS);
    atomic_store(&crew->places, count);
    pthread_mutex_unlock(&crew->lock);
    if (count == crew->hired) {
        pthread_cond_broadcast(&crew->wake);
    } else {
        for (int i = 0; i < count; i++) pthread_cond_signal(&crew->wake);
    }
}

/* Closes the places that are still open, and waits until nobody is inside. */
static void await_helpers(struct crew *crew) {
    pthread_mutex_lock(&crew->lock);
    atomic_store(&crew->places, 0);
    if (atomic_load(&crew->inside) > 0) {
        pthread_mutex_unlock(&crew->lock);
        for (int i = 0; i < atomic_load(&crew->looks) && atomic_load(&crew->inside) > 0; i++)
            pause_briefly();
        pthread_mutex_lock(&crew->lock);
    }
    while (atomic_load(&crew->inside) > 0) pthread_cond_wait(&crew->left, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

/* How many threads the loop is worth, the calling one included. More than the part that is left to
 * it of the machine would only take turns on the cores with those of others. */
static int worth(const struct blasd_parallel *loop) {
    struct blasd_watch *watch = loop->watch;
    int threads = loop->threads;
    if (threads > 1 && watch != NULL && watch->sharers != NULL) {
        int sharers = watch->sharers(watch);
        if (sharers > 1) threads = (threads + sharers - 1) / sharers;
    }
    if (threads > loop->count) threads = (int)loop->count;
    return threads < BLASD_PARALLEL_MAX ? threads : BLASD_PARALLEL_MAX;
}

bool blasd_parallel_run(const struct blasd_parallel *loop) {
    struct round round = {.loop = loop};
    struct crew *crew = NULL;
    struct blasd_err none;
    bool alone = loop->watch != NULL && blasd_wanted_current() == NULL; /* no kernel's */
    int wanted = worth(loop);
    if (alone) blasd_wanted_begin(loop->watch);
    /* a loop inside a piece of another has no helpers: they are at work there */
    if (wanted > 1 && !am_helper) crew = crew_get();
    if (crew != NULL && crew->at_work) crew = NULL;
    if (crew != NULL) {
        crew->at_work = true;
        hire(crew, wanted - 1);
        call_helpers(crew, &round, wanted - 1);
    }
    work(&round, 0);
    if (crew != NULL) {
        await_helpers(crew);
        crew->at_work = false;
    }
    if (alone) (void)blasd_wanted_end(0, &none);
    return !atomic_load(&round.stop);
}
