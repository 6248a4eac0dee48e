/* Log lines on standard error: time, process, level, message. Called by src/http, src/worker and
 * src/main only; the libraries below them return errors and stay silent. */
#ifndef BLASD_BASE_LOG_H
#define BLASD_BASE_LOG_H

enum blasd_log_level { BLASD_LOG_ERROR, BLASD_LOG_WARN, BLASD_LOG_INFO, BLASD_LOG_DEBUG };

/* Sets the name that stands in each line (static text) and the least level that is written. */
void blasd_log_setup(const char *process, enum blasd_log_level level);
void blasd_log(enum blasd_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
