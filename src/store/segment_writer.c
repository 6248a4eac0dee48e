/* An owner's segments: the one being filled, full ones that may still be read, free ones.
 *
 * Read next: segment_view.c, the other side. */
#include "store/segment.h"

#include "base/clock.h"
#include "base/hex.h"
#include "base/list.h"
#include "base/text.h"
#include "core/tensor.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14; glibc names it since 2.35 */
#define MADV_POPULATE_WRITE 23
#endif
#define ENOUGH_FREE 2
#define IDLE_NS INT64_C(5000000000)
#define MOST_SEGMENTS 4096
#define LEAST_FILES 256 /* descriptors that are left to others: each segment keeps one open */
#define LEAST_LEFT 8    /* segments never take the last eighth of the store */

enum state { FREE, FILLING, FULL };

struct segment {
    struct blasd_list node;
    char name[BLASD_SEGMENT_NAME + 1];
    struct blasd_blob blob; /* owned, mapped and locked as long as the segment is ours */
    enum state state;
    bool doomed; /* an outcome is not known: left to the sweep once nothing pins it */
    int pins;    /* slices whose fate Redis has not told */
    uint64_t used;
    int64_t free_ns; /* since when it is free */
};

struct blasd_segments {
    struct blasd_store *store;                    /* borrowed */
    struct segment *filling[BLASD_SEGMENT_KINDS]; /* NULL: none; among those below */
    struct blasd_list all;                        /* those that became full first in front */
    int count, free_count;
    int most;    /* segments, as descriptors allow */
    bool filled; /* one has become full since the last question */
    int turn;    /* how many doubtful ones to skip before the second half of the next question */
};

enum blasd_segment_kind blasd_segment_kind_of(const char *id) {
    return id[0] == BLASD_ID_ASYNC ? BLASD_SEGMENT_ASYNC : BLASD_SEGMENT_SYNC;
}

struct blasd_segments *blasd_segments_new(struct blasd_store *store) {
    struct blasd_segments *segments = calloc(1, sizeof *segments);
    struct rlimit files;
    if (segments == NULL) return NULL;
    segments->store = store;
    blasd_list_init(&segments->all);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > 2 * LEAST_FILES)
        segments->most = files.rlim_cur - LEAST_FILES < MOST_SEGMENTS
                             ? (int)(files.rlim_cur - LEAST_FILES)
                             : MOST_SEGMENTS;
    return segments;
}

static struct segment *of(struct blasd_list *node) {
    return blasd_container_of(node, struct segment, node);
}

static void release(struct blasd_segments *all, struct segment *one) {
    blasd_list_remove(&one->node);
    all->count--;
    if (one->state == FREE) all->free_count--;
    blasd_blob_close(&one->blob);
    free(one);
}

void blasd_segments_free(struct blasd_segments *segments) {
    if (segments == NULL) return;
    while (!blasd_list_empty(&segments->all)) release(segments, of(segments->all.next));
    free(segments);
}

bool blasd_segments_wanted(const struct blasd_segments *segments, uint64_t bytes) {
    return segments != NULL && blasd_store_kind(segments->store) == BLASD_STORE_DIR &&
           bytes >= BLASD_SLICE_LEAST && bytes <= BLASD_SLICE_MOST;
}

static struct segment *segment_new(struct blasd_segments *all) {
    char blob_name[BLASD_BLOB_NAME];
    uint64_t free_bytes, all_bytes;
    struct segment *one;
    struct blasd_err err;
    blasd_store_space(all->store, &free_bytes, &all_bytes);
    if (all->count >= all->most || free_bytes < BLASD_SEGMENT_BYTES + all_bytes / LEAST_LEFT)
        return NULL;
    if ((one = calloc(1, sizeof *one)) == NULL) return NULL;
    blasd_random_hex(one->name, BLASD_SEGMENT_NAME);
    blasd_text_join(blob_name, sizeof blob_name, one->name, ".seg", NULL);
    if (blasd_blob_create(all->store, blob_name, &one->blob, &err) != 0) goto fail;
    if (blasd_blob_grow(&one->blob, BLASD_SEGMENT_BYTES, &err) != 0 ||
        blasd_blob_map(&one->blob, &err) != 0) {
        blasd_store_remove(all->store, blob_name);
        blasd_blob_close(&one->blob);
        goto fail;
    }
    /* a fault for all pages together is cheaper than one for each; where it fails they come singly
     */
    (void)madvise(one->blob.data, (size_t)BLASD_SEGMENT_BYTES, MADV_POPULATE_WRITE);
    blasd_list_append(&all->all, &one->node);
    all->count++;
    return one;
fail:
    free(one);
    return NULL;
}

