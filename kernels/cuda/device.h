/* The backend's own: the device, its two slots, and how bytes travel. For the files of this folder;
 * operations include cuda_op.h.
 *
 * A slot is what one batch occupies from its upload to its last downloaded byte. Uploads of all
 * slots share one stream and one ring of pinned chunks, downloads share a stream, and each slot
 * computes on a stream of its own. Read next: transfer.c, pinned.c, memory.c, cache.c,
 * async_batch.c, cuda_backend.c; then energy.c. */
#ifndef BLASD_KERNELS_CUDA_DEVICE_H
#define BLASD_KERNELS_CUDA_DEVICE_H

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/tuning.h"

#include <pthread.h>

#define BLASD_CUDA_SLOTS 2
#define BLASD_CUDA_CHUNKS 8   /* pinned chunks of a ring */
#define BLASD_CUDA_TICKETS 16 /* sends that can be told apart */

/* ---- transfer.c ---- */

/* Bytes that lie here on the device and there on the host. */
struct blasd_cuda_piece {
    char *device, *host;
    size_t bytes;
    bool pinned; /* the host's side is: it needs no chunk */
    bool apart;  /* the device's side is memory of its own, beyond which no copy may run */
};

/* Pieces in the order in which they travel. */
struct blasd_cuda_list {
    struct blasd_cuda_piece *pieces; /* owned */
    int count, room;
};
/* `list` is of what the slot's part moves. */
int blasd_cuda_list_add(struct blasd_cuda_slot *slot, struct blasd_cuda_list *list,
                        const void *device, const void *host, size_t bytes, struct blasd_err *err);

/* A place in a list. */
struct blasd_cuda_cursor {
    int piece;
    size_t offset;
};

struct blasd_cuda_chunk {
    char *memory; /* owned, pinned; NULL until needed */
    struct blasd_gpu_event *done;
    bool busy; /* a copy was put on its stream, and nobody has waited for it */
    struct blasd_cuda_cursor from, to; /* downloads: what it holds, of the slot's list */
};

struct blasd_cuda_ring {
    struct blasd_cuda_chunk chunks[BLASD_CUDA_CHUNKS];
    int next, busy; /* the chunk to use next; downloads: how many hold something */
};

struct blasd_device;
/* Puts the whole list on the upload stream; waits for the host's side only. */
int blasd_cuda_upload(struct blasd_device *device, const struct blasd_cuda_list *list,
                      struct blasd_err *err);
/* Puts as much of the list, from *sent on, on the download stream as the slot's ring has room for;
 * with `all`, everything, storing what comes. */
int blasd_cuda_download(struct blasd_cuda_slot *slot, bool all, struct blasd_err *err);
/* Waits for what was put on the stream and stores it. */
int blasd_cuda_store(struct blasd_cuda_slot *slot, struct blasd_err *err);
/* To any memory of the host, at once: returns when it is there. */
int blasd_cuda_copy_to_host(struct blasd_device *device, char *to, const char *from, size_t bytes,
                            struct blasd_err *err);
/* Forgets what is in the ring; nothing may be under way. */
void blasd_cuda_ring_reset(struct blasd_cuda_ring *ring);
void blasd_cuda_chunk_release(struct blasd_device *device, struct blasd_cuda_chunk *chunk);
void blasd_cuda_ring_release(struct blasd_device *device, struct blasd_cuda_ring *ring);

/* ---- pinned.c ---- */

/* A mapping of the worker's. */
struct blasd_cuda_range {
    char *memory;
    size_t bytes; /* whole pages */
    bool writable, registered, refused;
    unsigned slots; /* a bit each: whose parts read or write it */
    uint64_t batch; /* the last that used it */
    int batches;    /* how many did, since it came or was given up */
};
struct blasd_cuda_pinned {
    pthread_mutex_t lock;            /* of all of this */
    struct blasd_cuda_range *ranges; /* owned; by their addresses, which do not overlap */
    int count, room;
    size_t bytes, most; /* that are registered; that may be */
    int refusals;       /* in a row */
    char why[160];      /* of the first; "": there was none */
};
void blasd_cuda_pinned_open(struct blasd_device *device);
/* Nothing may be under way. */
void blasd_cuda_pinned_close(struct blasd_device *device);
/* Whether a copy may go to or from these bytes where they lie; if so, they stay pinned until
 * blasd_cuda_unpin of the slot. */
