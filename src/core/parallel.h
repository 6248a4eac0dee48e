/* A loop over independent pieces of work on a few threads, with progress.
 *
 * Knows nothing of what the pieces are. */
#ifndef BLASD_CORE_PARALLEL_H
#define BLASD_CORE_PARALLEL_H

#include "core/kernel.h"

/* Functions that follow are compiled for several instruction sets; the loader picks one. The same
 * operations run in the same order in each, so the results are the same to the last bit. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* it would trip over the resolvers */
#define BLASD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define BLASD_CLONES
#endif

#define BLASD_PARALLEL_MAX 64 /* threads at most; `slot` below is less than this */

struct blasd_parallel {
    /* Does piece `i`; called from several threads at once, each with its own `slot` (0 for the
     * calling thread). False stops the loop: no further pieces begin. */
    bool (*piece)(void *arg, int64_t i, int slot);
    void *arg; /* borrowed */
    int64_t count;
    int threads; /* 1 runs everything on the calling thread */
    /* that of the batch: told between pieces how far it is, from the calling thread only, told
     * where a thread finds no more pieces of the last loop (`to` is 1), and asked at the beginning
     * who else is at work, which makes `threads` fewer; may be NULL. A piece that takes longer than
     * some milliseconds asks by itself whether to go on: wanted.h */
    struct blasd_watch *watch;
    double from, to; /* the part of the batch's progress that this loop is */
};

/* The helpers of the loops that the calling thread runs from now on weigh little beside the rest of
 * the machine (nice 15); the calling thread weighs what it did. For good: threads may not raise
 * their weight again. */
void blasd_parallel_background(void);
/* True: the calling thread's loops follow closely upon each other from now on, as the steps of one
 * job do. Its helpers then look some 100 us for the next one before they sleep, not 10: so soon a
 * wake-up would come too late. */
void blasd_parallel_close_together(bool close);
/* Runs all pieces; true where each was done, false where a piece or the watch said stop, or the
 * batch is not wanted any more. The other
 * threads are the calling thread's own: made when a loop first wants them, asleep between loops,
 * and ended with it. One that cannot be started, or does not wake in time, only makes the loop
 * slower. A loop that a piece of another runs has the thread of that piece alone. */
bool blasd_parallel_run(const struct blasd_parallel *loop);
/* Ends the calling thread's other threads now; a later loop makes new ones. For the thread that
 * main() runs on, which ends with the process. Not from within a loop. */
void blasd_parallel_dismiss(void);

#endif
