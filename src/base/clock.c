/* Clocks and RFC 3339 dates. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

int64_t blasd_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t blasd_clock_wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void blasd_clock_text(int64_t us, char text[BLASD_TIME_TEXT]) {
    time_t seconds = (time_t)(us / 1000000);
    struct tm utc;
    char date[24];
    gmtime_r(&seconds, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, BLASD_TIME_TEXT, "%.19s.%06uZ", date, (unsigned)(us % 1000000));
}
