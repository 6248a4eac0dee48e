/* Segments as their readers see them: mapped when first met, unmapped once their files are gone or
 * nobody has looked for long. Results come back into use after as many seconds as their memory
 * lasts: to map a segment anew each time would cost some 2 us for each of its slices.
 *
 * Read next: segment_writer.c, the other side. */
#include "store/segment.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/text.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IDLE_NS INT64_C(5000000000)
#define KEPT_NS INT64_C(60000000000)

struct blasd_view {
    struct blasd_hash_node node;
    char name[BLASD_SEGMENT_NAME + 1];
    struct blasd_blob blob; /* owned, mapped */
    int holds;
    int64_t used_ns;
};

struct blasd_views {
    struct blasd_store *store; /* borrowed */
    int64_t trimmed_ns;
    struct blasd_hash by_name;
};

struct blasd_views *blasd_views_new(struct blasd_store *store) {
    struct blasd_views *views = calloc(1, sizeof *views);
    if (views != NULL) views->store = store;
    return views;
}

static struct blasd_view *of(struct blasd_hash_node *node) {
    return blasd_container_of(node, struct blasd_view, node);
}

static void drop(struct blasd_views *views, struct blasd_view *view) {
    blasd_hash_remove(&views->by_name, &view->node);
    blasd_blob_close(&view->blob);
    free(view);
}

void blasd_views_free(struct blasd_views *views) {
    if (views == NULL) return;
    while (views->by_name.count > 0) drop(views, of(blasd_hash_any(&views->by_name)));
    blasd_hash_release(&views->by_name);
    free(views);
}

static uint64_t hash_of(const char *name) {
    return blasd_hash_bytes(0, name,
                            BLASD_SEGMENT_NAME); /* names are random, nobody chooses them */
}

static struct blasd_view *find(const struct blasd_views *views, const char *name) {
    struct blasd_hash_node *node = NULL;
    while ((node = blasd_hash_find(&views->by_name, hash_of(name), node)) != NULL)
        if (memcmp(of(node)->name, name, BLASD_SEGMENT_NAME) == 0) return of(node);
    return NULL;
}

static struct blasd_view *view_new(struct blasd_views *views, const char *name) {
    struct blasd_view *view = calloc(1, sizeof *view);
    char blob_name[BLASD_BLOB_NAME];
    struct blasd_err err;
    if (view == NULL) return NULL;
    memcpy(view->name, name, sizeof view->name);
    blasd_text_join(blob_name, sizeof blob_name, view->name, ".seg", NULL);
    if (blasd_blob_open(views->store, blob_name, BLASD_SEGMENT_BYTES, &view->blob, &err) != 0 ||
        blasd_blob_map(&view->blob, &err) != 0 ||
        blasd_hash_add(&views->by_name, &view->node, hash_of(name)) != 0) {
        blasd_blob_close(&view->blob);
        free(view);
        return NULL;
    }
    /* pages are entered by faults, sixteen at a time: that is cheaper than all at once */
    close(view->blob.fd); /* the mapping stays */
    view->blob.fd = -1;
    return view;
}

const void *blasd_views_get(struct blasd_views *views, const struct blasd_slice *slice,
                            uint64_t bytes, struct blasd_view **hold) {
    struct blasd_view *view;
    int64_t now = blasd_clock_ns();
    *hold = NULL;
    if (strnlen(slice->segment, sizeof slice->segment) != BLASD_SEGMENT_NAME ||
        slice->offset % 64 != 0 || slice->offset < sizeof(struct blasd_segment_head) ||
        slice->offset > BLASD_SEGMENT_BYTES || bytes > BLASD_SEGMENT_BYTES - slice->offset)
        return NULL;
    if (now - views->trimmed_ns > IDLE_NS) blasd_views_trim(views); /* it may be ours that goes */
    view = find(views, slice->segment);
    if (view == NULL) view = view_new(views, slice->segment);
    if (view == NULL) return NULL;
    view->used_ns = now;
    if (!blasd_views_valid(view, slice)) return NULL;
    view->holds++;
    *hold = view;
    return (const char *)view->blob.data + slice->offset;
}

bool blasd_views_valid(const struct blasd_view *hold, const struct blasd_slice *slice) {
    struct blasd_segment_head *head = hold->blob.data;
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&head->generation, memory_order_relaxed) == slice->generation;
}

void blasd_views_let_go(struct blasd_view *hold) {
    if (hold != NULL) hold->holds--;
}

/* A file that its owner or the sweep has removed lives on as long as somebody has it mapped. */
static bool has_had_its_time(const struct blasd_views *views, const struct blasd_view *view) {
    int64_t now = views->trimmed_ns;
    char name[BLASD_BLOB_NAME];
    if (view->holds > 0 || now - view->used_ns <= IDLE_NS) return false;
    if (now - view->used_ns > KEPT_NS) return true;
    blasd_text_join(name, sizeof name, view->name, ".seg", NULL);
    return !blasd_store_has(views->store, name);
}

static void trim_one(void *arg, struct blasd_hash_node *node) {
    struct blasd_views *views = arg;
    if (has_had_its_time(views, of(node))) drop(views, of(node));
}

void blasd_views_trim(struct blasd_views *views) {
    if (views == NULL) return;
    views->trimmed_ns = blasd_clock_ns();
    blasd_hash_each(&views->by_name, trim_one, views);
}
