/* Bytes between host and device: where they lie if the card can reach them there, else through
 * rings of pinned chunks.
 *
 * A list of pieces is cut into chunks; inside a chunk, pieces that lie side by side on the device
 * are one copy. Thousands of small tensors so become one copy, and a large one becomes a row of
 * chunks that are packed while the last one is under way. Both directions cut in the same way: a
 * downloaded chunk is unpacked by walking its pieces again. A piece whose host's side is pinned is
 * a copy of its own, and ends the chunk before it. Read next: pinned.c, async_batch.c. */
#include "core/parallel.h"
#include "kernels/cuda/device.h"

#include <stdlib.h>
#include <string.h>

#define MOST_GAP 256              /* between pieces on the device, that one copy may bridge */
#define SHARE (UINT64_C(1) << 19) /* bytes that are worth a thread of their own */
#define MOST_SHARES 16            /* of a chunk */

int blasd_cuda_list_add(struct blasd_cuda_slot *slot, struct blasd_cuda_list *list,
                        const void *device, const void *host, size_t bytes, struct blasd_err *err) {
    if (bytes == 0) return 0;
    if (list->count == list->room) {
        int room = list->room < 64 ? 64 : list->room * 2;
        struct blasd_cuda_piece *pieces =
            realloc(list->pieces, (size_t)room * sizeof *list->pieces);
        if (pieces == NULL)
            return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a list of copies");
        list->pieces = pieces;
        list->room = room;
    }
    list->pieces[list->count++] =
        (struct blasd_cuda_piece){(char *)(uintptr_t)device, (char *)(uintptr_t)host, bytes,
                                  blasd_cuda_pin(slot, host, bytes), false};
    return 0;
}

/* The walk over the pieces of one chunk. */
struct walk {
    const struct blasd_cuda_list *list;
    size_t chunk_bytes;
    struct blasd_cuda_cursor at;
    size_t used;          /* of the chunk */
    const char *run_ends; /* on the device: a piece that begins there or a little later joins */
};

struct step {
    struct blasd_cuda_piece part; /* of a piece */
    size_t offset;                /* in the chunk */
    bool joins;                   /* the copy of the step before */
};

/* The next part of the chunk; false where it is full, or no more pieces go by chunks. */
static bool walk_next(struct walk *walk, struct step *step) {
    const struct blasd_cuda_piece *piece;
    size_t room, gap, most;
    if (walk->at.piece == walk->list->count) return false;
    piece = &walk->list->pieces[walk->at.piece];
    if (piece->pinned) return false;
    step->part.device = piece->device + walk->at.offset;
    step->part.host = piece->host + walk->at.offset;
    gap = (size_t)((uintptr_t)step->part.device - (uintptr_t)walk->run_ends);
    step->joins = walk->run_ends != NULL && gap <= MOST_GAP && !piece->apart;
    if (!step->joins) gap = (64 - walk->used % 64) % 64;
    if (walk->used + gap >= walk->chunk_bytes) return false;
    step->offset = walk->used + gap;
    room = walk->chunk_bytes - step->offset;
    most = piece->bytes - walk->at.offset;
    step->part.bytes = most < room ? most : room;
    walk->used = step->offset + step->part.bytes;
    walk->run_ends = piece->apart ? NULL : step->part.device + step->part.bytes;
    walk->at.offset += step->part.bytes;
    if (walk->at.offset == piece->bytes)
        walk->at = (struct blasd_cuda_cursor){walk->at.piece + 1, 0};
    return true;
}

/* A chunk's bytes in shares, which threads copy side by side: one core copies at a fraction of what
 * the bus takes, and small pieces are as many bytes as large ones. */
struct chunk_copy {
    struct walk starts[MOST_SHARES + 1]; /* of each share; behind the last: where the chunk ends */
    int shares;
    char *chunk;
    bool up;
};

static bool is_at(const struct walk *walk, const struct blasd_cuda_cursor *at) {
    return walk->at.piece == at->piece && walk->at.offset == at->offset;
}

