/* Clocks and RFC 3339 dates. */
#include "base/clock.h"

#include <string.h>
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

/* Writes the `n` last decimal digits of `value` and one more character. By hand, for strftime and
 * snprintf took half the time of a small job's document. */
static char *digits(char *p, int value, int n, char after) {
    for (int i = n - 1; i >= 0; i--, value /= 10) p[i] = (char)('0' + value % 10);
    p[n] = after;
    return p + n + 1;
}

#define SECONDS_TEXT 20 /* "2026-01-31T12:00:00." */

void blasd_clock_text(int64_t us, char text[BLASD_TIME_TEXT]) {
    /* most dates are of the same second as the one before */
    static _Thread_local struct {
        time_t seconds;
        char text[SECONDS_TEXT];
    } last;
    int part = (int)(us % 1000000);
    time_t seconds = (time_t)(us / 1000000);
    struct tm utc = {.tm_year = 70, .tm_mday = 1};
    char *p = text;
    if (part < 0) {
        part += 1000000;
        seconds--;
    }
    if (seconds == last.seconds && last.text[0] != '\0') {
        memcpy(text, last.text, SECONDS_TEXT);
        digits(text + SECONDS_TEXT, part, 6, 'Z')[0] = '\0';
        return;
    }
    gmtime_r(&seconds, &utc);
    p = digits(p, utc.tm_year < -1900 ? 0 : utc.tm_year + 1900, 4, '-');
    p = digits(p, utc.tm_mon + 1, 2, '-');
    p = digits(p, utc.tm_mday, 2, 'T');
    p = digits(p, utc.tm_hour, 2, ':');
    p = digits(p, utc.tm_min, 2, ':');
    p = digits(p, utc.tm_sec, 2, '.');
    memcpy(last.text, text, SECONDS_TEXT);
    last.seconds = seconds;
    p = digits(p, part, 6, 'Z');
    *p = '\0';
}
