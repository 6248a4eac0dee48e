/* Asks a server the same small question again and again until the answer begins as it should, or on
 * and on: DBSIZE of Redis. Never blocks. */
#ifndef BLASD_MAIN_PROBE_H
#define BLASD_MAIN_PROBE_H

#include "base/loop.h"

#include <sys/socket.h>

#define PROBE_ANSWER 1024

struct probe {
    /* set before probe_start, borrowed until it has answered or was stopped */
    struct blasd_loop *loop;
    struct sockaddr_storage address;
    socklen_t address_len;
    const char *question, *answer; /* `answer`: how a good one begins; "": any is good */
    int64_t every_ns;              /* after an answer it asks again so much later; 0: it stops */
    void (*good)(struct probe *probe);
    void *arg;

    /* its own; zero */
    struct blasd_watcher watcher;
    struct blasd_timer timer;
    char got[PROBE_ANSWER]; /* what was answered last, as text */
    size_t len;
    int state;
};

void probe_start(struct probe *probe);
void probe_stop(struct probe *probe);

#endif