bool blasd_cuda_pin(struct blasd_cuda_slot *slot, const void *memory, size_t bytes);
/* What the slot's part moved has been moved. */
void blasd_cuda_unpin(struct blasd_cuda_slot *slot);
/* Why copies go another way than they could; "": they do not. */
void blasd_cuda_pinned_remark(struct blasd_device *device, char *remark, size_t size);
/* For the backend's memory_comes and memory_goes. */
void blasd_cuda_memory_comes(struct blasd_device *device, void *memory, uint64_t bytes,
                             bool writable);
void blasd_cuda_memory_goes(struct blasd_device *device, void *memory);

/* ---- memory.c ---- */

struct blasd_cuda_block {
    char *memory;
    size_t bytes, used;
};
#define BLASD_CUDA_BLOCKS 32
/* Device memory of a slot: taken piece by piece, given back all at once, kept for the next batch as
 * one block, so that a worker in its stride never asks the runtime for memory. */
struct blasd_cuda_arena {
    struct blasd_cuda_block blocks[BLASD_CUDA_BLOCKS];
    int count;
    size_t want; /* bytes that the last batch took in all */
};
int blasd_cuda_arena_take(struct blasd_device *device, struct blasd_cuda_arena *arena, size_t bytes,
                          size_t align, void **ret, struct blasd_err *err);
void blasd_cuda_arena_reset(struct blasd_device *device, struct blasd_cuda_arena *arena);
void blasd_cuda_arena_release(struct blasd_device *device, struct blasd_cuda_arena *arena);

struct blasd_cuda_scrap; /* a piece of host memory, in a list */
/* Zeroed; NULL where memory has run out. */
void *blasd_cuda_scrap_take(struct blasd_cuda_scrap **list, size_t bytes);
void blasd_cuda_scrap_release(struct blasd_cuda_scrap **list);

/* ---- cache.c ---- */

#define BLASD_CUDA_COPIES 512
struct blasd_cuda_copy {
    struct blasd_key key; /* the input's name */
    uint64_t hash;        /* of it */
    char *memory;         /* owned, on the device */
    size_t room;          /* bytes there */
    const void *from;     /* on the device, what it is to be filled from; NULL: it is filled */
    char *home;           /* of what is here alone: its place on the host; NULL: the host has it */
    size_t bytes;         /* of that */
    bool in_use;          /* by the part that is being put on its streams */
    int lent;             /* to so many parts, which read it where it lies: it stays */
    uint64_t used;        /* the turn in which it was used last */
};
struct blasd_cuda_cache {
    struct blasd_cuda_copy copies[BLASD_CUDA_COPIES]; /* those without a name are nobody's */
    int count;
    uint64_t bytes, turn;
    uint64_t brought; /* bytes that went to the host since somebody told of them */
};
/* What there is of that name (NULL: none) stays until the part is on its streams. */
void blasd_cuda_cache_use(struct blasd_device *device, const struct blasd_key *key);
/* An input of that name is to lie at `place` (key NULL: it has none). True: there is, or will be, a
 * copy to make it from; false: it is to be uploaded, and may become one. */
bool blasd_cuda_cache_hold(struct blasd_device *device, const struct blasd_key *key,
                           const void *place, size_t bytes);
/* For an input that is only read: where the copy of that name lies, which stays there until it is
 * returned; NULL: there is none, nor room for one. *fresh: it is to be uploaded there. */
char *blasd_cuda_cache_lend(struct blasd_device *device, const struct blasd_key *key, size_t bytes,
                            bool *fresh);
void blasd_cuda_cache_return(struct blasd_device *device, const char *memory);
/* After the uploads, for the same inputs in the same order: puts the copy, either way, on the
 * upload stream. */
int blasd_cuda_cache_copy(struct blasd_device *device, const struct blasd_key *key, void *place,
                          size_t bytes, struct blasd_err *err);
/* The part is on its streams, or has failed. */
void blasd_cuda_cache_settle(struct blasd_device *device);
/* An output of that name at `place` is to be resident, `home` being its place on the host. False:
 * there is no room. */
