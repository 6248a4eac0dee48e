/* Keeps idle cores from halting while jobs come in.
 *
 * A small job passes through three processes, so it is woken for several times, and to wake a core
 * that has halted costs a guest of a hypervisor tens of microseconds, where guests are nested
 * hundreds: more than the job. While this is held, the kernel lets idle cores poll instead (a
 * request of 0 us to PM QoS, which ends with the process that holds it). Their time still counts as
 * idle, and whoever has work for them is served at once; what it costs is the host's. One thread.
 */
#ifndef BLASD_BASE_AWAKE_H
#define BLASD_BASE_AWAKE_H

#include "base/loop.h"

#include <stdbool.h>

struct blasd_awake {
    struct blasd_loop *loop; /* borrowed */
    struct blasd_timer timer;
    int64_t linger_ns, touched_ns;
    int fd; /* -1: nothing is ever held */
    bool held;
};

/* The device that takes such requests, static; NULL where cores do not halt the expensive way (only
 * Linux guests whose idle driver is haltpoll are known to gain), or where there are more than
 * `most_cores`: a request is for all of them, so a large machine would pay for many that no job
 * needs. */
const char *blasd_awake_device(uint64_t most_cores);

/* Nothing is held yet. Where `device` is NULL or cannot be opened, or `linger_ms` is 0, nothing
 * will be; returns whether something can. */
bool blasd_awake_open(struct blasd_awake *awake, struct blasd_loop *loop, const char *device,
                      uint64_t linger_ms);
/* Jobs have come: holds from now on until `linger_ms` after the last call. */
void blasd_awake_touch(struct blasd_awake *awake);
/* Before the loop is freed. Takes one that was zeroed and never opened. */
void blasd_awake_close(struct blasd_awake *awake);

#endif
