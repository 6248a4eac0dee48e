/* Log lines on standard error: time, process, level, message. Called by src/http, src/worker and
 * src/main only; the libraries below them return errors and stay silent. */
#ifndef BLASD_BASE_LOG_H
#define BLASD_BASE_LOG_H

#include <stdint.h>

enum blasd_log_level { BLASD_LOG_ERROR, BLASD_LOG_WARN, BLASD_LOG_INFO, BLASD_LOG_DEBUG };

/* Sets the name that stands in each line (static text) and the least level that is written. */
void blasd_log_setup(const char *process, enum blasd_log_level level);
/* What is no printable text in a message is written as `?`: a line is a line. */
void blasd_log(enum blasd_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for a line that a client can cause as often as it likes: in each second so many are
 * written, and how many were left out is said afterwards. Any thread may call these. */
void blasd_log_job(enum blasd_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void blasd_log_job_most(uint64_t a_second);
/* To be called about once a second, for what was left out when nothing follows. */
void blasd_log_job_tick(void);

#endif