bool blasd_cuda_cache_make_resident(struct blasd_device *device, const struct blasd_key *key,
                                    const void *place, size_t bytes, void *home);
/* Once it is computed: puts the copy on the download stream. */
int blasd_cuda_cache_fill(struct blasd_device *device, const struct blasd_key *key,
                          struct blasd_err *err);
/* Whether that is on the device alone. */
bool blasd_cuda_cache_device_only(struct blasd_device *device, const struct blasd_key *key);
/* For the backend's resident_to_host and resident_forget. */
int blasd_cuda_cache_to_host(struct blasd_device *device, const struct blasd_key *key,
                             struct blasd_err *err);
void blasd_cuda_cache_forget(struct blasd_device *device, const struct blasd_key *prefix);
/* Gives up what can be had again: what is here alone goes to the host first. */
void blasd_cuda_cache_clear(struct blasd_device *device);
void blasd_cuda_cache_release(struct blasd_device *device);
/* For the backend's device_kept. */
int blasd_cuda_cache_ids(const struct blasd_device *device, char (*ids)[BLASD_ID_LEN + 1],
                         int most);

/* ---- energy.c ---- */

struct blasd_cuda_reading {
    double joules;
    int64_t at_ns; /* 0: there is none */
};
struct blasd_cuda_energy {
    struct blasd_cuda_reading last, before;
    int64_t ended_ns; /* of the batch that ended last */
};
/* Around a batch: the second gives its tasks the energy that it took, where the card tells. */
void blasd_cuda_energy_begin(struct blasd_async_batch *batch);
void blasd_cuda_energy_end(struct blasd_async_batch *batch);

/* ---- rule_gpu.cu ---- */

/* Puts on the stream what makes the tensor's elements by the rule, at `to` on the device: the same
 * bits as blasd_rule_fill. */
int blasd_cuda_make(struct blasd_gpu_stream *stream, const struct blasd_rule *rule,
                    const struct blasd_tensor *tensor, void *to, struct blasd_err *err);

/* ---- residents.c ---- */

/* A resident output of a part. */
struct blasd_cuda_resident {
    int task, output;
    uint64_t *host, *device; /* what is seen of it */
};
/* Whether the output, which is to lie at `place`, is resident: then nothing is to be downloaded. */
bool blasd_cuda_make_resident(struct blasd_cuda_slot *slot, int task, int output,
                              const void *place);
/* Room for what is seen; the looks; the copies; telling the tasks. In this order. */
int blasd_cuda_residents_prepare(struct blasd_cuda_slot *slot, struct blasd_err *err);
int blasd_cuda_residents_look(struct blasd_cuda_slot *slot, struct blasd_err *err);
int blasd_cuda_residents_fill(struct blasd_cuda_slot *slot, struct blasd_err *err);
void blasd_cuda_residents_tell(struct blasd_cuda_slot *slot);

/* ---- mixed_batch.c ---- */

/* The tasks of the slot's batch as jobs: tasks of one key that stand side by side are one. */
int blasd_cuda_find_jobs(struct blasd_cuda_slot *slot, struct blasd_err *err);
/* When all of them are prepared: makes one launch of those that can be. */
int blasd_cuda_join_launches(struct blasd_cuda_slot *slot, struct blasd_err *err);
int blasd_cuda_start_joints(struct blasd_cuda_slot *slot, struct blasd_err *err);

/* ---- async_batch.c ---- */

/* Makes the slot's stream and events where they are not there yet. */
int blasd_cuda_slot_open(struct blasd_cuda_slot *slot, struct blasd_err *err);

enum blasd_cuda_slot_state { BLASD_SLOT_IDLE, BLASD_SLOT_BUSY };

