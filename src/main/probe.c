/* Connect, ask, read the beginning of the answer; a little later, again. */
#include "main/probe.h"

#include "base/clock.h"
#include "base/container.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define AGAIN_NS (20 * BLASD_MS)
#define TIMEOUT_NS (2000 * BLASD_MS) /* for one answer */

enum { PROBE_IDLE, PROBE_CONNECTING, PROBE_ASKED };

static void hang_up(struct probe *probe) {
    if (probe->state == PROBE_IDLE) return;
    blasd_loop_unwatch(probe->loop, &probe->watcher);
    close(probe->watcher.fd);
    probe->state = PROBE_IDLE;
}

static void again(struct probe *probe) {
    int64_t pause_ns = probe->every_ns > 0 ? probe->every_ns : AGAIN_NS;
    hang_up(probe);
    blasd_loop_timer_set(probe->loop, &probe->timer, blasd_clock_ns() + pause_ns);
}

static void ask(struct probe *probe) {
    size_t len = strlen(probe->question);
    if (send(probe->watcher.fd, probe->question, len, MSG_NOSIGNAL) != (ssize_t)len) {
        again(probe);
        return;
    }
    probe->state = PROBE_ASKED;
    blasd_loop_watch(probe->loop, &probe->watcher, EPOLLIN);
}

static void listen_to(struct probe *probe) {
    size_t want = strlen(probe->answer);
    ssize_t got = recv(probe->watcher.fd, probe->got + probe->len,
                       sizeof probe->got - 1 - probe->len, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) probe->len += (size_t)got;
    probe->got[probe->len] = '\0';
    if (probe->len > 0 && probe->len >= want && strncmp(probe->got, probe->answer, want) == 0) {
        if (probe->every_ns > 0)
            again(probe);
        else
            probe_stop(probe);
        probe->good(probe);
    } else if (got <= 0 || probe->len >= want) {
        again(probe);
    }
}

static void ready(struct blasd_watcher *watcher, uint32_t events) {
    struct probe *probe = blasd_container_of(watcher, struct probe, watcher);
    if (probe->state == PROBE_ASKED)
        listen_to(probe);
    else if ((events & (EPOLLERR | EPOLLHUP)) != 0)
        again(probe);
    else
        ask(probe);
}

static void due(struct blasd_timer *timer) {
    struct probe *probe = blasd_container_of(timer, struct probe, timer);
    int fd;
    hang_up(probe); /* an answer that took too long */
    fd = socket(probe->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    probe->len = 0;
    if (fd < 0) {
        again(probe);
        return;
    }
    if (connect(fd, (const struct sockaddr *)&probe->address, probe->address_len) != 0 &&
        errno != EINPROGRESS) {
        close(fd);
        again(probe);
        return;
    }
    probe->watcher = (struct blasd_watcher){.fd = fd, .ready = ready};
    probe->state = PROBE_CONNECTING;
    if (blasd_loop_watch(probe->loop, &probe->watcher, EPOLLOUT) != 0) {
        again(probe);
        return;
    }
    blasd_loop_timer_set(probe->loop, &probe->timer, blasd_clock_ns() + TIMEOUT_NS);
}

void probe_start(struct probe *probe) {
    probe->timer.fire = due;
    blasd_loop_timer_set(probe->loop, &probe->timer, blasd_clock_ns());
}

void probe_stop(struct probe *probe) {
    hang_up(probe);
    blasd_loop_timer_clear(probe->loop, &probe->timer);
}
