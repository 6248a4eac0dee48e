/* epoll, and a binary heap of timers. */
#include "base/loop.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_A_STEP 512

struct blasd_loop {
    int epoll_fd;
    int64_t now_ns;
    int ready_count, ready_at; /* the events of the step under way */
    struct epoll_event ready[EVENTS_A_STEP];
    struct blasd_timer *
        *heap; /* heap[1..timers]; slot 0 stays empty so that 0 can mean "not set" */
    size_t timers, heap_cap;
};

struct blasd_loop *blasd_loop_new(void) {
    struct blasd_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL) return NULL;
    loop->now_ns = blasd_clock_ns();
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        free(loop);
        return NULL;
    }
    return loop;
}

void blasd_loop_free(struct blasd_loop *loop) {
    if (loop == NULL) return;
    close(loop->epoll_fd);
    free(loop->heap);
    free(loop);
}

int blasd_loop_watch(struct blasd_loop *loop, struct blasd_watcher *watcher, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = watcher};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watcher->fd, &event) == 0) return 0;
    if (errno != ENOENT) return -1;
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, watcher->fd, &event);
}

void blasd_loop_unwatch(struct blasd_loop *loop, struct blasd_watcher *watcher) {
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watcher->fd, NULL);
    for (int i = loop->ready_at; i < loop->ready_count; i++)
        if (loop->ready[i].data.ptr == watcher) loop->ready[i].data.ptr = NULL;
}

static void place(struct blasd_loop *loop, size_t slot, struct blasd_timer *timer) {
    loop->heap[slot] = timer;
    timer->slot = slot;
}

static void sift_up(struct blasd_loop *loop, struct blasd_timer *timer, size_t slot) {
    for (; slot > 1 && loop->heap[slot / 2]->at_ns > timer->at_ns; slot /= 2)
        place(loop, slot, loop->heap[slot / 2]);
    place(loop, slot, timer);
}

static void sift_down(struct blasd_loop *loop, struct blasd_timer *timer, size_t slot) {
    for (size_t child; (child = slot * 2) <= loop->timers; slot = child) {
        if (child < loop->timers && loop->heap[child + 1]->at_ns < loop->heap[child]->at_ns)
            child++;
        if (loop->heap[child]->at_ns >= timer->at_ns) break;
        place(loop, slot, loop->heap[child]);
    }
    place(loop, slot, timer);
}

void blasd_loop_timer_clear(struct blasd_loop *loop, struct blasd_timer *timer) {
    size_t slot = timer->slot;
    struct blasd_timer *last;
    if (slot == 0) return;
    timer->slot = 0;
    last = loop->heap[loop->timers--];
    if (last == timer) return;
    if (slot > 1 && loop->heap[slot / 2]->at_ns > last->at_ns)
        sift_up(loop, last, slot);
    else
        sift_down(loop, last, slot);
}

int blasd_loop_timer_set(struct blasd_loop *loop, struct blasd_timer *timer, int64_t at_ns) {
    blasd_loop_timer_clear(loop, timer);
    if (loop->timers + 2 > loop->heap_cap) {
        size_t cap = loop->heap_cap == 0 ? 64 : loop->heap_cap * 2;
        struct blasd_timer **heap = realloc(loop->heap, cap * sizeof *heap);
        if (heap == NULL) return -1;
        loop->heap = heap;
        loop->heap_cap = cap;
    }
    timer->at_ns = at_ns;
    sift_up(loop, timer, ++loop->timers);
    return 0;
}

static int wait_ms(const struct blasd_loop *loop, int max_wait_ms) {
    int64_t left_ms;
    if (loop->timers == 0 || max_wait_ms == 0) return max_wait_ms;
    /* round up, or the last millisecond would be spent spinning */
    left_ms = (loop->heap[1]->at_ns - blasd_clock_ns() + 999999) / 1000000;
    if (left_ms < 0) left_ms = 0;
    if (left_ms > 3600000) left_ms = 3600000;
    return max_wait_ms < 0 || left_ms < max_wait_ms ? (int)left_ms : max_wait_ms;
}

int64_t blasd_loop_now(const struct blasd_loop *loop) {
    return loop->now_ns;
}

void blasd_loop_step(struct blasd_loop *loop, int max_wait_ms) {
    int count = epoll_wait(loop->epoll_fd, loop->ready, EVENTS_A_STEP, wait_ms(loop, max_wait_ms));
    loop->ready_count = count > 0 ? count : 0;
    loop->now_ns = blasd_clock_ns();
    for (loop->ready_at = 0; loop->ready_at < loop->ready_count;) {
        struct epoll_event *event = &loop->ready[loop->ready_at++];
        struct blasd_watcher *watcher = event->data.ptr;
        if (watcher != NULL) watcher->ready(watcher, event->events);
    }
    loop->ready_count = loop->ready_at = 0;
    while (loop->timers > 0 && loop->heap[1]->at_ns <= loop->now_ns) {
        struct blasd_timer *timer = loop->heap[1];
        blasd_loop_timer_clear(loop, timer);
        timer->fire(timer);
    }
}
