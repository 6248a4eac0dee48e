/* Keeps a thread that moves many bytes on the core of the process that sends them, or takes them.
 *
 * What a process of this machine has just sent lies in the caches of its core. While all cores are
 * busy it is copied for the least there, for cores can be far from each other, those of a guest as
 * far as its host has put them; while a core has time to spare, two of them move more than one, and
 * nothing is done here. The core is the one on which the socket's last packet came
 * (SO_INCOMING_CPU), which over loopback is its sender's. All calls come from that one thread.
 */
#ifndef BLASD_BASE_NEAR_H
#define BLASD_BASE_NEAR_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

struct blasd_near {
    const char *uptime; /* borrowed; NULL: the thread is never moved */
    int cores;          /* of the machine */
    int64_t looked_ns; /* when `up_s` and `idle_s` were read, in seconds; the latter of all cores */
    double up_s, idle_s;
    bool crowded;     /* no core had time to spare, when last looked */
    int core;         /* on which the thread is kept; -1: none */
    int64_t moved_ns; /* the last call of blasd_near_moves */
    cpu_set_t usual;  /* where the thread may run else, while it is kept */
};

/* `uptime`: "/proc/uptime", or a file like it; static. */
void blasd_near_open(struct blasd_near *near, const char *uptime);
/* Whether the other end of the TCP socket is a process of this machine, reached over loopback. */
bool blasd_near_peer(int fd);
/* The thread moves bytes, about 100 KB or more, over `fd`, whose other end is on this machine. */
void blasd_near_moves(struct blasd_near *near, int fd);
/* The thread may run anywhere again. */
void blasd_near_leave(struct blasd_near *near);
/* To be called in each turn of the thread's loop: leaves where nothing has moved for a while. */
void blasd_near_turn(struct blasd_near *near);

#endif
