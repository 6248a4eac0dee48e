/* One line a message, written at once, so that lines of several processes do not mix. */
#include "base/log.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static const char *process_name = "blasd";
static enum blasd_log_level least = BLASD_LOG_INFO;

/* Of lines about jobs: what one second may have, which second it is, and what it had. */
static _Atomic uint64_t most = 20, written, left_out;
static _Atomic int64_t second;

void blasd_log_setup(const char *process, enum blasd_log_level level) {
    process_name = process;
    least = level;
}

__attribute__((format(printf, 2, 0))) static void write_line(enum blasd_log_level level,
                                                             const char *fmt, va_list args) {
    static const char *names[] = {"error", "warn", "info", "debug"};
    char line[1024], when[BLASD_TIME_TEXT];
    int len, head;
    if (level > least) return;
    blasd_clock_text(blasd_clock_wall_us(), when);
    head = len = snprintf(line, sizeof line, "%s %s[%d] %s: ", when, process_name, (int)getpid(),
                          names[level]);
    len += vsnprintf(line + len, sizeof line - (size_t)len, fmt, args);
    if (len > (int)sizeof line - 2) len = (int)sizeof line - 2;
    for (int i = head; i < len; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f) line[i] = '?';
    line[len] = '\n';
    if (write(STDERR_FILENO, line, (size_t)len + 1) < 0) return; /* nobody left to tell */
}

void blasd_log(enum blasd_log_level level, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    write_line(level, fmt, args);
    va_end(args);
}

void blasd_log_job_most(uint64_t a_second) {
    most = a_second;
}

void blasd_log_job_tick(void) {
    int64_t now = blasd_clock_ns() / 1000000000, then = atomic_load(&second);
    uint64_t lost;
    if (now == then || !atomic_compare_exchange_strong(&second, &then, now)) return;
    atomic_store(&written, 0);
    lost = atomic_exchange(&left_out, 0);
    if (lost > 0)
        blasd_log(BLASD_LOG_WARN, "%llu lines about jobs were left out (limit log_jobs)",
                  (unsigned long long)lost);
}

void blasd_log_job(enum blasd_log_level level, const char *fmt, ...) {
    va_list args;
    if (level > least) return;
    blasd_log_job_tick();
    if (atomic_fetch_add(&written, 1) >= atomic_load(&most)) {
        atomic_fetch_add(&left_out, 1);
        return;
    }
    va_start(args, fmt);
    write_line(level, fmt, args);
    va_end(args);
}