/* Makes the segment the one to fill; whoever still believes in its earlier contents is warned. */
static void segment_begin(struct segment *one) {
    struct blasd_segment_head *head = one->blob.data;
    if (one->used > 0) {
        atomic_fetch_add_explicit(&head->generation, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
    }
    one->state = FILLING;
    one->used = BLASD_ALIGN;
}

static struct segment *free_one(struct blasd_segments *all) {
    struct segment *best = NULL;
    if (all->free_count == 0) return NULL;
    /* the one freed last: its pages are warm */
    for (struct blasd_list *at = all->all.prev; at != &all->all && best == NULL; at = at->prev)
        if (of(at)->state == FREE) best = of(at);
    if (best != NULL) all->free_count--;
    return best;
}

static struct segment *filling(struct blasd_segments *all, enum blasd_segment_kind kind,
                               uint64_t bytes) {
    struct segment *one = all->filling[kind];
    if (one != NULL && one->used + bytes <= BLASD_SEGMENT_BYTES && !one->doomed) return one;
    if (one != NULL) {
        one->state = FULL;
        all->filled = true;
        blasd_list_remove(&one->node);
        blasd_list_append(&all->all, &one->node);
    }
    one = free_one(all);
    if (one == NULL) one = segment_new(all);
    all->filling[kind] = one;
    if (one != NULL) segment_begin(one);
    return one;
}

void *blasd_segments_take(struct blasd_segments *segments, enum blasd_segment_kind kind,
                          uint64_t bytes, struct blasd_slice *slice) {
    struct segment *one;
    struct blasd_segment_head *head;
    if (!blasd_segments_wanted(segments, bytes)) return NULL;
    one = filling(segments, kind, bytes);
    if (one == NULL) return NULL;
    head = one->blob.data;
    memcpy(slice->segment, one->name, sizeof slice->segment);
    slice->generation = atomic_load_explicit(&head->generation, memory_order_relaxed);
    slice->offset = one->used;
    one->used += blasd_align_up(bytes);
    one->pins++;
    return (char *)one->blob.data + slice->offset;
}

static struct segment *find(struct blasd_segments *all, const char *name) {
    for (struct blasd_list *at = all->all.prev; at != &all->all; at = at->prev)
        if (memcmp(of(at)->name, name, BLASD_SEGMENT_NAME) == 0) return of(at);
    return NULL;
}

void blasd_segments_unpin(struct blasd_segments *segments, const struct blasd_slice *slice,
                          bool sure) {
    struct segment *one;
    if (segments == NULL || !blasd_slice_given(slice)) return;
    one = find(segments, slice->segment);
    if (one == NULL) return;
    one->pins--;
    if (!sure) one->doomed = true;
    if (!one->doomed || one->pins > 0) return;
    for (int kind = 0; kind < BLASD_SEGMENT_KINDS; kind++)
        if (segments->filling[kind] == one) segments->filling[kind] = NULL;
    release(segments, one);
}

int blasd_segments_doubtful(struct blasd_segments *segments, char (*names)[BLASD_BLOB_NAME],
                            int most, bool all) {
    int count = 0, seen = 0;
    if (segments == NULL) return 0;
    if (!all && (!segments->filled || segments->free_count >= ENOUGH_FREE)) return 0;
    segments->filled = false;
    /* the oldest, and as many of the others by turns: one that is held long hides none for ever */
    BLASD_LIST_EACH(node, &segments->all) {
        const struct segment *one = of(node);
        if (count == most) break;
        if (one->state != FULL || one->pins > 0) continue;
        if (seen++ >= most / 2 && seen <= segments->turn) continue;
        blasd_text_join(names[count++], BLASD_BLOB_NAME, one->name, ".seg", NULL);
    }
    segments->turn = count < most ? 0 : seen;
    return count;
}

void blasd_segments_reuse(struct blasd_segments *segments, const char *name) {
    struct segment *one = find(segments, name);
    if (one == NULL || one->state != FULL || one->pins > 0) return;
    one->state = FREE;
    one->free_ns = blasd_clock_ns();
    segments->free_count++;
    blasd_list_remove(&one->node);
    blasd_list_append(&segments->all, &one->node);
}

void blasd_segments_trim(struct blasd_segments *segments) {
    int64_t now = blasd_clock_ns();
    if (segments == NULL) return;
    BLASD_LIST_EACH(node, &segments->all) {
        struct segment *one = of(node);
        if (one->state != FREE || now - one->free_ns < IDLE_NS) continue;
        blasd_store_remove(segments->store, one->blob.name);
        release(segments, one);
    }
}
