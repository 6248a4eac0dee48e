/* Terse records: fourteen lines of text, which a function inside Redis can put together.
 *
 *     T1 / state / id / operation / priority / created_us / started_us / finished_us /
 *     progress / attempts / error code or "" / device or "" / tenant / class it was sent to
 *
 * The last line is missing from those that earlier versions made.
 * Times are decimal microseconds since 1970, 0 where there is none. Read next: frame.h. */
#include "wire/frame_terse.h"

#include "wire/frame_parts.h"
#include "wire/number.h"

#include <stdio.h>

enum line {
    MAGIC,
    STATE,
    ID,
    OP,
    PRIORITY,
    CREATED,
    STARTED,
    FINISHED,
    PROGRESS,
    ATTEMPTS,
    CODE,
    DEVICE,
    TENANT,
    CLASS,
    LINES
};
#define LINE_MOST 64 /* bytes of a line with its zero */

bool frame_is_terse(const void *bytes, size_t len) {
    return len >= 3 && memcmp(bytes, "T1\n", 3) == 0;
}

/* Cuts the text into its lines; false where there are more or fewer, or one is too long. */
static bool split(const char *text, size_t len, char lines[LINES][LINE_MOST]) {
    const char *end = text + len;
    for (int i = 0; i < LINES; i++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t n;
        if (stop == NULL ? i < TENANT : i == LINES - 1) return false;
        n = (size_t)((stop == NULL ? end : stop) - text);
        if (n >= LINE_MOST || memchr(text, 0, n) != NULL) return false;
        memcpy(lines[i], text, n);
        lines[i][n] = '\0';
        if (stop == NULL) {
            if (i == TENANT) memcpy(lines[CLASS], "any", sizeof "any");
            return true;
        }
        text += n + 1;
    }
    return true;
}

static bool read_int(const char *text, int64_t *ret) {
    const char *end = text + strlen(text), *next;
    uint64_t magnitude = 0;
    bool negative = false;
    if (blasd_number_read_int(text, end, &next, &magnitude, &negative) != BLASD_INT_OK ||
        next != end || negative || magnitude > INT64_MAX)
        return false;
    *ret = (int64_t)magnitude;
    return true;
}

static bool read_progress(const char *text, double *ret) {
    const char *end = text + strlen(text);
    return blasd_number_read(text, end, ret) == end && *ret >= 0 && *ret <= 1;
}

static bool copy(char *out, size_t size, const char *text) {
    size_t len = strlen(text);
    if (len >= size) return false;
    memcpy(out, text, len + 1);
    return true;
}

static bool read_priority(const char *text, enum blasd_priority *ret) {
    for (int i = 0; i < BLASD_PRIORITY_COUNT; i++) {
        if (strcmp(blasd_priority_names[i], text) != 0) continue;
        *ret = (enum blasd_priority)i;
        return true;
    }
    return false;
}

static bool read_class(const char *text, enum blasd_device_class *ret) {
    for (int i = 0; i < BLASD_DEVICE_CLASS_COUNT; i++) {
        if (strcmp(blasd_device_class_names[i], text) != 0) continue;
        *ret = (enum blasd_device_class)i;
        return true;
    }
    return false;
}

/* What the queue does not say: why the job ended, in a sentence. */
static void explain(struct blasd_record *record, const char *code) {
    struct blasd_err *error = &record->error;
    bool began = record->started_us != 0;
    if (code[0] != '\0')
        error->code = blasd_err_code(code);
    else if (record->state == BLASD_CANCELLED)
        error->code = BLASD_E_cancelled;
    else if (record->state == BLASD_EXPIRED)
        error->code = BLASD_E_deadline_exceeded;
    else if (record->state == BLASD_FAILED)
        error->code = BLASD_E_internal_error;
    switch (error->code) {
    case BLASD_OK: return;
    case BLASD_E_cancelled:
        snprintf(error->detail, sizeof error->detail,
                 began ? "the job was cancelled while it ran"
                       : "the job was cancelled before it began");
        return;
    case BLASD_E_deadline_exceeded:
        snprintf(error->field, sizeof error->field, "deadline_ms");
        snprintf(error->detail, sizeof error->detail,
                 "the deadline passed %s, %.3f s after it was submitted",
                 began ? "while the job ran" : "while the job still waited",
                 (double)record->timing.total_us / 1e6);
        return;
    case BLASD_E_poisoned:
        snprintf(error->detail, sizeof error->detail,
                 "%d worker%s ended while running this job, so it was given up",
                 record->execution.attempts, record->execution.attempts == 1 ? "" : "s");
        return;
    default:
        snprintf(error->detail, sizeof error->detail, "%s", blasd_err_info(error->code)->title);
    }
}

static int64_t since(int64_t later, int64_t earlier) {
    return later > earlier ? later - earlier : 0;
}

int frame_terse_decode(const void *bytes, size_t len, struct blasd_record *record,
                       struct blasd_err *err) {
    char lines[LINES][LINE_MOST];
    struct blasd_timing *timing = &record->timing;
    int64_t attempts = 0;
    if (!split(bytes, len, lines) || !blasd_state_find(lines[STATE], &record->state) ||
        !copy(record->id, sizeof record->id, lines[ID]) || !blasd_id_valid(record->id) ||
        !copy(record->op, sizeof record->op, lines[OP]) ||
        !read_priority(lines[PRIORITY], &record->priority) ||
        !read_class(lines[CLASS], &record->device) ||
        !read_int(lines[CREATED], &record->created_us) ||
        !read_int(lines[STARTED], &record->started_us) ||
        !read_int(lines[FINISHED], &record->finished_us) ||
        !read_progress(lines[PROGRESS], &record->progress) ||
        !read_int(lines[ATTEMPTS], &attempts) || attempts > INT32_MAX ||
        !copy(record->execution.device, sizeof record->execution.device, lines[DEVICE]))
        return frame_broken(err, "a terse record's lines are not what they should be");
    record->execution.attempts = (int)attempts;
    if (record->finished_us != 0) timing->total_us = since(record->finished_us, record->created_us);
    timing->queue_us =
        record->started_us != 0 ? since(record->started_us, record->created_us) : timing->total_us;
    explain(record, lines[CODE]);
    return 0;
}
