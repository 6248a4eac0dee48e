/* Log lines on standard error, as text or JSON: time, process, level, message. Called by src/http,
 * src/worker and src/main only; the libraries below them return errors and stay silent. */
#ifndef BLASD_BASE_LOG_H
#define BLASD_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum blasd_log_level { BLASD_LOG_ERROR, BLASD_LOG_WARN, BLASD_LOG_INFO, BLASD_LOG_DEBUG };

/* Sets the name that stands in each line (static text) and the least level that is written. */
void blasd_log_setup(const char *process, enum blasd_log_level level);
/* From now on each line is a JSON object. */
void blasd_log_json(void);
/* What is no printable text in a message is written as `?`: a line is a line. */
void blasd_log(enum blasd_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* An event, such as "job failed", and what finds it again: in text behind it as NAME=VALUE, in JSON
 * members of their own. Those without a value are left out. */
struct blasd_log_field {
    const char *name, *value; /* value NULL: it is left out */
    bool number;              /* the value is one, and no text */
};
void blasd_log_event(enum blasd_log_level level, const char *event,
                     const struct blasd_log_field *fields, int count);

/* The same for an event of which there are as many as requests: lines of this thread, in their
 * order, are written a page at a time, at blasd_log_flush at the latest, and before any line of the
 * thread that is written at once. */
void blasd_log_collect(enum blasd_log_level level, const char *event,
                       const struct blasd_log_field *fields, int count);
void blasd_log_flush(void);

/* The same for an event that a client can cause as often as it likes: in each second so many are
 * written, and how many were left out is said afterwards. Any thread may call these. */
void blasd_log_job_event(enum blasd_log_level level, const char *event,
                         const struct blasd_log_field *fields, int count);
void blasd_log_job_most(uint64_t a_second);
/* To be called about once a second, for what was left out when nothing follows. */
void blasd_log_job_tick(void);

#endif
