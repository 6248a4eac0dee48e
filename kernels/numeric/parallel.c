/* Threads that take pieces of work from one counter. They live as long as one loop: a start costs
 * about 20 us, and only loops of milliseconds ask for more than one. Read next: parallel.h. */
#include "kernels/numeric/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#ifndef SCHED_IDLE /* Linux has it; without it threads weigh what the calling one does */
#define SCHED_IDLE SCHED_OTHER
#endif

static _Thread_local bool in_background;

void blasd_parallel_background(void) {
    in_background = true;
}

struct crew {
    const struct blasd_parallel *loop;
    atomic_llong next;
    atomic_bool stop;
};

struct member {
    struct crew *crew;
    bool gives_way;
    int slot;
    pthread_t thread;
};

static void work(struct crew *crew, int slot) {
    const struct blasd_parallel *loop = crew->loop;
    while (!atomic_load_explicit(&crew->stop, memory_order_relaxed)) {
        long long i = atomic_fetch_add_explicit(&crew->next, 1, memory_order_relaxed);
        if (i >= loop->count) return;
        if (!loop->piece(loop->arg, i, slot)) atomic_store(&crew->stop, true);
        if (slot == 0 && loop->watch != NULL) {
            double done = (double)(i + 1) / (double)loop->count;
            if (!loop->watch->go_on(loop->watch, loop->from + (loop->to - loop->from) * done))
                atomic_store(&crew->stop, true);
        }
    }
}

static void *member_main(void *arg) {
    struct member *member = arg;
    if (member->gives_way)
        pthread_setschedparam(pthread_self(), SCHED_IDLE, &(struct sched_param){0});
    work(member->crew, member->slot);
    return NULL;
}

bool blasd_parallel_run(const struct blasd_parallel *loop) {
    struct crew crew = {.loop = loop};
    struct member members[BLASD_PARALLEL_MAX];
    int started = 0, wanted = loop->threads;
    if (wanted > loop->count) wanted = (int)loop->count;
    if (wanted > BLASD_PARALLEL_MAX) wanted = BLASD_PARALLEL_MAX;
    for (int i = 1; i < wanted; i++) {
        struct member *member = &members[started];
        *member = (struct member){.crew = &crew, .slot = started + 1, .gives_way = in_background};
        if (pthread_create(&member->thread, NULL, member_main, member) == 0) started++;
    }
    work(&crew, 0);
    for (int i = 0; i < started; i++) pthread_join(members[i].thread, NULL);
    return !atomic_load(&crew.stop);
}
