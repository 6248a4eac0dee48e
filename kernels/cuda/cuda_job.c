/* What operations call: addresses, memory, tables, and moving data by hand.
 * Read next: ../matmul/cuda_matmul.cu, the first of them. */
#include "kernels/cuda/device.h"

#include <stdlib.h>
#include <string.h>

void *blasd_cuda_in(const struct blasd_cuda_job *job, int t, int i) {
    return job->slot->inputs[(size_t)(job->first + t) * BLASD_MAX_INPUTS + (size_t)i];
}

void *blasd_cuda_out(const struct blasd_cuda_job *job, int t, int o) {
    return job->slot
        ->outputs[(size_t)(job->first + t) * (size_t)job->slot->output_count + (size_t)o];
}

/* Tensors of one place and equal sizes lie one after the other. */
int64_t blasd_cuda_in_step(const struct blasd_cuda_job *job, int i) {
    return job->count > 1 ? (char *)blasd_cuda_in(job, 1, i) - (char *)blasd_cuda_in(job, 0, i) : 0;
}

int64_t blasd_cuda_out_step(const struct blasd_cuda_job *job, int o) {
    return job->count > 1 ? (char *)blasd_cuda_out(job, 1, o) - (char *)blasd_cuda_out(job, 0, o)
                          : 0;
}

int blasd_cuda_take(struct blasd_cuda_job *job, size_t bytes, void **ret, struct blasd_err *err) {
    return blasd_cuda_arena_take(job->slot->device, &job->slot->arena, bytes, 256, ret, err);
}

int blasd_cuda_host(struct blasd_cuda_job *job, size_t bytes, void **ret, struct blasd_err *err) {
    *ret = blasd_cuda_scrap_take(&job->slot->scraps, bytes);
    if (*ret == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for %zu bytes on the host",
                          bytes);
    return 0;
}

int blasd_cuda_host_pinned(struct blasd_cuda_job *job, size_t bytes, void **ret,
                           struct blasd_err *err) {
    struct blasd_cuda_slot *slot = job->slot;
    int code = 0;
    if (slot->pinned_bytes < bytes) {
        if (slot->pinned != NULL) job->calls->host_free(job->gpu, slot->pinned);
        slot->pinned = NULL;
        slot->pinned_bytes = 0;
        code = job->calls->host_alloc(job->gpu, bytes, &slot->pinned, err);
        if (code == 0) slot->pinned_bytes = bytes;
    }
    *ret = slot->pinned;
    return code;
}

static int both_sides(struct blasd_cuda_job *job, size_t bytes, struct blasd_cuda_list *list,
                      void **host, void **device, struct blasd_err *err) {
    struct blasd_cuda_slot *slot = job->slot;
    int code = blasd_cuda_host(job, bytes, host, err);
    if (code == 0) code = blasd_cuda_arena_take(slot->device, &slot->arena, bytes, 64, device, err);
    return code == 0 ? blasd_cuda_list_add(slot, list, *device, *host, bytes, err) : code;
}

int blasd_cuda_table(struct blasd_cuda_job *job, size_t bytes, void **host, void **device,
                     struct blasd_err *err) {
    return both_sides(job, bytes, &job->slot->up, host, device, err);
}

int blasd_cuda_return(struct blasd_cuda_job *job, size_t bytes, void **host, void **device,
                      struct blasd_err *err) {
    return both_sides(job, bytes, &job->slot->down, host, device, err);
}

int blasd_cuda_flags(struct blasd_cuda_job *job, size_t bytes, void **host, void **device,
                     struct blasd_err *err) {
    int code = blasd_cuda_table(job, bytes, host, device, err);
    return code == 0 ? blasd_cuda_list_add(job->slot, &job->slot->down, *device, *host, bytes, err)
                     : code;
}

/* Turns the last `count` pieces of an array, which follow `behind` others, into its first. */
static int move_to_front(struct blasd_cuda_piece *pieces, int behind, int count,
                         struct blasd_err *err) {
    size_t bytes = (size_t)count * sizeof *pieces;
    struct blasd_cuda_piece *kept;
    if (behind == 0 || count == 0) return 0;
    kept = malloc(bytes);
    if (kept == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a list of copies");
    memcpy(kept, pieces + behind, bytes);
    memmove(pieces + count, pieces, (size_t)behind * sizeof *pieces);
    memcpy(pieces, kept, bytes);
    free(kept);
    return 0;
}

int blasd_cuda_send(struct blasd_cuda_job *job, void *host, const void *device, size_t bytes,
                    int *ticket, struct blasd_err *err) {
    struct blasd_cuda_slot *slot = job->slot;
    const struct blasd_gpu_library *calls = job->calls;
    int number = slot->sends % BLASD_CUDA_TICKETS, code = 0;
    int before = slot->down.count, behind, added;
    if (slot->tickets[number] == NULL)
        code = calls->event_open(job->gpu, &slot->tickets[number], err);
    if (code == 0) code = blasd_cuda_list_add(slot, &slot->down, device, host, bytes, err);
    if (code == 0) code = calls->event_record(slot->run_to, slot->run, err);
    if (code == 0) code = calls->stream_after(slot->device->down, slot->run_to, err);
    if (code != 0) return code;
    /* outputs that the frame moves stand in the list already, and go when all is computed: these
     * pieces go before them */
    added = slot->down.count - before;
    behind = before - slot->sent.piece;
    code = move_to_front(slot->down.pieces + slot->sent.piece, behind, added, err);
    if (code != 0) return code;
    slot->down.count -= behind;
    code = blasd_cuda_download(slot, true, err);
    slot->down.count += behind;
    if (code == 0) code = calls->event_record(slot->tickets[number], slot->device->down, err);
    if (ticket != NULL) *ticket = slot->sends;
    slot->sends++;
    return code;
}

int blasd_cuda_sent(struct blasd_cuda_job *job, int ticket, struct blasd_err *err) {
    struct blasd_cuda_slot *slot = job->slot;
    if (ticket < 0 || ticket >= slot->sends)
        return blasd_fail(err, BLASD_E_internal_error, "", "there was no send %d", ticket);
    /* one so old that its event has been used again went before that one */
    return job->calls->stream_after(slot->run, slot->tickets[ticket % BLASD_CUDA_TICKETS], err);
}

int blasd_cuda_pause(struct blasd_cuda_job *job, struct blasd_err *err) {
    return job->calls->stream_wait(job->stream, err);
}
