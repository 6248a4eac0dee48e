/* One line a message, written in one call, so that lines of several processes do not mix. */
#include "base/log.h"

#include "base/clock.h"
#include "base/text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *process_name = "blasd";
static enum blasd_log_level least = BLASD_LOG_INFO;
static bool json;
static char pid[BLASD_TEXT_NUMBER]; /* asked for once: under a filter of calls that is dear */

/* Of lines about jobs: what one second may have, which second it is, and what it had. */
static _Atomic uint64_t most = 20, written, left_out;
static _Atomic int64_t second;

static void note_pid(void) {
    blasd_text_number(pid, (uint64_t)getpid());
}

void blasd_log_setup(const char *process, enum blasd_log_level level) {
    process_name = process;
    least = level;
    if (pid[0] == '\0') (void)pthread_atfork(NULL, NULL, note_pid);
    note_pid();
}

void blasd_log_json(void) {
    json = true;
}

/* What a pipe takes at once, so that lines do not mix; what would be longer is cut. */
#define LINE_MOST 4096
struct line {
    char text[LINE_MOST];
    size_t len;
};

/* Lines of this thread that are not written yet. */
static _Thread_local struct line collected;

#define ROOM_KEPT 64 /* for what closes a line */

static void put(struct line *line, const char *text, size_t len) {
    if (len > sizeof line->text - line->len) len = sizeof line->text - line->len;
    memcpy(line->text + line->len, text, len);
    line->len += len;
}

static void put_text(struct line *line, const char *text) {
    put(line, text, strlen(text));
}

/* Each of them, up to a NULL. */
static void put_texts(struct line *line, const char *text, ...) {
    va_list texts;
    va_start(texts, text);
    for (; text != NULL; text = va_arg(texts, const char *)) put_text(line, text);
    va_end(texts);
}

/* Bytes of the UTF-8 sequence that begins here; 0: there is none. */
static size_t sequence(const unsigned char *at) {
    size_t len = *at < 0x80                            ? 1
                 : (*at & 0xe0) == 0xc0 && *at >= 0xc2 ? 2
                 : (*at & 0xf0) == 0xe0                ? 3
                 : (*at & 0xf8) == 0xf0 && *at <= 0xf4 ? 4
                                                       : 0;
    for (size_t i = 1; i < len; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    if (len == 3 && ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0))) return 0;
    if (len == 4 && ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90))) return 0;
    return len;
}

/* Bytes from here on that stand for themselves. */
static size_t plain_run(const unsigned char *at, size_t room) {
    size_t len = 0;
    while (len < room && at[len] >= ' ' && at[len] < 0x7f && at[len] != '"' && at[len] != '\\')
        len++;
    return len;
}

static void put_string(struct line *line, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    put(line, "\"", 1);
    while (*at != '\0' && line->len + ROOM_KEPT <= sizeof line->text) {
        size_t len = plain_run(at, sizeof line->text - ROOM_KEPT + 1 - line->len);
        put(line, (const char *)at, len);
        at += len;
        if (len > 0 || *at == '\0') continue;
        len = sequence(at);
        if (*at == '"' || *at == '\\') put(line, "\\", 1);
        if (len == 0 || *at < ' ' || *at == 0x7f)
            put(line, "?", 1);
        else
            put(line, (const char *)at, len);
        at += len == 0 ? 1 : len;
    }
    put(line, "\"", 1);
}

static void put_plain(struct line *line, const char *text) {
    for (; *text != '\0'; text++) {
        bool bad = (unsigned char)*text < ' ' || *text == 0x7f;
        put(line, bad ? "?" : text, 1);
    }
}

static void put_field(struct line *line, const struct blasd_log_field *field, const char *between) {
    if (field->value == NULL || line->len > sizeof line->text - 4 * ROOM_KEPT) return;
    if (!json) {
        put_text(line, between);
        put_text(line, field->name);
        put(line, "=", 1);
        put_plain(line, field->value);
        return;
    }
    put(line, ",\"", 2);
    put_text(line, field->name);
    put(line, "\":", 2);
    if (field->number)
        put_text(line, field->value);
    else
        put_string(line, field->value);
}

/* Who says what, when. */
static void put_head(struct line *line, enum blasd_log_level level, const char *message) {
    static const char *names[] = {"error", "warn", "info", "debug"};
    char when[BLASD_TIME_TEXT];
    blasd_clock_text(blasd_clock_wall_us(), when);
    if (pid[0] == '\0') note_pid();
    if (json)
        put_texts(line, "{\"time\":\"", when, "\",\"level\":\"", names[level], "\",\"process\":\"",
                  process_name, "\",\"pid\":", pid, ",\"message\":", (char *)NULL);
    else
        put_texts(line, when, " ", process_name, "[", pid, "] ", names[level], ": ", (char *)NULL);
    (json ? put_string : put_plain)(line, message);
}

static void compose(struct line *line, enum blasd_log_level level, const char *message,
                    const struct blasd_log_field *fields, int count) {
    const char *between = ": ";
    line->len = 0;
    put_head(line, level, message);
    for (int i = 0; i < count; i++) {
        put_field(line, &fields[i], between);
        if (fields[i].value != NULL) between = " ";
    }
    if (json) put(line, "}", 1);
    if (line->len == sizeof line->text) line->len--;
    line->text[line->len++] = '\n';
}

void blasd_log_flush(void) {
    size_t len = collected.len;
    collected.len = 0;
    if (len > 0 && write(STDERR_FILENO, collected.text, len) < 0) return; /* nobody left to tell */
}

static void write_line(enum blasd_log_level level, const char *message,
                       const struct blasd_log_field *fields, int count) {
    struct line line;
    compose(&line, level, message, fields, count);
    blasd_log_flush(); /* which were before it */
    if (write(STDERR_FILENO, line.text, line.len) < 0) return;
}

void blasd_log(enum blasd_log_level level, const char *fmt, ...) {
    char message[1000];
    va_list args;
    if (level > least) return;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    write_line(level, message, NULL, 0);
}

void blasd_log_event(enum blasd_log_level level, const char *event,
                     const struct blasd_log_field *fields, int count) {
    if (level <= least) write_line(level, event, fields, count);
}

void blasd_log_collect(enum blasd_log_level level, const char *event,
                       const struct blasd_log_field *fields, int count) {
    struct line line;
    if (level > least) return;
    compose(&line, level, event, fields, count);
    if (line.len > sizeof collected.text - collected.len) blasd_log_flush();
    put(&collected, line.text, line.len);
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

/* Whether this second may have one more. */
static bool may_write(enum blasd_log_level level) {
    if (level > least) return false;
    blasd_log_job_tick();
    if (atomic_fetch_add(&written, 1) < atomic_load(&most)) return true;
    atomic_fetch_add(&left_out, 1);
    return false;
}

void blasd_log_job_event(enum blasd_log_level level, const char *event,
                         const struct blasd_log_field *fields, int count) {
    if (may_write(level)) write_line(level, event, fields, count);
}
