/* Batch entries of the batch in the making: small jobs that share one entry of the queue.
 *
 * What a batch entry is, and what becomes of it, is told in functions/contract.lua. A job that may
 * travel with others gets its id here, once it is known with whom, and its frame once it is
 * written. Read next: front_submit.c. */
#include "queue/front.h"

#include "base/text.h"
#include "queue/record_frame.h"

#include <string.h>

#define RECORD_FRAMES_MOST (64 * BLASD_MIB) /* batches are full long before */

static bool same_batch_entry(const struct front_entry *a, const struct front_entry *b) {
    return a->id[0] == b->id[0] && a->cost == b->cost && a->result == b->result &&
           a->stream == b->stream && a->asked == b->asked && a->note_len == b->note_len &&
           memcmp(a->note, b->note, a->note_len) == 0 && a->holds_len == b->holds_len &&
           memcmp(a->holds, b->holds, a->holds_len) == 0 &&
           blasd_key_equal(&a->batch_key, &b->batch_key);
}

static bool has_room(const struct front_entry *entry) {
    return entry->jobs < entry->jobs_most &&
           (uint64_t)(entry->jobs + 1) * entry->cost <= entry->bytes_most;
}

int front_entry_join(struct front_entries *entries, const struct front_entry *like,
                     char id[BLASD_ID_LEN + 1]) {
    struct front_entry *entry;
    struct blasd_buf kept;
    for (int i = 0; i < entries->count; i++) {
        entry = &entries->of[i];
        if (!has_room(entry) || !same_batch_entry(entry, like)) continue;
        memcpy(id, entry->id, BLASD_ID_ENTRY);
        return entry->jobs;
    }
    if (entries->count == FRONT_ENTRIES) return -1; /* it travels alone */
    entry = &entries->of[entries->count++];
    kept = entry->record_frames;
    *entry = *like;
    entry->record_frames = kept;
    entry->jobs = 0;
    blasd_buf_reset(&entry->record_frames);
    memcpy(entry->id, id, sizeof entry->id);
    return -1;
}

struct front_entry *front_entry_of(struct front_entries *entries, const char *id) {
    for (int i = entries->count; i-- > 0;)
        if (memcmp(entries->of[i].id, id, BLASD_ID_ENTRY) == 0) return &entries->of[i];
    return NULL;
}

int front_entry_add(struct front_entries *entries, struct front_entry *entry, const char *id,
                    const void *frame, size_t len) {
    if (blasd_record_frame_add(&entry->record_frames, id, frame, len) != 0) return -1;
    if (entry->jobs == 0) memcpy(entry->id, id, sizeof entry->id);
    entry->jobs++;
    entries->bytes += BLASD_RECORD_FRAME_HEAD + len;
    return 0;
}

void front_entry_write(const struct front_entry *entry, struct front_call *call) {
    const char *record_frames = entry->record_frames.data;
    if (entry->jobs == 1) { /* a batch entry of one is a job */
        front_call_arg(call, entry->id, BLASD_ID_LEN);
        front_call_arg(call, record_frames + BLASD_RECORD_FRAME_HEAD,
                       entry->record_frames.len - BLASD_RECORD_FRAME_HEAD);
    } else {
        front_call_arg(call, entry->id, BLASD_ID_ENTRY);
        front_call_arg(call, record_frames, entry->record_frames.len);
    }
    front_call_number(call, entry->stream);
    front_entry_cost(call, entry->cost, entry->jobs, entry->result);
}

void front_entry_cost(struct front_call *call, uint64_t cost, int jobs, uint64_t result) {
    char text[3 * BLASD_TEXT_NUMBER];
    size_t len = blasd_text_number(text, cost);
    if (jobs > 1) {
        text[len++] = ' ';
        len += blasd_text_number(text + len, (uint64_t)jobs);
    }
    memcpy(text + len, " r", 2);
    len += 2;
    len += blasd_text_number(text + len, result);
    front_call_arg(call, text, len);
}

void front_entries_init(struct front_entries *entries, uint64_t claim_jobs) {
    uint64_t half = claim_jobs / 2;
    entries->jobs_most = half < FRONT_ENTRY_JOBS ? (int)half : FRONT_ENTRY_JOBS;
    for (int i = 0; i < FRONT_ENTRIES; i++)
        blasd_buf_init(&entries->of[i].record_frames, RECORD_FRAMES_MOST);
}

void front_entries_reset(struct front_entries *entries) {
    entries->count = 0;
    entries->bytes = 0;
}

void front_entries_free(struct front_entries *entries) {
    for (int i = 0; i < FRONT_ENTRIES; i++) blasd_buf_release(&entries->of[i].record_frames);
    front_entries_reset(entries);
}