struct blasd_cuda_slot {
    struct blasd_device *device; /* borrowed */
    enum blasd_cuda_slot_state state;
    const struct blasd_cuda_op *op;
    struct blasd_cuda_job job;   /* all tasks, whatever their keys */
    struct blasd_cuda_job *jobs; /* of one key each, in scraps */
    int job_count;
    struct blasd_cuda_joint *joints; /* what the jobs launch together, in scraps; once they are
                                        joined an array, before that a list */
    int joint_count;
    struct blasd_async_batch *batch; /* whose part it runs */
    struct blasd_gpu_stream *run;
    struct blasd_gpu_event *up_from, *up_to, *run_from, *run_to, *down_from, *down_to;
    struct blasd_gpu_event *tickets[BLASD_CUDA_TICKETS];
    int sends;
    struct blasd_cuda_arena arena;
    struct blasd_cuda_scrap *scraps;
    void *pinned; /* owned: for what an operation copies by itself; kept for the next batch */
    size_t pinned_bytes;
    struct blasd_cuda_list up, down;
    struct blasd_cuda_cursor sent;         /* in `down`: from here on nothing is on its way */
    struct blasd_cuda_ring ring;           /* of downloads */
    struct blasd_cuda_resident *residents; /* in scraps */
    int resident_count;
    char **inputs, **outputs;     /* [count][BLASD_MAX_INPUTS], [count][outputs of op], in scraps */
    char *lent[BLASD_MAX_INPUTS]; /* of a task alone: inputs that are read from a copy that stays */
    bool fresh[BLASD_MAX_INPUTS]; /* which is uploaded first */
    int output_count;
    int64_t began_ns, queued_ns; /* the part; its last byte was put on the upload stream */
};

struct blasd_cuda_whole;

struct blasd_async_batch {
    struct blasd_device *device;
    struct blasd_task *tasks; /* the caller's, or pieces of them */
    int count;
    struct blasd_cuda_whole *whole; /* owned; NULL: nothing was cut */
    uint64_t number;                /* of the batches that this device has had */
    int begun, ended;               /* tasks that went into a slot, that came out */
    int most;                       /* tasks of a part; falls where memory is short */
    struct blasd_watch *watch;
    double told; /* progress */
    int64_t begun_ns;
    struct blasd_cuda_reading reading; /* of the energy counter, the last before it began */
    int code;                          /* why the whole batch failed */
    struct blasd_err err;
    struct blasd_async_batch *next;
};

/* Bytes of a task's inputs and outputs. */
uint64_t blasd_cuda_task_bytes(const struct blasd_task *task);

/* ---- stack_pieces.c ---- */

/* Puts pieces in the place of tasks that are large stacks, if the operation takes them so. */
void blasd_cuda_cut(struct blasd_async_batch *batch, const struct blasd_cuda_op *op);
/* All has ended: the tasks are told what became of their pieces. */
void blasd_cuda_join(struct blasd_async_batch *batch, const struct blasd_cuda_op *op);

struct blasd_device {
    const struct blasd_gpu_library *calls;
    struct blasd_gpu *gpu;
    struct blasd_gpu_facts facts;
    struct blasd_cuda_sizes sizes;
    int ordinal, copy_threads;
    struct blasd_gpu_stream *up, *down;
    struct blasd_cuda_ring ring;  /* of uploads */
    struct blasd_cuda_chunk home; /* by which blasd_cuda_copy_to_host goes */
    struct blasd_cuda_slot slots[BLASD_CUDA_SLOTS];
    struct blasd_cuda_cache cache;
    struct blasd_cuda_pinned pinned;
    uint64_t batches; /* that it has had */
    int oldest, busy; /* slots in use, a ring too: the oldest is ended first */
    struct blasd_async_batch *open_batches; /* owned; open ones in the order they came */
    struct blasd_nvml *nvml;                /* owned; NULL where there is none */
    struct blasd_cuda_energy energy;
    /* of the parts that ended, by the device's clock; measurements set it to 0 and read it */
    double compute_us;
};

/* ---- nvml.c ---- */

struct blasd_nvml;
/* Finds the device in NVML; NULL where libnvidia-ml is not there or does not know it, or where the
 * card is cut into slices (MIG). */
struct blasd_nvml *blasd_nvml_open(const char *bus_id);
void blasd_nvml_close(struct blasd_nvml *nvml);
/* Fills what the card offers; what it does not stays as it is. */
void blasd_nvml_read(struct blasd_nvml *nvml, struct blasd_device_info *info);
/* Joules since the driver was loaded; false where the card does not count them. */
bool blasd_nvml_energy(struct blasd_nvml *nvml, double *joules);

#endif