static bool copy_share(void *arg, int64_t i, int slot) {
    const struct chunk_copy *copy = arg;
    struct walk walk = copy->starts[i];
    struct step step;
    (void)slot;
    while (!is_at(&walk, &copy->starts[i + 1].at) && walk_next(&walk, &step)) {
        char *at = copy->chunk + step.offset;
        memcpy(copy->up ? at : step.part.host, copy->up ? step.part.host : at, step.part.bytes);
    }
    return true;
}

/* Between the chunk and where its pieces lie on the host. `to`: the chunk ends there, whatever the
 * list may have beyond; NULL: where it is full. */
static void copy_chunk(const struct blasd_device *device, struct walk walk,
                       const struct blasd_cuda_cursor *to, char *chunk, bool up) {
    struct chunk_copy copy = {.chunk = chunk, .up = up};
    size_t whole = walk.chunk_bytes, each = (whole + MOST_SHARES - 1) / MOST_SHARES;
    struct blasd_parallel loop = {.piece = copy_share, .arg = &copy};
    struct step step;
    if (each < SHARE) each = SHARE;
    for (size_t end = 0; end < whole; copy.shares++) {
        end = whole - end > each ? end + each : whole;
        walk.chunk_bytes = end;
        copy.starts[copy.shares] = walk;
        while ((to == NULL || !is_at(&walk, to)) && walk_next(&walk, &step)) continue;
    }
    copy.starts[copy.shares] = walk;
    loop.count = copy.shares;
    loop.threads = walk.used < 2 * SHARE ? 1 : device->copy_threads;
    blasd_parallel_run(&loop);
}

/* The next chunk of a ring, free and with memory. */
static int chunk_ready(struct blasd_device *device, struct blasd_cuda_chunk *chunk,
                       struct blasd_err *err) {
    const struct blasd_gpu_library *calls = device->calls;
    void *memory = NULL;
    int code = 0;
    if (chunk->memory == NULL) {
        code = calls->host_alloc(device->gpu, device->sizes.chunk_bytes, &memory, err);
        if (code != 0) return code;
        chunk->memory = memory;
    }
    if (chunk->done == NULL) code = calls->event_open(device->gpu, &chunk->done, err);
    if (code == 0 && chunk->busy) code = calls->event_wait(chunk->done, err);
    if (code == 0) chunk->busy = false;
    return code;
}

/* One copy between the device and the chunk for each row of pieces that join. */
static int copy_runs(struct blasd_device *device, struct walk *walk, char *chunk, bool up,
                     struct blasd_err *err) {
    const struct blasd_gpu_library *calls = device->calls;
    char *run = NULL, *run_device = NULL;
    size_t bytes = 0;
    struct step step = {0};
    int code = 0;
    for (bool more = true; more && code == 0;) {
        more = walk_next(walk, &step);
        if (more && step.joins) {
            bytes = step.offset + step.part.bytes - (size_t)(run - chunk);
            continue;
        }
        if (run != NULL)
            code = up ? calls->copy_up(device->up, run_device, run, bytes, err)
                      : calls->copy_down(device->down, run, run_device, bytes, err);
        run = chunk + step.offset;
        run_device = step.part.device;
        bytes = step.part.bytes;
    }
    return code;
}

/* Copies the pinned pieces that are next, *at among them. */
static int copy_pinned(struct blasd_device *device, const struct blasd_cuda_list *list,
                       struct blasd_cuda_cursor *at, bool up, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = device->calls;
    int code = 0;
    while (code == 0 && at->piece < list->count && list->pieces[at->piece].pinned) {
        const struct blasd_cuda_piece *piece = &list->pieces[at->piece++];
        code = up ? calls->copy_up(device->up, piece->device, piece->host, piece->bytes, err)
                  : calls->copy_down(device->down, piece->host, piece->device, piece->bytes, err);
    }
    return code;
}

int blasd_cuda_upload(struct blasd_device *device, const struct blasd_cuda_list *list,
                      struct blasd_err *err) {
    struct blasd_cuda_ring *ring = &device->ring;
    struct blasd_cuda_cursor at = {0, 0};
    for (;;) {
        struct blasd_cuda_chunk *chunk = &ring->chunks[ring->next];
        struct walk walk = {.list = list, .chunk_bytes = device->sizes.chunk_bytes};
        int code = copy_pinned(device, list, &at, true, err);
        if (code != 0 || at.piece == list->count) return code;
        walk.at = at;
        code = chunk_ready(device, chunk, err);
        if (code == 0) copy_chunk(device, walk, NULL, chunk->memory, true);
        if (code == 0) code = copy_runs(device, &walk, chunk->memory, true, err);
        if (code == 0) code = device->calls->event_record(chunk->done, device->up, err);
        if (code != 0) return code;
        chunk->busy = true;
        ring->next = (ring->next + 1) % BLASD_CUDA_CHUNKS;
        at = walk.at;
    }
}

