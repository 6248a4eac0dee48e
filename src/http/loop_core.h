/* On which core an event loop's thread runs. That is the kernel's to say, but for two cases.
 *
 * A busy loop wakes and is woken for all the time, by Redis and by clients of this machine, and the
 * kernel moves a thread to the core of who wakes it, leaves several on one core while another
 * idles, and lets them lose their caches. So a busy loop stays where it is for a while, and the
 * others go round it; then it may go elsewhere for a moment, should it have company that stays,
 * too.
 *
 * What a process of this machine has just sent lies in the caches of its core. While all cores are
 * busy it is copied for the least there, for cores can be far from each other, those of a guest as
 * far as its host has put them; while a core has time to spare, two of them move more than one, and
 * nothing is done here. The core is the one on which the socket's last packet came
 * (SO_INCOMING_CPU), which over loopback is its sender's. All calls come from the loop's thread.
 */
#ifndef BLASD_HTTP_LOOP_CORE_H
#define BLASD_HTTP_LOOP_CORE_H

#include "base/seat.h"

#include <stdint.h>

enum http_loop_core_why { HTTP_CORE_ANY, HTTP_CORE_STAYS, HTTP_CORE_NEAR };

struct http_loop_core {
    struct blasd_seat seat; /* of no thread where the machine has one core */
    enum http_loop_core_why why;
    int64_t since_ns;   /* STAYS: since when; ANY: since when it may go anywhere */
    int64_t moved_ns;   /* the last call of http_loop_core_moves */
    const char *uptime; /* borrowed; NULL: it never comes near anybody */
    int cores;          /* of the machine */
    int64_t looked_ns; /* when `up_s` and `idle_s` were read, in seconds; the latter of all cores */
    double up_s, idle_s;
    bool crowded; /* no core had time to spare, when last looked */
};

/* For the calling thread. `uptime`: "/proc/uptime", or a file like it; static. */
void http_loop_core_open(struct http_loop_core *core, const char *uptime);
/* Whether the other end of the TCP socket is a process of this machine, reached over loopback. */
bool http_loop_core_is_local(int fd);
/* The thread moves bytes, about 100 KB or more, over `fd`, whose other end is on this machine. */
void http_loop_core_moves(struct http_loop_core *core, int fd);
/* To be called in each turn of the loop. `busy`: of late its turns did much for many. */
void http_loop_core_turn(struct http_loop_core *core, bool busy);
/* The thread may run anywhere again. */
void http_loop_core_leave(struct http_loop_core *core);

#endif
