/* Batches that come again exactly as before (keys, count, addresses) and put much work on the
 * stream: recorded once as a CUDA graph, then launched as one. Where recording fails, or would gain
 * nothing, compute runs as always. Bounded: a few graphs for each slot, whose addresses are its
 * own. Read next: tune.c. */
#include "kernels/cuda/device.h"

#include <stdlib.h>
#include <string.h>

#define SIGNATURE_MOST ((size_t)32 << 10) /* a batch of more kinds than fit hardly comes again */

static bool add(struct blasd_cuda_replay *replay, size_t *used, const void *bytes, size_t count) {
    if (count > SIGNATURE_MOST - *used) return false;
    if (*used + count > replay->room) {
        size_t room = replay->room * 2 > *used + count ? replay->room * 2 : *used + count + 256;
        char *signature = realloc(replay->signature, room);
        if (signature == NULL) return false;
        replay->signature = signature;
        replay->room = room;
    }
    memcpy(replay->signature + *used, bytes, count);
    *used += count;
    return true;
}

/* Everything that decides what compute does: the operation, the tasks' keys in their order, the
 * block in which all their memory lies and how much of it, the algorithms that were chosen. Equal
 * keys laid out in one block lie at equal addresses. False: this batch cannot be told. */
static bool sign(struct blasd_cuda_slot *slot, size_t *used) {
    const struct blasd_cuda_job *job = &slot->job;
    const struct blasd_cuda_block *block = &slot->arena.blocks[0];
    struct blasd_cuda_replay *replay = &slot->replay;
    bool fits;
    *used = 0;
    if (slot->arena.count != 1) return false;
    fits = add(replay, used, &slot->op, sizeof slot->op) &&
           add(replay, used, &block->memory, sizeof block->memory) &&
           add(replay, used, &block->bytes, sizeof block->bytes) &&
           add(replay, used, &block->used, sizeof block->used) &&
           add(replay, used, &slot->device->tuner.changes, sizeof slot->device->tuner.changes);
    for (int t = 0; fits && t < job->count;) {
        const struct blasd_key *key = &job->tasks[t].plan->key;
        int run = 1;
        if (key->len > BLASD_KEY_MAX) return false;
        while (t + run < job->count && blasd_key_equal(key, &job->tasks[t + run].plan->key)) run++;
        fits = add(replay, used, &run, sizeof run) &&
               add(replay, used, &key->len, sizeof key->len) &&
               add(replay, used, key->bytes, key->len);
        t += run;
    }
    return fits;
}

static void forget(struct blasd_cuda_slot *slot, struct blasd_cuda_recording *recording) {
    slot->device->calls->graph_close(recording->graph);
    free(recording->signature);
    *recording = (struct blasd_cuda_recording){0};
}

/* The recording of the batch whose signature was made; NULL where memory is short. */
static struct blasd_cuda_recording *find(struct blasd_cuda_slot *slot, size_t bytes) {
    struct blasd_cuda_replay *replay = &slot->replay;
    struct blasd_cuda_recording *oldest = &replay->recordings[0];
    char *signature;
    replay->time++;
    for (int i = 0; i < replay->count; i++) {
        struct blasd_cuda_recording *recording = &replay->recordings[i];
        if (recording->bytes == bytes &&
            memcmp(recording->signature, replay->signature, bytes) == 0) {
            recording->used = replay->time;
            return recording;
        }
        if (recording->used < oldest->used) oldest = recording;
    }
    signature = malloc(bytes);
    if (signature == NULL) return NULL;
    memcpy(signature, replay->signature, bytes);
    if (replay->count < BLASD_CUDA_GRAPHS)
        oldest = &replay->recordings[replay->count++];
    else
        forget(slot, oldest);
    *oldest =
        (struct blasd_cuda_recording){.signature = signature, .bytes = bytes, .used = replay->time};
    return oldest;
}

/* Makes the graph. Afterwards it is there, or the recording is useless; nothing has run. Only what
 * fails the device fails the batch. */
static int record(struct blasd_cuda_slot *slot, struct blasd_cuda_recording *recording,
                  struct blasd_err *err) {
    const struct blasd_gpu_library *calls = slot->device->calls;
    struct blasd_err later;
    int nodes = 0, code, ended;
    recording->useless = true;
    code = calls->capture_begin(slot->run, err);
    if (code != 0) return code;
    slot->replay.recording = true;
    code = slot->op->compute(&slot->job, err);
    slot->replay.recording = false;
    ended = calls->capture_end(slot->run, &recording->graph, &nodes, &later);
    if (ended == -(int)BLASD_E_device_error || (code == 0 && ended != 0)) {
        code = ended;
        *err = later;
    }
    /* memory that was taken outside of the block may be elsewhere the next time */
    if (code == 0 && nodes >= blasd_cuda_habits.graph_nodes && slot->arena.count == 1) {
        recording->useless = false;
        return 0;
    }
    calls->graph_close(recording->graph);
    recording->graph = NULL;
    return code;
}

static int launch(struct blasd_cuda_slot *slot, struct blasd_cuda_recording *recording,
                  struct blasd_err *err) {
    int code = slot->device->calls->graph_launch(recording->graph, slot->run, err);
    if (code != -(int)BLASD_E_internal_error) return code;
    slot->device->calls->graph_close(recording->graph);
    recording->graph = NULL;
    recording->useless = true;
    return slot->op->compute(&slot->job, err);
}

void blasd_cuda_repeats(struct blasd_cuda_job *job) {
    job->slot->repeats = true;
}

int blasd_cuda_compute(struct blasd_cuda_slot *slot, struct blasd_err *err) {
    struct blasd_cuda_recording *recording = NULL;
    size_t bytes;
    int code;
    if (slot->repeats && blasd_cuda_habits.graph_seen > 0 && sign(slot, &bytes))
        recording = find(slot, bytes);
    if (recording == NULL || recording->useless) return slot->op->compute(&slot->job, err);
    if (recording->graph == NULL && ++recording->seen < blasd_cuda_habits.graph_seen)
        return slot->op->compute(&slot->job, err);
    if (recording->graph == NULL) {
        code = record(slot, recording, err);
        if (code == -(int)BLASD_E_device_error) return code;
        if (recording->useless) return slot->op->compute(&slot->job, err);
    }
    return launch(slot, recording, err);
}

void blasd_cuda_replay_release(struct blasd_cuda_slot *slot) {
    for (int i = 0; i < slot->replay.count; i++) forget(slot, &slot->replay.recordings[i]);
    slot->replay.count = 0;
    free(slot->replay.signature);
    slot->replay.signature = NULL;
}
