/* The trace that a job belongs to, as W3C's `traceparent` header tells it. Read next: record.h. */
#ifndef BLASD_CORE_TRACE_H
#define BLASD_CORE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLASD_TRACE_ID 16
#define BLASD_SPAN_ID 8
#define BLASD_TRACE_TEXT (2 * BLASD_TRACE_ID + 1)

/* All zeros: none. */
struct blasd_trace {
    uint8_t id[BLASD_TRACE_ID];
    uint8_t span[BLASD_SPAN_ID]; /* the span that what follows is a part of */
    bool sampled;                /* spans of it are exported */
};

static inline bool blasd_trace_given(const uint8_t id[BLASD_TRACE_ID]) {
    uint8_t any = 0;
    for (int i = 0; i < BLASD_TRACE_ID; i++) any |= id[i];
    return any != 0;
}

/* Reads the header. False where it is not well formed: it then counts as absent, as W3C says. */
bool blasd_trace_read(const char *text, size_t len, struct blasd_trace *ret);
/* The id as 32 digits and a zero. */
void blasd_trace_text(const uint8_t id[BLASD_TRACE_ID], char text[BLASD_TRACE_TEXT]);
/* Random bytes that are not all zero. */
void blasd_trace_random(uint8_t *bytes, size_t len);
/* The span of a job itself: the same whoever asks, so that nobody need tell it. */
void blasd_trace_job_span(const char *id, uint8_t span[BLASD_SPAN_ID]);

#endif
