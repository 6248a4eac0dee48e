/* A small event loop over epoll: watchers for descriptors, timers, one thread.
 *
 * The caller drives it: `for (;;) { blasd_loop_step(loop, max); …own work… }`. */
#ifndef BLASD_BASE_LOOP_H
#define BLASD_BASE_LOOP_H

#include <stddef.h>
#include <stdint.h>

struct blasd_err;
struct blasd_loop;

/* Embed one in whatever owns the descriptor; the loop keeps a pointer until unwatch. */
struct blasd_watcher {
    int fd;
    void (*ready)(struct blasd_watcher *watcher, uint32_t epoll_events);
};

/* Embed one in whatever waits; zero it before first use. The loop keeps a pointer while it is set.
 */
struct blasd_timer {
    int64_t at_ns; /* on blasd_clock_ns */
    void (*fire)(struct blasd_timer *timer);
    size_t slot; /* the loop's own: 0 while not set */
};

/* Makes a loop; new, to be freed with blasd_loop_free. Returns NULL where the system has no more
 * descriptors or memory. */
struct blasd_loop *blasd_loop_new(void);
void blasd_loop_free(struct blasd_loop *loop); /* takes NULL */

/* Starts or changes the events watched (EPOLLIN …; EPOLLET is allowed). 0, or -1 with errno. */
int blasd_loop_watch(struct blasd_loop *loop, struct blasd_watcher *watcher, uint32_t events);
/* Ends watching; safe inside a callback, also for other watchers that are ready too. */
void blasd_loop_unwatch(struct blasd_loop *loop, struct blasd_watcher *watcher);

/* Sets or moves a timer. Returns -1 where memory has run out. */
int blasd_loop_timer_set(struct blasd_loop *loop, struct blasd_timer *timer, int64_t at_ns);
void blasd_loop_timer_clear(struct blasd_loop *loop, struct blasd_timer *timer);

/* blasd_clock_ns() as the last wait ended: what a turn needs to no more than its own length. */
int64_t blasd_loop_now(const struct blasd_loop *loop);

/* Waits up to `max_wait_ms` (-1: for ever) or the next timer, then calls what is ready and due. */
void blasd_loop_step(struct blasd_loop *loop, int max_wait_ms);

#endif
