/* Time: a steady clock for durations, the wall clock for dates. Read next: id.h. */
#ifndef BLASD_BASE_CLOCK_H
#define BLASD_BASE_CLOCK_H

#include <stdint.h>

#define BLASD_MS INT64_C(1000000) /* nanoseconds */

#define BLASD_TIME_TEXT 28 /* "2026-01-31T12:00:00.123456Z" and its zero */

/* Nanoseconds on CLOCK_MONOTONIC: only differences mean anything, only within one machine. */
int64_t blasd_clock_ns(void);
/* The same clock as of its last tick, some milliseconds ago: for who looks every microsecond. */
int64_t blasd_clock_coarse_ns(void);
/* Microseconds since 1970-01-01 UTC. */
int64_t blasd_clock_wall_us(void);
/* Writes `us` (microseconds since 1970) as RFC 3339 text in UTC into `text`. */
void blasd_clock_text(int64_t us, char text[BLASD_TIME_TEXT]);

#endif
