/* One line a message, written at once, so that lines of several processes do not mix. */
#include "base/log.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *process_name = "blasd";
static enum blasd_log_level least = BLASD_LOG_INFO;

void blasd_log_setup(const char *process, enum blasd_log_level level) {
    process_name = process;
    least = level;
}

void blasd_log(enum blasd_log_level level, const char *fmt, ...) {
    static const char *names[] = {"error", "warn", "info", "debug"};
    char line[1024], when[BLASD_TIME_TEXT];
    va_list args;
    int len;
    if (level > least) return;
    blasd_clock_text(blasd_clock_wall_us(), when);
    len = snprintf(line, sizeof line, "%s %s[%d] %s: ", when, process_name, (int)getpid(),
                   names[level]);
    va_start(args, fmt);
    len += vsnprintf(line + len, sizeof line - (size_t)len, fmt, args);
    va_end(args);
    if (len > (int)sizeof line - 2) len = (int)sizeof line - 2;
    line[len] = '\n';
    if (write(STDERR_FILENO, line, (size_t)len + 1) < 0) return; /* nobody left to tell */
}