/* Waits for the oldest chunk of the slot's ring and unpacks it. */
static int store_oldest(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    struct blasd_cuda_ring *ring = &slot->ring;
    int oldest = (ring->next + BLASD_CUDA_CHUNKS - ring->busy) % BLASD_CUDA_CHUNKS;
    struct blasd_cuda_chunk *chunk = &ring->chunks[oldest];
    struct walk walk = {&slot->down, slot->device->sizes.chunk_bytes, .at = chunk->from};
    int code = slot->device->calls->event_wait(chunk->done, err);
    if (code != 0) return code;
    /* the list may have grown since: the chunk ends where it ended */
    copy_chunk(slot->device, walk, &chunk->to, chunk->memory, false);
    chunk->busy = false;
    ring->busy--;
    return 0;
}

int blasd_cuda_download(struct blasd_cuda_slot *slot, bool all, struct blasd_err *err) {
    struct blasd_device *device = slot->device;
    struct blasd_cuda_ring *ring = &slot->ring;
    for (;;) {
        struct blasd_cuda_chunk *chunk = &ring->chunks[ring->next];
        struct walk walk = {.list = &slot->down, .chunk_bytes = device->sizes.chunk_bytes};
        int code = copy_pinned(device, &slot->down, &slot->sent, false, err);
        if (code != 0 || slot->sent.piece == slot->down.count) return code;
        walk.at = slot->sent;
        if (ring->busy == BLASD_CUDA_CHUNKS) {
            if (!all) return 0;
            code = store_oldest(slot, err);
        }
        if (code == 0) code = chunk_ready(device, chunk, err);
        if (code == 0) code = copy_runs(device, &walk, chunk->memory, false, err);
        if (code == 0) code = device->calls->event_record(chunk->done, device->down, err);
        if (code != 0) return code;
        chunk->from = slot->sent;
        chunk->to = walk.at;
        chunk->busy = true;
        slot->sent = walk.at;
        ring->next = (ring->next + 1) % BLASD_CUDA_CHUNKS;
        ring->busy++;
    }
}

int blasd_cuda_store(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    while (slot->ring.busy > 0) {
        int code = store_oldest(slot, err);
        if (code != 0) return code;
    }
    return 0;
}

int blasd_cuda_copy_to_host(struct blasd_device *device, char *to, const char *from, size_t bytes,
                            struct blasd_err *err) {
    const struct blasd_gpu_library *calls = device->calls;
    size_t most = device->sizes.chunk_bytes;
    int code = chunk_ready(device, &device->home, err);
    for (size_t at = 0; code == 0 && at < bytes; at += most) {
        size_t part = bytes - at < most ? bytes - at : most;
        code = calls->copy_down(device->down, device->home.memory, from + at, part, err);
        if (code == 0) code = calls->stream_wait(device->down, err);
        if (code == 0) memcpy(to + at, device->home.memory, part);
    }
    return code;
}

void blasd_cuda_chunk_release(struct blasd_device *device, struct blasd_cuda_chunk *chunk) {
    if (chunk->memory != NULL) device->calls->host_free(device->gpu, chunk->memory);
    device->calls->event_close(chunk->done);
    *chunk = (struct blasd_cuda_chunk){0};
}

void blasd_cuda_ring_reset(struct blasd_cuda_ring *ring) {
    for (int i = 0; i < BLASD_CUDA_CHUNKS; i++) ring->chunks[i].busy = false;
    ring->busy = 0;
}

void blasd_cuda_ring_release(struct blasd_device *device, struct blasd_cuda_ring *ring) {
    for (int i = 0; i < BLASD_CUDA_CHUNKS; i++) blasd_cuda_chunk_release(device, &ring->chunks[i]);
}
